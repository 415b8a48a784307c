"""Which hosts may be sources of services, and which addresses may be connected to.

Rule 1: this machine is trusted. Any other host is one that the operator has named: a name, an
        address, or a network.
Rule 2: a name is only as good as what it leads to. `localhost` leads to this machine alone; a
        named host leads to none of the addresses that only this machine or its network means
        (loopback, link-local, unspecified, multicast), unless the operator has named those too.
Rule 3: a host's addresses are found once, and again only when the operator's service could not be
        reached there. What a name means later changes nothing for connections in between; what
        the operator trusts later does.

Knows nothing of URLs, documents or connections.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence

from tapes.errors import BadSetting

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Lookup = Callable[[str], Awaitable[Sequence[str]]]

_LOOKUP_S = 5.0


class Trust:
    """The hosts that the operator trusts beside this machine. Raises BadSetting for others."""

    def __init__(self, named: Iterable[str] = ()) -> None:
        self._names: set[str] = set()
        self._networks: list[_Network] = []
        for text in named:
            self._name(text.strip().lower().removesuffix("."))

    def _name(self, text: str) -> None:
        try:
            self._networks.append(ipaddress.ip_network(text.strip("[]"), strict=False))
        except ValueError:
            if not text or set(text) & set("/:@*? "):
                raise BadSetting(
                    f"{text!r} is neither the name of a host nor an address nor a network",
                    "for example: --cassette-host summary.internal, or 10.1.0.0/16",
                ) from None
            self._names.add(text)

    def fault(self, host: str) -> str | None:
        """Why a host may not be a source, or None."""
        address = address_of(host)
        if address is None:
            if is_local_name(host) or host.lower().removesuffix(".") in self._names:
                return None
        elif address.is_loopback or self._has(address):
            return None
        return f"{host} is not this machine, and not among the hosts that are trusted"

    def allows(self, host: str, address: str) -> bool:
        """Whether a host may lead to an address (rule 2)."""
        found = address_of(address)
        if found is None:
            return False
        if self._has(found):
            return True
        if is_local_name(host) or address_of(host) is not None:
            return found.is_loopback
        return not (
            found.is_loopback
            or found.is_link_local
            or found.is_unspecified
            or found.is_multicast
            or found.is_reserved
        )

    def _has(self, address: _Address) -> bool:
        return any(address in network for network in self._networks)


def is_local_name(host: str) -> bool:
    """Whether a name means this machine by definition."""
    name = host.lower().removesuffix(".")
    return name == "localhost" or name.endswith(".localhost")


def address_of(text: str) -> _Address | None:
    """The address that a text is, as the one that is meant by it, or None for a name."""
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


async def system_lookup(host: str) -> Sequence[str]:
    """The addresses that the system knows of a host."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


class Addresses:
    """The addresses of hosts, found once and judged. It is the gate of all connections."""

    def __init__(self, trust: Trust, lookup: Lookup = system_lookup) -> None:
        self.trust = trust
        self._lookup = lookup
        self._found: dict[str, tuple[str, ...]] = {}
        self._allowed: dict[str, int] = {}

    def addresses(self, host: str) -> Sequence[str]:
        """The addresses of a host that were found before."""
        return self._found.get(host.lower(), ())

    def allows(self, address: str) -> bool:
        """Whether a host that may be connected to leads to this address."""
        return address in self._allowed

    def knows(self, host: str) -> bool:
        """Whether addresses were found."""
        return bool(self._found.get(host.strip("[]").lower()))

    async def find(self, host: str) -> str | None:
        """Find a host's addresses, anew where they are known; why there are none, or None."""
        host = host.strip("[]").lower()
        if address_of(host) is not None:
            found: Sequence[str] = [host]
        else:
            try:
                async with asyncio.timeout(_LOOKUP_S):
                    found = await self._lookup(host)
            except (OSError, TimeoutError, UnicodeError) as error:
                why = getattr(error, "strerror", None) or str(error) or "the lookup took too long"
                return f"{host} has no address: {why}"
        allowed = tuple(address for address in found if self.trust.allows(host, address))
        if not allowed:
            self.forget(host)
            what = ", ".join(found[:3]) or "nothing"
            return f"{host} leads to {what}, which may not be connected to"
        self._replace(host, allowed)
        return None

    def judge_by(self, trust: Trust) -> None:
        """Judge by what is trusted now; what was found, too. Whom it refuses is forgotten."""
        self.trust = trust
        for host, addresses in list(self._found.items()):
            is_trusted = trust.fault(host) is None
            allowed = (a for a in addresses if is_trusted and trust.allows(host, a))
            self._replace(host, tuple(allowed))

    def forget(self, host: str) -> None:
        """Connect to a host no more."""
        self._replace(host.strip("[]").lower(), ())

    def _replace(self, host: str, addresses: tuple[str, ...]) -> None:
        for old in self._found.pop(host, ()):
            self._allowed[old] -= 1
            if not self._allowed[old]:
                del self._allowed[old]
        if addresses:
            self._found[host] = addresses
            for new in addresses:
                self._allowed[new] = self._allowed.get(new, 0) + 1
