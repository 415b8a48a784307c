"""`tapes run`: a command of any kind, its model calls led through a private proxy."""

import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import Ended, command, environment, typed
from tests.parts import absent
from tests.proxies import chat
from tests.servers import answer, serving

ASK = """
import json, os, sys, urllib.error, urllib.request
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps({"model": "m", "messages": [{"role": "user", "content": sys.argv[1]}]}).encode(),
    {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
)
try:
    print(urllib.request.urlopen(request).read().decode())
except urllib.error.HTTPError as error:
    print("swallowed", error.code)
"""


def ran(
    cwd: Path, *args: str, upstream: str = "", key: str = "sk-0123456789abcdefghijklmn"
) -> Ended:
    env = {"OPENAI_BASE_URL": f"{upstream}/v1", "OPENAI_API_KEY": key} if upstream else {}
    return typed("run", *args, cwd=cwd, env=env)


def python(code: str, *args: str) -> tuple[str, ...]:
    return ("--", sys.executable, "-c", code, *args)


@pytest.mark.row("F10", "F28", "B14")
def test_a_program_is_recorded_once_and_replayed_without_key_or_network(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    body = json.dumps({"model": "gpt-4o-mini", "usage": usage}).encode()
    with serving(answer(body)) as upstream:
        flags = ("--mode", "record", "--budget", "1")
        first = ran(tmp_path, *flags, *python(ASK, "hello"), upstream=upstream.url)
        assert (first.status, first.out) == (0, body.decode() + "\n"), first.err
        assert "1 live" in first.err
        assert len(upstream.requests) == 1
        assert upstream.requests[0].target == "/v1/chat/completions"
    again = ran(tmp_path, *python(ASK, "hello"))
    assert (again.status, again.out) == (0, first.out)
    assert ".cassettes/agent.jsonl (replay): 1 served, 0 live, 0 refused, 0 unused" in again.err
    assert "12 tokens" in again.err
    assert "USD not spent" in again.err


@pytest.mark.row("N15")
def test_a_miss_that_the_program_swallowed_makes_the_run_fail(tmp_path: Path) -> None:
    ended = ran(tmp_path, "--tape", "t.jsonl", *python(ASK, "hello"))
    assert ended.out == "swallowed 400\n"
    assert ended.status == 1
    assert "tapes: refused POST /v1/chat/completions: cassette miss" in ended.err
    assert "to record it: DEMO_LIVE=1 tapes run --mode record --tape t.jsonl -- " in ended.err
    assert "t.jsonl" in ended.err


def test_what_is_to_be_typed_for_all_refusals_is_told_once(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "for n in '123': subprocess.run([sys.executable, '-c', sys.argv[1], n])"
    )
    ended = ran(tmp_path, *python(code, ASK))
    assert ended.err.count("tapes: refused POST") == 3
    assert ended.err.count("to record it: DEMO_LIVE=1 tapes run --mode record") == 1
    assert shlex.quote(code) in ended.err  # as it can be pasted


def test_what_records_it_records_in_the_same_place_and_way(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.toml").write_text('[proxy]\ntape = "elsewhere.jsonl"\n')
    flags = ("--config-dir", "conf", "--ordered", "--no-log")
    told = "tapes run --mode record --config-dir conf --ordered --no-log -- "
    assert f"to record it: DEMO_LIVE=1 {told}" in ran(tmp_path, *flags, *python(ASK, "hello")).err
    report = json.loads(ran(tmp_path, *flags, "--json", *python(ASK, "hello")).err)
    assert report["misses"][0]["remedy"].startswith(f"to record it: DEMO_LIVE=1 {told}")


def test_the_run_ends_as_its_command_ends(tmp_path: Path) -> None:
    assert ran(tmp_path, *python("import sys; sys.exit(7)")).status == 7
    killed = python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert ran(tmp_path, *killed).status == 128 + signal.SIGKILL


def test_a_command_that_cannot_be_started_has_the_status_that_shells_give(tmp_path: Path) -> None:
    absent = ran(tmp_path, "--", "no-such-command-at-all")
    assert (absent.status, "no-such-command-at-all" in absent.err) == (127, True)
    (tmp_path / "text").write_text("x")
    assert ran(tmp_path, "--", "./text").status == 126


def test_options_behind_the_command_are_the_commands_own(tmp_path: Path) -> None:
    ended = ran(tmp_path, sys.executable, "-c", "import sys; print(sys.argv[1:])", "--tape", "x")
    assert ended.out == "['--tape', 'x']\n"
    assert not (tmp_path / "x").exists()


@pytest.mark.row("B4", "N17")
def test_a_limit_bounds_the_live_calls_of_the_run(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "for n in '123': subprocess.run([sys.executable, '-c', sys.argv[1], n])"
    )
    with serving(answer(b"{}")) as upstream:
        flags = ("--mode", "record", "--budget", "2")
        ended = ran(tmp_path, *flags, *python(code, ASK), upstream=upstream.url)
        assert len(upstream.requests) == 2
    assert ended.status == 1
    assert "budget exhausted" in ended.err


def test_the_report_can_be_written_for_programs(tmp_path: Path) -> None:
    ended = ran(tmp_path, "--report", "r.json", "--quiet", *python("print(1)"))
    assert (ended.status, ended.err) == (0, "")
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["exit_status"] == 0
    assert report["tapes"][0]["served"] == 0
    assert report["misses"] == []


def test_a_misspelt_option_is_no_command(tmp_path: Path) -> None:
    ended = ran(tmp_path, "--moed", "record", *python("open('ran', 'w')"))
    assert (ended.status, ended.out) == (2, "")
    assert "No such option '--moed'. (Did you mean one of: '--mode', '--ordered'?)" in ended.err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("place", [".", "absent/report.json"])
def test_where_no_report_can_be_written_nothing_is_run(tmp_path: Path, place: str) -> None:
    ended = ran(tmp_path, "--report", place, *python("open('ran', 'w')"))
    assert (ended.status, ended.out) == (2, "")
    assert f"--report {place} cannot be written\n" in ended.err
    assert not (tmp_path / "ran").exists()


def test_a_report_that_could_not_be_written_in_the_end_is_told(tmp_path: Path) -> None:
    gone = "import os; os.rmdir('reports')"
    (tmp_path / "reports").mkdir()
    ended = ran(tmp_path, "--report", "reports/r.json", *python(gone))
    assert ended.status == 4
    assert "0 served" in ended.err
    assert "the report reports/r.json cannot be written: No such file or directory\n" in ended.err


def test_the_status_is_the_commands_where_nobody_hears_the_report(tmp_path: Path) -> None:
    with subprocess.Popen(
        command("run", *python("import sys; sys.stdin.read(); sys.exit(7)")),
        cwd=tmp_path, env=environment(), stdin=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stderr is not None
        process.stderr.close()
        process.stdin.close()
        assert process.wait(30) == 7


def test_a_wrong_setting_runs_nothing(tmp_path: Path) -> None:
    ended = ran(tmp_path, "--mode", "rewind", *python("open('ran', 'w')"))
    assert ended.status == 2
    assert "rewind" in ended.err
    assert not (tmp_path / "ran").exists()


@pytest.mark.row("F10")
def test_curl_is_led_through_the_proxy(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        absent("curl is not installed")
    line = (
        "curl -sS $OPENAI_BASE_URL/chat/completions -H 'Content-Type: application/json'"
        f" -d '{chat('x').decode()}'"
    )
    with serving(answer(b'{"from":"upstream"}')) as upstream:
        flags = ("--mode", "record", "--budget", "1")
        ran(tmp_path, *flags, "--", "sh", "-c", line, upstream=upstream.url)
    assert ran(tmp_path, "--", "sh", "-c", line).out == '{"from":"upstream"}'


# --- signals and the terminal -----------------------------------------------------------------

HEARS = """
import signal, sys
def heard(number, frame):
    print("heard", signal.Signals(number).name, flush=True)
    sys.exit(5)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, heard)
print("ready", flush=True)
while True:
    signal.pause()
"""


@pytest.mark.parametrize(
    ("number", "to_group"),
    [(signal.SIGTERM, False), (signal.SIGHUP, False), (signal.SIGINT, True)],
)
def test_signals_reach_the_command_and_it_decides(
    number: signal.Signals, to_group: bool, tmp_path: Path
) -> None:
    """What a terminal sends comes to the whole group, what a supervisor sends to the parent."""
    before = signal.signal(number, signal.SIG_DFL)  # ignored where the tests run in the background
    try:
        process = subprocess.Popen(
            command("run", *python(HEARS)),
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    finally:
        signal.signal(number, before)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        if to_group:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        assert process.stdout.readline() == f"heard {number.name}\n".encode()
        assert process.wait(30) == 5


def test_an_ignored_signal_stays_ignored_by_the_command(tmp_path: Path) -> None:
    code = "import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
    done = subprocess.run(
        ["nohup", *command("run", *python(code))],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        timeout=30,
    )
    assert done.stdout == b"True\n"


def test_the_terminal_is_the_commands_own(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "mine = os.tcgetpgrp(0) == os.getpgrp()\n"
        "print('terminal', all(map(os.isatty, (0, 1, 2))), mine, input())"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execvpe(sys.executable, command("run", *python(code)), environment())
    os.write(terminal, b"typed\n")
    said = b""
    while b"terminal" not in said or not said.endswith(b"\n"):
        try:
            said += os.read(terminal, 1000)
        except OSError:
            break
    assert b"terminal True True typed" in said
    os.waitpid(pid, 0)
    os.close(terminal)


# --- what goes past the proxy

PAST = """
import socket
try:
    socket.create_connection(("192.0.2.1", 443), 0.1)
except OSError:
    print("tried")
"""


@pytest.mark.row("N16")
def test_in_replay_a_python_program_cannot_go_past_the_proxy(tmp_path: Path) -> None:
    ended = ran(tmp_path, *python(PAST))
    assert (ended.status, ended.out) == (1, "")
    assert "network blocked" in ended.err
    assert "to let it through: tapes run --allow " in ended.err
    assert "tried to reach 192.0.2.1:443, and `tapes run` in mode replay" in ended.err
    child = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', sys.argv[1]]))"
    assert ran(tmp_path, *python(child, PAST)).status == 1


@pytest.mark.row("N16")
def test_an_sdk_without_a_variable_for_its_address_is_refused_and_not_sent(tmp_path: Path) -> None:
    code = """
import urllib.request
try:
    urllib.request.urlopen("https://api.mistral.ai/v1/models")
except Exception:
    print("swallowed")
"""
    ended = ran(tmp_path, *python(code))
    assert (ended.status, ended.out) == (1, "")
    assert "api.mistral.ai" in ended.err


def test_what_may_be_reached_all_the_same_can_be_said(tmp_path: Path) -> None:
    assert ran(tmp_path, "--allow", "192.0.2.1:443", *python(PAST)).out == "tried\n"
    assert ran(tmp_path, "--no-guard", *python(PAST)).out == "tried\n"
    (tmp_path / "tapes.toml").write_text('allow = ["192.0.2.1"]\n')
    assert ran(tmp_path, *python(PAST)).out == "tried\n"
    assert ran(tmp_path, "--mode", "record", "--budget", "1", *python(PAST)).out == "tried\n"


def test_a_host_to_allow_that_is_none_is_told(tmp_path: Path) -> None:
    ended = ran(tmp_path, "--allow", "https://x", *python("print(1)"))
    assert (ended.status, ended.out) == (2, "")


def test_the_report_can_be_one_document_on_standard_error(tmp_path: Path) -> None:
    ended = ran(tmp_path, "--json", *python("print(1)"))
    assert ended.out == "1\n"
    assert json.loads(ended.err)["exit_status"] == 0


def test_a_report_that_no_name_can_have_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    ended = typed("run", "--report", "x" * 300, "--", "touch", "ran", cwd=tmp_path)
    assert ended.status == 2
    assert "cannot be written" in ended.err
    assert not (tmp_path / "ran").exists()
