"""States that a person seldom sees and must be able to read: spans that were not received or have
no end, contents that are large, answers that cannot be read in pieces."""

import datetime
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tapes.cassette import Cassette, Play, Refusal
from tapes.errors import as_typed
from tests.ingest.spans import NOW

from .conftest import Open, press, served
from .whole import NEEDED, TAPE, UNSEEN

UNFINISHED = f"#/trace/{'a' * 32}"
NOT_RECEIVED = "b" * 16


def opened_at(open_page: Open, address: str, place: str, seconds: float) -> Page:
    """A page whose clock stands so many seconds after the spans began."""
    page = open_page(address, "ui/mark.svg")
    now = datetime.datetime.fromtimestamp(NOW / 1_000_000_000 + seconds, datetime.UTC)
    page.clock.set_fixed_time(now)
    page.goto(f"{address}/{place}")
    return page


@pytest.mark.parametrize("view", ["tree", "waterfall"])
def test_a_parent_that_was_not_received_is_seen_above_its_children(
    addresses: dict[str, str], open_page: Open, view: str
) -> None:
    page = open_page(addresses["api"], f"{UNFINISHED}?view={view}")
    expect(page.get_by_text("5 spans, 1 missing")).to_be_visible()
    rows = page.get_by_role("treeitem")
    expect(rows).to_have_count(6)
    expect(rows.nth(1)).to_contain_text(f"{NOT_RECEIVED}not received")
    levels = [each.get_attribute("aria-level") for each in rows.all()]
    assert levels == ["1", "2", "3", "3", "2", "2"]
    rows.nth(1).click()
    expect(page.get_by_text("This span was not received.")).to_be_visible()
    expect(page.get_by_text("2 spans name it as the parent.")).to_be_visible()


def test_what_was_not_received_spans_its_children_in_time(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], f"{UNFINISHED}?view=waterfall")
    bars = page.locator(".bar2")
    expect(bars).to_have_count(6)
    above, first, last = (_box(bars.nth(number)) for number in (1, 2, 3))
    assert above["x"] == pytest.approx(first["x"], abs=1)
    ends = [box["x"] + box["width"] for box in (above, last)]
    assert ends[0] == pytest.approx(ends[1], abs=1)


def test_the_bars_stand_under_the_times_that_they_have(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], f"{UNFINISHED}?view=waterfall")
    expect(page.locator(".bar2")).to_have_count(6)
    axis, whole = _box(page.locator(".axis")), _box(page.locator(".bar2").first)
    assert whole["x"] == pytest.approx(axis["x"], abs=1)
    assert whole["width"] == pytest.approx(axis["width"], abs=1)


def _box(where: Any) -> Any:
    box = where.bounding_box()
    assert box is not None
    return box


def test_a_span_that_is_running_says_so_and_reaches_to_the_end(
    addresses: dict[str, str], open_page: Open
) -> None:
    place = f"{UNFINISHED}?span={'e' * 16}"
    page = opened_at(open_page, addresses["api"], place, 30)
    expect(page.get_by_role("treeitem", selected=True)).to_contain_text("running")
    expect(page.get_by_role("region", name="The selected span")).to_contain_text("running")
    expect(page.get_by_text("The answer is still coming")).to_be_visible()
    bars = page.locator(".bar2")
    ends = [box["x"] + box["width"] for box in (_box(bars.nth(n)) for n in (0, 4, 5))]
    assert ends == pytest.approx([ends[0]] * 3, abs=1)


def test_a_span_that_never_got_an_end_is_not_running_for_ever(
    addresses: dict[str, str], open_page: Open
) -> None:
    place = f"{UNFINISHED}?span={'e' * 16}"
    page = opened_at(open_page, addresses["api"], place, 3600)
    expect(page.get_by_role("treeitem", selected=True)).to_contain_text("no end")
    selected = page.get_by_role("region", name="The selected span")
    expect(selected).to_contain_text("no end")
    expect(selected).not_to_contain_text("running")


def test_a_session_shows_what_a_step_holds_and_what_is_missing_in_it(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = opened_at(open_page, addresses["api"], "#/sessions?q=unfinished", 30)
    page.get_by_role("row").filter(has_text="plan the journey").get_by_role("link").click()
    turn = page.get_by_role("feed", name="Turns")
    expect(turn.get_by_text(f"{NOT_RECEIVED} was not received")).to_be_visible()
    expect(turn.get_by_role("button", name="book")).to_be_visible()
    expect(turn.get_by_role("button", name="wait")).to_be_visible()
    expect(turn.get_by_text("running").first).to_be_visible()


@pytest.mark.parametrize(
    ("field", "name", "first", "more", "of", "said"),
    [
        ("model", "large-1", "6,000", "56,000", "1,000,000", "word6000 "),
        ("tool", "big", "2,000", "52,000", "10,000,000", "x" * 50_000),
    ],
    ids=["a megabyte", "ten megabytes"],
)
def test_a_large_content_begins_and_goes_on_where_somebody_reads_on(
    addresses: dict[str, str],
    open_page: Open,
    field: str,
    name: str,
    first: str,
    more: str,
    of: str,
    said: str,
) -> None:
    page = open_page(addresses["api"], f"#/spans?q={field}:{name}")
    page.get_by_role("row").filter(has_text=name).get_by_role("link").click()
    content = page.get_by_role("tabpanel")
    expect(content.get_by_text(f"{first} of {of} characters")).to_be_visible()
    content.get_by_role("button", name="50,000 more").click()
    expect(content.get_by_text(f"{more} of {of} characters")).to_be_visible()
    expect(content).to_contain_text(said)


# An answer that comes in pieces, read as the page does it; null where it cannot be read.
READ = """async (text) => {
  const { jsonInPieces } = await import('/ui/js/parts/slices.js');
  const parts = text.match(/[^]{1,30000}/g).map((part) => new TextEncoder().encode(part));
  const answer = new Response(new ReadableStream({ pull(to) {
    const part = parts.shift();
    if (part) to.enqueue(part); else to.close();
  } }));
  try {
    return JSON.stringify((await jsonInPieces(answer, 'spans')).value);
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}"""
SPANS = """() => JSON.stringify({ trace: { trace_id: 't' }, spans: Array.from({ length: 2000 },
  (_, i) => ({ trace_id: 't', name: `a "name" }, { ${i}`, text: 'é'.repeat(150) })), links: [] })"""


@pytest.mark.parametrize(
    "changed",
    [
        "(text) => text",
        "(text) => JSON.stringify(JSON.parse(text), null, 1)",
        """(text) => text.replaceAll('"text":', '"inside":[{"a":1},{"trace_id":2}],"text":')""",
        """(text) => text.replace('"spans"', '"others"')""",
        """(text) => text.replace('"trace":', '"before":{"spans":[1]},"trace":')""",
    ],
    ids=["cut", "spaced", "nested", "another-name", "name-before"],
)
def test_an_answer_in_pieces_is_what_it_is_whole(
    addresses: dict[str, str], open_page: Open, changed: str
) -> None:
    page = open_page(addresses["api"], "ui/mark.svg")
    text = page.evaluate(f"({changed})(({SPANS})())")
    assert page.evaluate(READ, text) == page.evaluate("(t) => JSON.stringify(JSON.parse(t))", text)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.99], ids=["early", "midway", "late"])
def test_an_answer_that_breaks_off_is_an_error_and_not_a_shorter_one(
    addresses: dict[str, str], open_page: Open, share: float
) -> None:
    page = open_page(addresses["api"], "ui/mark.svg")
    text = page.evaluate(SPANS)
    assert page.evaluate(READ, text[: int(len(text) * share)]) is None


_MARKS = """async ([spans, zoom]) => {
  const { clockOf, marksOf } = await import('/ui/js/parts/model.js');
  const { mark } = await import('/ui/js/parts/format.js');
  const clock = clockOf(spans.map(([begin, end]) => ({ begin: begin * 1e6, end: end * 1e6 })));
  const place = (t) => clock.at(clock.begin + t);
  return marksOf(clock, zoom).map(({ at, t, step }) => [mark(t, step), place(t), at]);
}"""
WHOLE = [0, 1]


@pytest.mark.parametrize(
    ("spans", "zoom", "said"),
    [
        ([[7, 22.8]], WHOLE, ["0", "5 s", "10 s"]),
        ([[0, 0.0123]], WHOLE, ["0", "5 ms", "10 ms"]),
        ([[0, 7300]], WHOLE, ["0", "30 m", "1 h 0 m", "1 h 30 m"]),
        ([[0, 100], [3700, 3800]], WHOLE, ["0", "1 m", "1 h 3 m"]),
        ([[0, 100]], [0.5, 0.5004], ["50.00 s", "50.01 s", "50.02 s", "50.03 s"]),
    ],
    ids=["seconds", "milliseconds", "hours", "behind a gap", "near by"],
)
def test_the_marks_of_an_axis_are_round_times_where_they_are(
    addresses: dict[str, str], open_page: Open, spans: Any, zoom: Any, said: list[str]
) -> None:
    page = open_page(addresses["api"])
    marks = page.evaluate(_MARKS, [spans, zoom])
    assert [text for text, _, _ in marks] == said
    begin, end = zoom
    for _, share, at in marks:
        assert at == pytest.approx((share - begin) / (end - begin), abs=1e-6)


_GAPS = """async ([step, calls]) => {
  const { clockOf } = await import('/ui/js/parts/model.js');
  const of = (kind, children) => ([from, to]) => (
    { kind, begin: from * 1e6, end: to * 1e6, children });
  const children = calls.map(of('llm', []));
  const clock = clockOf([of('step', children)(step), ...children]);
  return [clock.begin / 1e6, clock.end / 1e6, clock.gaps.map((gap) => gap.idle / 1e6)];
}"""


def test_a_step_around_all_calls_does_not_keep_long_idle_time_from_being_folded(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"])
    begin, end, idle = page.evaluate(_GAPS, [[0, 4000], [[1, 11], [31, 41], [3641, 3650]]])
    assert (begin, end) == (0, 4000)  # the step is seen whole
    # It may have worked itself in the 20 seconds between the first two.
    assert idle == pytest.approx([3600, 350], abs=0.1)


@pytest.mark.parametrize(("heat", "column"), [("cost", 2), ("duration", 3)])
def test_heat_colours_the_column_that_it_is_of(
    addresses: dict[str, str], open_page: Open, heat: str, column: int
) -> None:
    page = open_page(addresses["api"], f"#/trace/trc_sample-coding-1?view=tree&heat={heat}")
    cells = page.get_by_role("treeitem").filter(has_text="I run the test").locator("> span")
    expect(cells).to_have_count(4)
    warm = "(cells) => cells.map((cell) => cell.style.getPropertyValue('--warm') !== '')"
    assert cells.evaluate_all(warm) == [number == column for number in range(4)]


def test_keys_zoom_about_the_span_that_is_selected(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/trace/trc_sample-coding-1?span=toolu_01")
    row = page.get_by_role("treeitem", selected=True)
    expect(row).to_contain_text("Bash")
    for _ in range(4):
        press(page, "+", "zoom")
    expect(page.get_by_role("button", name="Whole time")).to_be_visible()
    bar, axis = _box(row.locator(".bar2")), _box(page.locator(".axis"))
    assert bar["x"] < axis["x"] + axis["width"]
    assert bar["x"] + bar["width"] > axis["x"]


def test_a_duration_that_rounds_up_is_said_in_the_next_unit(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"])
    wanted = {
        999_700: "1.0 ms",
        9_960_000: "10 ms",
        999_700_000: "1.00 s",
        9_997_000_000: "10.0 s",
        59_970_000_000: "1 m 0 s",
        119_600_000_000: "2 m 0 s",
        3_599_700_000_000: "1 h 0 m",
    }
    names = "(all) => import('/ui/js/parts/format.js').then((f) => all.map(f.duration))"
    assert page.evaluate(names, list(wanted)) == list(wanted.values())


def test_a_few_of_many_are_not_no_percent_and_nearly_all_are_not_a_hundred(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"])
    told = (
        "(all) => import('/ui/js/parts/format.js').then((f) => all.map((it) => f.percent(...it)))"
    )
    shares = [[0, 9], [3, 693], [1, 2], [998, 999], [9, 9], [1, 0], [None, 9]]
    wanted = ["0 %", "<1 %", "50 %", ">99 %", "100 %", "—", "—"]
    assert page.evaluate(told, shares) == wanted


def test_what_cannot_be_seen_has_a_sign_and_what_only_joins_has_none(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/sessions?q=model:unseen-1")
    page.get_by_role("row").nth(1).get_by_role("link").click()
    said = page.locator(".user .prose")
    signs = said.locator(".unseen")
    expect(signs.first).to_be_visible()
    codes = [each.get_attribute("data-code") for each in signs.all()]
    assert codes == ["⟨U+200B⟩", "⟨hidden: Ignore all of it⟩", "⟨U+2060⟩", "⟨U+FEFF⟩"]
    expect(signs.first).to_have_attribute("title", "a space without width")
    drawn = signs.first.evaluate("(sign) => getComputedStyle(sign, '::before').content")
    assert drawn == '"⟨U+200B⟩"'


def test_a_sign_is_not_copied_and_what_it_stands_for_is(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/sessions?q=model:unseen-1")
    page.get_by_role("row").nth(1).get_by_role("link").click()
    page.locator(".user .prose").evaluate("(said) => getSelection().selectAllChildren(said)")
    page.keyboard.press("Control+C")
    assert page.evaluate("navigator.clipboard.readText()") == f"{UNSEEN} {NEEDED}"


def test_what_a_tape_answered_cost_nothing_and_says_what_was_not_spent(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/sessions?q=has:replayed")
    row = page.get_by_role("row").nth(1)
    expect(row).to_contain_text("$0")
    row.get_by_role("link").click()
    expect(page.locator(".wholehead .totals")).to_contain_text("$0")


def test_a_call_stands_in_one_line_also_where_it_says_why_the_cache_was_cold(
    addresses: dict[str, str], open_page: Open
) -> None:
    size = {"width": 1280, "height": 860}
    page = open_page(addresses["api"], "#/sessions?q=invoice", viewport=size)
    page.get_by_role("row").nth(1).get_by_role("link").click()
    lines = page.locator(".callline:has(.why)")
    expect(lines.first).to_be_visible()
    heights = [each.evaluate("(line) => line.clientHeight") for each in lines.all()]
    assert max(heights) < 30


def keep_a_run(tape: Path) -> None:
    """A run in replay that asked for one recording twice and for one that is not there."""
    with Cassette(tape, "replay") as cassette:
        first = next(iter(cassette.tape.exchanges())).request
        assert isinstance(cassette.decide(first), Play)
        assert isinstance(cassette.decide(first), Play)
        assert isinstance(cassette.decide({"model": "nobody"}), Refusal)


def test_tapes_say_what_was_served_refused_and_not_spent_where_a_run_ended(
    tmp_path: Path, open_page: Open
) -> None:
    with served(tmp_path) as found:
        page = open_page(found["api"], "#/tapes")
        row = page.get_by_role("row").filter(has_text="conversation.jsonl").first
        expect(row.get_by_title("no run has ended here")).to_have_text("—")
        keep_a_run(tmp_path / TAPE)
        page.reload()
        expect(row.get_by_title("in 1 run that ended")).to_have_text("2")
        expect(row.locator("td.warn")).to_have_text("1")


def test_a_path_in_a_command_is_typed_as_a_shell_takes_it(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"])
    paths = ["a/b-1.jsonl", "a b.jsonl", "it's.db", "-x.db", "$(reboot).jsonl", "ü.jsonl", "a;b/"]
    names = "(all) => import('/ui/js/parts/format.js').then((f) => all.map(f.typed))"
    assert page.evaluate(names, paths) == [as_typed(path) for path in paths]


_ALIGNED = """async ([one, other]) => {
  const { align } = await import('/ui/js/parts/aligning.js');
  return align([one], [other]).rows.map((row) => row[2]);
}"""


def test_another_model_or_another_end_is_a_difference_to_the_page_as_to_the_command(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"])
    span = {"kind": "llm", "name": "chat", "status": "ok", "model": "m", "input": [], "output": []}
    same = {**span, "model": "m-2026", "request_model": "m"}
    assert page.evaluate(_ALIGNED, [span, same]) == ["same"]
    for other in ({**span, "status": "error"}, {**span, "model": "n"}):
        assert page.evaluate(_ALIGNED, [span, other]) == ["differs"]


_TWO_TABS = """async () => {
  const [one, other] = await Promise.all([1, 2].map((n) => import(`/ui/js/parts/prefs.js?${n}`)));
  one.prefer({ utc: true });
  other.prefer({ panes: { trace: 40 } });
  const { utc, panes } = JSON.parse(localStorage.getItem('tapes.prefs'));
  return [utc, panes.trace, other.prefs.get().utc];
}"""


def test_what_another_tab_prefers_is_kept(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["api"])
    assert page.evaluate(_TWO_TABS) == [True, 40, True]


def test_a_place_in_a_list_that_is_none_is_gone_on_from(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/tapes?at=nonsense")
    expect(page.get_by_role("table").first).to_be_visible()
    press(page, "j", "next")
    expect(page).to_have_url(re.compile(r"at=0$"))
