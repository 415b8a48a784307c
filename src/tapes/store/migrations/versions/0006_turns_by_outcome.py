"""Turns are listed and counted by indexes, not by reading the whole log."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_index("raw_turns_by_org", "raw_turns", ["org_id", "id"])
    op.create_index(
        "raw_turns_by_outcome", "raw_turns", ["org_id", "outcome", "id", "state", "source"]
    )
