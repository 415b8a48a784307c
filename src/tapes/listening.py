"""An address to listen on, as people write it.

Knows nothing of servers.
"""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from tapes.errors import BadSetting


@dataclass(frozen=True, slots=True)
class Listen:
    """An address to listen on. Port 0 is any free one."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> "Listen":
        """From `host:port`, `[v6]:port`, `:port` or `port`; without a host it is loopback.

        Raises BadSetting.
        """
        host, _, port = text.strip().rpartition(":")
        if not port.isdecimal() or int(port) > 65535:
            raise BadSetting(f"{text!r} is no address to listen on", "for example: 127.0.0.1:8080")
        return cls(host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def is_meant_by(self, url: str) -> bool:
        """Whether a base URL leads to who listens here, as far as its text tells."""
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            return False
        if port != self.port:
            return False
        there = Listen(parts.hostname or "", port)
        everywhere = self.host in ("0.0.0.0", "::")
        return there.host == self.host or (there.is_loopback and (self.is_loopback or everywhere))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
