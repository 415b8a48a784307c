"""Answers that come late, twice or for something else, and what changed while nobody looked."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from .conftest import Open, press, served

SMALL = {"width": 1280, "height": 420}
LISBON = "I fly to Lisbon"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server in which these tests change things."""
    with served(tmp_path_factory.mktemp("late")) as found:
        yield found["api"]


def holding(page: Page, pattern: str) -> list[Route]:
    """Requests that wait until they are let go."""
    held: list[Route] = []
    page.route(pattern, lambda route: held.append(route))
    return held


def held_one(page: Page, held: list[Route]) -> Route:
    for _ in range(600):
        if held:
            return held[0]
        page.wait_for_timeout(50)
    raise AssertionError("nothing was asked for")


def drawn(page: Page) -> None:
    """Whatever came has been drawn."""
    page.evaluate("new Promise((done) => setTimeout(() => requestAnimationFrame(() => done())))")


def opened_session(page: Page) -> None:
    page.get_by_role("row").filter(has_text=LISBON).first.get_by_role("link").click()
    expect(page.get_by_role("heading", name=LISBON)).to_be_visible()


def test_a_page_of_rows_that_comes_late_is_not_put_into_another_list(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/spans", viewport=SMALL)
    page.get_by_role("row").nth(1).wait_for()
    held = holding(page, "**/v1/spans?cursor=*limit=60")
    page.evaluate("document.querySelector('.virtual').scrollTop = 1e6")
    late = held_one(page, held)
    page.evaluate("location.hash = '#/spans?q=tool:Bash'")
    status = page.locator(".listhead [role=status]")
    expect(status).to_have_text("3 spans")
    with page.expect_response(late.request.url):
        late.continue_()
    drawn(page)
    expect(status).to_have_text("3 spans")
    expect(page.get_by_role("row")).to_have_count(4)


def test_keys_for_rows_are_valid_once_there_are_rows(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "ui/mark.svg")
    held = holding(page, "**/v1/spans?*")
    page.goto(f"{addresses['api']}/#/spans")
    keys = page.get_by_role("list", name="Keys valid now")
    expect(keys.get_by_text("filter", exact=True)).to_be_attached()
    expect(keys.get_by_text("next", exact=True)).to_have_count(0)
    held_one(page, held)
    page.route("**/v1/spans?*", lambda route: route.continue_())
    for each in held:
        each.continue_()
    press(page, "j", "next")
    press(page, " ", "look")
    expect(page.get_by_role("complementary", name="Details")).to_be_visible()


def test_what_changed_while_the_list_was_not_shown_is_there_when_it_is_again(
    own: str, open_page: Open
) -> None:
    page = open_page(own, "#/sessions")
    opened_session(page)
    id_ = page.url.rpartition("/")[2].partition("?")[0]
    httpx.patch(f"{own}/v1/sessions/{id_}", json={"add_tags": ["seen-to"]}).raise_for_status()
    expect(page.locator(".totals").get_by_text("seen-to")).to_be_visible()
    page.go_back()
    row = page.get_by_role("row").filter(has_text=LISBON)
    expect(row.get_by_text("seen-to")).to_have_count(1)


def test_changes_that_come_fast_do_not_stop_the_answer_that_is_on_its_way(
    own: str, open_page: Open
) -> None:
    page = open_page(own, "#/sessions")
    opened_session(page)
    id_ = page.url.rpartition("/")[2].partition("?")[0]
    held = holding(page, f"**/v1/sessions/{id_}/traces?*")
    for tag in ("one", "two"):
        with page.expect_response("**/v1/status"):
            httpx.patch(f"{own}/v1/sessions/{id_}", json={"add_tags": [tag]}).raise_for_status()
        first = held_one(page, held)
    assert first.request.failure is None
    page.route(f"**/v1/sessions/{id_}/traces?*", lambda route: route.continue_())
    first.continue_()
    expect(page.locator(".totals").get_by_text("two")).to_be_visible()


def test_a_stream_on_which_nothing_comes_any_more_is_opened_again(
    own: str, open_page: Open
) -> None:
    page, streams = open_page(own, "ui/mark.svg"), list[str]()
    page.clock.install()
    page.on("request", lambda request: streams.append(request.url))
    page.goto(f"{own}/#/sessions")
    expect(page.get_by_role("banner").get_by_role("status")).to_have_text("live")
    row = page.get_by_role("row").filter(has_text=LISBON).first
    id_ = str(row.get_by_role("link").get_attribute("href")).split("/")[-1]
    page.clock.fast_forward(40_000)
    httpx.patch(f"{own}/v1/sessions/{id_}", json={"add_tags": ["in-time"]}).raise_for_status()
    expect(row).to_contain_text("in-time")
    page.clock.fast_forward(40_000)
    with page.expect_request("**/v1/changes/stream"):
        page.clock.fast_forward(10_000)
    assert len([url for url in streams if url.endswith("/v1/changes/stream")]) == 2
    expect(page.get_by_role("banner").get_by_role("status")).to_have_text("live")


def test_a_session_is_exported_as_the_api_has_it(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/sessions")
    opened_session(page)
    id_ = page.url.rpartition("/")[2].partition("?")[0]
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    saved = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert saved == httpx.get(f"{addresses['api']}/v1/sessions/{id_}/traces").json()


def test_the_bytes_of_a_body_that_come_late_do_not_take_the_place_of_the_other(
    addresses: dict[str, str], open_page: Open
) -> None:
    place = "#/trace/trc_sample-coding-1?span=llm_sample-coding-1&tab=raw"
    page = open_page(addresses["api"], place)
    dump = page.locator("pre.dump")
    expect(dump).to_be_visible()
    answer = dump.inner_text()
    held = holding(page, "**/request/body")
    page.get_by_role("button", name="request", exact=True).click()
    late = held_one(page, held)
    page.get_by_role("button", name="response", exact=True).click()
    expect(dump).to_have_text(answer)
    late.continue_()
    drawn(page)
    httpx.get(f"{addresses['api']}/ping")
    expect(dump).to_have_text(answer)


_ASKED = """async (names) => {
  const { ask } = await import('/ui/js/parts/api.js');
  for (const name of names) await ask(name);
}"""


def test_answers_are_kept_up_to_a_bound_of_their_size(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "ui/mark.svg")
    body = json.dumps("x" * 9_000_000)
    tags: dict[str, str | None] = {}

    def answered(route: Route) -> None:
        name = route.request.url.rpartition("/")[2]
        tags[name] = route.request.headers.get("if-none-match")
        route.fulfill(body=body, headers={"etag": f'"{name}"', "content-type": "application/json"})

    page.route("**/large/*", answered)
    names = [f"/large/{number}" for number in range(6)]
    page.evaluate(_ASKED, [*names, names[5], names[0]])
    assert (tags["5"], tags["0"]) == ('"5"', None)


def test_to_let_go_of_the_pointer_beside_a_dialog_does_not_close_it(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/sessions")
    opened_session(page)
    page.get_by_role("button", name="Rename, tag").click()
    name = page.get_by_label("Name", exact=False).first
    box = name.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 40, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(5, 5)
    page.mouse.up()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.mouse.click(5, 5)
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("place", ["#/sessions", "#/tapes", "#/session"])
def test_nothing_is_wider_than_a_small_window(
    addresses: dict[str, str], open_page: Open, place: str
) -> None:
    page = open_page(addresses["api"], "#/sessions", viewport={"width": 390, "height": 860})
    if place == "#/session":
        opened_session(page)
    else:
        page.goto(f"{addresses['api']}/{place}")
        page.locator("main").get_by_role("row").nth(1).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_another_order_begins_at_its_top_and_its_head_keeps_the_focus(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/spans", viewport=SMALL)
    page.get_by_role("row").nth(1).wait_for()
    rows = page.locator(".virtual")
    rows.evaluate("(rows) => { rows.scrollTop = 700; }")
    drawn(page)  # and what listens to it has heard of it
    page.get_by_role("button", name="Duration").focus()
    with page.expect_response("**/v1/spans?*sort=duration_ns*"):
        page.keyboard.press("Enter")
    head = page.locator("[data-head=duration]")
    expect(head).to_have_attribute("aria-sort", "descending")
    drawn(page)
    assert rows.evaluate("(rows) => rows.scrollTop") == 0
    assert page.evaluate("document.activeElement.dataset.column") == "duration"
    page.go_back()
    expect(head).to_have_attribute("aria-sort", "none")
    page.wait_for_function("document.querySelector('.virtual').scrollTop === 700")


def test_what_spans_say_is_not_asked_for_where_there_are_none(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/spans")
    page.get_by_role("row").nth(1).wait_for()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate("location.hash = '#/spans?q=model:nobody'")
    expect(page.locator(".blank")).to_be_visible()
    with page.expect_response("**/v1/spans?*payload=preview*"):  # where there are some it is
        page.evaluate("location.hash = '#/spans?q=tool:Bash'")
    assert not [url for url in asked if "nobody" in url and "preview" in url]
