"""The folders of `tests/data`: a request, its answer as a stream, and the same in one body."""

import json
from dataclasses import dataclass
from pathlib import Path

from tapes.exchange import Exchange, Piece, Request, Response, State
from tapes.jsontext import Json
from tapes.providers.reading import PROVIDERS
from tapes.providers.turn import Provider

DATA = Path(__file__).parent / "data"

# Folder, api of the provider, path of the request.
SHAPES = {
    "anthropic": ("messages", "/v1/messages"),
    "openai_chat": ("chat", "/v1/chat/completions"),
    "openai_responses": ("responses", "/v1/responses"),
    "ollama": ("ollama", "/api/chat"),
    "gemini": ("gemini", "/v1beta/models/gemini-test:streamGenerateContent"),
}
TYPES = {".sse": "text/event-stream", ".ndjson": "application/x-ndjson"}


@dataclass(frozen=True)
class Case:
    """One folder."""

    name: str
    provider: Provider
    path: str
    content_type: str
    request: dict[str, Json]
    stream: bytes
    oneshot: bytes


def _case(folder: Path) -> Case:
    api, path = SHAPES[folder.parent.name]
    stream = next(folder.glob("stream.*"))
    if folder.name == "generate":
        path = "/api/generate"
    return Case(
        name=f"{folder.parent.name}/{folder.name}",
        provider=next(provider for provider in PROVIDERS if provider.api == api),
        path=path,
        content_type=TYPES[stream.suffix],
        request=json.loads((folder / "request.json").read_text()),
        stream=stream.read_bytes(),
        oneshot=(folder / "oneshot.json").read_bytes(),
    )


CASES = [_case(file.parent) for file in sorted(DATA.glob("*/*/request.json"))]


def case(name: str) -> Case:
    """The case of that name."""
    return next(case for case in CASES if case.name == name)


def exchange(
    path: str,
    request: Json,
    body: bytes,
    *,
    content_type: str = "application/json",
    status: int = 200,
    state: State = State.COMPLETE,
) -> Exchange:
    """An exchange as a proxy captures it."""
    sent = Request("POST", f"https://provider.test{path}", (), json.dumps(request).encode())
    pieces = (Piece(0.5, body),) if body else ()
    response = Response(status, (("Content-Type", content_type),), pieces)
    return Exchange("", "http/1", sent, response, state=state)
