"""Take the pictures of the page anew: what README and docs show.

make screenshots            # or: python tools/screenshots.py FOLDER, for all screens and states
"""

import sys
import tempfile
from pathlib import Path

import httpx
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.ui.conftest import CHROMIUM, served  # noqa: E402

INVOICE = "has:tool_error"
SHOWN = ("list", "overview", "session", "trace", "miss", "services")
DARK = ("trace",)


def session(page: Page) -> None:
    """The session with the failing tool, that tool selected."""
    page.get_by_role("row").filter(has_text="The invoice test fails").get_by_role("link").click()
    page.get_by_role("button", name="1 error", exact=True).click()


def overview(page: Page) -> None:
    """The charts, when each model has its colour."""
    page.get_by_role("figure").get_by_text("claude-sonnet-4-5").first.wait_for()


def sheet(page: Page) -> None:
    """The side sheet of a row."""
    page.get_by_role("row").filter(has_text="The invoice test fails").get_by_text(
        "completed"
    ).click()


def hostile(page: Page) -> None:
    """The session whose texts want to be something else."""
    page.get_by_role("row").filter(has_text="window.broken").get_by_role("link").first.click()


def miss(page: Page) -> None:
    """The request that was refused."""
    page.get_by_role("link", name="What is a unit test?").first.click()


PLACES = {
    "list": ("#/sessions?range=24h", None),
    "overview": ("#/overview?range=24h", overview),
    "sheet": ("#/sessions", sheet),
    "completion": ("#/sessions", lambda page: page.get_by_label("Filter sessions").fill("mod")),
    "traces": ("#/traces", None),
    "spans": ("#/spans?q=has:error", None),
    "session": ("#/sessions", session),
    "hostile": ("#/sessions", hostile),
    "trace": ("#/trace/trc_sample-coding-1?span=llm_sample-coding-5", None),
    "tree": ("#/trace/trc_sample-coding-1?view=tree&heat=duration&span=toolu_03", None),
    "log": ("#/trace/trc_sample-coding-1?view=log&span=toolu_01&tab=json", None),
    "chunks": ("#/trace/trc_sample-coding-1?span=llm_sample-coding-2&tab=chunks", None),
    "difference": ("#/trace/trc_sample-coding-1?span=llm_sample-coding-5&tab=difference", None),
    "search": ("#/search?q=invoice", None),
    "tapes": ("#/tapes", None),
    "tape": ("#/tape/tests%2Ftapes%2Fconversation.jsonl", None),
    "miss": ("#/tapes", miss),
    "services": ("#/services", None),
    "start": ("#/start", None),
    "gone": ("#/session/00000000-0000-0000-0000-000000000000", None),
    "wrong-filter": ("#/sessions?q=colour:red", None),
    "nothing": ("#/sessions?q=nobodysaidthis", None),
    "keys": ("#/sessions", lambda page: page.keyboard.press("?")),
    "palette": ("#/sessions", lambda page: page.keyboard.press("Control+k")),
}


def main(folder: Path, names: tuple[str, ...], schemes: dict[str, tuple[str, ...]]) -> None:
    """Take the pictures of these names."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as project, served(Path(project)) as addresses:
        asked = {"role": "user", "content": "What is a unit test? Say it in one sentence."}
        httpx.post(
            f"{addresses['proxy']}/openai/v1/chat/completions",
            json={"model": "gemma-3-270m", "messages": [asked], "max_tokens": 80, "seed": 7},
            timeout=60,
        )
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for name in names:
                for scheme in schemes.get(name, ("light",)):
                    context = browser.new_context(
                        viewport={"width": 1280, "height": 800},
                        color_scheme=scheme,
                        timezone_id="UTC",
                    )
                    page = context.new_page()
                    place, then = PLACES[name]
                    page.goto(f"{addresses['api']}/{place}")
                    page.wait_for_timeout(1500)
                    if then is not None:
                        then(page)
                        page.wait_for_timeout(900)
                    page.screenshot(
                        path=folder / f"{name}{'' if scheme == 'light' else '-dark'}.png"
                    )
                    context.close()
            browser.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        both = dict.fromkeys(PLACES, ("light", "dark"))
        main(Path(sys.argv[1]), tuple(sys.argv[2:]) or tuple(PLACES), both)
    else:
        images = ROOT / "docs" / "images"
        main(images, SHOWN, dict.fromkeys(DARK, ("dark",)))
        for dark in images.glob("*-dark.png"):
            dark.rename(images / dark.name.replace("-dark", ""))
