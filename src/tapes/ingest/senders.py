"""Who may send, and whose what they send is.

Rule 1: a token of a tenant brings turns to that tenant and to no other. What has the token of all,
        or comes where none is needed, belongs to the tenant that the server names.
Rule 2: where any token is set, nobody is taken in without one.

Knows nothing of HTTP servers.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from tapes.access import Access, NotAllowed, token_hash
from tapes.rows import NO_ORG


@dataclass(frozen=True, slots=True)
class Senders:
    """Decides whose turns come in. `tenants` are tenant by the hash of its token."""

    access: Access = field(default_factory=Access)
    tenants: Mapping[str, str] = field(default_factory=dict)
    org_id: str = NO_ORG  # the tenant of who names none

    def org_of(
        self, *, host: str, token: str | None, origin: str | None, org: str | None
    ) -> str | NotAllowed:
        """The tenant, or why nothing is taken. `org` is the tenant that the sender names."""
        found = self._found(host, token, origin)
        if isinstance(found, str) and org is not None and org.lower() != found:
            return NotAllowed(403, "what this sender may bring does not belong to that tenant")
        return found

    def _found(self, host: str, token: str | None, origin: str | None) -> str | NotAllowed:
        given = "" if token is None else token_hash(token)
        own = [o for hashed, o in self.tenants.items() if hmac.compare_digest(hashed, given)]
        if own:
            return own[0]
        if self.tenants and self.access.token is None:
            return NotAllowed(401, "this server needs the token of a tenant: x-tapes-token")
        return self.access.why_not(host, token, origin) or self.org_id
