import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.envelope import Envelope
from tapes.errors import ForeignFile
from tapes.exchange import Exchange, Piece, Request, Response, State
from tapes.rows import Outcome, RawTurn, Source
from tapes.turnlines import line_of, turn_of
from tests.turns import chat, raw_turn, said

TURN = chat(1, [said("user", "hi")], "hello")


def again(turn: RawTurn) -> RawTurn:
    line = line_of(turn)
    assert "\n" not in line
    return turn_of(line, "a.jsonl", "line 1")


@pytest.mark.parametrize(
    "turn",
    [
        TURN,
        raw_turn(2, "/v1/messages", {"a": "ü"}, {}, stream=b"\x00\xff\n\n", takes=None),
        replace(TURN, dropped=True, outcome=Outcome.REPLAYED, provider="openai", thread_id="t"),
        replace(TURN, meta={"a": [1]}, reduced={"message": {}}, agent_name="x", session_by="body"),
        RawTurn(request_id="b", source=Source.TRANSCRIPT, records=[{"a": None}], received_at=5),
        RawTurn(exchange=Exchange("k", "tape/1", {"m": 10**30}, {"ok": [True]}, sample=2)),
        RawTurn(exchange=Exchange("", "http/1", Request("POST", "https://a.test/"), None)),
        RawTurn(envelope=Envelope(org_id="1" * 8 + "-1111-4111-8111-" + "1" * 12, name="n")),
    ],
    ids=range(8),
)
def test_a_turn_comes_back_as_it_was_but_for_its_number(turn: RawTurn) -> None:
    assert again(turn) == replace(turn, id=0)


@given(st.lists(st.binary(max_size=40), max_size=5), st.sampled_from(list(State)))
def test_whatever_bytes_came_come_back(pieces: list[bytes], state: State) -> None:
    came = tuple(Piece(n / 8, data) for n, data in enumerate(pieces))
    response = Response(200, (("x-a", "\xe9"),), came)
    assert TURN.exchange is not None
    turn = replace(TURN, exchange=replace(TURN.exchange, response=response, state=state))
    back = again(turn).exchange
    assert back is not None
    assert isinstance(back.response, Response)
    assert (back.response.body, back.state) == (response.body, state)


@pytest.mark.parametrize(
    "line",
    ["", "{", "[]", "{}", '{"kind": "row"}', '{"kind": "turn", "v": 2}', '{"kind": "turn"}',
     '{"kind": "turn", "v": 1}', '{"kind": "turn", "v": 1, "source": "moon"}'],
)  # fmt: skip
def test_a_line_that_is_no_turn_is_named(line: str) -> None:
    with pytest.raises(ForeignFile, match=r"a\.jsonl, line 7"):
        turn_of(line, "a.jsonl", "line 7")


@pytest.mark.parametrize(
    ("name", "value"),
    [("started_at", "now"), ("started_at", 2**64), ("started_at", True), ("session", 1),
     ("outcome", "lost"), ("exchange", {}), ("exchange", [1])],
)  # fmt: skip
def test_a_member_that_cannot_be_is_refused(name: str, value: object) -> None:
    form = json.loads(line_of(TURN)) | {name: value}
    with pytest.raises(ForeignFile):
        turn_of(json.dumps(form), "a.jsonl", "line 1")


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_json_cannot_say_is_refused_with_its_place(number: str) -> None:
    line = line_of(replace(TURN, meta={"n": 17})).replace(":17}", f":{number}}}")
    with pytest.raises(ForeignFile, match=r"a\.jsonl, line 7: it has a number"):
        turn_of(line, "a.jsonl", "line 7")


def test_a_name_that_no_database_takes_is_made_storable() -> None:
    form = json.loads(line_of(TURN)) | {"request_id": "a\0b", "thread_id": "\ud800"}
    turn = turn_of(json.dumps(form), "a.jsonl", "line 1")
    assert (turn.request_id, turn.thread_id) == ("a\ufffdb", "\ufffd")


def test_a_name_that_is_null_is_none_and_one_that_is_no_text_is_refused() -> None:
    form = json.loads(line_of(TURN))
    nothing = json.dumps({**form, "request_id": None, "agent_name": None, "ended_at": None})
    turn = turn_of(nothing, "a.jsonl", "line 1")
    assert (turn.request_id, turn.agent_name, turn.ended_at) == ("", "", None)
    with pytest.raises(ForeignFile, match="line 1"):
        turn_of(json.dumps({**form, "request_id": {"a": 1}}), "a.jsonl", "line 1")


def test_a_line_that_is_nested_too_deeply_is_an_error_with_its_place() -> None:
    deep = "[" * 700 + "]" * 700
    line = line_of(TURN)[:-1] + f',"reduced":{deep}}}'
    with pytest.raises(ForeignFile, match=r"a\.jsonl, line 7: it is (nested too|no JSON)"):
        turn_of(line, "a.jsonl", "line 7")
