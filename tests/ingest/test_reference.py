"""What others' captures post, at the private door: it is taken, and shows the same figures."""

import base64
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tapes.envelope import from_headers, identified, thread_of, to_json
from tapes.jsontext import Json
from tapes.rows import time_text
from tapes.store.sql import SqlStore
from tests.doors import derived, door
from tests.ingest.payloads import payload

RECORDING = "tapes-fixtures/recordings/claude-20260727-019fa57e"


def cases(folder: Path) -> list[Any]:
    return [json.loads(file.read_text()) for file in sorted(folder.glob("cases/*.json"))]


@pytest.mark.row("D5")
def test_every_envelope_is_taken_or_refused_as_the_cases_say(
    store: SqlStore, reference_data: Path
) -> None:
    found = cases(reference_data / "tapes-fixtures" / "envelope")
    assert len(found) == 23
    with door(store) as client:
        for case in found:
            headers = tuple((name, value) for name, value in case["headers"].items())
            session = to_json(from_headers(headers))
            answer = client.post("/v1/ingest", json=payload(session=session))
            refused = case.get("error", {}).get("disposition") == "reject-400"
            assert answer.status_code == (400 if refused else 202), case["name"]


@pytest.mark.row("D3", "D5")
def test_a_recorded_session_that_is_posted_shows_its_figures(
    store: SqlStore, reference_data: Path
) -> None:
    folder = reference_data / RECORDING
    expected = json.loads((folder / "expected.json").read_text())["derived"]
    with door(store) as client:
        turns = [posted(place) for place in sorted(folder.glob("turn-*"))]
        answer = client.post("/v1/ingest/batch", json=turns[::-1])
        assert answer.json()["accepted"] == 17
    derived(store)
    (listed,) = store.project().sessions().items
    rows = store.project().rows_of_session(listed.session.id)
    (trace,) = rows.traces
    session = listed.session
    assert trace.user_prompt == expected["user_prompt"]
    assert Counter(span.kind.value for span in rows.spans) == expected["span_kinds"]
    assert dict(session.kind_counts) == expected["call_kinds"]
    links = Counter(link.kind.value for link in rows.links)
    assert {name: links[name] for name in expected["links"]} == expected["links"]
    assert (session.tool_result_count, session.tool_error_count) == (
        expected["tool_results"], expected["tool_errors"],
    )  # fmt: skip
    assert session.derived_title == expected["derived_title"]
    assert session.derived_model == expected["derived_model"]


def posted(place: Path) -> Json:
    """What a capture beside this exchange would have posted."""
    told = json.loads((place / "request.json").read_text())
    meta = json.loads((place / "meta.json").read_text())
    headers = tuple((name, value) for name, value in told["headers"])
    kinds = {name.lower(): value for name, value in meta["response_headers"]}
    ended = int(place.name.split("-")[1]) / 1e9 + meta["duration_ms"] / 1000
    return {
        "provider": "anthropic",
        "request": json.loads(base64.b64decode(told["body_b64"])),
        "raw_response": base64.b64encode((place / "response.sse").read_bytes()).decode(),
        "raw_response_encoding": kinds.get("content-encoding", ""),
        "session": to_json(identified(headers)[0]),
        "meta": {
            "request_id": place.name,
            "path": "/v1/messages",
            "thread_id": thread_of(headers),
            "content_type": kinds.get("content-type", "text/event-stream"),
            "captured_at": time_of(ended),
            "elapsed_seconds": meta["duration_ms"] / 1000,
            "upstream_status": meta["status"],
        },
    }


def time_of(seconds: float) -> str:
    return time_text(round(seconds * 1e9))
