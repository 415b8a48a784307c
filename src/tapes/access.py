"""Who may use a server of ours.

Rule 1: beyond loopback nobody is answered without the token. It comes in `x-tapes-token` or, for
        clients that can only set a base URL, as the first segment of the path: `/~TOKEN/…`.
Rule 2: without a token only names of this machine are listened to, and no web page (`Origin`): a
        page that made a name of its own lead to this machine could otherwise read the answers.
Rule 3: only the token's SHA-256 is kept, and compared in constant time. It is random and long, so
        a plain hash gives nothing away.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from tapes.credentials import fits_a_header
from tapes.errors import BadSetting

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


def new_token() -> str:
    """A token that nobody can guess, made of characters that need no escape in a URL."""
    return secrets.token_urlsafe(24)


def token_hash(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def token_in(environ: Mapping[str, str], *names: str) -> str | None:
    """What to send as a token: of these variables the first that is set. Raises BadSetting."""
    name = next((name for name in names if environ.get(name)), None)
    if name is None:
        return None
    if not fits_a_header(environ[name]):
        raise BadSetting(
            f"{name} has a character that no header can have: the end of a line, say",
            "set it to the token alone",
        )
    return environ[name]


@dataclass(frozen=True, slots=True)
class NotAllowed:
    """Why somebody gets no answer."""

    status: int
    why: str


@dataclass(frozen=True, slots=True)
class Access:
    """Decides who gets an answer. `token` is the hash of the token, where one is needed."""

    token: str | None = None
    hosts: frozenset[str] = LOOPBACK_NAMES

    def why_not(self, host: str, token: str | None, origin: str | None) -> NotAllowed | None:
        """The reason to answer nothing, or None."""
        if self.token is not None:
            if token is not None and hmac.compare_digest(token_hash(token), self.token):
                return None
            return NotAllowed(
                401,
                "this server needs its token: send it as the header x-tapes-token, or put /~TOKEN"
                " in front of the path of the base URL",
            )
        if name_of(host) not in self.hosts:
            return NotAllowed(
                421, f"this server is not {host[:100]}; use the address that it printed"
            )
        if origin is not None:
            return NotAllowed(403, "a web page may not use this server")
        return None


def name_of(host: str) -> str:
    """The name in a `Host` header, without its port, in lower case."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()
