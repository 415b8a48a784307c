"""Bodies may be packed in one more way (`CONTINUED`), which an older program cannot read.

No table changes. The number alone does it: a program that does not know this revision refuses the
log as that of a newer version, and does not call its turns damaged.
"""

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Nothing: what lies in the log stays as it is."""
