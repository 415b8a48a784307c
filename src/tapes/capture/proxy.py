"""The replay proxy: every request is answered from a tape, sent on and recorded, or passed on.

Rule 1: in replay nothing is sent, whatever the request is. Only a Permit, or the mode `pass`,
        opens an upstream connection.
Rule 2: the upstream gets the client's lines and bytes (see asked); the client gets the upstream's.
Rule 3: an answer that was given before is given again without a decision, while its tape is the
        same (see memo).

Knows nothing of sockets: connections are the relay's.
"""

from tapes.capture.asked import Asked, Control, Fixed, Noted, note
from tapes.capture.bodies import Step
from tapes.capture.control import Controlled
from tapes.capture.desk import Desk
from tapes.capture.http1 import BadMessage, RequestHead
from tapes.capture.refusals import answer, closes, without_body
from tapes.capture.relay import Client
from tapes.capture.relayed import Relayed
from tapes.capture.turns import Gathered, digest_of, give_again
from tapes.capture.watching import Outcome

# A request of our own has no body worth waiting for beyond this.
_SHORT_BODY = 1024 * 1024


class Proxy:
    """Answers the requests of all client connections."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def note(self, request: RequestHead) -> Noted:
        """What a head means."""
        return note(request, self.desk.setup, keeps_log=self.desk.watcher is not None)

    def whole(self, client: Client, request: RequestHead, noted: Noted, body: bytes) -> None:
        """A request that came in one piece."""
        desk = self.desk
        desk.requests += 1
        if not isinstance(noted, Asked):
            self._own(client, request, noted)
            return
        cassette = noted.cassette
        if cassette is None:
            self._passed(client, noted).send(body, body)
            return
        digest = digest_of(noted, body, desk)
        if not give_again(desk, client, digest):
            turn = Gathered(desk, client, noted, cassette)
            client.answered_by(turn)
            if len(body) > desk.setup.body_limit:
                turn.too_large()
                return
            turn.decide(body, digest)

    def begin(self, client: Client, request: RequestHead, noted: Noted) -> None:
        """A request whose body is still coming."""
        desk = self.desk
        desk.requests += 1
        length = request.framing.length or 0
        if not isinstance(noted, Asked):
            if length > _SHORT_BODY:
                self._own(client, request, noted)
            else:
                client.answered_by(Discarded(self, client, request, noted))
        elif noted.cassette is None:
            self._passed(client, noted).connect()
        else:
            turn = Gathered(desk, client, noted, noted.cassette)
            client.answered_by(turn)
            if length > desk.setup.body_limit:
                turn.too_large()

    def bad(self, client: Client, error: BadMessage) -> None:
        """Something that is no request."""
        client.write(answer(error.status, "bad-request", str(error), None, close=True))
        client.end(keep_alive=False)

    def _passed(self, client: Client, asked: Asked) -> Relayed:
        self.desk.passed += 1
        watch = self.desk.watch(asked, client.peer, Outcome.PASSED)
        relayed = Relayed(self.desk, client, asked, None, watch)
        client.answered_by(relayed)
        return relayed

    def _own(self, client: Client, request: RequestHead, noted: Fixed | Control) -> None:
        """Answer what needs neither tape nor upstream."""
        if isinstance(noted, Control):
            turn = Controlled(self.desk, client, request)
            client.answered_by(turn)
            turn.answer(noted.path)
            return
        if noted.refused is not None:
            self.desk.refuse(request, None, noted.refused)
        data = noted.answer(self.desk.more())
        client.write(without_body(data) if request.method == b"HEAD" else data)
        client.end(keep_alive=not closes(data))


class Discarded:
    """A body that changes nothing: read to its end, so that the answer does not come before it."""

    needs_client = False

    def __init__(
        self, proxy: Proxy, client: Client, request: RequestHead, noted: Fixed | Control
    ) -> None:
        self._proxy = proxy
        self._client = client
        self._request = request
        self._noted = noted
        self._size = 0

    def body(self, step: Step) -> None:
        """Count it, and answer at its end or where it grows too long."""
        self._size += len(step.raw)
        if step.ended or self._size > _SHORT_BODY:
            self._proxy._own(self._client, self._request, self._noted)

    def client_left(self) -> None:
        """Nothing was done for it."""

    def client_is_slow(self, slow: bool) -> None:
        """Nothing has been sent to it yet."""
