"""Tapes of the project's folder, and why a request is not on one."""

import json
import shutil
import time
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tapes.access import token_hash
from tapes.api.keys import Keys
from tapes.cassette import Cassette, Play, Refusal
from tapes.exchange import Request
from tapes.rows import Outcome, RawTurn
from tapes.store.sqlite import open_sqlite
from tests.api.serving import got, refused, served
from tests.turns import raw_turn

TAPE = "tapes/talk.jsonl"
ORG = "7b1f8a52-0c7e-4f5e-9d2a-3f1f1f0f9a11"


@pytest.fixture
def asked(in_tmp_path: Path) -> dict[str, Any]:
    """A folder with the demo's tape; the first request that is on it."""
    (in_tmp_path / "tapes").mkdir()
    tape = resources.files("tapes.demo").joinpath("conversation.jsonl")
    with resources.as_file(tape) as file:
        shutil.copy(file, in_tmp_path / TAPE)
    first = json.loads((in_tmp_path / TAPE).read_text(encoding="utf-8").splitlines()[0])
    body: dict[str, Any] = first["request"]["body"]["json"]
    return body


def refused_turn(asked: dict[str, Any]) -> RawTurn:
    """The turn of a request that a proxy refused."""
    turn = raw_turn(1, "/v1/chat/completions", asked, {}, outcome=Outcome.REFUSED)
    assert turn.exchange is not None
    assert isinstance(turn.exchange.request, Request)
    sent = replace(turn.exchange.request, headers=(("content-type", "application/json"),))
    told = {"tape": TAPE, "refused": "miss"}
    return replace(turn, exchange=replace(turn.exchange, request=sent), meta=told)


def test_the_tapes_below_the_folder_are_listed(asked: dict[str, Any], in_tmp_path: Path) -> None:
    with served(open_sqlite(in_tmp_path / "log.db")) as client:
        (tape,) = got(client, "/v1/tapes")["items"]
        assert (tape["path"], tape["answers"], tape["problem"]) == (TAPE, 6, None)
        assert tape["replayed"] is None  # no run has ended: that is unknown, not zero


def test_the_list_of_tapes_says_what_their_runs_did(
    asked: dict[str, Any], in_tmp_path: Path
) -> None:
    with served(open_sqlite(in_tmp_path / "log.db")) as client:
        for runs in (1, 2):
            with Cassette(TAPE, "replay") as cassette:
                first = next(iter(cassette.tape.exchanges()))
                assert isinstance(cassette.decide(first.request), Play)
                assert isinstance(cassette.decide({"model": "nobody"}), Refusal)
            (tape,) = got(client, "/v1/tapes")["items"]
            did, whole = tape["replayed"], got(client, "/v1/tapes/contents", tape=TAPE)
            assert (did["runs"], did["served"], did["refused"]) == (runs, runs, runs)
            assert did["saved"] == whole["saved"]
            assert did["saved"]["calls"] == runs


def test_a_tape_tells_what_was_served_and_what_nobody_used(
    asked: dict[str, Any], in_tmp_path: Path
) -> None:
    with Cassette(TAPE, "replay") as cassette:
        assert cassette.tape.keys()
    with served(open_sqlite(in_tmp_path / "log.db")) as client:
        whole = got(client, "/v1/tapes/contents", tape=TAPE)
        assert len(whole["exchanges"]) == 6
        assert whole["unused"] is None  # no run used it yet: that is unknown, not zero
        assert whole["models"] == {"gemma-3-270m": 4}


def test_a_tape_tells_what_the_log_saw_of_it_since_its_latest_run(
    asked: dict[str, Any], in_tmp_path: Path
) -> None:
    store = open_sqlite(in_tmp_path / "log.db")
    miss = replace(refused_turn(asked), received_at=time.time_ns())
    elsewhere = replace(miss, request_id="2", meta={"tape": "tapes/other.jsonl"})
    store.append([miss, elsewhere, replace(miss, request_id="3", outcome=Outcome.REPLAYED)])
    with served(store) as client:
        since = got(client, "/v1/tapes/contents", tape=TAPE)["since"]
        assert since == {"served": 1, "refused": 1, "more": False}
        with Cassette(TAPE, "replay") as cassette:
            assert isinstance(cassette.decide({"model": "nobody"}), Refusal)
        whole = got(client, "/v1/tapes/contents", tape=TAPE)
        assert whole["refused"] == 1
        assert whole["since"] == {"served": 0, "refused": 0, "more": False}


@pytest.mark.parametrize("path", ["../log.db", "/etc/passwd", "log.db", "tapes/none.jsonl"])
def test_nothing_is_opened_that_was_not_found(
    asked: dict[str, Any], in_tmp_path: Path, path: str
) -> None:
    with served(open_sqlite(in_tmp_path / "log.db")) as client:
        refused(client, "/v1/tapes/contents", 404, tape=path)


def test_a_miss_shows_what_differs_and_what_it_likely_comes_from(
    asked: dict[str, Any], in_tmp_path: Path
) -> None:
    store = open_sqlite(in_tmp_path / "log.db")
    store.append([refused_turn(asked | {"model": "another"})])
    with served(store) as client:
        (found,) = got(client, "/v1/misses")["items"]
        assert (found["tape"], found["refused"]) == (TAPE, "miss")
        assert (found["model"], found["said"]) == ("another", asked["messages"][-1]["content"])
        miss = got(client, f"/v1/misses/{found['id']}")
        explained = miss["explanation"]
        assert explained["verdict"] == "miss"
        assert [each["place"] for each in explained["nearest"]["differences"]] == ["model"]
        assert "another" in explained["causes"][0]
        assert explained["rule"] is None


def test_a_request_that_is_on_the_tape_by_now_is_said_to_be(
    asked: dict[str, Any], in_tmp_path: Path
) -> None:
    store = open_sqlite(in_tmp_path / "log.db")
    store.append([refused_turn(asked)])
    with served(store) as client:
        assert got(client, "/v1/misses/1")["explanation"]["verdict"] == "hit"


def test_another_tenant_sees_no_tape(asked: dict[str, Any], in_tmp_path: Path) -> None:
    store = open_sqlite(in_tmp_path / "log.db")
    keys = Keys(read=token_hash("own"), tenants={token_hash("other"): ORG})
    with served(store, keys) as client:
        client.headers["x-tapes-token"] = "other"
        assert got(client, "/v1/tapes") == {"folder": None, "items": []}
        refused(client, "/v1/tapes/contents", 404, tape=TAPE)


def test_a_recording_is_told_as_it_lies_on_the_tape_and_as_it_reads(
    asked: dict[str, Any], in_tmp_path: Path
) -> None:
    with served(open_sqlite(in_tmp_path / "log.db")) as client:
        row = got(client, "/v1/tapes/contents", tape=TAPE)["exchanges"][0]
        found = got(client, "/v1/tapes/recording", tape=TAPE, key=row["key"])
        assert found["request"]["body"]["json"] == asked
        assert found["messages"][-1]["parts"] == [{"type": "text", "text": row["said"]}]
        assert found["answers"][0]["parts"][0]["text"].startswith("Summarize")
        assert (found["model"], found["response"]["status"]) == ("gemma-3-270m", 200)
        assert found["response"]["chunks"]


def test_a_recording_that_no_model_answered_says_why_it_is_not_told(in_tmp_path: Path) -> None:
    with Cassette("tapes/plain.jsonl", "record", lambda _: {"rain": 7}, latch=True) as cassette:
        cassette.call({"place": "Lisbon"})
    with served(open_sqlite(in_tmp_path / "log.db")) as client:
        row = got(client, "/v1/tapes/contents", tape="tapes/plain.jsonl")["exchanges"][0]
        found = got(client, "/v1/tapes/recording", tape="tapes/plain.jsonl", key=row["key"][:12])
        assert (found["plain_request"], found["plain_response"]) == (
            {"place": "Lisbon"},
            {"rain": 7},
        )
        assert found["messages"] == []
        assert found["unread"]


def test_a_recording_is_one_of_the_rows_with_its_key(
    asked: dict[str, Any], in_tmp_path: Path
) -> None:
    line = (in_tmp_path / TAPE).read_text(encoding="utf-8").splitlines()[0]
    with (in_tmp_path / TAPE).open("a", encoding="utf-8") as tape:
        tape.write(line.replace('"recorded_at":"2', '"recorded_at":"3', 1) + "\n")
    key = json.loads(line)["hash"]
    with served(open_sqlite(in_tmp_path / "log.db")) as client:
        times = [
            got(client, "/v1/tapes/recording", tape=TAPE, key=key, **which)["recorded_at"][0]
            for which in ({}, {"n": 0}, {"n": 1})
        ]
        assert times == ["3", "2", "3"]
        refused(client, "/v1/tapes/recording", 404, tape=TAPE, key=key, n=2)
        refused(client, "/v1/tapes/recording", 404, tape=TAPE, key="0000")
        refused(client, "/v1/tapes/recording", 404, tape="../log.db", key=key)
