from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tapes.envelope import UNKNOWN
from tapes.ingest import otlp
from tapes.ingest.sessions import TraceSessions
from tapes.jsontext import Json
from tapes.projector import Projector
from tapes.store.sql import SqlStore
from tests.contracts.test_store import fill
from tests.doors import derived, door
from tests.ingest.payloads import raw_payload
from tests.ingest.spans import request, span
from tests.turns import chat, said

ANSWERED: Json = {"gen_ai.operation.name": "chat", "gen_ai.response.id": "msg_0123456789"}


@contextmanager
def asked() -> Iterator[list[str]]:
    """Every statement that a database gets meanwhile."""
    said: list[str] = []

    def note(*args: Any) -> None:
        said.append(args[2])

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield said
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def forms_of(*spans: Json) -> list[otlp.Form]:
    return otlp.spans_of_json(request(*spans)).forms


@pytest.mark.parametrize("traces", [1, 200])
def test_a_batch_of_traces_is_looked_up_at_once(store: SqlStore, traces: int) -> None:
    sent = [span("a", ANSWERED | {"n": n}, trace=f"{n + 1:032x}") for n in range(traces)]
    sessions = TraceSessions(store.project())
    with asked() as statements:
        places = sessions.places(forms_of(*sent))
    assert len(places) == traces
    assert len([said for said in statements if said.lstrip().startswith("SELECT")]) == 2


@pytest.mark.parametrize("traces", [1, 200])
def test_a_batch_of_named_conversations_is_looked_up_at_once(store: SqlStore, traces: int) -> None:
    seen = chat(1, [said("user", "hi")], "hello", session="talk 0")
    fill(store, [seen])
    named = [
        span("a", {"gen_ai.conversation.id": f"talk {n}"}, trace=f"{n + 1:032x}")
        for n in range(traces)
    ]
    sessions = TraceSessions(store.project())
    with asked() as statements:
        places = sessions.places(forms_of(*named))
    assert len([said for said in statements if said.lstrip().startswith("SELECT")]) == 1
    found = [place.envelope.harness_id for place in places.values()]
    assert found == [seen.envelope.harness_id, *[UNKNOWN] * (traces - 1)]


def test_what_moves_to_a_conversation_is_looked_for_at_once(store: SqlStore) -> None:
    named = {"gen_ai.conversation.id": "talk"}
    forms = forms_of(*(span("a", named, trace=f"{n + 1:032x}") for n in range(150)))
    sessions = TraceSessions(store.project())
    sessions.places(forms)
    with asked() as statements:
        sessions.settle(forms)
    assert len([said for said in statements if said.lstrip().startswith("SELECT")]) == 1


def test_traces_of_one_batch_lie_each_where_its_own_answer_does(store: SqlStore) -> None:
    with door(store) as client:
        client.post("/v1/ingest", json=raw_payload(session={"harness_session_id": "seen"}))
    derived(store)
    one, other = "1" * 32, "2" * 32
    forms = forms_of(span("a", ANSWERED, trace=one), span("b", {}, trace=other))
    places = TraceSessions(store.project()).places(forms)
    found = {trace: place.envelope.harness_session_id for (trace, _), place in places.items()}
    assert found == {one: "seen", other: other}


def test_the_sessions_of_another_tenant_are_no_home(store: SqlStore) -> None:
    fill(store, [chat(1, [said("user", "hi")], "hello", session="mine")])
    trace = store.project().traces().items[0].trace_id
    stranger = store.project("22222222-2222-4222-8222-222222222222")
    assert store.project().homes([trace], [])[0][trace].harness_session_id == "mine"
    assert stranger.homes([trace], []) == ({}, {})


def test_spans_that_come_one_by_one_leave_no_session_behind_when_the_last_names_it(
    store: SqlStore,
) -> None:
    projector = Projector(store)
    named = {"session.id": "talk", "openinference.span.kind": "CHAIN"}
    with door(store) as client:
        for each in (span("b", ANSWERED, parent="a"), span("a", named)):
            client.post("/v1/traces", json=request(each))
            assert projector.drain().failed == 0
    [listed] = store.project().sessions().items
    assert listed.session.harness_session_id == "talk"
