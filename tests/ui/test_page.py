"""The files of the page, as a browser gets them."""

import json
import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from tapes.access import token_hash
from tapes.api.app import Api
from tapes.api.keys import Keys
from tapes.store.sqlite import open_sqlite
from tests.api.serving import seeded, serving

from .conftest import ROOT, Open

# One browser and one server for all of these, also where several processes run tests.
pytestmark = pytest.mark.xdist_group("page")


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


def test_the_page_comes_whole_with_one_request(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["api"])
    expect(page.get_by_role("row").nth(1)).to_be_visible()
    asked = "performance.getEntriesByType('resource').map((each) => new URL(each.name).pathname)"
    paths = page.evaluate(asked)
    assert [path for path in paths if path.endswith((".js", ".css"))] == []


def test_the_first_rows_come_with_the_page(addresses: dict[str, str], open_page: Open) -> None:
    page = open_page(addresses["api"])
    expect(page.get_by_role("row").nth(1)).to_be_visible()
    expect(page.get_by_text("calls captured")).to_be_visible()
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
