"""The calls of a program that records and replays by itself, in the log when it asks."""

from pathlib import Path

import httpx
import pytest

import tapes
from tapes.capture.watched import LogWatcher
from tapes.cassette import Cassette
from tapes.keeping import keeping, open_store
from tapes.opening import Where
from tapes.rows import Outcome, RawTurn
from tapes.witness import Sight
from tests.noticing import answered, asked
from tests.proxies import proxying, wait_until
from tests.running import run
from tests.servers import answer, closed_port, serving


def turns_in(where: Where) -> list[RawTurn]:
    store = open_store(where)
    try:
        return list(store.project().stream_turns())
    finally:
        store.close()


def outcomes(where: Where) -> list[Outcome]:
    return [turn.outcome for turn in turns_in(where)]


def ask(base: str, text: str = "hi") -> None:
    httpx.post(f"{base}/v1/chat/completions", content=asked(text), headers={"x-session-id": "s"})


def test_recorded_replayed_and_refused_calls_are_in_it(
    in_tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMO_LIVE", "1")
    with serving(answer(answered("yes"))) as server:
        with tapes.use("t.jsonl", "record", log=True):
            ask(server.url)
            ask(server.url)
        with tapes.use("t.jsonl", "replay", log=True), pytest.raises(tapes.CassetteMiss):
            ask(server.url, "another")
    assert outcomes(Where()) == [Outcome.RECORDED, Outcome.REPLAYED, Outcome.REFUSED]
    turn = turns_in(Where())[-1]
    assert turn.meta == {"lane": "process", "tape": str(Path("t.jsonl")), "refused": "miss"}


def test_what_was_seen_is_a_session_when_the_program_goes_on(
    in_tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPES_LOG", "mine.db")
    monkeypatch.setenv("DEMO_LIVE", "1")
    with serving(answer(answered("yes"))) as server, tapes.use("t.jsonl", "record"):
        ask(server.url)
    store = open_store(Where("mine.db"))
    (listed,) = store.project().sessions().items
    assert (listed.session.harness_session_id, listed.session.preview) == ("s", "hi")
    store.close()


def test_failed_and_passing_calls_are_in_it(
    in_tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMO_LIVE", "1")
    with (
        serving(answer(b'{"error":{"message":"slow down"}}', status=429)) as server,
        tapes.use("t.jsonl", "record", log=True),
    ):
        ask(server.url)
        with pytest.raises(httpx.ConnectError):
            ask(f"http://127.0.0.1:{closed_port()}")
    passing, failed = turns_in(Where())
    assert passing.exchange is not None
    assert failed.exchange is not None
    assert (passing.outcome, passing.exchange.response.status) == (Outcome.LIVE, 429)
    assert (failed.outcome, failed.exchange.response) == (Outcome.LIVE, None)


def test_plain_calls_are_in_it(in_tmp_path: Path) -> None:
    reply = {"id": "c", "choices": [{"message": {"role": "assistant", "content": "yes"}}]}
    question = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    with tapes.use("t.jsonl", "record", live=lambda _: reply, latch=True, log=True) as cassette:
        for _ in range(2):
            assert cassette.call(question) == reply
    assert outcomes(Where()) == [Outcome.RECORDED, Outcome.REPLAYED]
    turn = turns_in(Where())[0]
    assert turn.exchange is not None
    assert (turn.exchange.request, turn.exchange.response) == (question, reply)


@pytest.mark.row("D2")
def test_a_call_that_the_proxy_sees_as_well_is_one_turn(
    in_tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMO_LIVE", "1")
    script = answer(answered("yes"), headers=[("x-request-id", "req_1")])
    with (
        keeping(Where()) as kept,
        serving(script) as server,
        proxying(server.url, None, "pass", watcher=LogWatcher(kept)) as proxy,
    ):
        with tapes.use("t.jsonl", "record", log=True):
            ask(proxy.address)
        wait_until(lambda: kept.log.is_idle and kept.counts()["noticed"] == 1)
        ends = kept.counts()
        assert ends.get("kept new", 0) + ends.get("kept known", 0) == 1
    assert len(turns_in(Where())) == 1


def test_without_being_asked_nothing_is_imported_and_nothing_is_written(tmp_path: Path) -> None:
    code = """
        import sys, tapes
        with tapes.use("t.jsonl", "record", live=lambda _: 1, latch=True) as cassette:
            cassette.call({})
        assert not {"sqlalchemy", "tapes.keeping", "tapes.config"} & sys.modules.keys()
    """
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("tapes.db"))


def test_a_witness_is_told_of_nothing_twice(tmp_path: Path) -> None:
    seen: list[str] = []

    class Saw:
        def saw(self, sight: Sight) -> None:
            seen.append(sight.outcome)

    reply = {"ok": True}
    with Cassette(tmp_path / "t.jsonl", "record", lambda _: reply, latch=True, witness=Saw()) as c:
        for _ in range(3):
            c.call({"q": 1})
    assert seen == ["recorded", "replayed", "replayed"]
