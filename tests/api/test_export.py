import io
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import pyarrow.parquet
import pytest

from tapes.cli.exporting import brought
from tapes.exchange import Request
from tapes.projector import Projector
from tapes.rows import NO_ORG
from tapes.store.postgres import open_postgres
from tapes.store.sql import SqlStore
from tapes.store.sqlite import open_sqlite
from tapes.turnlines import line_of
from tests.api.serving import got, refused, served
from tests.api.test_gate import ADMIN, KEYS, OURS, TENANT, bearer, filled
from tests.contracts.test_store import fill
from tests.turns import chat, said

KEY = "sk-ant-api03-" + "Qw7" * 30 + "-AAAAAAAA"
TOKEN = "imported-token-8f2b91c04d"


def lines_of(client: httpx.Client, **query: str) -> list[str]:
    answer = client.get("/v1/export", params=query)
    assert answer.status_code == 200, answer.text
    return answer.text.splitlines()


@pytest.fixture(params=["sqlite", "postgres"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    """An empty store, on each database in turn."""
    if request.param == "sqlite":
        store = open_sqlite(tmp_path / "other.db")
    else:
        store = open_postgres(request.getfixturevalue("database"))
    yield store
    store.close()


@pytest.mark.row("D7")
def test_what_was_exported_comes_back_in_a_log_of_either_kind(
    client: httpx.Client, other: SqlStore, tmp_path: Path
) -> None:
    file = tmp_path / "all.jsonl"
    answer = client.get("/v1/export")
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert "sessions.jsonl" in answer.headers["content-disposition"]
    file.write_bytes(answer.content)
    assert brought(other, (str(file),), NO_ORG) == {"new": 24, "known": 0, "erased": 0}
    assert brought(other, (str(file),), NO_ORG) == {"new": 0, "known": 24, "erased": 0}
    Projector(other).drain()
    with served(other) as second:
        assert sorted(lines_of(second)) == sorted(lines_of(client))
        assert heads_in(second) == heads_in(client)


def heads_in(client: httpx.Client) -> list[object]:
    items = got(client, "/v1/sessions")["items"]
    return [{name: value for name, value in item.items() if name != "seq"} for item in items]


def test_the_filters_are_those_of_the_list(client: httpx.Client) -> None:
    everything = lines_of(client)
    some = lines_of(client, q="harness:claude")
    assert 0 < len(some) < len(everything)
    assert set(some) < set(everything)
    (item, *_) = got(client, "/v1/sessions", q="harness:claude")["items"]
    assert lines_of(client, harness_session_id=item["harness_session_id"]) == some
    assert lines_of(client, until=item["started_at"]) != everything
    assert lines_of(client, auth_subject="nobody") == []


def test_each_form_is_what_it_says(client: httpx.Client) -> None:
    otlp = client.get("/v1/export", params={"format": "otlp"})
    assert len(otlp.json()["resourceSpans"]) == 6
    assert "umbrella" not in otlp.text
    told = client.get("/v1/export", params={"format": "otlp", "content": "true"})
    assert "umbrella" in told.text
    table = client.get("/v1/export", params={"format": "parquet"})
    assert table.headers["content-type"] == "application/vnd.apache.parquet"
    spans = sum(len(each["scopeSpans"][0]["spans"]) for each in otlp.json()["resourceSpans"])
    assert pyarrow.parquet.read_table(io.BytesIO(table.content)).num_rows >= spans > 10


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ({"format": "csv"}, "jsonl, otlp, parquet"),
        ({"limit": "5"}, "limit"),
        ({"cursor": "x"}, "cursor"),
        ({"q": "no-such-field:1"}, "no-such-field"),
        ({"since": "yesterday-ish"}, "since"),
        ({"harness_id": "claude"}, "harness_session_id"),
        ({"model": "gpt-4o"}, "q, since"),
    ],
    ids=lambda value: str(value),
)
def test_what_cannot_be_exported_is_said_before_anything_is_sent(
    client: httpx.Client, query: dict[str, str], word: str
) -> None:
    problem = refused(client, "/v1/export", 400, **query)
    assert word in json.dumps(problem)


@pytest.mark.row("D4")
def test_a_tenant_exports_its_own_and_the_audit_says_who(store: SqlStore) -> None:
    filled(store)
    with served(store, KEYS) as client:
        assert client.get("/v1/export").status_code == 401
        for form in ("jsonl", "otlp", "parquet"):
            query = {"format": form, "content": "true"}
            own = client.get("/v1/export", params=query, headers=bearer(TENANT))
            assert own.status_code == 200
            text = own.text
            if form == "parquet":
                inputs = pyarrow.parquet.read_table(io.BytesIO(own.content))["input"]
                text = str(inputs.to_pylist())
            assert [f"canary {n}" in text for n in (1, 2, 3)] == [False, True, False], form
        elsewhere = client.get("/v1/export", headers=bearer(TENANT) | {"x-tapes-org": NO_ORG})
        assert elsewhere.status_code == 403
        headers = bearer(ADMIN) | {"x-tapes-org": OURS}
        audit = client.get("/v1/audit", headers=headers).json()["items"]
        noted = [each for each in audit if each["action"] == "export"]
        assert {each["by"] for each in noted} == {"the token of a tenant"}
        assert {each["details"]["format"] for each in noted} == {"jsonl", "otlp", "parquet"}


def test_damage_found_on_the_way_breaks_the_answer_off(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "tapes.db")
    long = "word " * 100_000
    fill(store, [chat(n, [said("user", f"{n} {long}")], "x", session=f"s{n}") for n in (1, 2, 3)])
    with closing(sqlite3.connect(tmp_path / "tapes.db")) as connection, connection:
        connection.execute("UPDATE raw_turns SET request = x'00' WHERE id = 3")
    with served(store) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            client.get("/v1/export")
        only = client.get("/v1/export", params={"harness_session_id": "s3"})
        assert (only.status_code, only.json()["code"]) == (500, "damaged-store")
    store.close()


@pytest.mark.parametrize("session", ["late", ""])
def test_an_export_says_what_still_waits_to_be_derived(store: SqlStore, session: str) -> None:
    fill(store, [chat(1, [said("user", "hi")], "hello")])
    store.append([chat(2, [said("user", "late")], "hello", session=session, request_id="late")])
    with served(store) as client:
        answer = client.get("/v1/export")
        assert answer.headers["x-tapes-waiting-sessions"] == "1"
        assert "late" not in answer.text
        Projector(store).drain()
        answer = client.get("/v1/export")
        assert answer.headers["x-tapes-waiting-sessions"] == "0"
        assert "late" in answer.text


def test_secrets_in_a_file_do_not_come_into_the_log(store: SqlStore, tmp_path: Path) -> None:
    turn = chat(1, [said("user", f"my key is {KEY}")], f"so it is {KEY}", session="s")
    assert turn.exchange is not None
    assert isinstance(turn.exchange.request, Request)
    headers = (("authorization", f"Bearer {TOKEN}"), ("content-type", "application/json"))
    request = replace(turn.exchange.request, headers=headers)
    leaky = replace(
        turn,
        exchange=replace(turn.exchange, request=request),
        reduced={"message": {"content": [{"type": "text", "text": KEY}]}},
        records=[{"text": TOKEN}],
        meta={"api_key": TOKEN},
        envelope=replace(turn.envelope, name=f"with {KEY}", harness_metadata={"a": KEY}),
    )
    file = tmp_path / "leaky.jsonl"
    file.write_text(line_of(leaky) + "\n")
    assert KEY in file.read_text()
    assert brought(store, (str(file),), NO_ORG)["new"] == 1
    (kept,) = store.project().stream_turns()
    assert KEY not in line_of(kept)
    assert TOKEN not in line_of(kept)
