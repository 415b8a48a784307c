"""The calls of a session in order, and what each says first."""

from collections.abc import Sequence
from pathlib import Path

from tapes.derive.calls import Call, Reading, calls_of, first_chunk
from tapes.derive.chain import Addresses
from tapes.derive.deriver import Memory
from tapes.exchange import Exchange, Piece, Response, State
from tapes.providers.turn import Turn, text_of
from tapes.rows import RawTurn, Status
from tests.turns import (
    TOOLS,
    assistant,
    at,
    call,
    chat,
    messages,
    raw_turn,
    recording,
    result,
    said,
    user,
)


def calls(turns: Sequence[RawTurn], harness: str = "claude") -> list[Call]:
    memory, readings = Memory(), list[Reading]()
    for raw in turns:
        turn = memory.read(raw)
        assert isinstance(turn, Turn)
        readings.append(Reading(raw, turn))
    return calls_of(readings, harness, Addresses())


def fresh_texts(one: Call) -> list[str]:
    return [text_of(node.message.parts) for _, node in one.new_messages()]


ASK, DO = user("list the files"), assistant(call("t1", "Bash", command="ls"))
BACK, DONE = user(result("t1", "a.txt")), assistant("one file: a.txt")


def test_a_history_that_is_sent_again_is_not_fresh() -> None:
    first, second = calls([messages(1, [ASK], DO), messages(2, [ASK, DO, BACK], DONE)])
    assert fresh_texts(first) == ["list the files"]
    assert second.fresh == {2}
    assert second.prompt is None


def test_every_call_of_the_recorded_session_says_one_message_and_one_answer(
    reference_data: Path,
) -> None:
    folder = reference_data / "tapes-fixtures/recordings/claude-20260727-019fa57e"
    made = calls(recording(folder))
    assert len(made) == 17
    assert {len(one.fresh) for one in made} == {1}
    assert all(one.answer_hash for one in made)


def test_order_is_by_start_and_then_by_place_in_the_log() -> None:
    turns = [
        messages(3, [user("c")], assistant("c"), begins=5),
        messages(2, [user("b")], assistant("b"), begins=5),
        messages(9, [user("a")], assistant("a"), begins=1),
    ]
    assert [one.raw.id for one in calls(turns)] == [9, 2, 3]


def test_after_a_resume_history_is_history_all_the_same() -> None:
    (resumed,) = calls([messages(1, [ASK, DO, BACK, DONE, user("go on")], assistant("ok"))])
    assert resumed.fresh == {0, 1, 2, 3, 4}
    assert fresh_texts(resumed) == ["go on"]


def test_a_side_call_does_not_take_the_words_of_the_conversation() -> None:
    probe = messages(1, [ASK], assistant("x"), tools=False, max_tokens=1)
    main = calls([probe, messages(2, [ASK], DO)])[1]
    assert not main.repeated
    assert main.prompt is not None


def test_a_retry_shows_what_it_asks_and_is_no_new_prompt() -> None:
    asked = {"messages": [ASK], "stream": True, "tools": TOOLS}
    failed = raw_turn(1, "/v1/messages", asked, {}, status=529)
    again = calls([failed, messages(2, [ASK], DONE)])[1]
    assert fresh_texts(again) == ["list the files"]
    assert (again.repeated, again.again, again.prompt) == (True, False, None)


def test_a_request_that_was_answered_is_asked_anew_when_it_is_sent_again() -> None:
    again = calls([messages(1, [ASK], DONE), messages(2, [ASK], DONE)])[1]
    assert again.again
    assert again.prompt is not None


def test_the_last_words_of_the_user_are_the_prompt() -> None:
    several = [user("first"), user("second"), user("<system-reminder>x</system-reminder>")]
    (one,) = calls([messages(1, several, DONE)])
    assert one.prompt is not None
    assert text_of(one.prompt.parts) == "second"
    (picture,) = calls([messages(2, [user({"type": "image", "source": {"type": "url"}})], DONE)])
    assert picture.prompt is not None


def test_an_id_is_the_captured_one_else_made_from_the_answer_and_the_row() -> None:
    named, nameless = calls([messages(1, [ASK], DONE), messages(2, [ASK], DONE, request_id="")])
    assert named.id == "r1"
    assert nameless.id == f"{nameless.answer_hash[:16]}_2"


def test_an_answer_and_the_same_words_in_a_later_history_have_one_address() -> None:
    history = [said("user", "hi"), said("assistant", " hello \n"), said("user", "more")]
    first, second = calls([chat(1, history[:1], "hello"), chat(2, history, "yes")], "bench")
    assert second.nodes[1].hash == first.answer_hash


def test_how_long_a_call_took_is_what_was_measured_best() -> None:
    measured = messages(1, [ASK], DONE, takes=2.5)
    assert calls([measured])[0].duration == 2_500_000_000
    by_pieces = messages(2, [ASK], DONE, takes=None)
    assert calls([by_pieces])[0].duration is None
    assert calls([measured])[0].ended == at(12.5)


def test_the_first_piece_of_a_stream_is_timed() -> None:
    pieces = (Piece(0.25, b"data: x\n\n"), Piece(2.0, b"data: y\n\n"))
    raw = RawTurn(exchange=Exchange("", "http/1", None, Response(200, (), pieces)))
    assert first_chunk(raw) == 250_000_000
    assert first_chunk(messages(1, [ASK], DONE)) is None


def test_of_calls_of_one_moment_the_first_in_the_log_is_the_first() -> None:
    turns = [messages(n, [user(str(n))], DONE, begins=10, request_id=f"r{9 - n}") for n in (2, 1)]
    assert [one.raw.id for one in calls(turns)] == [1, 2]


def test_a_client_who_leaves_after_an_error_did_not_break_it_off() -> None:
    events = (
        b'event: message_start\ndata: {"type":"message_start","message":{"model":"m"}}\n\n',
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n',
    )
    asked = {"model": "m", "stream": True, "messages": [ASK]}
    for said_so_far, status in ((events[:1], Status.ABORTED), (events, Status.ERROR)):
        left = raw_turn(
            1, "/v1/messages", asked, {},
            stream=b"".join(said_so_far), state=State.ABORTED_BY_CLIENT,
        )  # fmt: skip
        (one,) = calls([left])
        assert one.status is status
