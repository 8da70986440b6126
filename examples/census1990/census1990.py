"""The 1990 census from your own copy of the file: checked, imported, clustered on two ranks, with the times.

    python examples/census1990/census1990.py USCensus1990.data.txt -o census

It stops at the first step that fails, and goes on there when it is started again.
"""

import argparse
import bz2
import contextlib
import gzip
import hashlib
import lzma
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHA256 = "38e99f50855ddc03167b715b36519ef40b77295ae4e85dfef0c6429ac79ed799"  # 361,344,227 bytes, lines end in CR LF
OPENERS = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
MEBIBYTE = 1 << 20


def digest(path):
    """SHA-256 of a file as it is unpacked, its lines ending in CR LF whether they do in this copy or not."""
    seen, held = hashlib.sha256(), b""
    with OPENERS.get(path.suffix, open)(path, "rb") as file:
        while block := file.read(MEBIBYTE):
            block = held + block
            held = block[-1:] if block.endswith(b"\r") else b""  # its LF may be in the next block
            seen.update(block[: len(block) - len(held)].replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))
    seen.update(held)
    return seen.hexdigest()


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="your copy of USCensus1990.data.txt, plain or as .gz, .xz or .bz2")
    parser.add_argument("-o", "--out", type=Path, default=Path("census1990"), help="where the table and the run go")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sha256", default=SHA256, metavar="HEX", help="of another version of the file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as `mpibayes run --set`")
    given = parser.parse_args(words)
    took = {}

    @contextlib.contextmanager
    def timed(step):
        start = time.perf_counter()
        yield
        took[step] = time.perf_counter() - start

    def call(step, *command):
        with timed(step):
            print("$", *command, flush=True)
            done = subprocess.run(command, stdin=subprocess.DEVNULL)
        if done.returncode:
            sys.exit(done.returncode)

    mpibayes = (sys.executable, "-m", "mpibayes")
    table, run = given.out / "census.h5", given.out / "run"
    if not table.exists():
        try:
            with timed("checksum"):
                found = digest(given.file)
        except (OSError, EOFError, lzma.LZMAError) as error:
            print(f"{given.file}: cannot be read: {error}", file=sys.stderr)
            return 3
        if found != given.sha256:
            print(
                f"{given.file}: not the file of the 1990 census that is known here: its sha256 is {found}, expected "
                f"{given.sha256}. Is it complete, and not the zip archive? Another version: --sha256 {found}",
                file=sys.stderr,
            )
            return 3
        given.out.mkdir(parents=True, exist_ok=True)
        call("import", *mpibayes, "import", str(given.file), str(table), "--schema", str(HERE / "schema.toml"))
    settings = [word for one in (f"data.table={table.resolve()}", *given.set) for word in ("--set", one)]
    config = str(HERE / "run.toml")
    call("check", *mpibayes, "check", config, "--ranks", str(given.ranks), *settings)
    call("run", "mpirun", "-n", str(given.ranks), *mpibayes, "run", config, "-o", str(run), *settings)
    call("report", *mpibayes, "report", str(run))
    print("\nseconds: " + ", ".join(f"{step} {seconds:.1f}" for step, seconds in took.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
