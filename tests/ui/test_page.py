"""The files of the page, as a browser gets them."""

import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from .conftest import ROOT


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


@pytest.mark.slow
def test_the_wheel_has_all_that_the_page_needs(tmp_path: Path) -> None:
    build = "from hatchling.build import build_wheel; import sys; print(build_wheel(sys.argv[1]))"
    try:
        import hatchling  # noqa: F401
    except ImportError:
        pytest.skip("hatchling, which builds the wheel, is not installed")
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, check=True, timeout=100)
    [wheel] = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    page = ROOT / "src" / "tapes" / "ui"
    wanted = {
        f"tapes/ui/{file.relative_to(page).as_posix()}"
        for file in page.rglob("*")
        if file.is_file()
    }
    assert wanted - names == set()
