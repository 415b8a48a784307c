"""Turns are counted by an index, not by reading the whole log."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_index("raw_turns_by_state", "raw_turns", ["state", "outcome", "source"])
