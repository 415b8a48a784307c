"""Two tenants send through every door, and each finds its own and nothing else."""

from typing import Any

import httpx
import pytest

from tapes.access import Access, token_hash
from tapes.rows import NO_ORG
from tapes.store.sql import SqlStore
from tests.doors import derived, door
from tests.ingest.payloads import payload
from tests.ingest.spans import T1, attributes, request, span

OURS, THEIRS = "22222222-2222-4222-8222-222222222222", "33333333-3333-4333-8333-333333333333"
EVERY = (NO_ORG, OURS, THEIRS)
TOKENS = {NO_ORG: "for-all", OURS: "our-token", THEIRS: "their-token"}
LETTING: dict[str, Any] = {
    "access": Access(token_hash(TOKENS[NO_ORG])),
    "tenants": {token_hash(TOKENS[org]): org for org in (OURS, THEIRS)},
}


def token_of(org: str) -> dict[str, str]:
    return {"x-tapes-token": TOKENS[org]}


def sent(client: httpx.Client, path: str, value: object, org: str) -> None:
    answer = client.post(path, json=value, headers=token_of(org))
    assert answer.status_code in (200, 202), answer.text
    assert answer.json().get("failed", 0) == 0


def said_in(store: SqlStore, org: str) -> str:
    """All that a tenant's log holds."""
    turns = store.project(org).stream_turns()
    return str([(turn.exchange, turn.reduced, turn.records) for turn in turns])


def log_record(text: str) -> dict[str, Any]:
    body = {"stringValue": text}
    told = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    record = {
        "traceId": T1, "spanId": "1" * 16, "timeUnixNano": "1785000000000000000", "body": body,
        "eventName": "gen_ai.user.message", "attributes": attributes({**told, "content": text}),
    }  # fmt: skip
    return {
        "resourceLogs": [{"resource": {}, "scopeLogs": [{"scope": {}, "logRecords": [record]}]}]
    }


DOORS = {
    "turn": ("/v1/ingest", lambda text: payload(text=text)),
    "batch": ("/v1/ingest/batch", lambda text: [payload(text=text)]),
    "transcript": (
        "/v1/ingest/transcript",
        lambda text: {
            "session": {"harness_id": "claude", "harness_session_id": "s"},
            "records": [{"type": "user", "text": text}],
        },
    ),
    "spans": ("/v1/traces", lambda text: request(span("1", {"said": text}))),
    "events": ("/v1/logs", log_record),
}


@pytest.mark.row("D5")
@pytest.mark.parametrize("name", DOORS)
def test_what_comes_belongs_to_the_tenant_whose_token_it_came_with(
    store: SqlStore, name: str
) -> None:
    path, body = DOORS[name]
    with door(store, **LETTING) as client:
        for org in EVERY:
            sent(client, path, body(f"canary {TOKENS[org]}"), org)
    for org in EVERY:
        said = said_in(store, org)
        assert [f"canary {token}" in said for token in TOKENS.values()] == [
            each == org for each in EVERY
        ]
    derived(store)


def test_a_trace_of_one_id_lies_in_each_tenants_own_conversation(store: SqlStore) -> None:
    with door(store, **LETTING) as client:
        for org in (OURS, THEIRS):
            sent(client, "/v1/traces", request(span("1")), org)
        named = span("2", {"gen_ai.conversation.id": "ours"}, parent="1")
        sent(client, "/v1/traces", request(named), OURS)
    derived(store)
    names = {
        org: [listed.session.harness_session_id for listed in store.project(org).sessions().items]
        for org in EVERY
    }
    assert names == {NO_ORG: [], OURS: ["ours"], THEIRS: [T1]}


def test_who_has_no_token_brings_nothing(store: SqlStore) -> None:
    only_tenants = {"tenants": LETTING["tenants"]}
    for letting in (LETTING, only_tenants):
        with door(store, **letting) as client:
            for path, body in DOORS.values():
                for headers in ({}, {"x-tapes-token": "wrong"}):
                    answer = client.post(path, json=body("x"), headers=headers)
                    assert answer.status_code == 401
    assert store.orgs() == ()


def test_a_token_opens_no_other_tenant(store: SqlStore) -> None:
    with door(store, **LETTING) as client:
        for org, other in ((OURS, THEIRS), (NO_ORG, OURS)):
            headers = token_of(org) | {"x-tapes-org": other}
            assert client.post("/v1/ingest", json=payload(), headers=headers).status_code == 403
        headers = token_of(OURS) | {"x-tapes-org": OURS.upper()}
        assert client.post("/v1/ingest", json=payload(), headers=headers).status_code == 202
    assert store.orgs() == (OURS,)


def test_who_names_no_tenant_belongs_to_the_one_that_the_server_names(store: SqlStore) -> None:
    with door(store, org_id=OURS) as client:
        assert client.post("/v1/ingest", json=payload()).status_code == 202
        posted = payload(session={"harness_session_id": "s", "org_id": THEIRS}, meta={})
        assert client.post("/v1/ingest", json=posted).status_code == 202
    assert store.orgs() == (OURS,)
