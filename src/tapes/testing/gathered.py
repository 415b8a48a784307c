"""What a test run did with its tapes, over all its tests and workers.

A worker tells its part as plain values; whoever gathers them adds them up. What nobody used is
said only where every test ran and passed, and of tapes below the folders that were run: else it
would be a guess. A tape is one tape by whatever name it is opened.

Knows nothing of pytest.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tapes.errors import TapesError
from tapes.prices import price_of
from tapes.report import Report, Savings, savings
from tapes.tape.finding import find_tapes
from tapes.tape.kinds import open_tape
from tapes.tape.pruning import Choice, prune


@dataclass(slots=True)
class TapeRuns:
    """What was done with one tape."""

    path: str
    is_file: bool = True  # not a tape in memory, nor a cassette of another tool
    modes: list[str] = field(default_factory=list)
    hits: dict[str, int] = field(default_factory=dict)
    recordings: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    reused: int = 0
    expired: list[str] = field(default_factory=list)

    def add(self, other: "TapeRuns") -> None:
        """Take in what was done in another test, or by another worker."""
        self.modes = sorted({*self.modes, *other.modes})
        for name in ("hits", "recordings", "counts"):
            setattr(self, name, dict(Counter(getattr(self, name)) + Counter(getattr(other, name))))
        self.reused += other.reused
        self.expired = sorted({*self.expired, *other.expired})

    @property
    def used(self) -> set[str]:
        """The keys that were served or recorded."""
        return {*self.hits, *self.recordings}


@dataclass(slots=True)
class Gathered:
    """All tapes of a run.

    `folders` are where tapes of its tests lie, `spared` those of tests that did not run whole.
    `within` are the folders of which all tests ran, if not the whole project.
    """

    tapes: dict[str, TapeRuns] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    spared: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    left_out: int = 0
    within: list[str] | None = None

    def took(self, report: Report, path: str, *, is_file: bool) -> None:
        """A test is through with a tape."""
        done = TapeRuns(
            path, is_file, [report.mode], dict(report.hits), dict(report.recordings),
            dict(report.counts), report.reused, sorted(report.expired),
        )  # fmt: skip
        self.tapes.setdefault(path, TapeRuns(path, is_file)).add(done)

    def note(self, text: str) -> None:
        """Something to be said once at the end."""
        if text not in self.notes:
            self.notes.append(text)

    # --- workers

    def as_plain(self) -> dict[str, Any]:
        """Everything, as values that go from process to process."""
        return {
            "tapes": [asdict(one) for one in self.tapes.values()],
            "folders": sorted(self.folders),
            "spared": sorted(self.spared),
            "notes": self.notes,
            "left_out": self.left_out,
        }

    def add_plain(self, told: Mapping[str, Any]) -> None:
        """Take in what a worker told."""
        for one in told["tapes"]:
            runs = TapeRuns(**one)
            self.tapes.setdefault(runs.path, TapeRuns(runs.path, runs.is_file)).add(runs)
        self.folders |= set(told["folders"])
        self.spared |= set(told["spared"])
        for text in told["notes"]:
            self.note(text)
        self.left_out = max(self.left_out, told["left_out"])

    # --- the end

    @property
    def totals(self) -> Counter[str]:
        """How often was served, reused, live, recorded, refused, expired, in all."""
        total = Counter[str]()
        for one in self.tapes.values():
            total.update(one.counts)
            total["served"] += sum(one.hits.values())
            total["recorded"] += sum(one.recordings.values())
            total["reused"] += one.reused
            total["expired"] += len(one.expired)
        return total

    def saved(self) -> Savings:
        """What answers from tapes made unnecessary. What cannot be read any more saved nothing."""
        return savings(self._served(), price_of)

    def _served(self) -> Iterator[Any]:
        for runs in self.tapes.values():
            if not (runs.is_file and runs.hits):
                continue
            try:
                tape = open_tape(runs.path)
            except TapesError:
                continue
            try:
                for key, times in runs.hits.items():
                    exchange = tape.answer(key)
                    if exchange is not None:
                        yield exchange, times
            except TapesError:
                pass
            finally:
                tape.close()

    def unused_recordings(self) -> dict[str, list[str]]:
        """Tapes of the run, and the keys on them that nobody asked for."""
        left = {}
        spared = set(map(os.path.realpath, self.spared))
        for file, (path, used) in sorted(self._used().items()):
            if file in spared or not self._is_judged(file) or not os.path.exists(file):
                continue
            tape = open_tape(path)
            try:
                keys = sorted(tape.keys() - used)
            finally:
                tape.close()
            if keys:
                left[path] = keys
        return left

    def _used(self) -> dict[str, tuple[str, set[str]]]:
        """By the file that it is: the first name of each tape, and the keys that were asked."""
        used = dict[str, tuple[str, set[str]]]()
        for path, runs in sorted(self.tapes.items()):
            if runs.is_file:
                used.setdefault(os.path.realpath(path), (path, set()))[1].update(runs.used)
        return used

    def _is_judged(self, file: str) -> bool:
        """Whether all tests ran that may use a tape."""
        if self.within is None:
            return True
        folders = (os.path.join(os.path.realpath(folder), "") for folder in self.within)
        return any(file.startswith(folder) for folder in folders)

    def unused_tapes(self) -> list[str]:
        """Tapes in the folders of the tests that no test opened."""
        known = {os.path.realpath(path) for path in (*self.tapes, *self.spared)}
        found = {
            path for folder in self.folders if os.path.isdir(folder) for path in find_tapes(folder)
        }
        return sorted(
            path
            for path in found
            if (file := os.path.realpath(path)) not in known and self._is_judged(file)
        )

    def prune(self, recordings: Iterable[str]) -> None:
        """Take the recordings that nobody asked for off these tapes."""
        used = self._used()
        for path in recordings:
            prune(path, Choice(used=used[os.path.realpath(path)][1]))
