"""The replay proxy: decide; play, or send on and record; or just pass on.

Rule 1: in replay nothing is sent, whatever the request is. Only a Permit, or the mode `pass`,
        opens an upstream connection.
Rule 2: the upstream gets the client's lines and bytes but for `Host`, hop-by-hop lines and our own
        `x-tapes-…`; the client gets the upstream's.
Rule 3: while recording, the end of an answer is held back until the tape has it: an answer that
        could not be kept is not complete for the client either.
Rule 4: a refusal is an answer (`refusals`); no exception travels through the server.

Knows nothing of sockets: connections are the relay's.
"""

import asyncio
import hashlib
import hmac
import json
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tapes.capture.http1 import BadMessage, ResponseHead, Step
from tapes.capture.refusals import answer, refusal
from tapes.capture.relay import ClientConnection, KnownHead, Origin, Pool, UpstreamConnection
from tapes.capture.replies import Reply, reply_of
from tapes.capture.routes import Route, Routes
from tapes.cassette import Busy, Cassette, Play, Refusal, Verdict
from tapes.errors import BadSetting, CassetteError, TapeFailed, TapesError
from tapes.exchange import Request, State
from tapes.permit import Permit
from tapes.repeats import Order

log = logging.getLogger(__name__)

OWN_PREFIX = b"x-tapes-"
CONTROL = "/_tapes/"
_MEMO_BYTES = 64 * 1024 * 1024
_GROUPS = 1024
# An answer of known length that is not larger is sent once the tape has it, whole.
_HELD_WHOLE = 1024 * 1024


class ProxyMode(StrEnum):
    """What the proxy does: one of the cassette's modes, or pass on without a tape."""

    PASS = "pass"
    REPLAY = "replay"
    RECORD = "record"
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use the proxy. Without a token only names of this machine are listened to."""

    token: str | None = None
    hosts: frozenset[str] = frozenset({"localhost", "127.0.0.1", "[::1]"})

    def why_not(self, host: str, given: str | None, origin: str | None) -> tuple[int, str] | None:
        """Status and reason of a refusal, or None."""
        if self.token is not None:
            if given is None or not hmac.compare_digest(given.encode(), self.token.encode()):
                return 401, "this proxy needs its token: send it as x-tapes-token"
            return None
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if name.lower() not in self.hosts:
            return 421, f"this proxy is not {host}; use the address that it printed"
        if origin is not None:
            return 403, "a web page may not use this proxy"
        return None


@dataclass(slots=True)
class Notes:
    """What a request head means here, found out once for all requests that have it."""

    route: Route | None = None
    problem: bytes | None = None
    control: str | None = None
    lines: bytes = b""
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    cassette: Cassette | None = None
    sample: int | None = None
    group: str | None = None
    # SHA-256 over everything but the body that can change the answer; None where none is reused.
    seed: Any = None


@dataclass(slots=True)
class Proxy:
    """Answers the requests of all client connections."""

    mode: ProxyMode
    routes: Routes
    pool: Pool
    executor: Executor
    cassette: Cassette | None = None
    tapes: dict[str, Cassette] = field(default_factory=dict)
    access: Access = field(default_factory=Access)
    body_limit: int = 256 * 1024 * 1024
    pace: float = 0.0
    known_heads: dict[bytes, KnownHead] = field(default_factory=dict)
    requests: int = 0
    passed: int = 0
    _memo: dict[bytes, tuple[Reply, str, Cassette]] = field(default_factory=dict)
    _memo_bytes: int = 0
    _groups: dict[str, Order] = field(default_factory=dict)

    # --- from the relay

    def whole(self, client: ClientConnection, known: KnownHead, body: bytes) -> "_Turn | None":
        """A request that came in one piece."""
        self.requests += 1
        notes = known.notes or self._note(known)
        assert isinstance(notes, Notes)  # only this class writes notes
        if notes.seed is not None:
            digest = notes.seed.copy()
            digest.update(body)
            found = self._memo.get(digest.digest())
            if found is not None:
                reply, key, cassette = found
                cassette.report.served(key)
                client.write(reply.data)
                client.end(keep_alive=reply.keeps_alive)
                return None
        turn = self._turn(client, known, notes)
        if turn is not None:
            turn.body(Step(body, (body,) if body else (), ended=True))
            return turn
        return None

    def begin(self, client: ClientConnection, known: KnownHead) -> "_Turn | None":
        """A request whose body is still coming."""
        self.requests += 1
        notes = known.notes or self._note(known)
        assert isinstance(notes, Notes)  # only this class writes notes
        return self._turn(client, known, notes)

    def bad(self, client: ClientConnection, error: BadMessage) -> None:
        """Something that is no request."""
        client.write(answer(error.status, "bad-request", str(error), None, close=True))
        client.end(keep_alive=False)

    # --- notes

    def _note(self, known: KnownHead) -> Notes:
        notes = self._read(known)
        known.notes = notes
        return notes

    def _read(self, known: KnownHead) -> Notes:
        request = known.request
        head = request.head
        own = {
            n: head.values(n)[0].decode("latin-1")
            for n, _ in head.lines
            if n.startswith(OWN_PREFIX)
        }
        host = (head.value(b"host") or b"localhost").decode("latin-1")
        origin = head.value(b"origin")
        why = self.access.why_not(
            host, own.get(b"x-tapes-token"), None if origin is None else origin.decode("latin-1")
        )
        if why is not None:
            return Notes(problem=answer(why[0], "not-allowed", why[1], None, close=True))
        target = request.target.decode("latin-1")
        if target.startswith(CONTROL):
            return Notes(control=target.partition("?")[0])
        try:
            route = self.routes.find(target, own.get(b"x-tapes-upstream"))
        except BadSetting as error:
            return Notes(problem=refusal(error, None))
        if request.method == b"CONNECT" or route is None or head.value(b"upgrade") is not None:
            return Notes(problem=_unroutable(request.method, target, self.routes))
        return self._routed(known, own, route)

    def _routed(self, known: KnownHead, own: dict[bytes, str], route: Route) -> Notes:
        head, method = known.request.head, known.request.method
        authority = Origin(route.upstream.host, route.upstream.port, route.upstream.tls).authority
        lines = [
            f"{method.decode()} {route.target} HTTP/1.1".encode("latin-1"),
            f"Host: {authority}".encode(),
        ]
        sent = []
        for line in head.end_to_end():
            name = line.split(b":", 1)[0].lower()
            if name in (b"host", b"expect") or name.startswith(OWN_PREFIX):
                continue
            lines.append(line)
            key, _, value = line.decode("latin-1").partition(":")
            sent.append((key, value.strip(" \t")))
        scheme = "https" if route.upstream.tls else "http"
        notes = Notes(
            route=route,
            lines=b"\r\n".join(lines) + b"\r\n\r\n",
            url=f"{scheme}://{authority}{route.target}",
            headers=tuple(sent),
            cassette=self._cassette_of(own.get(b"x-tapes-tape")),
            group=own.get(b"x-tapes-group"),
        )
        if b"x-tapes-sample" in own:
            text = own[b"x-tapes-sample"]
            if not text.isdigit():
                error = BadSetting(f"x-tapes-sample: {text!r} is not a number from 0 up")
                return Notes(problem=refusal(error, route.dialect))
            notes.sample = int(text)
        if self.mode is not ProxyMode.PASS and notes.cassette is None:
            error = BadSetting(
                f"x-tapes-tape: there is no tape {own.get(b'x-tapes-tape')!r}",
                f"tapes of this proxy: {', '.join(self.tapes) or 'only the default one'}",
            )
            return Notes(problem=refusal(error, route.dialect))
        if self._reuses_answers(notes):
            notes.seed = hashlib.sha256(_seed(known, notes))
        return notes

    def _cassette_of(self, name: str | None) -> Cassette | None:
        return self.cassette if name is None else self.tapes.get(name)

    def _reuses_answers(self, notes: Notes) -> bool:
        return (
            self.mode in (ProxyMode.REPLAY, ProxyMode.RECORD)
            and notes.sample is None
            and notes.group is None
            and not self.pace
        )

    # --- turns

    def _turn(self, client: ClientConnection, known: KnownHead, notes: Notes) -> "_Turn | None":
        if notes.problem is not None:
            client.write(notes.problem)
            client.end(keep_alive=b"connection: close" not in notes.problem)
            return None
        if notes.control is not None:
            client.write(self._control(notes.control))
            client.end(keep_alive=True)
            return None
        if self.mode is ProxyMode.PASS:
            self.passed += 1
            relayed = _Relayed(self, client, known, notes, None)
            relayed.connect()
            return relayed
        return _Gathered(self, client, known, notes)

    def decided(
        self,
        client: ClientConnection,
        known: KnownHead,
        notes: Notes,
        body: bytes,
        turn: "_Gathered",
    ) -> None:
        """A request is whole: find out what is to be done with it, and do it."""
        cassette = notes.cassette
        assert cassette is not None  # `_routed` refuses what has none
        request = Request(known.request.method.decode("latin-1"), notes.url, notes.headers, body)
        try:
            verdict = cassette.decide(request, sample=notes.sample, order=self._order(notes.group))
        except TapesError as error:
            self.refuse(client, error, notes)
            return
        self._carry_out(verdict, client, known, notes, body, turn)

    def _order(self, group: str | None) -> Order | None:
        if group is None:
            return None
        if group not in self._groups and len(self._groups) >= _GROUPS:
            self._groups.pop(next(iter(self._groups)))
        return self._groups.setdefault(group, Order())

    def _carry_out(
        self,
        verdict: Verdict,
        client: ClientConnection,
        known: KnownHead,
        notes: Notes,
        body: bytes,
        turn: "_Gathered",
    ) -> None:
        match verdict:
            case Play(exchange):
                self._play(
                    exchange.key, reply_of(exchange.response, known.request), client, notes, body
                )
            case Permit() as permit:
                relayed = _Relayed(self, client, known, notes, permit)
                turn.becomes(relayed)
                relayed.body(Step(turn.raw, ended=True))
                relayed.connect()
            case Refusal(error):
                self.refuse(client, error, notes)
            case Busy(again, pause):
                asyncio.get_running_loop().call_later(
                    pause, lambda: self._again(again, client, known, notes, body, turn)
                )

    def _again(
        self,
        again: Callable[[], Verdict],
        client: ClientConnection,
        known: KnownHead,
        notes: Notes,
        body: bytes,
        turn: "_Gathered",
    ) -> None:
        if turn.is_left:
            return
        self._carry_out(again(), client, known, notes, body, turn)

    def _play(
        self, key: str, reply: Reply, client: ClientConnection, notes: Notes, body: bytes
    ) -> None:
        if self.pace:
            _Paced(client, reply, self.pace).next()
            return
        if notes.seed is not None and notes.cassette is not None:
            digest = notes.seed.copy()
            digest.update(body)
            if self._memo_bytes > _MEMO_BYTES:
                self._memo.clear()
                self._memo_bytes = 0
            self._memo_bytes += len(reply.data)
            self._memo[digest.digest()] = (reply, key, notes.cassette)
        client.write(reply.data)
        client.end(keep_alive=reply.keeps_alive)

    def refuse(
        self, client: ClientConnection, error: CassetteError | TapesError, notes: Notes
    ) -> None:
        """Answer with a refusal."""
        log.info("refused: %s", error.message)
        client.write(refusal(error, notes.route.dialect if notes.route else None))
        client.end(keep_alive=True)

    # --- control

    def _control(self, path: str) -> bytes:
        reports = [
            c.report.as_dict() for c in (self.cassette, *self.tapes.values()) if c is not None
        ]
        contents: dict[str, object] = {
            f"{CONTROL}ping": {"status": "ok"},
            f"{CONTROL}report": {
                "mode": str(self.mode),
                "requests": self.requests,
                "passed": self.passed,
                "tapes": reports,
            },
        }
        if path not in contents:
            return answer(
                404, "unknown-path", f"no {path} here; there are: {', '.join(contents)}", None
            )
        body = json.dumps(contents[path]).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        return head.encode() + body


def _seed(known: KnownHead, notes: Notes) -> bytes:
    """Everything in a head that can change the answer, and which tape is asked."""
    tape = notes.cassette.tape.path if notes.cassette else ""
    return (
        json.dumps(
            [known.request.method.decode("latin-1"), notes.url, notes.headers, tape]
        ).encode()
        + b"\0"
    )


def _unroutable(method: bytes, target: str, routes: Routes) -> bytes:
    if method == b"CONNECT":
        why = "this is not a tunnel: set the client's base URL to this address instead"
        return answer(501, "no-tunnel", why, None, close=True)
    names = ", ".join(f"/{name}/…" for name in routes.upstreams)
    why = (
        f"nothing says who {method.decode('latin-1')} {target.partition('?')[0]} is for: begin the path"
        f" with the name of an upstream ({names}), or start the proxy with --upstream URL"
    )
    return answer(404, "unknown-path", why, None)


class _Turn:
    """One exchange on a client connection."""

    is_left = False

    def body(self, step: Step) -> None:
        """More of the request's body came."""

    def client_left(self) -> None:
        """The client closed before its answer was complete."""
        self.is_left = True

    def client_is_slow(self, slow: bool) -> None:
        """The client reads slower than it is written to."""


class _Gathered(_Turn):
    """A request that is gathered whole before anything is decided."""

    def __init__(
        self, proxy: Proxy, client: ClientConnection, known: KnownHead, notes: Notes
    ) -> None:
        self._proxy = proxy
        self._client = client
        self._known = known
        self._notes = notes
        self._parts: list[bytes] = []
        self._raw: list[bytes] = []
        self._size = 0
        self.raw = b""
        self._next: _Relayed | None = None

    def becomes(self, relayed: "_Relayed") -> None:
        """From now on another turn answers."""
        self._next = relayed

    def body(self, step: Step) -> None:
        """Gather; decide at the end."""
        self._parts += step.pieces
        if self._known.request.framing.chunked:
            self._raw.append(step.raw)
        self._size += sum(map(len, step.pieces))
        if self._size > self._proxy.body_limit:
            why = f"a request body may have {self._proxy.body_limit} bytes here"
            self._client.write(answer(413, "too-large", why, self._dialect, close=True))
            self._client.end(keep_alive=False)
            return
        if step.ended:
            body = b"".join(self._parts)
            self.raw = b"".join(self._raw) if self._raw else body
            self._proxy.decided(self._client, self._known, self._notes, body, self)

    @property
    def _dialect(self) -> Any:
        return self._notes.route.dialect if self._notes.route else None

    def client_left(self) -> None:
        """The client closed."""
        self.is_left = True
        if self._next is not None:
            self._next.client_left()

    def client_is_slow(self, slow: bool) -> None:
        """The client reads slower than it is written to."""
        if self._next is not None:
            self._next.client_is_slow(slow)


class _Paced(_Turn):
    """A recorded stream, played in time."""

    def __init__(self, client: ClientConnection, reply: Reply, pace: float) -> None:
        self._client = client
        self._reply = reply
        self._pace = pace
        self._at = 0.0
        self._pieces = iter(reply.timed)

    def next(self) -> None:
        """Send the next piece when its time has come."""
        piece = next(self._pieces, None)
        if not self._client.is_open:
            return
        if piece is None:
            self._client.end(keep_alive=self._reply.keeps_alive)
            return
        at, data = piece
        delay, self._at = max(0.0, (at - self._at) * self._pace), max(self._at, at)
        asyncio.get_running_loop().call_later(delay, self._send, data)

    def _send(self, data: bytes) -> None:
        self._client.write(data)
        self.next()


class _Relayed(_Turn):
    """A request that is sent on, and the answer that comes back; with a permit it is recorded."""

    def __init__(
        self,
        proxy: Proxy,
        client: ClientConnection,
        known: KnownHead,
        notes: Notes,
        permit: Permit | None,
    ) -> None:
        self._proxy = proxy
        self._client = client
        self._known = known
        self._notes = notes
        self._permit = permit
        self._upstream: UpstreamConnection | None = None
        self._unsent: list[bytes] = []
        self._held: list[bytes] = []
        self._holds_whole = False
        self._dechunks = False
        self._answered = False
        self._keeps_alive = True

    # --- the request

    def connect(self) -> None:
        """Get a connection to the upstream."""
        assert self._notes.route is not None  # a turn has a route
        upstream = self._notes.route.upstream
        self._proxy.pool.connect(
            Origin(upstream.host, upstream.port, upstream.tls), self._connected
        )

    def _connected(self, connection: UpstreamConnection | Exception) -> None:
        if isinstance(connection, Exception):
            self.failed(connection, answered=False)
            return
        if self.is_left:
            connection.ask(self, b"", b"")
            connection.leave()
            return
        self._upstream = connection
        body, self._unsent = b"".join(self._unsent), []
        connection.ask(self, self._known.request.method, self._notes.lines + body)

    def body(self, step: Step) -> None:
        """Send the body on as it came."""
        if self._upstream is None:
            self._unsent.append(step.raw)
            if sum(map(len, self._unsent)) > _HELD_WHOLE and not step.ended:
                self._client.pause_reading(True)
        else:
            self._upstream.write(step.raw)

    def upstream_is_slow(self, slow: bool) -> None:
        """The upstream takes the body slower than it comes."""
        self._client.pause_reading(slow)

    def client_is_slow(self, slow: bool) -> None:
        """The client takes the answer slower than it comes."""
        if self._upstream is not None:
            self._upstream.pause_reading(slow)

    def client_left(self) -> None:
        """Tell the upstream by closing, and keep what came as evidence."""
        self.is_left = True
        if self._upstream is not None:
            self._upstream.leave()
        permit = self._permit
        if permit is None:
            return
        if self._answered:
            self._in_background(lambda: permit.abandon(State.ABORTED_BY_CLIENT), lambda _: None)
        else:
            permit.failed(we_left=True)

    # --- the answer

    def head(self, head: ResponseHead, raw: bytes) -> None:
        """Pass the head on, and tell the recorder."""
        self._answered = True
        client_is_old = self._known.request.head.is_http_10
        self._dechunks = client_is_old and head.framing.chunked
        self._keeps_alive = not head.framing.until_close and not self._dechunks
        lines = [head.head.start, *head.head.end_to_end()]
        if self._dechunks:
            lines = [line for line in lines if not line.lower().startswith(b"transfer-encoding:")]
        if not self._keeps_alive:
            lines.append(b"Connection: close")
        elif client_is_old and self._known.request.head.keeps_alive:
            lines.append(b"Connection: keep-alive")
        block = b"\r\n".join(lines) + b"\r\n\r\n"
        if self._permit is not None:
            headers = tuple(
                (name, value)
                for name, value in head.head.headers()
                if name.lower() not in ("connection", "keep-alive")
            )
            self._permit.answered(head.status, headers, head.reason.decode("latin-1"))
            length = head.framing.length
            self._holds_whole = length is not None and length <= _HELD_WHOLE
        self._send(block)

    def step(self, step: Step) -> None:
        """Pass a piece on, and tell the recorder."""
        data = b"".join(step.pieces) if self._dechunks else step.raw
        permit = self._permit
        if permit is None:
            if data:
                self._client.write(data)
            if step.ended:
                self._upstream = None
                self._client.end(keep_alive=self._keeps_alive)
            return
        if step.ended:
            self._end_recorded(permit, data, step)
            return
        self._send(data)
        for piece in step.pieces:
            permit.feed(piece)

    def _send(self, data: bytes) -> None:
        if self._holds_whole:
            self._held.append(data)
        elif data:
            self._client.write(data)

    def _end_recorded(self, permit: Permit, data: bytes, step: Step) -> None:
        """Send all but the very end, make the exchange durable, send the end."""
        self._upstream = None
        if not self._holds_whole and data.endswith(_LAST_CHUNK):
            self._send(data[: -len(_LAST_CHUNK)])
            data = _LAST_CHUNK
        self._held.append(data)
        for piece in step.pieces:
            permit.feed(piece)
        self._in_background(permit.finish, self._kept)

    def _kept(self, error: BaseException | None) -> None:
        if self.is_left:
            return
        if error is None:
            self._client.write(b"".join(self._held))
            self._client.end(keep_alive=self._keeps_alive)
            return
        log.error("an answer could not be kept: %s", error)
        if self._holds_whole:
            refused = error if isinstance(error, CassetteError) else TapeFailed(str(error))
            self._proxy.refuse(self._client, refused, self._notes)
        else:
            self._client.abort()

    def failed(self, error: Exception, answered: bool) -> None:
        """The upstream broke off: so does the client's answer."""
        self._upstream = None
        permit = self._permit
        if permit is not None and answered:
            self._in_background(lambda: permit.abandon(State.UPSTREAM_ERROR), lambda _: None)
        elif permit is not None:
            permit.failed(we_left=False)
        if answered and not self._holds_whole:
            self._client.abort()
            return
        assert self._notes.route is not None  # a turn has a route
        upstream = self._notes.route.upstream
        why = f"the upstream {upstream.host}:{upstream.port} gave no answer: {error or type(error).__name__}"
        status = 504 if isinstance(error, TimeoutError) else 502
        self._client.write(
            answer(
                status, "upstream-failed", why, self._notes.route.dialect, close=True, retry=True
            )
        )
        self._client.end(keep_alive=False)

    def _in_background(
        self, work: Callable[[], object], then: Callable[[BaseException | None], None]
    ) -> None:
        """Do what waits for a disk in another thread; `then` runs in the loop."""
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._proxy.executor, _outcome, work)
        future.add_done_callback(lambda done: then(done.result()))


_LAST_CHUNK = b"0\r\n\r\n"


def _outcome(work: Callable[[], object]) -> BaseException | None:
    """What a piece of work raised: a refusal must not travel through the loop as an exception."""
    try:
        work()
    except (CassetteError, Exception) as error:  # noqa: BLE001  # handed on as a value
        return error
    return None
