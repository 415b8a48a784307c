"""An exchange → the turn that it means, or the reason why it is none.

Rule 1: what was asked is shown even where no answer came: a failed call is a turn with a failure.
Rule 2: the reasons are a closed, ordered list; `drop_reason` gives the first that fits.
Rule 3: the path says whose shape the bodies have; where there is no path, the provider's name does,
        and where nobody names one, the bodies.

Knows nothing of sessions or stores.  Pure.
"""

import json
from dataclasses import replace
from enum import StrEnum
from urllib.parse import urlsplit

from tapes.errors import TapesError
from tapes.exchange import Exchange, Request, Response, State, header
from tapes.jsontext import Json
from tapes.loosejson import loose
from tapes.providers.anthropic import MESSAGES
from tapes.providers.ending import Course
from tapes.providers.gemini import GEMINI
from tapes.providers.ollama import OLLAMA
from tapes.providers.openai_chat import CHAT
from tapes.providers.openai_responses import RESPONSES
from tapes.providers.reduced import answer_of, is_current
from tapes.providers.turn import (
    Answer,
    AnswerState,
    Failure,
    Memo,
    Provider,
    Reducer,
    Turn,
    failure_of,
    no_memo,
    value_of,
)
from tapes.providers.usage import Tally
from tapes.wire import Events, Frame, Framer, Lines, decoded, framer

PROVIDERS: tuple[Provider, ...] = (MESSAGES, CHAT, RESPONSES, OLLAMA, GEMINI)

# Model calls whose bodies nobody here can read yet.
_UNREAD_CALLS = ("/converse", "/converse-stream", "/invoke", "/invoke-with-response-stream")


class DropReason(StrEnum):
    """Why an exchange is no answered turn: first what every capture agrees on, then plumbing."""

    UPSTREAM_STATUS = "upstream_status"
    NON_TURN_REQUEST = "non_turn_request"
    REQUEST_DECODE = "request_decode"
    EMPTY_RESPONSE = "empty_response"
    UNKNOWN_PROVIDER = "unknown_provider"
    RESPONSE_DECODE = "response_decode"
    REDUCER_ERROR = "reducer_error"

    CLIENT_DISCONNECT = "client_disconnect"
    UPSTREAM_NO_RESPONSE = "upstream_no_response"
    MISSING_STATUS = "missing_status"
    SEM_FULL = "sem_full"
    REQUEST_OVER_BUDGET = "request_over_budget"
    INGEST_REJECT = "ingest_reject"
    INGEST_TIMEOUT = "ingest_timeout"
    MARSHAL_ERROR = "marshal_error"


POLICY = tuple(DropReason)[: tuple(DropReason).index(DropReason.CLIENT_DISCONNECT)]


# --- whose call it is -------------------------------------------------------------------------


def plain_path(url: str) -> str:
    """The path of a URL, without query and without a slash at its end; "" where it is no URL."""
    try:
        return urlsplit(url).path.rstrip("/")
    except ValueError:
        return ""


def provider_of_path(path: str) -> Provider | None:
    """The provider whose model calls have this path, or None."""
    return next((provider for provider in PROVIDERS if provider.claims(path)), None)


def is_turn_request(method: str, url: str) -> bool:
    """Whether a request is a model call. A method that nobody knows counts as POST."""
    path = plain_path(url)
    posted = method.upper() in ("", "POST")
    return posted and (provider_of_path(path) is not None or path.endswith(_UNREAD_CALLS))


def provider_of_value(value: Json, event: str = "") -> Provider | None:
    """The provider whose answers, or events, look like this value, or None."""
    if not isinstance(value, dict):
        return None
    return next((provider for provider in PROVIDERS if provider.owns(event, value)), None)


# --- reading ----------------------------------------------------------------------------------


def read(
    exchange: Exchange, form: Json = None, remember: Memo = no_memo, *, provider_name: str = ""
) -> Turn | DropReason:
    """The turn of an exchange, or why it is none.

    `form` is the answer's reduced form where it is at hand. It is believed where it was made by
    this version, or where there are no bytes to make it from. `provider_name` is what the capture
    calls the provider; it decides about the shape only where the request has no URL.
    """
    request = exchange.request
    if not isinstance(request, Request):
        return _read_plain(exchange, remember)
    if request.url and not is_turn_request(request.method, request.url):
        return DropReason.NON_TURN_REQUEST
    body = _request_body(request)
    if body is None:
        return DropReason.REQUEST_DECODE
    path = plain_path(request.url)
    provider = provider_of_path(path) if path else _provider_named(provider_name, body)
    if provider is None:
        return DropReason.UNKNOWN_PROVIDER
    has_bytes = isinstance(exchange.response, Response)
    answer = answer_of(form) if is_current(form) or not has_bytes else None
    answer = answer or answer_to(exchange, provider)
    try:
        asked = provider.asked(body, path, remember)
    except RecursionError:  # a monster
        return DropReason.REQUEST_DECODE
    return Turn(provider_name or provider.name, provider.api, asked, _named(answer))


def _provider_named(name: str, body: dict[str, Json]) -> Provider | None:
    """The provider of that name whose requests look like this one, or None."""
    if name == "openai" and "messages" not in body and "input" in body:
        return RESPONSES
    return next((provider for provider in PROVIDERS if provider.name == name), None)


def _request_body(request: Request) -> dict[str, Json] | None:
    try:
        plain = decoded(request.body, header(request.headers, "content-encoding"))
        value = loose(plain.data) if plain.whole else None
    except (TapesError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _read_plain(exchange: Exchange, remember: Memo) -> Turn | DropReason:
    """A call that was made with dicts: its bodies say whose shape they have."""
    request, response = exchange.request, exchange.response
    if not isinstance(request, dict):
        return DropReason.REQUEST_DECODE
    provider = provider_of_value(response)
    if provider is None or not isinstance(response, dict):
        return DropReason.UNKNOWN_PROVIDER
    asked = provider.asked(request, "", remember)
    return Turn(provider.name, provider.api, asked, _named(provider.answer(response)))


def _named(answer: Answer) -> Answer:
    """The answer with its model's name at its usage, where prices look for it."""
    usage, model = answer.usage, answer.model or None
    if usage is None or usage.model == model:
        return answer
    return replace(answer, usage=replace(usage, model=model))


def answer_to(exchange: Exchange, provider: Provider) -> Answer:
    """The answer of an exchange with this provider, however it failed."""
    response = exchange.response
    if not isinstance(response, Response) or not response.status:
        return Answer(failure=Failure(_without_status(exchange).value))
    status = response.status
    try:
        plain = decoded(response.body, header(response.headers, "content-encoding"))
    except TapesError as error:
        return Answer(failure=Failure(DropReason.RESPONSE_DECODE.value, error.message, status))
    if not 200 <= status < 300:
        return Answer(failure=_failed(plain.data, status))
    whole = plain.whole and exchange.state is State.COMPLETE
    if not plain.data.strip():
        if not whole:
            return Answer()
        return Answer(failure=Failure(DropReason.EMPTY_RESPONSE.value, status=status))
    return answer_of_body(
        header(response.headers, "content-type"), plain.data, whole=whole, provider=provider
    )


def _without_status(exchange: Exchange) -> DropReason:
    if isinstance(exchange.response, Response) and exchange.response.pieces:
        return DropReason.MISSING_STATUS
    if exchange.state is State.ABORTED_BY_CLIENT:
        return DropReason.CLIENT_DISCONNECT
    return DropReason.UPSTREAM_NO_RESPONSE


def _failed(data: bytes, status: int) -> Failure:
    try:
        told = failure_of(loose(data), status)
    except ValueError:
        told = None
    return told or Failure(str(status), data[:500].decode("utf-8", "replace"), status)


def answer_of_body(
    content_type: str | None, data: bytes, *, whole: bool, provider: Provider | None = None
) -> Answer:
    """The answer in a decoded body, streamed or not. `whole` says that nothing was cut off."""
    cutter = _framer(content_type, data)
    if cutter is not None:
        reducer = provider.reducer() if provider is not None else AnyReducer()
        for frame in frames_in(cutter, data):
            reducer.feed(frame)
        return reducer.finish()
    try:
        return _answer_of_value(loose(data), provider)
    except RecursionError:
        return Answer(failure=Failure(DropReason.REDUCER_ERROR.value, "it is nested too deeply"))
    except ValueError:
        pass
    listed = _objects_of_cut_list(data)
    if listed:
        return _reduced(listed, provider)
    if not whole:
        return Answer()
    return Answer(failure=Failure(DropReason.REDUCER_ERROR.value, "the answer is no JSON"))


def _answer_of_value(value: Json, provider: Provider | None) -> Answer:
    if isinstance(value, list) and value and failure_of(value) is None:
        return _reduced(value, provider)
    failure = failure_of(value)
    if provider is None:
        provider = provider_of_value(value)
    if isinstance(value, dict) and provider is not None and failure is None:
        return provider.answer(value)
    unread = Failure(DropReason.REDUCER_ERROR.value, "the answer has no known shape")
    return Answer(failure=failure or unread)


def _reduced(values: list[Json], provider: Provider | None) -> Answer:
    """Bodies that came as one list: a stream in the form of a JSON array."""
    reducer = provider.reducer() if provider is not None else AnyReducer()
    for value in values:
        reducer.feed(Frame("", json.dumps(value)))
    return reducer.finish()


def _objects_of_cut_list(data: bytes) -> list[Json]:
    """The whole objects at the beginning of a JSON array that was cut."""
    text = data.decode("utf-8", "ignore").lstrip()
    values: list[Json] = []
    decoder, place = json.JSONDecoder(strict=False), 1
    while text.startswith("["):
        while place < len(text) and text[place] in ", \r\n\t":
            place += 1
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            break
        values.append(value)
    return values


# --- frames -----------------------------------------------------------------------------------


def _framer(content_type: str | None, data: bytes) -> Framer | None:
    """The framer of a body: by its type, and where that says nothing, by how it looks."""
    known = framer(content_type)
    if known is not None:
        return known
    beginning = data[:64].lstrip(b"\xef\xbb\xbf \r\n")
    if beginning.startswith((b"data:", b"event:", b"id:", b"retry:", b":")):
        return Events()
    if beginning.startswith(b"{") and b"}\n{" in data:
        return Lines()
    return None


def frames_in(cutter: Framer, data: bytes) -> list[Frame]:
    """All frames of a body, the last one too where its end was cut but not its text."""
    frames = cutter.feed(data)
    cut = cutter.unfinished() if isinstance(cutter, Events) else []
    # A last event that is no whole JSON was cut in its text, and says nothing.
    cut = [frame for frame in cut if _is_whole(frame)]
    return frames + cut + cutter.finish()


def _is_whole(frame: Frame) -> bool:
    return frame.text.strip() == "[DONE]" or value_of(frame) is not None


class AnyReducer:
    """Frames of a stream of whichever shape: the first that tells its provider decides."""

    def __init__(self) -> None:
        self._held: list[Frame] = []
        self._reducer: Reducer | None = None
        self._failure: Failure | None = None
        self._course = Course()
        self._tally = Tally()

    def feed(self, frame: Frame) -> None:
        """One more frame."""
        if self._reducer is not None:
            self._reducer.feed(frame)
            return
        self._held.append(frame)
        self._course.take(frame)
        value = value_of(frame)
        if value is None:
            return
        self._failure = failure_of(value) or self._failure
        self._tally.add(value)
        provider = provider_of_value(value, frame.event)
        if provider is not None:
            self._reducer = provider.reducer()
            for held in self._held:
                self._reducer.feed(held)

    def finish(self) -> Answer:
        """The answer so far; its ending is unknown where nobody's shape was seen."""
        if self._reducer is not None:
            return self._reducer.finish()
        return Answer(ending=self._course.ending, usage=self._tally.usage(), failure=self._failure)


# --- reasons ----------------------------------------------------------------------------------


def drop_reason(exchange: Exchange) -> DropReason | None:
    """The first reason why an exchange is no answered turn, or None where it is one.

    Where `read` gives a turn all the same, the turn shows what was asked and how it failed.
    """
    response = exchange.response
    if isinstance(response, Response) and response.status not in (0, 200):
        return DropReason.UPSTREAM_STATUS
    turn = read(exchange)
    if isinstance(turn, DropReason):
        empty = turn is DropReason.UNKNOWN_PROVIDER and not _has_body(response)
        return DropReason.EMPTY_RESPONSE if empty else turn
    failure = turn.answer.failure
    if failure is not None and failure.code in tuple(DropReason):
        return DropReason(failure.code)
    left = exchange.state is State.ABORTED_BY_CLIENT
    if left and turn.answer.state is AnswerState.TRUNCATED and not turn.answer.parts:
        return DropReason.CLIENT_DISCONNECT
    return None


def _has_body(response: Response | Json) -> bool:
    return not isinstance(response, Response) or any(piece.data for piece in response.pieces)
