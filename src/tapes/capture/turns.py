"""Requests that are answered from a tape: gathered whole, decided, played; or refused.

Rule 1: a request is decided when all of it has come. A small one that a local tape can answer is
        decided on the loop, everything that may take its time in a thread.
Rule 2: whoever asks for what is already being asked waits for its answer: woken when the call
        ends here, looking again in growing steps where another process makes it.
Rule 3: a permit that comes too late, for a client that has left, is given back unused.
Rule 4: a refusal is an answer; no exception travels through the server.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from uuid import uuid4

from tapes.capture.asked import RAISE_LIMIT, Asked, ProxyMode
from tapes.capture.bodies import Step
from tapes.capture.desk import Desk
from tapes.capture.memo import Given
from tapes.capture.refusals import answer, closes, refusal, told, without_body
from tapes.capture.relay import Client
from tapes.capture.relayed import Relayed
from tapes.capture.replies import Reply, reply_of
from tapes.capture.watching import Outcome, Watch
from tapes.capture.workers import log_failure
from tapes.cassette import Busy, Cassette, Play, Refusal, Verdict
from tapes.errors import CassetteError, TapeFailed, TapesError
from tapes.exchange import Exchange, Request, State
from tapes.permit import Permit, is_passing

log = logging.getLogger(__name__)

# A request of this size is parsed faster than it is handed to a thread.
_SMALL = 32 * 1024
# One of this size is hashed faster than it is parsed, and is remembered.
_REMEMBERED = 256 * 1024
# A chunked body may take so many times its limit with its framing: chunks of one byte take six.
_FRAMED = 8
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.25


class Gathered:
    """A request that is answered or sent on when it is whole."""

    needs_client = False

    def __init__(self, desk: Desk, client: Client, asked: Asked, cassette: Cassette) -> None:
        self._desk = desk
        self._client = client
        self._asked = asked
        self._cassette = cassette
        self._body = bytearray()
        self._raw = bytearray()
        self._request: Request | None = None
        self._digest: bytes | None = None
        self._stamp: object = None
        self._pause = _FIRST_PAUSE_S
        self._timer: asyncio.TimerHandle | None = None
        self._take_back: Callable[[], None] | None = None
        self._left = False

    # --- the request

    def body(self, step: Step) -> None:
        """More of the body came. Decides when it is whole."""
        for piece in step.pieces:
            self._body += piece
        if self._asked.request.framing.chunked:
            self._raw += step.raw
        limit = self._desk.setup.body_limit
        if len(self._body) > limit or len(self._raw) > _FRAMED * limit:
            self.too_large()
        elif step.ended:
            body = bytes(self._body)
            self._body.clear()
            digest = digest_of(self._asked, body, self._desk)
            if not give_again(self._desk, self._client, digest):
                self.decide(body, digest)

    def too_large(self) -> None:
        """Answer a body that is larger than the limit."""
        self._body.clear()
        self._raw.clear()
        limit = self._desk.setup.body_limit
        error = TapesError(f"a request body may have {limit} bytes here", RAISE_LIMIT)
        self._desk.refuse(self._asked.request, self._asked, error)
        why = told(error.message, error.remedy, self._desk.more())
        say(
            self._client,
            self._asked,
            answer(413, "too-large", why, self._asked.dialect, close=True),
        )

    def client_left(self) -> None:
        """The client closed."""
        self._left = True
        self._wait_no_more()

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._take_back is not None:
            self._take_back()
            self._take_back = None

    def client_is_slow(self, slow: bool) -> None:
        """Nothing has been sent to it yet."""

    # --- the decision

    def decide(self, body: bytes, digest: bytes | None) -> None:
        """Decide on a request that is whole, with the digest under which to remember it."""
        asked = self._asked
        self._digest = digest
        if digest is not None:
            self._stamp = self._desk.memo.stamp(self._cassette)
        self._request = Request(asked.request.method.decode(), asked.url, asked.headers, body)
        if self._is_quick(body):
            verdict = _attempt(partial(self._quick_verdict, self._request))
            if verdict is not None:
                self._carry_out(verdict)
                return
        self._ask(partial(self._verdict, self._request))

    def _is_quick(self, body: bytes) -> bool:
        return (
            len(body) <= _SMALL
            and self._asked.sample is None
            and self._asked.group is None
            and self._cassette.answers_at_once
        )

    def _quick_verdict(self, request: Request) -> Verdict | None:
        """The verdict where it costs no waiting: a hit, or in record mode whatever it is."""
        if self._desk.setup.mode is ProxyMode.REPLAY or self._cassette.counts_calls:
            return self._cassette.hit(request)
        return self._verdict(request)

    def _verdict(self, request: Request) -> Verdict:
        asked = self._asked
        return self._cassette.decide(
            request, sample=asked.sample, order=self._desk.order(asked), owner=self
        )

    def _ask(self, question: Callable[[], Verdict]) -> None:
        self._desk.deciders.do(question, self._carry_out)

    def _carry_out(self, verdict: Verdict | CassetteError | Exception) -> None:
        if self._left:
            if isinstance(verdict, Permit):
                self._desk.keepers.do(partial(verdict.failed, we_left=False), _note_failure)
                self._desk.landed(self._cassette, verdict.key)
            return
        match verdict:
            case Play(exchange):
                self._play(exchange)
            case Permit() as permit:
                self._send_on(permit)
            case Refusal(error):
                self.refuse(error)
            case Busy() as busy:
                self._wait(busy)
            case CassetteError() | TapesError() as error:
                self.refuse(error)
            case Exception() as error:
                log_failure(log, "a request could not be decided", error)
                self.refuse(TapeFailed(f"the request could not be decided: {type(error).__name__}"))

    def _wait(self, busy: Busy) -> None:
        woken = False

        def again() -> None:
            nonlocal woken
            if not woken and not self._left:
                woken = True
                self._wait_no_more()
                self._ask(busy.again)

        self._take_back = self._desk.wait_for(self._cassette, busy.key, again)
        self._timer = asyncio.get_running_loop().call_later(self._pause, again)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)

    # --- the answer

    def _send_on(self, permit: Permit) -> None:
        if self._request is None:
            return
        watch = self._desk.watch(self._asked, self._client.peer, Outcome.LIVE, permit.key)
        relayed = Relayed(self._desk, self._client, self._asked, permit, watch)
        raw = bytes(self._raw) if self._raw else self._request.body
        self._client.answered_by(relayed)
        relayed.send(raw, self._request.body)

    def _play(self, exchange: Exchange) -> None:
        asked = self._asked
        reply = reply_of(exchange.response, asked.request)
        watch = self._desk.watch(asked, self._client.peer, Outcome.REPLAYED, exchange.key)
        if watch is not None and self._request is not None:
            watch_played(watch, self._request.body, exchange)
        if asked.pace:
            paced = Paced(self._client, reply, asked.pace)
            self._client.answered_by(paced)
            paced.next()
            return
        data = reply.data
        if self._digest is not None and not is_passing(exchange.response):
            given = Given(data, reply.keeps_alive, exchange.key, self._cassette, self._stamp)
            self._desk.memo.add(self._digest, given)
        self._client.write(data)
        self._client.end(keep_alive=reply.keeps_alive)

    def refuse(self, error: CassetteError | TapesError) -> None:
        """Answer with a refusal."""
        asked = self._asked
        self._desk.refuse(asked.request, asked, error)
        call = str(uuid4())
        why, peer = error.slug, self._client.peer
        watch = self._desk.watch(asked, peer, Outcome.REFUSED, call=call, refused=why)
        if watch is not None:
            if self._request is not None:
                watch.request_piece(self._request.body)
            watch.end(State.COMPLETE)
        more = self._desk.more("" if watch is None else call)
        say(self._client, asked, refusal(error, asked.dialect, more))


def digest_of(asked: Asked, body: bytes, desk: Desk) -> bytes | None:
    """What tells a request from all others; None where its answer is not remembered."""
    if asked.seed is None or len(body) > _REMEMBERED or desk.watcher is not None:
        return None
    digest = asked.seed.copy()
    digest.update(body)
    value: bytes = digest.digest()
    return value


def give_again(desk: Desk, client: Client, digest: bytes | None) -> bool:
    """Answer as before, if the request came before and its tape is what it was."""
    given = None if digest is None else desk.memo.find(digest)
    if given is None:
        return False
    given.cassette.report.served(given.key)
    client.write(given.data)
    client.end(keep_alive=given.keeps_alive)
    return True


def say(client: Client, asked: Asked, data: bytes) -> None:
    """Send an answer of our own."""
    client.write(without_body(data) if asked.request.method == b"HEAD" else data)
    client.end(keep_alive=not closes(data))


def watch_played(watch: Watch, body: bytes, exchange: Exchange) -> None:
    """Show an answer from a tape to a watcher."""
    response = exchange.response
    if body:
        watch.request_piece(body)
    watch.head(response.status, response.reason, response.headers)
    for piece in response.pieces:
        watch.piece(piece.data)
    watch.end(State.COMPLETE)


def _note_failure(result: object) -> None:
    """What a piece of work that nobody waits for came to."""
    if isinstance(result, BaseException):
        log_failure(log, "what was cut off could not be kept", result)


def _attempt(question: Callable[[], Verdict | None]) -> Verdict | CassetteError | Exception | None:
    try:
        return question()
    except (CassetteError, Exception) as error:  # noqa: BLE001  # handed on as a value
        return error


class Paced:
    """A recorded answer, played in time."""

    needs_client = False

    def __init__(self, client: Client, reply: Reply, pace: float) -> None:
        self._client = client
        self._reply = reply
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None

    def body(self, step: Step) -> None:
        """The request has ended already."""

    def client_left(self) -> None:
        """The client closed."""
        if self._timer is not None:
            self._timer.cancel()

    def client_is_slow(self, slow: bool) -> None:
        """Wait for it."""
        if self._timer is not None:
            self._timer.cancel()
        if not slow:
            self.next()

    def next(self) -> None:
        """Send every piece whose time has come, and wait for the next."""
        pieces = self._reply.timed
        while self._number < len(pieces):
            at, data = pieces[self._number]
            due = self._begun + at * self._pace
            if due > self._loop.time():
                self._timer = self._loop.call_at(due, self.next)
                return
            self._number += 1
            self._client.write(data)
            if self._client.is_slow:
                return
        self._client.end(keep_alive=self._reply.keeps_alive)
