from typing import Any

import httpx
import pytest

from tapes.store.sql import SqlStore
from tests.api.serving import got, refused, seeded, served
from tests.contracts.test_store import fill, many


def test_erasing_by_a_query_says_first_what_it_would_be(store: SqlStore) -> None:
    seeded(store)
    with served(store) as client:
        wanted = {"q": "harness:weather-app", "reason": "old", "dry_run": True}
        planned = client.post("/v1/erasures", json=wanted).json()
        assert (planned["state"], planned["sessions"], planned["turns"]) == ("planned", 2, 4)
        assert len(got(client, "/v1/sessions")["items"]) == 6
        done = client.post("/v1/erasures", json=wanted | {"dry_run": False}).json()
        assert (done["sessions"], done["turns"], done["reason"]) == (2, 4, "old")
        assert len(got(client, "/v1/sessions")["items"]) == 4
        assert got(client, f"/v1/erasures/{done['id']}")["turns"] == 4
        assert "erase" in [entry["action"] for entry in got(client, "/v1/audit")["items"]]


@pytest.mark.parametrize(
    "body", [{}, {"q": "  "}, {"q": "x", "session_ids": ["y"]}, {"q": "("}, {"what": 1}]
)
def test_what_is_to_be_erased_must_be_said(client: httpx.Client, body: object) -> None:
    assert client.post("/v1/erasures", json=body).status_code == 400


def test_unknown_ids_are_404_and_nothing_is_erased(store: SqlStore) -> None:
    seeded(store)
    with served(store) as client:
        known = got(client, "/v1/sessions")["items"][0]["id"]
        nobody = "11111111-1111-4111-8111-111111111111"
        answer = client.post("/v1/erasures", json={"session_ids": [known, nobody]})
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown-id")
        assert len(got(client, "/v1/sessions")["items"]) == 6
        refused(client, "/v1/erasures/999", 404)


def test_retention_keeps_what_is_pinned_and_tells_before(store: SqlStore) -> None:
    fill(store, many(5, 1))
    with served(store) as client:
        oldest = got(client, "/v1/sessions", direction="asc")["items"][0]["id"]
        client.patch(f"/v1/sessions/{oldest}", json={"pinned": True})
        policy = {"max_age_ns": None, "max_sessions": 2, "max_bytes": None}
        assert client.put("/v1/retention", json=policy).json() == policy
        assert got(client, "/v1/retention") == policy
        planned = client.post("/v1/retention/run", params={"dry_run": True}).json()
        assert planned["state"] == "planned"
        done = client.post("/v1/retention/run").json()
        assert done["sessions"] == planned["sessions"] > 0
        left = {item["id"] for item in got(client, "/v1/sessions")["items"]}
        assert oldest in left
        assert client.post("/v1/retention/run").json()["sessions"] == 0


@pytest.mark.parametrize(
    "said",
    [{"json": {"dry_run": True}}, {"params": {"dry_run": True}}, {"json": {"dryrun": True}},
     {"params": {"dryrun": True}}, {"content": b'{"dry_run": true}'}],
)  # fmt: skip
def test_a_run_that_is_to_be_dry_erases_nothing_however_it_is_said(
    store: SqlStore, said: dict[str, Any]
) -> None:
    fill(store, many(3, 1))
    with served(store) as client:
        policy = {"max_age_ns": None, "max_sessions": 1, "max_bytes": None}
        client.put("/v1/retention", json=policy)
        answer = client.post("/v1/retention/run", **said)
        state = answer.json().get("state") if answer.is_success else answer.status_code
        assert state in ("planned", 400)
        assert (state == "planned") == ("'dry_run'" in str(said))
        assert len(got(client, "/v1/sessions")["items"]) == 3


def test_an_erasure_that_the_query_wants_dry_erases_nothing(store: SqlStore) -> None:
    fill(store, many(1, 1))
    with served(store) as client:
        (item,) = got(client, "/v1/sessions")["items"]
        body = {"session_ids": [item["id"]]}
        answer = client.post("/v1/erasures", json=body, params={"dry_run": True})
        assert (answer.status_code, answer.json()["remedy"]) == (400, "say it in the body")
        assert len(got(client, "/v1/sessions")["items"]) == 1


@pytest.mark.parametrize("said", [{"json": {"dry_run": True}}, {"params": {"dry-run": True}}])
def test_a_session_is_not_erased_where_part_of_what_is_said_is_unknown(
    store: SqlStore, said: dict[str, Any]
) -> None:
    fill(store, many(1, 1))
    with served(store) as client:
        (item,) = got(client, "/v1/sessions")["items"]
        refused_so = client.request("DELETE", f"/v1/sessions/{item['id']}", **said)
        assert (refused_so.status_code, refused_so.json()["code"]) == (400, "bad-query")
        assert "dry_run" in refused_so.json()["remedy"]
        assert len(got(client, "/v1/sessions")["items"]) == 1


@pytest.mark.parametrize(
    "body",
    [{}, {"max_age_ns": -1, "max_sessions": None, "max_bytes": None},
     {"max_age_ns": 2**63, "max_sessions": None, "max_bytes": None}],
)  # fmt: skip
def test_a_policy_that_cannot_be_read_is_refused(client: httpx.Client, body: object) -> None:
    assert client.put("/v1/retention", json=body).status_code == 400


def test_the_audit_goes_on_before_an_entry(store: SqlStore) -> None:
    fill(store, many(1, 1))
    with served(store) as client:
        (item,) = got(client, "/v1/sessions")["items"]
        for name in ("a", "b", "c"):
            client.patch(f"/v1/sessions/{item['id']}", json={"display_name": name})
        first, *rest = got(client, "/v1/audit")["items"]
        assert got(client, "/v1/audit", before=first["id"])["items"] == rest
        assert first["by"] == "this machine"


def test_a_session_that_went_is_known_by_its_erasure(store: SqlStore) -> None:
    seeded(store)
    with served(store) as client:
        first, second, *_ = [each["id"] for each in got(client, "/v1/sessions")["items"]]
        assert got(client, "/v1/erasures", session_id=first)["items"] == []
        gone = client.delete(f"/v1/sessions/{first}", params={"reason": "asked to"})
        assert gone.status_code == 204
        (erasure,) = got(client, "/v1/erasures", session_id=first)["items"]
        assert (erasure["reason"], erasure["session_ids"]) == ("asked to", [first])
        assert got(client, "/v1/erasures", session_id=second)["items"] == []
        refused(client, "/v1/erasures", 400, session_id="nonsense")
