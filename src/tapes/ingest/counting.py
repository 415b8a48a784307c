"""What came through the private door, in numbers.

Knows nothing of what is counted, only names.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping

# Upper bounds of the sizes of bodies: 256 bytes, then four times as much each.
_BUCKETS = tuple(256 * 4**step for step in range(10))


class Counts:
    """Counters of one door. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writes: Counter[tuple[str, str]] = Counter()
        self._sizes: dict[str, Counter[int]] = {}
        self._bytes: Counter[str] = Counter()
        self._signals: Counter[tuple[str, str, str]] = Counter()

    def wrote(self, provider: str, status: str, size: int | None = None) -> None:
        """One turn, or a body that was none. `size` is the body's where it was accepted."""
        with self._lock:
            self._writes[provider, status] += 1
            if size is not None:
                bucket = next((b for b in _BUCKETS if size <= b), 0)
                self._sizes.setdefault(provider, Counter())[bucket] += 1
                self._bytes[provider] += size

    def signal(self, signal: str, outcome: str, number: int, reason: str = "") -> None:
        """Spans, log records or data points that came over OTLP."""
        if number:
            with self._lock:
                self._signals[signal, outcome, reason] += number

    def total(self) -> Mapping[str, int]:
        """How many were accepted, by where they came from: for people."""
        with self._lock:
            accepted = sum(n for (_, status), n in self._writes.items() if status == "accepted")
            spans = sum(n for (_, out, _), n in self._signals.items() if out == "accepted")
        return {"ingest": accepted, "otlp": spans}

    def text(self, depth: int) -> str:
        """The counters in the text form of Prometheus."""
        with self._lock:
            lines = [*self._write_lines(), *self._size_lines(), *self._signal_lines()]
        lines += ["# TYPE tapes_ingest_worker_queue_depth gauge"]
        lines += [f"tapes_ingest_worker_queue_depth {depth}"]
        return "\n".join(lines) + "\n"

    def _write_lines(self) -> Iterator[str]:
        yield "# TYPE tapes_ingest_writes_total counter"
        for (provider, status), number in sorted(self._writes.items()):
            yield f'tapes_ingest_writes_total{{provider="{provider}",status="{status}"}} {number}'

    def _size_lines(self) -> Iterator[str]:
        yield "# TYPE tapes_ingest_body_bytes histogram"
        for provider, sizes in sorted(self._sizes.items()):
            so_far = 0
            for bucket in _BUCKETS:
                so_far += sizes[bucket]
                labels = f'provider="{provider}",le="{bucket}"'
                yield f"tapes_ingest_body_bytes_bucket{{{labels}}} {so_far}"
            total, labels = sum(sizes.values()), f'provider="{provider}"'
            yield f'tapes_ingest_body_bytes_bucket{{{labels},le="+Inf"}} {total}'
            yield f"tapes_ingest_body_bytes_sum{{{labels}}} {self._bytes[provider]}"
            yield f"tapes_ingest_body_bytes_count{{{labels}}} {total}"

    def _signal_lines(self) -> Iterator[str]:
        yield "# TYPE tapes_otlp_items_total counter"
        for (signal, outcome, reason), number in sorted(self._signals.items()):
            labels = f'signal="{signal}",outcome="{outcome}",reason="{reason}"'
            yield f"tapes_otlp_items_total{{{labels}}} {number}"
