"""The index of spans has requests, anchors and fidelity too; there are short ones for verdicts, and
for when a session's spans began.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

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
    "request_id",
    "anchor",
    "fidelity",
]
# As in the revision before: what ANALYZE finds in any large log.
TOLD = {
    "spans_by_time": ["1000000", "1000000", "10", *["1"] * (len(LOOKED_AT) - 2)],
    "spans_sampled": ["62500", "62500", *["1"] * (len(LOOKED_AT) - 1)],
    "spans_judged": ["10000", "10000", *["1"] * (len(LOOKED_AT) - 1)],
    "spans_by_session": ["1000000", "1000000", "100", "1"],
}


def upgrade() -> None:
    for name in ("spans_by_time", "spans_sampled", "spans_by_session"):
        op.drop_index(name, "spans")
    op.create_index("spans_by_session", "spans", ["org_id", "session_id", "started_at"])
    op.create_index("spans_by_time", "spans", LOOKED_AT)
    for name, condition in (
        ("spans_sampled", "place & 15 = 0"),
        ("spans_judged", "verdict IS NOT NULL"),
    ):
        where = sa.text(condition)
        op.create_index(name, "spans", LOOKED_AT, sqlite_where=where, postgresql_where=where)
    if op.get_context().dialect.name == "sqlite":
        rows = ", ".join(f"('spans', '{name}', '{' '.join(told)}')" for name, told in TOLD.items())
        op.execute(f"INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES {rows}")
