"""The shapes of the read API's answers; the OpenAPI document follows from them.

Rule 1: a key that is `NotRequired` is left out where there is nothing to say; every other key is
        always there. What is unknown is null, never zero.
Rule 2: times are RFC 3339 in UTC, lengths of time whole nanoseconds where the name ends in `_ns`,
        money US dollars as a JSON number with the digits that it has.
Rule 3: what stands below a member, in quotes, is what the document says of it.

Pure.
"""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from tapes.jsontext import Json

Block = dict[str, Json]

# --- sessions ---------------------------------------------------------------------------------


class Usage(TypedDict):
    """Tokens and money of a session. Input includes what was cached."""

    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    cache_read_tokens: int | None
    cache_creation_tokens: int | None
    reasoning_tokens: int | None
    saved_cost_usd: float | None


class ModelUsage(TypedDict):
    """What one model did in a session."""

    model: str
    calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    unpriced_calls: int


class TaskItem(TypedDict):
    """An entry of the list of tasks that an agent keeps."""

    id: str
    subject: str
    description: NotRequired[str]
    status: str
    updates: int


class Rollup(TypedDict):
    """The numbers of a session."""

    status: str
    """completed, failed, abandoned or unknown"""
    title: NotRequired[str]
    preview: NotRequired[str]
    model: NotRequired[str]
    turn_count: int
    """how many traces there are"""
    model_usage: NotRequired[list[ModelUsage]]
    kind_counts: dict[str, int]
    tasks: list[TaskItem]
    usage: Usage
    duration_ns: int
    llm_calls: int
    replayed_calls: int
    failed_calls: int
    unpriced_calls: int
    """calls whose tokens are known and whose price is not: the cost leaves them out"""
    uncounted_calls: int
    """calls whose tokens are unknown: the sums leave them out"""
    tool_result_count: int
    tool_error_count: int
    has_git_activity: bool
    fidelity: str
    """what is kept of the bytes: raw, reduced, degraded, or nothing where none are needed"""


class SessionItem(TypedDict):
    """All that one agent, or one conversation, did."""

    id: str
    harness_id: str
    harness_session_id: str
    cwd: NotRequired[str]
    harness_version: NotRequired[str]
    parent_session_id: NotRequired[str]
    started_at: str
    last_seen_at: str
    ended_at: NotRequired[str]
    harness_metadata: NotRequired[dict[str, Json]]
    auth_subject: NotRequired[str]
    name: NotRequired[str]
    display_name: NotRequired[str]
    display_title: str
    """never empty"""
    live: bool
    """no end is known, and something came within five minutes"""
    rollup: Rollup
    agent_name: NotRequired[str]
    session_by: str
    """how the session is known: header, agent, body, content; of spans of OpenTelemetry otlp, where
    they name it, or trace; empty where only its children name it"""
    placeholder: bool
    """only named by its children, not seen itself"""
    tags: list[str]
    pinned: bool
    seq: int
    """the number of its last change"""


class CountItem(TypedDict):
    """How many there are; where it is not exact, there are at least so many."""

    value: int
    exact: bool


class PageFacts(TypedDict):
    """What every page says."""

    next_cursor: NotRequired[str]
    """where to go on; absent on the last page"""
    seq: int
    """the number of the last change before this page"""
    count: NotRequired[CountItem]
    remarks: NotRequired[list[str]]
    """what was not looked at"""


class SessionPage(PageFacts):
    """Some sessions."""

    items: list[SessionItem]


class OneSession(TypedDict):
    """A session."""

    session: SessionItem


# --- traces and spans -------------------------------------------------------------------------


class TraceUsage(TypedDict):
    """Tokens and money of a trace. Input includes what was cached."""

    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_creation_tokens: int | None
    reasoning_tokens: int | None
    cost_usd: float | None
    saved_cost_usd: float | None


class MainUsage(TypedDict):
    """Tokens of a trace without its sub-agents."""

    input_tokens: int | None
    output_tokens: int | None


class TraceItem(TypedDict):
    """What one prompt of the user set going."""

    trace_id: str
    session_id: str
    name: NotRequired[str]
    """what its sender calls it: the name of its root span"""
    user_prompt: str
    response_preview: NotRequired[str]
    status: str
    source: str
    started_at: str
    ended_at: NotRequired[str]
    duration_ns: int | None
    span_count: int
    missing_count: int
    """spans that others name and that were not received"""
    tool_calls: int
    unpriced_calls: int
    uncounted_calls: int
    usage: TraceUsage
    main_usage: MainUsage
    synthetic: NotRequired[str]
    fidelity: str


class SpanItem(TypedDict):
    """One thing that happened in a trace."""

    trace_id: str
    span_id: str
    parent_span_id: NotRequired[str]
    session_id: str
    seq: int
    kind: str
    name: str
    status: str
    error_type: NotRequired[str]
    started_at: str
    duration_ns: int | None
    first_chunk_ns: int | None
    call_kind: str
    model: str
    request_model: NotRequired[str]
    provider: NotRequired[str]
    response_id: NotRequired[str]
    stop_reason: str
    thread_id: str
    agent: NotRequired[str]
    anchor: NotRequired[str]
    """how the place of a sub-agent is known, or unanchored"""
    outcome: NotRequired[str]
    """live, recorded, replayed or refused"""
    raw_turn_id: NotRequired[int]
    request_id: NotRequired[str]
    verdict: Json
    input: NotRequired[list[Block]]
    output: NotRequired[list[Block]]
    usage: Json
    cost_usd: float | None
    fidelity: str
    payload: NotRequired[str]
    """preview or none where input and output are not all there is"""


class LinkItem(TypedDict):
    """A flow from one span to another."""

    kind: str
    from_trace_id: str
    from_span_id: str
    from_io: NotRequired[str]
    to_trace_id: str
    to_span_id: str
    to_io: NotRequired[str]


class TraceWithSpans(TypedDict):
    """A trace and its spans, in their order."""

    trace: TraceItem
    spans: list[SpanItem]


class WholeSession(TypedDict):
    """A session with everything below it."""

    schema: str
    session: SessionItem
    traces: list[TraceWithSpans]
    links: list[LinkItem]


class WholeTrace(TypedDict):
    """A trace with its spans, and the links that touch it."""

    schema: str
    trace: TraceItem
    spans: list[SpanItem]
    links: NotRequired[list[LinkItem]]


class TracePage(PageFacts):
    """Some traces."""

    schema: str
    items: list[TraceItem]


class SpanPage(PageFacts):
    """Some spans."""

    schema: str
    items: list[SpanItem]


# --- raw turns --------------------------------------------------------------------------------


class TurnItem(TypedDict):
    """What is known of a raw turn without its content."""

    id: int
    source: str
    provider: NotRequired[str]
    agent_name: NotRequired[str]
    request_id: NotRequired[str]
    received_at: str
    meta: NotRequired[dict[str, Json]]
    request_bytes: int
    response_bytes: int
    session_id: NotRequired[str]
    thread_id: NotRequired[str]
    outcome: str
    state: str
    status: int | None
    method: NotRequired[str]
    url: NotRequired[str]
    started_at: str | None
    ended_at: str | None
    dropped: bool
    """the bytes of the response existed, and are not kept"""
    skipped: NotRequired[str]
    """why it shows nowhere"""


class TurnPage(PageFacts):
    """Some raw turns."""

    items: list[TurnItem]


class BodyItem(TypedDict):
    """A body: its size as it came, and what it says once its coding is taken off."""

    bytes: int
    content_type: NotRequired[str]
    content_encoding: NotRequired[str]
    json: NotRequired[Json]
    text: NotRequired[str]
    base64: NotRequired[str]
    undecoded: NotRequired[str]
    """why there is no decoded form"""
    cut_at: NotRequired[int]
    """only so many characters are shown; the body's own address gives all"""


class ChunkItem(TypedDict):
    """Bytes of a body that came together."""

    at: float
    """seconds since the request was sent"""
    bytes: int
    text: NotRequired[str]
    base64: NotRequired[str]


class RequestItem(TypedDict):
    """A request as it was sent, secrets taken out."""

    method: str
    url: str
    headers: list[list[str]]
    body: BodyItem


class ResponseItem(TypedDict):
    """A response as it came."""

    status: int
    reason: NotRequired[str]
    headers: list[list[str]]
    body: BodyItem
    chunks: list[ChunkItem]


class WholeTurn(TypedDict):
    """A raw turn with its payloads."""

    turn: TurnItem
    envelope: dict[str, Json]
    session_by: str
    request: RequestItem | None
    response: ResponseItem | None
    plain_request: NotRequired[Json]
    """the request of a call that was made with plain values, not over HTTP"""
    plain_response: NotRequired[Json]
    reduced: NotRequired[Json]
    """what a caller said that the answer means"""
    records: NotRequired[Json]
    """the records of a transcript"""
    key: NotRequired[str]
    """the key under which a tape has this exchange"""
    canonicalizer: NotRequired[str]


# --- numbers, finding, changes ----------------------------------------------------------------


class StatsItem(TypedDict):
    """Sums over the traces that began in a window of time."""

    session_count: int
    turn_count: int
    """how many traces"""
    completed_count: int
    total_cost: float | None
    input_tokens: int | None
    output_tokens: int | None
    total_duration_ms: int
    """agent time: idle time is not in it"""
    tool_calls: int
    saved_cost: float | None
    unpriced_calls: int
    uncounted_calls: int


class BarItem(TypedDict):
    """What began in one part of the time."""

    at: str
    rows: int
    failed: int
    cost_usd: float | None
    longest_ns: int | None
    p50_ns: int | None
    """a duration that half of them do not exceed; up to a tenth too long where many are alike"""
    p95_ns: int | None
    """the same for 19 of 20"""


class HistogramItem(TypedDict):
    """How a list spreads over the time in which its rows began."""

    since: str | None
    until: str | None
    width_ns: int
    bars: list[BarItem]
    """the parts in which nothing began are left out"""
    exact: bool
    """whether each row was counted; of very many spans a sample is, and numbers are about so"""


class ExcerptItem(TypedDict):
    """A part of a text in which something was found."""

    where: str
    text: str
    places: list[list[int]]
    """begin and end of each place in the text, in characters"""


class HitItem(TypedDict):
    """A span in which everything that was asked for stands."""

    span: SpanItem
    in_prompt: bool
    excerpts: list[ExcerptItem]


class HitPage(TypedDict):
    """Some hits: those in prompts first, each newest first."""

    items: list[HitItem]
    next_cursor: NotRequired[str]
    remarks: NotRequired[list[str]]


class FoundItem(TypedDict):
    """A thing with the id that was looked for, or one that begins so."""

    noun: str
    id: str
    session_id: str | None
    trace_id: NotRequired[str]
    by: str
    whole: bool


class FoundItems(TypedDict):
    """What has an id."""

    items: list[FoundItem]


class FacetItem(TypedDict):
    """A value that a field has, and in how many sessions."""

    value: str
    sessions: int


class FacetItems(TypedDict):
    """The values of a field, the most frequent first."""

    field: str
    items: list[FacetItem]


class FieldsOfNoun(TypedDict):
    """What a list can be asked for."""

    fields: list[str]
    has: list[str]
    sorts: list[str]


class FieldsItem(TypedDict):
    """The words of the query language, for each list."""

    sessions: FieldsOfNoun
    traces: FieldsOfNoun
    spans: FieldsOfNoun
    turns: FieldsOfNoun
    facets: list[str]


class ChangeItem(TypedDict):
    """A session of which something changed, or that was erased."""

    seq: int
    session_id: str
    erased: bool
    at: str


class ChangeItems(TypedDict):
    """What changed since, in the order of the last changes."""

    items: list[ChangeItem]
    seq: int


# --- tapes and misses -------------------------------------------------------------------------


class SavedItem(TypedDict):
    """What answers from a tape made unnecessary."""

    calls: int
    tokens: int | None
    usd: float | None
    unpriced: int
    bytes: int


class KeptRunsItem(TypedDict):
    """What the runs that are kept of a tape did with it."""

    runs: int
    served: int
    refused: int
    saved: SavedItem


class TapeItem(TypedDict):
    """A tape at a glance."""

    path: str
    kind: str
    answers: int
    incomplete: int
    bytes: int
    last_recorded: str | None
    canonicalizers: list[str]
    problem: str | None
    remedy: str | None
    replayed: KeptRunsItem | None
    """null where no run has ended on this machine"""


class TapeItems(TypedDict):
    """The tapes below the folder in which the server was started."""

    folder: str | None
    """null where the caller's tenant has no tapes"""
    items: list[TapeItem]


class RunItem(TypedDict):
    """What a run did with a tape."""

    mode: str
    started: str
    ended: str
    served: int
    recorded: int
    counts: dict[str, int]


class TapeRow(TypedDict):
    """A recording."""

    key: str
    recorded_at: str | None
    what: str
    said: str
    model: str | None
    stream: bool
    status: int | None
    input_tokens: int | None
    output_tokens: int | None
    bytes: int
    state: str
    sample: int
    canonicalizer: str
    hits: int
    unused: bool | None
    """not served in the latest run; null where no run is known"""
    expired: bool


class SaidItem(TypedDict):
    """A message of a recording, as it reads."""

    role: str
    parts: list[Block]


class RecordingItem(TypedDict):
    """A recording: what was asked and what came, as it lies on the tape and as it reads."""

    tape: str
    key: str
    canonicalizer: str
    recorded_at: str | None
    state: str
    sample: int
    what: str
    request: RequestItem | None
    response: ResponseItem | None
    plain_request: NotRequired[Json]
    """the request of a call that was made with plain values, not over HTTP"""
    plain_response: NotRequired[Json]
    messages: list[SaidItem]
    """what was asked; empty where the request is no call of a model that is known here"""
    tools: list[str]
    answers: list[SaidItem]
    model: str | None
    stop: str | None
    unread: str | None
    """why messages and answers are not told, where they are not"""


class SinceItem(TypedDict):
    """What the log saw of a tape since the latest run that ended: by a proxy that runs, say."""

    served: int
    refused: int
    more: bool
    """these are only the latest of them"""


class WholeTape(TypedDict):
    """What is on a tape, what its runs did with it, and what replay has saved."""

    tape: TapeItem
    models: dict[str, int]
    input_tokens: int
    output_tokens: int
    superseded: int
    served: int
    """in the runs that ended, as are those that follow"""
    refused: int
    live: int
    since: SinceItem
    saved: SavedItem
    unused: int | None
    expired: int
    runs: list[RunItem]
    exchanges: list[TapeRow]
    left_out: int
    """recordings beyond those that are shown"""


class RefusedTurn(TurnItem):
    """A request that got no answer."""

    tape: str | None
    refused: str | None
    said: str
    """the last that was asked, in one line"""
    model: str | None


class MissPage(PageFacts):
    """Some misses."""

    items: list[RefusedTurn]


class DifferenceItem(TypedDict):
    """A place that differs; null stands for nothing there."""

    place: str
    asked: Json
    recorded: Json


class NearItem(TypedDict):
    """The recording that is most like the request."""

    key: str
    recorded_at: str | None
    what: str
    request: Json
    differences: list[DifferenceItem]


class ExplanationItem(TypedDict):
    """Why a request hits or misses on a tape."""

    tape: str
    verdict: str
    """hit, miss, or unknown where the tape cannot be read"""
    problem: NotRequired[str]
    key: NotRequired[str]
    canonicalizer: NotRequired[str]
    canonical_text: NotRequired[str]
    left_out: NotRequired[list[str]]
    redacted: NotRequired[list[str]]
    rules: NotRequired[list[dict[str, str]]]
    message: NotRequired[str | None]
    remedy: NotRequired[str | None]
    causes: NotRequired[list[str]]
    """only what is shown by what differs"""
    rule: NotRequired[str | None]
    """for tapes.toml: by it the two are the same; it was tried"""
    record: NotRequired[str]
    nearest: NotRequired[NearItem]


class MissItem(TypedDict):
    """A request, and why it is not on a tape."""

    turn_id: int
    session_id: str | None
    asked: Json
    what: str
    tapes: list[str]
    refused: str | None
    explanation: ExplanationItem | None


class LeftOutTurn(TypedDict):
    """A turn that cannot be on a tape."""

    turn: str
    why: str


class TapePlan(TypedDict):
    """What a tape of a session would hold, and how it is made and used."""

    session_id: str
    until: int | None
    """the turn with which it ends; null is the whole session"""
    answers: int
    left_out: list[LeftOutTurn]
    secrets: dict[str, int]
    """what redaction takes out, by name"""
    later: int
    """calls of the session that came after, which an agent makes live"""
    tape: str
    freeze: str
    """the command that makes the tape"""
    run: str
    """the command that runs an agent with it: COMMAND stands for yours"""


# --- what people do ---------------------------------------------------------------------------


class ErasureItem(TypedDict):
    """What was erased, or would be."""

    id: int
    sessions: int
    turns: int
    bytes: int
    reason: str
    by: str
    asked_at: str
    done_at: str | None
    """null while its bytes are still in the file"""
    state: Literal["planned", "erasing", "done"]
    session_ids: list[str]
    tapes: list[str]
    """committed tapes that were made from these sessions: they are not touched"""
    backups: list[str]
    """files that still hold their content"""
    unsearched: list[str]
    """files with something damaged in them, which cannot be searched and may hold their content"""


class ErasureItems(TypedDict):
    """Erasures."""

    items: list[ErasureItem]


class PolicyItem(TypedDict):
    """How long sessions are kept; null is without end. Pinned ones are exempt."""

    max_age_ns: int | None
    max_sessions: int | None
    max_bytes: int | None


class AuditItem(TypedDict):
    """Something that was done."""

    id: int
    at: str
    action: str
    by: str
    details: dict[str, Json]


class AuditItems(TypedDict):
    """What was done, the latest first."""

    items: list[AuditItem]


class DerivationItem(TypedDict):
    """Whether all of the log is as this version of Tapes derives it."""

    derived_by: int
    """the number of the deriver of which all of it is at least; 0 where it had none"""
    deriver: int
    """the number of this one"""
    done: float
    """how much of it is of this one, or of a later one, from 0 to 1"""


class StateItem(TypedDict):
    """How the log is."""

    store: NotRequired[str]
    """where it lies; not for the token of a tenant"""
    seq: int
    counts: dict[str, dict[str, int]]
    """turns by state and outcome, drops by reason, what waits to be derived"""
    skipped: dict[str, int]
    """turns that show nowhere, by reason"""
    derives: bool
    """whether this process keeps the read model up to date"""
    derivation: DerivationItem
    """by which deriver it was derived; of the whole log"""
    addresses: dict[str, str]
    """where the proxy, the API and the ingest are, or usually are"""


class ReadyItem(TypedDict):
    """Whether the server can answer."""

    ready: bool
    store: str


class SeededItem(TypedDict):
    """What became of the sample sessions."""

    sessions: int
    raw_turns: int
    raw_turns_inserted: int
    raw_turns_deduped: int


class DerivedOfItem(TypedDict):
    """What deriving everything of a tenant did, and what its log came to.

    `waiting` are the sessions that are still to be derived: another worker has them, or turns came
    meanwhile. `raw_turns` are its turns, `parsed_turns` those of them that show, `call_kinds` how
    many calls there are of each kind.
    """

    sessions: int
    derived: int
    placed: int
    changed_rows: int
    failed: int
    waiting: int
    raw_turns: int
    parsed_turns: int
    call_kinds: dict[str, int]


class DerivedItem(TypedDict):
    """What deriving everything did, by tenant."""

    orgs: dict[str, DerivedOfItem]


class AttributionItem(TypedDict):
    """Whose turn it is."""

    harness_id: str
    harness_session_id: str
    thread_id: str
    parent_harness_session_id: NotRequired[str]


class RepairedItem(TypedDict):
    """A correction that was recorded."""

    recorded: bool
    raw_turn_id: int
    previous: AttributionItem
    effective: AttributionItem
    projections_pending: bool


class Problem(TypedDict):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    code: str
    """stable, for programs; each has a row in docs/errors.md"""
    detail: str
    remedy: NotRequired[str]
    """what to do next"""
    position: NotRequired[int]
    """the place in the query, from zero"""
    problems: NotRequired[list[dict[str, Json]]]
    error: str
    """the same as detail, for older clients"""
