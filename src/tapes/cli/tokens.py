"""Tokens of servers: made once, shown once, kept as a hash that only their owner reads."""

import os
from pathlib import Path

from tapes.access import new_token, token_hash
from tapes.tape.beside import make_local


def new_here(file: Path) -> str:
    """Make a token and keep its hash in a file that only its owner reads."""
    token = new_token()
    make_local(file.parent)
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as out:
        out.write(f"{token_hash(token)}\n")
    return token
