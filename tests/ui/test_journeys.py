"""What people do on the page, from beginning to end: the main ways on both databases."""

import re
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.late import late

from .conftest import Open, press
from .whole import TAPE

openai = late("openai")

INVOICE = "The invoice test fails: it expects 42.00 and gets 41.99. Mend it."
LISBON = "I fly to Lisbon tomorrow. Do I need an umbrella?"


def test_the_failing_tool_call_is_found_by_keys_alone(
    everywhere: dict[str, str], open_page: Open
) -> None:
    page = open_page(everywhere["api"])
    expect(page.get_by_role("row").filter(has_text=INVOICE)).to_be_visible()
    press(page, "f", "filter")
    page.keyboard.type("has:tool_error")
    page.keyboard.press("Enter")
    expect(page.get_by_role("row")).to_have_count(2)
    page.keyboard.press("Escape")
    press(page, "j", "next")
    press(page, "Enter", "open")
    expect(page.get_by_role("heading", name=INVOICE)).to_be_visible()
    press(page, "e", "next error")
    selected = page.get_by_role("region", name="What is selected")
    expect(selected.get_by_text("assert 41.99 == 42.00")).to_be_visible()
    press(page, "Enter", "its trace")
    expect(page.get_by_role("tree", name="Spans")).to_be_visible()
    at = page.get_by_role("treeitem", selected=True)
    expect(at).to_contain_text("Bash")
    assert "span=toolu_01" in page.url


def test_the_failing_tool_call_is_found_by_mouse(
    everywhere: dict[str, str], open_page: Open
) -> None:
    page = open_page(everywhere["api"])
    page.get_by_role("row").filter(has_text=INVOICE).get_by_text("completed").click()
    sheet = page.get_by_role("complementary", name="Details")
    expect(sheet.get_by_text("1 failed")).to_be_visible()
    sheet.get_by_role("link", name="Open the session").click()
    page.get_by_role("button", name="1 error", exact=True).click()
    expect(page.get_by_role("region", name="What is selected")).to_contain_text("1 failed")
    page.get_by_role("link", name="15 spans").click()
    expect(page.get_by_role("treeitem")).to_have_count(15)


def test_a_link_opens_the_same_view_for_somebody_else(
    addresses: dict[str, str], open_page: Open
) -> None:
    place = "#/trace/trc_sample-coding-1?span=llm_sample-coding-5&view=tree&tab=difference"
    page = open_page(addresses["api"], place)
    expect(page.get_by_role("tab", name="Difference")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_text("messages[3]")).to_be_visible()
    expect(page.get_by_role("button", name="Tree")).to_have_attribute("aria-pressed", "true")


def test_a_trace_is_walked_by_keys(everywhere: dict[str, str], open_page: Open) -> None:
    page = open_page(everywhere["api"], "#/trace/trc_sample-coding-1")
    expect(page.get_by_role("treeitem")).to_have_count(15)
    press(page, "ArrowLeft", "close")
    expect(page.get_by_role("treeitem")).to_have_count(1)
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("treeitem")).to_have_count(15)
    press(page, "e", "next error")
    expect(page.get_by_role("treeitem", selected=True)).to_contain_text("Bash")
    page.keyboard.press("v")
    page.keyboard.press("v")
    expect(page.get_by_role("log", name="Transcript")).to_contain_text("assert 41.99 == 42.00")
    page.keyboard.press("v")
    press(page, "]", "trace after")
    expect(page.get_by_text("Trace 2 of 2")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page).to_have_url(re.compile("#/session/"))


def test_the_head_of_a_trace_counts_its_errors_and_leads_to_them(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/trace/trc_sample-coding-1")
    page.get_by_role("button", name="1 error", exact=True).click()
    expect(page.get_by_role("treeitem", selected=True)).to_contain_text("Bash")


def test_a_filter_of_spans_keeps_what_they_hang_from(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/trace/trc_sample-coding-1?filter=haiku")
    expect(page.get_by_text("2 spans of 15 fit")).to_be_visible()
    names = page.get_by_role("treeitem").all_inner_texts()
    assert [name.split("\n")[0] for name in names][:3] == ["main", "Agent", "subagent"]


def test_all_forms_of_a_call_are_there(everywhere: dict[str, str], open_page: Open) -> None:
    page = open_page(everywhere["api"], "#/trace/trc_sample-coding-1?span=llm_sample-coding-2")
    for tab, text in (
        ("JSON", '"claude-sonnet-4-5"'),
        ("Bytes", "event: message_start"),
        ("Chunks", "the first after 620 ms"),
        ("Headers", "https://api.anthropic.com/v1/messages"),
        ("Difference", "messages[1]"),
    ):
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_role("tabpanel")).to_contain_text(text)


def test_two_sessions_are_compared(everywhere: dict[str, str], open_page: Open) -> None:
    page = open_page(everywhere["api"])
    rows = page.get_by_role("row").filter(has_text=LISBON)
    expect(rows).to_have_count(2)
    for each in rows.all():
        each.get_by_role("checkbox").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_text("The two sessions do the same, span by span.")).to_be_visible()


def test_words_of_any_script_are_found_and_marked(
    everywhere: dict[str, str], open_page: Open
) -> None:
    page = open_page(everywhere["api"])
    expect(page.get_by_role("row").filter(has_text=INVOICE)).to_be_visible()
    press(page, "/", "search")
    page.keyboard.type("مرحبا")
    page.keyboard.press("Enter")
    mark = page.locator("mark").first
    expect(mark).to_have_text("مرحبا")
    assert mark.evaluate("e => getComputedStyle(e).direction") == "rtl"


def test_a_filter_completes_and_time_narrows(everywhere: dict[str, str], open_page: Open) -> None:
    page = open_page(everywhere["api"])
    field = page.get_by_role("combobox", name="Filter sessions")
    field.click()
    field.press_sequentially("mod")
    page.get_by_role("option").filter(has_text="model:").click()
    page.get_by_role("option").filter(has_text="gpt-4o-mini").click()
    expect(page.get_by_role("row")).to_have_count(3)
    page.get_by_role("button", name="Remove model:gpt-4o-mini").click()
    expect(page.get_by_role("row").filter(has_text=INVOICE)).to_be_visible()
    slider = page.get_by_role("slider")
    slider.focus()
    slider.press("Home")
    slider.press("Enter")
    expect(page.get_by_role("button", name="Chosen")).to_be_visible()


def test_a_request_that_is_on_no_tape_is_announced_and_explained(
    everywhere: dict[str, str], open_page: Open
) -> None:
    page = open_page(everywhere["api"])
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    asked = {
        "model": "gemma-3-270m",
        "messages": [{"role": "user", "content": "What is a unit test, on 2026-11-30?"}],
    }
    refused = httpx.post(
        f"{everywhere['proxy']}/openai/v1/chat/completions",
        json=asked,
        headers={"authorization": "Bearer none"},
        timeout=30,
    )
    assert refused.status_code >= 400
    expect(page.get_by_role("button", name="1 new session · show")).to_be_visible()
    page.get_by_role("link", name="Tapes", exact=True).last.click()
    row = page.get_by_role("row").filter(has_text="What is a unit test, on 2026-11-30?").first
    expect(row).to_contain_text("not on the tape")
    page.get_by_role("link", name="tests/tapes/conversation.jsonl").click()
    page.get_by_role("link", name="lately").click()
    row.get_by_role("link").first.click()
    expect(page.get_by_role("heading", name="This request is not on the tape")).to_be_visible()
    expect(page.get_by_role("heading", name="Against the nearest recording")).to_be_visible()
    expect(page.get_by_text("CASSETTE_MODE=record").first).to_be_visible()


def test_a_refusal_in_a_program_leads_to_the_page_that_explains_it(
    addresses: dict[str, str], open_page: Open
) -> None:
    client = openai.OpenAI(api_key="none", base_url=f"{addresses['proxy']}/openai/v1")
    with pytest.raises(openai.APIStatusError) as caught, client:
        client.chat.completions.create(
            model="gemma-3-270m",
            messages=[{"role": "user", "content": "What is a unit test, on 2026-12-01?"}],
        )
    said = str(caught.value)
    found = re.search(r"seen side by side: (http://[\w.:]+)/(#/miss/[0-9a-f-]{36})", said)
    assert found is not None, said
    page = open_page(*found.groups())
    expect(page.get_by_role("heading", name="This request is not on the tape")).to_be_visible()
    expect(page.get_by_role("heading", name="Likely cause")).to_be_visible()
    expect(page.get_by_text("on 2026-12-01").first).to_be_visible()
    expect(page).to_have_url(re.compile(r"#/miss/\d+$"))


def test_a_refusal_that_is_not_in_this_log_is_waited_for(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/miss/00000000-0000-4000-8000-000000000000")
    expect(page.get_by_role("heading", name="This call is not in the log yet")).to_be_visible()


def test_services_tell_their_health_and_what_is_wrong(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/services")
    expect(page.get_by_text("cannot be reached", exact=False).first).to_be_visible()
    expect(page.get_by_text("up", exact=True).first).to_be_visible()
    expect(page.get_by_text("/ping answered 200")).to_be_visible()
    page.get_by_role("button", name="Recheck all").click()
    expect(page.get_by_text("Asked again")).to_be_visible()


def test_the_api_reference_is_served_from_here(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["api"], "swagger")
    expect(page.get_by_text("/v1/sessions", exact=True).first).to_be_visible()


@pytest.mark.parametrize("from_nothing", ["sqlite", "postgres"], indirect=True)
def test_the_first_five_minutes(from_nothing: dict[str, str], open_page: Open) -> None:
    page = open_page(from_nothing["api"])
    expect(page.get_by_role("heading", name="Nothing was captured yet")).to_be_visible()
    page.get_by_role("button", name="Claude Code").click()
    expect(page.get_by_text("ANTHROPIC_BASE_URL=")).to_be_visible()
    page.get_by_role("button", name="Load sample sessions").click()
    page.get_by_role("row").filter(has_text=INVOICE).get_by_role("link").click()
    page.get_by_role("button", name="Rename, tag").click()
    page.get_by_label("Name", exact=True).fill("Half a cent")
    page.get_by_label("Tags", exact=True).fill("money")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Half a cent")).to_be_visible()
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("button", name="Pinned")).to_be_visible()
    page.get_by_role("button", name="Freeze").click()
    expect(page.get_by_text("tapes freeze")).to_be_visible()
    page.keyboard.press("Escape")
    address = page.url
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("8 records")).to_be_visible()
    page.get_by_role("button", name="Delete for good").click()
    expect(page.get_by_role("row").filter(has_text=LISBON).first).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="Half a cent")).to_have_count(0)
    page.goto(address)
    page.reload()
    expect(page.get_by_role("heading", name="This session was erased")).to_be_visible()


def test_how_to_capture_is_told_also_where_something_was_captured(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/start")
    expect(page.get_by_role("heading", name="How to capture more")).to_be_visible()
    expect(page.get_by_role("heading", name="Nothing was captured yet")).to_have_count(0)


def _heads(page: Page) -> list[str]:
    names = page.get_by_role("columnheader").all_inner_texts()
    return [re.sub(r"\W+$", "", name) for name in names[1:]]


def test_columns_are_moved_and_made_wider_by_keys_and_stay_so(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"])
    page.get_by_role("button", name="Last active").focus()
    page.keyboard.press("Shift+ArrowRight")
    expect(page.get_by_role("columnheader").nth(1)).to_have_text("Session")
    expect(page.get_by_role("button", name="Last active")).to_be_focused()
    page.keyboard.press("ArrowRight")
    agent = page.get_by_role("columnheader", name="Agent", exact=True)
    expect(agent.locator(".headname")).to_be_focused()
    before = _width(agent)
    for _ in range(4):
        page.keyboard.press("+")
    assert _width(agent) == before + 32
    page.reload()
    expect(page.get_by_role("columnheader").nth(1)).to_have_text("Session")
    assert _heads(page)[:3] == ["Session", "Last active", "Agent"]
    assert _width(agent) == before + 32
    page.get_by_role("button", name="Columns").click()
    page.get_by_role("button", name="Turns: earlier").click()
    page.get_by_role("button", name="As usual").click()
    page.keyboard.press("Escape")
    assert _heads(page)[:3] == ["Last active", "Session", "Agent"]
    assert _width(agent) == before


def test_columns_are_moved_and_made_wider_by_mouse(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"])
    page.get_by_role("button", name="Cost").drag_to(page.get_by_text("Agent", exact=True))
    assert _heads(page)[2:4] == ["Cost", "Agent"]
    expect(page.get_by_role("columnheader", name="Cost")).to_have_attribute("aria-sort", "none")
    agent = page.get_by_role("columnheader", name="Agent", exact=True)
    before, box = _width(agent), agent.locator(".grip").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 48, y, steps=4)
    page.mouse.up()
    assert _width(agent) == before + 48
    assert _width(page.get_by_role("cell", name="claude-code").first) == before + 48
    agent.locator(".grip").dblclick()
    assert _width(agent) == before


def _width(where: Locator) -> float:
    box = where.bounding_box()
    assert box is not None
    return box["width"]


def test_a_tab_and_the_history_name_what_is_shown(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/sessions")
    expect(page).to_have_title("Sessions · Tapes")
    page.evaluate("location.hash = '#/sessions?q=lisbon'")
    expect(page).to_have_title("lisbon · Sessions · Tapes")
    page.get_by_role("row").nth(1).get_by_role("link").first.click()
    shown = page.locator("h1")
    expect(page).to_have_title(f"{shown.inner_text()} · Session · Tapes")
    page.evaluate("location.hash = '#/tapes'")
    expect(page).to_have_title("Tapes")
    page.go_back()
    expect(page).to_have_title(f"{shown.inner_text()} · Session · Tapes")


@pytest.mark.parametrize(
    ("place", "title"),
    [(f"trace/{'a' * 32}", r".+ · Trace"), (f"tape/{quote(TAPE, safe='')}", rf"{TAPE} · Tape")],
)
def test_a_screen_of_one_thing_is_called_by_it(
    addresses: dict[str, str], open_page: Open, place: str, title: str
) -> None:
    page = open_page(addresses["api"], f"#/{place}")
    expect(page).to_have_title(re.compile(f"^{title} · Tapes$"))


def test_what_hides_in_a_title_is_not_in_that_of_the_page(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/search?q=a%E2%80%AEb%0Ac" + "d" * 200)
    expect(page).to_have_title(f"a b c{'d' * 95} · Search · Tapes")
