"""Numbers of the read API, in the text form of Prometheus.

Knows nothing of requests: it is told what became of each.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """What was asked, by route, and how long it took. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: Counter[tuple[str, str, float]] = Counter()
        self._seconds: dict[tuple[str, str], float] = {}
        self._under_way = 0
        # What became of calls on their way into the log, where they are captured in this process.
        self.capture: Callable[[], Mapping[str, int]] = dict

    def begin(self) -> None:
        """A request came."""
        with self._lock:
            self._under_way += 1

    def end(self, route: str, method: str, status: int, seconds: float) -> None:
        """It was answered. `route` is its template, or `unmatched`."""
        bucket = next((b for b in _BUCKETS if seconds <= b), float("inf"))
        with self._lock:
            self._under_way -= 1
            self._requests[route, method, status] += 1
            self._buckets[route, method, bucket] += 1
            self._seconds[route, method] = self._seconds.get((route, method), 0.0) + seconds

    def text(self, counts: Mapping[str, Mapping[str, int]]) -> str:
        """All numbers, with those of the log."""
        with self._lock:
            lines = [*self._answered(), *self._took()]
            lines += _head("tapes_apiserver_inflight_requests", "gauge", "Requests under way.")
            lines.append(f"tapes_apiserver_inflight_requests {self._under_way}")
        captured = self.capture()
        if captured:
            lines += _head("tapes_capture", "gauge", "What became of calls that the proxy saw.")
            lines += [
                f"tapes_capture{_labels(what=what)} {number}"
                for what, number in sorted(captured.items())
            ]
        return "\n".join(lines) + "\n" + log_lines(counts)

    def _answered(self) -> Iterable[str]:
        name = "tapes_apiserver_requests_total"
        yield from _head(name, "counter", "Requests, by route, method and status.")
        for (route, method, status), number in sorted(self._requests.items()):
            yield f"{name}{_labels(route=route, method=method, status=status)} {number}"

    def _took(self) -> Iterable[str]:
        name = "tapes_apiserver_request_duration_seconds"
        yield from _head(name, "histogram", "How long answers took, by route and method.")
        for (route, method), seconds in sorted(self._seconds.items()):
            total = 0
            for bucket in (*_BUCKETS, float("inf")):
                total += self._buckets[route, method, bucket]
                le = "+Inf" if bucket == float("inf") else f"{bucket:g}"
                yield f"{name}_bucket{_labels(route=route, method=method, le=le)} {total}"
            yield f"{name}_sum{_labels(route=route, method=method)} {seconds:.6f}"
            yield f"{name}_count{_labels(route=route, method=method)} {total}"


def log_lines(counts: Mapping[str, Mapping[str, int]]) -> str:
    """The numbers of the log alone."""
    lines = _head("tapes_log", "gauge", "What the log holds, by what is counted.")
    for what, numbers in sorted(counts.items()):
        lines += [
            f"tapes_log{_labels(what=what, value=value)} {number}"
            for value, number in sorted(numbers.items())
        ]
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def _labels(**labels: object) -> str:
    said = ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items())
    return "{" + said + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
