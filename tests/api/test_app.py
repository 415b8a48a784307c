import re
from pathlib import Path

import httpx
import pytest
from openapi_spec_validator import validate

from tapes.api.app import Api
from tapes.errors import UnavailableStore
from tapes.store.sql import SqlStore
from tapes.store.sqlite import open_sqlite
from tests.api.serving import got, refused, served, serving
from tests.tape.faults import file_size_limit
from tests.turns import chat, said


@pytest.mark.row("D4")
def test_ping_answers_pong(client: httpx.Client) -> None:
    assert got(client, "/ping") == "pong"


def test_an_unknown_path_is_a_problem_document(client: httpx.Client) -> None:
    problem = refused(client, "/v1/nothing/there", 404)
    assert problem["code"] == "not-found"
    assert "/openapi" in problem["remedy"]


def test_an_unknown_method_is_said_with_those_that_are_there(client: httpx.Client) -> None:
    answer = client.put("/v1/sessions", json={})
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET"
    assert answer.json()["code"] == "method-not-allowed"


@pytest.mark.row("D4")
def test_the_document_is_valid_openapi_3_1(client: httpx.Client) -> None:
    document = got(client, "/openapi")
    assert document["openapi"].startswith("3.1")
    validate(document)


def test_every_operation_says_how_it_fails_and_what_it_is_for(client: httpx.Client) -> None:
    for path, item in got(client, "/openapi")["paths"].items():
        for method, operation in item.items():
            assert operation["responses"]["default"], (method, path)
            assert operation["description"].endswith("."), (method, path)


def test_head_is_get_without_a_body(client: httpx.Client) -> None:
    whole, head = client.get("/v1/sessions"), client.head("/v1/sessions")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["etag"] == whole.headers["etag"]


def test_an_answer_that_the_client_has_is_not_sent_again(client: httpx.Client) -> None:
    tag = client.get("/v1/sessions").headers["etag"]
    again = client.get("/v1/sessions", headers={"if-none-match": f'"other", {tag}'})
    assert (again.status_code, again.content) == (304, b"")
    other = client.get("/v1/sessions", params={"limit": 1}, headers={"if-none-match": tag})
    assert other.status_code == 200


def test_large_answers_are_compressed_where_the_client_takes_it(client: httpx.Client) -> None:
    plain = client.get("/v1/spans", headers={"accept-encoding": "identity"})
    packed = client.get("/v1/spans", headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.json() == plain.json()


def test_the_page_of_the_document_loads_nothing_from_elsewhere(client: httpx.Client) -> None:
    page = client.get("/swagger")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for name in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert client.get(name).status_code == 200
    assert "//" not in page.text.replace("</", "")
    assert client.get("/ui/reference.html").text == page.text


def test_a_page_that_is_not_there_is_not_found(client: httpx.Client) -> None:
    refused(client, "/ui/../app.py", 404)
    refused(client, "/ui/other.js", 404)


@pytest.mark.row("D4")
def test_metrics_count_by_route_and_tell_of_the_log(client: httpx.Client) -> None:
    got(client, "/v1/find", id="toolu_03")
    text = client.get("/metrics").text
    assert 'requests_total{route="/v1/find",method="GET",status="200"}' in text
    assert 'tapes_log{what="source",value="wire"} 24' in text
    assert "tapes_apiserver_inflight_requests 1" in text


def test_readiness_asks_the_database(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "a.db")
    with served(store) as client:
        assert got(client, "/healthz") == {"ready": True, "store": "ok"}
        assert got(client, "/readyz") == {"ready": True, "store": "ok"}
        store.close()
        store.project = _gone  # type: ignore[method-assign, assignment]  # a database that went away
        assert client.get("/healthz").status_code == 503
        assert client.get("/readyz").status_code == 503
        gone = refused(client, "/v1/stats", 503)
    assert gone["code"] == "unavailable-store"


def test_readiness_tells_that_nothing_can_be_written_until_it_can(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "a.db")
    with served(store) as client:
        with file_size_limit(10), pytest.raises(UnavailableStore):
            store.append([chat(1, [said("user", "hello")], "ok")])
        with file_size_limit(10):
            assert got(client, "/readyz") == {"ready": True, "store": "read only"}
        assert got(client, "/readyz") == {"ready": True, "store": "ok"}
    store.close()


def _gone(*_: object) -> SqlStore:
    raise UnavailableStore("the database has gone")


def test_what_fails_unforeseen_is_answered_without_a_word_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_sqlite(tmp_path / "a.db")
    store.project = _broken  # type: ignore[method-assign, assignment]  # a bug of ours
    with serving(Api(store)) as client:
        problem = refused(client, "/v1/stats", 500)
    assert "CANARY" not in str(problem)
    assert "CANARY" in caplog.text
    store.close()


def _broken(*_: object) -> SqlStore:
    raise RuntimeError("CANARY")
