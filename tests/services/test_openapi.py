import json
from dataclasses import dataclass
from typing import Any

import pytest
from openapi_spec_validator import validate

from tapes.services.admission import Service
from tapes.services.openapi import (
    aggregate,
    etag_of,
    is_inside,
    leads_out,
    namespace_of,
    republished,
    synthesized_id,
    with_items,
)

from .making import ANSWER, admitted, codes, document, manifest_tree, refused

Json = Any


def merged(*services: Service, own: Json = None) -> Json:
    """The aggregate, which is valid."""
    tree = json.loads(aggregate(services, own))
    validate(tree)
    return tree


def operations(tree: Json) -> dict[str, str]:
    """The ids of all operations by method and path."""
    return {
        f"{method} {path}": operation["operationId"]
        for path, item in tree["paths"].items()
        for method, operation in item.items()
        if isinstance(operation, dict) and "responses" in operation
    }


# --- containment ------------------------------------------------------------------------------


@pytest.mark.row("C3")
@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/api/sum", True),
        ("/api/sum/", True),
        ("/api/sum/a/b", True),
        ("/api/summary", False),
        ("/api/Sum/a", False),
        ("/api", False),
        ("/v1/cassettes/sum/a", False),
        (" /api/sum", False),
    ],
)
def test_a_path_is_inside_by_whole_segments(path: str, inside: bool) -> None:
    assert is_inside(path, "/api/sum") is inside


@pytest.mark.row("C3")
@pytest.mark.parametrize(
    "path",
    ["/a/../b", "/a/..", "/a/.", "/a/%2e%2E/b", "/a/.%2e", "/a/..%2fb", "/a\\..\\b", "/a/.. "],
)
def test_a_dot_segment_leads_out(path: str) -> None:
    assert leads_out(path)
    assert not leads_out(path.replace(".", "a").replace("%2e", "a").replace("%2E", "a"))


@pytest.mark.row("C3")
def test_one_path_outside_refuses_the_document_and_all_of_them_are_named() -> None:
    paths: Json = {"/ping": {}, "/api/summary/x": {}, "/api/summary/../y": {}, "x-note": {}}
    error = refused(document(paths))
    assert error.stage == "path_outside"
    assert codes(error) == [
        ("#/paths/x-note", "outside"),
        ("#/paths/~1api~1summary~1..~1y", "dot_segment"),
        ("#/paths/~1ping", "outside"),
    ]


# --- rewriting --------------------------------------------------------------------------------


@pytest.mark.row("C3")
@pytest.mark.parametrize(
    ("prefix", "local"),
    [("api", "/api/summary"), ("/extensions/v2/", "/extensions/v2/summary"), ("/", "/summary")],
)
def test_a_prefix_is_replaced_and_the_rest_of_a_path_kept(prefix: str, local: str) -> None:
    manifest = manifest_tree(api={"prefix_path": prefix})
    paths: Json = {local: {}, f"{local}/a%20b/C/": {}}
    service = admitted({**document(paths), "x-tapes-cassette": manifest})
    published = json.loads(service.document)
    assert list(published["paths"]) == ["/v1/cassettes/summary", "/v1/cassettes/summary/a%20b/C/"]
    assert published["x-tapes-cassette"] == manifest


@pytest.mark.row("C3")
def test_nothing_that_is_published_names_another_server() -> None:
    private: Json = [{"url": "http://10.0.0.1"}]
    item: Json = {"servers": private, "get": {"servers": private, "responses": ANSWER}}
    links = {"l": {"server": private[0], "operationId": "x"}}
    for _ in range(3):
        called = {"{$request.body#/u}": item}
        response = {"description": "x", "links": links}
        operation = {"servers": private, "callbacks": {"c": called}, "responses": {"200": response}}
        item = {"servers": private, "post": operation}
    components = {
        "callbacks": {"c": {"e": item}},
        "pathItems": {"p": item},
        "links": links,
        "responses": {"r": {"links": links}},
    }
    tree = document(
        {"/api/summary/x": item}, servers=private, webhooks={"w": item}, components=components
    )
    published = admitted(tree).document
    assert b"10.0.0.1" not in published
    assert json.loads(published)["components"]["links"] == {"l": {"operationId": "x"}}


def test_everything_else_stays_as_it_was() -> None:
    others: Json = {"x-extra": {"servers": 1}, "jsonSchemaDialect": "x", "security": []}
    tree = document(**others)
    result = republished(tree, "/api/summary", "/v1/cassettes/summary")
    assert {n: v for n, v in result.items() if n != "paths"} == {
        n: v for n, v in tree.items() if n != "paths"
    }


def test_the_entity_tag_is_that_of_the_published_bytes() -> None:
    service = admitted(document())
    assert service.etag == etag_of(service.document)
    assert service.etag.startswith('"sha256:')


def test_a_path_item_by_reference_is_what_it_refers_to() -> None:
    items = {
        "A": {"$ref": "#/components/pathItems/B", "summary": "near"},
        "B": {"summary": "far", "get": {"responses": ANSWER}},
        "L": {"$ref": "#/components/pathItems/L"},
    }
    paths = {f"/api/summary/{n}": {"$ref": f"#/components/pathItems/{n}"} for n in "ABLX"}
    resolved = with_items(document(paths, components={"pathItems": items}))["paths"]
    assert resolved["/api/summary/A"] == {"summary": "near", "get": {"responses": ANSWER}}
    service = admitted(document(paths, components={"pathItems": items}))
    assert [operation.public_path[-1] for operation in service.operations] == ["A", "B"]
    assert len(operations(merged(service))) == 2


# --- the aggregate ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    name: str
    document: bytes


def service(name: str, paths: Json, **members: Json) -> Service:
    prefix = f"/api/{name}"
    return admitted(
        document({prefix + path: item for path, item in paths.items()}, name, **members)
    )


@pytest.mark.row("C4", "C6")
def test_without_services_the_aggregate_is_the_hosts_own_document() -> None:
    assert merged()["paths"] == {}
    own: Json = {
        "openapi": "3.1.0",
        "info": {"title": "host", "version": "9", "summary": "s"},
        "paths": {"/ping": {"get": {"operationId": "ping", "responses": ANSWER}}},
        "components": {"schemas": {"A": {"type": ["string", "null"]}}},
        "security": [{"token": []}],
    }
    own["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    tree = merged(own=own)
    assert tree["info"]["title"] == "host"
    assert tree["openapi"] == "3.0.3"
    assert operations(tree) == {"get /ping": "ping"}
    assert tree["components"]["schemas"] == {"A": {"type": "string", "nullable": True}}
    assert tree["security"] == [{"token": []}]


@pytest.mark.row("C4")
def test_services_that_use_the_same_names_lose_nothing() -> None:
    def one(name: str, kind: str) -> Service:
        schema = {"$ref": "#/components/schemas/Error"}
        answer = {"200": {"description": "x", "content": {"a/b": {"schema": schema}}}}
        item = {"get": {"operationId": "list", "responses": answer}}
        return service(name, {"/x": item}, components={"schemas": {"Error": {"type": kind}}})

    tree = merged(one("one", "string"), one("two-b", "integer"))
    assert tree["components"]["schemas"] == {
        "one_Error": {"type": "string"},
        "two_b_Error": {"type": "integer"},
    }
    assert operations(tree) == {
        "get /v1/cassettes/one/x": "one_list",
        "get /v1/cassettes/two-b/x": "two_b_list",
    }
    assert b"#/components/schemas/two_b_Error" in aggregate([one("two-b", "integer")])


@pytest.mark.row("C4")
def test_names_that_meet_across_services_are_told_apart_by_a_hash() -> None:
    first = service(
        "ab",
        {"/x": {"get": {"operationId": "c_x", "responses": ANSWER}}},
        components={"schemas": {"c_E": {"type": "string"}}},
    )
    second = service(
        "ab-c",
        {"/x": {"get": {"operationId": "x", "responses": ANSWER}}},
        components={"schemas": {"E": {"type": "integer"}}},
    )
    tree = merged(first, second)
    assert len(set(operations(tree).values())) == 2
    assert sorted(s["type"] for s in tree["components"]["schemas"].values()) == [
        "integer",
        "string",
    ]
    assert tree["components"]["schemas"]["ab_c_E"] == {"type": "string"}
    assert aggregate([second, first]) == aggregate([first, second])


@pytest.mark.row("C4")
@pytest.mark.parametrize(
    "paths",
    [
        {"/a-b": {"get": {"responses": ANSWER}}, "/ab": {"get": {"responses": ANSWER}}},
        {
            "/x": {"get": {"operationId": "read", "responses": ANSWER}},
            "/y": {"get": {"operationId": " read ", "responses": ANSWER}},
        },
        {
            "/ab": {"get": {"responses": ANSWER}},
            "/x": {"get": {"operationId": "getV1CassettesSummaryAb", "responses": ANSWER}},
        },
    ],
    ids=["synthesized-alike", "outer-space", "explicit-like-synthesized"],
)
def test_ids_of_one_service_that_meet_do_not_break_the_aggregate(paths: Json) -> None:
    found = operations(merged(service("summary", paths)))
    assert len(set(found.values())) == 2
    assert all(name.startswith("summary_") for name in found.values())


@pytest.mark.row("C4")
def test_a_given_id_is_kept_before_a_made_one() -> None:
    paths = {
        "/ab": {"get": {"responses": ANSWER}},
        "/x": {"get": {"operationId": "getV1CassettesSummaryAb", "responses": ANSWER}},
    }
    found = operations(merged(service("summary", paths)))
    assert found["get /v1/cassettes/summary/x"] == "summary_getV1CassettesSummaryAb"


def test_names_crafted_to_meet_the_hashes_of_others_end_nothing() -> None:
    taken: Json = {f"c_E{suffix}": {} for suffix in ("", *(f"_{n:08x}" for n in range(200)))}
    tree = merged(
        service("ab", {}, components={"schemas": taken}),
        service("ab-c", {}, components={"schemas": {"E": {"type": "string"}}}),
    )
    assert len(tree["components"]["schemas"]) == 202


@pytest.mark.row("C4")
@pytest.mark.parametrize(
    ("method", "path", "made"),
    [
        ("get", "/v1/cassettes/summary/reports", "getV1CassettesSummaryReports"),
        ("delete", "/v1/cassettes/hello-world/things/{id}", "deleteV1CassettesHelloworldThingsId"),
        ("get", "/v1//a_b.c", "getV1Abc"),
    ],
)
def test_an_operation_without_an_id_gets_one(method: str, path: str, made: str) -> None:
    assert synthesized_id(method, path) == made
    assert namespace_of("hello-world") == "hello_world_"


@pytest.mark.row("C4")
def test_the_requirement_of_one_service_is_its_own() -> None:
    schemes = {"key": {"type": "apiKey", "name": "k", "in": "header"}}
    paths = {
        "/open": {"get": {"security": [], "responses": ANSWER}},
        "/own": {"get": {"security": [{"key": ["s"]}], "responses": ANSWER}},
        "/x": {"get": {"responses": ANSWER}},
    }
    locked = service(
        "locked", paths, security=[{"key": []}], components={"securitySchemes": schemes}
    )
    free = service("free", {"/x": {"get": {"responses": ANSWER}}})
    tree = merged(locked, free)
    assert "security" not in tree
    found = {path[14:]: item["get"].get("security") for path, item in tree["paths"].items()}
    assert found == {
        "free/x": None,
        "locked/open": [],
        "locked/own": [{"locked_key": ["s"]}],
        "locked/x": [{"locked_key": []}],
    }


@pytest.mark.row("C4")
def test_what_the_host_defines_itself_wins() -> None:
    own = {
        "paths": {"/v1/cassettes/summary/x": {"get": {"operationId": "s_x", "responses": ANSWER}}},
        "components": {"schemas": {"summary_A": {"type": "boolean"}}},
        "tags": [{"name": "t", "description": "own"}],
    }
    item = {"get": {"responses": ANSWER, "summary": "lost"}, "put": {"responses": ANSWER}}
    other = service(
        "summary",
        {"/x": item},
        components={"schemas": {"A": {"type": "string"}}},
        tags=[
            {"name": "t", "description": "lost"},
            {"name": "a"},
            {"name": "b", "description": ""},
        ],
    )
    tree = merged(other, own=own)
    assert "summary" not in tree["paths"]["/v1/cassettes/summary/x"]["get"]
    assert "put" in tree["paths"]["/v1/cassettes/summary/x"]
    schemas = tree["components"]["schemas"]
    assert schemas.pop("summary_A") == {"type": "boolean"}
    assert [schema["type"] for schema in schemas.values()] == ["string"]
    assert tree["tags"] == [{"name": "a"}, {"name": "b"}, {"description": "own", "name": "t"}]


def test_a_document_that_is_large_when_published_is_part_of_the_aggregate() -> None:
    text = "<" * (7 * 1024 * 1024)
    large = admitted(document(components={"schemas": {"A": {"description": text}}}))
    assert len(large.document) > 40 * 1024 * 1024
    assert b"summary_A" in aggregate([large])


def test_the_aggregate_needs_a_name_and_a_document_only() -> None:
    published = admitted(document())
    assert aggregate([Written("summary", published.document)]) == aggregate([published])
