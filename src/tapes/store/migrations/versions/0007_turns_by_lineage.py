"""A turn that names its session stands in one index less."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_UNNAMED = sa.text("session_id IS NULL")


def upgrade() -> None:
    op.drop_index("raw_turns_by_session", "raw_turns")
    op.create_index("raw_turns_by_session", "raw_turns", ["org_id", "session_id", "id", "lineage"])
    op.drop_index("raw_turns_by_lineage", "raw_turns")
    op.create_index(
        "raw_turns_by_lineage",
        "raw_turns",
        ["org_id", "lineage", "id"],
        sqlite_where=_UNNAMED,
        postgresql_where=_UNNAMED,
    )
