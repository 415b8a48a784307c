"""What kind of call a call is."""

from dataclasses import replace
from pathlib import Path

import pytest

from tapes.derive.kinds import CHECK_1, CHECK_2, RULES, Seen, kinds_of
from tapes.providers.ending import Ending
from tapes.providers.reading import DropReason
from tapes.providers.turn import Answer, Asked, Message, Text, Tool, Turn, said
from tapes.rows import LinkKind, SpanKind, Status

NOTHING = Seen("", "", "", "", 1000, False, False, False)
JUDGE = "You are a security monitor"
SECTIONS = "1. Primary Request and Intent: x\n2. Key Technical Concepts: y"


def turn(
    prompt: str = "hi",
    answer: str = "hello",
    *,
    system: str = "",
    max_tokens: int = 1000,
    tools: bool = False,
    stream: bool = False,
    api: str = "messages",
    tool_choice: object = None,
) -> Turn:
    asked = Asked(
        messages=(Message("user", (Text(prompt),)),),
        system=system,
        tools=(Tool("t"),) if tools else (),
        settings={"max_tokens": max_tokens, "tool_choice": tool_choice},
        stream=stream,
    )
    return Turn("p", api, asked, Answer((said((Text(answer),)),), Ending.SAID))


AGENT = turn(tools=True, stream=True)


def kind(one: Turn, harness: str = "claude") -> str:
    """The kind of a call in the session of an agent."""
    return kinds_of([(AGENT, ""), (one, "")], harness)[1]


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (turn(system=JUDGE.upper(), max_tokens=64), CHECK_1),
        (turn("err on the side of BLOCKING", system=JUDGE), CHECK_1),
        (turn(system=JUDGE), CHECK_2),
        (turn(max_tokens=1), "offshoot:probe"),
        (turn("[SUGGESTION MODE: what next?]"), "offshoot:suggestion"),
        (turn(system='Return {"title": "…"}'), "offshoot:title-gen"),
        (turn(system="You are a title generator. One line."), "offshoot:title-gen"),
        (turn("<conversation>…"), "offshoot:plan-name-gen"),
        (turn(answer='{"title": "A tale"}'), "offshoot:title-gen"),
        (turn(answer='{"name": "a-plan"}'), "offshoot:plan-name-gen"),
        (turn("Web page content:\n…"), "offshoot:web-summary"),
        (turn("Write a summary of the conversation so far"), "offshoot:compaction"),
        (turn("Context checkpoint COMPACTION."), "offshoot:compaction"),
        (turn("Create a handoff summary for another LLM."), "offshoot:compaction"),
        (turn(answer=SECTIONS), "offshoot:compaction"),
        (turn(tools=True, stream=True), "main"),
        (turn(stream=True, api="responses", tool_choice="auto"), "main"),
        (turn(stream=True, api="responses", tool_choice="none"), "unknown"),
        (turn(), "unknown"),
    ],
)  # fmt: skip
def test_the_first_rule_that_fits_decides(one: Turn, expected: str) -> None:
    assert kind(one) == expected


def test_every_rule_can_fit() -> None:
    assert {kind for kind, fits, _ in RULES if not fits(NOTHING)} == {kind for kind, _, _ in RULES}


def test_a_call_with_tools_is_no_probe_and_no_title() -> None:
    assert kind(turn(max_tokens=1, tools=True, stream=True)) == "main"
    assert kind(turn(system='{"title"', tools=True, stream=True)) == "main"


def test_a_plain_chat_is_a_main_call() -> None:
    assert kinds_of([(turn(), "")], "unknown") == ["main"]
    assert kinds_of([(turn(stream=True), "")], "claude") == ["main"]
    assert kind(turn(), "somebody") == "main"


def test_an_application_may_ask_for_json_with_a_title() -> None:
    asks = [turn(answer='{"title": "x"}'), turn(answer='{"name": "y"}'), turn("[SUGGESTION MODE")]
    assert kinds_of([(one, "") for one in asks], "unknown") == ["main"] * 3
    agent = [(AGENT, ""), *((one, "") for one in asks)]
    assert "main" not in kinds_of(agent, "unknown")[1:]


def test_tools_of_a_thread_alone_make_no_agent_of_the_main_thread() -> None:
    one = turn(answer='{"title": "x"}')
    assert kinds_of([(AGENT, "thread"), (one, "")], "unknown")[1] == "main"


def test_a_leading_system_message_is_instructions() -> None:
    system = Message("system", (Text('Return {"title": "…"}'),))
    one = turn()
    asked = replace(one.asked, messages=(system, *one.asked.messages))
    assert kind(replace(one, asked=asked)) == "offshoot:title-gen"


def test_the_page_names_every_kind_status_link_and_reason() -> None:
    page = (Path(__file__).parents[2] / "docs/sessions-traces-spans.md").read_text()
    page = page.replace("`:stage2`", "`offshoot:permission-check:stage2`")
    words = [kind for kind, _, _ in RULES]
    words += [str(word) for words in (Status, LinkKind, SpanKind, DropReason) for word in words]
    assert [word for word in words if f"`{word}`" not in page] == []
