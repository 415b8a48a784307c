"""The first minute of somebody who has never seen the project: what the demo says is typed, the
address that comes is opened, and the failing tool call is found, by mouse or by keys alone.
"""

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tapes.exchange import Request, Response
from tests.commands import PATIENCE_S, environment
from tests.loopback import json_answer, provider
from tests.npm import PROVIDER, node_modules_of

from .conftest import Open, copied_by, press
from .test_journeys import INVOICE

FAILED = "assert 41.99 == 42.00"
ANY = {f"TAPES_{door}_LISTEN": "127.0.0.1:0" for door in ("API", "PROXY", "INGEST")}


def installed(folder: Path) -> None:
    """The command where `make` puts it, in no folder that a shell looks into."""
    command = folder / ".venv" / "bin" / "tapes"
    command.parent.mkdir(parents=True)
    code = "from tapes.cli.main import main\nmain()\n"
    command.write_text(f"#!{sys.executable}\n{code}")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)


@contextmanager
def serving(folder: Path, command: list[str], env: Mapping[str, str]) -> Iterator[str]:
    """A server in a process of its own; the first address that it says."""
    environ = environment({"PATH": "/usr/bin:/bin", **ANY, **env})
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            found = None
            for line in process.stdout:
                found = re.search(r"http://[\w.:]+", line)
                if found:
                    break
            assert found is not None, "the server ended before it said its address"
            yield found[0]
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def said_by_the_demo(folder: Path) -> list[list[str]]:
    """The lines to type with which the demo ends."""
    done = subprocess.run(
        [".venv/bin/tapes", "demo", "--at-once"],
        cwd=folder,
        env=environment({"PATH": "/usr/bin:/bin"}),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 2,
        check=True,
    )
    _, _, closing = done.stdout.partition("in the browser")
    return [shlex.split(line, comments=True) for line in closing.splitlines() if line.strip()]


@contextmanager
def as_told(folder: Path) -> Iterator[str]:
    """Everything typed as the demo says; the first address that comes."""
    installed(folder)
    seed, serve = said_by_the_demo(folder)
    environ = environment({"PATH": "/usr/bin:/bin"})
    subprocess.run(seed, cwd=folder, env=environ, check=True, capture_output=True)
    with serving(folder, serve, {}) as address:
        yield address


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with as_told(tmp_path_factory.mktemp("clone")) as found:
        yield found


def test_the_failing_tool_call_is_found_by_mouse(address: str, open_page: Open) -> None:
    page = open_page(address)
    row = page.get_by_role("row").filter(has_text=INVOICE)
    expect(row).to_be_visible()
    expect(page.get_by_text("running", exact=True)).to_have_count(0)
    row.get_by_role("link").click()
    page.get_by_role("button", name="1 error: show the first").click()
    the_call_is_shown(page)
    page.get_by_role("link", name="15 spans").click()
    expect(page.get_by_role("treeitem", selected=True)).to_contain_text("Bash")


def test_the_failing_tool_call_is_found_by_keys_alone(address: str, open_page: Open) -> None:
    page = open_page(address)
    row = page.get_by_role("row").filter(has_text=INVOICE)
    expect(row).to_be_visible()
    for _ in range(page.get_by_role("row").count()):
        if row.get_attribute("aria-selected") == "true":
            break
        press(page, "e", "next error")
    press(page, "Enter", "open")
    expect(page.get_by_role("heading", name=INVOICE)).to_be_visible()
    press(page, "e", "next error")
    the_call_is_shown(page)


def the_call_is_shown(page: Page) -> None:
    selected = page.get_by_role("region", name="What is selected")
    expect(selected.get_by_role("heading", name="Bash")).to_be_visible()
    expect(selected.get_by_text("pytest -q tests/test_invoice.py")).to_be_visible()
    expect(selected.get_by_text(FAILED)).to_be_visible()


def test_the_bars_of_a_trace_stand_below_their_axis(address: str, open_page: Open) -> None:
    page = open_page(address, "#/trace/trc_sample-coding-1")
    expect(page.get_by_role("treeitem")).to_have_count(15)
    axis, bar = page.locator(".axis"), page.locator(".bar2.agent").first
    expect(axis).to_be_visible()
    above, below = axis.bounding_box(), bar.bounding_box()
    assert above is not None
    assert below is not None
    assert abs(above["x"] - below["x"]) < 2
    assert abs(above["width"] - below["width"]) < 4


HELLO = json.dumps(
    {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5-mini",
        "status": "completed",
        "output": [
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Hello, you.", "annotations": []}],
            }
        ],
        "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
    }
)
CHAT = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5-mini",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "Hello, you."},
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }
)


def line_for(page: Page, client: str) -> str:
    """What the empty page offers to copy for a client, as it comes out of the clipboard."""
    page.get_by_role("group", name="Client").get_by_role("button", name=client).click()
    line = copied_by(page, page.get_by_role("button", name="Copy", exact=True))
    expect(page.get_by_text("Copied")).to_be_attached()
    return line


def pasted(folder: Path, client: str, line: str) -> list[str]:
    """The command by which a person runs the line; a file of it, where it is a program."""
    if client == "Python":
        (folder / "hello.py").write_text(line)
        return [sys.executable, "hello.py"]
    if client == "Node":
        (folder / "agent.mjs").write_text(line)
        (folder / "node_modules").symlink_to(node_modules_of(PROVIDER))
        return ["node", "agent.mjs"]
    if client == "Any command":
        program = "from openai import OpenAI\nprint(OpenAI().responses.create(model='gpt-5-mini',"
        (folder / "agent.py").write_text(f"{program} input='Say hello.').output_text)")
        line = line.replace("python", sys.executable)
    return ["bash", "-c", line]


@pytest.mark.parametrize(
    "client", ["Any command", pytest.param("Python", marks=pytest.mark.long), "Node", "curl"]
)
def test_the_lines_of_the_empty_page_work_as_they_are_pasted(
    client: str, open_page: Open, tmp_path: Path
) -> None:
    installed(tmp_path)
    tapes = str(tmp_path / ".venv" / "bin" / "tapes")

    def answer(request: Request) -> Response:
        return json_answer(HELLO if request.url.endswith("/responses") else CHAT)

    with provider(answer) as upstream:
        serve = [tapes, "serve", "--upstream", f"openai={upstream.url}"]
        with serving(tmp_path, serve, {}) as address:
            page = open_page(address)
            expect(page.get_by_role("heading", name="Nothing was captured yet")).to_be_visible()
            command = pasted(tmp_path, client, line_for(page, client))
            path = os.pathsep.join([str(Path(tapes).parent), os.environ["PATH"]])
            environ = {"PATH": path, "OPENAI_API_KEY": "sk-0123456789abcdefghijklmn"}
            if client == "Any command":
                environ["OPENAI_BASE_URL"] = f"{upstream.url}/v1"
            done = subprocess.run(
                command, cwd=tmp_path, env=environment(environ), capture_output=True, text=True
            )
            assert (done.returncode, "Hello, you." in done.stdout) == (0, True), done.stderr
            assert len(upstream.requests) == 1
            expect(page.get_by_role("row").filter(has_text="Say hello.")).to_be_visible()


def test_no_line_for_codex_relies_on_a_variable_that_it_does_not_read(
    from_nothing: dict[str, str], open_page: Open
) -> None:
    page = open_page(from_nothing["api"])
    assert line_for(page, "Codex") == "tapes run --mode pass -- codex"
    line = line_for(page, "Claude Code")
    assert line == f"ANTHROPIC_BASE_URL={from_nothing['proxy']}/anthropic claude"


def test_the_demo_names_the_command_by_its_name_where_a_shell_finds_it(tmp_path: Path) -> None:
    installed(tmp_path)
    folder = str(tmp_path / ".venv" / "bin")
    done = subprocess.run(
        ["tapes", "demo", "--at-once"],
        cwd=tmp_path,
        env=environment({"PATH": os.pathsep.join([folder, "/usr/bin", "/bin"])}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\n    tapes serve " in done.stdout
