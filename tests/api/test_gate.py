import http.client
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tapes.access import token_hash
from tapes.api.app import Api
from tapes.api.gate import Bounds
from tapes.api.keys import Keys
from tapes.errors import UnavailableStore
from tapes.exporting import Export
from tapes.rows import NO_ORG
from tapes.store.sql import SqlStore
from tapes.store.sqlite import open_sqlite
from tests.api.serving import got, refused, served
from tests.contracts.test_store import fill
from tests.services.serving import PATIENCE_S
from tests.test_asgi import serving as asgi_serving
from tests.turns import chat, said

OURS = "22222222-2222-4222-8222-222222222222"
THEIRS = "33333333-3333-4333-8333-333333333333"
READ, ADMIN, TENANT = "read-me", "change-me", "ours-only"
KEYS = Keys(token_hash(READ), token_hash(ADMIN), {token_hash(TENANT): OURS})


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def filled(store: SqlStore) -> dict[str, str]:
    """Three tenants, each with a session of its own under the same names; gives their ids."""
    ids = {}
    for number, org in enumerate((NO_ORG, OURS, THEIRS), 1):
        turn = chat(number, [said("user", f"canary {number}")], "same", request_id=f"same-{number}")
        envelope = replace(turn.envelope, org_id="" if org == NO_ORG else org)
        fill(store, [replace(turn, envelope=envelope)])
        (listed,) = store.project(org).sessions().items
        ids[org] = listed.session.id
    return ids


# --- tokens -----------------------------------------------------------------------------------


def test_without_tokens_this_machine_may_do_everything(client: httpx.Client) -> None:
    got(client, "/v1/sessions")
    assert client.post("/v1/retention/run", params={"dry_run": True}).status_code == 200


def test_where_tokens_are_set_nobody_is_answered_without(store: SqlStore) -> None:
    with served(store, KEYS) as client:
        for path in ("/v1/sessions", "/v1/stats", "/metrics", "/openapi", "/v1/changes/stream"):
            answer = client.get(path)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/v1/sessions", headers=bearer("wrong")).status_code == 401
        assert client.get("/v1/sessions", headers={"x-tapes-token": READ}).status_code == 200
        for path in ("/ping", "/healthz", "/readyz", "/swagger"):
            assert client.get(path).status_code == 200, path


def test_a_reader_may_not_change_anything(store: SqlStore) -> None:
    ids = filled(store)
    with served(store, KEYS) as client:
        path = f"/v1/sessions/{ids[NO_ORG]}"
        for method, where in (
            ("DELETE", path), ("PATCH", path), ("POST", "/v1/admin/derive/run"),
            ("POST", "/v1/admin/seed/demo"), ("PUT", "/v1/retention"), ("POST", "/v1/erasures"),
        ):  # fmt: skip
            answer = client.request(method, where, headers=bearer(READ), json={})
            assert (answer.status_code, answer.json()["code"]) == (403, "not-allowed"), where
        assert client.get(path, headers=bearer(READ)).status_code == 200
        assert client.delete(path, headers=bearer(ADMIN)).status_code == 204


# --- tenants ----------------------------------------------------------------------------------


@pytest.mark.row("D4")
def test_tenants_are_kept_apart_on_every_route(store: SqlStore) -> None:
    ids = filled(store)
    with served(store, KEYS) as client:
        client.headers.update(bearer(TENANT))
        whole = got(client, "/v1/sessions", count="exact")
        assert [item["id"] for item in whole["items"]] == [ids[OURS]]
        assert whole["count"]["value"] == 1
        assert got(client, "/v1/stats")["session_count"] == 1
        assert [turn["request_id"] for turn in got(client, "/v1/turns")["items"]] == ["same-2"]
        hits = got(client, "/v1/search", q="canary")["items"]
        assert [hit["span"]["session_id"] for hit in hits] == [ids[OURS]]
        assert [c["session_id"] for c in got(client, "/v1/changes")["items"]] == [ids[OURS]]
        assert got(client, "/v1/facets/model")["items"][0]["sessions"] == 1
        assert sum(got(client, "/v1/status")["counts"]["source"].values()) == 1
        for org in (NO_ORG, THEIRS):
            other = ids[org]
            for below in ("", "/traces", "/raw_turns"):
                refused(client, f"/v1/sessions/{other}{below}", 404)
            refused(client, "/v1/traces", 404, session_id=other)
            assert got(client, "/v1/spans", session_id=other)["items"] == []
            assert got(client, "/v1/find", id=other[:8])["items"] == []
        for turn in (1, 3):
            refused(client, f"/v1/turns/{turn}", 404)
            refused(client, f"/v1/turns/{turn}/request/body", 404)
            refused(client, f"/v1/traces/trc_same-{turn}", 404)


def test_metrics_tell_a_tenant_of_its_own_log_alone(store: SqlStore) -> None:
    filled(store)
    turns = 'tapes_log{what="source",value="wire"} '
    with served(store, KEYS) as client:
        told = {t: client.get("/metrics", headers=bearer(t)).text for t in (ADMIN, READ, TENANT)}
    assert [turns + f"{number}\n" in told[token] for token, number in (
        (ADMIN, 3), (READ, 1), (TENANT, 1)
    )] == [True, True, True]  # fmt: skip
    tells_of_server = [token for token, text in told.items() if "tapes_apiserver" in text]
    assert tells_of_server == [ADMIN, READ]


def test_the_status_tells_a_tenant_nothing_of_where_the_log_lies(store: SqlStore) -> None:
    with served(store, KEYS) as client:
        told = {t: client.get("/v1/status", headers=bearer(t)) for t in (ADMIN, READ, TENANT)}
    assert [store.name in answer.text for answer in told.values()] == [True, True, False]
    assert "store" not in told[TENANT].json()


def test_a_failure_tells_a_tenant_nothing_of_where_the_log_lies(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(open_sqlite(path)) as store, served(store, KEYS) as client:
        with closing(sqlite3.connect(path)) as other:
            other.execute("DROP TABLE traces")
        told = {t: client.get("/v1/traces", headers=bearer(t)) for t in (ADMIN, READ, TENANT)}
    assert [answer.status_code for answer in told.values()] == [503, 503, 503]
    assert [str(path) in answer.text for answer in told.values()] == [True, True, False]
    assert told[TENANT].json()["code"] == told[READ].json()["code"]


def test_a_token_of_a_tenant_cannot_ask_for_another(store: SqlStore) -> None:
    filled(store)
    with served(store, KEYS) as client:
        for token in (TENANT, READ):
            headers = {**bearer(token), "x-tapes-org": THEIRS}
            assert client.get("/v1/sessions", headers=headers).status_code == 403
        headers = {**bearer(ADMIN), "x-tapes-org": THEIRS}
        assert len(client.get("/v1/sessions", headers=headers).json()["items"]) == 1
        headers = {**bearer(ADMIN), "x-tapes-org": "nobody"}
        assert client.get("/v1/sessions", headers=headers).status_code == 400


def test_a_listener_hears_nothing_of_other_tenants(store: SqlStore) -> None:
    with served(store, KEYS) as client:
        headers = bearer(TENANT)
        with client.stream("GET", "/v1/changes/stream?after=0", headers=headers) as answer:
            ids = filled(store)
            data = next(line for line in answer.iter_lines() if line.startswith("data:"))
            assert ids[OURS] in data


# --- browsers ---------------------------------------------------------------------------------


def test_a_name_that_leads_here_by_a_trick_is_not_answered(client: httpx.Client) -> None:
    answer = client.get("/v1/sessions", headers={"host": "evil.example:8081"})
    assert (answer.status_code, answer.json()["code"]) == (421, "not-allowed")
    for name in ("localhost:1", "127.0.0.1", "LOCALHOST"):
        assert client.get("/v1/sessions", headers={"host": name}).status_code == 200


def test_a_web_page_of_somebody_else_is_not_answered(client: httpx.Client) -> None:
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        answer = client.get("/v1/sessions", headers={"origin": origin})
        assert answer.status_code == 403, origin
        assert "access-control-allow-origin" not in answer.headers
    own = f"http://{client.base_url.netloc.decode()}"
    assert client.get("/v1/sessions", headers={"origin": own}).status_code == 200


# --- bounds -----------------------------------------------------------------------------------


def test_bodies_are_bounded_however_they_are_sent(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "a.db")
    with served(store, bounds=Bounds(body=1000, rate=0, wrong_tokens=0)) as client:
        large = b"x" * 2000
        assert client.post("/v1/erasures", content=large).status_code == 413
        pieces = (large[start : start + 100] for start in range(0, 2000, 100))
        answer = client.post("/v1/erasures", content=pieces)
        assert (answer.status_code, answer.json()["code"]) == (413, "too-large")
    store.close()


def test_asking_too_often_is_told_when_to_come_again(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "a.db")
    with served(store, bounds=Bounds(rate=0.001)) as client:
        statuses = [client.get("/ping").status_code for _ in range(3)]
        assert statuses[-1] == 429
        assert int(client.get("/ping").headers["retry-after"]) >= 1
    store.close()


def test_guessing_tokens_is_slowed_down(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "a.db")
    with served(store, KEYS, Bounds(rate=0, wrong_tokens=0.5)) as client:
        statuses = [client.get("/v1/stats", headers=bearer("guess")).status_code for _ in range(4)]
        assert statuses[0] == 401
        assert statuses[-1] == 429
    store.close()


def test_a_nul_is_refused_before_anybody_reads_it(client: httpx.Client) -> None:
    for path in ("/v1/sessions?q=%00", "/v1/traces/%00"):
        connection = http.client.HTTPConnection(client.base_url.host, client.base_url.port)
        connection.request("GET", path)
        assert connection.getresponse().status == 400
        connection.close()


# --- the rest ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "port"),
    [("POST", "/v1/ingest", 8082), ("POST", "/v1/traces", 8082), ("POST", "/v1/messages", 8080),
     ("POST", "/openai/v1/chat/completions", 8080), ("POST", "/api/chat", 8080)],
)  # fmt: skip
def test_a_request_at_the_wrong_port_is_told_the_right_one(
    client: httpx.Client, method: str, path: str, port: int
) -> None:
    answer = client.request(method, path, json={})
    assert (answer.status_code, answer.json()["code"]) == (421, "wrong-port")
    assert f"http://127.0.0.1:{port}{path}" in answer.json()["detail"]


def test_an_answer_bears_the_id_of_its_request(client: httpx.Client) -> None:
    own = "7f3a1b2c-1111-4222-8333-444455556666"
    assert client.get("/ping", headers={"x-request-id": own}).headers["x-request-id"] == own
    for odd in ("nonsense", own.upper(), "7f3a1b2c-1111-1222-8333-444455556666", "a\tb"):
        made = client.get("/ping", headers={"x-request-id": odd}).headers["x-request-id"]
        assert made != odd
        assert re.fullmatch(r"[0-9a-f-]{36}", made)


def test_an_answer_that_lost_its_database_is_broken_off_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def pieces(*_: object) -> Iterator[bytes]:
        yield b"what came so far\n"
        raise UnavailableStore("the database has gone")

    monkeypatch.setattr(Export, "pieces", pieces)
    store = open_sqlite(tmp_path / "a.db")
    with asgi_serving(Api(store).app) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        connection.request("GET", "/v1/export")
        with closing(connection), pytest.raises(http.client.IncompleteRead):
            connection.getresponse().read()
    (said,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "an answer is broken off: the database has gone" in said.getMessage()
    assert said.exc_info is None
    store.close()
