"""Search in the spans of all sessions by what they mean.

    python examples/search/service.py
    curl '127.0.0.1:8081/v1/cassettes/search/spans?q=why+did+the+test+fail'

It reads the read API every half minute and keeps vectors of what spans say. What makes the
vectors is a setting: `CASSETTE_EMBEDDER=words` (no model), `local` (a small one, on this machine),
or the URL of an OpenAI-compatible `/v1/embeddings`: `http://127.0.0.1:11434/v1/embeddings#MODEL`
is Ollama's.
"""

import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from embedders import embedder_of
from fastapi import Query
from index import Index
from pydantic import BaseModel, Field

from tapes.services.kit import Service
from tapes.services.kit.reading import ReadApi

service = Service(Path(__file__).with_name("cassette.toml"))
Kind = Literal["llm", "tool"]


class Asked(BaseModel):
    query: str = Field(min_length=1, max_length=2_000, description="What to look for, in words")
    limit: int = Field(10, ge=1, le=100)
    session_id: str | None = Field(None, description="Only in this session")
    kind: Kind | None = Field(None, description="Only calls of models (llm) or of tools (tool)")


class Hit(BaseModel):
    session_id: str
    trace_id: str
    span_id: str
    kind: str
    name: str
    started_at: str
    score: float = Field(description="1 is the same meaning, 0 is none")
    excerpt: str


class Hits(BaseModel):
    hits: list[Hit]
    spans: int = Field(description="How many spans were looked at")
    embedder: str


class State(BaseModel):
    sessions: int
    spans: int
    embedder: str
    compares_with: str
    refreshes: int
    last_error: str | None


class Following:
    """The index, kept up beside the requests."""

    def __init__(self) -> None:
        given = service.settings
        self.embedder = embedder_of(given["embedder"], given["embedder_key"])
        self.index = Index(given["index"], self.embedder)
        self.tapes = ReadApi.of(service)
        self.refreshes = 0
        self.last_error: str | None = None
        self._turn = threading.Lock()

    def refresh(self) -> None:
        """Look at all sessions once. What fails is told, and tried again."""
        with self._turn:
            try:
                self.index.follow(self.tapes)
                self.last_error = None
            except Exception as error:  # noqa: BLE001  # an embedder may raise anything
                self.last_error = f"{type(error).__name__}: {error}"
            self.refreshes += 1

    def run(self, stopped: threading.Event) -> None:
        while True:
            self.refresh()
            if stopped.wait(service.settings["refresh"].total_seconds()):
                return


following: Following | None = None


@service.on_start
def begin() -> None:
    global following
    following = Following()
    said = f"{following.embedder.name}, compared with {following.index.compares_with}"
    print(f"{service.name} makes vectors with {said}", flush=True)
    threading.Thread(target=following.run, args=(threading.Event(),), daemon=True).start()


def the_index() -> Following:
    assert following is not None, "the service has not begun"
    return following


@service.health_check
def reads() -> None:
    if the_index().last_error is not None:
        raise RuntimeError(the_index().last_error)


@service.tool("spans", title="Search recorded sessions", read_only=True, open_world=False)
def spans(asked: Asked) -> Hits:
    """Find what models said and tools did in recorded sessions, by meaning.

    Each hit names its session, trace and span, and shows the place that fits.
    """
    found = the_index()
    hits = found.index.find(asked.query, asked.limit, session_id=asked.session_id, kind=asked.kind)
    shown = [Hit(**asdict(hit)) for hit in hits]
    return Hits(hits=shown, spans=found.index.counts()[1], embedder=found.embedder.name)


@service.get("/spans")
def search(
    q: Annotated[str, Query(min_length=1, max_length=2_000)],
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
    session_id: str | None = None,
    kind: Kind | None = None,
) -> Hits:
    """The same for people and browsers."""
    return spans(Asked(query=q, limit=limit, session_id=session_id, kind=kind))


@service.get("/state")
def state() -> State:
    """How much is known, and whether the read API was reached."""
    found = the_index()
    sessions, known = found.index.counts()
    return State(
        sessions=sessions,
        spans=known,
        embedder=found.embedder.name,
        compares_with=found.index.compares_with,
        refreshes=found.refreshes,
        last_error=found.last_error,
    )


@service.post("/refresh")
def refresh() -> State:
    """Look at all sessions now."""
    the_index().refresh()
    return state()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        service.run()
