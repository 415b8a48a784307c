"""The words in which every call is told."""

from tapes.jsontext import Json
from tapes.providers.ending import Ending
from tapes.providers.turn import (
    Answer,
    AnswerState,
    Asked,
    Failure,
    Message,
    Text,
    arguments_of,
    failure_of,
    memo,
    result_text,
    said,
    text_of,
)


def test_an_answer_is_complete_only_where_its_provider_came_to_the_end() -> None:
    assert Answer(ending=Ending.SAID).state is AnswerState.COMPLETE
    assert Answer(ending=Ending.FINISHED).state is AnswerState.COMPLETE
    assert Answer(ending=Ending.OPEN).state is AnswerState.TRUNCATED
    assert Answer(ending=Ending.UNKNOWN).state is AnswerState.TRUNCATED
    assert Answer(ending=Ending.SAID, failure=Failure("x")).state is AnswerState.ERROR


def test_parts_and_reason_are_those_of_the_first_choice() -> None:
    answer = Answer(choices=(said((Text("a"),), "stop"), said((Text("b"),), "length")))
    assert (answer.parts, answer.finish_reason) == ((Text("a"),), "stop")
    assert (Answer().parts, Answer().finish_reason) == ((), None)


def test_instructions_are_found_wherever_the_provider_wants_them() -> None:
    system, user = Message("system", (Text("s"),)), Message("user", (Text("u"),))
    assert Asked(system="i", messages=(user,)).instructions == "i"
    assert Asked(messages=(system, Message("developer", (Text("d"),)), user)).instructions == "s\nd"
    assert Asked(messages=(user, system)).instructions == ""


def test_a_failure_is_read_in_each_providers_way() -> None:
    told: list[tuple[Json, Failure | None]] = [
        ({"error": {"type": "overloaded_error", "message": "m"}}, Failure("overloaded_error", "m")),
        ({"error": {"code": "bad_key", "type": "auth", "message": "m"}}, Failure("bad_key", "m")),
        (
            {"error": {"code": 429, "status": "EXHAUSTED", "message": "m"}},
            Failure("EXHAUSTED", "m"),
        ),
        ([{"error": {"code": 400, "message": "m"}}], Failure("400", "m")),
        ({"error": "model not found"}, Failure("error", "model not found")),
        ({"error": None, "id": "x"}, None),
        ("text", None),
    ]
    for body, failure in told:
        assert failure_of(body) == failure


def test_arguments_are_objects_or_the_text_that_is_none() -> None:
    assert arguments_of('{"a": 1}') == ({"a": 1}, None)
    assert arguments_of("") == ({}, None)
    assert arguments_of({"a": 1}) == ({"a": 1}, None)
    assert arguments_of("{broken") == (None, "{broken")
    assert arguments_of('"text"') == (None, '"text"')


def test_a_result_is_its_text_and_the_original_where_that_is_not_all() -> None:
    text, picture = {"type": "text", "text": "a"}, {"type": "image", "source": {}}
    assert result_text("a") == ("a", None)
    assert result_text([text, text]) == ("a\na", None)
    assert result_text([text, picture]) == ("a", [text, picture])
    assert result_text({"ok": True}) == ('{"ok":true}', {"ok": True})
    assert result_text(None) == ("", None)


def test_a_message_that_is_sent_again_is_read_once() -> None:
    remember, built = memo(), list[Json]()

    def build(raw: Json) -> Message:
        built.append(raw)
        return Message("user", (Text(raw["content"]),))

    first = remember({"role": "user", "content": "a"}, build)
    assert remember({"role": "user", "content": "a"}, build) is first
    assert remember({"role": "user", "content": "b"}, build) is not first
    assert len(built) == 2
    assert text_of(first.parts) == "a"
