"""What a run did with a tape, in numbers for people: served, live, refused, unused, saved.

Knows nothing of terminals.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tapes.cassette import Cassette
from tapes.errors import TapesError
from tapes.exchange import Exchange
from tapes.report import Report, Savings, savings
from tapes.stats import never_missing
from tapes.tape.base import Tape


@dataclass(frozen=True, slots=True)
class Tally:
    """The counts of one run on one tape. `unused` is None where the tape cannot be read."""

    report: Report
    saved: Savings
    unused: int | None

    def as_dict(self) -> dict[str, object]:
        """The counts, for people's programs; money as text, because it is decimal."""
        saved, usd = self.saved, self.saved.usd
        return {
            **self.report.as_dict(),
            "unused": self.unused,
            "saved": {
                "calls": saved.calls,
                "bytes": saved.bytes,
                "tokens": saved.tokens,
                "usd": None if usd is None else f"{usd:f}",
                "unpriced": saved.unpriced,
            },
        }

    def lines(self) -> list[str]:
        """The counts, for people."""
        report, saved = self.report, self.saved
        counts = report.as_dict()
        parts = [f"{counts['served']} served", f"{counts['live']} live"]
        parts += [
            f"{counts[name]} {word}"
            for name, word in (
                ("refused", "refused"),
                ("reused", "reused"),
                ("not_stored", "not stored"),
                ("incomplete", "incomplete"),
            )
            if counts[name] or name == "refused"
        ]
        if self.unused is not None:
            parts.append(f"{self.unused} unused")
        lines = [f"{report.tape} ({report.mode}): {', '.join(parts)}"]
        if saved.calls:
            lines.append(f"  from the tape: {saved.bytes / 1000:.1f} kB{_money(saved)}")
        return lines


def _money(saved: Savings) -> str:
    tokens = "" if saved.tokens is None else f", {saved.tokens} tokens"
    if saved.usd is None:
        return tokens
    calls = "call" if saved.unpriced == 1 else "calls"
    more = f" and {saved.unpriced} unpriced {calls}" if saved.unpriced else ""
    return f"{tokens}, {saved.usd:.4f} USD not spent{more}"


def tally_of(cassette: Cassette) -> Tally:
    """The tally of a cassette up to now. Reads the tape where answers came from it."""
    report = cassette.report
    with_times = ((key, times) for key, times in tuple(report.hits.items()) if times)
    found = (
        (exchange, times) for key, times in with_times for exchange in _found(cassette.tape, key)
    )
    saved = savings(found, never_missing(cassette.price))
    try:
        unused = len(cassette.tape.keys() - report.used)
    except TapesError:
        unused = None
    return Tally(report, saved, unused)


def _found(tape: Tape, key: str) -> Iterator[Exchange]:
    try:
        exchange = tape.find(key)
    except TapesError:
        return  # it answered before; what is broken now is told by `tapes tape verify`
    if exchange is not None:
        yield exchange
