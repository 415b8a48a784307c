from tapes.api.items import is_live
from tapes.derive.deriver import derive
from tapes.projector import Projector
from tapes.rows import NO_ORG, Outcome
from tapes.seeding import sample_turns, seed
from tapes.store.sql import SqlStore
from tests.turns import SECOND

ORG = "22222222-2222-4222-8222-222222222222"


def test_the_samples_are_put_there_once(store: SqlStore) -> None:
    first, second = seed(store), seed(store)
    assert (first.sessions, first.turns, first.new, second.new) == (6, 24, 24, 0)


def test_the_samples_ended_minutes_ago_and_none_looks_as_if_it_ran(store: SqlStore) -> None:
    now = 1_900_000_000 * SECOND
    seed(store, now=now)
    Projector(store).drain()
    latest = store.project().sessions().items[0].session
    assert not is_live(latest, now)
    assert now - latest.last_seen_at <= 361 * SECOND


def test_the_samples_can_belong_to_a_tenant(store: SqlStore) -> None:
    seed(store, ORG)
    Projector(store).drain()
    assert len(store.project(ORG).sessions().items) == 6
    assert store.project(NO_ORG).sessions().items == ()


def test_the_samples_show_what_there_is_to_see() -> None:
    made = derive(list(sample_turns()))
    assert {span.kind.value for span in made.spans} >= {"agent", "llm", "tool"}
    assert {turn.outcome for turn in sample_turns()} == {
        Outcome.LIVE, Outcome.RECORDED, Outcome.REPLAYED
    }  # fmt: skip
    assert {trace.status.value for trace in made.traces} == {"ok", "aborted"}
    assert {s.derived_status for s in made.sessions} == {"completed", "failed", "abandoned"}
    assert any(span.thread_id for span in made.spans)
