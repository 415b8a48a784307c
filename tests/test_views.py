"""Places in a text as a reader of an inner text sees them."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.views import (
    Edit,
    View,
    edited,
    edited_bytes,
    in_bytes,
    in_order,
    is_stream,
    moved_offset,
    unescaped,
    views_of,
)
from tests.strategies import TEXT


def originals(view: View, text: str, found: str) -> list[str]:
    """What stands in the original where `found` stands in a view."""
    at = view.text.index(found)
    return [text[a:b] for a, b in view.spans(at, at + len(found))]


def view_with(text: str, found: str, *, stream: bool = False) -> View:
    return next(v for v in views_of(text, is_stream=stream) if found in v.text)


@given(TEXT, TEXT, TEXT, st.integers(1, 3), st.booleans())
def test_a_text_in_json_in_json_is_found_where_it_lies(
    before: str, inner: str, after: str, levels: int, ascii_only: bool
) -> None:
    text = f"{before}<{inner}>{after}"
    spelled = f"<{inner}>"
    for _ in range(levels):
        text = json.dumps({"arguments": text}, ensure_ascii=ascii_only)
        spelled = json.dumps(spelled, ensure_ascii=ascii_only)[1:-1]
    views = [v for v in views_of(text) if f"<{inner}>" in v.text]
    if "\\" in before + inner + after or any(ord(c) > 0xFFFF for c in inner):
        return  # a text that itself looks like escapes, or whose pairs stay apart
    assert spelled in {"".join(originals(v, text, f"<{inner}>")) for v in views}


def test_a_text_without_escapes_has_one_view() -> None:
    assert [view.text for view in views_of("plain")] == ["plain"]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (r"a\nb\tc\"d\\e\/f\bg\fh\ri", 'a\nb\tc"d\\e/f\bg\fh\ri'),
        (r"\u0041\u00e9\u20ac", "Aé€"),
        (r"\x41 \u12 \q", r"\x41 \u12 \q"),
        ("no escapes", "no escapes"),
    ],
)
def test_escapes_are_undone(text: str, plain: str) -> None:
    assert unescaped(text) == plain


# --- streams


def chat(*parts: str) -> str:
    events = [{"choices": [{"index": 0, "delta": {"content": part}}]} for part in parts]
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events)


def test_a_text_over_several_events_is_one_view() -> None:
    text = chat("say ab", "cde", "f now")
    assert originals(view_with(text, "abcdef", stream=True), text, "abcdef") == ["ab", "cde", "f"]


def test_choices_that_take_turns_are_told_apart() -> None:
    lines = [(0, "ab"), (1, "xx"), (0, "cd"), (1, "yy")]
    text = "".join(json.dumps({"index": n, "text": t}) + "\n" for n, t in lines)
    assert originals(view_with(text, "abcd", stream=True), text, "abcd") == ["ab", "cd"]


def test_events_of_plain_text_are_joined_too() -> None:
    text = "data: ab\n\ndata: cd\n\ndata: [DONE]\n\n"
    assert originals(view_with(text, "abcd", stream=True), text, "abcd") == ["ab", "cd"]


@pytest.mark.parametrize(
    ("media", "text", "expected"),
    [
        ("text/event-stream", "", True),
        ("application/x-ndjson", "{}", True),
        ("", "data: a\n\n", True),
        ("application/json", '[{"text":"a"}\n,{"text":"b"}]', True),
        ("application/json", '{"a":1}', False),
        ("text/plain", "one\ntwo", False),
    ],
)
def test_streams_are_known_by_type_or_by_their_beginning(
    media: str, text: str, expected: bool
) -> None:
    assert is_stream(media, text) is expected


# --- edits

EDITS = st.lists(
    st.builds(
        lambda at, size, word: Edit(at, at + size, word),
        st.integers(0, 30),
        st.integers(0, 8),
        st.sampled_from(["", "W", "WORD"]),
    ),
    max_size=5,
)


@given(EDITS)
def test_ordered_edits_do_not_overlap_and_cover_the_same(edits: list[Edit]) -> None:
    kept = in_order(edits)
    assert all(a.end <= b.start for a, b in pairwise(kept))
    covered = {n for e in edits for n in range(e.start, e.end)}
    assert covered == {n for e in kept for n in range(e.start, e.end)}


@given(st.text(max_size=40), EDITS)
def test_edits_of_a_text_are_edits_of_its_bytes(text: str, edits: list[Edit]) -> None:
    inside = in_order([e for e in edits if e.end <= len(text)])
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return
    assert edited_bytes(data, in_bytes(text, inside)) == edited(text, inside).encode()


@given(st.binary(max_size=40), EDITS, st.integers(0, 40))
def test_a_place_outside_of_all_edits_keeps_what_is_before_it(
    data: bytes, edits: list[Edit], offset: int
) -> None:
    inside = in_order([e for e in edits if e.end <= len(data)])
    offset = min(offset, len(data))
    if any(e.start < offset < e.end for e in inside):
        return
    before = [e for e in inside if e.end <= offset and e.start < offset]
    assert edited_bytes(data, inside)[: moved_offset(offset, inside)] == edited_bytes(
        data[:offset], before
    )


def test_a_place_inside_an_edit_lies_at_its_end() -> None:
    assert moved_offset(3, [Edit(1, 5, "WORD")]) == 5
