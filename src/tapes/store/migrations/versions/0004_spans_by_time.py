"""One index of spans has all that lists and histograms look at; it takes the place of three."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

LOOKED_AT = [
    "org_id",
    "started_at",
    "place",
    "kind",
    "name",
    "status",
    "model",
    "request_model",
    "provider",
    "agent",
    "thread_id",
    "call_kind",
    "error_type",
    "outcome",
    "stop_reason",
    "duration_ns",
    "cost_usd",
    "total_tokens",
    "first_chunk_ns",
    "seq",
    "raw_turn_id",
    "session_id",
]


# What ANALYZE finds in any large log, told at once. SQLite itself guesses that a tenant has ten
# rows, and reads a million of them in order of time to find the three that have a word.
TOLD = {
    "spans_by_time": ["1000000", "1000000", "10", *["1"] * (len(LOOKED_AT) - 2)],
    "spans_sampled": ["62500", "62500", *["1"] * (len(LOOKED_AT) - 1)],
    "spans_by_id": ["1000000", "1000000", "50", "1"],
    "spans_by_span_id": ["1000000", "1000000", "1"],
    "spans_by_session": ["1000000", "1000000", "100"],
    "spans_by_change": ["1000000", "1000000", "100"],
    "spans_by_response": ["500000", "500000", "1"],
}


def upgrade() -> None:
    for name in ("spans_by_time", "spans_by_name", "spans_not_ok"):
        op.drop_index(name, "spans")
    op.create_index("spans_by_time", "spans", LOOKED_AT)
    sampled = sa.text("place & 15 = 0")
    op.create_index(
        "spans_sampled", "spans", LOOKED_AT, sqlite_where=sampled, postgresql_where=sampled
    )
    if op.get_context().dialect.name == "sqlite":
        op.execute("ANALYZE spans")  # makes the table for what is told
        op.execute("DELETE FROM sqlite_stat1 WHERE tbl = 'spans'")
        rows = ", ".join(f"('spans', '{name}', '{' '.join(told)}')" for name, told in TOLD.items())
        op.execute(f"INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES {rows}")
