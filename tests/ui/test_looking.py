"""What is seen without opening anything: what rows tell, what is on a tape, sums and charts."""

import re

from playwright.sync_api import expect

from .conftest import Open, faults, press


def test_a_row_of_spans_says_what_was_asked_and_answered(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/spans?q=tool:Edit")
    row = page.get_by_role("row").nth(1)
    expect(row).to_contain_text("shop/invoice.py")
    expect(row).to_contain_text("1 replacement")


def test_a_span_that_failed_without_an_answer_says_how(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/spans?q=error:rate_limit_exceeded")
    expect(page.get_by_role("row").nth(1)).to_contain_text("rate_limit_exceeded")


def test_what_rows_say_is_read_after_the_rows_and_for_each_page(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/spans?sort=started_at&dir=asc")
    table = page.get_by_role("table")
    expect(page.get_by_text("60 of")).to_be_visible()
    table.evaluate("(box) => { box.scrollTop = box.scrollHeight }")
    expect(page.get_by_text("60 of")).to_have_count(0)
    table.evaluate("(box) => { box.scrollTop = box.scrollHeight }")
    expect(page.get_by_role("row").filter(has_text="No. shop/tax.py rounds")).to_be_visible()


def test_spans_of_a_trace_are_told_apart_and_found_by_what_they_did(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/trace/trc_sample-coding-1")
    row = page.get_by_role("treeitem").filter(has_text="pytest -q tests/test_invoice.py")
    expect(row).to_contain_text("Bash")
    page.get_by_label("Filter spans").fill("grep round")
    expect(page.get_by_text("2 spans of 15 fit")).to_be_visible()


TAPE_PAGE = "#/tape/tests%2Ftapes%2Fconversation.jsonl"
TWICE = {"width": 640, "height": 400}  # what a window of 1280 × 800 shows at 200 %


def test_a_recording_is_looked_at_beside_the_tape(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], TAPE_PAGE)
    page.get_by_role("row").filter(has_text="What is a unit test?").click()
    sheet = page.get_by_role("complementary", name="Recording")
    expect(sheet.get_by_text("What are the three types of unit tests?").first).to_be_visible()
    sheet.get_by_role("tab", name="Request").click()
    expect(sheet.get_by_text("http://localhost:8000/v1/chat/completions")).to_be_visible()
    sheet.get_by_role("tab", name="Response").click()
    expect(sheet.get_by_text('"What is a unit test?')).to_be_visible()
    again = open_page(addresses["api"], page.url.removeprefix(addresses["api"] + "/"))
    expect(again.get_by_role("tab", name="Response")).to_have_attribute("aria-selected", "true")
    assert faults(again) == []


def test_recordings_are_gone_through_by_keys(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["api"], TAPE_PAGE)
    for key, label in (("j", "next"), ("Enter", "look"), ("j", "next")):
        press(page, key, label)
    sheet = page.get_by_role("complementary", name="Recording")
    expect(sheet.get_by_text("ended by length")).to_be_visible()
    expect(page.get_by_role("row", selected=True)).to_have_count(1)
    press(page, "Escape", "close")
    expect(sheet).to_have_count(0)
    expect(page.get_by_role("row", selected=True)).to_have_count(1)


def test_a_tape_shows_its_recordings_at_200_percent(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], TAPE_PAGE, viewport=TWICE)
    for number in range(1, 5):
        expect(page.get_by_role("row").nth(number)).to_be_in_viewport(ratio=1)
    assert page.evaluate(_SIDEWAYS) == []


# What moves sideways, though it need not.
_SIDEWAYS = """() => [...document.querySelectorAll('#app *')]
  .filter((each) => each.scrollWidth > each.clientWidth + 1
    && /auto|scroll/.test(getComputedStyle(each).overflowX))
  .map((each) => each.className)"""


def test_a_list_does_not_move_sideways_beside_its_sheet(
    addresses: dict[str, str], open_page: Open
) -> None:
    for noun, width in (("sessions", 1024), ("spans", 1024), ("sessions", 1280), ("traces", 1280)):
        page = open_page(addresses["api"], f"#/{noun}", viewport={"width": width, "height": 768})
        press(page, "j", "next")
        press(page, " ", "look")
        expect(page.get_by_role("complementary", name="Details")).to_be_visible()
        assert page.evaluate(_SIDEWAYS) == []


def test_space_presses_what_has_the_focus(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["api"])
    press(page, "j", "next")
    box = page.get_by_role("checkbox", name="Select this row").nth(2)
    box.focus()
    page.keyboard.press(" ")
    expect(box).to_be_checked()
    page.get_by_role("button", name="Columns").focus()
    page.keyboard.press(" ")
    expect(page.get_by_role("dialog", name="Columns")).to_be_visible()
    expect(page.get_by_role("complementary", name="Details")).to_have_count(0)


def test_the_overview_sums_up_and_leads_to_the_spans_behind_each_number(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/overview?q=model:claude-sonnet-4-5%20OR%20model:gpt-4o")
    models = page.get_by_role("table").filter(has_text="Model").first
    expect(models.get_by_role("row").filter(has_text="claude-sonnet-4-5")).to_contain_text("$0.026")
    errors = page.get_by_role("table").filter(has_text="Times")
    expect(errors.get_by_role("row").filter(has_text="rate_limit_exceeded")).to_contain_text("1")
    assert faults(page) == []
    models.get_by_role("link", name="gpt-4o", exact=True).click()
    expect(page.get_by_label("Filter spans")).to_have_value(re.compile("model:gpt-4o"))
    expect(page.get_by_role("row").filter(has_text="gpt-4o")).to_have_count(3)


def test_the_overview_is_narrowed_by_keys_and_says_what_a_bar_is_worth(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/overview")
    calls = page.get_by_role("figure").filter(has_text="Calls by model")
    expect(calls.get_by_text("gemma-3-270m")).to_be_visible()
    calls.get_by_role("slider").focus()
    page.keyboard.press("End")
    expect(calls.locator("figcaption")).to_contain_text("gemma-3-270m ")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Chosen")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("group", name="Time")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("button", name="All time")).to_have_attribute("aria-pressed", "true")


def test_an_overview_of_nothing_says_what_to_do(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["api"], "#/overview?q=model:nobody")
    expect(page.get_by_role("heading", name="No call of a model")).to_be_visible()
    page.get_by_role("button", name="Clear the filter").click()
    expect(page.get_by_role("figure").first).to_be_visible()
    page = open_page(addresses["api"], "#/overview?q=colour:red")
    expect(page.get_by_role("alert")).to_contain_text("colour")


def test_filters_at_the_side_take_values_in_and_leave_them_out(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"])
    page.get_by_role("button", name="Filters", exact=True).click()
    side = page.get_by_role("complementary", name="Quick filters")
    side.get_by_role("button", name="gpt-4o-mini").first.click()
    expect(page.get_by_label("Filter sessions")).to_have_value("model:gpt-4o-mini")
    expect(page.get_by_role("row")).to_have_count(3)
    side.get_by_role("button", name="Without replayed").click()
    expect(page.get_by_label("Filter sessions")).to_have_value(
        "model:gpt-4o-mini -outcome:replayed"
    )
    expect(page.get_by_role("row")).to_have_count(2)
    assert faults(page) == []
    side.get_by_role("button", name="gpt-4o-mini").first.click()
    expect(page.get_by_label("Filter sessions")).to_have_value("-outcome:replayed")
    assert page.evaluate(_SIDEWAYS) == []
    page.reload()
    expect(side.get_by_role("button", name="Without replayed")).to_have_attribute(
        "aria-pressed", "true"
    )


def test_a_filter_at_the_side_goes_with_both_sides_of_an_or(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/sessions?q=agent:packer%20OR%20agent:reporter")
    press(page, "j", "next")
    page.keyboard.press("F")
    side = page.get_by_role("complementary", name="Quick filters")
    side.get_by_role("button", name="gpt-4o-mini").first.click()
    field = page.get_by_label("Filter sessions")
    expect(field).to_have_value("(agent:packer OR agent:reporter) model:gpt-4o-mini")
    expect(page.get_by_role("row")).to_have_count(3)


def test_a_view_is_kept_under_a_name(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["api"], "#/sessions?q=agent:packer&sort=duration_ns")
    page.get_by_role("button", name="Filters", exact=True).click()
    side = page.get_by_role("complementary", name="Quick filters")
    side.get_by_role("button", name="Keep this view").click()
    page.keyboard.type("<b>Packing</b>")
    page.keyboard.press("Enter")
    mine = side.get_by_role("link", name="<b>Packing</b>")
    expect(mine).to_have_attribute("aria-current", "true")
    side.get_by_role("link", name="With errors").click()
    expect(page.get_by_label("Filter sessions")).to_have_value("has:error OR has:tool_error")
    page.reload()
    mine.click()
    expect(page.get_by_label("Filter sessions")).to_have_value("agent:packer")
    side.get_by_role("button", name="Forget <b>Packing</b>").click()
    expect(mine).to_have_count(0)


def test_lists_fit_a_narrow_window_where_nobody_chose_their_columns(
    addresses: dict[str, str], open_page: Open
) -> None:
    for noun in ("sessions", "traces", "spans"):
        page = open_page(addresses["api"], f"#/{noun}", viewport=TWICE)
        expect(page.get_by_role("row").nth(1)).to_be_visible()
        assert page.evaluate(_SIDEWAYS) == []


def test_a_span_that_came_as_a_record_shows_it_in_place_of_bytes(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/traces?q=missing:>0")
    page.get_by_role("row").nth(1).get_by_role("link").click()
    expect(page.get_by_role("heading", name="plan the journey").first).to_be_visible()
    expect(page.get_by_role("tab")).to_have_text(["Rendered", "JSON", "Record"])
    expect(page.get_by_role("tabpanel")).to_contain_text(
        re.compile("Attributes.*conversation.id.*unfinished")
    )
    page.get_by_role("tab", name="Record").click()
    expect(page.get_by_role("tabpanel")).to_contain_text('"scope": "my.lib"')
    badge = page.locator(".detail .badge.step")
    assert badge.evaluate("(badge) => badge.clientHeight") < 24


def test_an_address_without_an_id_is_no_failure(addresses: dict[str, str], open_page: Open) -> None:
    for noun in ("session", "trace", "tape", "miss"):
        page = open_page(addresses["api"], f"#/{noun}/")
        expect(page.get_by_role("heading", name="There is no such")).to_be_visible()


def test_an_agent_shows_what_it_did_in_sum_what_it_was_given_and_said_last(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/trace/trc_sample-coding-1")
    selected = page.get_by_role("region", name="The selected span")
    expect(selected).to_contain_text("7 calls, 6 tools, 1 error")
    expect(selected.get_by_text("The invoice test fails: it expects 42.00")).to_be_visible()
    expect(selected.get_by_text("Mended: the sum is rounded once")).to_be_visible()
    page.get_by_role("treeitem").filter(has_text="subagent").click()
    expect(selected).to_contain_text("2 calls, 1 tool")
    expect(selected.get_by_text("Find every place in shop/")).to_be_visible()


def test_comparing_says_how_much_more_the_right_has(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/sessions?q=agent:packer")
    for number in (1, 2):
        page.get_by_role("row").nth(number).get_by_role("checkbox").check()
    page.get_by_role("button", name="Compare").click()
    more = page.get_by_label("Right against left")
    expect(more).to_contain_text("time +480 ms (+22 %)")
    expect(more).to_contain_text("input the same")
    expect(more).to_contain_text("cost +<$0.0001")
