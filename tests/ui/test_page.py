"""The files of the page, as a browser gets them."""

import json
import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from tapes.access import token_hash
from tapes.api.app import Api
from tapes.api.keys import Keys
from tapes.store.sqlite import open_sqlite
from tests.api.serving import seeded, serving

from .conftest import ROOT, Open


def test_every_file_comes_under_a_policy_that_lets_nothing_else_in(
    addresses: dict[str, str],
) -> None:
    for path in ("/", "/ui/js/main.js", "/ui/css/base.css"):
        answer = httpx.get(addresses["api"] + path)
        policy = answer.headers["content-security-policy"]
        assert answer.status_code == 200
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


@pytest.mark.parametrize(
    "path", ["/ui/../api/app.py", "/ui/%2e%2e/config.py", "/ui/vendor/LICENSE", "/ui/nothing.js"]
)
def test_no_path_leads_to_another_file(addresses: dict[str, str], path: str) -> None:
    assert httpx.get(addresses["api"] + path).status_code == 404


def test_the_page_comes_with_what_is_seen_first_and_asks_once_for_the_rest(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"])
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    asked = "performance.getEntriesByType('resource').map((each) => each.name)"
    files = [url for url in page.evaluate(asked) if re.search(r"\.(js|css)\b", url)]
    [rest] = files
    answer = httpx.get(rest)
    assert "immutable" in answer.headers["cache-control"]
    changed = httpx.get(rest.partition("?")[0] + "?another")
    assert (changed.text, changed.headers["cache-control"]) == (answer.text, "no-cache")


# Remembers the first row that there is, and what was asked for until then.
_REMEMBER = """new MutationObserver((_, watch) => {
  const row = document.querySelector('.rows > .tr');
  if (!row) return;
  window.firstRow = row;
  window.firstText = [...document.querySelectorAll('[role=row]')].map((each) => each.innerText);
  window.askedBefore = performance.getEntriesByType('resource').map((each) => each.name);
  watch.disconnect();
}).observe(document, { childList: true, subtree: true });"""


def test_the_rows_that_are_drawn_first_are_those_that_stay(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "ui/mark.svg", timezone_id="Asia/Kolkata")
    page.add_init_script(_REMEMBER)
    page.goto(addresses["api"])
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    assert page.evaluate("window.askedBefore.filter((name) => name.includes('.js'))") == []
    assert page.evaluate("window.firstRow === document.querySelector('.rows > .tr')")
    now = page.evaluate("[...document.querySelectorAll('[role=row]')].map((one) => one.innerText)")
    assert page.evaluate("window.firstText") == now
    page.get_by_role("row").filter(has_text="The invoice test").get_by_text("completed").click()
    expect(page.get_by_role("complementary", name="Details")).to_be_visible()


# What is filled in later, taken out of what is drawn and of the frame for it alike.
_FRAMES = """() => {
  const plain = (from) => {
    const all = document.createElement('div');
    all.append(from);
    for (const each of all.querySelectorAll('.strip, .live')) each.replaceWith('');
    for (const each of all.querySelectorAll('.tablebox, .keys ul, [role=status]'))
      each.textContent = '';
    for (const each of all.querySelectorAll('.keys .status')) each.remove();
    return all.innerHTML;
  };
  const frame = document.getElementById('frame').content.cloneNode(true);
  const app = document.getElementById('app').cloneNode(true);
  return [plain(frame), plain(app).replace(/^<div id="app">/, '').replace(/<.div>$/, '')];
}"""


def test_the_frame_that_lies_in_the_page_is_what_is_drawn(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"])
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    frame, drawn = page.evaluate(_FRAMES)
    assert frame == drawn


def without_the_rest(address: str, open_page: Open) -> tuple[Page, Route]:
    """The page as it is seen first, and the request for all that comes after, which waits."""
    page = open_page(address, "ui/mark.svg")
    held: list[Route] = []
    page.route("**/js/rest.js*", lambda route: held.append(route))
    with page.expect_request("**/js/rest.js*"):
        page.goto(address)
    expect(page.locator("#app")).to_have_attribute("aria-busy", "true")
    return page, held.pop()


def test_what_is_done_before_the_page_listens_is_done_when_it_does(
    addresses: dict[str, str], open_page: Open
) -> None:
    page, rest = without_the_rest(addresses["api"], open_page)
    page.get_by_role("row").filter(has_text="The invoice test").get_by_text("completed").click()
    page.keyboard.press("x")
    page.keyboard.press("/")
    rest.continue_()
    expect(page.get_by_role("complementary", name="Details")).to_be_visible()
    expect(page.get_by_role("checkbox", checked=True)).to_have_count(1)
    expect(page.get_by_role("searchbox")).to_be_focused()
    expect(page.locator("#app")).not_to_have_attribute("aria-busy", "true")


def test_what_is_typed_before_the_page_listens_stays_and_is_completed(
    addresses: dict[str, str], open_page: Open
) -> None:
    page, rest = without_the_rest(addresses["api"], open_page)
    field = page.get_by_role("combobox", name="Filter sessions")
    field.press_sequentially("mod")
    rest.continue_()
    expect(page.get_by_role("option").filter(has_text="model:")).to_be_visible()
    expect(field).to_have_value("mod")


def test_a_place_beside_the_list_is_not_drawn_as_the_list_first(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "ui/mark.svg")
    page.add_init_script(_REMEMBER)
    page.goto(addresses["api"] + "/#/start")
    expect(page.get_by_text("Load sample sessions")).to_be_visible()
    assert page.evaluate("window.firstRow") is None


def test_hostile_texts_of_the_rows_drawn_first_stay_texts(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "ui/mark.svg")
    page.route("**/js/rest.js*", lambda route: route.abort())
    page.add_init_script(_REMEMBER)
    page.goto(addresses["api"])
    expect(page.get_by_role("heading", name="The server is gone")).to_be_visible()
    assert "<script>window.broken = 1</script>" in str(page.evaluate("window.firstText"))
    assert page.evaluate("window.broken") is None
    assert page.evaluate("window.firstRow.querySelectorAll('script, img').length") == 0


def test_the_first_rows_come_with_the_page(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["api"])
    expect(page.get_by_role("row").nth(1)).to_be_visible()
    expect(page.get_by_text("records in the log")).to_be_visible()
    asked = "performance.getEntriesByType('resource').map((each) => each.name)"
    assert [url for url in page.evaluate(asked) if url.endswith("/v1/sessions?limit=60")] == []


def test_what_comes_with_the_page_is_what_the_api_says_and_cannot_end_it(
    addresses: dict[str, str],
) -> None:
    page = httpx.get(addresses["api"] + "/")
    [given] = re.findall(r'<script type="application/json" id="first">(.*?)</script>', page.text)
    said = httpx.get(addresses["api"] + "/v1/sessions?limit=60").json()
    assert json.loads(given)["/v1/sessions?limit=60"] == said
    assert "<script>window.broken" in json.dumps(said)
    assert "<" not in given
    assert page.headers["cache-control"] == "no-store"
    plain = httpx.get(addresses["api"] + "/", headers={"accept-encoding": "identity"})
    assert plain.text == page.text


def test_nothing_comes_with_the_page_for_whom_it_is_not_for(tmp_path: Path) -> None:
    store = seeded(open_sqlite(tmp_path / "tapes.db"))
    with serving(Api(store, Keys(read=token_hash("right")))) as client:
        assert "The invoice test" not in client.get("/").text
        allowed = client.get("/", headers={"x-tapes-token": "right"})
        assert "The invoice test" in allowed.text
    store.close()


def test_every_file_of_the_page_works_where_it_lies(
    addresses: dict[str, str], open_page: Open
) -> None:
    text = (ROOT / "src" / "tapes" / "ui" / "index.html").read_text(encoding="utf-8")
    named = re.findall(r'(?:href|src)="(/[^"]+)"', text)
    assert len(named) > 5
    for path in named:
        assert httpx.get(addresses["api"] + path).status_code == 200
    page = open_page(addresses["api"], "ui/mark.svg")
    screens = page.evaluate("import('/ui/js/screens/trace.js').then((all) => Object.keys(all))")
    assert screens == ["Screen"]


def test_a_file_that_the_browser_has_is_not_sent_again(addresses: dict[str, str]) -> None:
    file = addresses["api"] + "/ui/js/main.js"
    first = httpx.get(file)
    again = httpx.get(file, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_page_weighs_at_most_300_kilobytes(addresses: dict[str, str]) -> None:
    ours = [
        file
        for file in (ROOT / "src" / "tapes" / "ui").rglob("*")
        if file.suffix in (".js", ".css", ".html", ".svg") and "swagger-ui" not in file.parts
    ]
    sizes = 0
    with httpx.Client(base_url=addresses["api"]) as client:
        for file in ours:
            path = file.relative_to(ROOT / "src" / "tapes" / "ui").as_posix()
            with client.stream("GET", f"/ui/{path}") as answer:
                sizes += sum(map(len, answer.iter_raw()))
    assert sizes < 300_000
