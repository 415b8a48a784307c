"""The private door: what is posted is durable when it is acknowledged, and shows."""

import gzip
import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import brotli
import pytest
import zstandard
from openapi_spec_validator import validate

from tapes.access import Access, token_hash
from tapes.envelope import Envelope
from tapes.errors import UnavailableStore
from tapes.projector import Projector
from tapes.rows import Fidelity, RawTurn, SpanKind, Status, session_id_of
from tapes.store.base import Ask
from tapes.store.sql import SqlStore
from tests.conftest import OpenStore
from tests.doors import derived, door, wait_for
from tests.ingest.payloads import payload, raw_payload

SESSION = session_id_of(Envelope(harness_id="bench", harness_session_id="s"))


def turns(store: SqlStore) -> list[RawTurn]:
    return list(store.project().stream_turns())


# --- one turn ---------------------------------------------------------------------------------


@pytest.mark.row("D5")
def test_a_turn_is_acknowledged_and_shows_as_session_trace_and_span(store: SqlStore) -> None:
    with door(store) as client:
        answer = client.post("/v1/ingest", json=payload())
    assert (answer.status_code, answer.json()["status"]) == (202, "accepted")
    assert answer.json()["deduped"] is False
    derived(store)
    rows = store.project().rows_of_session(SESSION)
    (trace,) = rows.traces
    assert (trace.user_prompt, trace.response_preview) == ("question 1", "hello")
    assert (rows.sessions[0].total_input_tokens, rows.sessions[0].total_output_tokens) == (10, 5)


@pytest.mark.row("D2", "D5")
def test_a_second_delivery_is_one_turn_and_says_so(store: SqlStore) -> None:
    with door(store) as client:
        first = client.post("/v1/ingest", json=payload()).json()
        again = client.post("/v1/ingest", json=payload()).json()
    assert (first["deduped"], again["deduped"]) == (False, True)
    assert first["id"] == again["id"]
    assert len(turns(store)) == 1


def test_turns_without_a_request_id_are_never_the_same(store: SqlStore) -> None:
    with door(store) as client:
        for _ in range(2):
            client.post("/v1/ingest", json=payload(meta={}))
    assert len(turns(store)) == 2


@pytest.mark.row("D5")
def test_bytes_alone_are_reduced_here(store: SqlStore) -> None:
    with door(store) as client:
        answer = client.post("/v1/ingest", json=raw_payload())
    assert answer.status_code == 202
    (raw,) = turns(store)
    assert isinstance(raw.reduced, dict)
    assert raw.reduced["message"]["content"] == [{"type": "text", "text": "from bytes"}]
    assert raw.reduced["usage"]["total_duration_ns"] == 1_500_000_000
    derived(store)
    (llm,) = (s for s in store.project().rows_of_session(SESSION).spans if s.kind is SpanKind.LLM)
    assert (llm.fidelity, llm.status, llm.usage["prompt_tokens"]) == (Fidelity.RAW, Status.OK, 7)


def test_the_bytes_are_kept_under_their_coding(store: SqlStore) -> None:
    coded = gzip.compress(b'{"type":"message","role":"assistant","content":[],"id":"m"}')
    with door(store) as client:
        answer = client.post("/v1/ingest", json=raw_payload(coded, raw_response_encoding="gzip"))
    assert answer.status_code == 202
    (raw,) = turns(store)
    assert raw.exchange is not None
    assert raw.exchange.response.body == coded


def test_withheld_bytes_are_told_from_bytes_that_never_were(store: SqlStore) -> None:
    with door(store) as client:
        client.post("/v1/ingest", json=payload(raw_response_withheld=True))
    derived(store)
    rows = store.project().rows_of_session(SESSION)
    assert rows.sessions[0].fidelity is Fidelity.DEGRADED


@pytest.mark.row("D5")
def test_a_turn_without_a_session_is_visible_too(store: SqlStore) -> None:
    with door(store) as client:
        client.post("/v1/ingest", json=payload(session=None))
        client.post("/v1/ingest", json=payload(2, session={"harness_id": "unknown"}))
    derived(store)
    listed = store.project().sessions().items
    assert [item.session.session_by for item in listed] == ["content", "content"]


def test_an_agent_that_puts_its_session_into_its_request_is_understood(store: SqlStore) -> None:
    asked = payload()["request"] | {"metadata": {"session_id": "inside"}}
    with door(store) as client:
        client.post("/v1/ingest", json=payload(session=None, request=asked))
    (raw,) = turns(store)
    assert (raw.envelope.harness_session_id, raw.session_by) == ("inside", "body")


def test_an_answer_without_content_is_an_answer(store: SqlStore) -> None:
    form = payload()["response"] | {"message": {"role": "assistant", "content": []}}
    with door(store) as client:
        assert client.post("/v1/ingest", json=payload(response=form)).status_code == 202


@pytest.mark.row("D5")
@pytest.mark.parametrize(
    "wrong",
    [
        {"provider": "acme"},
        {"provider": None},
        {"request": "text"},
        {"request": None},
        {"response": None},
        {"response": {"message": {"content": []}}},
        {"response": {"message": {"role": "assistant", "content": [{"text": "no type"}]}}},
    ],
    ids=["provider", "no-provider", "request", "no-request", "no-answer", "no-role", "no-type"],
)
def test_a_turn_that_nobody_can_read_is_refused_and_kept(store: SqlStore, wrong: Any) -> None:
    with door(store) as client:
        answer = client.post("/v1/ingest", json=payload(**wrong))
        metrics = client.get("/metrics").text
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("unprocessable turn: ")
    assert [raw.id for raw in turns(store)] == [answer.json()["id"]]
    assert 'status="accepted"' not in metrics


@pytest.mark.row("D5")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"[1]",
        b"7",
        json.dumps(payload(meta=[])).encode(),
        json.dumps(payload(response="text")).encode(),
        json.dumps(payload(raw_response="no base64!")).encode(),
        json.dumps(payload(session={"org_id": "me"})).encode(),
        json.dumps(payload(session={"harness_metadata": [1]})).encode(),
        json.dumps(payload(session={"parent_harness_session_id": ""})).encode(),
        json.dumps(payload(meta={"thread_id": "x" * 600})).encode(),
        b'{"request":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
    ids=range(12),
)
def test_a_body_that_is_no_envelope_is_refused_and_not_kept(store: SqlStore, body: bytes) -> None:
    with door(store) as client:
        answer = client.post("/v1/ingest", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("invalid envelope: ")
    assert turns(store) == []


def test_who_the_tenant_is_the_server_says(store: SqlStore) -> None:
    org = "11111111-1111-4111-8111-111111111111"
    with door(store) as client:
        client.post("/v1/ingest", json=payload(session={"harness_session_id": "s", "org_id": org}))
    assert len(turns(store)) == 1
    assert list(store.project(org).stream_turns()) == []


@pytest.mark.row("D5")
def test_secrets_do_not_come_to_rest(store: SqlStore) -> None:
    key = "sk-ant-api03-" + "Q7" * 46 + "-ABCDEFAA"
    asked = payload()["request"] | {"messages": [{"role": "user", "content": f"key {key}"}]}
    said = {"role": "assistant", "content": [{"type": "text", "text": key}]}
    form = payload()["response"] | {"message": said}
    meta = {"request_id": "r", "path": f"/v1/messages?key={'TEST-QUERY-0123456789'}"}
    session = {"harness_session_id": "s", "name": key, "harness_metadata": {"api_key": key}}
    body = payload(request=asked, response=form, meta=meta, session=session)
    with door(store) as client:
        assert client.post("/v1/ingest", json=body).status_code == 202
    (raw,) = turns(store)
    assert key not in repr(raw)
    assert "TEST-QUERY-0123456789" not in repr(raw)


def test_what_was_erased_does_not_come_back(store: SqlStore) -> None:
    with door(store) as client:
        client.post("/v1/ingest", json=payload())
        derived(store)
        store.project().erase([SESSION], reason="asked")
        answer = client.post("/v1/ingest", json=payload())
    assert answer.status_code == 410
    assert turns(store) == []


# --- bodies -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coding", "code"),
    [
        ("gzip", gzip.compress),
        ("zstd", zstandard.compress),
        ("br", brotli.compress),
    ],
)
def test_coded_bodies_are_read(store: SqlStore, coding: str, code: Any) -> None:
    body = code(json.dumps(payload()).encode())
    with door(store) as client:
        answer = client.post("/v1/ingest", content=body, headers={"content-encoding": coding})
    assert answer.status_code == 202


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"content-encoding": "gzip"}, gzip.compress(b" " * 2_000_000), 413),
        ({"content-encoding": "zstd"}, zstandard.compress(b" " * 2_000_000), 413),
        ({"content-encoding": "br"}, brotli.compress(b" " * 2_000_000), 413),
        ({}, b" " * 1_100_000, 413),
        ({"content-encoding": "lzma"}, b"x", 415),
        ({"content-encoding": "gzip"}, b"not gzip", 422),
        ({"content-encoding": "gzip"}, gzip.compress(b"{}" * 1000)[:-9], 422),
    ],
    ids=["gzip-bomb", "zstd-bomb", "br-bomb", "large", "unknown", "broken", "cut"],
)
def test_bodies_are_bounded_and_whole(
    store: SqlStore, headers: dict[str, str], body: bytes, status: int
) -> None:
    with door(store, body_limit=1_000_000) as client:
        answer = client.post("/v1/ingest", content=body, headers=headers)
        metrics = client.get("/metrics").text
    assert answer.status_code == status
    assert turns(store) == []
    assert ('status="reject_oversize"' in metrics) == (status == 413)


def test_more_than_there_is_room_for_is_told_to_come_again(store: SqlStore) -> None:
    release, held = threading.Event(), threading.Event()

    class Slow:
        """The store, when it is asked for longer than it takes."""

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def append(self, turns: Any) -> Any:
            held.set()
            assert release.wait(20)
            return store.append(turns)

    with door(Slow(), under_way=3000) as client:
        with ThreadPoolExecutor() as pool:
            first = pool.submit(client.post, "/v1/ingest", json=payload(text="x" * 1500))
            assert held.wait(20)
            full = client.post("/v1/ingest", json=payload(2, text="y" * 2000))
            release.set()
            assert first.result().status_code == 202
        assert (full.status_code, full.headers["retry-after"]) == (503, "1")
        assert client.post("/v1/ingest", json=payload(2, text="y" * 2000)).status_code == 202


@pytest.mark.row("D5")
def test_a_store_that_is_gone_is_no_success(store: SqlStore) -> None:
    class Gone:
        """The store, while its database cannot be reached."""

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def append(self, turns: Any) -> Any:
            raise UnavailableStore("the database is gone")

    with door(Gone()) as client:
        one = client.post("/v1/ingest", json=payload())
        batch = client.post("/v1/ingest/batch", json=[payload()])
        transcript = client.post("/v1/ingest/transcript", json=told([]))
    assert [a.status_code for a in (one, batch, transcript)] == [502, 502, 500]
    assert turns(store) == []


# --- batches ----------------------------------------------------------------------------------


@pytest.mark.row("D5")
def test_each_turn_of_a_batch_has_its_own_answer(store: SqlStore) -> None:
    items = [payload(1), payload(2, provider="acme"), [], payload(1), payload(3)]
    with door(store) as client:
        answer = client.post("/v1/ingest/batch", json={"turns": items})
    told = answer.json()
    assert [result["code"] for result in told["results"]] == [202, 422, 400, 202, 202]
    assert [told["accepted"], told["deduped"], told["failed"]] == [3, 1, 2]
    assert len(turns(store)) == 3


def test_a_batch_of_lines_goes_on_behind_a_broken_one(store: SqlStore) -> None:
    lines = [json.dumps(payload(1)), '{"cut":', json.dumps(payload(2))]
    kind = {"content-type": "application/x-ndjson"}
    with door(store) as client:
        answer = client.post("/v1/ingest/batch", content="\n".join(lines), headers=kind)
    assert [result["code"] for result in answer.json()["results"]] == [202, 400, 202]


@pytest.mark.parametrize("body", [b"{}", b'{"turns": 5}', b"3"])
def test_what_is_no_batch_is_refused(store: SqlStore, body: bytes) -> None:
    with door(store) as client:
        assert client.post("/v1/ingest/batch", content=body).status_code == 400


# --- many at once -----------------------------------------------------------------------------


@pytest.mark.row("D2", "D5")
def test_many_senders_of_the_same_turns_keep_each_once(store: SqlStore) -> None:
    with door(store) as client:

        def send(number: int) -> tuple[int, bool]:
            answer = client.post("/v1/ingest", json=payload(number % 25))
            return answer.status_code, answer.json()["deduped"]

        with ThreadPoolExecutor(16) as pool:
            answers = Counter(pool.map(send, range(200)))
    assert answers == {(202, False): 25, (202, True): 175}
    assert len(turns(store)) == 25


@pytest.mark.row("D2")
def test_a_restart_forgets_nothing_that_was_acknowledged(open_store: OpenStore) -> None:
    with door(open_store()) as client:
        kept = client.post("/v1/ingest", json=payload()).json()["id"]
    with door(open_store()) as client:
        again = client.post("/v1/ingest", json=payload()).json()
    assert (again["deduped"], again["id"]) == (True, kept)


def test_one_turn_that_breaks_the_store_does_not_break_the_others(store: SqlStore) -> None:
    class Picky:
        """The store, with a turn that it cannot take for a reason of its own."""

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def append(self, turns: Any) -> Any:
            if any(turn.request_id == "req-7" for turn in turns):
                raise RuntimeError("no")
            return store.append(turns)

    with door(Picky()) as client, ThreadPoolExecutor(16) as pool:
        answers = pool.map(lambda n: client.post("/v1/ingest", json=payload(n)), range(20))
        statuses = [answer.status_code for answer in answers]
    assert [number for number, status in enumerate(statuses) if status != 202] == [7]


# --- transcripts ------------------------------------------------------------------------------


def told(records: Any, **more: Any) -> dict[str, Any]:
    session = {"harness_id": "claude", "harness_session_id": "s"}
    return {"session": session, "records": records} | more


@pytest.mark.row("D5")
def test_a_transcript_is_kept_once_for_each_content(store: SqlStore) -> None:
    one, two = [{"type": "user"}], [{"type": "user"}, {"type": "assistant"}]
    with door(store) as client:
        answers = [
            client.post("/v1/ingest/transcript", json=told(records)) for records in (one, one, two)
        ]
    assert [answer.status_code for answer in answers] == [202, 202, 202]
    assert [answer.json()["deduped"] for answer in answers] == [False, True, False]
    assert [answer.json()["records"] for answer in answers] == [1, 1, 2]
    assert len(turns(store)) == 2


@pytest.mark.parametrize(
    "wrong",
    [{"session": None}, {"session": {"harness_id": "claude"}}, {"records": {}}, {"kind": 5}],
    ids=["no-session", "no-id", "records", "kind"],
)
def test_a_transcript_of_no_session_is_refused(store: SqlStore, wrong: Any) -> None:
    with door(store) as client:
        answer = client.post("/v1/ingest/transcript", json=told([]) | wrong)
    assert answer.status_code == 400
    assert turns(store) == []


def test_the_gateway_says_whose_transcript_it_is(store: SqlStore) -> None:
    body = told([], agent_id="a1", kind="started", tool_use_id="t1")
    with door(store) as client:
        answer = client.post(
            "/v1/ingest/transcript", json=body, headers={"x-paper-auth-subject": "ann"}
        )
    assert answer.json()["agent_id"] == "a1"
    (raw,) = turns(store)
    assert raw.envelope.auth_subject == "ann"


# --- who may come in --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1"}, 403),
        ({}, 202),
    ],
    ids=["rebound", "page", "own-page", "program"],
)
def test_no_web_page_and_no_rebound_name_comes_in(
    store: SqlStore, headers: dict[str, str], status: int
) -> None:
    with door(store) as client:
        answer = client.post("/v1/ingest", json=payload(), headers=headers)
    assert answer.status_code == status
    assert len(turns(store)) == (status == 202)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/ingest", {}, 401),
        ("/v1/ingest", {"x-tapes-token": "wrong"}, 401),
        ("/v1/ingest", {"x-tapes-token": "secret"}, 202),
        ("/v1/ingest", {"authorization": "Bearer secret"}, 202),
        ("/~secret/v1/ingest", {}, 202),
        ("/~wrong/v1/ingest", {}, 401),
    ],
)
def test_with_a_token_nobody_comes_in_without_it(
    store: SqlStore, path: str, headers: dict[str, str], status: int
) -> None:
    with door(store, access=Access(token_hash("secret"))) as client:
        answer = client.post(path, json=payload(), headers=headers)
    assert answer.status_code == status


@pytest.mark.parametrize(
    ("method", "path", "status", "told"),
    [
        ("POST", "/v1/chat/completions", 421, ":8080/v1/chat"),
        ("POST", "/anthropic/v1/messages", 421, ":8080/anthropic"),
        ("GET", "/v1/sessions", 421, ":8081/v1/sessions"),
        ("GET", "/v1/traces?session_id=x", 421, ":8081/v1/traces"),
        ("GET", "/nothing", 404, "/openapi"),
    ],
)
def test_what_is_asked_at_the_wrong_port_is_told_the_right_one(
    store: SqlStore, method: str, path: str, status: int, told: str
) -> None:
    with door(store) as client:
        answer = client.request(method, path)
    assert answer.status_code == status
    assert told in answer.json()["error"]


# --- what it says of itself -------------------------------------------------------------------


def test_it_says_that_it_serves_and_counts_what_came(store: SqlStore) -> None:
    with door(store) as client:
        assert client.get("/ping").json() == {"status": "ok"}
        client.post("/v1/ingest", json=payload())
        client.post("/v1/ingest", content=b"{")
        text = client.get("/metrics").text
    assert 'tapes_ingest_writes_total{provider="anthropic",status="accepted"} 1' in text
    assert 'tapes_ingest_writes_total{provider="unknown",status="reject_envelope"} 1' in text
    assert 'tapes_ingest_body_bytes_count{provider="anthropic"} 1' in text
    assert "tapes_ingest_worker_queue_depth 0" in text


def test_times_that_no_clock_shows_are_no_times(store: SqlStore) -> None:
    meta = {"request_id": "r", "ts_request": "9999-01-01T00:00:00Z", "captured_at": "0001-01-01"}
    with door(store) as client:
        assert client.post("/v1/ingest", json=payload(meta=meta)).status_code == 202
    (raw,) = turns(store)
    assert raw.started_at is None
    derived(store)


def test_every_turn_is_visible_while_a_projector_runs(store: SqlStore) -> None:

    projector, stop = Projector(store), threading.Event()
    running = threading.Thread(target=projector.run, args=(stop,))
    running.start()
    try:
        with door(store, kept=projector.wake) as client, ThreadPoolExecutor(8) as pool:
            sent = [payload(n, session={"harness_session_id": f"s{n % 50}"}) for n in range(500)]
            answers = list(pool.map(lambda p: client.post("/v1/ingest", json=p), sent))
            assert {answer.status_code for answer in answers} == {202}
            wait_for(lambda: _calls(store) == 500)
    finally:
        stop.set()
        projector.wake()
        running.join(20)
    assert list(projector.check()) == []


def _calls(store: SqlStore) -> int:

    page = store.project().sessions(Ask(limit=200))
    return sum(item.session.llm_calls for item in page.items)


def test_the_contract_can_be_read(store: SqlStore) -> None:

    with door(store) as client:
        document = client.get("/openapi").json()
    validate(document)
    assert "/v1/ingest" in document["paths"]


def test_a_wrong_method_is_told_in_json_as_all_errors_are(store: SqlStore) -> None:
    with door(store) as client:
        answer = client.get("/v1/ingest")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json() == {"error": "/v1/ingest does not have GET"}
