"""The files of the page, as a browser gets them."""

import re

import httpx
import pytest
from playwright.sync_api import expect

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
    assert paths[0] == "/v1/sessions"


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
    first = httpx.get(addresses["api"] + "/")
    again = httpx.get(addresses["api"] + "/", headers={"if-none-match": first.headers["etag"]})
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
