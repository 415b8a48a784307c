"""The operator's word on what tools say: prose that changed waits until it is approved.

What a tool says of itself goes into an agent's context, so a service that is taken over could
speak to every agent through it.

Rule 1: the tools that a service has when it is first seen are approved with it. Whatever it adds
        or changes later is held back until the operator approves it.
Rule 2: what is approved is the whole form of a tool as agents see it: its words, its schema and
        its hints.

Knows nothing of files or hosts.  Pure.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tapes.services.spelling import compact
from tapes.services.tools import Tool


def prose_digest(tool: Tool) -> str:
    """The identity of what a tool says of itself."""
    return "sha256:" + hashlib.sha256(compact(tool.form())).hexdigest()


@dataclass(frozen=True, slots=True)
class Pins:
    """The digests of approved tools, by service and full name."""

    approved: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def held(self, service: str, tools: Iterable[Tool]) -> tuple[str, ...]:
        """The tools of a service that wait for the operator's word."""
        known = self.approved.get(service)
        if known is None:
            return ()
        return tuple(t.full_name for t in tools if known.get(t.full_name) != prose_digest(t))

    def approving(self, service: str, tools: Iterable[Tool]) -> "Pins":
        """These, with all tools of a service as they are now."""
        seen = {tool.full_name: prose_digest(tool) for tool in tools}
        return Pins({**self.approved, service: seen})
