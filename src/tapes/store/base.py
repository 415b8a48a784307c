"""What a store promises: the log of raw turns, the read model made from it, and what people add.

Rule 1: `append` returns when the turns are durable; what was acknowledged survives a killed process
        and a full disk. A turn of a known request id is not kept a second time.
Rule 2: raw turns are never changed. The one exception is erasure: explicit, whole sessions, noted
        in the audit, and for good: neither deriving again nor a late delivery brings them back.
Rule 3: whatever belongs to a tenant is reached through `Project`, and no query leaves it.
Rule 4: a page's cursor stays good while rows arrive: nothing is met twice, and what moved to the
        front meanwhile is among the changes since the page's `seq`.
Rule 5: what cannot be read is an error that names the row, never an absent one. A count that is
        not exact says so.

SQLite and PostgreSQL keep these promises alike. Knows nothing of deriving or of HTTP.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Generic, NamedTuple, Protocol, TypeVar

from tapes.jsontext import Json
from tapes.rows import NO_ORG, Link, Projection, RawTurn, Session, Span, Trace
from tapes.store.filters import EVERYTHING, Condition

Row = TypeVar("Row", covariant=True)

# --- appending --------------------------------------------------------------------------------


class Kept(StrEnum):
    """What became of a turn that was appended."""

    NEW = "new"
    KNOWN = "known"  # there is a turn of this request id
    ERASED = "erased"  # it, or its session, was erased for good


@dataclass(frozen=True, slots=True)
class Receipt:
    """A turn's place in the log: the acknowledgement that it is durable. 0 where it was erased."""

    id: int
    kept: Kept


# --- asking -----------------------------------------------------------------------------------

LIMIT = 50
MOST = 200
# Shorter beginnings of ids name too many things; a whole id may be shorter.
SHORTEST = 8
# Of how many spans a histogram counts each one.
MOST_SPREAD = 100_000


@dataclass(frozen=True, slots=True)
class Ask:
    """What a list is asked for. `sort` "" is the list's own; the cursor is from a page before."""

    where: Condition = EVERYTHING
    sort: str = ""
    descending: bool = True
    cursor: str = ""
    limit: int = LIMIT


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Some rows of a list, and where to go on; `seq` is the number of the last change before."""

    items: tuple[Row, ...]
    next_cursor: str | None = None
    seq: int = 0
    remarks: tuple[str, ...] = ()  # what was not looked at, for people


@dataclass(frozen=True, slots=True)
class Count:
    """How many there are; where it is not exact, there are at least so many."""

    value: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Notes:
    """What people say of a session."""

    display_name: str = ""
    tags: tuple[str, ...] = ()
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Listed:
    """A session with what people say of it; `seq` is the number of its last change."""

    session: Session
    notes: Notes = Notes()
    seq: int = 0


class Home(NamedTuple):
    """What a harness calls a session in which something lies."""

    harness_id: str
    harness_session_id: str


class SpanRow(NamedTuple):
    """A span for passing it on: its JSON is what was made of the text that is kept."""

    trace_id: str
    span_id: str
    parent_span_id: str
    session_id: str
    seq: int
    kind: str
    name: str
    status: str
    error_type: str
    started_at: int
    duration_ns: int | None
    first_chunk_ns: int | None
    call_kind: str
    model: str
    request_model: str
    provider: str
    response_id: str
    stop_reason: str
    thread_id: str
    agent: str
    anchor: str
    outcome: str
    raw_turn_id: int | None
    request_id: str
    cost_usd: Decimal | None
    fidelity: str
    verdict: Json
    usage: Json
    input: Json
    output: Json


# What a text of JSON becomes, by the name of its column.
Telling = Mapping[str, Callable[[str | bytes], Json]]


@dataclass(frozen=True, slots=True)
class Sheet:
    """Traces and links of one moment, and their spans for passing them on; `mark` is another where
    any of it is.
    """

    traces: tuple[Trace, ...]
    links: tuple[Link, ...]
    span_count: int
    mark: str
    spans_of: Callable[[str, Telling], Iterator[SpanRow]]
    """the spans of a trace in their order, made while they are asked for"""


@dataclass(frozen=True, slots=True)
class TurnHead:
    """What is known of a raw turn without its content."""

    id: int
    request_id: str
    session_id: str | None
    source: str
    provider: str
    agent_name: str
    thread_id: str
    outcome: str
    state: str
    status: int | None
    method: str
    url: str
    meta: object
    started_at: int | None
    ended_at: int | None
    received_at: int
    request_bytes: int
    response_bytes: int
    dropped: bool
    skipped: str = ""  # why it shows nowhere


@dataclass(frozen=True, slots=True)
class Stats:
    """Sums over the traces of a window of time."""

    sessions: int = 0
    completed: int = 0
    traces: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: Decimal | None = None
    saved_cost_usd: Decimal | None = None
    unpriced_calls: int = 0
    uncounted_calls: int = 0
    duration_ns: int = 0
    tool_calls: int = 0


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of a text in which something was found: the places are in it, begin and end."""

    where: str  # prompt, answer, thinking, arguments, result, title, …
    text: str
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """A span in which everything that was asked for stands. Those in prompts come first."""

    span: Span
    in_prompt: bool
    excerpts: tuple[Excerpt, ...] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """The rows of a list that began in one part of a time: from `at`, for as long as each."""

    at: int
    rows: int
    failed: int
    cost_usd: Decimal | None
    longest_ns: int | None
    # What half of them, and 19 of 20, do not exceed; up to a tenth too long where many are alike.
    p50_ns: int | None = None
    p95_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Histogram:
    """How a list spreads over time. The parts in which nothing began are left out."""

    since: int
    until: int
    width: int
    bars: tuple[Bar, ...] = ()
    # Whether every row was counted; otherwise a sample was, and it stands for all.
    exact: bool = True


class Noun(StrEnum):
    """What there are lists of."""

    SESSIONS = "sessions"
    TRACES = "traces"
    SPANS = "spans"
    TURNS = "turns"


@dataclass(frozen=True, slots=True)
class Found:
    """A thing with the id that was looked for, or one that begins so."""

    noun: Noun
    id: str  # of the session, trace, span or turn
    session_id: str | None
    trace_id: str = ""
    by: str = ""  # which id it was
    whole: bool = False  # it is that id, not one that begins so


@dataclass(frozen=True, slots=True)
class Change:
    """A session of which something changed, or that was erased; once, with its last number."""

    seq: int
    session_id: str
    erased: bool
    at: int


@dataclass(frozen=True, slots=True)
class Facet:
    """A value that a field has, and in how many sessions."""

    value: str
    sessions: int


# --- erasing ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Erasure:
    """What was erased, or would be. `done_at` is None while its bytes are still in the file."""

    id: int
    sessions: int
    turns: int
    bytes: int
    reason: str
    by: str
    asked_at: int
    done_at: int | None = None
    session_ids: tuple[str, ...] = ()
    # Committed tapes that were made from these sessions, and files that still hold their content.
    tapes: tuple[str, ...] = ()
    backups: tuple[str, ...] = ()
    # Files with something damaged in them, which nobody can search.
    unsearched: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """How long sessions are kept: None is without end. Pinned ones are exempt from all three."""

    max_age_ns: int | None = None
    max_sessions: int | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Something that was done and must be known later."""

    id: int
    at: int
    action: str
    by: str
    details: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Correction:
    """Whose turn it really was; the newest of a raw turn holds."""

    raw_turn_id: int
    harness_id: str
    harness_session_id: str
    thread_id: str = ""
    parent_harness_session_id: str | None = None
    reason: str = ""


class Records(StrEnum):
    """What there is beside turns and what is made from them, each after what it names."""

    POLICIES = "policies"
    ERASURES = "erasures"
    TOMBSTONES = "tombstones"
    ERASED_TURNS = "erased_turns"
    AUDIT = "audit"
    TAPES = "tapes"
    DROPS = "drops"


@dataclass(frozen=True, slots=True)
class Record:
    """One of these, for another log to take in; `erasure` is what tells the one that it names."""

    kind: Records
    values: Mapping[str, object]
    erasure: Mapping[str, object] | None = None


# --- seams ------------------------------------------------------------------------------------


class Project(Protocol):
    """All of one tenant: its lists, its rows, its search, and what its people change."""

    org_id: str

    # lists: the fields and sorts of each are in `fields.py`; BadQuery and BadCursor where unknown
    def sessions(
        self,
        ask: Ask = Ask(),
        *,
        since: int | None = None,
        until: int | None = None,
        placeholders: bool = False,
    ) -> Page[Listed]:
        """Sessions, those with a trace that began in [since, until) where that is said.

        Sorts: last_active (its own), started_at, turn_count, total_cost_usd, …
        """
        ...

    def traces(self, ask: Ask = Ask()) -> Page[Trace]:
        """Traces. Sorts: started_at (its own), duration_ns, total_cost_usd, total_tokens."""
        ...

    def spans(self, ask: Ask = Ask(), *, payload: bool = False) -> Page[Span]:
        """Spans, by default without input and output. Sorts: started_at (its own), seq, …"""
        ...

    def turns(self, ask: Ask = Ask(), *, session_id: str | None = None) -> Page[TurnHead]:
        """Raw turns without their content, in the order of arrival; sort: id."""
        ...

    def count(
        self,
        noun: Noun,
        where: Condition = EVERYTHING,
        *,
        at_most: int = 10_000,
        since: int | None = None,
        until: int | None = None,
        placeholders: bool = False,
    ) -> Count:
        """How many there are: exact up to `at_most` (0: always), else that there are more.

        What `sessions` is asked for beside a condition holds for their number too.
        """
        ...

    def facets(self, name: str, *, begins: str = "", limit: int = 20) -> tuple[Facet, ...]:
        """The values of a field (model, provider, agent, tool, tag, …), the most frequent first."""
        ...

    def histogram(
        self,
        noun: Noun,
        where: Condition = EVERYTHING,
        *,
        parts: int = 60,
        at_most: int = MOST_SPREAD,
    ) -> Histogram:
        """How sessions, traces or spans spread over the time in which they began.

        More spans than `at_most` are not all counted: a sample says about how many there are.
        With 0 all are.
        """
        ...

    def stats(
        self, *, since: int | None = None, until: int | None = None, auth_subject: str = ""
    ) -> Stats:
        """Sums over the traces that began in [since, until)."""
        ...

    # single rows; None where there is none
    def session(self, session_id: str) -> Listed | None:
        """A session."""
        ...

    def sessions_of_harness(
        self, harness_session_id: str, harness_id: str | None = None
    ) -> tuple[Listed, ...]:
        """The sessions that a harness calls so, by harness."""
        ...

    def harnesses(self, harness_session_ids: Sequence[str]) -> Mapping[str, str]:
        """The harness of each session that is the only one called so."""
        ...

    def trace(self, trace_id: str) -> Trace | None:
        """A trace."""
        ...

    def span(self, trace_id: str, span_id: str) -> Span | None:
        """A span with all it holds."""
        ...

    def rows_of_session(self, session_id: str, *, payload: bool = True) -> Projection:
        """The session with its traces, spans (with or without input and output) and links."""
        ...

    def sheet_of_session(self, session_id: str, *, payload: bool = True) -> "Sheet":
        """The session's traces, their spans (with or without input and output) and its links."""
        ...

    def sheet_of_trace(self, trace_id: str, *, payload: bool = True) -> "Sheet":
        """A trace with its spans, with or without input and output, and the links that touch it."""
        ...

    def turn(self, turn_id: int) -> RawTurn | None:
        """A raw turn with all its bytes. Raises DamagedStore."""
        ...

    def stream_turns(
        self, *, session_id: str | None = None, after: int = 0, as_captured: bool = False
    ) -> Iterator[RawTurn]:
        """Raw turns in the order of arrival, one by one, each as it was corrected."""
        ...

    def corrections(self) -> Iterator[Correction]:
        """The correction that holds of each turn that has one."""
        ...

    def skipped(self) -> Mapping[str, int]:
        """How many turns show nowhere, by reason."""
        ...

    # search
    def search(self, where: Condition, *, cursor: str = "", limit: int = 20) -> Page[Hit]:
        """Spans in which the words stand: those in prompts first, each newest first."""
        ...

    def find(self, id_text: str, *, limit: int = 20) -> tuple[Found, ...]:
        """What has this id, or one that begins so (8 characters or more)."""
        ...

    def homes(
        self, trace_ids: Sequence[str], response_ids: Sequence[str]
    ) -> tuple[Mapping[str, Home], Mapping[str, Home]]:
        """The sessions in which traces and answers of these ids lie, where a harness names them."""
        ...

    def with_turns(self, session_ids: Sequence[str]) -> frozenset[str]:
        """Those of the sessions to which turns belong."""
        ...

    def waiting(self) -> int:
        """How many sessions have turns that nothing was derived from yet.

        A turn that names no session, and was not placed in one yet, counts as one.
        """
        ...

    # changes
    def seq(self) -> int:
        """The number of the last change."""
        ...

    def changes(self, after: int, *, limit: int = 500) -> tuple[Change, ...]:
        """Sessions that changed after that number, in the order of their last changes."""
        ...

    def changed_spans(self, after: int, *, limit: int = 500) -> tuple[tuple[int, Span], ...]:
        """Spans that changed after that number, with theirs, without input and output."""
        ...

    # what people say
    def rename(self, session_id: str, display_name: str, *, by: str = "") -> Listed:
        """Give a session a name; "" takes it away. Raises UnknownId."""
        ...

    def tag(
        self, session_id: str, *, add: Iterable[str] = (), remove: Iterable[str] = (), by: str = ""
    ) -> Listed:
        """Add and remove tags. Raises UnknownId."""
        ...

    def pin(self, session_id: str, *, pinned: bool = True, by: str = "") -> Listed:
        """Exempt a session from retention, or no longer. Raises UnknownId."""
        ...

    def note_tape(self, session_id: str, path: str) -> None:
        """A committed tape was made from this session: its erasure will name it."""
        ...

    def correct(self, correction: Correction, *, by: str = "") -> None:
        """Say whose turn it really was. Raises UnknownId."""
        ...

    # erasing
    def erase(
        self,
        session_ids: Sequence[str],
        *,
        reason: str,
        by: str = "",
        dry_run: bool = False,
    ) -> Erasure:
        """Erase sessions for good. Raises UnknownId, naming those that are none."""
        ...

    def erasure(self, erasure_id: int) -> Erasure | None:
        """What became of an erasure."""
        ...

    def erasure_of(self, session_id: str) -> Erasure | None:
        """The erasure by which a session went; None where none is known."""
        ...

    def policy(self) -> Policy:
        """How long sessions are kept."""
        ...

    def set_policy(self, policy: Policy, *, by: str = "") -> None:
        """Change it; nothing is erased by that."""
        ...

    def retain(self, *, now: int, by: str = "", dry_run: bool = False) -> Erasure:
        """Erase what is beyond the policy, or only say what it would be."""
        ...

    def audit(self, *, before: int | None = None, limit: int = 100) -> tuple[AuditEntry, ...]:
        """What was done, the latest first."""
        ...

    def note(
        self, action: str, *, by: str = "", details: Mapping[str, object] | None = None
    ) -> None:
        """Write into the audit: exports, use of keys."""
        ...

    # moving to another log
    def records(self) -> Iterator[Record]:
        """What there is beside turns: the audit, erasures, how long things are kept, …"""
        ...

    def take_records(self, records: Sequence[Record]) -> int:
        """Take in records of another log, all or none; gives how many are new."""
        ...

    def erase_as(self, tombstone: Record, *, by: str) -> bool:
        """Erase a session that another log has erased, with all from before that; was it here?"""
        ...


@dataclass(frozen=True, slots=True)
class Dirty:
    """A session of which turns came that are not derived yet. `version` grows with each."""

    org_id: str
    session_id: str
    version: int
    dirtied_at: int
    first_dirtied_at: int


@dataclass(frozen=True, slots=True)
class Derivation:
    """The number of the deriver of which all of a log is, and to which it is derived anew.

    It is derived anew while `newest` is higher: `below` is the turn that is next, of `top`. A
    number of 0 is that of a deriver that had none.
    """

    version: int
    newest: int
    below: int = 0
    top: int = 0

    @property
    def lasts(self) -> bool:
        """Whether it is being derived anew."""
        return self.newest != self.version

    def leaves(self, number: int) -> bool:
        """Whether there is something left to derive anew for the deriver of a number."""
        return self.version < number and self.newest <= number

    def done(self, number: int) -> float:
        """How much of it is of the deriver of a number, or of a later one: from 0 to 1."""
        if self.version >= number:
            return 1.0
        return 1 - self.below / self.top if self.newest >= number else 0.0


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a turn that names no session belongs, or why it shows nowhere.

    `left` and `sought` are the marks by which turns find each other.
    """

    raw_turn_id: int
    harness_session_id: str
    session_id: str | None
    started_at: int
    left: tuple[str, ...] = ()
    sought: tuple[str, ...] = ()
    skipped: str = ""


class Placing(Protocol):
    """Turns that name no session, to be placed; all is written when the work is over."""

    turns: tuple[tuple[str, RawTurn], ...]  # each with its tenant, those that began first first

    def left_by(self, org_id: str, mark: str, before: tuple[int, int]) -> str | None:
        """The session of the last turn before that moment (start, id) that left a mark, or None."""
        ...

    def put(self, org_id: str, placement: Placement) -> None:
        """Where a turn belongs."""
        ...


class Work(Protocol):
    """Sessions that one worker has taken; all is written when the work is over."""

    taken: tuple[Dirty, ...]
    # Known when the work is over: how many rows were written, by tenant, and the sessions that the
    # database did not take.
    changed: Counter[str]
    refused: list[Dirty]

    def write(self, session: Dirty, rows: Projection) -> None:
        """Put these rows in the place of the session's."""
        ...

    def fail(self, session: Dirty, why: str) -> None:
        """The session cannot be derived: it waits for its next turn."""
        ...


class Store(Protocol):
    """A database of the log. Safe to use from many threads; many processes may have it open."""

    name: str  # for people: a path, or an address without its password

    def append(self, turns: Sequence[RawTurn]) -> list[Receipt]:
        """Keep turns, all or none; on return they are durable.

        They must be clean: secrets out, text that every database takes. Raises UnavailableStore.
        """
        ...

    def project(self, org_id: str = NO_ORG) -> Project:
        """What belongs to one tenant."""
        ...

    def orgs(self) -> tuple[str, ...]:
        """The tenants of which there are turns."""
        ...

    def orgs_of_records(self) -> tuple[str, ...]:
        """The tenants of which there is an audit, or anything else beside turns."""
        ...

    # deriving
    def leading(self) -> AbstractContextManager[bool]:
        """Whether this process may derive now, as long as this lasts."""
        ...

    def placing(self, limit: int) -> AbstractContextManager[Placing | None]:
        """Turns that name no session and were not looked at; None where another is at it."""
        ...

    def take(
        self,
        limit: int,
        *,
        ready_at: int,
        overdue_at: int,
        but: Collection[tuple[str, str]] = (),
    ) -> AbstractContextManager[Work]:
        """Dirty sessions that no other worker has, those that have waited longest first.

        Those that are quiet since `ready_at`, or dirty since before `overdue_at`.
        """
        ...

    def turns_of(
        self, org_id: str, session_id: str, *, known: frozenset[int] = frozenset()
    ) -> tuple[frozenset[int], list[RawTurn]]:
        """The ids of a session's turns, and those of its turns that are not known yet."""
        ...

    def turns_of_many(
        self, org_id: str, known: Mapping[str, frozenset[int]]
    ) -> AbstractContextManager[Callable[[str], tuple[frozenset[int], list[RawTurn]]]]:
        """The same for several sessions of a tenant; each is read when it is asked for."""
        ...

    def sessions_of_log(self, org_id: str) -> Iterator[str]:
        """The sessions of which there are turns."""
        ...

    def unnamed(self, org_id: str) -> Iterator[tuple[RawTurn, str]]:
        """Turns that name no session, each with the conversation that it was placed in."""
        ...

    def strays(self, org_id: str) -> Iterator[str]:
        """Rows of the read model with no turn behind them, a line for each."""
        ...

    def mark_dirty(self, org_id: str | None = None, session_ids: Iterable[str] = ()) -> int:
        """Have sessions derived anew: these, all of a tenant, or all."""
        ...

    def derivation(self) -> Derivation:
        """By which deriver the log was derived, and how far it is derived anew."""
        ...

    def renew(self, number: int) -> Derivation:
        """Give out some sessions that a deriver of a lower number derived, if there are any."""
        ...

    def take_renewed(self, limit: int) -> AbstractContextManager[Work]:
        """Sessions that were given out so, which no other worker has."""
        ...

    def derived(self, number: int) -> None:
        """All of it was derived by the deriver of this number."""
        ...

    def waiting(self, org_id: str) -> int:
        """How many sessions of a tenant are still to be derived, those that a worker has too."""
        ...

    # counts
    def count_drops(self, drops: Mapping[tuple[str, str, str], int]) -> None:
        """Add to the number of exchanges that became no turn: tenant, provider, reason."""
        ...

    def counts(self, org_id: str | None = None) -> Mapping[str, Mapping[str, int]]:
        """Turns by state and by outcome, drops by reason, what waits: of a tenant, or of all."""
        ...

    # erasing
    def when_erasing(
        self, purge: Callable[[str, Sequence[str]], int], unsearched: Callable[[], Sequence[str]]
    ) -> None:
        """Have this called with tenant and sessions that are about to be erased.

        It purges what waits elsewhere, and gives the number of turns. `unsearched` names the files
        there that hold what nobody can read.
        """
        ...

    def finish_erasures(self) -> int:
        """Take what was erased out of the file's bytes; gives the number of erasures done."""
        ...

    # keeping
    def unwritten(self) -> str:
        """Why nothing can be written just now; "" where it can. Tried where it failed before."""
        ...

    def check(self) -> tuple[str, ...]:
        """What is damaged, a line for each; empty where nothing is."""
        ...

    def backup(self, path: str) -> None:
        """A whole copy, while others read and write. Raises UnavailableStore."""
        ...

    def close(self) -> None:
        """Let go of all connections."""
        ...
