"""Search and export, as processes of their own behind a host, over recorded rows."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import environment
from tests.servers import Received, Wire, answer, serving

from .hosting import Hosting, ask, hosting, until
from .reading import reading
from .test_examples import EXAMPLES, RUNS, example
from .test_mcp import call, rpc

Json = Any


# --- export -----------------------------------------------------------------------------------


def lines(body: bytes) -> list[Json]:
    return [json.loads(line) for line in body.splitlines()]


@pytest.mark.row("C12")
def test_a_session_becomes_a_bundle_that_says_when_it_is_whole() -> None:
    with (
        reading() as (served, base),
        example("export/service.py", RUNS, CASSETTE_API_URL=base) as (source, _),
        hosting(source, ready=("export",)) as host,
    ):
        wanted = served.ids["invoice"]
        answered = host.get(f"/v1/cassettes/export/sessions/{wanted}")
        whole = host.json(f"/v1/cassettes/export/sessions/{wanted}?form=json")
        short = host.get(f"/v1/cassettes/export/sessions/{wanted[:8]}?detail=traces")
    found = lines(answered.body)
    assert answered.header("content-disposition") == (
        f'attachment; filename="session-{wanted}.jsonl"'
    )
    assert [line["type"] for line in found[:3]] == ["bundle", "session", "trace"]
    assert found[1]["session"] == whole["session"]
    spans = [span for part in whole["traces"] for span in part["spans"]]
    assert [line["span"] for line in found if line["type"] == "span"] == spans
    assert [line["link"] for line in found if line["type"] == "link"] == whole["links"]
    assert found[-1] == {
        "type": "end", "sessions": 1, "traces": 1, "spans": len(spans),
        "links": len(whole["links"]),
    }  # fmt: skip
    assert [line["type"] for line in lines(short.body)] == ["bundle", "session", "trace", "end"]


def test_all_sessions_become_one_bundle_and_what_fails_is_told_before_it_begins() -> None:
    with (
        reading() as (served, base),
        example("export/service.py", RUNS, CASSETTE_API_URL=base) as (source, _),
        hosting(source, ready=("export",)) as host,
    ):
        found = lines(host.get("/v1/cassettes/export/sessions?since=2026-01-01T00:00:00Z").body)
        assert found[-1]["sessions"] == 3
        assert any("since=2026-01-01" in target for target in served.asked)
        nobody = host.get("/v1/cassettes/export/sessions/00000000-0000")
        assert nobody.status == 404
        assert host.get("/v1/cassettes/export/sessions/a%2Fb%2Fc").status in (400, 404)
        served.broken = True
        broken = host.get("/v1/cassettes/export/sessions")
        assert (broken.status, list(broken.json)) == (502, ["error"])


@pytest.mark.row("C9")
def test_an_agent_reads_a_session_as_text_within_its_limit() -> None:
    with (
        reading() as (served, base),
        example("export/service.py", RUNS, CASSETTE_API_URL=base) as (source, _),
        hosting(source, ready=("export",)) as host,
    ):
        wanted = {"session_id": served.ids["invoice"]}
        said = call(host, wanted, name="export.transcript")["result"]["structuredContent"]
        cut = call(host, {**wanted, "max_characters": 200}, name="export.transcript")
    assert "## why does test_invoice_total fail?" in said["text"]
    assert "tool Bash (failed)" in said["text"]
    assert "answered: AssertionError: expected 42.00 but got 41.99" in said["text"]
    assert "model: A rounding error" in said["text"]
    short = cut["result"]["structuredContent"]
    assert len(short["text"]) + short["omitted_characters"] == len(said["text"])


# --- search -----------------------------------------------------------------------------------


def indexed(host: Hosting) -> Json:
    """The state, once all was looked at."""
    path = "/v1/cassettes/search/state"
    until(lambda: host.json(path)["refreshes"] > 0, "a first look")
    return host.json(path)


def refresh(host: Hosting) -> Json:
    return ask(host.port, "POST", "/v1/cassettes/search/refresh", {}, b"").json


@pytest.mark.row("C9", "C12")
@pytest.mark.parametrize(
    ("embedder", "query"),
    [("words", "assertions of invoice totals"), ("local", "unit test broken by wrong arithmetic")],
)
def test_spans_are_found_by_what_they_say(embedder: str, query: str) -> None:
    environ = {"CASSETTE_EMBEDDER": embedder}
    with (
        reading() as (served, base),
        example("search/service.py", RUNS, CASSETTE_API_URL=base, **environ) as (source, said),
        hosting(source, ready=("search",)) as host,
    ):
        assert "makes vectors with" in said
        state = indexed(host)
        assert (state["sessions"], state["last_error"]) == (3, None)
        asked = {"query": query, "limit": 3}
        (tool,) = rpc(host, "tools/list")["result"]["tools"]
        found = call(host, asked, name="search.spans")["result"]["structuredContent"]
        only = {**asked, "kind": "tool", "session_id": served.ids["files"]}
        files = call(host, only, name="search.spans")["result"]["structuredContent"]
        same = host.json("/v1/cassettes/search/spans?limit=3&q=" + query.replace(" ", "+"))
    assert tool["name"] == "search.spans"
    assert found["hits"][0]["session_id"] == served.ids["invoice"]
    assert [h["score"] for h in found["hits"]] == sorted(
        (h["score"] for h in found["hits"]), reverse=True
    )
    assert same == found
    assert {(h["session_id"], h["kind"]) for h in files["hits"]} == {(served.ids["files"], "tool")}


def test_what_is_deleted_is_found_no_more_and_nothing_is_embedded_twice(tmp_path: Path) -> None:
    embedded: list[str] = []

    def embeds(received: Received, wire: Wire) -> None:
        texts = json.loads(received.body)["input"]
        assert json.loads(received.body)["model"] == "tiny"
        assert received.header("authorization") == "Bearer key-of-embedder"
        embedded.extend(texts)
        rows = [
            {"index": n, "embedding": [float("invoice" in text), 0.5]}
            for n, text in enumerate(texts)
        ]
        answer(json.dumps({"data": rows[::-1]}).encode())(received, wire)

    file = tmp_path / "index.db"
    with reading() as (served, base), serving(embeds) as model:
        environ = {
            "CASSETTE_API_URL": base,
            "CASSETTE_EMBEDDER": f"{model.url}/v1/embeddings#tiny",
            "CASSETTE_EMBEDDER_KEY": "key-of-embedder",
            "CASSETTE_INDEX": str(file),
        }
        for times in (1, 2):
            started = example("search/service.py", RUNS, **environ)
            with started as (source, _), hosting(source, ready=("search",)) as host:
                assert indexed(host)["last_error"] is None
                if times == 1:
                    assert len(embedded) == len(set(embedded)) > 3
                    before = len(embedded)
                    continue
                assert len(embedded) == before
                served.without("invoice")
                assert refresh(host)["sessions"] == 2
                hits = host.json("/v1/cassettes/search/spans?q=invoice")["hits"]
                assert served.ids.keys() == {"files", "widgets"}
                assert {hit["session_id"] for hit in hits} <= set(served.ids.values())
    kept = file.read_bytes()
    assert b"list the files" in kept
    assert b"test_invoice_total" not in kept


def test_a_read_api_that_fails_is_told_by_the_service_and_by_its_health() -> None:
    with (
        reading() as (served, base),
        example("search/service.py", RUNS, CASSETTE_API_URL=base) as (source, _),
        hosting(source, ready=("search",)) as host,
    ):
        indexed(host)
        served.broken = True
        assert "500" in refresh(host)["last_error"]
        host.recheck()
        assert host.discovery()["cassettes"][0]["health"]["state"] == "degraded"
        assert host.json("/v1/cassettes/search/spans?q=invoice")["hits"]
        served.broken = False
        assert refresh(host)["last_error"] is None
        host.recheck()
        assert host.discovery()["cassettes"][0]["health"]["state"] == "up"


@pytest.mark.row("C13")
@pytest.mark.parametrize("name", ["hello-world", "mcp-tool", "export", "search"])
def test_every_example_passes_the_builders_checklist(name: str) -> None:
    with (
        reading() as (_, base),
        example(f"{name}/service.py", RUNS, CASSETTE_API_URL=base) as (source, _),
    ):
        toml = EXAMPLES / name / "cassette.toml"
        code = "from tapes.cli.main import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, "cassette", "validate", source, "--toml", str(toml)],
            env=environment(), capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
