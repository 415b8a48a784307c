"""A request that is sent on, and the answer that comes back; with a permit it is recorded.

Rule 1: what comes goes on at once, chunk by chunk and byte by byte, before it is looked at.
Rule 2: while recording, the end of an answer is held back until the tape has it: an answer that
        could not be kept is not complete for the client either. A small answer of known length is
        held back whole, so that a refusal can take its place.
Rule 3: a permit ends exactly once: with the end of the answer, or where it was cut short by the
        client or the upstream. What ended it first decides.
Rule 4: an answer that takes more than the limit is not recorded: its client is broken off and the
        refusal is listed, so that an answer without end does not fill the memory.
Rule 5: when the client leaves, the upstream's connection is closed at once; when the upstream
        breaks off, so does the client's answer.
"""

import logging
from collections.abc import Callable
from functools import partial

from tapes.capture.asked import RAISE_LIMIT, Asked
from tapes.capture.bodies import Step
from tapes.capture.desk import Desk
from tapes.capture.http1 import BadMessage, ResponseHead
from tapes.capture.refusals import answer, refusal, without_body
from tapes.capture.relay import Client
from tapes.capture.upstream import UpstreamConnection
from tapes.capture.watching import Watch
from tapes.capture.workers import log_failure
from tapes.errors import CassetteError, TapeFailed
from tapes.exchange import OF_A_PIECE, State
from tapes.permit import Permit, Unstored

log = logging.getLogger(__name__)

# An answer of known length that is not larger is held back whole (rule 2).
_HELD_WHOLE = 1024 * 1024
# As much of a request waits here for its connection; then the client waits.
_UNSENT = 1024 * 1024
_LAST_CHUNK = b"0\r\n\r\n"


class Relayed:
    """See above. It is the client's turn and the upstream's asker."""

    needs_client = True

    def __init__(
        self, desk: Desk, client: Client, asked: Asked, permit: Permit | None, watch: Watch | None
    ) -> None:
        self._desk = desk
        self._client = client
        self._asked = asked
        self._permit = permit
        self._watch = watch
        self._upstream: UpstreamConnection | None = None
        self._take_back: Callable[[], object] | None = None
        self._unsent: list[bytes] = []
        self._unsent_size = 0
        self._request_ended = False
        self._sent = False
        self._left = False
        # The answer
        self._head: ResponseHead | None = None
        self._held: list[bytes] = []
        self._size = 0
        self._holds_whole = False
        self._dechunks = False
        self._keeps_alive = True

    # --- the request

    def send(self, raw: bytes, body: bytes) -> None:
        """Send on a request that is whole."""
        self._request_ended = True
        if raw:
            self._unsent.append(raw)
        if self._watch is not None and body:
            self._watch.request_piece(body)
        self.connect()

    def connect(self) -> None:
        """Get a connection to the upstream."""
        self._take_back = self._desk.pool.connect(self._asked.origin, self)

    def connected(self, connection: UpstreamConnection) -> None:
        """Here is the connection."""
        if self._left:
            connection.close()
            return
        self._upstream, self._sent = connection, True
        self._client.pause_reading(False)
        lines = self._asked.lines
        data = b"".join((lines, *self._unsent)) if self._unsent else lines
        self._unsent.clear()
        connection.ask(self, self._asked.request.method, data, whole=self._request_ended)

    def body(self, step: Step) -> None:
        """More of the body came (rule 1)."""
        self._request_ended = step.ended
        if self._upstream is not None:
            self._upstream.write(step.raw, ended=step.ended)
        else:
            self._unsent.append(step.raw)
            self._unsent_size += len(step.raw)
            if self._unsent_size > _UNSENT:
                self._client.pause_reading(True)
        if self._watch is not None:
            for piece in step.pieces:
                self._watch.request_piece(piece)

    def upstream_is_slow(self, slow: bool) -> None:
        """The upstream takes the body slower than it comes."""
        self._client.pause_reading(slow)

    def client_is_slow(self, slow: bool) -> None:
        """The client takes the answer slower than it comes."""
        if self._upstream is not None:
            self._upstream.pause_reading(slow)

    def client_left(self) -> None:
        """Tell the upstream by closing; what came is kept as evidence (rule 5)."""
        self._left = True
        if self._take_back is not None:
            self._take_back()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.leave()
        self._cut(State.ABORTED_BY_CLIENT, we_left=self._sent)

    def _cut(self, state: State, *, we_left: bool) -> None:
        """End the permit of an answer that was cut short, or never began (rule 3)."""
        permit, self._permit = self._permit, None
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.end(state)
        if permit is None:
            return
        if self._head is not None:
            self._keep(partial(permit.abandoning, state), permit, _nothing)
        else:
            self._give_back(permit, we_left=we_left)

    # --- the answer

    def interim(self, head: ResponseHead) -> None:
        """Pass an interim answer on; `100 Continue` was said here already."""
        if head.status != 100 and not self._asked.request.is_http_10:
            lines = [head.head.start, *head.head.end_to_end()]
            self._client.write(b"\r\n".join(lines) + b"\r\n\r\n")

    def head(self, head: ResponseHead) -> None:
        """Pass the head on, and tell the recorder. Raises BadMessage for what nobody asked for."""
        request = self._asked.request
        if head.status == 101 and not request.wants_websocket:
            raise BadMessage("it switched to another protocol, which nobody had asked for")
        self._head = head
        if head.status == 101:
            self._switch(head)
            return
        self._dechunks = request.is_http_10 and head.framing.chunked
        self._keeps_alive = not head.framing.until_close and not self._dechunks
        lines = [head.head.start, *head.head.end_to_end()]
        if self._dechunks:
            lines = [line for line in lines if not line.lower().startswith(b"transfer-encoding:")]
        if not self._keeps_alive:
            lines.append(b"Connection: close")
        elif request.is_http_10 and request.keeps_alive:
            lines.append(b"Connection: keep-alive")
        if self._permit is not None or self._watch is not None:
            self._tell_head(head)
        length = head.framing.length
        self._holds_whole = (
            self._permit is not None and length is not None and length <= _HELD_WHOLE
        )
        self._pass_on(b"\r\n".join(lines) + b"\r\n\r\n")

    def _switch(self, head: ResponseHead) -> None:
        """Both sides agreed on another protocol: from here on bytes go both ways as they come."""
        lines = [line for _, line in head.head.lines]
        self._client.write(b"\r\n".join((head.head.start, *lines)) + b"\r\n\r\n")
        self._keeps_alive = False
        self._client.becomes_tunnel()

    def _tell_head(self, head: ResponseHead) -> None:
        headers = tuple(
            (name, value)
            for name, value in head.head.headers()
            if name.lower() not in ("connection", "keep-alive")
        )
        reason = head.reason.decode("latin-1")
        if self._permit is not None:
            self._permit.answered(head.status, headers, reason)
        if self._watch is not None:
            self._watch.head(head.status, reason, headers)

    def step(self, step: Step) -> None:
        """Pass a piece on, and tell the recorder (rule 1)."""
        data = b"".join(step.pieces) if self._dechunks else step.raw
        permit = self._permit
        if permit is not None:
            self._size += len(step.raw) + OF_A_PIECE * len(step.pieces)
            if self._size > self._desk.setup.body_limit:
                self._give_up(permit)
                return
        if permit is None:
            if data:
                self._client.write(data)
        elif step.ended:
            self._hold_end(data)
        else:
            self._pass_on(data)
        if permit is not None:
            for piece in step.pieces:
                permit.feed(piece)
        if self._watch is not None:
            for piece in step.pieces:
                self._watch.piece(piece)
        if step.ended:
            self._ended(permit)

    def _give_up(self, permit: Permit) -> None:
        """Break off an answer that is too large to be kept (rule 4)."""
        self._permit, self._left = None, True
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.end(State.ABORTED_BY_CLIENT)
        limit = self._desk.setup.body_limit
        what = f"an answer that is recorded may have {limit} bytes here"
        error = TapeFailed(what, RAISE_LIMIT)
        self._desk.refuse(self._asked.request, self._asked, error)
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.leave()
        self._give_back(permit, we_left=True)
        if self._holds_whole:
            data = refusal(error, self._asked.dialect, self._desk.more())
            self._say(data, keep_alive=False)
        else:
            self._client.abort()

    def _pass_on(self, data: bytes) -> None:
        if self._holds_whole:
            self._held.append(data)
        elif data:
            self._client.write(data)

    def _hold_end(self, data: bytes) -> None:
        """Pass on all but the very end."""
        if not self._holds_whole and data.endswith(_LAST_CHUNK):
            self._pass_on(data[: -len(_LAST_CHUNK)])
            data = _LAST_CHUNK
        self._held.append(data)

    def _ended(self, permit: Permit | None) -> None:
        self._upstream = None
        self._permit = None  # nothing can cut it any more (rule 3)
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.end(State.COMPLETE)
        if permit is None:
            self._client.end(keep_alive=self._keeps_alive)
        else:
            self._keep(permit.finishing, permit, self._kept)

    def _keep(
        self,
        ending: Callable[[], Unstored | None],
        permit: Permit,
        then: Callable[[BaseException | None], None],
    ) -> None:
        """End a permit and keep what came, and wake who waits for it."""
        self._desk.keepers.keep(permit, ending, partial(self._landed, permit, then))

    def _give_back(self, permit: Permit, *, we_left: bool) -> None:
        """End a permit whose call came to nothing, and wake who waits for it."""
        work = partial(permit.failed, we_left=we_left)
        self._desk.keepers.do(work, partial(self._landed, permit, _nothing))

    def _landed(
        self, permit: Permit, then: Callable[[BaseException | None], None], result: object
    ) -> None:
        error = result if isinstance(result, BaseException) else None
        if error is not None:
            log_failure(log, "an answer could not be kept", error)
        if self._asked.cassette is not None:
            self._desk.landed(self._asked.cassette, permit.key)
        then(error)

    def _kept(self, error: BaseException | None) -> None:
        """The tape has the answer, or could not take it (rule 2)."""
        if self._left:
            return
        if error is None:
            self._client.write(b"".join(self._held))
            self._client.end(keep_alive=self._keeps_alive)
        elif self._holds_whole:
            refused = error if isinstance(error, CassetteError) else TapeFailed(str(error))
            self._desk.refuse(self._asked.request, self._asked, refused)
            data = refusal(refused, self._asked.dialect, self._desk.more())
            self._say(data, keep_alive=True)
        else:
            self._client.abort()

    def failed(self, error: Exception) -> None:
        """There is no connection, or the upstream broke off: so does the client's answer."""
        self._upstream = None
        answered = self._head is not None
        self._cut(State.UPSTREAM_ERROR, we_left=False)
        if self._left:
            return
        if answered and not self._holds_whole:
            self._client.abort()
            return
        self._desk.unanswered += 1
        upstream = self._asked.route.upstream
        said = error.strerror if isinstance(error, OSError) else None
        reason = said or str(error) or type(error).__name__
        what = "gave no whole answer" if self._sent else "cannot be reached"
        why = f"the upstream {upstream.host}:{upstream.port} {what}: {reason}"
        status = 504 if isinstance(error, TimeoutError) else 502
        dialect = self._asked.dialect
        self._say(
            answer(status, "upstream-failed", why, dialect, close=True, retry=True),
            keep_alive=False,
        )

    def _say(self, data: bytes, *, keep_alive: bool) -> None:
        if self._asked.request.method == b"HEAD":
            data = without_body(data)
        self._client.write(data)
        self._client.end(keep_alive=keep_alive)


def _nothing(_error: BaseException | None) -> None:
    """Nobody waits for what came of it."""
