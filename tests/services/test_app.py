import http.client
import json
import threading
from typing import Any

import pytest
from fastapi import FastAPI
from openapi_spec_validator import validate

from tapes.access import Access, token_hash
from tests.servers import Received, Wire, answer, closed_port

from .hosting import hosted, hosting, serving_service
from .making import document, manifest_tree, tool_operation

Json = Any
FULL = manifest_tree(
    cassette={
        "name": "summary",
        "version": "1.0.0",
        "display_name": "Summary",
        "description": "Sums up.",
        "license": "MIT",
        "homepage": "https://example.org",
        "image": "summary:1",
        "port": 9999,
    },
    depends={"core": "v1", "views": ["spans", "sessions"]},
    tables=[{"name": "b"}, {"name": "a"}],
    config=[
        {"key": "llm.model", "type": "string", "required": True, "enum": ["x", "y"]},
        {
            "key": "batch",
            "type": "int",
            "default": 0,
            "min": 0,
            "max": 5,
            "description": "N.",
        },
        {"key": "llm.key", "type": "string", "secret": True},
    ],
)


# --- discovery --------------------------------------------------------------------------------


@pytest.mark.row("C5", "C11")
def test_discovery_has_the_contracts_members_in_its_order_and_its_own_behind_them() -> None:
    with hosted(document() | {"x-tapes-cassette": FULL}) as (host, _):
        said = host.discovery()
    assert list(said)[:3] == ["contract_version", "cassettes", "problems"]
    (entry,) = said["cassettes"]
    assert list(entry)[:11] == [
        "name", "version", "display_name", "description", "route_prefix", "depends", "tables",
        "config", "openapi_path", "openapi_status", "manifest_digest",
    ]  # fmt: skip
    assert entry["depends"] == {"core": "v1", "views": ["spans", "sessions"]}
    assert entry["tables"] == ["summary.a", "summary.b"]
    assert entry["route_prefix"] == "/v1/cassettes/summary"
    assert entry["config"] == [
        {"key": "llm.model", "type": "string", "required": True, "secret": False,
         "environment": "CASSETTE_LLM_MODEL", "enum": ["x", "y"]},
        {"key": "batch", "type": "int", "required": False, "secret": False, "default": 0,
         "description": "N.", "environment": "CASSETTE_BATCH", "min": 0, "max": 5},
        {"key": "llm.key", "type": "string", "required": False, "secret": True,
         "environment": "CASSETTE_LLM_KEY"},
    ]  # fmt: skip
    assert entry["grants"]["selects"] == ["tapes_v1.sessions", "tapes_v1.spans"]
    assert (entry["image"], entry["port"], entry["license"]) == ("summary:1", 9999, "MIT")


@pytest.mark.row("C5")
def test_members_that_are_empty_are_left_out_as_the_contract_has_it() -> None:
    with hosted() as (host, _):
        (entry,) = host.discovery()["cassettes"]
    assert "display_name" not in entry
    assert "description" not in entry
    assert (entry["tables"], entry["config"]) == ([], [])


@pytest.mark.row("C5", "C14")
def test_a_rejected_source_has_a_code_times_a_count_and_a_remedy() -> None:
    with serving_service(document({"/elsewhere": {}})) as service, hosting(service.source) as host:
        host.recheck()
        said = host.discovery()
    (problem,) = said["problems"]
    assert list(problem)[:2] == ["subject", "reason"]
    assert problem["code"] == "path_outside"
    assert problem["count"] >= 2
    assert problem["since"] < problem["last"] < problem["next_attempt"]
    assert problem["problems"][0]["field"] == "#/paths/~1elsewhere"
    assert problem["remedy"].endswith(f"tapes cassette validate {service.source}")
    assert said["sources"][0]["health"]["state"] == "degraded"


def test_a_remedy_tells_nothing_that_its_source_must_hide() -> None:
    wrong = document({"/elsewhere": {}})
    with serving_service(wrong) as service, hosting(f"{service.source}?key=hush") as host:
        host.recheck()
        (problem,) = host.discovery()["problems"]
    assert "hush" not in str(problem)
    assert problem["remedy"].endswith("tapes cassette validate URL")


@pytest.mark.row("C5")
@pytest.mark.parametrize("path", ["/v1/cassettes", "/v1/cassettes/", "/V1/Cassettes"])
def test_discovery_answers_get_and_head_and_nothing_else(path: str) -> None:
    with hosted() as (host, _):
        assert host.get(path).status == 200
        head = host.get(path, "HEAD")
        assert (head.status, head.body) == (200, b"")
        refused = host.get(path, "POST")
        assert (refused.status, refused.header("allow")) == (405, "GET, HEAD")


# --- documents --------------------------------------------------------------------------------


@pytest.mark.row("C6")
def test_a_services_document_has_an_etag_and_answers_conditional_requests() -> None:
    path = "/v1/cassettes/summary/openapi.json"
    with hosted() as (host, service):
        whole = host.get(path)
        etag = whole.header("etag") or ""
        assert (whole.status, whole.header("content-type")) == (200, "application/json")
        published = host.snapshot.services["summary"].service
        assert published is not None
        assert (whole.body, etag) == (published.document, published.etag)
        for tag in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            kept = host.get(path, **{"If-None-Match": tag})
            assert (kept.status, kept.body, kept.header("etag")) == (304, b"", etag), tag
        assert host.get(path, **{"If-None-Match": '"other"'}).status == 200
        assert host.get(path, "HEAD").header("content-length") == str(len(whole.body))
        assert host.get(path, "POST").status == 405
        assert host.get("/v1/cassettes/nobody/openapi.json").status == 404
        assert service.service.requests == []
        service.server.close()
        assert host.get(path).body == whole.body


@pytest.mark.row("C4", "C6")
def test_the_aggregate_is_valid_and_has_the_hosts_own_routes_and_every_services() -> None:
    own = FastAPI(title="host", version="v1")

    @own.get("/v1/sessions", operation_id="listSessions")
    def sessions() -> list[str]:
        return ["one"]

    error = {"type": "object", "properties": {"code": {"type": "integer"}}}
    trees = [
        document(
            {
                f"/api/{name}/x": {
                    "get": {
                        "operationId": "same",
                        "responses": {
                            "400": {
                                "description": "",
                                "content": {
                                    "application/json": {
                                        "schema": {"$ref": "#/components/schemas/Error"}
                                    }
                                },
                            }
                        },
                    }
                }
            },
            name,
            components={"schemas": {"Error": error}},
        )
        for name in ("one", "two")
    ]
    with serving_service(trees[0]) as one, serving_service(trees[1]) as two:
        sources = (one.source, two.source)
        with hosting(*sources, ready=("one", "two"), own_document=own.openapi, inner=own) as host:
            answered = host.get("/openapi")
            etag = answered.header("etag") or ""
            assert host.get("/openapi", **{"If-None-Match": etag}).status == 304
            assert host.get("/openapi", "HEAD").header("etag") == etag
            assert host.get("/openapi", "POST").status == 405
            assert host.json("/v1/sessions") == ["one"]
            assert host.get("/nothing").status == 404
    merged = answered.json
    validate(merged)
    assert set(merged["paths"]) == {
        "/v1/sessions", "/v1/cassettes/one/x", "/v1/cassettes/two/x",
    }  # fmt: skip
    assert {"one_Error", "two_Error"} <= set(merged["components"]["schemas"])
    ids = {op["operationId"] for item in merged["paths"].values() for op in item.values()}
    assert ids == {"listSessions", "one_same", "two_same"}


@pytest.mark.row("C6")
def test_the_aggregate_follows_what_is_published() -> None:
    with hosted() as (host, service):
        first = host.get("/openapi").header("etag")
        service.service.document = document({"/api/summary/new": {"get": {"responses": {
            "200": {"description": ""}}}}})  # fmt: skip
        host.recheck()
        second = host.get("/openapi")
        assert second.header("etag") != first
        assert list(second.json["paths"]) == ["/v1/cassettes/summary/new"]
        host.follow()
        assert host.get("/openapi").json["paths"] == {}


# --- beside the contract ----------------------------------------------------------------------


@pytest.mark.row("C14")
def test_a_recheck_asks_now_and_says_what_it_found() -> None:
    dead = f"http://127.0.0.1:{closed_port()}/openapi"
    with serving_service() as service:  # noqa: SIM117
        with hosting(service.source, dead, ready=("summary",)) as host:
            ids = {source["subject"]: source["id"] for source in host.discovery()["sources"]}
            fetched = len(service.service.fetches)
            said = host.get("/v1/cassettes/-/recheck?cassette=summary", "POST").json
            assert len(service.service.fetches) == fetched + 1
            assert said["cassettes"][0]["name"] == "summary"
            counts = said["problems"][0]["count"]
            said = host.get(f"/v1/cassettes/-/recheck?source={ids[dead]}", "POST").json
            assert said["problems"][0]["count"] > counts
            assert host.get("/v1/cassettes/-/recheck", "POST").status == 200
            assert host.get("/v1/cassettes/-/recheck?cassette=x", "POST").status == 404
            assert host.get("/v1/cassettes/-/recheck").header("allow") == "POST"


def test_tools_are_listed_by_service_and_by_words_with_their_aliases() -> None:
    trees = [
        document(
            {
                f"/api/{name}/run": {
                    "post": tool_operation({"type": "object"}, summary=f"Run the {name}")
                }
            },
            name,
        )
        for name in ("one", "two")
    ]
    with serving_service(trees[0]) as one, serving_service(trees[1]) as two:  # noqa: SIM117
        with hosting(one.source, two.source, ready=("one", "two")) as host:
            names = [tool["name"] for tool in host.json("/v1/cassettes/-/tools")["tools"]]
            assert names == ["one.run", "two.run"]
            (found,) = host.json("/v1/cassettes/-/tools?cassette=two")["tools"]
            assert (found["name"], found["alias"][:8]) == ("two.run", "two_run_")
            assert len(host.json("/v1/cassettes/-/tools?q=run+ONE")["tools"]) == 1
            assert host.json("/v1/cassettes/-/tools?q=nothing")["tools"] == []
            assert host.get("/v1/cassettes/-/other").status == 404


def test_a_host_with_a_token_answers_nobody_without_it() -> None:
    with hosted(access=Access(token_hash("t"))) as (host, _):
        for path in ("/v1/cassettes", "/openapi", "/v1/mcp", "/v1/cassettes/summary/openapi.json"):
            assert host.get(path).status == 401, path
            assert host.get(path, Authorization="Bearer t").status != 401, path


def test_an_application_in_which_it_is_mounted_keeps_its_own_routes() -> None:
    outer = FastAPI()

    @outer.get("/own")
    def own() -> str:
        return "own"

    with hosted(inner=outer) as (host, _):
        assert json.loads(host.get("/own").body) == "own"
        assert host.get("/v1/cassettes/summary/x").status == 200


@pytest.mark.row("C7")
def test_every_answer_of_the_host_bears_the_one_id_of_its_request() -> None:
    own = "3f2b8c1e-5d4a-4c3b-9a8f-0123456789ab"
    with hosted(script=answer(b"{}", headers=[("X-Request-Id", "theirs")])) as (host, service):
        for path in (
            "/openapi", "/v1/cassettes", "/v1/cassettes/none", "/v1/cassettes/summary/openapi.json",
            "/v1/cassettes/-/tools", "/v1/cassettes/summary/x", "/v1/mcp",
        ):  # fmt: skip
            found = host.get(path, **{"X-Request-Id": own})
            assert [v for n, v in found.headers if n == "x-request-id"] == [own], path
        sent = [value for name, value in service.last.headers if name.lower() == "x-request-id"]
        assert sent == [own]
        other = host.get("/v1/cassettes", Host="elsewhere.example").header("x-request-id")
    assert other is not None
    assert other != own


@pytest.mark.row("C7")
def test_one_line_is_logged_of_a_broken_answer_and_names_its_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = "3f2b8c1e-5d4a-4c3b-9a8f-0123456789ab"

    def breaks(_received: Received, wire: Wire) -> None:
        wire.head(200, [("Content-Length", "10")])
        wire.send(b"half")
        wire.close()

    with hosted(script=breaks) as (host, _), pytest.raises(http.client.IncompleteRead):
        host.get("/v1/cassettes/summary/x", **{"X-Request-Id": own})
    said = [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert [f"(request {own})" in record.message for record in said] == [True]


@pytest.mark.parametrize(("method", "what"), [("GET", "tools"), ("POST", "recheck")])
def test_a_query_of_very_many_members_is_refused_in_order(method: str, what: str) -> None:
    query = "&".join(["cassette=summary"] * 30)
    with hosting() as host:
        refused = host.get(f"/v1/cassettes/-/{what}?{query}", method)
    assert (refused.status, refused.json["error"]) == (400, "bad_query")


def test_a_name_may_still_turn_up_while_a_source_was_not_asked() -> None:
    asked = threading.Event()

    def waits(_: Received, wire: Wire) -> None:
        asked.set()
        wire.until_left()

    with serving_service(document_script=waits) as service, hosting(service.source) as host:
        assert asked.wait(10)
        unknown = host.get("/v1/cassettes/summary/x")
        assert (unknown.status, unknown.json["error"]) == (404, "unknown_cassette")
        assert unknown.header("retry-after") == "1"
    with hosting() as host:
        assert host.get("/v1/cassettes/summary/x").header("retry-after") is None


def test_the_problem_of_a_source_names_its_origin_once() -> None:
    with hosting(f"http://127.0.0.1:{closed_port()}/openapi") as host:
        host.recheck()
        (found,) = host.discovery()["problems"]
    assert found["reason"] == "cannot be reached: Connection refused"
