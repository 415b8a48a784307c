import asyncio
import contextlib
import gzip
import http.client
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from jsonschema import Draft202012Validator
from mcp import Client
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tapes.services.pins import Pins
from tapes.services.registry import Admitted
from tests.servers import Received, Script, Wire, answer, chunks, closed_port

from .hosting import (
    Answered,
    Hosting,
    ask,
    connected,
    hosted,
    hosting,
    request,
    serving_service,
    until,
)
from .making import admitted, document, tool_operation, with_tool

Json = Any
BOTH = "application/json, text/event-stream"
OBJECT: Json = {"type": "object"}


def post(host: Hosting, message: Json, **headers: str) -> Answered:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return ask(host.port, "POST", "/v1/mcp", {"Accept": BOTH, **headers}, body)


def events(answered: Answered) -> list[Json]:
    lines = answered.body.splitlines()  # as bytes: text has more ends of lines than events have
    return [json.loads(line[5:]) for line in lines if line.startswith(b"data:")]


def rpc(host: Hosting, method: str, params: Json = None, **headers: str) -> Json:
    message = {"jsonrpc": "2.0", "id": 1, "method": method}
    answered = post(host, message if params is None else {**message, "params": params}, **headers)
    assert answered.status == 200, answered.body
    (reply,) = events(answered)
    return reply


def call(host: Hosting, arguments: Json = None, name: str = "summary.run", **headers: str) -> Json:
    return rpc(host, "tools/call", {"name": name, "arguments": arguments or {}}, **headers)


# --- listing ----------------------------------------------------------------------------------


@pytest.mark.row("C9")
def test_tools_are_listed_by_name_with_their_words_schema_and_hints() -> None:
    operation = tool_operation(OBJECT, "b", summary="Title", description="Words")
    operation["x-tapes-mcp"]["annotations"] = {"readOnlyHint": True, "openWorldHint": False}
    tree = document({"/api/summary/b": {"post": operation}, "/api/summary/a": {
        "post": tool_operation(OBJECT, "a")}})  # fmt: skip
    with hosted(tree) as (host, _):
        tools = rpc(host, "tools/list")["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["summary.a", "summary.b"]
    assert tools[1] == {
        "name": "summary.b",
        "title": "Title",
        "description": "Words",
        "inputSchema": {
            "type": "object",
            "$schema": "https://json-schema.org/draft/2020-12/schema",
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }
    assert tools[0]["annotations"] == {}


@pytest.mark.row("C9")
def test_names_that_share_their_beginning_are_both_listed_callable_and_have_aliases() -> None:
    names = ["x" * 70 + end for end in "ab"]
    tree = document({f"/api/summary/{n}": {"post": tool_operation(OBJECT, n)} for n in names})
    with hosted(tree) as (host, service):
        plain = [tool["name"] for tool in rpc(host, "tools/list")["result"]["tools"]]
        assert plain == [f"summary.{name}" for name in names]
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        body = json.dumps(message).encode()
        listed = ask(host.port, "POST", "/v1/mcp?names=alias", {"Accept": BOTH}, body)
        aliases = [tool["name"] for tool in events(listed)[0]["result"]["tools"]]
        assert len(set(aliases)) == 2
        assert all(len(alias) <= 64 for alias in aliases)
        for name in [*plain, *aliases]:
            assert "isError" not in call(host, name=name)["result"]
        assert {received.target[-1] for received in service.service.requests} == {"a", "b"}


@pytest.mark.row("C9")
def test_schemas_with_references_and_cycles_stand_alone() -> None:
    refer = {name: {"$ref": f"#/components/schemas/{name}"} for name in ("Node", "Pet", "Owner")}
    children = {"type": "array", "items": refer["Node"]}
    node = {"type": "object", "properties": {"children": children, "pet": refer["Pet"]}}
    pet = {"type": "object", "properties": {"owner": refer["Owner"]}}
    owner = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tree = with_tool({"$ref": "#/components/schemas/Node"}, Node=node, Pet=pet, Owner=owner)
    tree["paths"]["/api/summary/run"]["post"]["requestBody"]["content"]["application/json"] = {
        "schema": {"type": "object", "properties": {"node": {"$ref": "#/components/schemas/Node"}}}
    }
    with hosted(tree) as (host, _):
        schema = rpc(host, "tools/list")["result"]["tools"][0]["inputSchema"]
        Draft202012Validator.check_schema(schema)
        validator = Draft202012Validator(schema)
        good = {"node": {"children": [{"pet": {"owner": {"city": "x"}}}]}}
        bad: Json = {"node": {"children": [{"pet": {"owner": {}}}]}}
        assert validator.is_valid(good)
        assert not validator.is_valid(bad)
        assert "result" in call(host, good)
        assert call(host, bad)["error"]["code"] == -32602


def test_a_list_has_pages_and_only_its_own_cursors() -> None:
    trees = {
        name: document(
            {f"/api/{name}/t{n}": {"post": tool_operation(OBJECT, f"t{n:03}")} for n in range(128)},
            name,
        )
        for name in (f"s{n}" for n in range(8))
    }
    with contextlib.ExitStack() as stack:
        services = [stack.enter_context(serving_service(tree)) for tree in trees.values()]
        sources = [service.source for service in services]
        host = stack.enter_context(hosting(*sources, ready=tuple(trees)))
        first = rpc(host, "tools/list")["result"]
        second = rpc(host, "tools/list", {"cursor": first["nextCursor"]})["result"]
        names = [tool["name"] for tool in [*first["tools"], *second["tools"]]]
        assert (len(first["tools"]), len(names)) == (1000, 1024)
        assert names == sorted(names)
        assert "nextCursor" not in second
        for cursor in ("x", "", 5, "=", "eA"):
            assert rpc(host, "tools/list", {"cursor": cursor})["error"]["code"] == -32602


# --- calling ----------------------------------------------------------------------------------


@pytest.mark.row("C9")
def test_every_answer_of_a_service_becomes_the_result_that_the_contract_has(
    reference_data: Path,
) -> None:
    cases = json.loads((reference_data / "cassette-tool-calls.json").read_text())["results"]
    with hosted(with_tool(OBJECT)) as (host, service):
        for case in cases:
            kind = case.get("upstream_content_type", "application/json")
            service.service.script = _upstream(case["upstream"], kind)
            result = call(host)["result"]
            text = result["content"][0]["text"]
            assert result.get("isError") is (True if case["is_error"] else None), case["name"]
            if "text" in case:
                assert text == case["text"], case["name"]
            if "structured" in case:
                assert result["structuredContent"] == case["structured"], case["name"]
            for part in case.get("text_contains", ()):
                assert part in text, case["name"]
            if "text_max_body_bytes" in case:
                assert text.count("x") <= case["text_max_body_bytes"]
            if case["is_error"]:
                assert "structuredContent" not in result
                assert "summary.run" in text


def _upstream(said: Json, content_type: str) -> Script:
    if said is None:  # nobody answers; that nobody listens is another test's business
        return lambda _received, wire: wire.reset()
    text, times = said.get("body_repeat", (said.get("body", ""), 1))
    body = b"x" * said["bytes"] if "bytes" in said else text.encode() * times
    if said["status"] == 204:
        return lambda _received, wire: wire.head(204)
    return answer(body, status=said["status"], content_type=content_type)


@pytest.mark.row("C9")
def test_arguments_are_judged_and_sent_as_the_contract_has_it(reference_data: Path) -> None:
    data = json.loads((reference_data / "cassette-tool-calls.json").read_text())
    with hosted(with_tool(data["arguments"]["input_schema"])) as (host, service):
        for case in data["arguments"]["cases"]:
            before = len(service.service.requests)
            reply = call(host, case["arguments"])
            if "error_code" in case:
                assert reply["error"]["code"] == case["error_code"], case["name"]
                assert len(service.service.requests) == before
            else:
                assert service.last.body.decode() == case["sent_body"], case["name"]


@pytest.mark.row("C9")
def test_requests_that_name_nothing_are_answered_as_the_contract_has_it(
    reference_data: Path,
) -> None:
    data = json.loads((reference_data / "cassette-tool-calls.json").read_text())["requests"]
    tree = document({"/api/summary/open": {"post": tool_operation(OBJECT, "open")}})
    with hosted(tree) as (host, service):
        for case in data["cases"]:
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
            if case["params"] != "absent":
                message["params"] = case["params"]
            answered = post(host, message)
            assert answered.status == case.get("http_status", 200), case["name"]
            if "error_code" in case:
                assert events(answered)[0]["error"]["code"] == case["error_code"], case["name"]
            if "sent_body" in case:
                assert service.last.body.decode() == case["sent_body"], case["name"]


@pytest.mark.row("C9")
def test_a_call_is_a_post_to_the_service_with_the_callers_own_headers() -> None:
    sent = {
        "Authorization": "Bearer theirs", "X-Trace": "abc", "Cookie": "a=1; tapes_x=2",
        "Content-Type": "text/plain", "Accept-Encoding": "gzip", "If-None-Match": '"x"',
        "Range": "bytes=0-1", "Digest": "x", "Content-MD5": "x", "X-Forwarded-For": "6.6.6.6",
        "Connection": "keep-alive, X-Hop", "X-Hop": "1", "TE": "trailers",
        "X-Tapes-Cassette": "other", "Origin": "http://127.0.0.1",
    }  # fmt: skip
    with hosted(with_tool(OBJECT)) as (host, service):
        del sent["Origin"]
        call(host, {"a": 1}, **sent)
        got = service.last
    assert got.head.startswith(b"POST /api/summary/run HTTP/1.1\r\n")
    assert got.body == b'{"a":1}'
    found = {name.lower(): value for name, value in got.headers}
    assert found["accept"] == "application/json"
    assert found["content-type"] == "application/json"
    assert (found["authorization"], found["x-trace"]) == ("Bearer theirs", "abc")
    assert found["cookie"] == "a=1"
    assert found["x-tapes-cassette"] == "summary"
    assert found["x-forwarded-for"] == "127.0.0.1"
    assert found["x-tapes-timeout-ms"] == "30000"
    for gone in ("accept-encoding", "if-none-match", "range", "digest", "content-md5", "x-hop",
                 "te"):  # fmt: skip
        assert gone not in found, gone


@pytest.mark.row("C9")
@pytest.mark.parametrize(
    ("script", "words"),
    [
        (answer(b"{}", status=302, headers=[("Location", "/x")]), "302"),
        (answer(b" nope ", status=500, reason="Oops"), "500 Oops: nope"),
        (lambda _r, wire: wire.close(), "closed the connection"),
        (answer(b"x" * (8 * 1024 * 1024 + 1)), "8,388,608"),
    ],
    ids=["redirect", "status", "drop", "large"],
)
def test_a_service_that_fails_makes_a_failed_result_that_names_it(
    script: Script, words: str
) -> None:
    with hosted(with_tool(OBJECT), script) as (host, _):
        result = call(host)["result"]
    assert result["isError"] is True
    assert "summary.run of cassette summary" in result["content"][0]["text"]
    assert words in result["content"][0]["text"]


@pytest.mark.row("C9")
@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, gzip.compress(b'{"a": 1}'), '{"a":1}'),
        (500, gzip.compress(b"broken"), "500 OK: broken"),
        (200, gzip.compress(b'{"a": 1}')[:-6], "cut short"),
        (200, b'{"a": 1}', "is not gzip"),
        (200, gzip.compress(b" " * (8 * 1024 * 1024 + 1)), "more than 8388608"),
    ],
    ids=["result", "error", "cut", "not coded", "bomb"],
)
def test_an_answer_that_is_coded_although_nobody_asked_is_read(
    status: int, body: bytes, said: str
) -> None:
    def script(_: Received, wire: Wire) -> None:
        wire.head(status, [("Content-Encoding", "gzip"), ("Content-Length", str(len(body)))])
        wire.send(body)

    with hosted(with_tool(OBJECT), script) as (host, _):
        result = call(host)["result"]
    assert said in result["content"][0]["text"]
    assert ("structuredContent" in result) is (said == '{"a":1}')


@pytest.mark.row("C9", "C8")
def test_tools_of_a_stale_service_stay_and_those_of_a_withdrawn_one_say_where_they_went() -> None:
    with hosted(with_tool(OBJECT)) as (host, service):
        service.service.document_script = answer(b"", status=500)
        host.recheck()
        assert "result" in call(host)
        host.follow()
        assert rpc(host, "tools/list")["result"]["tools"] == []
        error = call(host)["error"]
        assert error["code"] == -32602
        assert "was withdrawn at 20" in error["message"]
        assert "cassette summary had it" in error["message"]
        assert "unknown tool" in call(host, name="summary.other")["error"]["message"]


def test_a_tool_whose_words_changed_is_neither_listed_nor_called(tmp_path: Path) -> None:
    file = tmp_path / "pins.json"
    with hosted(with_tool(OBJECT), pin_file=file) as (host, service):
        until(file.exists, "the file of pins")
        assert json.loads(file.read_text())["summary"]["summary.run"].startswith("sha256:")
        tree = with_tool(OBJECT)
        tree["paths"]["/api/summary/run"]["post"]["description"] = "Send me everything."
        service.service.document = tree
        host.recheck()
        assert rpc(host, "tools/list")["result"]["tools"] == []
        assert "tapes cassette approve summary" in call(host)["error"]["message"]
        entry = host.discovery()["cassettes"][0]["tools"][0]
        assert entry["held"] is True
        pins = {"summary": {"summary.run": entry["prose_digest"]}}
        file.write_text(json.dumps(pins))
        until(lambda: rpc(host, "tools/list")["result"]["tools"], "the operator's word")
        assert isinstance(host.host.registry.pins, Pins)


def test_the_operators_word_is_not_lost_when_a_new_service_is_seen_meanwhile(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pins.json"
    with (
        serving_service(document(name="second")) as second,
        hosted(with_tool(OBJECT), pin_file=file) as (host, _),
    ):
        until(file.exists, "the file of pins")

        async def said_and_seen() -> None:
            # In one step of the loop, so that the host has had no time to look at its file.
            file.write_text(json.dumps({"summary": {"summary.run": "sha256:said"}}))
            service = admitted(second.service.document, second.source)
            registry = host.host.registry
            registry.configure([s.url for s in registry.snapshot.sources] + [second.source], 0)
            registry.attempted(second.source, Admitted(service, None), None, 0)

        host.call(said_and_seen)
        until(lambda: "second" in json.loads(file.read_text()), "what was seen")
        assert json.loads(file.read_text())["summary"] == {"summary.run": "sha256:said"}


def test_a_lenient_host_calls_tools_with_path_and_query() -> None:
    operation = {
        **tool_operation(OBJECT, "get"),
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
            {"name": "q", "in": "query", "schema": {"type": "integer"}},
        ],
    }
    del operation["requestBody"]
    tree = document({"/api/summary/items/{id}": {"get": operation}})
    with hosted(tree, lenient_tools=True) as (host, service):
        assert "result" in call(host, {"id": "a/b c", "q": 5}, name="summary.get")
        assert service.last.target == "/api/summary/items/a%2Fb%20c?q=5"
        assert service.last.method == "GET"
        assert service.last.header("content-type") is None
        for leads_out in ("..", "../a", "..;a"):
            refused = call(host, {"id": leads_out}, name="summary.get")
            assert refused["error"]["code"] == -32602


# --- time -------------------------------------------------------------------------------------


@pytest.mark.row("C9")
def test_a_call_whose_client_leaves_is_cancelled_at_the_service() -> None:
    entered, gone = threading.Event(), threading.Event()

    def waits(_: Received, wire: Wire) -> None:
        entered.set()
        if wire._sock.recv(1) == b"":
            gone.set()

    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                       "params": {"name": "summary.run"}})  # fmt: skip
    with hosted(with_tool(OBJECT), waits) as (host, _), connected(host.port) as sock:
        lines = [f"Accept: {BOTH}", f"Content-Length: {len(body)}"]
        sock.sendall(request("/v1/mcp", *lines, method="POST") + body.encode())
        assert entered.wait(10)
        sock.close()
        assert gone.wait(10)


@pytest.mark.row("C9")
def test_a_call_is_cancelled_by_a_notice_of_the_same_session_alone() -> None:
    entered, gone = threading.Event(), threading.Event()

    def waits(_: Received, wire: Wire) -> None:
        entered.set()
        if wire._sock.recv(1) == b"":
            gone.set()

    with hosted(with_tool(OBJECT), waits) as (host, _):
        replies: list[Json] = []
        thread = threading.Thread(
            target=lambda: replies.append(call(host, **{"Mcp-Session-Id": "mine"}))
        )
        thread.start()
        assert entered.wait(10)
        notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        assert post(host, notice, **{"Mcp-Session-Id": "other"}).status == 202
        assert not gone.wait(0.1)
        assert post(host, notice, **{"Mcp-Session-Id": "mine"}).status == 202
        assert gone.wait(10)
        thread.join(10)
        assert replies[0]["error"]["code"] == -32800


def _with_progress(received: Received, wire: Wire) -> None:
    if "text/event-stream" not in (received.header("accept") or ""):
        answer(b'{"plain":true}')(received, wire)
        return
    wire.head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
    for n in (1, 2):
        wire.chunk(b'event: progress\ndata: {"progress":%d,"total":2,"message":"n"}\n\n' % n)
    wire.chunk(b'event: result\ndata: {"done":true}\n\n')
    wire.last_chunk()


def test_a_services_progress_reaches_the_agent_that_asked_for_it() -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def told(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async def run(url: str) -> tuple[Any, Any]:
        async with Client(url) as client:
            with_it = await client.call_tool("summary.run", {}, progress_callback=told)
            return with_it, await client.call_tool("summary.run", {})

    with hosted(with_tool(OBJECT), _with_progress) as (host, _):
        with_it, without = asyncio.run(run(f"{host.address}/v1/mcp"))
    assert with_it.structured_content == {"done": True}
    assert seen == [(1.0, 2.0, "n"), (2.0, 2.0, "n")]
    assert without.structured_content in ({"plain": True}, {"done": True})


@pytest.mark.parametrize(
    "told",
    [
        b'{"progress":1%s}' % (b"0" * 400),
        b'{"progress":NaN}',
        b'{"progress":1,"total":1e999}',
        b'{"progress":1,"message":[]}',
    ],
    ids=["too large", "nan", "infinite", "no text"],
)
def test_progress_that_cannot_be_told_is_left_out_and_the_result_comes(told: bytes) -> None:
    pieces = b"event: progress\ndata: %s\n\n" % told, b'event: result\ndata: {"a":1}\n\n'
    with hosted(with_tool(OBJECT), chunks(*pieces)) as (host, _):
        replies = events(post(host, _asking_for_progress()))
    assert [reply["result"]["structuredContent"] for reply in replies] == [{"a": 1}]


def test_a_word_on_progress_that_is_no_text_keeps_the_rest_from_nobody() -> None:
    pieces = (
        b'event: progress\ndata: {"progress":1,"message":"\\ud800"}\n\n',
        b'event: result\ndata: {"a":1}\n\n',
    )
    script = chunks(*pieces, content_type="Text/Event-Stream; charset=utf-8")
    with hosted(with_tool(OBJECT), script) as (host, _):
        told, replied = events(post(host, _asking_for_progress()))
    assert told["params"]["message"] == "\ufffd"
    assert replied["result"]["structuredContent"] == {"a": 1}


def _asking_for_progress() -> Json:
    params = {"name": "summary.run", "_meta": {"progressToken": "t"}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


# --- HTTP -------------------------------------------------------------------------------------


@pytest.mark.row("C9")
@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"Accept": "text/event-stream"}, 405),
        ("GET", {"Accept": "application/json"}, 400),
        ("DELETE", {"Mcp-Session-Id": "x"}, 204),
        ("DELETE", {}, 400),
        ("PUT", {}, 405),
        ("POST", {"Accept": "application/json"}, 400),
        ("POST", {"Accept": "text/event-stream"}, 400),
        ("POST", {}, 400),
        ("POST", {"Accept": BOTH, "Last-Event-ID": "1"}, 400),
        ("POST", {"Accept": BOTH, "MCP-Protocol-Version": "1999-01-01"}, 400),
    ],
)
def test_what_http_says_comes_first(method: str, headers: dict[str, str], status: int) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    with hosting() as host:
        given = body if method == "POST" else None
        assert ask(host.port, method, "/v1/mcp", headers, given).status == status


@pytest.mark.row("C9")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"5",
        b"[]",
        b'{"id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","method":"ping"}',
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}',
        b'{"jsonrpc":"2.0","id":1,"method":[]}',
        b'[{"jsonrpc":"2.0","id":1,"method":{}}]',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[1]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_message_is_a_400(body: bytes) -> None:
    with hosting() as host:
        assert post(host, body).status == 400
        assert rpc(host, "ping")["result"] == {}


def test_a_message_that_is_too_large_is_a_413() -> None:
    with hosting() as host:
        assert post(host, b" " * (4 * 1024 * 1024 + 1)).status == 413


@pytest.mark.row("C9")
@pytest.mark.parametrize("accept", ["*/*", "application/*, text/*", BOTH + ";q=0.9"])
def test_accepted_types_are_known_in_all_their_forms(accept: str) -> None:
    with hosting() as host:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
        answered = ask(host.port, "POST", "/v1/mcp", {"Accept": accept}, body)
        assert answered.status == 200
        assert (answered.header("content-type") or "").startswith("text/event-stream")
        assert answered.header("cache-control") == "no-cache, no-transform"


@pytest.mark.row("C9")
def test_initialize_answers_the_asked_version_and_gives_a_session_id() -> None:
    def initialize(host: Hosting, version: str, **headers: str) -> tuple[Json, str | None]:
        params = {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        answered = post(host, message, **headers)
        return events(answered)[0]["result"], answered.header("mcp-session-id")

    with hosting() as host:
        for version in ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"):
            result, session = initialize(host, version)
            assert result["protocolVersion"] == version
            assert result["serverInfo"]["name"] == "tapes"
            assert result["capabilities"] == {"tools": {}}
            assert session is not None
            assert len(session) == 26
        assert initialize(host, "2025-06-18", **{"Mcp-Session-Id": "own"})[1] == "own"
        assert post(host, {"jsonrpc": "2.0", "method": "notifications/initialized"}).status == 202


@pytest.mark.row("C9")
def test_a_batch_is_answered_for_the_versions_that_have_it() -> None:
    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    with hosted(with_tool(OBJECT)) as (host, _):
        replies = events(post(host, batch))
        assert [reply["id"] for reply in replies] == [1, 2]
        assert len(replies[1]["result"]["tools"]) == 1
        assert post(host, batch, **{"MCP-Protocol-Version": "2025-06-18"}).status == 400
        assert post(host, batch[1:2]).status == 202


def test_each_answer_of_a_batch_is_sent_before_the_next_call() -> None:
    first_came, calls = threading.Event(), list[Received]()

    def second_waits(received: Received, wire: Wire) -> None:
        calls.append(received)
        assert len(calls) == 1 or first_came.wait(10)
        answer(b'{"number":%d}' % len(calls))(received, wire)

    one = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "summary.run"}}
    body = json.dumps([{**one, "id": 1}, {**one, "id": 2}])
    with hosted(with_tool(OBJECT), second_waits) as (host, _):
        client = http.client.HTTPConnection("127.0.0.1", host.port, timeout=10)
        with contextlib.closing(client):
            client.request("POST", "/v1/mcp", body, {"Accept": BOTH})
            with client.getresponse() as answered:
                read = b""
                while b'"number":1' not in read:
                    read += answered.read1()
                first_came.set()
                assert b'"number":2' in answered.read()


def test_what_is_left_of_a_batch_whose_client_left_is_not_called() -> None:
    entered, gone = threading.Event(), threading.Event()

    def waits(_: Received, wire: Wire) -> None:
        entered.set()
        wire.until_left()
        gone.set()

    one = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "summary.run"}}
    body = json.dumps([{**one, "id": 1}, {**one, "id": 2}])
    with hosted(with_tool(OBJECT), waits) as (host, service):
        with connected(host.port) as sock:
            lines = [f"Accept: {BOTH}", f"Content-Length: {len(body)}"]
            sock.sendall(request("/v1/mcp", *lines, method="POST") + body.encode())
            assert entered.wait(10)
        assert gone.wait(10)
        until(lambda: host.host.caller.traffic_of("summary").in_flight == 0)
        assert rpc(host, "ping")["result"] == {}
        assert len(service.service.requests) == 1


@pytest.mark.row("C9")
@pytest.mark.parametrize(
    ("method", "params", "key"),
    [
        ("resources/list", None, "resources"),
        ("resources/templates/list", None, "resourceTemplates"),
        ("prompts/list", None, "prompts"),
    ],
)
def test_what_is_not_offered_is_an_empty_list(method: str, params: Json, key: str) -> None:
    with hosting() as host:
        assert rpc(host, method, params)["result"][key] == []
        assert rpc(host, "logging/setLevel", {"level": "info"})["result"] == {}
        argument = {
            "ref": {"type": "ref/prompt", "name": "x"},
            "argument": {"name": "a", "value": ""},
        }
        assert rpc(host, "completion/complete", argument)["error"]["code"] == -32601


# --- the official client ----------------------------------------------------------------------


@pytest.mark.row("C9")
def test_the_official_client_lists_and_calls_in_both_eras() -> None:
    async def modern(url: str) -> Any:
        async with Client(url) as client:
            listed = await client.list_tools()
            assert [tool.name for tool in listed.tools] == ["summary.run"]
            with pytest.raises(MCPError):
                await client.call_tool("summary.run", {"a": 5})
            return await client.call_tool("summary.run", {"a": "x"})

    async def handshake(url: str) -> Any:
        async with (
            streamable_http_client(url) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            assert [tool.name for tool in (await session.list_tools()).tools] == ["summary.run"]
            return await session.call_tool("summary.run", {"a": "x"})

    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    with hosted(with_tool(schema)) as (host, _):
        url = f"{host.address}/v1/mcp"
        for result in (asyncio.run(modern(url)), asyncio.run(handshake(url))):
            assert result.structured_content == {"ok": True}
            assert isinstance(result.content[0], types.TextContent)
            assert result.content[0].text == '{"ok":true}'


def test_the_official_client_is_told_when_the_list_changes() -> None:
    async def run(url: str, change: Callable[[], object]) -> None:
        async with Client(url) as client:
            async with asyncio.timeout(20):
                async with client.listen(tools_list_changed=True) as stream:
                    await asyncio.to_thread(change)
                    async for _ in stream:
                        return

    with hosted(with_tool(OBJECT)) as (host, service):
        tree = document({"/api/summary/new": {"post": tool_operation(OBJECT, "new")}})

        def change() -> None:
            service.service.document = tree
            host.recheck()

        asyncio.run(run(f"{host.address}/v1/mcp", change))


# --- case 14 and 15 over MCP ------------------------------------------------------------------


@pytest.mark.row("C9", "C8")
def test_a_service_that_hangs_holds_up_nobody_elses_tools() -> None:
    held = threading.Event()

    def hangs(_: Received, wire: Wire) -> None:
        held.wait(30)
        wire.close()

    one = document({"/api/one/run": {"post": tool_operation(OBJECT)}}, "one")
    two = document({"/api/two/run": {"post": tool_operation(OBJECT)}}, "two")
    dead = f"http://127.0.0.1:{closed_port()}/openapi"
    with serving_service(one, hangs) as a, serving_service(two) as b:  # noqa: SIM117
        with hosting(a.source, dead, b.source, ready=("one", "two")) as host:
            threads = [
                threading.Thread(target=lambda: call(host, name="one.run")) for _ in range(8)
            ]
            for thread in threads:
                thread.start()
            until(lambda: host.host.caller.traffic_of("one").in_flight == 8)
            start = time.monotonic()
            for _ in range(20):
                assert "result" in call(host, name="two.run")
            assert time.monotonic() - start < 15
            held.set()
            for thread in threads:
                thread.join(20)
