"""The content address of messages."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.derive.chain import (
    TAGS,
    Addresses,
    boundary,
    even,
    injected_kind,
    jcs,
    last_of_chain,
    plain,
    projected,
    prompt_words,
    slim,
    with_ids,
)
from tapes.jsontext import Json
from tapes.providers.turn import (
    Media,
    Message,
    Other,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)

# --- words ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a", "a"),
        ("  a \r\n\r\n\n b\t\nc  ", "a\n b\nc"),
        ("a<system-reminder>x</system-reminder>b", "ab"),
        ("a<system-reminder>never closed", "a"),
        ("<command-name>/x</command-name>do it", "do it"),
        ("<event>1</event><event>2</event>3", "3"),
        ("<task-notification><status>ok</status></task-notification>", ""),
        ("1 < 2 and <b>bold</b>", "1 < 2 and <b>bold</b>"),
    ],
)
def test_words_are_what_is_left_without_a_harnesss_tags_and_uneven_space(
    text: str, words: str
) -> None:
    assert plain(text) == words


@pytest.mark.parametrize("tag", TAGS)
def test_every_tag_goes_with_its_content(tag: str) -> None:
    assert plain(f"x <{tag}>inside</{tag}> y") == "x  y"


@given(st.text(alphabet="ab \t\n"))
def test_even_text_stays_as_it_is(text: str) -> None:
    assert even(even(text)) == even(text)
    assert "\n\n" not in even(text)


def test_the_users_own_words_are_kept_for_people() -> None:
    assert prompt_words("<command-args>fix it</command-args>") == "fix it"
    assert prompt_words("<session>\nhello\n</session>") == "hello"
    assert prompt_words("[@docs](plugin://docs) look here") == "look here"
    assert prompt_words("<system-reminder>no</system-reminder>yes") == "yes"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (Message("user", (Text("# MCP Server Instructions\nx"),)), "injected:mcp-instructions"),
        (
            Message("system", (Text("The following skills are available: x"),)),
            "injected:skills-list",
        ),
        (Message("user", (Text("## Plan Mode"),)), "injected:mode-banner"),
        (Message("user", (Text("<user_claude_md>x"),)), "injected:claude-md"),
        (Message("assistant", (Text("## Plan Mode"),)), ""),
        (Message("user", (Text("## Plan Mode"), ToolResult("t"))), ""),
        (Message("user", (Text("about ## Plan Mode"),)), ""),
    ],
)
def test_injected_context_is_known_by_how_it_begins(message: Message, kind: str) -> None:
    assert injected_kind(message) == kind


# --- RFC 8785 ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (333333333.33333329, "333333333.3333333"),
        (1e30, "1e+30"),
        (4.5, "4.5"),
        (0.002, "0.002"),
        (1e-27, "1e-27"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (-0.0, "0"),
        (1.0, "1"),
        (2**53 + 1, "9007199254740992"),
        ('\u20ac$\u000f\nA\'B"\\\\"/', '"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"'),
        ({"\ufb33": 1, "\U0001f600": 2, "1": 4}, '{"1":4,"\U0001f600":2,"\ufb33":1}'),
        ([None, True, False], "[null,true,false]"),
        # What no double, and no JSON, can say has an address all the same.
        (10**400, "1e+400"),
        ([float("inf"), float("nan")], '["Infinity","NaN"]'),
    ],
)
def test_the_text_of_a_value_is_rfc_8785s(value: Json, text: str) -> None:
    assert jcs(value).decode() == text


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda v: (
    st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=3), v, max_size=3)
), max_leaves=8))  # fmt: skip
def test_the_fast_writer_gives_the_same_text(value: Json) -> None:
    read_back = json.loads(jcs(value))
    assert jcs(read_back) == jcs(value)


# --- what is hashed ---------------------------------------------------------------------------


def test_the_projection_leaves_out_what_a_client_may_change() -> None:
    parts: tuple[Part, ...] = (
        Text("a <system-reminder>x</system-reminder>"),
        Text("<system-reminder>all of it</system-reminder>"),
        Reasoning("hm", "signature"),
        ToolCall("t", "n", {"b": None, "c": "", "d": {"e": 0}, "f": [], "g": [0]}),
        ToolResult("t", "<event>x</event>", True, [{"type": "image"}]),
        Media("image", url="u"),
        Other("redacted_thinking", {"data": "x"}),
    )
    assert projected(parts) == [
        {"type": "text", "text": "a"},
        {"type": "thinking", "thinking": "hm"},
        {"type": "tool_use", "tool_use_id": "t", "tool_name": "n", "tool_input": {"g": [0]}},
        {"type": "tool_result", "tool_result_id": "t", "is_error": True},
        {"type": "image", "image_url": "u"},
        {"type": "redacted_thinking"},
    ]  # fmt: skip
    assert slim({"a": {"b": {"c": False}}}) == {}


def test_an_address_is_the_hash_of_words_and_of_the_address_before() -> None:
    text = '{"content":{"content":[{"text":"hi","type":"text"}],"role":"user","type":"message"},'
    first = hashlib.sha256(f'{text}"parent":""}}'.encode()).hexdigest()
    second = hashlib.sha256(f'{text}"parent":"{first}"}}'.encode()).hexdigest()
    nodes = Addresses().chain([Message("user", (Text("hi "),)), Message("user", (Text("hi"),))])
    assert [node.hash for node in nodes] == [first, second]


def test_injected_messages_are_side_branches() -> None:
    told = Message("user", (Text("## Plan Mode"),))
    one, two = Message("user", (Text("a"),)), Message("user", (Text("b"),))
    with_banner = Addresses().chain([one, told, two])
    without = Addresses().chain([one, two])
    assert with_banner[2].hash == without[1].hash
    assert with_banner[1].injected == "injected:mode-banner"
    assert last_of_chain(with_banner[:2]) == without[0].hash


def test_the_last_fresh_words_of_the_assistant_are_the_boundary() -> None:
    nodes = Addresses().chain([Message(role, (Text(role),)) for role in ("user", "assistant") * 2])
    assert boundary(nodes, frozenset({0, 1, 2})) == 1
    assert boundary(nodes, frozenset({0, 2})) == -1


# --- tool calls without ids -------------------------------------------------------------------

ASK = Message("user", (Text("what time is it?"),))
CALLS = Message("assistant", (ToolCall("", "time", {"zone": "CET"}), ToolCall("", "date", {})))
RESULTS = (
    Message("tool", (ToolResult("", "2026", name="date"),)),
    Message("tool", (ToolResult("", "12:00", name="time"),)),
)


def ids(message: Message) -> list[str]:
    return [part.id for part in message.parts if isinstance(part, ToolCall | ToolResult)]


def test_a_call_without_an_id_has_one_id_in_its_answer_and_in_every_history() -> None:
    answer = with_ids((ASK, CALLS))[1]
    history = with_ids((ASK, CALLS, *RESULTS, CALLS, *RESULTS))
    assert ids(history[1]) == ids(answer)
    assert len(set(ids(history[1]) + ids(history[4]))) == 4


def test_results_without_ids_find_their_calls_by_name_else_in_order() -> None:
    history = with_ids((ASK, CALLS, *RESULTS))
    time, date = ids(history[1])
    assert [*ids(history[2]), *ids(history[3])] == [date, time]
    nameless = tuple(Message("tool", (ToolResult("", text),)) for text in "ab")
    history = with_ids((ASK, CALLS, *nameless))
    assert [*ids(history[2]), *ids(history[3])] == [time, date]


def test_ids_that_are_there_stay_and_two_conversations_have_their_own() -> None:
    named = (ASK, Message("assistant", (ToolCall("mine", "time", {}),)))
    assert with_ids(named) == named
    other = Message("user", (Text("and now?"),))
    assert ids(with_ids((other, CALLS))[1]) != ids(with_ids((ASK, CALLS))[1])
