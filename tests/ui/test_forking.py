"""A turn of a session is forked on the page, by mouse and by keys alone."""

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tapes.tape.jsonl import JsonlTape

from .conftest import Open, faults, press
from .test_journeys import INVOICE


def copied(page: Page) -> str:
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_a_turn_is_forked_by_mouse(
    everywhere: dict[str, str], open_page: Open, tmp_path: Path
) -> None:
    page = open_page(everywhere["api"])
    page.get_by_role("row").filter(has_text=INVOICE).get_by_role("link").click()
    card = page.get_by_role("article", name="Turn 1")
    card.get_by_role("button", name="Fork from here").click()
    dialog = page.get_by_role("dialog", name="Fork from turn 1")
    expect(dialog.get_by_role("status").filter(has_text="on the tape")).to_contain_text(
        "7 answers go on the tape. The session made 1 call after that"
    )
    last = dialog.get_by_label("The last call that comes from the tape")
    last.select_option(index=1)
    expect(dialog.get_by_role("status").filter(has_text="on the tape")).to_contain_text(
        "2 answers go on the tape. The session made 6 calls after that"
    )
    dialog.get_by_role("button", name="Copy the command that runs the agent").click()
    expect(page.get_by_text("Copied")).to_be_attached()
    assert re.fullmatch(
        r"tapes run --tape forks/\w{8}-until-\d+\.jsonl --mode record --budget 6 -- COMMAND",
        copied(page),
    )
    with page.expect_download() as taken:
        dialog.get_by_role("button", name="Or download it").click()
    taken.value.save_as(tmp_path / "fork.jsonl")
    assert len(JsonlTape(tmp_path / "fork.jsonl").keys()) == 2
    assert faults(page) == []


def test_a_turn_is_forked_by_keys_alone(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["api"])
    row = page.get_by_role("row").filter(has_text=INVOICE)
    expect(row).to_be_visible()
    for _ in range(page.get_by_role("row").count()):
        if row.get_attribute("aria-selected") == "true":
            break
        press(page, "j", "next")
    press(page, "Enter", "open")
    expect(page.get_by_role("heading", name=INVOICE)).to_be_visible()
    press(page, "j", "next turn")
    press(page, "f", "fork from here")
    dialog = page.get_by_role("dialog", name="Fork from turn 1")
    expect(dialog.get_by_text("7 answers")).to_be_visible()
    expect(dialog.get_by_label("The last call that comes from the tape")).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(dialog.get_by_text("6 answers")).to_be_visible()
    page.keyboard.press("Tab")
    expect(
        dialog.get_by_role("button", name="Copy the command that makes the tape")
    ).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Copied")).to_be_attached()
    assert re.fullmatch(
        r"tapes freeze [\w-]{36} --until \d+ -o forks/\S+\.jsonl --no-test", copied(page)
    )
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_the_call_that_is_selected_is_the_one_that_is_forked_from(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"])
    page.get_by_role("row").filter(has_text=INVOICE).get_by_role("link").click()
    card = page.get_by_role("article", name="Turn 1")
    card.get_by_role("button", name=re.compile("claude-sonnet-4-5")).nth(1).click()
    card.get_by_role("button", name="Fork from here").click()
    dialog = page.get_by_role("dialog", name="Fork from turn 1")
    expect(dialog.get_by_text("2 answers")).to_be_visible()
