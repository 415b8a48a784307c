"""What holds on every screen: hostile text stays text, people with every sight and screen can read
it, and what goes wrong is said."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tapes.access import token_hash
from tapes.api.app import Api
from tapes.api.keys import Keys
from tapes.store.sqlite import open_sqlite
from tests.api.serving import seeded, serving

from .conftest import Open, faults, press
from .whole import HOSTILE

SCREENS = {
    "overview": ("#/overview", "claude-sonnet-4-5"),
    "recordings": ("#/tape/tests%2Ftapes%2Fconversation.jsonl", "What is a unit test?"),
    "sessions": ("#/sessions", "The invoice test fails"),
    "sheet": ("#/spans?q=type:tool", "get_weather"),
    "trace": ("#/trace/trc_sample-coding-1?span=toolu_01", "assert 41.99 == 42.00"),
    "chunks": ("#/trace/trc_sample-coding-1?span=llm_sample-coding-2&tab=chunks", "message_start"),
    "heat": ("#/trace/trc_sample-coding-1?view=tree&heat=cost&span=llm_sample-coding-2", "$0.0058"),
    "tapes": ("#/tapes", "conversation.jsonl"),
    "miss": ("#/miss/9", "Likely cause"),
    "services": ("#/services", "cannot be reached"),
    "search": ("#/search?q=invoice", "hits"),
    "start": ("#/start", "Load sample sessions"),
}


def session_of(page: Page, title: str) -> None:
    page.get_by_role("row").filter(has_text=title).get_by_role("link").first.click()
    expect(page.get_by_role("feed", name="Turns")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_screen_is_accessible(
    addresses: dict[str, str], open_page: Open, scheme: str
) -> None:
    page = open_page(addresses["api"], color_scheme=scheme)
    found: dict[str, list[str]] = {}
    for name, (place, text) in SCREENS.items():
        page.goto(f"{addresses['api']}/{place}")
        expect(page.get_by_text(text).first).to_be_visible()
        found[name] = faults(page)
    page.goto(f"{addresses['api']}/#/sessions")
    session_of(page, "The invoice test fails")
    press(page, "e", "next error")
    expect(page.get_by_text("assert 41.99 == 42.00").first).to_be_visible()
    found["session"] = faults(page)
    assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.parametrize(("width", "height"), [(1024, 768), (700, 450)], ids=["1024", "200 %"])
def test_nothing_is_cut_off_on_small_screens(
    addresses: dict[str, str], open_page: Open, width: int, height: int
) -> None:
    page = open_page(addresses["api"], viewport={"width": width, "height": height})
    for place, text in SCREENS.values():
        page.goto(f"{addresses['api']}/{place}")
        expect(page.get_by_text(text).first).to_be_attached()
        wide, tall = page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
        )
        assert (wide <= width, tall <= height) == (True, True), place
    for link in ("Sessions", "Services"):
        expect(page.get_by_role("link", name=link, exact=True)).to_be_in_viewport()


def test_a_phone_shows_all_of_each_head(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["api"], viewport={"width": 390, "height": 844})
    for place, text in SCREENS.values():
        page.goto(f"{addresses['api']}/{place}")
        expect(page.get_by_text(text).first).to_be_attached()
        bar, cut = page.evaluate(
            """() => [document.querySelector(".bar").offsetHeight,
              [...document.querySelectorAll("h1:not(.sr), .strip figcaption > span, .tabs a")]
                .filter((it) => it.offsetWidth < Math.min(150, it.scrollWidth)
                  || it.getBoundingClientRect().right > innerWidth)
                .map((it) => it.textContent)]"""
        )
        assert (bar < 120, cut) == (True, []), place


def test_what_colours_say_is_said_in_those_of_the_system_too(
    addresses: dict[str, str], open_page: Open
) -> None:
    place = SCREENS["trace"][0]
    page = open_page(addresses["api"], place, forced_colors="active")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    for kind in ("llm", "tool", "agent", "failed"):
        bar = page.locator(f".bar2.{kind}").first
        expect(bar).to_be_visible()
        assert bar.evaluate("(it) => getComputedStyle(it).backgroundColor") != ground
    line = "(it) => getComputedStyle(it).borderBottomColor"
    tabs = page.get_by_role("navigation", name="Views")
    here = tabs.get_by_role("link", name="Traces").evaluate(line)
    assert here != tabs.get_by_role("link", name="Tapes").evaluate(line)
    chosen = page.get_by_role("treeitem", selected=True)
    assert chosen.evaluate("(it) => getComputedStyle(it).outlineStyle") == "solid"


def test_on_a_small_screen_rows_have_room_and_an_empty_pane_takes_none(
    addresses: dict[str, str], open_page: Open
) -> None:
    small = {"width": 640, "height": 450}
    page = open_page(addresses["api"], SCREENS["trace"][0], viewport=small)
    tree = page.get_by_role("tree").bounding_box()
    assert tree is not None
    assert tree["height"] > 6 * 26
    page.goto(f"{addresses['api']}/#/sessions")
    session_of(page, "The invoice test fails")
    expect(page.get_by_role("heading", name="Select a call or a tool")).to_be_hidden()
    page.get_by_role("button", name="claude-sonnet-4-5").first.click()
    expect(page.get_by_role("region", name="What is selected")).to_be_visible()


# The contrast of each colour of a bar with each ground on which it may stand.
CONTRASTS = """() => {
  const probe = document.body.appendChild(document.createElement('i'));
  const light = (name) => {
    probe.style.color = `var(--${name})`;
    const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).map((part) => part / 255);
    const [r, g, b] = parts.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const between = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const bars = ['llm-bar', 'tool-bar', 'agent-bar', 'bad', 'cached', 'rose', 'leaf', 'line-strong'];
  return bars.flatMap((bar) =>
    ['ground', 'surface'].map((ground) => [bar, ground, between(light(bar), light(ground))]));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_bars_stand_out_from_what_is_behind_them(
    addresses: dict[str, str], open_page: Open, scheme: str
) -> None:
    page = open_page(addresses["api"], "#/start", color_scheme=scheme)
    expect(page.get_by_text("Load sample sessions")).to_be_visible()
    found = page.evaluate(CONTRASTS)
    assert [each for each in found if each[2] < 3] == []


def test_hostile_texts_stay_texts(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["api"])
    session_of(page, HOSTILE[0][:20])
    for text in (HOSTILE[0], HOSTILE[1], "␛[31mred␛[0m", "⟨U+202E⟩gnp.exe"):
        expect(page.get_by_text(text).first).to_be_attached()
    expect(page.locator("main img, main script, main style, main iframe")).to_have_count(0)
    trace = page.get_by_role("link", name=re.compile(r"^\d+ spans$")).first.get_attribute("href")
    for view in ("tree", "log", "waterfall"):
        page.goto(f"{addresses['api']}/{trace}?view={view}")
        expect(page.get_by_role("heading", name=HOSTILE[0])).to_be_visible()
    for tab in ("json", "raw", "headers"):
        page.goto(f"{addresses['api']}/{trace}?tab={tab}")
        page.keyboard.press("j")
        expect(page.get_by_role("tabpanel")).to_be_visible()
    assert page.evaluate("window.broken") is None
    hrefs = page.eval_on_selector_all("a[href]", "all => all.map((a) => a.getAttribute('href'))")
    assert [href for href in hrefs if "javascript" in href] == []


def test_a_text_of_ten_million_characters_is_shown_in_part(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/spans?q=tool:big")
    page.get_by_role("row").filter(has_text="big").get_by_role("link").click()
    expect(page.get_by_role("tabpanel").get_by_text("of 10,000,000 characters")).to_be_visible()


def test_a_long_answer_is_cut_in_a_card_and_read_on_from_there(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"])
    session_of(page, HOSTILE[0][:20])
    page.get_by_role("button", name="big").last.click()
    expect(page.get_by_role("feed").get_by_text("of 10,000,000 characters")).to_be_visible()


def test_a_dead_link_says_so(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["api"], "#/session/00000000-0000-0000-0000-000000000000")
    expect(page.get_by_role("heading", name="There is no such session")).to_be_visible()
    page.goto(f"{addresses['api']}/#/nowhere")
    expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()


def test_a_filter_that_cannot_be_read_shows_where(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/sessions?q=model:gpt-4o colour:red")
    expect(page.get_by_role("alert")).to_contain_text("model:gpt-4o colour:red\n             ^")


def test_a_server_that_is_lost_is_said_and_found_again(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"])
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    page.context.set_offline(True)
    page.get_by_role("button", name="24 h").click()
    expect(page.get_by_text("no server: reconnecting")).to_be_visible()
    expect(page.get_by_text("The server does not answer.", exact=False).first).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_text("live", exact=True)).to_be_visible()


def test_a_filter_is_not_called_wrong_when_nobody_answers(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/sessions")
    page.context.set_offline(True)
    page.get_by_role("link", name="Traces", exact=True).click()
    expect(page.get_by_text("The server does not answer")).to_be_visible()
    expect(page.get_by_label("Filter traces")).to_have_attribute("aria-invalid", "false")


@pytest.mark.parametrize(
    ("link", "there"), [("Traces", "The invoice test fails"), ("Overview", "claude-sonnet-4-5")]
)
def test_what_could_not_be_read_is_read_when_the_server_is_back(
    addresses: dict[str, str], open_page: Open, link: str, there: str
) -> None:
    page = open_page(addresses["api"], "#/spans")
    page.evaluate("import('/ui/js/screens/overview.js')")
    page.context.set_offline(True)
    page.get_by_role("link", name=link, exact=True).click()
    expect(page.get_by_text("The server does not answer").first).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_text(there).first).to_be_visible()


def test_bytes_that_could_not_be_read_are_when_the_server_is_back(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/trace/trc_sample-coding-1?span=llm_sample-coding-2")
    expect(page.get_by_role("tab", name="Bytes")).to_be_visible()
    page.context.set_offline(True)
    page.get_by_role("tab", name="Bytes").click()
    expect(page.get_by_role("button", name="Try again").first).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_text("message_start").first).to_be_visible()


def test_a_token_is_asked_for_once(tmp_path: Path, open_page: Open) -> None:
    store = seeded(open_sqlite(tmp_path / "tapes.db"))
    with serving(Api(store, Keys(read=token_hash("right")))) as client:
        page = open_page(str(client.base_url).rstrip("/"))
        dialog = page.get_by_role("dialog", name="This server asks for a token")
        dialog.get_by_label("Token").fill("wrong")
        dialog.get_by_role("button", name="Go on").click()
        expect(dialog).to_contain_text("not accepted")
        dialog.get_by_label("Token").fill("right")
        dialog.get_by_role("button", name="Go on").click()
        expect(page.get_by_role("row").filter(has_text="The invoice test")).to_be_visible()
        expect(dialog).to_have_count(0)
    store.close()


def test_the_head_of_a_turn_with_an_error_stays_in_one_row(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], viewport={"width": 1280, "height": 800})
    session_of(page, "The invoice test fails")
    head = page.get_by_role("article", name="Turn 1", exact=True).locator("header").first
    box = head.bounding_box()
    assert box is not None
    assert box["height"] < 40


def test_a_list_that_finds_nothing_says_so_in_the_middle(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/sessions?q=nobodysaidthis")
    said = page.get_by_role("heading", name="No sessions match").bounding_box()
    assert said is not None
    assert said["x"] + said["width"] / 2 == pytest.approx(1400 / 2, abs=2)


def test_a_filter_that_cannot_be_read_is_told_in_the_same_width_whatever_it_says(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/sessions?q=model:(")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("has no value")
    short = alert.bounding_box()
    page.goto(f"{addresses['api']}/#/sessions?q=colour:red")
    expect(alert).to_contain_text("harness_session")
    long = alert.bounding_box()
    assert short is not None
    assert long is not None
    assert (short["x"], short["width"]) == (long["x"], long["width"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_api_reference_has_the_theme_of_the_page(
    addresses: dict[str, str], open_page: Open, scheme: str
) -> None:
    page = open_page(addresses["api"], "ui/reference.html", color_scheme=scheme)
    expect(page.get_by_text("/v1/sessions", exact=True).first).to_be_visible()
    for name in (".refbar", "body"):
        ground = page.evaluate(
            f"getComputedStyle(document.querySelector('{name}')).backgroundColor"
        )
        red, green, blue = map(int, re.findall(r"\d+", ground)[:3])
        assert (red + green + blue < 300) == (scheme == "dark"), (name, ground)


def test_a_screen_that_comes_is_not_framed(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["api"], "#/sessions")
    expect(page.get_by_role("row").nth(1)).to_be_visible()
    page.goto(f"{addresses['api']}/#/overview")
    expect(page.get_by_role("heading", name="Calls by model")).to_be_visible()
    main = page.get_by_role("main")
    expect(main).to_be_focused()
    assert main.evaluate("(main) => getComputedStyle(main).outlineStyle") == "none"
