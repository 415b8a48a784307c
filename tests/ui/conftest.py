"""A real browser before a real server. Whatever the page must never do fails every test."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.parts import absent
from tests.postgres import Postgres
from tests.running import environment

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None
)
# Each window of the browser has an address bar that is a page of its own and takes half a second
# to come, for nobody. The last list of features holds: the rest is what Playwright does without.
_WITHOUT = (
    "WebUIOmniboxPopup", "WebUIOmniboxAimPopup",
    "AvoidCorsURLLoaderRestartOnRedirect", "AvoidUnnecessaryBeforeUnloadCheckSync", "AimEnabled",
    "DestroyProfileOnBrowserClose", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades",
    "LensOverlay", "MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints",
    "PaintHolding", "PreconnectToSearch", "ThirdPartyStoragePartitioning",
)  # fmt: skip
FLAGS = ["--no-sandbox", "--disable-gpu", f"--disable-features={','.join(_WITHOUT)}"]
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
ROOT = Path(__file__).parent.parent.parent
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def served(folder: Path, *words: str) -> Iterator[dict[str, str]]:
    """The addresses of a server in a process of its own; see `whole.py`."""
    environ = environment()
    environ["PYTHONPATH"] = os.pathsep.join([environ["PYTHONPATH"], str(ROOT)])
    with subprocess.Popen(
        [sys.executable, "-m", "tests.ui.whole", str(folder), *words],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the server did not start"
        try:
            yield json.loads(line)
        finally:
            process.stdin.close()
            process.wait(60)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        absent("no Chromium is installed: apt-get install chromium")
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of the server that most tests only read from."""
    with served(tmp_path_factory.mktemp("whole")) as found:
        yield found


@pytest.fixture(scope="session")
def on_postgres(
    postgres: Postgres, empty_store_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """The same, with its log in PostgreSQL."""
    dsn = postgres.new_database("whole_page", empty_store_database)
    with served(tmp_path_factory.mktemp("whole"), dsn) as found:
        yield found


@pytest.fixture(params=["sqlite", "postgres"])
def everywhere(request: pytest.FixtureRequest) -> dict[str, str]:
    """The addresses of that server, over each database in turn: for whole journeys.

    That the read API answers alike on both is proved by its own tests.
    """
    name = "addresses" if request.param == "sqlite" else "on_postgres"
    found: dict[str, str] = request.getfixturevalue(name)
    return found


@pytest.fixture
def from_nothing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The addresses of a server that has nothing yet; over PostgreSQL for who asks for that."""
    dsn = []
    if getattr(request, "param", "sqlite") == "postgres":
        template = request.getfixturevalue("empty_store_database")
        dsn = [request.getfixturevalue("postgres").new_database("empty_page", template)]
    with served(tmp_path, "empty", *dsn) as found:
        yield found
    if dsn:
        request.getfixturevalue("postgres").drop_database("empty_page")


Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens a page; at the end, what it must never have done is looked for.

    No request to another host, nothing that the policy had to stop, no error of a script.
    """
    contexts = []
    wrong: list[str] = []

    def opened(address: str, place: str = "", **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1400, "height": 860}, **options})
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        host = urlsplit(address).netloc

        def asked(url: str) -> None:
            if urlsplit(url).scheme in ("http", "https", "ws") and urlsplit(url).netloc != host:
                wrong.append(f"a request to {url}")

        page.on("request", lambda request: asked(request.url))
        page.on("pageerror", lambda error: wrong.append(f"an error: {error}"))
        page.on("console", lambda said: wrong.append(said.text) if _is_wrong(said.text) else None)
        page.goto(f"{address}/{place}")
        # Rows are there before the page listens: what is done then has tests of its own.
        expect(page.locator("#app[aria-busy=true]")).to_have_count(0)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def _is_wrong(said: str) -> bool:
    return any(word in said for word in ("Content Security Policy", "TrustedHTML", "TypeError"))


def press(page: Page, key: str, label: str) -> None:
    """Press a key as soon as the foot line says that it does something here."""
    keys = page.get_by_role("list", name="Keys valid now")
    expect(keys.get_by_text(label, exact=True)).to_be_attached()
    page.keyboard.press(key)


_COPIED = """async () => {
  let text = '';
  for (let times = 0; !text && times < 3000; times += 1) {
    await new Promise((done) => setTimeout(done, 10));
    text = await navigator.clipboard.readText();
  }
  return text;
}"""


def copied_by(page: Page, button: Locator) -> str:
    """What a button puts on the clipboard, in which something else may have been before."""
    page.evaluate("navigator.clipboard.writeText('')")
    button.click()
    return str(page.evaluate(_COPIED))


_STILL = """(it) => new Promise((done) => {
  let [top, frames] = [NaN, 0];
  const look = () => {
    const now = it.getBoundingClientRect().top;
    frames = now === top ? frames + 1 : 0;
    top = now;
    if (frames < 10) requestAnimationFrame(look); else done(top);
  };
  look();
})"""


def top_of(where: Locator) -> float:
    """Where something begins in the window, once it stays there."""
    return float(where.evaluate(_STILL))


_LOOK = """async () => {
  const rules = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"];
  const told = (node) => node.any.concat(node.all, node.none).map((one) => one.message).join("; ");
  const { violations } = await axe.run(document, { runOnly: rules });
  return violations.flatMap((one) => one.nodes.map(
    (node) => `${one.id}: ${node.html.slice(0, 160)} ${told(node).slice(0, 160)}`));
}"""


def faults(page: Page) -> list[str]:
    """What is not accessible on the page as it stands, by the rules of WCAG 2.2 AA."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate(_LOOK)
    return [str(each) for each in found]
