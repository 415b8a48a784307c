"""A trace has the name that its sender gives it."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("traces", sa.Column("name", _WORD, nullable=False, server_default=""))
