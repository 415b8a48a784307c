"""What a run became in the log, and how to open it: real commands, a real server beside them."""

import json
import re
import socket
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.test_api import up
from tests.commands import Ended, typed
from tests.servers import answer, closed_port, serving

ASK = """
import json, os, sys, urllib.request
for text in sys.argv[1:]:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    head = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), head)).read()
"""
SAID = json.dumps(
    {"id": "c1", "model": "m", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "an answer"},
         "finish_reason": "stop"}]}
).encode()  # fmt: skip
RECORDS = ("--mode", "record", "--budget", "9")


def ran(cwd: Path, *flags: str, ask: tuple[str, ...] = ("greet me",), **env: str) -> Ended:
    with serving(answer(SAID)) as upstream:
        leads = {"OPENAI_BASE_URL": f"{upstream.url}/v1", **env}
        done = typed("run", *flags, "--", sys.executable, "-c", ASK, *ask, cwd=cwd, env=leads)
    assert done.status == 0, done.err
    return done


def reported(cwd: Path, *flags: str, ask: tuple[str, ...] = ("greet me",), **env: str) -> Any:
    return json.loads(ran(cwd, *flags, "--json", ask=ask, **env).err)


def test_a_run_names_its_session_by_an_id_that_every_command_takes(tmp_path: Path) -> None:
    shown = re.search(
        r"tapes: session (\w{8}) “greet me”: (tapes sessions show (\1\S+))\n"
        r"tapes: to see them in a browser: tapes serve api\n",
        ran(tmp_path, *RECORDS, "--log").err,
    )
    assert shown is not None
    for session in (shown[1], shown[3]):
        for words in (
            ("sessions", "show", session),
            ("diff", session, session),
            ("freeze", session, "-o", f"{session}.jsonl", "--no-test"),
            ("sessions", "export", f"{session}.json", f"id:{session}"),
        ):
            done = typed(*words, cwd=tmp_path)
            assert (done.status, done.err.count("1 session")) == (0, words[1] == "export"), words


def test_replayed_calls_are_a_session_of_their_own(tmp_path: Path) -> None:
    recorded = reported(tmp_path, *RECORDS, "--log")["sessions"]
    report = reported(tmp_path, "--log")
    assert [(each["title"], each["calls"]) for each in report["sessions"]] == [("greet me", 1)]
    assert report["sessions"][0]["id"] != recorded[0]["id"]
    assert report["log"]["kept new"] == 1
    assert report["log"]["waiting in memory"] == 0


def test_calls_that_are_passed_on_are_in_the_log_if_not_said_otherwise(tmp_path: Path) -> None:
    report = reported(tmp_path, "--mode", "pass", ask=("one", "two", "one"))
    assert [each["title"] for each in report["sessions"]] == ["one", "two", "one"]
    assert reported(tmp_path, "--mode", "pass", "--no-log")["sessions"] == []


def test_without_a_log_nothing_is_said_of_sessions(tmp_path: Path) -> None:
    done = ran(tmp_path, *RECORDS)
    assert "session" not in done.err
    assert not (tmp_path / ".tapes" / "tapes.db").exists()


def test_only_a_few_of_many_sessions_are_shown(tmp_path: Path) -> None:
    done = ran(tmp_path, *RECORDS, "--log", ask=tuple("abcde"))
    assert re.findall(r"session \w{8} “(.)”", done.err) == ["a", "b", "c"]
    assert "tapes: and 2 sessions more: tapes sessions list\n" in done.err


def test_where_a_server_shows_this_log_its_page_is_named(tmp_path: Path) -> None:
    with up("api", "--listen", "127.0.0.1:0", cwd=tmp_path) as server:
        address = server.url("api", "")
        listen = address.removeprefix("http://")
        done = ran(tmp_path, *RECORDS, "--log", TAPES_API_LISTEN=listen)
        found = re.search(r"session \w{8} “greet me”: (\S+)/#/session/(\S+)\n", done.err)
        assert found is not None, done.err
        assert found[1] == address
        shown = httpx.get(f"{address}/v1/sessions/{found[2]}").json()
        assert shown["session"]["id"] == found[2]
        assert "tapes serve api" not in done.err


def test_a_server_that_needs_a_token_is_asked_with_it(tmp_path: Path) -> None:
    token = "correct-horse-battery-staple"
    env = {"TAPES_API_TOKEN": token}
    with up("api", "--listen", "127.0.0.1:0", cwd=tmp_path, env=env) as server:
        listen = server.url("api", "").removeprefix("http://")
        (session,) = reported(
            tmp_path, *RECORDS, "--log", TAPES_API_TOKEN=token, TAPES_API_LISTEN=listen
        )["sessions"]
        assert session["url"] == server.url("api", f"/#/session/{session['id']}")


def test_a_server_of_another_log_is_not_named(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with up("api", "--listen", "127.0.0.1:0", cwd=tmp_path / "other") as server:
        listen = server.url("api", "").removeprefix("http://")
        (session,) = reported(tmp_path, *RECORDS, "--log", TAPES_API_LISTEN=listen)["sessions"]
        assert session["url"] is None


def test_who_listens_there_and_never_answers_holds_up_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        listen = f"127.0.0.1:{silent.getsockname()[1]}"
        done = ran(tmp_path, *RECORDS, "--log", TAPES_API_LISTEN=listen)
    assert "tapes sessions show" in done.err


def test_no_server_beyond_this_machine_is_asked(tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as strange:
        strange.settimeout(0)
        listen = f"0.0.0.0:{strange.getsockname()[1]}"
        done = ran(tmp_path, *RECORDS, "--log", TAPES_API_LISTEN=listen)
        with pytest.raises(BlockingIOError):
            strange.accept()
    assert "tapes sessions show" in done.err


def test_what_opens_it_names_the_folder_of_settings(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.toml").write_text('[storage]\npath = "elsewhere.db"\n')
    done = ran(tmp_path, *RECORDS, "--log", "--config-dir", "conf")
    shown = re.search(r"tapes (sessions show \S+ --config-dir conf)\n", done.err)
    assert shown is not None, done.err
    assert typed(*shown[1].split(), cwd=tmp_path).status == 0


def test_it_is_so_on_postgresql(tmp_path: Path, database: str) -> None:
    env = {"TAPES_STORAGE_POSTGRES_DSN": database}
    done = ran(tmp_path, *RECORDS, "--log", TAPES_STORAGE_POSTGRES_DSN=database)
    shown = re.search(r"“greet me”: tapes (sessions show \S+)\n", done.err)
    assert shown is not None, done.err
    assert "greet me" in typed(*shown[1].split(), cwd=tmp_path, env=env).out


def test_a_log_that_is_gone_does_not_fail_the_run(tmp_path: Path) -> None:
    gone = f"postgresql://tester:hush@127.0.0.1:{closed_port()}/gone"
    done = ran(tmp_path, *RECORDS, "--log", TAPES_STORAGE_POSTGRES_DSN=gone)
    assert "tapes: 1 call not in the log yet: " in done.err
    assert "hush" not in done.err
    assert done.err.count("the log goes on later") <= 2
    assert done.err.count("sessions are derived later") <= 2
    where = re.search(r"what waits lies in (\S+?),? ", done.err)
    assert where is not None, done.err
    assert [file for file in (tmp_path / where[1]).iterdir() if file.stat().st_size]
