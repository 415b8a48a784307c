"""What a service may take, and what it took: slots, a breaker, and counters.

Rule 1: a service has so many requests at once and no more; one that hangs holds its own slots and
        nobody else's.
Rule 2: a service that failed several times in a row rests: requests are refused at once, for a
        time that grows, and then one of them tries it. Any answer at all ends its rest. Only the
        failure of such a try makes the next rest longer: requests that were under way before, be
        they ever so many, tell nothing new.
Rule 3: what was refused, failed or cut is counted beside what went well.

Times come as arguments. Knows nothing of HTTP.  Pure.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tapes.errors import Busy

# Seconds; the last one is everything above.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one service may take. Zero is no limit for the two sizes."""

    at_once: int = 64
    request_bytes: int = 256 * 1024 * 1024
    response_bytes: int = 0
    connect_s: float = 10.0
    silence_s: float = 300.0
    failures: int = 5
    rest_s: float = 1.0
    longest_rest_s: float = 30.0


class Breaker:
    """Lets a service rest after failures in a row (rule 2)."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._failures = 0
        self._rests = 0  # one after the other
        self._rests_until = 0.0
        self._tries = 0
        self._trying = 0  # which of them is under way

    def enter(self, service: str, now: float) -> int:
        """Ask for leave to send a request; which try it is, or 0. Raises Busy while it rests."""
        if self._failures < self._limits.failures:
            return 0
        left = self._rests_until - now
        if left > 0 or self._trying:
            raise Busy(
                f"cassette {service} failed {self._failures} times in a row and is not asked now",
                "it is asked again by itself; tapes cassette list shows how it does",
                retry_after_s=max(left, 1.0),
            )
        self._tries += 1
        self._trying = self._tries
        return self._tries

    def answered(self) -> None:
        """The service answered something."""
        self._failures = self._rests = self._trying = 0

    def failed(self, which: int, now: float) -> None:
        """The service gave no answer to a request that was let in as this try, or as none."""
        self._failures += 1
        if self._failures == self._limits.failures or (which and which == self._trying):
            rest = self._limits.rest_s * 2 ** min(self._rests, 20)
            self._rests += 1
            self._rests_until = now + min(rest, self._limits.longest_rest_s)

    def left(self, which: int) -> None:
        """A request ended. Where it was the try, there may be another; older ones say nothing."""
        if which == self._trying:
            self._trying = 0

    def hold_to(self, limits: Limits) -> None:
        """Count by other limits from now on."""
        self._limits = limits

    @property
    def is_open(self) -> bool:
        """Whether the service rests."""
        return self._failures >= self._limits.failures


class Traffic:
    """The slots, the breaker and the counters of one service."""

    def __init__(self, service: str, limits: Limits) -> None:
        self.service = service
        self.limits = limits
        self.breaker = Breaker(limits)
        self.in_flight = 0
        self.answers: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()  # of tools, by name and how they ended
        self.bytes_in = 0
        self.bytes_out = 0
        self.times = [0] * (len(BUCKETS) + 1)
        self.time_total_s = 0.0

    def hold_to(self, limits: Limits) -> None:
        """Keep to other limits from now on; what is under way goes on under its own."""
        self.limits = limits
        self.breaker.hold_to(limits)

    def enter(self, now: float) -> int:
        """Take a slot, to be given back with the number that this gives. Raises Busy."""
        if self.in_flight >= self.limits.at_once:
            self.failures["busy"] += 1
            raise Busy(
                f"cassette {self.service} has {self.in_flight} requests under way, "
                "which is as many as it may have",
                "try again; the operator sets how many",
            )
        try:
            which = self.breaker.enter(self.service, now)
        except Busy:
            self.failures["resting"] += 1
            raise
        self.in_flight += 1
        return which

    def leave(self, which: int) -> None:
        """Give the slot back."""
        self.in_flight -= 1
        self.breaker.left(which)

    def answered(self, status: int, seconds: float) -> None:
        """An answer began."""
        self.breaker.answered()
        self.answers[f"{status // 100}xx"] += 1
        self.times[bisect_left(BUCKETS, seconds)] += 1
        self.time_total_s += seconds

    def failed(self, code: str, which: int, now: float) -> None:
        """There was no answer to the request that has this slot."""
        self.failures[code] += 1
        self.breaker.failed(which, now)

    def form(self) -> dict[str, object]:
        """The counters, for discovery."""
        return {
            "in_flight": self.in_flight,
            "answers": dict(sorted(self.answers.items())),
            "failures": dict(sorted(self.failures.items())),
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "resting": self.breaker.is_open,
        }


# --- as text for those who collect metrics ----------------------------------------------------


def metrics_text(traffics: Iterable[Traffic], health: Mapping[str, str]) -> str:
    """All counters in the text format of Prometheus. `health` is by service."""
    rows = sorted(traffics, key=lambda traffic: traffic.service)
    lines = [
        *_family("requests_total", "counter", "Answers of cassette services, by class of status."),
        *(
            _row("requests_total", t, n, status=s)
            for t in rows
            for s, n in sorted(t.answers.items())
        ),
        *_family("failures_total", "counter", "Requests without a whole answer, by reason."),
        *(
            _row("failures_total", t, n, reason=r)
            for t in rows
            for r, n in sorted(t.failures.items())
        ),
        *_family("tool_calls_total", "counter", "Calls of tools, by how they ended."),
        *(
            _row("tool_calls_total", t, n, tool=tool, outcome=outcome)
            for t in rows
            for (tool, outcome), n in sorted(t.calls.items())
        ),
        *_family("bytes_total", "counter", "Bytes of bodies, to and from services."),
        *(_row("bytes_total", t, t.bytes_in, direction="request") for t in rows),
        *(_row("bytes_total", t, t.bytes_out, direction="response") for t in rows),
        *_family("requests_in_flight", "gauge", "Requests under way."),
        *(_row("requests_in_flight", t, t.in_flight) for t in rows),
        *_family("resting", "gauge", "1 while a service rests after failures."),
        *(_row("resting", t, int(t.breaker.is_open)) for t in rows),
        *_family("health", "gauge", "1 for the state that a service is in."),
        *(
            f'tapes_cassette_health{{cassette="{name}",state="{state}"}} 1'
            for name, state in sorted(health.items())
        ),
        *_family("answer_seconds", "histogram", "Time until an answer began."),
    ]
    for traffic in rows:
        count = 0
        for bound, times in zip([*map(str, BUCKETS), "+Inf"], traffic.times, strict=True):
            count += times
            lines.append(_row("answer_seconds_bucket", traffic, count, le=bound))
        lines.append(_row("answer_seconds_sum", traffic, round(traffic.time_total_s, 6)))
        lines.append(_row("answer_seconds_count", traffic, count))
    return "\n".join(lines) + "\n"


def _family(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP tapes_cassette_{name} {about}", f"# TYPE tapes_cassette_{name} {kind}"]


def _row(name: str, traffic: Traffic, value: float, **labels: str) -> str:
    # Names of services and tools have no character that would need an escape.
    said = ",".join(
        f'{key}="{text}"' for key, text in {"cassette": traffic.service, **labels}.items()
    )
    return f"tapes_cassette_{name}{{{said}}} {value}"
