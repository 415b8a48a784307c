import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from pydantic import BaseModel

from tapes.errors import BadManifest, RefusedService
from tapes.services import manifest as manifests
from tapes.services.kit import Progress, Service
from tapes.services.kit.service import setting
from tapes.services.kit.testing import hosted, running
from tapes.services.manifest import Manifest

TOML = """
kind = "cassette/v1alpha1"
[cassette]
name = "words"
version = "0.1.0"
[depends]
core = "v1"
[[config]]
key = "most"
type = "int"
default = 3
"""


class Text(BaseModel):
    text: str


class Words(BaseModel):
    words: int


def words_service(tmp_path: Path, **environ: str) -> Service:
    file = tmp_path / "cassette.toml"
    file.write_text(TOML)
    service = Service(file, environ=environ)

    @service.tool("count_words", read_only=True, open_world=False)
    def count_words(asked: Text) -> Words:
        """Count the words of a text.

        Words are what white space keeps apart.
        """
        return Words(words=len(asked.text.split()))

    @service.get("/most")
    def most() -> dict[str, int]:
        return {"most": service.settings["most"]}

    return service


def get(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.mark.row("C14")
def test_a_service_of_a_few_lines_is_admitted_and_called_by_an_agent(tmp_path: Path) -> None:
    with hosted(words_service(tmp_path, CASSETTE_MOST="7")) as host:
        assert host.call("count_words", {"text": "one two"}) == {"words": 2}
        assert host.get("/most") == {"most": 7}


@pytest.mark.row("C2", "C14")
def test_the_document_carries_the_manifest_and_the_services_own_api_alone(tmp_path: Path) -> None:
    service = words_service(tmp_path)
    tree = service.document()
    assert sorted(tree["paths"]) == ["/api/words/count_words", "/api/words/most"]
    embedded = manifests.parse_json(json.dumps(tree["x-tapes-cassette"]))
    assert manifests.digest(embedded) == manifests.digest(manifests.parse_toml(TOML))
    operation = tree["paths"]["/api/words/count_words"]["post"]
    assert operation["summary"] == "Count the words of a text."
    assert "white space" in operation["description"]
    assert operation["x-tapes-mcp"] == {
        "name": "count_words",
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }
    admitted = service.check()
    assert [tool.full_name for tool in admitted.tools] == ["words.count_words"]


class Node(BaseModel):
    value: int
    below: "list[Node]" = []


@pytest.mark.row("C9", "C14")
def test_the_arguments_of_a_tool_stand_at_the_top_of_its_schema() -> None:
    service = Service(Manifest(name="trees", version="1", core="v1"), environ={})

    @service.tool("count")
    def count(asked: Node) -> Words:
        return Words(words=asked.value)

    (tool,) = service.check().tools
    assert set(tool.input_schema["properties"]) == {"value", "below"}
    assert tool.input_schema["required"] == ["value"]
    assert "$ref" not in tool.input_schema
    assert tool.input_schema["properties"]["below"]["items"] == {"$ref": "#/$defs/Node"}
    assert service.document() == service.document()


def test_an_installation_has_a_name_of_its_own(tmp_path: Path) -> None:
    service = words_service(tmp_path, CASSETTE_NAME="other-words")
    assert service.prefix == "/api/other-words"
    assert service.check().name == "other-words"


def test_a_manifest_may_be_given_in_code() -> None:
    declared = Manifest(
        name="coded", version="1", core="v1", config=(setting("size", "int", default=2),)
    )
    service = Service(declared, environ={})
    assert service.settings["size"] == 2
    assert service.check().digest == manifests.digest(declared)


def test_a_manifest_that_breaks_rules_makes_no_service() -> None:
    with pytest.raises(BadManifest, match="breaks rules"):
        Service(Manifest(name="Not a name", version="1", core="v1"), environ={})
    with pytest.raises(BadManifest, match="size"):
        setting("size", "int", defualt=2)


def test_a_tool_that_no_host_can_offer_stops_the_start() -> None:
    service = Service(Manifest(name="bad", version="1", core="v1"), environ={})

    @service.tool("list")
    def listing(asked: list[str]) -> list[str]:
        return asked

    with pytest.raises(RefusedService):
        service.check()
    with pytest.raises(SystemExit, match="list"):
        service.run()


@pytest.mark.row("C11", "C14")
@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "CASSETTE_KEY is missing"),
        ({"CASSETTE_KEY": "sk-1", "CASSETTE_LISTEN": "here"}, "CASSETTE_LISTEN=127.0.0.1:9999"),
        ({"CASSETTE_KEY": "sk-1", "CASSETTE_LISTEN": "127.0.0.1:65536"}, "no address to listen on"),
    ],
)
def test_what_keeps_a_service_from_starting_ends_it_in_words(
    environ: dict[str, str], said: str
) -> None:
    key = setting("key", secret=True, required=True)
    declared = Manifest(name="words", version="1", core="v1", config=(key,))
    with pytest.raises(SystemExit) as ended:
        Service(declared, environ=environ).run()
    assert said in str(ended.value.code)
    assert "sk-1" not in str(ended.value.code)
    assert ended.value.__suppress_context__


@pytest.mark.row("C14")
def test_health_is_well_until_a_check_fails_and_tells_no_secrets(tmp_path: Path) -> None:
    service = words_service(tmp_path)
    failing = False

    @service.health_check
    def database() -> None:
        if failing:
            raise ConnectionError("password=secret")

    with running(service) as base:
        assert get(f"{base}/ping") == (200, {"status": "ok", "cassette": "words"})
        failing = True
        status, said = get(f"{base}/ping")
        assert (status, said["failed"]) == (503, {"database": "ConnectionError"})
        assert "secret" not in str(said)


def test_errors_have_one_form(tmp_path: Path) -> None:
    service = words_service(tmp_path)

    @service.get("/broken")
    def broken() -> None:
        raise RuntimeError("secret")

    with running(service) as base:
        assert get(f"{base}/api/words/broken") == (
            500, {"error": "the service failed; see its log"},
        )  # fmt: skip
        status, said = get(f"{base}/api/words/nothing")
        assert (status, list(said)) == (404, ["error"])
        request = urllib.request.Request(f"{base}/api/words/count_words", b"{}")
        request.add_header("Content-Type", "application/json")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=10)
        with caught.value as error:
            assert error.code == 400
            assert "body.text" in json.load(error)["error"]


def test_the_document_answers_conditional_requests(tmp_path: Path) -> None:
    with running(words_service(tmp_path)) as base:
        with urllib.request.urlopen(f"{base}/openapi", timeout=10) as answer:
            etag = answer.headers["ETag"]
        request = urllib.request.Request(f"{base}/openapi", headers={"If-None-Match": etag})
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=10)
        caught.value.close()
        assert caught.value.code == 304


@pytest.mark.row("C14")
def test_a_tool_that_yields_tells_its_progress_and_then_its_result(tmp_path: Path) -> None:
    service = words_service(tmp_path)

    @service.tool("slow", returns=Words)
    async def slow(asked: Text) -> AsyncIterator[Progress | Words]:
        """Count slowly."""
        words = asked.text.split()
        for n, word in enumerate(words, 1):
            yield Progress(n, len(words), word)
        yield Words(words=len(words))

    @service.tool("breaks", returns=Words)
    async def breaks(asked: Text) -> AsyncIterator[Progress | Words]:
        """Break."""
        yield Progress(1)
        raise RuntimeError(asked.text)

    seen: list[tuple[float, float | None, str | None]] = []

    async def told(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async def run(url: str) -> None:
        async with Client(url) as client:
            result = await client.call_tool("words.slow", {"text": "a b"}, progress_callback=told)
            assert result.structured_content == {"words": 2}
            failed = await client.call_tool("words.breaks", {"text": "x"}, progress_callback=told)
            assert failed.is_error

    with hosted(service) as host:
        asyncio.run(run(f"{host.address}/v1/mcp"))
        assert host.call("slow", {"text": "a b c"}) == {"words": 3}
    assert seen == [(1.0, 2.0, "a"), (2.0, 2.0, "b"), (1.0, None, None)]


def test_what_a_host_refuses_is_told_with_its_problems(tmp_path: Path) -> None:
    service = words_service(tmp_path)
    with pytest.raises(AssertionError, match="404"), hosted(service) as host:
        host.get("/nothing")
