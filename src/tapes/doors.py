"""Which of the servers a request is for: what comes to the wrong one is told the right address.

Rule 1: a request at the wrong door is refused, never accepted and lost.

Knows nothing of servers.  Pure.
"""

import re
from collections.abc import Mapping
from enum import StrEnum


class Door(StrEnum):
    """A server of ours, by what it does."""

    PROXY = "proxy"
    API = "api"
    INGEST = "ingest"


WHAT: Mapping[Door, str] = {
    Door.PROXY: "the proxy, for model calls",
    Door.API: "the read API",
    Door.INGEST: "the ingest, for finished turns, transcripts and OpenTelemetry",
}
USUAL: Mapping[Door, str] = {
    Door.PROXY: "http://127.0.0.1:8080",
    Door.API: "http://127.0.0.1:8081",
    Door.INGEST: "http://127.0.0.1:8082",
}

# Of each path the first rule that fits holds. Methods: "" is any.
_RULES: tuple[tuple[Door, str, re.Pattern[str]], ...] = (
    (Door.INGEST, "", re.compile(r"/v1/ingest(/.*)?")),
    (Door.INGEST, "POST", re.compile(r"/v1/(traces|logs|metrics)/?")),  # OTLP over HTTP
    (Door.API, "", re.compile(r"/v1/(sessions|traces|spans|turns|stats|search|find)(/.*)?")),
    (
        Door.API,
        "",
        re.compile(
            r"/v1/(changes|facets|fields|histogram|tapes|misses|cassettes|mcp|admin|audit"
            r"|erasures|retention|status|export)(/.*)?"
        ),
    ),
    (
        Door.PROXY,
        "POST",
        re.compile(
            r"(/[^/]+)?/(v1/(messages|chat/completions|responses|completions|embeddings)"
            r"|chat/completions|api/(chat|generate)|v1(beta)?/models/.+:\w+)(/.*)?"
        ),
    ),
    (Door.PROXY, "", re.compile(r"/(openai|anthropic|gemini|ollama)(/.*)?")),
)


def door_of(method: str, path: str) -> Door | None:
    """The server that a request is for; None where nothing says so."""
    for door, wanted, pattern in _RULES:
        if wanted in ("", method) and pattern.fullmatch(path):
            return door
    return None


def misdirected(
    here: Door, method: str, path: str, addresses: Mapping[Door, str] = USUAL
) -> str | None:
    """What to tell a request that is for another server than this one; None if it is for none."""
    door = door_of(method, path)
    if door is None or door is here:
        return None
    address = addresses.get(door, USUAL[door])
    return f"this is {WHAT[here]}; {method} {path[:200]} is for {WHAT[door]}: {address}{path[:200]}"
