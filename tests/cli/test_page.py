"""The page about the command line says what the command line does."""

import io
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import tapes
from tapes import errors
from tapes.cli.main import cli, run

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
DEMO_TAPE = Path(tapes.__file__).parent / "demo" / "conversation.jsonl"


def commands(group: click.Group = cli, name: str = "tapes") -> Iterator[tuple[str, click.Command]]:
    """Every command with its full name; groups only where they do something themselves."""
    context = click.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {word}")
            if not command.invoke_without_command:
                continue
        yield f"{name} {word}", command


COMMANDS = dict(commands())


def section(name: str) -> str:
    match = re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match, f"the page has no section about {name}"
    return match[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_section_with_all_its_options_and_an_example(name: str) -> None:
    text = section(name)
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, click.Option):
            told = {*re.findall(r"--[a-z-]+", text), "--json"}
            assert told & {*parameter.opts, *parameter.secondary_opts}, parameter.opts
    assert re.search(rf"^(\$ )?(.* )?{name}\b", text, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_with_an_example_and_json(name: str) -> None:
    command = COMMANDS[name]
    assert command.help is not None
    assert "Example:" in command.help
    assert name in command.help.partition("Example:")[2]
    assert any("--json" in parameter.opts for parameter in command.params)


def test_the_page_has_no_section_about_a_command_that_is_not_there() -> None:
    assert set(re.findall(r"^## (tapes .*)$", PAGE, re.MULTILINE)) == set(COMMANDS)


def test_every_exit_status_is_on_the_page() -> None:
    classes = [c for c in vars(errors).values() if isinstance(c, type)]
    statuses = {str(c.exit_status) for c in classes if hasattr(c, "exit_status")}
    assert statuses <= set(re.findall(r"^\| (\d+)", PAGE, re.MULTILINE))


def test_the_examples_on_the_page_show_what_happens(
    in_tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(DEMO_TAPE, "conversation.jsonl")
    status = 0
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        for typed, shown in re.findall(r"^\$ (.*)\n((?:[^$].*\n|\n)*)", block, re.MULTILINE):
            if typed == "echo $?":
                assert shown == f"{status}\n"
                continue
            status = type_line(typed, monkeypatch)
            got = capsys.readouterr()
            pattern = re.escape(shown).replace("…\\\n", "(?:.*\n)*")
            assert re.fullmatch(pattern, got.out), f"{typed}\n{got.out}{got.err}"


def type_line(typed: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a line of a shell: variables before a command, and `echo … |`."""
    said, _, command = typed.rpartition(" | ")
    words = shlex.split(command)
    while "=" in words[0]:
        monkeypatch.setenv(*words.pop(0).split("=", 1))
    if said:
        monkeypatch.setattr("sys.stdin", io.StringIO(shlex.split(said)[1] + "\n"))
    assert words[0] == "tapes"
    try:
        return run(words[1:])
    finally:
        for name in [name for name in os.environ if name.startswith("CASSETTE_")]:
            monkeypatch.delenv(name)
