"""What every provider's reducer promises, held against all of them."""

import copy
import json
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapes.providers.ending import Ending, ending_of
from tapes.providers.reading import PROVIDERS, answer_of_body
from tapes.providers.reduced import answer_of, reduced
from tapes.providers.turn import (
    Answer,
    AnswerState,
    Provider,
    Refusal,
    Text,
    no_memo,
    text_of,
)
from tapes.providers.usage import usage_of
from tapes.wire import Frame, frames_of
from tests.cases import CASES, Case
from tests.strategies import examples

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=lambda p: p.api)


def streamed(case: Case, data: bytes | None = None) -> Answer:
    """The answer in the stream, or in as much of it as is given."""
    body = case.stream if data is None else data
    return answer_of_body(case.content_type, body, whole=data is None, provider=case.provider)


def words(answer: Answer) -> list[str]:
    """All that the choices say, each joined."""
    return [
        "".join(part.text for part in choice.parts if isinstance(part, Text | Refusal))
        for choice in answer.choices
    ]


@every_case
def test_a_stream_and_one_body_mean_the_same(case: Case) -> None:
    stream = streamed(case)
    whole = answer_of_body("application/json", case.oneshot, whole=True, provider=case.provider)
    assert stream.choices == whole.choices
    assert (stream.id, stream.model, stream.created) == (whole.id, whole.model, whole.created)
    assert stream.usage == whole.usage
    assert stream.state is whole.state is AnswerState.COMPLETE
    assert not stream.problems


@every_case
def test_the_shape_alone_tells_the_provider(case: Case) -> None:
    assert answer_of_body(case.content_type, case.stream, whole=True) == streamed(case)


@every_case
def test_a_stream_cut_at_any_byte_keeps_its_text_and_says_that_it_is_not_whole(case: Case) -> None:
    full = streamed(case)
    last = full_length_needed(case)
    before = [0] * len(full.choices)
    for length in range(last):
        cut = streamed(case, case.stream[:length])
        assert cut.state is AnswerState.TRUNCATED
        for number, said in enumerate(words(cut)):
            assert words(full)[number].startswith(said)
            assert len(said) >= before[number]
            before[number] = len(said)


def full_length_needed(case: Case) -> int:
    """After how many bytes the provider has said that its answer is finished."""
    lengths = range(len(case.stream) + 1)
    return bisect_left(
        lengths, True, key=lambda n: streamed(case, case.stream[:n]).state is AnswerState.COMPLETE
    )


@every_case
def test_an_answer_is_not_finished_before_its_last_words_are_there(case: Case) -> None:
    length = full_length_needed(case)
    assert words(streamed(case, case.stream[:length])) == words(streamed(case))
    assert len(case.stream) - length < 700  # what follows is usage or the word for the end


@every_case
def test_the_ending_that_decides_about_a_tape_is_the_reducers(case: Case) -> None:
    for end in range(0, len(case.stream), 7):
        watched = ending_of(case.content_type, case.stream[:end])
        assert watched in (streamed(case, case.stream[:end]).ending, Ending.UNKNOWN)


@every_case
def test_tokens_are_counted_alike_wherever_they_are_counted(case: Case) -> None:
    assert usage_of(case.content_type, case.stream) == streamed(case).usage
    assert usage_of("application/json", case.oneshot) == streamed(case).usage


@every_case
def test_the_reduced_form_gives_the_answer_back(case: Case) -> None:
    for data in (case.stream, case.stream[: len(case.stream) // 2]):
        answer = streamed(case, data)
        form = json.loads(json.dumps(reduced(answer, case.provider.api)))
        assert answer_of(form) == answer


@every_provider
def test_an_error_in_a_stream_is_no_end_whatever_follows(provider: Provider) -> None:
    reducer = provider.reducer()
    reducer.feed(Frame("error", '{"type":"error","error":{"type":"overloaded","message":"busy"}}'))
    reducer.feed(Frame("", "[DONE]"))
    answer = reducer.finish()
    assert answer.state is AnswerState.ERROR
    assert answer.failure is not None
    assert (answer.failure.code, answer.failure.message) == ("overloaded", "busy")


# --- whatever comes ---------------------------------------------------------------------------

_NAMES = (
    "type index delta content_block content text message choices candidates usage model role "
    "tool_calls function arguments name id parts functionCall args finish_reason finishReason "
    "output item output_index response done error input messages tools system summary thinking "
    "prompt_tokens usageMetadata promptFeedback images annotations audio metadata"
)
_WORDS = (
    "text tool_use tool_result image message_start content_block_start content_block_delta "
    "message_delta response.created response.completed response.output_text.delta reasoning "
    "function_call input_json_delta assistant user system tool {} [1 output_text message"
)
NAMES, WORDS = st.sampled_from(_NAMES.split()), st.sampled_from(_WORDS.split())
SCALARS = st.none() | st.booleans() | st.integers(-2, 9) | st.floats(0, 1) | WORDS
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=20,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=6)


@every_provider
@settings(max_examples=examples(40), deadline=None)
@given(events=st.lists(OBJECTS, max_size=5))
def test_no_stream_of_objects_makes_a_reducer_raise(
    provider: Provider, events: list[dict[str, Any]]
) -> None:
    reducer = provider.reducer()
    for event in events:
        reducer.feed(Frame("", json.dumps(event)))
    answer = reducer.finish()
    assert answer_of(json.loads(json.dumps(reduced(answer, provider.api)))) is not None


@every_provider
@settings(max_examples=examples(40), deadline=None)
@given(body=OBJECTS)
def test_no_object_makes_a_request_or_an_answer_unreadable(
    provider: Provider, body: dict[str, Any]
) -> None:
    asked = provider.asked(body, "", no_memo)
    assert isinstance(text_of(part for m in asked.messages for part in m.parts), str)
    assert isinstance(asked.instructions, str)
    assert provider.answer(body).state in AnswerState


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a value: what holds it, and where in that."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def damaged(value: Any, hits: list[tuple[int, Any]]) -> Any:
    """A value with others in some of its places."""
    value = copy.deepcopy(value)
    for number, other in hits:
        found = list(places(value))
        held, key = found[number % len(found)]
        held[key] = copy.deepcopy(other)
        if not value:
            break
    return value


HITS = st.lists(st.tuples(st.integers(0, 10_000), VALUES), min_size=1, max_size=3)


@every_case
@settings(max_examples=examples(20), deadline=None)
@given(hits=HITS)
def test_no_damage_to_a_real_stream_makes_a_reducer_raise(
    case: Case, hits: list[tuple[int, Any]]
) -> None:
    frames = frames_of(case.content_type, case.stream) or []
    events = [json.loads(frame.text) for frame in frames if frame.text.startswith("{")]
    reducer = case.provider.reducer()
    for event in damaged(events, hits):
        reducer.feed(Frame("", json.dumps(event)))
    answer = reducer.finish()
    assert answer_of(json.loads(json.dumps(reduced(answer, case.provider.api)))) is not None


@every_case
@settings(max_examples=examples(20), deadline=None)
@given(hits=HITS)
def test_no_damage_makes_a_real_request_or_answer_unreadable(
    case: Case, hits: list[tuple[int, Any]]
) -> None:
    asked = case.provider.asked(damaged(case.request, hits), case.path, no_memo)
    assert isinstance(text_of(part for m in asked.messages for part in m.parts), str)
    assert isinstance(asked.instructions, str)
    answer = case.provider.answer(damaged(json.loads(case.oneshot), hits))
    assert answer_of(json.loads(json.dumps(reduced(answer, case.provider.api)))) is not None


# --- the reference's files --------------------------------------------------------------------


def expected(folder: Path) -> Iterator[tuple[str, Case, dict[str, Any]]]:
    told = json.loads((folder / "provider-streams" / "expected.json").read_text())
    for name, entry in told["files"].items():
        provider = next(p for p in PROVIDERS if p.api == entry["endpoint"])
        data = (folder / "provider-streams" / name).read_bytes()
        case = Case(name, provider, "", entry["content_type"], {}, data, data)
        yield name, case, entry["response"]


def without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        slim = {name: without_empty(member) for name, member in value.items()}
        return {name: member for name, member in slim.items() if member}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


def test_the_reference_files_are_reduced_as_expected(reference_data: Path) -> None:
    for name, case, response in expected(reference_data):
        answer = streamed(case)
        form = reduced(answer, case.provider.api)
        created = response.pop("created_at_unix", None)
        assert created is None or answer.created == created, name
        for own in ("created_at", "tapes"):
            form.pop(own, None)
        assert without_empty(form) == without_empty(response), name


def test_the_reference_pairs_have_equal_content(reference_data: Path) -> None:
    cases = {name: case for name, case, _ in expected(reference_data)}
    told = json.loads((reference_data / "provider-streams" / "expected.json").read_text())
    for one, other in told["equal_content_pairs"]:
        assert streamed(cases[one]).choices == streamed(cases[other]).choices


def test_the_reference_streams_can_be_cut_anywhere(reference_data: Path) -> None:
    for name, case, _ in expected(reference_data):
        if not name.endswith(".sse"):
            continue
        full = streamed(case)
        ends = [i for i in range(len(case.stream)) if case.stream.startswith(b"\n\n", i)]
        last_event = ends[-2] if ends[-1] >= len(case.stream) - 2 else ends[-1]
        for length in range(0, len(case.stream), 1 if len(case.stream) < 2000 else 13):
            cut = streamed(case, case.stream[:length])
            assert "".join(words(full)).startswith("".join(words(cut))), (name, length)
            if length <= last_event:
                assert cut.state is AnswerState.TRUNCATED, (name, length)
