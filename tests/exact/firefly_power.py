"""Power of the tests of Firefly's posterior, and their false-alarm rate.

    python -m tests.exact.firefly_power                     rejections of wrong and right programs by the tests
    python -m tests.exact.firefly_power --geweke            the same for Geweke's test
    python -m tests.exact.firefly_power --false-alarms 10   p-values of right programs at so many seeds

Some minutes each.
"""

from __future__ import annotations

import argparse
from unittest import mock

import numpy as np

from mpibayes.hpc.parallel.comm import serial
from tests.exact import production_firefly as production
from tests.exact import regression_law
from tests.exact import wrong_firefly as wrong
from tests.exact.regression_cases import posterior
from tests.exact.test_firefly_exact import CONFIGURATIONS, LEVEL, REPLICATES, SWEEPS

HEADER = "| wrong | chain | cycles | wrong rejected | right rejected | median p of wrong | least p of right |"


def line(name: str, chain: str, cycles, bad: list[float], good: list[float]) -> str:
    rejected = [f"{sum(p < LEVEL for p in each)} of {len(each)}" for each in (bad, good)]
    return f"| {name} | {chain} | {cycles} | {rejected[0]} | {rejected[1]} | {np.median(bad):.0e} | {min(good):.2g} |"


def power(seeds) -> None:
    for name, program in wrong.PROGRAMS.items():
        bad = [program.verdict(seed, LEVEL).p for seed in seeds]
        good = [program.verdict(seed, LEVEL, right=True).p for seed in seeds]
        chain = ", ".join(f"{key} {value}" for key, value in program.settings.items())
        print(line(name, f"{program.case}: {chain}", "{} x {}".format(*program.n), bad, good), flush=True)


def power_of_geweke(seeds) -> None:
    from tests.laws import test_geweke_regression as laws

    def row(name, case, bounds, wrong_one):
        bad = [wrong_one(seed) for seed in seeds]
        good = [laws.geweke(case, bounds, "hmc", seed)[0] for seed in seeds]
        print(line(name, f"{case.name}: {bounds}", "100 x 8 x 2", bad, good), flush=True)

    for case in (laws.SOFTMAX, laws.STUDENT):
        for name in laws.WRONG_UPDATES:

            def updates(seed, case=case, name=name):
                with wrong.PROGRAMS[name].in_place():
                    return laws.geweke(case, "untuned", "hmc", seed, in_python=True)[0]

            row(name, case, "untuned", updates)
    for case, misread in laws.WRONG_MODELS:
        row(misread.__doc__, case, "tuned", lambda seed, c=case, m=misread: laws.geweke(c, "tuned", "hmc", seed, m)[0])


def false_alarms(seeds) -> None:
    """Print the uniformity of single p-values, and the least of each verdict after Bonferroni."""
    single, right = [], regression_law.batch_tests

    def kept(*arguments):
        p, z = right(*arguments)
        single.append(p)
        return p, z

    with mock.patch.object(regression_law, "batch_tests", kept):
        verdicts = [
            production.verdict(
                serial(), posterior(name), n_shards, seed, REPLICATES, LEVEL,
                bounds=bounds, theta_update=move, **SWEEPS[sweep],
            )
            for seed in seeds
            for name, bounds, move, sweep, n_shards in CONFIGURATIONS
        ]  # fmt: skip
    p, single = np.array([v.p for v in verdicts]), np.concatenate(single)
    print(f"{len(p)} laws of right programs: least p {p.min():.2g}, {(p < LEVEL).sum()} below {LEVEL:g}")
    for level in (0.05, 0.01, 0.001, 0.0001):
        print(
            f"below {level:g}: {(p < level).mean():.4f} of them, {(single < level).mean():.5f} of {len(single)} tests"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--geweke", action="store_true")
    parser.add_argument("--false-alarms", type=int, metavar="SEEDS")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1000)
    given = parser.parse_args()
    if given.false_alarms:
        false_alarms(range(given.seed, given.seed + given.false_alarms))
        return
    print(HEADER + "\n|" + " --- |" * 7)
    (power_of_geweke if given.geweke else power)(range(given.seed, given.seed + given.repeats))


if __name__ == "__main__":
    main()
