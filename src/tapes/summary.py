"""One exchange in a line: what was asked, of which model, and what came.

Knows nothing of tapes or terminals.
"""

from dataclasses import dataclass

from tapes.canonical import plain_body
from tapes.exchange import Exchange, Request, Response, State, header
from tapes.jsontext import Json, compact, read
from tapes.report import usage_of_exchange

_STREAMS = ("text/event-stream", "application/x-ndjson", "application/vnd.amazon.eventstream")
_SAID_MAX = 200


@dataclass(frozen=True, slots=True)
class Summary:
    """What a person wants to see of an exchange. None stands for what it does not say."""

    key: str
    recorded_at: str | None
    what: str
    said: str
    model: str | None
    stream: bool
    status: int | None
    input_tokens: int | None
    output_tokens: int | None
    bytes: int
    state: State
    sample: int
    canonicalizer: str

    def as_dict(self) -> dict[str, object]:
        """The summary for people's programs."""
        return {name: getattr(self, name) for name in self.__slots__}


def summary_of(exchange: Exchange) -> Summary:
    """The summary of an exchange."""
    request, response = exchange.request, exchange.response
    asked = request_json(request)
    usage = usage_of_exchange(exchange)
    over_http = isinstance(response, Response)
    return Summary(
        key=exchange.key,
        recorded_at=exchange.recorded_at,
        what=what_of(request),
        said=said_in(asked),
        model=_model(asked) or (usage.model if usage else None),
        stream=_is_stream(asked, response),
        status=response.status if over_http else None,
        input_tokens=usage.input if usage else None,
        output_tokens=usage.output if usage else None,
        bytes=len(response.body) if over_http else len(compact(response).encode()),
        state=exchange.state,
        sample=exchange.sample,
        canonicalizer=exchange.canonicalizer,
    )


def request_json(request: Request | Json) -> Json:
    """What a request says as JSON; None where it says nothing in JSON."""
    if not isinstance(request, Request):
        return request
    if not request.body:
        return None
    try:
        return read(plain_body(request))
    except ValueError:
        return None


def what_of(request: Request | Json) -> str:
    """`POST /v1/chat/completions`, or what kind of thing a request without HTTP is."""
    if isinstance(request, Request):
        path = request.url.partition("://")[2].partition("/")[2]
        return f"{request.method} /{path.partition('#')[0]}"
    if request is None:
        return "(kept without its request)"
    return "call"


def said_in(asked: Json) -> str:
    """The words by which a person knows a request: the last message, the prompt, or all of it."""
    if not isinstance(asked, dict):
        return "" if asked is None else compact(asked)[:_SAID_MAX]
    for name in ("messages", "input", "contents"):
        if isinstance(asked.get(name), list) and asked[name]:
            text = _text(asked[name][-1])
            if text:
                return _one_line(text)
    for name in ("prompt", "input"):
        if isinstance(asked.get(name), str):
            return _one_line(asked[name])
    return _one_line(compact(asked))


def _text(message: Json) -> str:
    """The text of a message in the forms that providers give it."""
    if isinstance(message, str):
        return message
    if isinstance(message, list):
        return " ".join(filter(None, map(_text, message)))
    if isinstance(message, dict):
        return next(
            (_text(message[n]) for n in ("content", "parts", "text", "output") if message.get(n)),
            "",
        )
    return ""


def _one_line(text: str) -> str:
    return " ".join(text[: 4 * _SAID_MAX].split())[:_SAID_MAX]


def _model(asked: Json) -> str | None:
    model = asked.get("model") if isinstance(asked, dict) else None
    return model if isinstance(model, str) else None


def _is_stream(asked: Json, response: Response | Json) -> bool:
    if isinstance(response, Response):
        media = (header(response.headers, "content-type") or "").lower()
        if media.startswith(_STREAMS):
            return True
    return isinstance(asked, dict) and asked.get("stream") is True
