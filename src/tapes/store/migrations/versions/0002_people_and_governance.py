"""What people add to sessions, erasing, retention, and the audit."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"

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


def upgrade() -> None:
    op.create_table(
        "session_notes",
        org(),
        sa.Column("session_id", ID, nullable=False),
        word("display_name"),
        no("pinned"),
        sa.PrimaryKeyConstraint("org_id", "session_id"),
    )
    op.create_table(
        "session_tags",
        org(),
        sa.Column("session_id", ID, nullable=False),
        word("tag"),
        sa.PrimaryKeyConstraint("org_id", "session_id", "tag"),
    )
    op.create_index("session_tags_by_tag", "session_tags", ["org_id", "tag"])
    op.create_table(
        "session_tapes",
        org(),
        sa.Column("session_id", ID, nullable=False),
        word("path"),
        sa.PrimaryKeyConstraint("org_id", "session_id", "path"),
    )
    op.create_table(
        "erasures",
        numbered(),
        org(),
        count("sessions"),
        count("turns"),
        count("bytes"),
        word("reason"),
        word("by"),
        count("asked_at"),
        sa.Column("done_at", sa.BigInteger()),
        sa.Column("details", JSON),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "tombstones",
        org(),
        sa.Column("session_id", ID, nullable=False),
        count("erased_at"),
        sa.Column("erasure_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("org_id", "session_id"),
    )
    op.create_table(
        "erased_turns",
        org(),
        sa.Column("request_hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("org_id", "request_hash"),
    )
    op.create_table(
        "retention_policies",
        sa.Column("org_id", ID, primary_key=True),
        sa.Column("max_age_ns", sa.BigInteger()),
        sa.Column("max_sessions", sa.BigInteger()),
        sa.Column("max_bytes", sa.BigInteger()),
    )
    op.create_table(
        "audit",
        numbered(),
        org(),
        count("at"),
        word("action"),
        word("by"),
        sa.Column("details", JSON),
        sqlite_autoincrement=True,
    )
    op.create_index("audit_by_org", "audit", ["org_id", "id"])
    if op.get_context().dialect.name == "postgresql":
        show_display_names()


NOBODY = 'NULL::text COLLATE "C"'


def show_display_names() -> None:
    """The names that people give are in the published view of sessions from here on."""
    bind = op.get_bind()
    query = bind.execute(
        sa.text("SELECT pg_get_viewdef('tapes_v1.sessions'::regclass, true)")
    ).scalar_one()
    own = (
        "(SELECT n.display_name FROM session_notes n"
        " WHERE n.org_id = s.org_id AND n.session_id = s.id)"
    )
    op.execute(f"CREATE OR REPLACE VIEW tapes_v1.sessions AS {query.replace(NOBODY, own)}")
