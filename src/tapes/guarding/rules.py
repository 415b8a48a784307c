"""Where a call below the client libraries wants to go, and whether that is on this machine.

Rule 1: the audit events of `socket` say where; what is no internet address stays open.
Rule 2: loopback in all its spellings, this machine's own name and the unspecified address are here.
Rule 3: an address as text asks nobody when it is looked up; connecting to it does.

Knows nothing of cassettes.  Stand-alone: see the folder's docstring.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import NamedTuple

_TO_ADDRESS = ("socket.connect", "socket.sendto", "socket.sendmsg")
_TO_NAME = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")
EVENTS = frozenset((*_TO_ADDRESS, *_TO_NAME, "socket.getnameinfo"))
_HERE = frozenset(("", "localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"))


class Destination(NamedTuple):
    """A host and, where one is said, a port."""

    host: str
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


def destination(host: object, port: object = None) -> Destination:
    """A destination as clients spell it: text or bytes, brackets, zones, services by number."""
    name = host.decode("latin-1") if isinstance(host, bytes) else str(host or "")
    name = name.strip("[]").partition("%")[0].rstrip(".").lower()
    try:
        number = int(port) if isinstance(port, (int, str, bytes)) else None
    except ValueError:
        number = None
    return Destination(name, number)


def destination_of(event: str, arguments: tuple[object, ...]) -> Destination | None:
    """Where an audit event leads, or None where it leads off this machine in no case."""
    if event in _TO_ADDRESS:
        sock, address = arguments[0], arguments[1]
        family = getattr(sock, "family", None)
        if family not in (socket.AF_INET, socket.AF_INET6):
            return None
        return _of_address(address)
    if event == "socket.getnameinfo":
        return _of_address(arguments[0])
    found = destination(arguments[0], arguments[1] if event == "socket.getaddrinfo" else None)
    return None if event == "socket.getaddrinfo" and is_address(found.host) else found


def _of_address(address: object) -> Destination | None:
    if isinstance(address, tuple) and address:
        return destination(*address[:2])
    return None if address is None else destination(address)


def is_here(host: str) -> bool:
    """Whether a host is this machine."""
    if host in _HERE or host.endswith(".localhost") or host == socket.gethostname().lower():
        return True
    address = _as_address(host)
    if address is None:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped.is_loopback or mapped.is_unspecified


def is_address(host: str) -> bool:
    """Whether a host is an address as text, which nobody has to be asked about."""
    return _as_address(host) is not None


def _as_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))  # "127.1" and its like
        except (OSError, ValueError):
            return None


class Allowed:
    """Hosts that may be reached: `host`, or `host:port`, and the addresses of those names.

    Raises ValueError for an entry that is neither.
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self.entries = tuple(entries)
        self._wanted = {_entry(entry) for entry in self.entries}

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def covers(self, wanted: Destination) -> bool:
        """Whether a destination is on the list. A name that is being looked up has no port yet."""
        host, port = wanted
        return (
            (host, None) in self._wanted
            or (host, port) in self._wanted
            or (port is None and any(host == name for name, _ in self._wanted))
        )

    def learn(self, wanted: Destination) -> None:
        """Look an allowed name up, and allow its addresses under the same ports."""
        if is_address(wanted.host):
            return
        ports = {port for name, port in self._wanted if name == wanted.host}
        try:
            found = socket.getaddrinfo(wanted.host, None)
        except OSError:
            return  # whoever asked will be told the same
        addresses = {destination(entry[4][0]).host for entry in found}
        self._wanted |= {(address, port) for address in addresses for port in ports}


def _entry(text: str) -> tuple[str, int | None]:
    if "/" in text or not text.strip():
        raise ValueError(f"{text!r} is not a host or host:port")
    if text.count(":") > 1 and not text.startswith("["):
        return destination(text)
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        return destination(text)
    if not port.isdigit():
        raise ValueError(f"{text!r} is not a host or host:port")
    return destination(host, port)
