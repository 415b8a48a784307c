"""Tokens of servers: made once, shown once, kept as a hash that only their owner reads."""

import os
import re
from pathlib import Path

from tapes.access import new_token, token_hash
from tapes.errors import BadSetting, as_typed
from tapes.tape.beside import make_local

_HASH = re.compile(r"[0-9a-f]{64}")


def new_here(file: Path) -> str:
    """Make a token and keep its hash in a file that only its owner reads. Raises BadSetting."""
    token = new_token()
    try:
        make_local(file.parent)
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as out:
            os.fchmod(fd, 0o600)  # it may have been there before
            out.write(f"{token_hash(token)}\n")
    except OSError as error:
        raise BadSetting(
            f"no token can be kept in {file}: {error.strerror}",
            f"see who may write there: ls -ld {as_typed(file.parent)} {as_typed(file)}",
        ) from error
    return token


def kept_in(file: Path) -> str | None:
    """The hash that a file keeps; None where there is no such file. Raises BadSetting."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise BadSetting(
            f"the token in {file} cannot be read: {why}", f"look at it: ls -l {as_typed(file)}"
        ) from error
    if not _HASH.fullmatch(text):
        raise BadSetting(
            f"{file} keeps no token",
            f"a new one is made where it is not there: rm {as_typed(file)}",
        )
    return text
