"""What is measured, beside a peer or a physical limit in the same run.

A module here is a benchmark if it has `measurements(quick: bool) -> Iterator[Measurement]`;
`python -m benchmarks` finds it by that. `quick` means: a tenth of the size, seconds in all. What
it generates goes into a temporary folder of its own.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number of ours beside the number that it is held against; less is better in both.

    `goal` is the largest ratio that is good enough; None where the ratio is only of interest.
    """

    what: str
    ours: float
    peer: float
    peer_is: str
    unit: str
    goal: float | None = None

    @property
    def ratio(self) -> float:
        """Ours in terms of the peer's."""
        return self.ours / self.peer if self.peer else float("inf")

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None where there is none."""
        return None if self.goal is None else self.ratio <= self.goal


def best_of(times: int, run: Callable[[], object]) -> float:
    """The seconds of the fastest of several runs: what else the machine does only adds."""
    return min(seconds_of(run) for _ in range(times))


def seconds_of(run: Callable[[], object]) -> float:
    """The seconds of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def side_by_side(
    ours: Iterable[Callable[[], object]], peer: Iterable[Callable[[], object]]
) -> tuple[float, float]:
    """The medians of steps that take turns, so that both see the same machine."""
    pairs = [(seconds_of(one), seconds_of(other)) for one, other in zip(ours, peer, strict=True)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def in_fresh_process(code: str, *arguments: str) -> dict[str, Any]:
    """What a program prints as JSON, run by itself so that its memory is its own."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    result: dict[str, Any] = json.loads(done.stdout)
    return result
