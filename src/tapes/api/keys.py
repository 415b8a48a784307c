"""Who may read, and who may change: tokens, each with its right and its tenant.

Rule 1: where no token is set, only names of this machine are listened to, and no web page but our
        own; whoever is let in may do everything. Where one is set, nobody is answered without one.
Rule 2: reading needs any token, everything that is not reading the one for administration.
Rule 3: a token of a tenant opens that tenant and no other. Only who may do everything may choose.
Rule 4: only hashes of tokens are kept, and compared in constant time.

Knows nothing of HTTP servers.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from uuid import UUID

from tapes.access import LOOPBACK_NAMES, Access, NotAllowed, token_hash
from tapes.rows import NO_ORG


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who was let in: how the audit calls them, whose rows they see, what they may.

    A `guest` has the token of a tenant: nothing of others is theirs to know, the server's neither.
    """

    name: str
    org_id: str
    may_change: bool
    guest: bool = False


@dataclass(frozen=True, slots=True)
class Keys:
    """Decides who is let in. All tokens by their hashes; `tenants` are tenant by hash."""

    read: str | None = None
    admin: str | None = None
    tenants: Mapping[str, str] = field(default_factory=dict)
    org_id: str = NO_ORG  # the tenant of who names none
    hosts: frozenset[str] = LOOPBACK_NAMES

    @property
    def are_set(self) -> bool:
        """Whether a token is needed."""
        return bool(self.hashes)

    @property
    def hashes(self) -> frozenset[str]:
        """The hashes of all tokens that open something: nobody further in needs to see these."""
        return frozenset(hashed for hashed in (self.read, self.admin, *self.tenants) if hashed)

    def caller(
        self, *, host: str, origin: str | None, token: str | None, org: str | None
    ) -> Caller | NotAllowed:
        """Who it is, or why they get no answer."""
        if not self.are_set:
            if origin is not None and urlsplit(origin).netloc.lower() == host.lower():
                origin = None  # our own page
            why = Access(None, self.hosts).why_not(host, None, origin)
            return why or self._chosen("this machine", org)
        given = "" if token is None else token_hash(token)
        if self._is(self.admin, given):
            return self._chosen("the admin token", org)
        own = [tenant for hashed, tenant in self.tenants.items() if self._is(hashed, given)]
        if own:
            return self._only(Caller("the token of a tenant", own[0], False, guest=True), org)
        if self._is(self.read, given):
            return self._only(Caller("the read token", self.org_id, False), org)
        return NotAllowed(
            401, "this server needs a token: send it as Authorization: Bearer … or x-tapes-token"
        )

    def _is(self, hashed: str | None, given: str) -> bool:
        return hashed is not None and hmac.compare_digest(hashed, given)

    def _chosen(self, name: str, org: str | None) -> Caller | NotAllowed:
        if org is None:
            return Caller(name, self.org_id, True)
        try:
            return Caller(name, str(UUID(org)), True)
        except ValueError:
            return NotAllowed(400, f"x-tapes-org is no UUID: {org[:60]}")

    def _only(self, caller: Caller, org: str | None) -> Caller | NotAllowed:
        if org is not None and org.lower() != caller.org_id:
            return NotAllowed(403, "this token does not open that tenant")
        return caller
