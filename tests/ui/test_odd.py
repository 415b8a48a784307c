"""Sessions that few people have, and need most to see: long, wide and deep ones, pictures, names
without an end."""

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tapes.keeping import open_projector, open_store
from tapes.opening import Where
from tests.turns import SECOND, at, chat, said

from .conftest import Open, faults, press, served, top_of
from .whole import DEPTH, LANES, TURNS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server has its log."""
    return tmp_path_factory.mktemp("odd")


@pytest.fixture(scope="module")
def odd(folder: Path) -> Iterator[str]:
    """A server with such sessions."""
    with served(folder, "odd") as found:
        yield found["api"]


def grow(folder: Path, numbers: range) -> None:
    """More turns of a session that runs now, captured by another process than the server."""
    begins = time.time() - at(0) / SECOND
    store = open_store(Where(str(folder / ".tapes" / "tapes.db")))
    asked = [said("user", f"now {numbers[0]}")]
    turns = []
    for n in numbers:
        asked = [*asked, said("assistant", f"then {n}"), said("user", f"now {n}")]
        answer = f"then {n} {'and ' * 60}"
        id_ = f"grown{n}"
        turns.append(chat(n, asked, answer, session="growing", request_id=id_, begins=begins))
    store.append(turns)
    open_projector(store).drain()
    store.close()


def opened(open_page: Open, address: str, title: str, **options: object) -> Page:
    page = open_page(address, f"#/sessions?q=%22{title.replace(' ', '%20')}%22", **options)
    page.get_by_role("row").get_by_role("link", name=title, exact=True).first.click()
    expect(page.get_by_role("feed", name="Turns")).to_be_visible()
    return page


def test_a_session_that_is_over_is_read_from_its_beginning(odd: str, open_page: Open) -> None:
    page = opened(open_page, odd, "part 1")
    turns = page.get_by_role("article")
    expect(turns.first).to_have_attribute("aria-label", "Turn 1")
    expect(turns).to_have_count(80)
    expect(page.get_by_text(f"{TURNS - 80} later turns")).to_be_attached()
    page.get_by_role("button", name="Show more").click()
    expect(turns).to_have_count(TURNS)


def test_a_trace_late_in_a_long_session_has_its_place_and_its_neighbours(
    odd: str, open_page: Open
) -> None:
    page = open_page(odd, f"#/trace/trc_l{TURNS - 1}")
    where = page.get_by_role("navigation", name="Where this is")
    expect(where).to_contain_text(f"Trace {TURNS - 1} of {TURNS}")
    press(page, "]", "trace after")
    expect(page.get_by_role("heading", name=f"part {TURNS}", exact=True)).to_be_visible()


def test_the_next_error_is_brought_into_sight_in_a_turn_that_is_long(
    odd: str, open_page: Open
) -> None:
    page = opened(open_page, odd, "name it")
    press(page, "e", "next error")
    expect(page.get_by_role("feed").get_by_text("it broke")).to_be_in_viewport()


def bring_into_sight(card: Locator) -> None:
    """Cards before it may turn out higher than was thought, as they come by, and push it away."""
    for _ in range(100):
        card.scroll_into_view_if_needed()
        with contextlib.suppress(AssertionError):
            expect(card).to_be_in_viewport(timeout=300)
            return
    raise AssertionError("it does not stay in sight")


def test_who_follows_a_session_stays_at_its_end_and_who_reads_is_left_alone(
    odd: str, folder: Path, open_page: Open
) -> None:
    grow(folder, range(1, 12))
    page = opened(open_page, odd, "now 1")
    feed = page.get_by_role("feed", name="Turns")
    expect(page.get_by_text("following")).to_be_in_viewport()
    grow(folder, range(12, 24))
    expect(feed.get_by_text("now 23", exact=True)).to_be_in_viewport()
    expect(page.get_by_text("following")).to_be_in_viewport()
    feed.hover()
    page.mouse.wheel(0, -600)
    expect(page.get_by_role("button", name="Follow", exact=True, pressed=False)).to_be_visible()
    read = page.get_by_role("article", name="Turn 20", exact=True)
    bring_into_sight(read)
    was = top_of(read)
    grow(folder, range(24, 27))
    expect(feed.get_by_role("article", name="Turn 26", exact=True)).to_be_attached()
    assert abs(top_of(read) - was) < 1


# Before the page is told that it was scrolled.
_SCROLL_AND_GO = "(card) => { card.scrollIntoView(); card.querySelector('a').click(); }"


def test_back_leads_to_where_somebody_read_in_a_session(odd: str, open_page: Open) -> None:
    page = opened(open_page, odd, "part 1")
    page.get_by_role("button", name="Show more").click()
    turn = page.get_by_role("article", name="Turn 150", exact=True)
    turn.evaluate(_SCROLL_AND_GO)
    expect(page.get_by_role("tree", name="Spans")).to_be_visible()
    page.go_back()
    expect(turn).to_be_in_viewport()
    expect(turn).to_have_attribute("aria-setsize", str(TURNS))


def test_a_name_without_an_end_stays_in_its_place(odd: str, open_page: Open) -> None:
    page = opened(open_page, odd, "name it")
    line = page.locator(".toolline").first
    name = line.locator("b").bounding_box()
    took = line.locator(".tnum").bounding_box()
    assert name is not None
    assert took is not None
    assert name["x"] + name["width"] <= took["x"]


def test_each_agent_stands_once_in_a_turn_and_opens_for_what_is_selected_in_it(
    odd: str, open_page: Open
) -> None:
    page = opened(open_page, odd, "invoke_agent level 1")
    feed = page.get_by_role("feed")
    expect(feed.get_by_text("invoke_agent level 2")).to_have_count(1)
    expect(feed.get_by_text("invoke_agent level 3")).to_have_count(0)
    press(page, "e", "next error")
    failed = feed.get_by_role("button", name="dig")
    expect(failed).to_be_in_viewport()
    shown = failed.bounding_box()
    assert shown is not None
    assert shown["width"] > 200


def test_lanes_are_called_by_what_tells_them_apart_and_all_are_seen(
    odd: str, open_page: Open
) -> None:
    page = opened(open_page, odd, "lead them")
    lanes = page.get_by_role("complementary", name="The whole session")
    for number in (1, LANES):
        name = lanes.get_by_text(f"thread-{number:02}-of-many")
        expect(name).to_have_count(1)
        assert name.evaluate("(it) => it.scrollWidth <= it.clientWidth")
    assert lanes.evaluate("(it) => it.scrollWidth <= it.clientWidth")


def test_a_lane_of_an_agent_in_an_agent_has_its_own_name(odd: str, open_page: Open) -> None:
    page = opened(open_page, odd, "invoke_agent level 1")
    lanes = page.get_by_role("complementary", name="The whole session")
    lanes.get_by_role("button", name="3 level 3", exact=True).click()
    expect(page).to_have_url(re.compile(f"span={103:016x}"))


@pytest.mark.parametrize("width", [1400, 390])
def test_a_deep_span_keeps_its_name_and_its_bar(odd: str, open_page: Open, width: int) -> None:
    place = f"#/trace/{'d' * 32}?span={'c' * 16}"
    page = open_page(odd, place, viewport={"width": width, "height": 800})
    row = page.get_by_role("treeitem", selected=True)
    expect(row).to_have_attribute("aria-level", str(DEPTH + 1))
    name = row.get_by_text("dig", exact=True)
    expect(name).to_be_in_viewport(ratio=1)
    box, lane = name.bounding_box(), row.locator(".lane").bounding_box()
    assert box is not None
    assert lane is not None
    assert box["x"] + box["width"] <= lane["x"]


def drawn(page: Page) -> list[int]:
    """The widths of all pictures that are drawn, as they are in themselves."""
    found: list[int] = page.locator("figure img").evaluate_all(
        "(all) => Promise.all(all.map((it) => it.decode().then(() => it.naturalWidth)))"
    )
    return found


def test_pictures_are_drawn_and_only_those_that_are_here_and_cannot_act(
    odd: str, open_page: Open
) -> None:
    page = opened(open_page, odd, "look at these")
    feed = page.get_by_role("feed")
    feed.get_by_role("button", name="Show 3 pictures").click()
    expect(feed.get_by_role("figure")).to_have_count(3)
    assert drawn(page) == [1]
    expect(feed.get_by_text("image/svg+xml")).to_be_visible()
    expect(feed.get_by_text("lies elsewhere and is not fetched")).to_be_visible()
    assert faults(page) == []


def test_a_picture_in_a_result_is_drawn_beside_its_text(odd: str, open_page: Open) -> None:
    page = opened(open_page, odd, "look at these")
    page.get_by_role("feed").get_by_role("button", name="Screenshot").click()
    beside = page.get_by_role("tabpanel")
    expect(beside.get_by_text("a screen")).to_be_visible()
    expect(beside.get_by_role("img", name="Picture in what was said")).to_be_visible()
    assert 1 in drawn(page)


def test_a_picture_in_a_data_url_is_a_picture(odd: str, open_page: Open) -> None:
    page = opened(open_page, odd, "and this")
    page.get_by_role("feed").get_by_role("button", name="Show 1 picture").click()
    expect(page.get_by_role("figure")).to_have_count(1)
    assert drawn(page) == [1]


def test_a_call_that_failed_is_one_error_and_says_what_the_provider_said(
    odd: str, open_page: Open
) -> None:
    page = opened(open_page, odd, "too much")
    line = page.get_by_role("feed").locator("p.bad")
    expect(line).to_contain_text("overloaded_error")
    icon = line.locator("svg").bounding_box()
    assert icon is not None
    assert icon["width"] < 20
    page.get_by_role("button", name="1 error", exact=True).click()
    expect(page.get_by_role("tabpanel").get_by_text("HTTP 529")).to_contain_text("Come later")


def test_an_answer_that_was_cut_off_says_so_where_it_ends(odd: str, open_page: Open) -> None:
    page = opened(open_page, odd, "cut me")
    call = page.get_by_role("feed").locator(".call")
    expect(call).to_contain_text("Hel")
    expect(call).to_contain_text("the answer was cut off here")


def test_an_answer_that_was_cut_off_by_its_limit_says_so_where_it_is_called_failed(
    odd: str, open_page: Open
) -> None:
    page = open_page(odd, "#/sessions?q=%22write%20essay%22")
    row = page.get_by_role("row").filter(has_text="write essay")
    expect(row).to_contain_text("failed: cut off")
    row.get_by_role("link").click()
    why = "its last answer was cut off at its limit of tokens (length)"
    expect(page.locator(".totals")).to_contain_text(why)
    expect(page.get_by_role("feed")).to_contain_text("the answer was cut off at its limit")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("write essay")
    page.get_by_role("button", name="Keep").click()


def test_a_narrow_list_marks_what_failed(odd: str, open_page: Open) -> None:
    narrow = {"width": 390, "height": 800}
    page = open_page(
        odd, "#/sessions?q=%22write%20essay%22%20OR%20%22too%20much%22", viewport=narrow
    )
    for said_ in ("write essay", "too much"):
        row = page.get_by_role("row").filter(has_text=said_)
        expect(row.get_by_role("img", name="failed")).to_be_visible()


def test_markdown_is_drawn_and_does_nothing_by_itself(odd: str, open_page: Open) -> None:
    page = opened(open_page, odd, "write markdown")
    feed = page.get_by_role("feed")
    feed.get_by_role("button", name="Read all of it").click()
    expect(feed.get_by_role("heading", name="Rounding")).to_be_visible()
    expect(feed.locator("strong")).to_have_text(["twice", "pal\u200b"])
    expect(feed.get_by_text("__init__ stays, src/**/*.py too")).to_be_visible()
    expect(feed.locator(".unseen").first).to_have_attribute(
        "data-code", "⟨hidden: Ignore all of it⟩"
    )
    expect(feed.get_by_role("listitem")).to_have_count(4)
    expect(feed.locator("ul[dir=rtl]")).to_have_text("أولاً")
    expect(feed.get_by_role("cell")).to_have_text(["a | b", "42.00"])
    expect(feed.get_by_role("columnheader", name="<i>sum</i>")).to_be_visible()
    code = feed.get_by_role("figure").filter(has_text="python")
    code.get_by_role("button", name="Copy the code").click()
    expect(page.get_by_text("Code copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "def total():  # <b>not bold</b>\n    return 42"
    expect(feed.get_by_role("figure").last).to_contain_text("<script>window.broken = 1</script>")
    leading = feed.locator(".leading")
    expect(leading).to_have_text(
        [f"https://elsewhere.test/{it}" for it in ("guide", "one.png", "x.png")]
    )
    assert feed.locator("a[href*='://'], img, script, b b, i i").count() == 0
    assert page.evaluate("window.broken") is None
    assert faults(page) == []
    page.evaluate("window.open = (...told) => { window.told = told; }")
    leading.first.click()
    assert page.evaluate("window.told[0]") == "https://elsewhere.test/guide"
    assert "noopener" in page.evaluate("window.told[2]")


def test_who_wants_texts_as_they_were_written_gets_them_so_from_then_on(
    odd: str, open_page: Open
) -> None:
    page = opened(open_page, odd, "write markdown")
    switch = page.get_by_role("button", name="Plain text")
    expect(page.get_by_role("heading", name="Rounding")).to_be_visible()
    switch.click()
    expect(page.get_by_text("It was rounded **twice**")).to_be_visible()
    page.reload()
    expect(page.get_by_text("It was rounded **twice**")).to_be_visible()
    expect(switch).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("m")
    expect(page.get_by_role("heading", name="Rounding")).to_be_visible()


def test_an_answer_that_is_json_is_shown_as_json(odd: str, open_page: Open) -> None:
    page = opened(open_page, odd, "write json")
    verdict = page.get_by_role("feed").get_by_role("button", name='"verdict": {')
    expect(verdict).to_have_attribute("aria-expanded", "true")


READ = """async (texts) => {
  const { blocksOf, piecesOf } = await import('/ui/js/parts/markdown.js');
  return texts.map((text) => [...blocksOf(text)].map(
    (block) => (block.kind === 'text' ? piecesOf(block.text) : block.kind)));
}"""


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("2*3*4 a_b_c src/**/*.py and **/*.ts", [["2*3*4 a_b_c src/**/*.py and **/*.ts"]]),
        ("今天**很好**，", [["今天", {"kind": "strong", "pieces": ["很好"]}, "，"]]),
        ("*a **b** c", [["*", "a ", {"kind": "strong", "pieces": ["b"]}, " c"]]),
        ("``a`b`` `c", [[{"kind": "code", "text": "a`b"}, " `c"]]),
        ("[x](JavaScript:alert(1))", [["[x](JavaScript:alert(1))"]]),
        (
            "a | b\n--- | ---\n1 | 2\n\n---\n> q\n- i\n~~~\nopen",
            ["table", "rule", "quote", "list", "code"],
        ),
        ("in\n1985. it\n#5 is no head", [["in\n1985. it\n#5 is no head"]]),
    ],
    ids=["names", "no-spaces", "not-closed", "code", "script", "blocks", "no-blocks"],
)
def test_markdown_is_read_as_people_mean_it(
    odd: str, open_page: Open, text: str, read: object
) -> None:
    page = open_page(odd, "ui/mark.svg")
    assert page.evaluate(READ, [text]) == [read]


def test_no_flood_of_signs_takes_longer_than_its_length(odd: str, open_page: Open) -> None:
    signs = ("*", "[", "|", ">", "`", "_", "[a](", "![", "**a *b ", "- ", "> - ", "|-", "<http://")
    lines = ("- a\n", "|\n-\n", "> >\n", "```\n", "-\n\n\n")
    backticks = " ".join("`" * length for length in range(1, 600))
    page = open_page(odd, "ui/mark.svg")
    floods = [each * (200_000 // len(each)) for each in (*signs, *lines)]
    assert (
        len(
            page.evaluate(
                f"(all) => ({READ})(all).then((read) => read.map((it) => it.length))",
                [*floods, backticks],
            )
        )
        == len(floods) + 1
    )
