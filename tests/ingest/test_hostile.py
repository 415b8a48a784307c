"""Whatever is posted: an answer that is true, nothing that breaks the log, nothing that stays."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapes.jsontext import Json
from tapes.store.sql import SqlStore
from tests.doors import derived, door
from tests.ingest.payloads import payload
from tests.ingest.spans import request, span
from tests.strategies import examples

SETTINGS = settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

# Texts with what databases do not like: NULs, halves of surrogates, and much of it.
TEXT = st.text(st.characters(codec=None), max_size=12) | st.sampled_from(
    ["", "\x00", "\ud800", "\udc00\ud800", "x" * 3000, "r", "s", "2026-07-01T10:00:00Z",
     "9999-12-31T23:59:59.999999999Z", "0001-01-01T00:00:00Z", "1969-12-31T00:00:00Z"]
)  # fmt: skip
NUMBER = st.integers() | st.floats() | st.sampled_from([0, -1, 2**63, 2**64, 10**400, 1e308])
VALUE = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
META = st.dictionaries(
    st.sampled_from(
        ["request_id", "thread_id", "path", "method", "content_type", "upstream_status",
         "elapsed_seconds", "ts_request", "captured_at", "more"]
    ),
    VALUE,
    max_size=5,
)  # fmt: skip
SESSION = st.dictionaries(
    st.sampled_from(
        ["harness_id", "harness_session_id", "name", "cwd", "harness_metadata",
         "parent_harness_session_id", "auth_subject"]
    ),
    VALUE,
    max_size=4,
)  # fmt: skip
BLOCK = st.dictionaries(
    st.sampled_from(["type", "text", "tool_use_id", "tool_name", "tool_input", "tool_result_id"]),
    VALUE | st.sampled_from(["text", "tool_use", "tool_result"]),
    max_size=4,
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system"]) | TEXT},
    optional={"content": TEXT | st.lists(BLOCK, max_size=3)},
)
TURN = st.fixed_dictionaries(
    {},
    optional={
        "provider": st.sampled_from(["anthropic", "openai", "ollama", "gemini"]) | VALUE,
        "request": st.fixed_dictionaries({"messages": st.lists(MESSAGE, max_size=4)}) | VALUE,
        "response": st.fixed_dictionaries({"message": MESSAGE, "usage": VALUE}) | VALUE,
        "raw_response": st.binary(max_size=40).map(lambda data: data.hex()) | VALUE,
        "raw_response_encoding": st.sampled_from(["gzip", "zstd", "br", "lzma"]) | VALUE,
        "raw_response_withheld": VALUE,
        "agent_name": VALUE,
        "meta": META | VALUE,
        "session": SESSION | VALUE,
    },
)


def body_of(value: Json) -> bytes:
    return json.dumps(value).encode()


def ids(store: SqlStore) -> set[int]:
    return {raw.id for raw in store.project().stream_turns()}


@pytest.mark.row("D5", "D7")
def test_no_turn_breaks_the_door_the_log_or_the_deriver(store: SqlStore) -> None:
    with door(store) as client:

        @SETTINGS
        @given(TURN | VALUE)
        def send(value: Json) -> None:
            before = ids(store)
            answer = client.post("/v1/ingest", content=body_of(value))
            assert answer.status_code in (202, 400, 422), answer.text
            kept = ids(store) - before
            if answer.status_code == 400:
                assert kept == set()
            else:
                assert answer.json()["id"] in before | kept

        send()
    derived(store)


@pytest.mark.row("D5", "D7")
def test_no_transcript_breaks_the_door_the_log_or_the_deriver(store: SqlStore) -> None:
    record = st.fixed_dictionaries(
        {"type": st.sampled_from(["user", "assistant", "system", "response_item"]) | TEXT},
        optional={
            "message": MESSAGE | VALUE,
            "timestamp": TEXT,
            "isSidechain": st.booleans(),
            "payload": st.fixed_dictionaries(
                {"type": st.sampled_from(["message", "function_call", "token_count", "reasoning"])},
                optional={"role": TEXT, "content": VALUE, "arguments": VALUE, "call_id": TEXT},
            )
            | VALUE,
        },
    )
    told = st.fixed_dictionaries(
        {"session": st.just({"harness_id": "claude", "harness_session_id": "s"}) | SESSION},
        optional={
            "records": st.lists(record | VALUE, max_size=6) | VALUE,
            "agent_id": TEXT,
            "tool_use_id": TEXT,
            "kind": VALUE,
        },
    )
    with door(store) as client:

        @SETTINGS
        @given(told | VALUE)
        def send(value: Json) -> None:
            answer = client.post("/v1/ingest/transcript", content=body_of(value))
            assert answer.status_code in (202, 400), answer.text

        send()
    derived(store)


def anything(value: Json) -> Json:
    """An AnyValue of any JSON, also such as no encoder would write."""
    match value:
        case str():
            return {"stringValue": value}
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [anything(item) for item in value]}}
        case dict():
            pairs = [{"key": name, "value": anything(item)} for name, item in value.items()]
            return {"kvlistValue": {"values": pairs}}
    return None


NAMES = st.sampled_from(
    ["gen_ai.operation.name", "gen_ai.request.model", "gen_ai.input.messages",
     "gen_ai.output.messages", "gen_ai.usage.input_tokens", "gen_ai.conversation.id",
     "gen_ai.response.id", "gen_ai.tool.call.id", "openinference.span.kind", "input.value"]
) | TEXT  # fmt: skip


@pytest.mark.row("D5", "D7")
def test_no_span_breaks_the_door_the_log_or_the_deriver(store: SqlStore) -> None:
    member = {
        "traceId": st.sampled_from(["a" * 32, "B" * 32, "0" * 32, "", "xyz", 5]),
        "spanId": st.sampled_from(["1" * 16, "2" * 16, "0" * 16, "", None]),
        "parentSpanId": st.sampled_from(["", "1" * 16, "2" * 16, "0" * 16, "z"]),
        "startTimeUnixNano": NUMBER | st.sampled_from(["1785000000000000000", "x", ""]),
        "endTimeUnixNano": NUMBER | st.sampled_from(["1785000000000000001", "0"]),
        "name": VALUE,
        "status": VALUE,
        "events": VALUE,
    }
    attributes = st.dictionaries(NAMES, VALUE, max_size=4)

    def made(parts: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
        pairs = [{"key": name, "value": anything(value)} for name, value in parts[1].items()]
        return span("1") | parts[0] | {"attributes": pairs}

    spans = st.tuples(st.fixed_dictionaries({}, optional=member), attributes).map(made)
    with door(store) as client:

        @SETTINGS
        @given(st.lists(spans, max_size=3))
        def send(value: list[Json]) -> None:
            answer = client.post(
                "/v1/traces",
                content=body_of(request(*value)),
                headers={"content-type": "application/json"},
            )
            assert answer.status_code == 200, answer.text
            rejected = int(answer.json().get("partialSuccess", {}).get("rejectedSpans", 0))
            assert 0 <= rejected <= len(value)

        send()
    derived(store)


@pytest.mark.row("D5")
def test_any_bytes_are_answered(store: SqlStore) -> None:
    doors = ("/v1/ingest", "/v1/ingest/batch", "/v1/ingest/transcript", "/v1/traces", "/v1/logs")
    kinds = ("application/json", "application/x-protobuf", "application/x-ndjson", "")
    with door(store) as client:

        @SETTINGS
        @given(
            st.sampled_from(doors),
            st.sampled_from(kinds),
            st.sampled_from(["", "gzip", "zstd", "br", "deflate", "identity", "x, gzip"]),
            st.binary(max_size=60) | st.sampled_from([body_of(payload())[:-5], b"\xef\xbb\xbf{}"]),
        )
        def send(path: str, kind: str, coding: str, body: bytes) -> None:
            headers = {"content-type": kind, "content-encoding": coding}
            answer = client.post(path, content=body, headers=headers)
            assert answer.status_code in (200, 400, 413, 415, 422), answer.text

        send()


@pytest.mark.row("D2", "D3", "D5")
def test_the_order_in_which_turns_arrive_changes_nothing(store: SqlStore) -> None:
    skewed = [
        payload(n, meta={"request_id": f"r{n}", "ts_request": f"20{26 + n % 3}-07-01T12:00:0{n}Z"})
        for n in range(6)
    ]
    with door(store) as client:
        for each in (skewed[4], skewed[1], skewed[5], skewed[0], skewed[3], skewed[2], skewed[1]):
            assert client.post("/v1/ingest", json=each).status_code == 202
    derived(store)
    (session,) = store.project().sessions().items
    spans = store.project().rows_of_session(session.session.id).spans
    shown = [span.request_id for span in sorted(spans, key=lambda s: s.started_at) if span.model]
    assert shown == ["r0", "r3", "r1", "r4", "r2", "r5"]
