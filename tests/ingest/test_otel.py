"""OTLP in: the real SDK and its exporter, spans by hand in both encodings, and what is refused."""

import base64
import gzip
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.protobuf import json_format
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Status as OtelStatus
from opentelemetry.trace import StatusCode, Tracer

from tapes.errors import UnavailableStore
from tapes.exporting import Export, Form, sessions_found
from tapes.ingest.app import ingest_app
from tapes.ingest.otlp import spans_of_json
from tapes.jsontext import Json
from tapes.keeping import open_projector
from tapes.rows import Projection, RawTurn, Session, Source, Span, SpanKind, Status
from tapes.seeding import seed
from tapes.store.filters import EVERYTHING
from tapes.store.sql import SqlStore
from tapes.store.sqlite import open_sqlite
from tests.conftest import OpenStore
from tests.doors import derived, door, serving
from tests.ingest.payloads import raw_payload
from tests.ingest.spans import NOW, T1, attributes, request, span

CONVERSATION = "gen_ai.conversation.id"


@contextmanager
def sdk(store: SqlStore) -> Iterator[Tracer]:
    """A tracer whose spans are exported to a door over this store."""
    with serving(ingest_app(store)) as url:
        provider = TracerProvider(resource=Resource({"service.name": "weather"}))
        exporter = OTLPSpanExporter(endpoint=f"{url}/v1/traces")
        provider.add_span_processor(BatchSpanProcessor(exporter))
        yield provider.get_tracer("my.lib", "1.0")
        provider.shutdown()


def turns(store: SqlStore) -> list[RawTurn]:
    return list(store.project().stream_turns())


def sessions(store: SqlStore) -> list[Session]:
    return [item.session for item in store.project().sessions().items]


def rows(store: SqlStore) -> Projection:
    """All rows of the one session that there is."""
    derived(store)
    (session,) = sessions(store)
    return store.project().rows_of_session(session.id)


def post(client: httpx.Client, value: Json) -> httpx.Response:
    return client.post("/v1/traces", json=value)


def of_kind(projection: Projection, kind: SpanKind) -> list[Span]:
    return [span for span in projection.spans if span.kind is kind]


# --- the SDK ----------------------------------------------------------------------------------


def agent_run(tracer: Tracer) -> None:
    """An agent that calls a model, then a tool, then the model."""
    asked = [{"role": "user", "parts": [{"type": "text", "content": "How warm is it?"}]}]
    call = {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Bonn"}}
    result = {"type": "tool_call_response", "id": "c1", "response": "21 degrees"}
    with tracer.start_as_current_span("invoke_agent guide") as agent:
        agent.set_attributes({"gen_ai.operation.name": "invoke_agent", CONVERSATION: "conv-1"})
        agent.set_attributes({"gen_ai.agent.name": "guide"})
        agent.set_attributes({"gen_ai.usage.input_tokens": 150, "gen_ai.usage.output_tokens": 15})
        with tracer.start_as_current_span("chat gpt-test") as chat:
            said = [{"role": "assistant", "parts": [call], "finish_reason": "tool_call"}]
            chat.set_attributes(chat_attributes(asked, said, tokens=(50, 5), response_id="resp-1"))
        with tracer.start_as_current_span("execute_tool weather") as tool:
            tool.set_attributes(
                {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": "weather",
                    "gen_ai.tool.call.id": "c1",
                    "gen_ai.tool.call.arguments": '{"city": "Bonn"}',
                    "gen_ai.tool.call.result": '"21 degrees"',
                    "acme.cache": "cold",
                }
            )
        history = [
            *asked,
            {"role": "assistant", "parts": [call]},
            {"role": "tool", "parts": [result]},
        ]
        with tracer.start_as_current_span("chat gpt-test") as chat:
            text = [{"type": "text", "content": "21 degrees."}]
            said = [{"role": "assistant", "parts": text, "finish_reason": "stop"}]
            chat.set_attributes(
                chat_attributes(history, said, tokens=(100, 10), response_id="resp-2")
            )


def chat_attributes(
    asked: Json, said: Json, *, tokens: tuple[int, int], response_id: str
) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-test",
        "gen_ai.response.model": "gpt-test-2026",
        "gen_ai.response.id": response_id,
        "gen_ai.usage.input_tokens": tokens[0],
        "gen_ai.usage.output_tokens": tokens[1],
        "gen_ai.input.messages": json.dumps(asked),
        "gen_ai.output.messages": json.dumps(said),
    }


@pytest.mark.row("D5")
def test_what_says_no_words_is_called_by_its_first_span(store: SqlStore) -> None:
    with (
        sdk(store) as tracer,
        tracer.start_as_current_span("invoke_agent weather"),
        tracer.start_as_current_span("chat gpt-test") as call,
    ):
        call.set_attributes({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})
    projection = rows(store)
    (session,), (trace,) = projection.sessions, projection.traces
    assert (session.preview, trace.user_prompt) == ("", "")
    assert (session.derived_title, trace.name) == ("invoke_agent weather", "invoke_agent weather")


@pytest.mark.row("D5")
def test_an_agent_that_the_sdk_traces_shows_whole(store: SqlStore) -> None:
    with sdk(store) as tracer:
        agent_run(tracer)
    projection = rows(store)
    (session,), (trace,) = projection.sessions, projection.traces
    assert (session.harness_session_id, session.agent_name) == ("conv-1", "weather")
    # What the agent claims for its calls is shown there, and added nowhere.
    assert (session.total_input_tokens, session.total_output_tokens) == (150, 15)
    assert session.llm_calls == 2
    assert (session.derived_title, session.preview) == ("", "How warm is it?")
    assert (trace.user_prompt, trace.response_preview) == ("How warm is it?", "21 degrees.")
    agent, first, tool, second = projection.spans
    assert [s.kind.value for s in projection.spans] == ["agent", "llm", "tool", "llm"]
    assert {s.parent_span_id for s in (first, tool, second)} == {agent.span_id}
    assert (agent.agent, agent.usage["prompt_tokens"]) == ("guide", 150)
    assert (first.request_model, first.model) == ("gpt-test", "gpt-test-2026")
    assert first.output[0]["tool_input"] == {"city": "Bonn"}
    assert tool.input[0]["tool_input"] == {"city": "Bonn"}
    assert "21 degrees" in tool.output[0]["tool_output"]
    assert second.input[0]["tool_output"] == "21 degrees"
    assert sorted(link.kind.value for link in projection.links) == ["emits", "feeds"]


def test_what_is_not_understood_is_shown_as_it_came(store: SqlStore) -> None:
    with sdk(store) as tracer:
        agent_run(tracer)
    (tool,) = of_kind(rows(store), SpanKind.TOOL)
    assert {"type": "attributes", "content": {"acme.cache": "cold"}} in tool.input


def test_a_failed_call_is_a_failed_span(store: SqlStore) -> None:
    with sdk(store) as tracer, tracer.start_as_current_span("chat m") as chat:
        chat.set_attributes({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})
        chat.set_attribute("error.type", "rate_limit")
        chat.record_exception(ValueError("slow down"))
        chat.set_status(OtelStatus(StatusCode.ERROR, "slow down"))
    projection = rows(store)
    llm, event = projection.spans
    assert (llm.status, llm.error_type) == (Status.ERROR, "rate_limit")
    assert (event.kind, event.name, event.error_type) == (
        SpanKind.EVENT, "exception", "ValueError",
    )  # fmt: skip
    assert projection.sessions[0].failed_calls == 1


def test_content_in_an_event_of_the_logs_shows_at_its_span(store: SqlStore) -> None:
    said = [{"role": "assistant", "parts": [{"type": "text", "content": "From the log"}]}]
    with serving(ingest_app(store)) as url:
        tracing, logging = TracerProvider(), LoggerProvider()
        spans = OTLPSpanExporter(endpoint=f"{url}/v1/traces")
        tracing.add_span_processor(BatchSpanProcessor(spans))
        logs = OTLPLogExporter(endpoint=f"{url}/v1/logs")
        logging.add_log_record_processor(BatchLogRecordProcessor(logs))
        with tracing.get_tracer("a").start_as_current_span("chat m") as chat:
            chat.set_attributes({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})
            logging.get_logger("a").emit(
                timestamp=time.time_ns(),
                event_name="gen_ai.client.inference.operation.details",
                attributes={"gen_ai.output.messages": json.dumps(said)},
            )
        logging.shutdown()
        tracing.shutdown()
    (llm,) = of_kind(rows(store), SpanKind.LLM)
    assert llm.output == ({"type": "text", "text": "From the log"},)


# --- by hand ----------------------------------------------------------------------------------


@pytest.mark.row("D5")
def test_one_bad_span_harms_no_other_and_is_named(store: SqlStore) -> None:
    month_ago = NOW - 30 * 86_400 * 1_000_000_000
    good, old = span("1"), span("2", trace="b" * 32, at=month_ago)
    bad = span("3", trace="0" * 32)
    with door(store) as client:
        answer = post(client, request(good, old, bad))
        again = post(client, request(good, old, bad))
    assert answer.status_code == again.status_code == 200
    partial = answer.json()["partialSuccess"]
    assert (partial["rejectedSpans"], partial["errorMessage"]) == ("1", "1 × invalid trace id")
    assert sorted(raw.started_at or 0 for raw in turns(store)) == [month_ago, NOW]


def test_what_is_no_list_and_no_number_is_rejected_or_kept_as_text(store: SqlStore) -> None:
    odd = span("1")
    odd["attributes"] = [{"key": "far", "value": {"doubleValue": 10**400}}]
    with door(store) as client:
        answer = post(client, request(odd))
        none = post(client, {"resourceSpans": [{"scopeSpans": [{"spans": 5}]}]})
    assert (answer.status_code, answer.json()) == (200, {})
    assert none.json()["partialSuccess"]["errorMessage"] == "1 × no object in spans"
    (turn,) = turns(store)
    assert turn.records["attributes"] == {"far": str(10**400)}


def test_both_encodings_are_the_same_span(store: SqlStore) -> None:
    one = span("1", {"gen_ai.request.model": "m", "n": 5, "x": 1.5, "on": True, "l": ["a"]})
    data = in_protobuf(request(one))
    with door(store) as client:
        assert post(client, request(one)).json() == {}
        answer = client.post(
            "/v1/traces",
            content=gzip.compress(data),
            headers={"content-type": "application/x-protobuf", "content-encoding": "gzip"},
        )
    assert answer.headers["content-type"] == "application/x-protobuf"
    assert ExportTraceServiceResponse.FromString(answer.content) == ExportTraceServiceResponse()
    (raw,) = turns(store)
    assert raw.source is Source.OTLP


def test_protobuf_says_in_protobuf_what_it_rejects(store: SqlStore) -> None:
    data = in_protobuf(request(span("1", trace="0" * 32)))
    with door(store) as client:
        answer = client.post(
            "/v1/traces", content=data, headers={"content-type": "application/x-protobuf"}
        )
    told = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (told.rejected_spans, told.error_message) == (1, "1 × invalid trace id")


def in_protobuf(value: Json) -> bytes:
    """The protobuf of an OTLP/JSON request, by the conventions' own reader."""
    coded = json.loads(json.dumps(value))
    for of_resource in coded["resourceSpans"]:
        for of_scope in of_resource["scopeSpans"]:
            for each in of_scope["spans"]:
                for name in ("traceId", "spanId", "parentSpanId"):
                    if each.get(name):  # hex there, base64 in protobuf's JSON
                        each[name] = base64.b64encode(bytes.fromhex(each[name])).decode()
    message = json_format.ParseDict(coded, ExportTraceServiceRequest())
    data: bytes = message.SerializeToString()
    return data


@pytest.mark.row("D2")
def test_the_last_state_of_a_span_replaces_the_first(store: SqlStore) -> None:
    tokens: Json = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    running = span("1", tokens, ends=0)
    ended = span("1", tokens | {"gen_ai.usage.input_tokens": 7})
    with door(store) as client:
        post(client, request(running))
        (seen,) = rows(store).spans
        assert seen.status is Status.RUNNING
        post(client, request(ended))
        post(client, request(running))
        post(client, request(ended))
    (seen,) = rows(store).spans
    assert (seen.status, seen.duration_ns) == (Status.OK, 1_000_000_000)
    assert sessions(store)[0].total_input_tokens == 7
    assert len(turns(store)) == 2


def test_a_missing_parent_has_a_placeholder_until_it_comes(store: SqlStore) -> None:
    root, child = span("a"), span("c", parent="b", at=NOW + 20)
    late = span("b", parent="a", at=NOW + 10)
    with door(store) as client:
        post(client, request(root, child))
        before = rows(store)
        assert [(s.span_id[-1], s.status.value) for s in before.spans] == [
            ("a", "ok"), ("b", "missing"), ("c", "ok"),
        ]  # fmt: skip
        assert (before.traces[0].span_count, before.traces[0].missing_count) == (2, 1)
        post(client, request(late))
    after = rows(store)
    assert [s.span_id for s in after.spans] == [s.span_id for s in before.spans]
    assert (after.traces[0].span_count, after.traces[0].missing_count) == (3, 0)


@pytest.mark.row("D5")
def test_of_spans_that_name_each_other_as_parents_the_first_hangs_at_the_top(
    store: SqlStore,
) -> None:
    chat = {"gen_ai.operation.name": "chat", "gen_ai.usage.output_tokens": 7}
    given = [
        span("1", chat, parent="1"),
        span("2", parent="4", at=NOW + 2),
        span("3", chat, parent="2", at=NOW + 1),
        span("4", parent="3", at=NOW + 3),
        span("5", parent="4", at=NOW + 4),
    ]
    with door(store) as client:
        post(client, request(*given))
    made = rows(store)
    above = {s.span_id[0]: s.parent_span_id[:1] for s in made.spans}
    assert above == {"1": "", "3": "", "4": "3", "2": "4", "5": "4"}
    assert made.traces[0].total_output_tokens == 14


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["root-first", "root-last"])
def test_a_trace_lies_in_the_conversation_that_one_of_its_spans_names(
    open_store: OpenStore, order: Sequence[int]
) -> None:
    sent = [
        request(span("a", {CONVERSATION: "talk"})),
        request(span("b", {"gen_ai.operation.name": "chat"}, parent="a")),
    ]
    store = open_store()
    for number in order:
        with door(open_store()) as client:  # another process each time: nothing is remembered
            post(client, sent[number])
        derived(store)
    projection = rows(store)
    assert projection.sessions[0].harness_session_id == "talk"
    assert [s.span_id[-1] for s in projection.spans] == ["a", "b"]
    assert projection.traces[0].trace_id == T1


def test_two_conversations_in_one_trace_stay_two(store: SqlStore) -> None:
    one = span("a", {CONVERSATION: "one"})
    two = span("b", {CONVERSATION: "two"}, parent="a", at=NOW + 5)
    with door(store) as client:
        post(client, request(one, two))
    derived(store)
    found = {session.harness_session_id: session for session in sessions(store)}
    assert set(found) == {"one", "two"}
    traces = {
        name: store.project().rows_of_session(session.id).traces[0].trace_id
        for name, session in found.items()
    }
    assert traces["one"] == T1
    assert traces["two"].startswith(f"{T1}-")


def test_a_trace_without_a_conversation_is_a_session_of_its_own(store: SqlStore) -> None:
    with door(store) as client:
        post(client, request(span("a")))
    derived(store)
    (session,) = sessions(store)
    assert (session.harness_session_id, session.session_by) == (T1, "trace")


@pytest.mark.row("D3")
def test_the_same_call_seen_by_two_lanes_is_one_span(store: SqlStore) -> None:
    names: Json = {"gen_ai.operation.name": "chat", "gen_ai.response.id": "msg_0123456789"}
    names |= {"gen_ai.usage.input_tokens": 7, "gen_ai.request.model": "claude-test"}
    with door(store) as client:
        client.post("/v1/ingest", json=raw_payload(session={"harness_session_id": "s"}))
        derived(store)
        post(client, request(span("a"), span("b", names, parent="a")))
    projection = rows(store)
    assert projection.sessions[0].llm_calls == 1
    assert projection.sessions[0].total_input_tokens == 7
    assert len(of_kind(projection, SpanKind.LLM)) == 1
    assert len(projection.traces) == 2


def test_what_is_around_a_call_of_the_proxy_is_not_counted_either(store: SqlStore) -> None:
    names: Json = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "claude-test"}
    names |= {"gen_ai.usage.input_tokens": 7}
    inner: Json = names | {"gen_ai.response.id": "msg_0123456789"}
    with door(store) as client:
        client.post("/v1/ingest", json=raw_payload(session={"harness_session_id": "s"}))
        derived(store)
        post(client, request(span("a"), span("b", names, parent="a"), span("c", inner, parent="b")))
    projection = rows(store)
    assert projection.sessions[0].llm_calls == 1
    assert projection.sessions[0].total_input_tokens == 7
    assert len(of_kind(projection, SpanKind.LLM)) == 1


def test_credentials_in_attributes_do_not_come_to_rest(store: SqlStore) -> None:
    secret = "TEST-QUERY-0123456789"
    held = {
        "url.full": f"https://api.test/v1/models?key={secret}",
        "http.request.header.authorization": [f"Bearer {secret}"],
        "http.request.header.x-api-key": secret,
        "note": "sk-ant-api03-" + "Q7" * 46 + "-ABCDEFAA",
    }
    with door(store) as client:
        assert post(client, request(span("1", held))).status_code == 200
    (raw,) = turns(store)
    assert secret not in repr(raw)
    assert "sk-ant-api03" not in repr(raw)


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/json", b"{", 400),
        ("application/json", b"[]", 400),
        ("application/json", b'{"resourceSpans": 5}', 400),
        ("application/x-protobuf", b"\xff\xff\xff", 400),
        ("text/plain", b"{}", 415),
        ("application/json", b"{}", 200),
        ("application/x-protobuf", b"", 200),
    ],
    ids=["cut", "list", "number", "protobuf", "text", "empty", "empty-protobuf"],
)
def test_what_is_no_otlp_is_refused(store: SqlStore, kind: str, body: bytes, status: int) -> None:
    with door(store) as client:
        # An empty JSON body is none; an empty protobuf is a request without spans.
        answer = client.post("/v1/traces", content=body, headers={"content-type": kind})
    assert answer.status_code == status
    assert turns(store) == []


def test_a_store_that_is_gone_makes_senders_come_again(store: SqlStore) -> None:
    class Gone:
        """The store, while its database cannot be reached."""

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def append(self, turns: Any) -> Any:
            raise UnavailableStore("the database is gone")

    with door(Gone()) as client:
        answer = post(client, request(span("1")))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_logs_of_no_model_call_are_rejected_by_name(store: SqlStore) -> None:
    record = {"traceId": T1, "spanId": "1" * 16, "body": {"stringValue": "hello"}}
    value = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record, {}]}]}]}
    with door(store) as client:
        partial = client.post("/v1/logs", json=value).json()["partialSuccess"]
    assert partial["rejectedLogRecords"] == "2"
    assert "no model call" in partial["errorMessage"]
    assert turns(store) == []


def test_logs_are_answered_in_protobuf_too(store: SqlStore) -> None:
    kind = {"content-type": "application/x-protobuf"}
    with door(store) as client:
        answer = client.post("/v1/logs", content=b"", headers=kind)
    assert ExportLogsServiceResponse.FromString(answer.content) == ExportLogsServiceResponse()


def test_data_points_are_counted_and_said_not_to_be_kept(store: SqlStore) -> None:
    points = {"name": "m", "sum": {"dataPoints": [{"asInt": "1"}, {"asInt": "2"}]}}
    value = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [points]}]}]}
    with door(store) as client:
        partial = client.post("/v1/metrics", json=value).json()["partialSuccess"]
        text = client.get("/metrics").text
    assert partial["rejectedDataPoints"] == "2"
    assert 'tapes_otlp_items_total{signal="metrics",outcome="rejected",reason=""} 2' in text


def test_every_name_of_an_attribute_survives(store: SqlStore) -> None:
    with door(store) as client:
        body = json.dumps(request(span("1", {"a\x00b": "c\x00d", "half": "\ud800"})))
        client.post("/v1/traces", content=body, headers={"content-type": "application/json"})
    (raw,) = turns(store)
    assert raw.records["attributes"] == {"a\ufffdb": "c\ufffdd", "half": "\ufffd"}
    derived(store)


def sums_of(store: SqlStore) -> dict[str, dict[str, object]]:
    """What counts of each session, by its own id."""
    names = [field.name for field in fields(Session)]
    counted = [n for n in names if n.endswith(("_tokens", "_cost_usd", "_calls"))]
    counted += ["harness_id", "tool_result_count", "derived_status"]
    return {
        each.session.harness_session_id: {n: getattr(each.session, n) for n in counted}
        for each in store.project().sessions().items
    }


@pytest.mark.row("D3")
def test_tokens_and_money_that_left_as_otlp_come_back_unchanged(
    store: SqlStore, tmp_path: Path
) -> None:
    log = open_sqlite(tmp_path / "log.db")
    seed(log)
    open_projector(log).drain()
    found = sessions_found(log.project(), EVERYTHING)
    document = b"".join(Export(log.project(), Form.OTLP, content=True).pieces(found))
    with door(store) as client:
        for _ in range(2):  # the second time changes nothing
            answer = client.post(
                "/v1/traces", content=document, headers={"content-type": "application/json"}
            )
            assert (answer.status_code, answer.json()) == (200, {})
    open_projector(store).drain()
    assert sums_of(store) == sums_of(log)
    assert any(each["cache_read_tokens"] for each in sums_of(log).values())
    log.close()


def test_what_otlp_has_no_word_for_comes_back_too(store: SqlStore, tmp_path: Path) -> None:
    """Parts of tokens, an event, a tool that runs on, a parent that nobody sent."""
    log = open_sqlite(tmp_path / "log.db")
    said: dict[str, Json] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gemini-x",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.conversation.id": "c",
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.reasoning.output_tokens": 40,
        "gen_ai.usage.cache_creation.input_tokens": 12,
        "tapes.usage.cache_creation_1h.input_tokens": 7,
        "acme.cache": {"state": "cold", "age": 3},
    }
    slow: Json = {"exception.type": "Slow"}
    event: Json = {"timeUnixNano": str(NOW), "name": "exception", "attributes": attributes(slow)}
    tool: dict[str, Json] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t"}
    with door(log) as client:
        first = span("1", said, events=[event])
        assert post(client, request(first, span("2", tool, parent="f", ends=0))).json() == {}
    before = told_of(log)
    assert {told[2] for told in before} == {"ok", "error", "running", "missing"}
    found = sessions_found(log.project(), EVERYTHING)
    document = b"".join(Export(log.project(), Form.OTLP, content=True).pieces(found))
    with door(store) as client:
        assert post(client, json.loads(document)).json() == {}
    assert told_of(store) == before
    assert any("'reasoning_tokens': 40" in str(told) for told in before)
    assert any("'cache_creation_1h_input_tokens': 7" in str(told) for told in before)
    log.close()


def told_of(store: SqlStore) -> list[tuple[str, ...]]:
    told = []
    for s in rows(store).spans:
        facts = (s.trace_id, s.span_id, s.status, s.error_type, s.duration_ns, s.provider, s.usage)
        told.append((*map(str, facts), str("acme.cache" in str(s.input))))
    return sorted(told)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"attributes": {"gen_ai.operation.name": "chat"}}, "attributes: no list of objects"),
        ({"attributes": [{"key": "a", "value": "plain"}]}, "a value: no object"),
        ({"attributes": [{"key": "a", "value": {"stringValue": 5}}]}, "a text is no text"),
        ({"attributes": [{"key": "a", "value": {"arrayValue": [1]}}]}, "a list: no object"),
        ({"attributes": [{"key": "a", "value": {"kvlistValue": 5}}]}, "a map: no object"),
        ({"events": {"name": "exception"}}, "events: no list of objects"),
        ({"links": ["another"]}, "links: no list of objects"),
        ({"status": "ERROR"}, "status: no object"),
    ],
)
def test_what_is_of_a_wrong_type_is_never_dropped_in_silence(
    said: dict[str, Json], why: str
) -> None:
    received = spans_of_json(request(span("1") | said, span("2")))
    assert [form["span_id"] for form in received.forms] == [span("2")["spanId"]]
    assert why in received.message()


def test_a_list_in_the_wrong_place_is_counted(store: SqlStore) -> None:
    sent = {"resourceSpans": [{"scopeSpans": "none"}, 5, {"resource": [], "scopeSpans": [
        {"spans": [span("1")]}
    ]}]}  # fmt: skip
    with door(store) as client:
        told = post(client, sent).json()["partialSuccess"]
    assert told["rejectedSpans"] == "3"
    assert told["errorMessage"] == (
        "1 × no object in resourceSpans; 1 × no object in scopeSpans; 1 × resource: no object"
    )
