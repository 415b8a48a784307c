import time
from dataclasses import replace

import httpx
import pytest

from tapes.projector import Projector
from tapes.rows import DERIVATION
from tapes.store.sql import SqlStore
from tests.api.serving import got, served
from tests.contracts.test_store import fill, many

THEIRS = "33333333-3333-4333-8333-333333333333"


@pytest.mark.row("D4")
def test_seeding_shows_samples_and_again_changes_nothing(store: SqlStore) -> None:
    with served(store) as client:
        first = client.post("/v1/admin/seed/demo").json()
        assert first == {
            "sessions": 6, "raw_turns": 24, "raw_turns_inserted": 24, "raw_turns_deduped": 0
        }  # fmt: skip
        seq = got(client, "/v1/status")["seq"]
        again = client.post("/v1/admin/seed/demo", json={"overwrite": False}).json()
        assert again["raw_turns_inserted"] == 0
        assert len(got(client, "/v1/sessions")["items"]) == 6
        assert got(client, "/v1/status")["seq"] == seq
        assert client.post("/v1/admin/seed/demo", json={"overwrite": True}).status_code == 400


@pytest.mark.row("D3", "D4")
def test_deriving_everything_anew_changes_nothing(store: SqlStore) -> None:
    fill(store, many(3, 3))
    with served(store) as client:
        before = got(client, "/v1/sessions")
        told = client.post("/v1/admin/derive/run").json()["orgs"]["default"]
        assert (told["sessions"], told["changed_rows"], told["failed"]) == (3, 0, 0)
        after = got(client, "/v1/sessions")
        assert after == before


@pytest.mark.row("D4")
def test_deriving_anew_counts_what_is_the_tenants_own(store: SqlStore) -> None:
    turns = many(3, 2)
    fill(store, turns)
    theirs = [replace(t, envelope=replace(t.envelope, org_id=THEIRS)) for t in turns[:2]]
    store.append(theirs)
    store.mark_dirty()
    with served(store) as client:
        org = {"x-tapes-org": THEIRS}
        told = client.post("/v1/admin/derive/run", headers=org).json()["orgs"][THEIRS]
        assert (told["sessions"], told["derived"], told["failed"]) == (1, 1, 0)
        assert (told["raw_turns"], told["parsed_turns"], told["call_kinds"]) == (2, 2, {"main": 2})
        whole = client.post("/v1/admin/derive/run").json()["orgs"]["default"]
        assert (whole["derived"], whole["raw_turns"], whole["call_kinds"]) == (3, 6, {"main": 6})


def test_deriving_anew_says_what_another_worker_still_has(store: SqlStore) -> None:
    fill(store, many(3, 1))
    store.mark_dirty()
    now = time.time_ns()
    with served(store) as client, store.take(2, ready_at=now, overdue_at=now, but=()) as work:
        told = client.post("/v1/admin/derive/run").json()["orgs"]["default"]
        held = len(work.taken) if store.database.is_postgres else 0  # elsewhere nobody is held up
        assert (told["sessions"], told["derived"], told["waiting"]) == (3, 3 - held, held)
    with served(store) as client:
        told = client.post("/v1/admin/derive/run").json()["orgs"]["default"]
        assert (told["derived"], told["waiting"]) == (3, 0)


def test_a_correction_moves_a_turn_to_its_session(store: SqlStore) -> None:
    fill(store, many(1, 2))
    with served(store) as client:
        turn = got(client, "/v1/turns")["items"][0]
        body = {"raw_turn_id": turn["id"], "harness_id": "bench", "harness_session_id": "other"}
        answer = client.post("/v1/admin/raw-turns/attribution-repair", json=body)
        assert (answer.status_code, answer.json()["recorded"]) == (202, True)
        previous, effective = answer.json()["previous"], answer.json()["effective"]
        assert previous["harness_session_id"] not in ("", "other")
        assert effective == {
            "harness_id": "bench", "harness_session_id": "other", "thread_id": ""
        }  # fmt: skip
        Projector(store).drain()
        assert len(got(client, "/v1/sessions", harness_session_id="other")["items"]) == 1
        again = client.post("/v1/admin/raw-turns/attribution-repair", json=body).json()
        assert again["previous"] == again["effective"] == effective


@pytest.mark.parametrize(
    ("body", "status"),
    [({}, 400), ({"harness_id": "a", "harness_session_id": "b"}, 400),
     ({"raw_turn_id": 999, "harness_id": "a", "harness_session_id": "b"}, 404),
     ({"paper_proxy_request_id": "x", "harness_id": "a", "harness_session_id": "b"}, 404)],
)  # fmt: skip
def test_a_correction_that_cannot_be_made_is_refused(
    client: httpx.Client, body: dict[str, object], status: int
) -> None:
    assert client.post("/v1/admin/raw-turns/attribution-repair", json=body).status_code == status


def test_the_status_counts_what_the_log_holds(client: httpx.Client) -> None:
    status = got(client, "/v1/status")
    assert status["counts"]["outcome"] == {"live": 14, "recorded": 8, "replayed": 2}
    assert status["counts"]["waiting"]["sessions"] == 0
    assert status["skipped"] == {}
    assert status["derivation"] == {"derived_by": DERIVATION, "deriver": DERIVATION, "done": 1.0}
