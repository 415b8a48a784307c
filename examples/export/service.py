"""Whole sessions as files.

    python examples/export/service.py
    curl -OJ 127.0.0.1:8081/v1/cassettes/export/sessions/SESSION

A bundle is JSON Lines: one object a line, each with its `type`. The first line says what it is, the
last one how much there was: a bundle without its last line is not whole.

    {"type": "bundle", "version": 1, "schema": "…", "exported_at": "…"}
    {"type": "session", "session": {…}}
    {"type": "trace", "trace": {…}}
    {"type": "span", "span": {…}}
    {"type": "link", "link": {…}}
    {"type": "end", "sessions": 1, "traces": 2, "spans": 9, "links": 7}

The objects are those of the read API, unchanged. An id may be shortened while it stays unique.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from fastapi import HTTPException
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, Field

from tapes.services.kit import Service
from tapes.services.kit.reading import ReadApi

LINES = "application/jsonl"
VERSION = 1
MAX_TEXT = 20_000

service = Service(Path(__file__).with_name("cassette.toml"))
Detail = Literal["spans", "traces"]


def api() -> ReadApi:
    return ReadApi.of(service)


# --- bundles ----------------------------------------------------------------------------------


def bundle(sessions: Iterator[dict[str, Any]], detail: Detail) -> Iterator[bytes]:
    """The lines of a bundle of whole sessions."""
    counts: Counter[str] = Counter(sessions=0, traces=0, spans=0, links=0)
    head_is_out = False
    for whole in sessions:
        if not head_is_out:
            yield _head(whole.get("schema"))
            head_is_out = True
        counts["sessions"] += 1
        yield _line("session", whole["session"])
        for part in whole["traces"]:
            counts["traces"] += 1
            yield _line("trace", part["trace"])
            for span in part["spans"] if detail == "spans" else ():
                counts["spans"] += 1
                yield _line("span", span)
        for link in whole["links"] if detail == "spans" else ():
            counts["links"] += 1
            yield _line("link", link)
    if not head_is_out:
        yield _head(None)
    yield _text({"type": "end", **counts})


def _head(schema: str | None) -> bytes:
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return _text({"type": "bundle", "version": VERSION, "schema": schema, "exported_at": at})


def _line(kind: str, value: Any) -> bytes:
    return _text({"type": kind, kind: value})


def _text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def found(session_id: str) -> dict[str, Any]:
    """A whole session by its id, or by the beginning of it that is unique."""
    if not re.fullmatch(r"[A-Za-z0-9-]{4,64}", session_id):
        raise HTTPException(400, "an id of a session, or at least 4 characters of it")
    tapes = api()
    if len(session_id) < 36:
        ids = [s["id"] for s in tapes.sessions() if s["id"].startswith(session_id)]
        if len(ids) > 1:
            raise HTTPException(409, f"{len(ids)} sessions have an id that begins so")
        session_id = ids[0] if ids else session_id
        if not ids:
            raise HTTPException(404, f"no session has the id {session_id}")
    whole = tapes.whole_session(session_id)
    if whole is None:
        raise HTTPException(404, f"no session has the id {session_id}")
    return whole


def _file(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


@service.get(
    "/sessions/{session_id}",
    response_class=Response,
    responses={200: {"description": "The bundle", "content": {LINES: {}, "application/json": {}}}},
)
def session(
    session_id: str, detail: Detail = "spans", form: Literal["jsonl", "json"] = "jsonl"
) -> Response:
    """One session as a bundle, or as the one JSON object that the read API has."""
    whole = found(session_id)
    name = f"session-{whole['session']['id']}"
    if form == "json":
        return JSONResponse(whole, headers=_file(f"{name}.json"))
    return StreamingResponse(
        bundle(iter([whole]), detail), media_type=LINES, headers=_file(f"{name}.jsonl")
    )


@service.get(
    "/sessions",
    response_class=Response,
    responses={200: {"description": "The bundle", "content": {LINES: {}}}},
)
def sessions(
    since: datetime | None = None, until: datetime | None = None, detail: Detail = "spans"
) -> Response:
    """All sessions of a time as one bundle, sent while it is read."""
    tapes = api()
    filters = {
        name: at.isoformat() for name, at in (("since", since), ("until", until)) if at is not None
    }
    listed = tapes.sessions(**filters)
    first = next(listed, None)  # what cannot be read is told before anything is sent

    def whole() -> Iterator[dict[str, Any]]:
        for item in [first, *listed] if first is not None else ():
            one = tapes.whole_session(item["id"])
            if one is not None:  # it may have been deleted meanwhile
                yield one

    return StreamingResponse(
        bundle(whole(), detail), media_type=LINES, headers=_file("sessions.jsonl")
    )


# --- transcripts ------------------------------------------------------------------------------


class Which(BaseModel):
    session_id: str = Field(description="The id of the session, or a beginning that is unique")
    max_characters: int = Field(MAX_TEXT, ge=200, le=200_000)


class Transcript(BaseModel):
    session_id: str
    title: str
    text: str
    omitted_characters: int


def lines_of(whole: dict[str, Any]) -> Iterator[str]:
    """A session as people read it."""
    for part in whole["traces"]:
        yield f"## {part['trace']['user_prompt'] or '(no prompt)'}"
        for span in part["spans"]:
            if span["kind"] == "llm":
                yield from _shown("model", span["output"])
            elif span["kind"] == "tool":
                failed = " (failed)" if span["status"] == "error" else ""
                yield f"tool {span['name']}{failed}"
                yield from _shown("  asked", span["input"])
                yield from _shown("  answered", span["output"])


def _shown(who: str, blocks: list[dict[str, Any]]) -> Iterator[str]:
    for block in blocks:
        match block["type"]:
            case "text":
                yield f"{who}: {block.get('text', '')}"
            case "tool_use" if who.strip() == "asked":
                yield f"{who}: {json.dumps(block.get('tool_input'), ensure_ascii=False)}"
            case "tool_result":
                yield f"{who}: {block.get('tool_output', '')}"


@service.tool("transcript", title="Read a session", read_only=True, open_world=False)
def transcript(asked: Which) -> Transcript:
    """The conversation of a recorded session as text: prompts, answers, tools with their results.

    Long ones are cut at their end; `omitted_characters` says by how much.
    """
    whole = found(asked.session_id)
    text = "\n".join(lines_of(whole))
    return Transcript(
        session_id=whole["session"]["id"],
        title=whole["session"]["display_title"],
        text=text[: asked.max_characters],
        omitted_characters=max(0, len(text) - asked.max_characters),
    )


if __name__ == "__main__":
    service.run()
