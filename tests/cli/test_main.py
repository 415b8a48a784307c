"""The command line as people and pipelines meet it: real processes, exit statuses, streams."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tapes
from tapes.cli.main import COMMANDS, run
from tapes.cli.output import cells
from tests.making import assorted, call, tape_in

# Wherever a test's folder is, the sources under test are these.
SOURCES = {"PYTHONPATH": str(Path(tapes.__file__).parents[1])}
TAPES = [sys.executable, "-c", "from tapes.cli.main import main; main()"]


def tapes_command(*args: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*TAPES, *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **SOURCES, **environ},
    )


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"tapes {tapes.__version__}\n"


def test_it_is_there_by_the_name_of_its_package() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "tapes", "--version"],
        capture_output=True, text=True, check=True, env={**os.environ, **SOURCES},
    )  # fmt: skip
    assert said.stdout == f"tapes {tapes.__version__}\n"


def test_the_help_shows_a_newcomer_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    for word in ("tapes.use(", "DEMO_LIVE=1 CASSETTE_MODE=record", "tapes tape ls", *COMMANDS):
        assert word in shown
    assert all(len(line) <= 100 for line in shown.splitlines())


def test_listing_commands_imports_none_of_them() -> None:
    code = (
        "import sys; from tapes.cli.main import run; run(['--help'])\n"
        "late = [n for n in sys.modules if n.startswith(('rich', 'genai', 'tapes.cli.tape'))]\n"
        "print(late, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_begins_where_nothing_is_imported_yet(name: str) -> None:
    done = tapes_command(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: tapes {name} ")


def test_a_failure_is_told_in_a_few_lines_with_the_status_of_its_class(in_tmp_path: Path) -> None:
    done = tapes_command("tape", "verify", "none.jsonl")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "there is no tape at none.jsonl\nto see which there are: tapes tape ls\n"
    )


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tape", "rewind"]) == 2
    assert "No such command" in capsys.readouterr().err


def test_anything_else_is_a_bug_and_shows_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("tapes.cli.main.cli.main", fail)
    with pytest.raises(KeyError, match="a bug"):
        run([])


def test_a_reader_that_has_gone_ends_it_quietly(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call(f"prompt {n}" * 40) for n in range(400)])
    with subprocess.Popen(
        [*TAPES, "tape", "ls", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
        assert process.wait(30) == 128 + signal.SIGPIPE
    assert error == b""


def test_an_interrupt_ends_it_quietly(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, click\n"
        "from tapes.cli import main\n"
        "import tapes.cli.tape as commands\n"
        "commands.verify_tape = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.exit(main.run(['tape', 'verify', sys.argv[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tape_in(tmp_path, "jsonl", assorted())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


def on_a_terminal(*args: str, **environ: str) -> str:
    """What a command shows where both streams are a terminal."""
    main, other = pty.openpty()
    with subprocess.Popen(
        [*TAPES, *args],
        stdout=other,
        stderr=other,
        env={**os.environ, **SOURCES, "TERM": "xterm-256color", "COLUMNS": "100", **environ},
    ) as process:
        os.close(other)
        shown = b""
        try:
            while data := os.read(main, 65536):
                shown += data
        except OSError:
            pass  # the other end was closed
        process.wait(30)
    os.close(main)
    return shown.decode()


@pytest.mark.parametrize("words", [["sessions", "list"], ["tape", "ls"], ["tape", "ls", "t.jsonl"]])
def test_on_a_narrow_terminal_every_row_is_one_line(
    in_tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    tape_in(in_tmp_path, "jsonl", [call("one " * 40)])
    assert run(["seed"]) == 0
    shown = re.sub(r"\x1b\[\??[\d;]*\w", "", on_a_terminal(*words, COLUMNS="40"))
    rows = [line for line in re.split(r"[\r\n]+", shown) if "looking for tapes" not in line]
    assert len(rows) > 2
    assert [row for row in rows if cells(row) > 40] == []


def test_output_that_finds_no_room_is_an_error_in_two_lines(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*TAPES, "tape", "ls", path],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env={**os.environ, **SOURCES},
        )  # fmt: skip
    told = "the output cannot be written: No space left on device\nmake room for it\n"
    assert (done.returncode, done.stderr) == (4, told)


def test_colours_are_for_terminals_that_want_them(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    shown = on_a_terminal("tape", "explain", path, call("one").key[:8])
    assert "\x1b[32m\x1b[1mcassette hit" in shown
    assert "\x1b[" not in on_a_terminal("tape", "explain", path, call("one").key[:8], NO_COLOR="1")
    assert "\x1b[" not in tapes_command("tape", "explain", path, call("one").key[:8]).stdout


def test_a_terminal_cuts_rows_to_its_width(tmp_path: Path) -> None:
    exchange = call("日本語 " * 60)
    shown = on_a_terminal("tape", "ls", tape_in(tmp_path, "jsonl", [exchange]), NO_COLOR="1")
    (line,) = [line for line in shown.splitlines() if exchange.key[:8] in line]
    assert line.endswith("…")
    assert 95 <= cells(line) <= 100


def test_progress_is_shown_on_a_terminal_and_nowhere_else(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", assorted())
    assert "verifying" in on_a_terminal("tape", "verify", path)
    assert tapes_command("tape", "verify", path).stderr == ""


def test_json_stands_alone_on_standard_output(in_tmp_path: Path) -> None:
    tape_in(Path(), "jsonl", assorted())
    done = tapes_command("tape", "ls", "--json")
    assert done.stderr == ""
    assert [found["tape"] for found in json.loads(done.stdout)["tapes"]] == ["t.jsonl"]


def test_shells_can_complete_commands() -> None:
    done = tapes_command(_TAPES_COMPLETE="bash_complete", COMP_WORDS="tapes t", COMP_CWORD="1")
    assert "plain,tape" in done.stdout


def test_whatever_is_said_to_type_is_a_command_that_there_is() -> None:
    folder = Path(tapes.__file__).parent
    typed = re.compile(r"\"[^\"]*: tapes ([a-z-]+) (?:[-A-Z…{<]|[\w-]+ [-A-Z…{<])")
    said = {
        (str(file.relative_to(folder)), name)
        for file in folder.rglob("*.py")
        for line in file.read_text().splitlines()
        if not line.lstrip().startswith('"""')
        for name in typed.findall(line)
    }
    assert len(said) > 10
    assert {(file, name) for file, name in said if name not in COMMANDS} == set()
