"""Calls that name no session find the conversation that they go on from."""

from collections.abc import Sequence

from tapes.derive.belonging import marks_of, session_of, with_sessions
from tapes.derive.calls import Reading
from tapes.jsontext import Json
from tapes.providers.reading import read
from tapes.providers.turn import Turn
from tapes.rows import RawTurn
from tests.turns import chat, raw_turn, said


def readings(turns: Sequence[RawTurn]) -> list[Reading]:
    made = []
    for raw in turns:
        assert raw.exchange is not None
        turn = read(raw.exchange)
        assert isinstance(turn, Turn)
        made.append(Reading(raw, turn))
    return made


def sessions(*turns: RawTurn) -> list[str]:
    return [r.raw.envelope.harness_session_id for r in with_sessions(readings(turns))]


HI, HELLO, MORE = said("user", "hi"), said("assistant", "hello"), said("user", "tell me more")


def test_a_call_that_sends_a_conversation_again_belongs_to_it() -> None:
    first, second = sessions(
        chat(1, [HI], "hello", session=""), chat(2, [HI, HELLO, MORE], "so", session="")
    )
    assert first == second
    assert len(first) == 16


def test_two_conversations_that_open_alike_stay_two() -> None:
    one, two, go_on = sessions(
        chat(1, [HI], "hello", session=""),
        chat(2, [HI], "good day", session=""),
        chat(3, [HI, HELLO, MORE], "so", session=""),
    )
    assert one != two
    assert go_on == one


def test_what_a_client_leaves_out_does_not_part_a_conversation() -> None:
    reasoned = said("assistant", "hello", reasoning_content="the user greets")
    first, second = sessions(
        chat(1, [said("system", "be kind"), HI], reasoned, session=""),
        chat(2, [HI, HELLO, MORE], "so", session=""),
    )
    assert first == second


def test_an_answer_that_is_named_as_the_one_before_is_enough() -> None:
    def response(number: int, text: str, **asked: Json) -> RawTurn:
        message = {"type": "message", "content": [{"type": "output_text", "text": text}]}
        answered = {"id": f"resp_{number}", "object": "response", "status": "completed"}
        body = {"input": f"question {number}"} | asked
        return raw_turn(number, "/v1/responses", body, answered | {"output": [message]}, session="")

    first, second, other = sessions(
        response(1, "a"), response(2, "b", previous_response_id="resp_1"), response(3, "c")
    )
    assert first == second
    assert other != first


def test_a_session_that_is_named_is_believed() -> None:
    named = chat(1, [HI], "hello", session="mine")
    goes_on = chat(2, [HI, HELLO, MORE], "so", session="")
    assert sessions(named, goes_on)[0] == "mine"
    assert with_sessions(readings([goes_on]))[0].raw.session_by == "content"
    assert with_sessions(readings([named]))[0].raw.session_by == ""


def test_order_of_arrival_does_not_matter() -> None:
    turns = [
        chat(1, [HI], "hello", session=""),
        chat(2, [HI, HELLO, MORE], "so", session=""),
        chat(3, [HI], "good day", session=""),
    ]
    assert sessions(*turns) == sessions(*reversed(turns))


def test_a_capture_that_keeps_the_marks_comes_to_the_same_sessions() -> None:
    kept: dict[str, str] = {}
    made = []
    turns = [chat(1, [HI], "hello", session=""), chat(2, [HI, HELLO, MORE], "so", session="")]
    for reading in readings(turns):
        session = session_of(reading.turn, reading.raw.request_id, kept.get)
        kept |= dict.fromkeys(marks_of(reading.turn), session)
        made.append(session)
    assert made == sessions(*turns)
