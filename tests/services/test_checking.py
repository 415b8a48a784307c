"""The builder's checklist, point by point."""

import asyncio
import json
from typing import Any

import pytest

from tapes.services import checking
from tapes.services.checking import Point, State, check_service, check_toml
from tests.servers import answer, closed_port

from .hosting import CLOSE, serving_service
from .making import ANSWER, document, manifest_tree, tool_operation

Json = Any
TOML = """\
kind = "cassette/v1alpha1"
[cassette]
name = "summary"
version = "1.0.0"
[depends]
core = "v1"
"""


def judged(url: str, toml: str | None = None) -> dict[str, Point]:
    points = asyncio.run(check_service(url, ["v1"], toml))
    assert len({point.what for point in points}) == len(points)
    assert all(point.remedy for point in points if point.state is State.FAILED)
    return {point.what: point for point in points}


def failed(points: dict[str, Point]) -> set[str]:
    return {what for what, point in points.items() if point.state is State.FAILED}


@pytest.mark.row("C13")
def test_a_toml_alone_is_judged_with_its_lines_and_its_digest() -> None:
    points, declared = check_toml(TOML, ["v1"])
    assert [point.state for point in points] == [State.PASSED, State.PASSED]
    assert declared is not None
    assert any(detail.startswith("digest sha256:") for detail in points[0].details)
    (wrong,), nothing = check_toml(TOML.replace('name = "summary"', "name = 5"), ["v1"])
    assert (wrong.state, nothing) == (State.FAILED, None)
    assert "line 3" in wrong.details[0]
    (bad,), read = check_toml(TOML.replace('"summary"', '"Summary"'), ["v1"])
    assert (bad.state, read is not None) == (State.FAILED, True)
    assert bad.remedy


@pytest.mark.row("C13")
def test_a_manifest_that_is_there_and_wrong_is_not_said_to_be_missing() -> None:
    wrong = {"cassette": {"name": "summary", "version": "1.0.0"}, "depends": {"core": "v1"}}
    with serving_service({**document(), "x-tapes-cassette": wrong}) as service:
        points = judged(service.source)
    assert "kind: is missing" in points[checking.EMBEDDED].details[0]
    assert points[checking.EMBEDDED].remedy.startswith("mend those fields of x-tapes-cassette")


@pytest.mark.row("C13")
def test_views_and_tables_are_the_administrators_and_said_to_be() -> None:
    text = TOML + 'views = ["spans"]\n[[tables]]\nname = "notes"\n'
    points, _ = check_toml(text, ["v1"])
    assert points[1].state is State.NOT_JUDGED
    assert "tapes_v1.spans" in points[1].details[0]
    assert "tapes cassette grants --sql" in points[1].details[0]


@pytest.mark.row("C13")
def test_a_service_that_is_right_passes_every_point() -> None:
    with serving_service() as service:
        points = judged(service.source, TOML)
    assert {point.state for point in points.values()} == {State.PASSED}
    assert len(points) == 12
    assert any("/v1/cassettes/summary/reports: 200" in d for d in points[checking.HOSTED].details)


@pytest.mark.row("C13")
@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"x-tapes-cassette": None}, checking.EMBEDDED),
        ({"x-tapes-cassette": manifest_tree("Summary")}, checking.EMBEDDED),
        ({"paths": {"/other": {"get": {"responses": ANSWER}}}}, checking.PATHS),
        ({"paths": {"/api/summary/x": {"get": {"responses": {}}}}}, checking.OPERATIONS),
        (
            {"paths": {"/api/summary/x": {"get": tool_operation({"type": "object"})}}},
            checking.TOOLS,
        ),
    ],
    ids=["no manifest", "bad manifest", "path", "operation", "tool"],
)
def test_each_point_fails_for_its_own_reason(change: Json, what: str) -> None:
    tree = {**document(), **change}
    with serving_service(tree) as service:
        service.service.document = {k: v for k, v in tree.items() if v is not None}
        points = judged(service.source)
    assert failed(points) == {what}
    assert points[what].details


@pytest.mark.row("C13")
def test_what_is_no_document_or_no_service_is_told_as_such() -> None:
    with serving_service(document_script=answer(b"[1", headers=CLOSE)) as service:
        assert failed(judged(service.source)) == {checking.DOCUMENT}
    points = judged(f"http://127.0.0.1:{closed_port()}/openapi")
    assert failed(points) == {checking.DOCUMENT}


@pytest.mark.row("C13")
def test_health_and_the_declared_path_of_the_document_are_asked() -> None:
    sick = answer(b"{}", status=503, headers=CLOSE)
    with serving_service(health=sick) as service:
        points = judged(service.source)
        assert checking.HEALTH in failed(points)
    tree = {**document(), "x-tapes-cassette": manifest_tree(api={"openapi": "/elsewhere"})}
    with serving_service(tree, answer(b"", status=404, headers=CLOSE)) as service:
        points = judged(service.source)
    assert points[checking.DOCUMENT].state is State.FAILED
    assert 'openapi = "/openapi"' in points[checking.DOCUMENT].remedy


@pytest.mark.row("C13")
def test_copies_that_differ_show_where() -> None:
    with serving_service() as service:
        points = judged(service.source, TOML.replace("1.0.0", "1.0.1"))
    point = points[checking.COPIES]
    assert failed(points) == {checking.COPIES}
    assert any(d.startswith("cassette: ") and "1.0.1" in d for d in point.details)


@pytest.mark.row("C13")
def test_a_name_and_a_port_that_do_not_agree_are_told() -> None:
    named = manifest_tree("summary")
    named["cassette"] |= {"image": "registry/summary:1", "port": 1}
    with serving_service({**document(), "x-tapes-cassette": named}) as service:
        points = judged(service.source, TOML.replace('"summary"', '"other"'))
    assert failed(points) == {checking.COPIES, checking.CONSISTENT}
    assert len(points[checking.CONSISTENT].details) == 2


@pytest.mark.row("C13")
def test_a_proxied_request_that_fails_fails_the_point() -> None:
    with serving_service(script=answer(b"{}", status=500, headers=CLOSE)) as service:
        points = judged(service.source)
    assert failed(points) == {checking.HOSTED}
    assert any("answers 500" in detail for detail in points[checking.HOSTED].details)


def test_event_streams_are_said_to_need_a_host_that_streams() -> None:
    stream = {"200": {"description": "", "content": {"text/event-stream": {}}}}
    tree = document({"/api/summary/live": {"get": {"responses": stream}}})
    with serving_service(tree) as service:
        points = judged(service.source)
    assert any(d.startswith("warning:") for d in points[checking.STREAMING].details)


def test_a_credential_in_a_query_is_not_shown() -> None:
    assert "secret" not in checking.subject("http://127.0.0.1:1/openapi?token=secret")
    assert json.dumps(checking.subject("cassette.toml")) == '"cassette.toml"'
