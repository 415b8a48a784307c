"""The calls of one session in order: when each was made, of what kind, and what it says first.

Rule 1: calls are ordered by their start, then by their place in the log; never by arrival alone.
Rule 2: what a side call says does not make it history for the conversation that it stands beside.
Rule 3: a request that was answered and is sent once more, word for word, is asked anew.

Knows nothing of traces or spans.  Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tapes.derive.chain import Addresses, Node, boundary, last_of_chain, own_parts, plain, way_of
from tapes.derive.kinds import COMPACTION, MAIN, UNKNOWN, Fitting, fitting, kinds_of
from tapes.exchange import Response, State
from tapes.providers.turn import AnswerState, Message, Text, Turn
from tapes.rows import OF_COPY, Outcome, RawTurn, Source, Status, moments

# A wall time that a provider or a capture reports, where nothing better is known.
_DURATION = "total_duration_ns"


@dataclass(frozen=True, slots=True)
class Reading:
    """A raw turn, and what it means."""

    raw: RawTurn
    turn: Turn


@dataclass(frozen=True, slots=True)
class Call:
    """One model call in its session."""

    raw: RawTurn
    turn: Turn
    id: str
    thread: str
    kind: str
    started: int
    duration: int | None
    nodes: tuple[Node, ...] = ()
    fresh: frozenset[int] = frozenset()
    boundary: int = -1
    answer_hash: str = ""
    repeated: bool = False  # the request was sent before, word for word
    again: bool = False  # and it was answered then, so that this is no retry

    @property
    def ended(self) -> int:
        """When it was over; its start where nobody said."""
        return self.started + (self.duration or 0)

    @property
    def is_conversation(self) -> bool:
        """Whether it belongs to a conversation: a main call, a compaction, or a sub-agent's."""
        return self.kind in (MAIN, COMPACTION) or bool(self.thread)

    @property
    def leads(self) -> bool:
        """Whether it is a main call of the main thread."""
        return self.kind == MAIN and not self.thread

    @property
    def status(self) -> Status:
        """What became of it."""
        answer = self.turn.answer
        if answer.state is AnswerState.COMPLETE:
            return Status.OK
        code = None if answer.failure is None else answer.failure.code
        left = self._cut is State.ABORTED_BY_CLIENT and code in (None, "client_disconnect")
        # A span of OTLP has no exchange: what was exported as left names it so.
        return Status.ABORTED if left or code == State.ABORTED_BY_CLIENT else Status.ERROR

    @property
    def error_type(self) -> str:
        """The provider's code, or the word for how the answer was cut; "" where all is well."""
        answer = self.turn.answer
        if answer.failure is not None:
            return answer.failure.code
        if answer.state is AnswerState.COMPLETE:
            return ""
        return "truncated" if self._cut is None else self._cut.value

    @property
    def _cut(self) -> State | None:
        """Who cut the exchange short, or None where nobody did."""
        exchange = self.raw.exchange
        whole = exchange is None or exchange.state is State.COMPLETE
        return None if whole or exchange is None else exchange.state

    def new_messages(self) -> list[tuple[int, Node]]:
        """What it says first and what is no history, in order."""
        return [(i, self.nodes[i]) for i in sorted(self.fresh) if i > self.boundary]

    @property
    def prompt(self) -> Message | None:
        """The last new message of the user that is his own words; None in a retry."""
        if self.repeated and not self.again:
            return None
        for _, node in reversed(self.new_messages()):
            if node.message.role == "user" and not node.injected and _own_words(node.message):
                return node.message
        return None


def _own_words(message: Message) -> bool:
    if way_of(message) is not None:
        return False
    return any(not isinstance(part, Text) or plain(part.text) for part in own_parts(message))


def once(readings: Iterable[Reading]) -> tuple[list[Reading], list[Reading]]:
    """The readings with each call once, and those of calls that another capture saw better.

    Two captures saw one call where its answer's id is the same and their times overlap. The one
    with the bytes counts, then the first. What is answered from a tape has its id each time, and a
    call without an identity is never the same as another.
    """
    kept: list[Reading] = []
    again: list[Reading] = []
    by_answer: dict[str, list[Reading]] = {}
    for reading in sorted(readings, key=lambda r: (not _has_bytes(r.raw), *_order(r))):
        raw = reading.raw
        is_known = raw.request_id and not raw.request_id.startswith(OF_COPY)
        is_told = is_known and raw.outcome is not Outcome.REPLAYED
        answer_id = reading.turn.answer.id if is_told else ""
        others = by_answer.setdefault(answer_id, []) if answer_id else []
        if any(_overlap(raw, other.raw) for other in others):
            again.append(reading)
        else:
            others.append(reading)
            kept.append(reading)
    return kept, again


def _has_bytes(raw: RawTurn) -> bool:
    return raw.exchange is not None and isinstance(raw.exchange.response, Response)


def _overlap(one: RawTurn, other: RawTurn) -> bool:
    (began, ended), (its_began, its_ended) = moments(one), moments(other)
    return began <= (its_ended or its_began) and its_began <= (ended or began)


def calls_of(readings: Iterable[Reading], harness_id: str, addresses: Addresses) -> list[Call]:
    """The calls of one session, in order, with all that is known of them."""
    return Calls().of(readings, harness_id, addresses)


class Calls:
    """The calls of a session as it grows.

    What a call says first follows from the calls before it. Where a session only goes on, its
    earlier calls are the very ones that were made before; where one came between, all are made
    anew.
    """

    def __init__(self) -> None:
        self._readings: list[Reading] = []
        self._fitting: list[Fitting] = []
        self._kinds: list[str] = []
        self._calls: list[Call] = []
        self._heard = _Heard()

    def of(self, readings: Iterable[Reading], harness_id: str, addresses: Addresses) -> list[Call]:
        """The calls of these readings."""
        ordered = sorted(readings, key=_order)
        same = _same(self._readings, ordered)
        self._fitting = self._fitting[:same] + [fitting(r.turn) for r in ordered[same:]]
        told = [(r.turn, r.raw.thread_id) for r in ordered]
        kinds = [
            _kind(reading, kind)
            for reading, kind in zip(
                ordered, kinds_of(told, harness_id, self._fitting), strict=True
            )
        ]
        known = len(self._calls)
        if same < known or kinds[:known] != self._kinds:
            self._calls, self._heard, known = [], _Heard(), 0
        for reading, kind in zip(ordered[known:], kinds[known:], strict=True):
            self._calls.append(self._heard.call(_call(reading, kind, addresses)))
        self._readings, self._kinds = ordered, kinds
        return list(self._calls)


def _same(known: Sequence[Reading], readings: Sequence[Reading]) -> int:
    """How many readings there are at the beginning of both."""
    for number, (one, other) in enumerate(zip(known, readings, strict=False)):
        if one.raw is not other.raw or one.turn is not other.turn:
            return number
    return min(len(known), len(readings))


def _kind(reading: Reading, kind: str) -> str:
    """The kind of a call. An agent's own log tells the conversation, and no side calls."""
    return MAIN if kind == UNKNOWN and reading.raw.source is Source.TRANSCRIPT else kind


def _order(reading: Reading) -> tuple[int, int, str]:
    return moments(reading.raw)[0], reading.raw.id, reading.raw.request_id


def _call(reading: Reading, kind: str, addresses: Addresses) -> Call:
    raw, turn = reading.raw, reading.turn
    nodes = addresses.chain(turn.asked.messages)
    said = turn.answer.choices[:1]
    answer_hash = addresses.after(said[0].message, last_of_chain(nodes)) if said else ""
    started, ended = moments(raw)
    return Call(
        raw=raw,
        turn=turn,
        id=raw.request_id or f"{(answer_hash or last_of_chain(nodes))[:16]}_{raw.id}",
        thread=raw.thread_id,
        kind=kind,
        started=started,
        duration=_duration(raw, started, ended),
        nodes=nodes,
        answer_hash=answer_hash,
    )


def _duration(raw: RawTurn, started: int, ended: int | None) -> int | None:
    if ended is not None:
        return max(ended - started, 0)
    usage = raw.reduced.get("usage") if isinstance(raw.reduced, dict) else None
    told = usage.get(_DURATION) if isinstance(usage, dict) else None
    if isinstance(told, int) and told > 0:
        return told
    response = raw.exchange.response if raw.exchange is not None else None
    if isinstance(response, Response) and response.pieces:
        return round(response.pieces[-1].at * 1_000_000_000) or None
    return None


def first_chunk(raw: RawTurn) -> int | None:
    """How long the first piece of a streamed answer took, or None."""
    response = raw.exchange.response if raw.exchange is not None else None
    if isinstance(response, Response) and len(response.pieces) > 1:
        return round(response.pieces[0].at * 1_000_000_000)
    return None


class _Heard:
    """What was said so far in a session, in conversations and altogether."""

    def __init__(self) -> None:
        self._in_conversations: set[str] = set()
        self._anywhere: set[str] = set()
        self._answered: set[str] = set()

    def call(self, call: Call) -> Call:
        """The call with what is fresh in it; its words are heard from now on."""
        nodes = call.nodes
        heard = self._in_conversations if call.is_conversation else self._anywhere
        fresh = frozenset(i for i, node in enumerate(nodes) if node.hash not in heard)
        asked = nodes[-1].hash if nodes else ""
        repeated = bool(nodes) and not fresh
        again = repeated and asked in self._answered
        new = {nodes[i].hash for i in fresh} | {call.answer_hash}
        self._anywhere |= new
        if call.is_conversation:
            self._in_conversations |= new
            if call.turn.answer.state is AnswerState.COMPLETE:
                self._answered.add(asked)
        fresh = fresh or _tail(nodes)
        return replace(
            call,
            fresh=fresh,
            boundary=boundary(nodes, fresh),
            repeated=repeated,
            again=again,
        )


def _tail(nodes: Sequence[Node]) -> frozenset[int]:
    """What stands after the last message of the assistant: what a repeated request asks."""
    last = max((i for i, n in enumerate(nodes) if n.message.role == "assistant"), default=-1)
    return frozenset(range(last + 1, len(nodes)))
