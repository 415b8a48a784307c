"""The tables, the same in both databases: the log, the read model, what people add, the audit.

Every row says whose it is (`org_id`). `docs/storage.md` says what each table is for; revisions in
`migrations/` make them. What differs between the databases (the index of words) is in their files.
"""

from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Identity,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    func,
    text,
)

from tapes.store.columns import Bytes, Id, JsonText, Money, Payload, Whole, Word

metadata = MetaData()

# In SQLite only a column of this very type numbers its rows.
_Number = Whole().with_variant(Integer(), "sqlite")


def _numbered() -> Column[int]:
    return Column("id", _Number, Identity(), primary_key=True, autoincrement=True)


def _org() -> Column[str]:
    return Column("org_id", Id(), nullable=False)


def _word(name: str) -> Column[str]:
    return Column(name, Word, nullable=False, server_default="")


def _count(name: str) -> Column[int]:
    return Column(name, Whole, nullable=False, server_default="0")


def _no(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False, server_default=text("false"))


def _maybe(name: str) -> Column[int | None]:
    return Column(name, Whole)


def known(column: ColumnElement[Any]) -> object:
    """A column as it is sorted: what is unknown comes before zero."""
    return func.coalesce(column, text("-1"))


# --- the log ----------------------------------------------------------------------------------

raw_turns = Table(
    "raw_turns",
    metadata,
    _numbered(),
    _org(),
    _word("request_id"),
    _word("source"),
    _word("provider"),
    _word("agent_name"),
    _word("thread_id"),
    _word("harness_id"),
    _word("harness_session_id"),
    _word("session_by"),
    # Where a turn belongs. Of one that names no session `placed` says, None while nobody looked.
    Column("session_id", Id()),
    Column("placed", Word),
    _no("corrected"),
    _word("outcome"),
    _word("state"),
    Column("status", Integer),
    _word("method"),
    _word("url"),
    _maybe("started_at"),
    _maybe("ended_at"),
    _count("received_at"),
    _no("dropped"),
    _count("request_bytes"),
    _count("response_bytes"),
    _count("stored_bytes"),
    # The request's body: how it was packed, against which earlier turn, and its check.
    Column("lineage", Whole),
    Column("way", SmallInteger, nullable=False, server_default="0"),
    _maybe("base_id"),
    _count("depth"),
    _count("prefix"),
    _count("suffix"),
    _count("body_check"),
    Column("meta", JsonText),
    Column("request", Bytes, nullable=False),
    Column("rest", Bytes, nullable=False),
    sqlite_autoincrement=True,
)
Index(
    "raw_turns_by_request",
    raw_turns.c.org_id,
    raw_turns.c.request_id,
    unique=True,
    sqlite_where=raw_turns.c.request_id != "",
    postgresql_where=raw_turns.c.request_id != "",
)
# Of a session's turns the last of a lineage are found in the index alone.
Index(
    "raw_turns_by_session",
    raw_turns.c.org_id,
    raw_turns.c.session_id,
    raw_turns.c.id,
    raw_turns.c.lineage,
)
_unnamed = raw_turns.c.session_id.is_(None)
Index(
    "raw_turns_by_lineage",
    raw_turns.c.org_id,
    raw_turns.c.lineage,
    raw_turns.c.id,
    sqlite_where=_unnamed,
    postgresql_where=_unnamed,
)
Index(
    "raw_turns_by_base",
    raw_turns.c.base_id,
    sqlite_where=raw_turns.c.base_id.is_not(None),
    postgresql_where=raw_turns.c.base_id.is_not(None),
)
# For lists of them, and for counting them.
Index("raw_turns_by_org", raw_turns.c.org_id, raw_turns.c.id)
Index(
    "raw_turns_by_outcome",
    raw_turns.c.org_id,
    raw_turns.c.outcome,
    raw_turns.c.id,
    raw_turns.c.state,
    raw_turns.c.source,
)
_unplaced = raw_turns.c.session_id.is_(None) & raw_turns.c.placed.is_(None)
Index("raw_turns_unplaced", raw_turns.c.id, sqlite_where=_unplaced, postgresql_where=_unplaced)

# Large parts of bodies that many turns repeat (images, tool definitions), once for each tenant.
blobs = Table(
    "blobs",
    metadata,
    _org(),
    Column("hash", Bytes, nullable=False),
    Column("data", Bytes, nullable=False),
    PrimaryKeyConstraint("org_id", "hash"),
)
turn_blobs = Table(
    "turn_blobs",
    metadata,
    _org(),
    Column("raw_turn_id", Whole, nullable=False),
    Column("hash", Bytes, nullable=False),
    PrimaryKeyConstraint("raw_turn_id", "hash"),
)
Index("turn_blobs_by_hash", turn_blobs.c.org_id, turn_blobs.c.hash)

# By what turns that name no session find each other; `sought` 0 is a mark that was left.
turn_marks = Table(
    "turn_marks",
    metadata,
    _org(),
    Column("mark", Bytes, nullable=False),
    Column("sought", SmallInteger, nullable=False),
    Column("started_at", Whole, nullable=False),
    Column("raw_turn_id", Whole, nullable=False),
    PrimaryKeyConstraint("org_id", "mark", "sought", "started_at", "raw_turn_id"),
)
Index("turn_marks_by_turn", turn_marks.c.raw_turn_id)

corrections = Table(
    "raw_turn_attribution_corrections",
    metadata,
    _numbered(),
    _org(),
    Column("raw_turn_id", Whole, nullable=False),
    _word("harness_id"),
    _word("harness_session_id"),
    _word("thread_id"),
    Column("parent_harness_session_id", Word),
    _word("reason"),
    _count("created_at"),
    sqlite_autoincrement=True,
)
Index("corrections_by_turn", corrections.c.raw_turn_id, corrections.c.id)

drops = Table(
    "drops",
    metadata,
    _org(),
    _word("provider"),
    _word("reason"),
    _count("number"),
    PrimaryKeyConstraint("org_id", "provider", "reason"),
)

# --- deriving ---------------------------------------------------------------------------------

dirty = Table(
    "derive_queue",
    metadata,
    _org(),
    Column("session_id", Id(), nullable=False),
    _count("version"),
    _count("dirtied_at"),
    _count("first_dirtied_at"),
    Column("failed", Text),
    PrimaryKeyConstraint("org_id", "session_id"),
)
Index("derive_queue_by_time", dirty.c.dirtied_at)
# What is in no hurry is dirty since then, a time that never comes.
BACKGROUND = 2**62 + 1

# A row that workers lock while they derive a session; writers of turns never touch it.
claims = Table(
    "derive_claims",
    metadata,
    _org(),
    Column("session_id", Id(), nullable=False),
    PrimaryKeyConstraint("org_id", "session_id"),
)

skips = Table(
    "skipped_turns",
    metadata,
    _org(),
    Column("raw_turn_id", Whole, primary_key=True, autoincrement=False),
    Column("session_id", Id()),
    _word("reason"),
)
Index("skipped_turns_by_session", skips.c.org_id, skips.c.session_id)

# --- the read model ---------------------------------------------------------------------------

sessions = Table(
    "sessions",
    metadata,
    _org(),
    Column("id", Id(), nullable=False),
    _word("auth_subject"),
    _word("harness_id"),
    _word("harness_session_id"),
    _word("session_by"),
    _word("name"),
    _word("cwd"),
    _word("harness_version"),
    _word("agent_name"),
    Column("parent_session_id", Id()),
    _no("placeholder"),
    _count("started_at"),
    _count("last_seen_at"),
    _maybe("ended_at"),
    _count("duration_ns"),
    _maybe("total_input_tokens"),
    _maybe("total_output_tokens"),
    _maybe("total_tokens"),
    _maybe("cache_read_tokens"),
    _maybe("cache_creation_tokens"),
    _maybe("reasoning_tokens"),
    Column("total_cost_usd", Money),
    Column("saved_cost_usd", Money),
    _count("llm_calls"),
    _count("replayed_calls"),
    _count("failed_calls"),
    _count("unpriced_calls"),
    _count("uncounted_calls"),
    _count("turn_count"),
    _word("derived_status"),
    _no("has_git_activity"),
    _count("tool_result_count"),
    _count("tool_error_count"),
    _word("derived_title"),
    _word("preview"),
    _word("derived_model"),
    Column("model_usage", JsonText),
    Column("tasks", JsonText),
    Column("kind_counts", JsonText),
    Column("harness_metadata", JsonText),
    _word("fidelity"),
    _word("content_hash"),
    _count("derive_seq"),
    # Where it stands in time, unique in the database: the number under which its words are found.
    Column("place", Whole, nullable=False),
    PrimaryKeyConstraint("org_id", "id"),
)
_SESSION_SORTS = {
    "last_active": sessions.c.last_seen_at,
    "started": sessions.c.started_at,
    "turn_count": sessions.c.turn_count,
    "cost": known(sessions.c.total_cost_usd),
    "tokens": known(sessions.c.total_tokens),
    "duration": sessions.c.duration_ns,
    "status": sessions.c.derived_status,
    "subject": sessions.c.auth_subject,
}
for _name, _sorted in _SESSION_SORTS.items():
    Index(f"sessions_by_{_name}", sessions.c.org_id, _sorted, sessions.c.id)  # type: ignore[arg-type]
Index("sessions_by_harness", sessions.c.org_id, sessions.c.harness_session_id)
Index("sessions_by_place", sessions.c.place, unique=True)

# What a session's calls name as the session that it was forked from.
session_parents = Table(
    "session_parents",
    metadata,
    _org(),
    Column("session_id", Id(), nullable=False),
    Column("parent_id", Id(), nullable=False),
    _word("harness_id"),
    _word("harness_session_id"),
    _count("started_at"),
    PrimaryKeyConstraint("org_id", "session_id", "parent_id"),
)
Index("session_parents_by_parent", session_parents.c.org_id, session_parents.c.parent_id)

# What is in a session: its models, tools, agents, tags and so on.
facets = Table(
    "session_facets",
    metadata,
    _org(),
    _word("name"),
    _word("value"),
    Column("session_id", Id(), nullable=False),
    PrimaryKeyConstraint("org_id", "name", "value", "session_id"),
)
Index("session_facets_by_session", facets.c.org_id, facets.c.session_id)

traces = Table(
    "traces",
    metadata,
    _org(),
    Column("trace_id", Word, nullable=False),
    Column("session_id", Id(), nullable=False),
    _word("name"),
    _word("user_prompt"),
    _word("response_preview"),
    _word("synthetic"),
    _word("status"),
    _word("source"),
    _count("started_at"),
    _maybe("ended_at"),
    _maybe("duration_ns"),
    _maybe("total_input_tokens"),
    _maybe("total_output_tokens"),
    _maybe("total_tokens"),
    _maybe("main_input_tokens"),
    _maybe("main_output_tokens"),
    _maybe("cache_read_tokens"),
    _maybe("cache_creation_tokens"),
    _maybe("reasoning_tokens"),
    Column("total_cost_usd", Money),
    Column("saved_cost_usd", Money),
    _count("unpriced_calls"),
    _count("uncounted_calls"),
    _count("tool_calls"),
    _count("span_count"),
    _count("missing_count"),
    _word("fidelity"),
    _word("content_hash"),
    _count("derive_seq"),
    PrimaryKeyConstraint("org_id", "trace_id"),
)
Index("traces_by_session", traces.c.org_id, traces.c.session_id, traces.c.started_at)
_TRACE_SORTS = {
    "started": traces.c.started_at,
    "duration": known(traces.c.duration_ns),
    "cost": known(traces.c.total_cost_usd),
    "tokens": known(traces.c.total_tokens),
}
for _name, _sorted in _TRACE_SORTS.items():
    Index(f"traces_by_{_name}", traces.c.org_id, _sorted, traces.c.trace_id)  # type: ignore[arg-type]

spans = Table(
    "spans",
    metadata,
    # Where it stands in time, unique in the database: the number under which its words are found.
    Column("place", _Number, primary_key=True, autoincrement=False),
    _org(),
    Column("trace_id", Word, nullable=False),
    Column("span_id", Word, nullable=False),
    _word("parent_span_id"),
    Column("session_id", Id(), nullable=False),
    _word("kind"),
    _word("name"),
    _word("status"),
    _word("error_type"),
    _word("call_kind"),
    _word("thread_id"),
    _word("agent"),
    _word("anchor"),
    _word("provider"),
    _word("model"),
    _word("request_model"),
    _word("response_id"),
    _word("stop_reason"),
    _word("outcome"),
    _count("started_at"),
    _maybe("duration_ns"),
    _maybe("first_chunk_ns"),
    _maybe("total_tokens"),
    Column("cost_usd", Money),
    _maybe("raw_turn_id"),
    _word("request_id"),
    _word("node_hash"),
    _count("seq"),
    _word("fidelity"),
    _word("content_hash"),
    _count("derive_seq"),
    Column("usage", JsonText),
    Column("verdict", JsonText),
    Column("input", Payload),
    Column("output", Payload),
)
Index("spans_by_id", spans.c.org_id, spans.c.trace_id, spans.c.span_id, unique=True)
Index("spans_by_session", spans.c.org_id, spans.c.session_id, spans.c.started_at)
Index("spans_by_span_id", spans.c.org_id, spans.c.span_id)
Index("spans_by_change", spans.c.org_id, spans.c.derive_seq)
# Here and below as text: a database uses such an index only where a query has the very words of its
# condition.
answered = text("response_id != ''")
Index(
    "spans_by_response",
    spans.c.org_id,
    spans.c.response_id,
    sqlite_where=answered,
    postgresql_where=answered,
)
# In order of time, with all that filters, sorts and histograms look at: whichever is asked for, and
# however little fits, one short index is read and not the rows, which hold whole texts.
_LOOKED_AT = (
    spans.c.org_id,
    spans.c.started_at,
    spans.c.place,
    spans.c.kind,
    spans.c.name,
    spans.c.status,
    spans.c.model,
    spans.c.request_model,
    spans.c.provider,
    spans.c.agent,
    spans.c.thread_id,
    spans.c.call_kind,
    spans.c.error_type,
    spans.c.outcome,
    spans.c.stop_reason,
    spans.c.duration_ns,
    spans.c.cost_usd,
    spans.c.total_tokens,
    spans.c.first_chunk_ns,
    spans.c.seq,
    spans.c.raw_turn_id,
    spans.c.session_id,
    spans.c.request_id,
    spans.c.anchor,
    spans.c.fidelity,
)
Index("spans_by_time", *_LOOKED_AT)
# One of sixteen, by chance: the last bits of a place are a hash.
SAMPLE = 16
sampled = text("place & 15 = 0")
Index("spans_sampled", *_LOOKED_AT, sqlite_where=sampled, postgresql_where=sampled)
# A verdict is too long for an index, and few spans have one.
judged = spans.c.verdict.is_not(None)
Index("spans_judged", *_LOOKED_AT, sqlite_where=judged, postgresql_where=judged)

links = Table(
    "span_links",
    metadata,
    _org(),
    Column("from_trace_id", Word, nullable=False),
    Column("from_span_id", Word, nullable=False),
    _word("from_io"),
    Column("to_trace_id", Word, nullable=False),
    Column("to_span_id", Word, nullable=False),
    _word("to_io"),
    _word("kind"),
    Column("session_id", Id(), nullable=False),
    PrimaryKeyConstraint(
        "org_id", "from_trace_id", "from_span_id", "from_io", "to_trace_id", "to_span_id", "to_io"
    ),
)
Index("span_links_by_session", links.c.org_id, links.c.session_id)
Index("span_links_by_target", links.c.org_id, links.c.to_trace_id)

# The number of the last change of each tenant; whoever writes rows counts it up, one at a time.
clocks = Table("clocks", metadata, Column("org_id", Id(), primary_key=True), _count("seq"))
changes = Table(
    "changes",
    metadata,
    _org(),
    Column("session_id", Id(), nullable=False),
    _count("seq"),
    _no("erased"),
    _count("at"),
    PrimaryKeyConstraint("org_id", "session_id"),
)
Index("changes_by_seq", changes.c.org_id, changes.c.seq)

# --- what people say --------------------------------------------------------------------------

notes = Table(
    "session_notes",
    metadata,
    _org(),
    Column("session_id", Id(), nullable=False),
    _word("display_name"),
    _no("pinned"),
    PrimaryKeyConstraint("org_id", "session_id"),
)
tags = Table(
    "session_tags",
    metadata,
    _org(),
    Column("session_id", Id(), nullable=False),
    _word("tag"),
    PrimaryKeyConstraint("org_id", "session_id", "tag"),
)
Index("session_tags_by_tag", tags.c.org_id, tags.c.tag)
tapes = Table(
    "session_tapes",
    metadata,
    _org(),
    Column("session_id", Id(), nullable=False),
    _word("path"),
    PrimaryKeyConstraint("org_id", "session_id", "path"),
)

# --- governance -------------------------------------------------------------------------------

erasures = Table(
    "erasures",
    metadata,
    _numbered(),
    _org(),
    _count("sessions"),
    _count("turns"),
    _count("bytes"),
    _word("reason"),
    _word("by"),
    _count("asked_at"),
    _maybe("done_at"),
    Column("details", JsonText),
    sqlite_autoincrement=True,
)
# Sessions that were erased: turns of theirs from before that time are refused.
tombstones = Table(
    "tombstones",
    metadata,
    _org(),
    Column("session_id", Id(), nullable=False),
    _count("erased_at"),
    Column("erasure_id", Whole, nullable=False),
    PrimaryKeyConstraint("org_id", "session_id"),
)
# Request ids of turns that were erased, as hashes.
erased_turns = Table(
    "erased_turns",
    metadata,
    _org(),
    Column("request_hash", Bytes, nullable=False),
    PrimaryKeyConstraint("org_id", "request_hash"),
)
policies = Table(
    "retention_policies",
    metadata,
    Column("org_id", Id(), primary_key=True),
    _maybe("max_age_ns"),
    _maybe("max_sessions"),
    _maybe("max_bytes"),
)
audit = Table(
    "audit",
    metadata,
    _numbered(),
    _org(),
    _count("at"),
    _word("action"),
    _word("by"),
    Column("details", JsonText),
    sqlite_autoincrement=True,
)
Index("audit_by_org", audit.c.org_id, audit.c.id)

# What this database is: its own id, the version of its words, where it was copied from.
about = Table(
    "about", metadata, Column("name", Word, primary_key=True), Column("value", Word, nullable=False)
)
