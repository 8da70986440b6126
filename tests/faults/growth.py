"""Faults while rows come: appends and starts that take them in, killed at random moments, must end as undisturbed ones.

    python -m tests.faults.growth --runs 40 --seed 1        # about 5 s a run on one core
    python -m tests.faults.growth --seed 1 --only 17        # case 17 again

A case is a run that has ended. Up to three times a file is appended, and the append is disturbed; once two files are
appended at the same time. Up to three starts with --grow are disturbed as those of `tests/faults/campaign.py` are.
After each the table is that of before or after, the run of the earlier rows is whole, and the draws of the new one are
those of a run that nothing disturbed; the last start is left alone.
"""

from __future__ import annotations

import shutil
import sys
import time

from mpibayes.errors import DataError
from mpibayes.hpc.run import grown
from mpibayes.hpc.run.identity import GROWN, PENDING, read_provenance
from mpibayes.io.table import Table
from mpibayes.io.trace import read_trace
from tests.faults import campaign
from tests.faults.campaign import SIGNALS, Case
from tests.faults.cases import Wrong, exports, places, write_csv
from tests.faults.starts import LIMIT, Start

APPEND = ["import", "{}", "table.h5", "--append"]
ONE_PROCESS = [kind for kind in SIGNALS if kind not in ("kill -9 mpirun", "SIGINT to a rank")]


class Growth(Case):
    """A finished run to whose table rows come; the starts that take them in are disturbed."""

    def run(self) -> None:
        self.set_up()
        self.words = [*campaign.RUN, "--grow"]
        self.before = self.expected
        shutil.copytree(self.folder / "quiet", self.folder / "run")
        self.n_rows = [Table.open(self.folder / "table.h5").n_rows]
        for i in range(self.random.randint(1, 3)):
            self.append(f"later-{i}.csv")
        self.append_two()
        self.undisturbed("--grow")
        self.reached = {}
        for _ in range(self.random.randint(1, 3)):
            if not self.disturbed_run():
                break
        self.last_start()
        if exports(grown.place_of(self.folder / "run", 1), self.folder / "exported") != self.before:
            raise Wrong("the run of the earlier rows has other exports than it had")

    def more(self, name: str) -> int:
        n = self.random.randrange(20, 80)
        write_csv(self.folder / name, self.random, n)
        return n

    def append(self, name: str) -> None:
        """One file, at first disturbed: all of its rows are there, or none."""
        n, before, words = self.more(name), self.n_rows[-1], [word.format(name) for word in APPEND]
        start = Start(words, 1, self.folder)
        time.sleep(self.random.uniform(0.2, 1.2))
        self.fault(start, self.random.choice(ONE_PROCESS), "append")
        there = self.require_whole(before, before + n)
        again = Start(words, 1, self.folder)
        code = again.wait()
        if code != (DataError.exit_code if there else 0):
            raise Wrong(f"an append after one that was disturbed, whose rows are there: {there}, ends with {code}")
        self.require_whole(before + n)
        self.n_rows.append(before + n)

    def append_two(self) -> None:
        """Two files at once: one after the other, or one of them is refused and comes later."""
        names = ("at-once-1.csv", "at-once-2.csv")
        n, before = sum(map(self.more, names)), self.n_rows[-1]
        starts = []
        for name in names:
            place = self.folder / name.removesuffix(".csv")  # of its output
            place.mkdir()
            starts.append(Start(["import", f"../{name}", "../table.h5", "--append"], 1, place))
        codes = [start.wait() for start in starts]
        self.history.append(f"two appends at once -> {codes}")
        for start, name, code in zip(starts, names, codes):
            if code not in (0, 2) or "Traceback" in start.output():
                raise Wrong(f"one of two appends ends with {code}: {start.output()[-1500:]}")
            if code and Start([word.format(name) for word in APPEND], 1, self.folder).wait():
                raise Wrong("an append is refused after the other has ended")
        self.require_whole(before + n)

    def require_whole(self, *n_rows: int) -> bool:
        """The table has one of these numbers of rows, and can be read; True if it is the last of them."""
        table = Table.open(self.folder / "table.h5")
        if table.n_rows not in n_rows or len(table.read()) != table.n_rows:
            raise Wrong(f"a table of {table.n_rows} rows after an append, expected one of {n_rows}")
        return table.n_rows == n_rows[-1]

    def await_moment(self, start: Start, aim: str) -> None:
        """Choose in a third of the starts the moment when the earlier run is set aside."""
        if self.random.random() < 0.67:
            super().await_moment(start, aim)
            return
        until = time.monotonic() + LIMIT / 2
        while not (self.folder / "run" / grown.FOLDER).exists() and start.process.poll() is None:
            if time.monotonic() > until:
                break
            time.sleep(0.0005)
        time.sleep(self.random.choice((0.0, 0.002, 0.01, 0.05)))

    def phase(self, start: Start) -> str:
        phase = super().phase(start)
        if phase != "start-up" or not (self.folder / "run" / grown.FOLDER).exists():
            return phase
        record = read_provenance(self.folder / "run")
        return "growth" if PENDING in record or GROWN not in record else phase

    def check_directory(self) -> None:
        """A run of the earlier rows, one that is being made one of all, or that; and the earlier one, once it is."""
        record = read_provenance(self.folder / "run")
        if PENDING in record:
            return
        if GROWN not in record:
            if exports(self.folder / "run", self.folder / "exported") != self.before:
                raise Wrong("a start that was to take rows in has changed the run before it did")
            return
        for place in places(self.folder / "run"):
            before = grown.place_of(self.folder / "run", 1) / place.relative_to(self.folder / "run")
            if not len(read_trace(before)["cycle"]):
                raise Wrong(f"{before} has no trace")
        super().check_directory()


def main() -> int:
    return campaign.main(Growth, __doc__)


if __name__ == "__main__":
    sys.exit(main())
