"""Hashes of the results of a dozen small runs, to compare two versions of the program on one machine and build.

    python -m tests.house.bits > before.txt        # on the version before
    python -m tests.house.bits before.txt          # on the version after: prints differences, exit code 1

A line is a name and the SHA-256 of `export --to csv --no-timings` and of `--to labels --burn-in 0`. A change that
leaves arithmetic and random numbers alone changes none.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

from tests.run.conftest import config_text, mixed_table, mpibayes, run, run_some
from tests.run.test_blocks import CONFIG as JOINT
from tests.run.test_blocks import joint_table
from tests.run.test_regression_runs import CONFIG as REGRESSION
from tests.run.test_regression_runs import RESPONSE, people

ANNEALED = ("sampler.strategy=anneal", "anneal.passes=5", "run.burn_in=auto", "run.cycles=40")
MIXED = {
    "mixed": (),
    "opening-all": ("sampler.opening=all", "sampler.sweeps_per_cycle=3"),
    "annealed": ANNEALED,
    "sequential": ("sampler.strategy=sequential+gibbs",),
    "prior": ("sampler.strategy=prior+gibbs", "model.discount=0.3"),
    "no-moves": ("sampler.split_merge=0", "run.chains=2"),
    "views": ("model.family=crosscat", "sampler.init_views=4", "run.cycles=12"),
}


def cases(place: Path):
    """(name, run directory) of each run."""
    mixed_table(place / "table.h5")
    (place / "run.toml").write_text(config_text(shards=7))
    for name, changes in MIXED.items():
        words = [word for change in changes for word in ("--set", change)]
        for ranks in (1, 3) if name in ("mixed", "annealed", "views") else (1,):
            yield f"{name}-{ranks}", done(run(place, f"{name}-{ranks}", *words, ranks=ranks), place / f"{name}-{ranks}")
    done(run_some(place, "stopped", 9, ranks=2), place / "stopped", 75)
    yield "stopped", done(run(place, "stopped"), place / "stopped")
    joint = place / "joint"
    joint.mkdir()
    joint_table(joint / "table.h5")
    (joint / "run.toml").write_text(JOINT)
    for ranks in (1, 3):
        yield f"joint-{ranks}", done(run(joint, f"joint-{ranks}", ranks=ranks), joint / f"joint-{ranks}")
    people(place / "people.h5")
    for family, response in RESPONSE.items():
        (place / "run.toml").write_text(REGRESSION.format(family=family, response=response))
        for ranks in (1, 3) if family == "softmax" else (1,):
            out = f"{family}-{ranks}"
            yield out, done(run(place, out, ranks=ranks), place / out)


def done(finished, folder: Path, code: int = 0) -> Path:
    if finished.returncode != code:
        raise RuntimeError(finished.stdout + finished.stderr)
    return folder


def sums():
    """(name, form, SHA-256 or "-" where there is no such export)."""
    with tempfile.TemporaryDirectory() as folder:
        for name, run_directory in cases(Path(folder)):
            for form in (("csv", "--no-timings"), ("labels", "--burn-in", 0)):
                out = Path(folder) / f"{name}.{form[0]}"
                text = mpibayes(Path(folder), "export", run_directory, "--to", *form, "-o", out)
                files = sorted(out.rglob("*")) if out.is_dir() else [out] if text.returncode == 0 else []
                bits = b"".join(path.read_bytes() for path in files if path.is_file())
                yield name, form[0], hashlib.sha256(bits).hexdigest() if bits else "-"


def main() -> int:
    before = Path(sys.argv[1]).read_text().splitlines() if len(sys.argv) > 1 else None
    result = []
    for words in sums():
        result.append(" ".join(words))
        if before is None:
            print(result[-1], flush=True)
    if before is None:
        return 0
    differ = sorted(set(before) ^ set(result))
    print("\n".join(differ) or f"all {len(result)} are the same")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())
