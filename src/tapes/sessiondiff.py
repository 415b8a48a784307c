"""Two sessions laid over each other: what they have in common, where they part, what each took.

Rule 1: spans are the same where they do the same: the kind, the name, the model that was asked,
        how it ended, what goes in and what comes out. Ids, times and costs differ between any two
        runs and are no difference.
Rule 2: the first divergence is the first place, in the order of both, that is not the same.

Knows nothing of databases or terminals.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import Match, SequenceMatcher
from itertools import accumulate, takewhile

from tapes.jsontext import Json
from tapes.loosejson import packed
from tapes.places import Difference, differences, leaves_of
from tapes.rows import Projection, Session, Span

# What providers make up anew for every call.
_IDS = frozenset({"tool_use_id", "tool_result_id", "thinking_signature", "id"})
_SHOWN = 10
_AT_MOST = 5000
# Pairs of equal spans that are looked at: a stretch is sought among all of them, again for each.
_WORK = 30_000_000


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place that is not the same; a span is None where one side has no more."""

    one: Span | None
    other: Span | None
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """Two sessions laid over each other."""

    one: Session
    other: Session
    same: int
    only_one: int
    only_other: int
    differing: int
    first: Divergence | None

    @property
    def is_some(self) -> bool:
        """Whether anything differs."""
        return self.first is not None

    def as_json(self) -> Json:
        """For programs."""
        first = self.first
        return {
            "sessions": [_totals(self.one), _totals(self.other)],
            "spans": {
                "same": self.same,
                "differing": self.differing,
                "only_first": self.only_one,
                "only_second": self.only_other,
            },
            "first_divergence": None
            if first is None
            else {
                "spans": [_place(first.one), _place(first.other)],
                "differences": [
                    {"place": d.place, "first": d.asked, "second": d.recorded}
                    for d in first.differences
                ],
            },
        }

    def as_text(self) -> str:
        """For people."""
        lines = [
            f"- {self.one.id}  {_summary(self.one)}",
            f"+ {self.other.id}  {_summary(self.other)}",
            f"{self.same} spans are the same, {self.differing} differ,"
            f" {self.only_one} only in the first, {self.only_other} only in the second",
        ]
        if self.first is not None:
            lines += list(_told(self.first))
        return "\n".join(lines)


def compared(one: Session, left: Projection, other: Session, right: Projection) -> Compared:
    """Lay two sessions over each other."""
    ours, theirs = left.spans, right.spans
    same = differing = only_one = only_other = 0
    first: Divergence | None = None
    for is_same, a, b, c, d in _stretches([_sign(s) for s in ours], [_sign(s) for s in theirs]):
        if is_same:
            same += b - a
            continue
        pairs = min(b - a, d - c)
        differing += pairs
        only_one += b - a - pairs
        only_other += d - c - pairs
        first = first or _divergence(_at(ours, a, b), _at(theirs, c, d))
    return Compared(one, other, same, only_one, only_other, differing, first)


_Stretch = tuple[bool, int, int, int, int]


def _stretches(ours: Sequence[bytes], theirs: Sequence[bytes]) -> Iterator[_Stretch]:
    """What is the same and what is not, in order: from where to where on both sides.

    What is the same at the beginning is not searched. What lies far behind the first difference,
    and what could only be found with too much work, is compared place by place.
    """
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False))
    start = sum(1 for _ in alike)
    if start:
        yield True, 0, start, 0, start
    a, c = min(start + _AT_MOST, len(ours)), min(start + _AT_MOST, len(theirs))
    search = _Search(ours[start:a], theirs[start:c])
    for kind, i, j, k, m in search.get_opcodes():
        if kind == "equal":
            yield True, start + i, start + j, start + k, start + m
        else:
            yield from _by_place(ours, theirs, (start + i, start + j), (start + k, start + m))
    yield from _by_place(ours, theirs, (a, len(ours)), (c, len(theirs)))


class _Search(SequenceMatcher[bytes]):
    """The search for what is the same, which finds nothing more once its work is spent."""

    def __init__(self, ours: Sequence[bytes], theirs: Sequence[bytes]) -> None:
        super().__init__(None, ours, theirs, autojunk=False)
        often = Counter(theirs)
        # How many pairs there are up to each of ours.
        self._pairs = [0, *accumulate(often[sign] for sign in ours)]
        self._left = _WORK

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> Match:
        work = self._pairs[-1 if ahi is None else ahi] - self._pairs[alo]
        if work > self._left:
            return Match(alo, blo, 0)
        self._left -= work
        return super().find_longest_match(alo, ahi, blo, bhi)


def _by_place(
    ours: Sequence[bytes], theirs: Sequence[bytes], our: tuple[int, int], their: tuple[int, int]
) -> Iterator[_Stretch]:
    """What lies between two places on each side, each compared with what stands opposite."""
    (a, b), (c, d) = our, their
    while a < b and c < d:
        yield ours[a] == theirs[c], a, a + 1, c, c + 1
        a, c = a + 1, c + 1
    if a < b or c < d:
        yield False, a, b, c, d


def _at(spans: Sequence[Span], begin: int, end: int) -> Span | None:
    return spans[begin] if begin < end else None


def _divergence(one: Span | None, other: Span | None) -> Divergence:
    if one is None or other is None:
        return Divergence(one, other, ())
    return Divergence(one, other, differences(leaves_of(_done(one)), leaves_of(_done(other))))


def _done(span: Span) -> dict[str, Json]:
    """What a span does, without what is made up anew each time."""
    return {
        "kind": span.kind.value,
        "name": span.name,
        "status": span.status.value,
        "model": span.request_model or span.model,
        "input": [_without_ids(block) for block in span.input],
        "output": [_without_ids(block) for block in span.output],
    }


def _without_ids(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _without_ids(v) for name, v in value.items() if name not in _IDS}
    return [_without_ids(item) for item in value] if isinstance(value, list) else value


def _sign(span: Span) -> bytes:
    return hashlib.blake2b(packed(_done(span)), digest_size=16).digest()


# --- telling ----------------------------------------------------------------------------------


def _totals(session: Session) -> dict[str, Json]:
    return {
        "id": session.id,
        "input_tokens": session.total_input_tokens,
        "output_tokens": session.total_output_tokens,
        "cost_usd": _money(session.total_cost_usd),
        "duration_ns": session.duration_ns,
        "llm_calls": session.llm_calls,
        "status": session.derived_status,
    }


def _money(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount.normalize():f}"


def _summary(session: Session) -> str:
    cost = _money(session.total_cost_usd)
    tokens = "unknown tokens" if session.total_tokens is None else f"{session.total_tokens} tokens"
    price = "cost unknown" if cost is None else f"${cost}"
    return f"{session.llm_calls} calls, {tokens}, {price}, {session.duration_ns / 1e9:.1f} s"


def _place(span: Span | None) -> Json:
    return None if span is None else {"trace_id": span.trace_id, "span_id": span.span_id}


def _told(first: Divergence) -> Iterator[str]:
    yield "they part at"
    for mark, span in (("-", first.one), ("+", first.other)):
        yield f"{mark} {'nothing more' if span is None else f'{span.kind.value} {span.name}'}"
    for each in first.differences[:_SHOWN]:
        yield f"  {each.place}"
        yield f"  - {_short(each.asked)}"
        yield f"  + {_short(each.recorded)}"
    if len(first.differences) > _SHOWN:
        yield f"  and {len(first.differences) - _SHOWN} other places"


def _short(value: Json) -> str:
    text = "nothing" if value is None else " ".join(str(value).split())
    return text if len(text) <= 160 else f"{text[:159]}…"
