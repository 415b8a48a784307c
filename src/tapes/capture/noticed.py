"""What a lane saw of one exchange → the raw turn that may come to rest, and what it lacks.

Rule 1: nothing secret is in a turn: its request and response are redacted, and so is what its
        caller says of itself.
Rule 2: a call that was answered live has an identity made of what its provider calls it and of what
        was asked: whoever sees it too, at another place, makes the same. Without a provider's word
        each sight is a call of its own.
Rule 3: a failed, refused or broken call is a turn as well. A reason says what it lacks.
Rule 4: a caller does not choose its tenant.

Pure.
"""

import hashlib
from dataclasses import dataclass, replace
from uuid import UUID

from tapes.envelope import (
    AGENT_NAME,
    ID_LIMIT,
    OWN_IDS,
    UNKNOWN,
    Envelope,
    cut,
    from_headers,
    identified,
    problems,
    shortened,
    thread_of,
)
from tapes.errors import TapesError
from tapes.exchange import Exchange, Request, Response, State, header
from tapes.jsontext import Json
from tapes.loosejson import loose, packed
from tapes.providers.reading import (
    DropReason,
    answer_to,
    plain_path,
    provider_of_path,
    provider_of_value,
)
from tapes.providers.reduced import reduced
from tapes.providers.turn import Answer, Provider
from tapes.redact import Redactor
from tapes.rows import Outcome, RawTurn
from tapes.wire import decoded

# Request headers that come to rest beside those of the identity: who called, and for which session.
KEPT_HEADERS = frozenset(
    {"user-agent", "x-app", "thread-id", "x-claude-code-agent-id", *(name for name, _ in OWN_IDS)}
)
# What providers call an exchange.
_CALLED = ("request-id", "x-request-id", "x-amzn-requestid", "apim-request-id")
_SMALL = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """One exchange as a lane saw it, secrets included.

    `cut` says that not all bytes were kept; `call` is the identity that the lane has told of.
    """

    request: Request | dict[str, Json]
    response: Response | Json = None
    state: State = State.COMPLETE
    outcome: Outcome = Outcome.LIVE
    started_at: int
    ended_at: int
    lane: str
    key: str = ""
    canonicalizer: str = "http/1"
    tape: str = ""
    refused: str = ""
    cut: bool = False
    call: str = ""

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        request, response = self.request, self.response
        asked = len(request.body) if isinstance(request, Request) else _SMALL
        pieces = response.pieces if isinstance(response, Response) else ()
        return 2048 + asked + sum(len(piece.data) + 64 for piece in pieces)


def turn_of(
    noticed: Noticed, redactor: Redactor, *, received_at: int, new_id: str
) -> tuple[RawTurn, DropReason | None]:
    """The turn of an exchange, and the first reason why it is no answered one.

    `new_id` is its identity where nobody else gives it one.
    """
    exchange = _clean(noticed, redactor)
    provider = _provider(exchange)
    answer = None if provider is None else answer_to(exchange, provider)
    envelope, by, agent, thread = _caller(noticed.request, redactor)
    if noticed.cut and isinstance(exchange.response, Response):
        exchange = replace(exchange, response=replace(exchange.response, pieces=()))
    turn = RawTurn(
        request_id=_identity(noticed, answer) or noticed.call or new_id,
        envelope=envelope,
        session_by=by,
        agent_name=agent,
        thread_id=thread,
        exchange=exchange,
        reduced=None if answer is None or provider is None else reduced(answer, provider.api),
        dropped=noticed.cut,
        meta=_meta(noticed),
        outcome=noticed.outcome,
        started_at=noticed.started_at,
        ended_at=noticed.ended_at,
        received_at=received_at,
    )
    return turn, _reason(noticed, exchange, answer)


def _clean(noticed: Noticed, redactor: Redactor) -> Exchange:
    request: Request | Json = noticed.request
    response = noticed.response
    if isinstance(request, Request):
        request = redactor.request(request)
        response = redactor.response(response) if isinstance(response, Response) else None
    else:
        request, response = redactor.value(request), redactor.value(response)
    return Exchange(
        noticed.key, noticed.canonicalizer, request, response, state=noticed.state
    )  # fmt: skip


def _provider(exchange: Exchange) -> Provider | None:
    request = exchange.request
    if isinstance(request, Request):
        return provider_of_path(plain_path(request.url))
    return provider_of_value(exchange.response)


def _caller(
    request: Request | dict[str, Json], redactor: Redactor
) -> tuple[Envelope, str, str, str]:
    """Envelope, how its session is known, the agent's name and the thread."""
    if not isinstance(request, Request):
        return Envelope(), "", "", ""
    headers = request.headers
    by_headers = from_headers(headers)
    body = None if by_headers.harness_session_id else _telling(request)
    envelope, by = identified(headers, body)
    metadata, parent = envelope.harness_metadata, envelope.parent_harness_session_id
    envelope = replace(
        envelope,
        org_id="",
        harness_id=shortened(envelope.harness_id or UNKNOWN, ID_LIMIT),
        harness_session_id=shortened(envelope.harness_session_id, ID_LIMIT),
        parent_harness_session_id=None if parent is None else shortened(parent, ID_LIMIT),
        auth_subject=cut(envelope.auth_subject, ID_LIMIT),
        cwd=redactor.text(envelope.cwd),
        name=redactor.text(envelope.name),
        harness_metadata=redactor.value(metadata) if isinstance(metadata, dict) else None,
    )
    assert not problems(envelope)
    agent = header(headers, AGENT_NAME) or ""
    thread = shortened(thread_of(headers), ID_LIMIT)
    return envelope, by, redactor.text(cut(agent, ID_LIMIT)), thread


def _telling(request: Request) -> Json:
    """The body of a request where it may say whose it is."""
    try:
        body = decoded(request.body, header(request.headers, "content-encoding")).data
        return loose(body) if b'"metadata"' in body else None
    except (TapesError, ValueError):
        return None


def _identity(noticed: Noticed, answer: Answer | None) -> str:
    if noticed.outcome not in (Outcome.LIVE, Outcome.RECORDED):
        return ""
    response = noticed.response
    called = ""
    if isinstance(response, Response):
        values = (header(response.headers, name) for name in _CALLED)
        called = next((value for value in values if value), "")
    if not called:
        return ""
    request = noticed.request
    asked = request.body if isinstance(request, Request) else packed(request)
    digest = hashlib.sha256(b"turn\0")
    for part in (called.encode(), asked, (answer.id if answer is not None else "").encode()):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return str(UUID(bytes=digest.digest()[:16], version=5))


def _meta(noticed: Noticed) -> dict[str, Json]:
    response = noticed.response
    headers = response.headers if isinstance(response, Response) else ()
    values = (header(headers, name) for name in _CALLED)
    said = {
        "lane": noticed.lane,
        "upstream_request_id": next((value for value in values if value), ""),
        "tape": noticed.tape,
        "refused": noticed.refused,
    }
    return {name: value for name, value in said.items() if value}


def _reason(noticed: Noticed, exchange: Exchange, answer: Answer | None) -> DropReason | None:
    """The first reason that fits; see `providers.reading.drop_reason`."""
    if noticed.outcome is Outcome.REFUSED:
        return None  # it was meant
    response = exchange.response
    if isinstance(response, Response) and response.status not in (0, 200):
        return DropReason.UPSTREAM_STATUS
    if answer is None:
        return DropReason.UNKNOWN_PROVIDER
    failure = answer.failure
    if failure is not None and failure.code in tuple(DropReason):
        return DropReason(failure.code)
    left = noticed.state is State.ABORTED_BY_CLIENT
    return DropReason.CLIENT_DISCONNECT if left and not answer.parts else None
