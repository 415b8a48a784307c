"""What the proxy says of itself, under `/_tapes/`: that it is there, what it did, what it refused.

`ping` is for health checks and needs no token. The others are for whoever may use the proxy.
"""

import json
from collections.abc import Callable
from typing import Any

from tapes.capture.asked import CONTROL, PING
from tapes.capture.bodies import Step
from tapes.capture.desk import Desk
from tapes.capture.http1 import RequestHead
from tapes.capture.refusals import answer, without_body
from tapes.capture.relay import Client
from tapes.capture.watched import LogWatcher
from tapes.tally import tally_of


def report_of(desk: Desk) -> dict[str, Any]:
    """What the proxy did since it began. Reads tapes: not for the loop."""
    watcher = desk.watcher
    return {
        "mode": str(desk.setup.mode),
        "started": desk.started,
        "requests": desk.requests,
        "passed": desk.passed,
        "refused": desk.refused,
        "unanswered": desk.unanswered,
        "tapes": [tally_of(cassette).as_dict() for cassette in desk.setup.shelf],
        "log": dict(watcher.counts()) if isinstance(watcher, LogWatcher) else None,
    }


def misses_of(desk: Desk) -> dict[str, Any]:
    """The latest refusals, each with its diagnosis."""
    names = ("at", "method", "path", "tape", "slug", "message", "remedy")
    misses = [{name: getattr(miss, name) for name in names} for miss in tuple(desk.misses)]
    return {"refused": desk.refused, "misses": misses}


def _ping_of(desk: Desk) -> dict[str, Any]:
    return {"status": "ok", "mode": str(desk.setup.mode)}


_CONTENTS: dict[str, Callable[[Desk], dict[str, Any]]] = {
    PING: _ping_of,
    f"{CONTROL}report": report_of,
    f"{CONTROL}misses": misses_of,
}


class Controlled:
    """A question to the proxy itself, answered from a thread where it takes its time."""

    needs_client = False

    def __init__(self, desk: Desk, client: Client, request: RequestHead) -> None:
        self._desk = desk
        self._client = client
        self._request = request
        self._left = False

    def answer(self, path: str) -> None:
        """Answer, or say which questions there are."""
        content = _CONTENTS.get(path)
        if content is None:
            there = ", ".join(_CONTENTS)
            self._say(
                answer(404, "unknown-path", f"no {path[:200]} here; there are: {there}", None)
            )
        elif path == PING:
            self._tell(_ping_of(self._desk))
        else:
            self._desk.deciders.do(lambda: content(self._desk), self._tell)

    def _tell(self, content: object) -> None:
        if self._left:
            return
        if isinstance(content, BaseException):
            self._say(answer(500, "no-report", str(content), None))
            return
        body = json.dumps(content, default=str).encode()
        head = (
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncache-control: no-store\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self._say(head.encode() + body)

    def _say(self, data: bytes) -> None:
        self._client.write(without_body(data) if self._request.method == b"HEAD" else data)
        self._client.end(keep_alive=True)

    def body(self, step: Step) -> None:
        """The request has ended already."""

    def client_left(self) -> None:
        """The client closed."""
        self._left = True

    def client_is_slow(self, slow: bool) -> None:
        """The answer is short."""
