"""The log, the queue of derivers, and the read model."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None

ID = sa.LargeBinary(16).with_variant(postgresql.UUID(as_uuid=False), "postgresql")
WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
JSON = sa.Text().with_variant(postgresql.JSON(), "postgresql")
MONEY = sa.BigInteger().with_variant(sa.Numeric(24, 12), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def numbered() -> sa.Column[Any]:
    return sa.Column("id", NUMBER, sa.Identity(), primary_key=True, autoincrement=True)


def org() -> sa.Column[Any]:
    return sa.Column("org_id", ID, nullable=False)


def word(name: str) -> sa.Column[Any]:
    return sa.Column(name, WORD, nullable=False, server_default="")


def count(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger(), nullable=False, server_default="0")


def no(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.text("false"))


def where(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def upgrade() -> None:
    op.create_table(
        "raw_turns",
        numbered(),
        org(),
        word("request_id"),
        word("source"),
        word("provider"),
        word("agent_name"),
        word("thread_id"),
        word("harness_id"),
        word("harness_session_id"),
        word("session_by"),
        sa.Column("session_id", ID),
        sa.Column("placed", WORD),
        no("corrected"),
        word("outcome"),
        word("state"),
        sa.Column("status", sa.Integer()),
        word("method"),
        word("url"),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("ended_at", sa.BigInteger()),
        count("received_at"),
        no("dropped"),
        count("request_bytes"),
        count("response_bytes"),
        count("stored_bytes"),
        sa.Column("lineage", sa.BigInteger()),
        sa.Column("way", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("base_id", sa.BigInteger()),
        count("depth"),
        count("prefix"),
        count("suffix"),
        count("body_check"),
        sa.Column("meta", JSON),
        sa.Column("request", sa.LargeBinary(), nullable=False),
        sa.Column("rest", sa.LargeBinary(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("raw_turns_by_base", "raw_turns", ["base_id"], **where("base_id IS NOT NULL"))
    op.create_index("raw_turns_by_lineage", "raw_turns", ["org_id", "lineage", "id"])
    op.create_index(
        "raw_turns_by_request",
        "raw_turns",
        ["org_id", "request_id"],
        unique=True,
        **where("request_id != ''"),
    )
    op.create_index("raw_turns_by_session", "raw_turns", ["org_id", "session_id", "id"])
    op.create_index(
        "raw_turns_unplaced", "raw_turns", ["id"], **where("session_id IS NULL AND placed IS NULL")
    )
    op.create_table(
        "blobs",
        org(),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("org_id", "hash"),
    )
    op.create_table(
        "turn_blobs",
        org(),
        sa.Column("raw_turn_id", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("raw_turn_id", "hash"),
    )
    op.create_index("turn_blobs_by_hash", "turn_blobs", ["org_id", "hash"])
    op.create_table(
        "turn_marks",
        org(),
        sa.Column("mark", sa.LargeBinary(), nullable=False),
        sa.Column("sought", sa.SmallInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("raw_turn_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("org_id", "mark", "sought", "started_at", "raw_turn_id"),
    )
    op.create_index("turn_marks_by_turn", "turn_marks", ["raw_turn_id"])
    op.create_table(
        "raw_turn_attribution_corrections",
        numbered(),
        org(),
        sa.Column("raw_turn_id", sa.BigInteger(), nullable=False),
        word("harness_id"),
        word("harness_session_id"),
        word("thread_id"),
        sa.Column("parent_harness_session_id", WORD),
        word("reason"),
        count("created_at"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "corrections_by_turn", "raw_turn_attribution_corrections", ["raw_turn_id", "id"]
    )
    op.create_table(
        "drops",
        org(),
        word("provider"),
        word("reason"),
        count("number"),
        sa.PrimaryKeyConstraint("org_id", "provider", "reason"),
    )
    op.create_table(
        "derive_queue",
        org(),
        sa.Column("session_id", ID, nullable=False),
        count("version"),
        count("dirtied_at"),
        count("first_dirtied_at"),
        sa.Column("failed", sa.Text()),
        sa.PrimaryKeyConstraint("org_id", "session_id"),
    )
    op.create_index("derive_queue_by_time", "derive_queue", ["dirtied_at"])
    op.create_table(
        "derive_claims",
        org(),
        sa.Column("session_id", ID, nullable=False),
        sa.PrimaryKeyConstraint("org_id", "session_id"),
    )
    op.create_table(
        "skipped_turns",
        org(),
        sa.Column("raw_turn_id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("session_id", ID),
        word("reason"),
    )
    op.create_index("skipped_turns_by_session", "skipped_turns", ["org_id", "session_id"])
    op.create_table(
        "sessions",
        org(),
        sa.Column("id", ID, nullable=False),
        word("auth_subject"),
        word("harness_id"),
        word("harness_session_id"),
        word("session_by"),
        word("name"),
        word("cwd"),
        word("harness_version"),
        word("agent_name"),
        sa.Column("parent_session_id", ID),
        no("placeholder"),
        count("started_at"),
        count("last_seen_at"),
        sa.Column("ended_at", sa.BigInteger()),
        count("duration_ns"),
        sa.Column("total_input_tokens", sa.BigInteger()),
        sa.Column("total_output_tokens", sa.BigInteger()),
        sa.Column("total_tokens", sa.BigInteger()),
        sa.Column("cache_read_tokens", sa.BigInteger()),
        sa.Column("cache_creation_tokens", sa.BigInteger()),
        sa.Column("reasoning_tokens", sa.BigInteger()),
        sa.Column("total_cost_usd", MONEY),
        sa.Column("saved_cost_usd", MONEY),
        count("llm_calls"),
        count("replayed_calls"),
        count("failed_calls"),
        count("unpriced_calls"),
        count("uncounted_calls"),
        count("turn_count"),
        word("derived_status"),
        no("has_git_activity"),
        count("tool_result_count"),
        count("tool_error_count"),
        word("derived_title"),
        word("preview"),
        word("derived_model"),
        sa.Column("model_usage", JSON),
        sa.Column("tasks", JSON),
        sa.Column("kind_counts", JSON),
        sa.Column("harness_metadata", JSON),
        word("fidelity"),
        word("content_hash"),
        count("derive_seq"),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("org_id", "id"),
    )
    op.create_index(
        "sessions_by_cost", "sessions", ["org_id", sa.text("coalesce(total_cost_usd, -1)"), "id"]
    )
    op.create_index("sessions_by_duration", "sessions", ["org_id", "duration_ns", "id"])
    op.create_index("sessions_by_harness", "sessions", ["org_id", "harness_session_id"])
    op.create_index("sessions_by_last_active", "sessions", ["org_id", "last_seen_at", "id"])
    op.create_index("sessions_by_place", "sessions", ["place"], unique=True)
    op.create_index("sessions_by_started", "sessions", ["org_id", "started_at", "id"])
    op.create_index("sessions_by_status", "sessions", ["org_id", "derived_status", "id"])
    op.create_index("sessions_by_subject", "sessions", ["org_id", "auth_subject", "id"])
    op.create_index(
        "sessions_by_tokens", "sessions", ["org_id", sa.text("coalesce(total_tokens, -1)"), "id"]
    )
    op.create_index("sessions_by_turn_count", "sessions", ["org_id", "turn_count", "id"])
    op.create_table(
        "session_parents",
        org(),
        sa.Column("session_id", ID, nullable=False),
        sa.Column("parent_id", ID, nullable=False),
        word("harness_id"),
        word("harness_session_id"),
        count("started_at"),
        sa.PrimaryKeyConstraint("org_id", "session_id", "parent_id"),
    )
    op.create_index("session_parents_by_parent", "session_parents", ["org_id", "parent_id"])
    op.create_table(
        "session_facets",
        org(),
        word("name"),
        word("value"),
        sa.Column("session_id", ID, nullable=False),
        sa.PrimaryKeyConstraint("org_id", "name", "value", "session_id"),
    )
    op.create_index("session_facets_by_session", "session_facets", ["org_id", "session_id"])
    op.create_table(
        "traces",
        org(),
        sa.Column("trace_id", WORD, nullable=False),
        sa.Column("session_id", ID, nullable=False),
        word("user_prompt"),
        word("response_preview"),
        word("synthetic"),
        word("status"),
        word("source"),
        count("started_at"),
        sa.Column("ended_at", sa.BigInteger()),
        sa.Column("duration_ns", sa.BigInteger()),
        sa.Column("total_input_tokens", sa.BigInteger()),
        sa.Column("total_output_tokens", sa.BigInteger()),
        sa.Column("total_tokens", sa.BigInteger()),
        sa.Column("main_input_tokens", sa.BigInteger()),
        sa.Column("main_output_tokens", sa.BigInteger()),
        sa.Column("cache_read_tokens", sa.BigInteger()),
        sa.Column("cache_creation_tokens", sa.BigInteger()),
        sa.Column("reasoning_tokens", sa.BigInteger()),
        sa.Column("total_cost_usd", MONEY),
        sa.Column("saved_cost_usd", MONEY),
        count("unpriced_calls"),
        count("uncounted_calls"),
        count("tool_calls"),
        count("span_count"),
        count("missing_count"),
        word("fidelity"),
        word("content_hash"),
        count("derive_seq"),
        sa.PrimaryKeyConstraint("org_id", "trace_id"),
    )
    op.create_index(
        "traces_by_cost", "traces", ["org_id", sa.text("coalesce(total_cost_usd, -1)"), "trace_id"]
    )
    op.create_index(
        "traces_by_duration", "traces", ["org_id", sa.text("coalesce(duration_ns, -1)"), "trace_id"]
    )
    op.create_index("traces_by_session", "traces", ["org_id", "session_id", "started_at"])
    op.create_index("traces_by_started", "traces", ["org_id", "started_at", "trace_id"])
    op.create_index(
        "traces_by_tokens", "traces", ["org_id", sa.text("coalesce(total_tokens, -1)"), "trace_id"]
    )
    op.create_table(
        "spans",
        sa.Column("place", NUMBER, primary_key=True, autoincrement=False),
        org(),
        sa.Column("trace_id", WORD, nullable=False),
        sa.Column("span_id", WORD, nullable=False),
        word("parent_span_id"),
        sa.Column("session_id", ID, nullable=False),
        word("kind"),
        word("name"),
        word("status"),
        word("error_type"),
        word("call_kind"),
        word("thread_id"),
        word("agent"),
        word("anchor"),
        word("provider"),
        word("model"),
        word("request_model"),
        word("response_id"),
        word("stop_reason"),
        word("outcome"),
        count("started_at"),
        sa.Column("duration_ns", sa.BigInteger()),
        sa.Column("first_chunk_ns", sa.BigInteger()),
        sa.Column("total_tokens", sa.BigInteger()),
        sa.Column("cost_usd", MONEY),
        sa.Column("raw_turn_id", sa.BigInteger()),
        word("request_id"),
        word("node_hash"),
        count("seq"),
        word("fidelity"),
        word("content_hash"),
        count("derive_seq"),
        sa.Column("usage", JSON),
        sa.Column("verdict", JSON),
        sa.Column("input", JSON),
        sa.Column("output", JSON),
    )
    op.create_index("spans_by_change", "spans", ["org_id", "derive_seq"])
    op.create_index("spans_by_id", "spans", ["org_id", "trace_id", "span_id"], unique=True)
    op.create_index("spans_by_name", "spans", ["org_id", "kind", "name", "place"])
    op.create_index(
        "spans_by_response", "spans", ["org_id", "response_id"], **where("response_id != ''")
    )
    op.create_index("spans_by_session", "spans", ["org_id", "session_id"])
    op.create_index("spans_by_span_id", "spans", ["org_id", "span_id"])
    op.create_index("spans_by_time", "spans", ["org_id", "place"])
    op.create_index(
        "spans_not_ok", "spans", ["org_id", "status", "place"], **where("status != 'ok'")
    )
    op.create_table(
        "span_links",
        org(),
        sa.Column("from_trace_id", WORD, nullable=False),
        sa.Column("from_span_id", WORD, nullable=False),
        word("from_io"),
        sa.Column("to_trace_id", WORD, nullable=False),
        sa.Column("to_span_id", WORD, nullable=False),
        word("to_io"),
        word("kind"),
        sa.Column("session_id", ID, nullable=False),
        sa.PrimaryKeyConstraint(
            "org_id",
            "from_trace_id",
            "from_span_id",
            "from_io",
            "to_trace_id",
            "to_span_id",
            "to_io",
        ),
    )
    op.create_index("span_links_by_session", "span_links", ["org_id", "session_id"])
    op.create_index("span_links_by_target", "span_links", ["org_id", "to_trace_id"])
    op.create_table(
        "clocks",
        sa.Column("org_id", ID, primary_key=True),
        count("seq"),
    )
    op.create_table(
        "changes",
        org(),
        sa.Column("session_id", ID, nullable=False),
        count("seq"),
        no("erased"),
        count("at"),
        sa.PrimaryKeyConstraint("org_id", "session_id"),
    )
    op.create_index("changes_by_seq", "changes", ["org_id", "seq"])
    op.create_table(
        "about",
        sa.Column("name", WORD, primary_key=True),
        sa.Column("value", WORD, nullable=False),
    )
    make_word_indexes()
    if op.get_context().dialect.name == "postgresql":
        make_views()


def make_word_indexes() -> None:
    """Terms by the place of their row: FTS5 in SQLite, arrays of lexemes in PostgreSQL."""
    for name in ("span_words", "session_words"):
        if op.get_context().dialect.name == "sqlite":
            op.execute(
                f"CREATE VIRTUAL TABLE {name} USING fts5(prompt, rest, content='',"
                ' detail=column, columnsize=0, tokenize="ascii")'
            )
            continue
        op.create_table(
            name,
            sa.Column("place", sa.BigInteger(), primary_key=True, autoincrement=False),
            org(),
            sa.Column("prompt", postgresql.TSVECTOR(), nullable=False),
            sa.Column("words", postgresql.TSVECTOR(), nullable=False),
        )
        op.create_index(f"{name}_by_place", name, ["org_id", "place"])
        op.create_index(f"{name}_by_prompt", name, ["prompt"], postgresql_using="gin")
        op.create_index(f"{name}_by_word", name, ["words"], postgresql_using="gin")


VIEWS = {
    "sessions": (
        "SELECT s.id, s.org_id, s.auth_subject, s.harness_id, s.harness_session_id, s.name, "
        "s.cwd, s.harness_version, s.parent_session_id, "
        "moment(s.started_at) AS started_at, moment(s.last_seen_at) AS last_seen_at, "
        "moment(s.ended_at) AS ended_at, "
        "s.harness_metadata::jsonb AS harness_metadata, s.total_input_tokens, "
        "s.total_output_tokens, s.total_cost_usd, s.turn_count, s.derived_status, "
        "s.has_git_activity, s.tool_result_count, s.tool_error_count, "
        "s.derived_title, s.derived_model, s.model_usage::jsonb AS model_usage, "
        "s.total_tokens, s.duration_ns, s.tasks::jsonb AS tasks, "
        's.kind_counts::jsonb AS kind_counts, NULL::text COLLATE "C" AS display_name'
        " FROM sessions s"
    ),
    "span_turns": (
        "SELECT t.org_id, t.trace_id, t.session_id, t.user_prompt, t.response_preview, "
        "t.synthetic, t.status, t.source, moment(t.started_at) AS started_at, "
        "moment(t.ended_at) AS ended_at, t.duration_ns, t.total_input_tokens, "
        "t.total_output_tokens, t.main_input_tokens, t.main_output_tokens, "
        "t.cache_read_tokens, t.cache_creation_tokens, t.total_cost_usd, "
        "t.content_hash, t.derive_seq, t.fidelity"
        " FROM traces t"
    ),
    "spans": (
        "SELECT p.org_id, p.trace_id, p.span_id, p.parent_span_id, p.session_id, p.kind, "
        "p.name, p.status, p.call_kind, p.thread_id, p.model, p.stop_reason, "
        "moment(p.started_at) AS started_at, p.duration_ns, p.input::jsonb AS input, "
        "p.output::jsonb AS output, p.usage::jsonb AS usage, p.raw_turn_id, "
        "p.node_hash, p.seq, p.verdict::jsonb AS verdict, p.content_hash, "
        "p.derive_seq, p.fidelity"
        " FROM spans p"
    ),
    "span_links": (
        "SELECT k.org_id, k.from_trace_id, k.from_span_id, k.from_io, k.to_trace_id, "
        "k.to_span_id, k.to_io, k.kind, k.session_id"
        " FROM span_links k"
    ),
}


def make_views() -> None:
    """What SQL readers may rely on: the published names and columns."""
    op.execute("CREATE SCHEMA IF NOT EXISTS tapes_v1")
    op.execute(
        "CREATE FUNCTION tapes_v1.moment(ns bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE"
        " AS $$ SELECT timestamptz 'epoch' + (ns / 1000) * interval '1 microsecond' $$"
    )
    for name, query in VIEWS.items():
        published = query.replace("moment(", "tapes_v1.moment(")
        op.execute(f"CREATE VIEW tapes_v1.{name} AS {published}")
