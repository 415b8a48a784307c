"""What a check sees, and what it says to do."""

import contextlib
import gc
import socket
import ssl
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from datetime import date
from email.utils import formatdate
from pathlib import Path

import pytest

from tapes import checkup
from tapes.checkup import Finding, Level, file_system_of, findings, newest_date_in, writable
from tapes.config import PROXY, read_settings
from tapes.errors import BadSetting
from tapes.lives import Life, Living, machine_start
from tests.servers import Received, Wire, answer, closed_port, serving, tls_files


@pytest.fixture(autouse=True)
def _here(in_tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(in_tmp_path))
    (in_tmp_path / ".git").mkdir()


def found(
    upstream: str | None = None, environ: dict[str, str] | None = None, **flags: object
) -> dict[str, Finding]:
    """The findings by their check; the first of each."""
    given = {f"proxy.{name}": value for name, value in flags.items()}
    given["proxy.upstream"] = upstream or f"http://127.0.0.1:{closed_port()}"
    settings = read_settings(PROXY, given, environ={})
    every: dict[str, Finding] = {}
    for finding in findings(settings, environ or {}):
        every.setdefault(finding.check, finding)
    return every


@pytest.mark.row("B10")
def test_an_upstream_is_reached_when_it_answers_anything(in_tmp_path: Path) -> None:
    dated = [("Date", formatdate(time.time(), usegmt=True))]
    with serving(answer(status=401, headers=dated)) as upstream:
        every = found(upstream.url)
        assert every["upstream default"].level is Level.OK
        assert "(401)" in every["upstream default"].what
        assert every["clock"].level is Level.OK
        (request,) = upstream.requests
    assert (request.method, request.target, request.body) == ("HEAD", "/", b"")


def no_http(_: Received, wire: Wire) -> None:
    wire.send(b"SSH-2.0-OpenSSH\r\n\r\n")
    wire.close()


def test_an_upstream_that_cannot_be_reached_is_a_failure_with_advice() -> None:
    refused = found()["upstream default"]
    assert (refused.level, "refused" in refused.what) == (Level.FAILURE, True)
    assert "curl" in refused.remedy
    with serving(no_http) as other:
        assert "no HTTP" in found(other.url)["upstream default"].what


@pytest.mark.parametrize(("seconds", "way"), [(3600, "behind"), (-3600, "ahead")])
def test_a_wrong_clock_is_told_by_an_upstream(seconds: int, way: str) -> None:
    dated = [("Date", formatdate(time.time() + seconds, usegmt=True))]
    with serving(answer(headers=dated)) as upstream:
        clock = found(upstream.url)["clock"]
    assert (clock.level, way in clock.what) == (Level.FAILURE, True)


def test_a_clock_that_nobody_can_tell_is_a_warning() -> None:
    assert found()["clock"].level is Level.WARNING


def test_a_date_that_no_calendar_has_tells_no_time() -> None:
    for said in (f"Mon, 01 Jan {10**19} 00:00:00 GMT", "yesterday"):
        with serving(answer(headers=[("Date", said)])) as upstream:
            every = found(upstream.url)
        assert every["upstream default"].level is Level.OK
        assert every["clock"].level is Level.WARNING


def test_upstreams_are_those_that_are_named_declared_or_have_a_key() -> None:
    port = closed_port()
    declared = {"openai": f"http://127.0.0.1:{port}", "vllm": f"http://127.0.0.1:{port}"}
    settings = read_settings(PROXY, {"proxy.upstreams": declared}, environ={})
    environ = {"OPENAI_API_KEY": "k"}
    checks = [f.check for f in findings(settings, environ) if f.check.startswith("upstream")]
    assert checks == ["upstream openai", "upstream vllm"]
    only = [f.check for f in findings(settings, environ, ("vllm",)) if "upstream" in f.check]
    assert only == ["upstream vllm"]


def test_an_upstream_that_the_environment_names_is_reached_there() -> None:
    port = closed_port()
    environ = {
        "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:8080/anthropic",  # the proxy itself: for clients
        "OPENAI_API_KEY": "k",
    }
    (told,) = (f for f in findings(read_settings(PROXY, {}, environ={}), environ)
               if f.check.startswith("upstream"))  # fmt: skip
    assert (told.check, told.level) == ("upstream openai", Level.FAILURE)
    assert told.what.startswith(f"127.0.0.1:{port} does not answer")


def test_a_password_in_the_url_of_an_upstream_is_in_no_error() -> None:
    url = "http://me:pass-word@127.0.0.1:1"
    with pytest.raises(BadSetting, match="is not a base URL") as refused:
        list(findings(read_settings(PROXY, {}, environ={}), {}, (url,)))
    assert "pass-word" not in str(refused.value)


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is no memory, as those of tests may be: beside the tests."""
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as name:
        if file_system_of(Path(name))[0] in ("tmpfs", "ramfs"):
            pytest.skip("the project lies in memory here")
        monkeypatch.chdir(name)
        yield Path(name)


@pytest.mark.row("B10")
def test_a_disk_that_kept_a_life_from_before_a_restart_survives_one(on_disk: Path) -> None:
    assert found()["restart"].level is not Level.OK
    living = Living(on_disk / ".tapes")
    living._life = Life(1, "an earlier start", 0.0, 1_000_000_000.0, 1_000_000_000.0)
    living._keep()
    restart = found()["restart"]
    assert (restart.level, "2001-09-09" in restart.what) == (Level.OK, True)


def test_a_tape_in_memory_does_not_survive() -> None:
    if file_system_of(Path("/dev/shm"))[0] != "tmpfs":
        pytest.skip("/dev/shm is no memory here")
    assert found(tape="/dev/shm/tapes-test.db")["restart"].level is Level.FAILURE


def test_the_file_system_of_a_path_is_the_one_mounted_nearest() -> None:
    assert file_system_of(Path("/proc/self"))[:2] == ("proc", "/proc")


def test_a_folder_that_is_there_can_be_written_and_nothing_is_left(in_tmp_path: Path) -> None:
    assert found(tape="deep/down/t.jsonl")["disk"].level is Level.OK
    assert sorted(p.name for p in in_tmp_path.iterdir()) == [".git"]


def test_a_folder_in_which_nothing_can_be_made_or_removed_is_a_failure(tmp_path: Path) -> None:
    """As on a file system that is read-only; here it is a file, in which root makes none either."""
    place = tmp_path / "file"
    place.touch()
    told = writable(place)
    assert (told.check, told.level) == ("disk", Level.FAILURE)
    assert told.what == f"{place} cannot be written: Not a directory"


def test_a_store_that_cannot_be_read_is_a_failure(in_tmp_path: Path) -> None:
    (in_tmp_path / "t.db").write_text("no database")
    store = found(tape="t.db")["store"]
    assert (store.level, bool(store.remedy)) == (Level.FAILURE, True)


def test_a_server_keeps_its_promise_about_its_disk(database: str) -> None:
    every = found(tape=database)
    assert every["store"].level is Level.OK
    assert "secret-password" not in every["store"].what
    assert "restart" not in every


@pytest.mark.row("B10")
def test_whether_a_long_running_process_is_allowed_is_told_by_lives(in_tmp_path: Path) -> None:
    folder = in_tmp_path / ".tapes"
    assert "none was run" in found()["long-running process"].what
    living = Living(folder)
    living._life = Life(1, "start", 0.0, 7200.0, 7200.0)
    living._keep()
    assert found()["long-running process"].level is Level.OK
    living._life = Life(2**22 + 1, machine_start(), 9000.0, 9600.0)
    living._keep()
    killed = found()["long-running process"]
    assert (killed.level, "10 min" in killed.what) == (Level.WARNING, True)
    assert "was killed" in killed.what


def test_a_host_that_stops_processes_is_told_by_its_variables() -> None:
    stopped = found(environ={"AWS_LAMBDA_FUNCTION_NAME": "f"})["long-running process"]
    assert (stopped.level, "AWS Lambda" in stopped.what) == (Level.FAILURE, True)


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found()["space"].level is not Level.FAILURE
    monkeypatch.setattr(checkup, "_FULL_BYTES", 1 << 60)
    assert found()["space"].level is Level.FAILURE


def test_the_age_of_prices_is_that_of_the_newest_date_in_their_table(tmp_path: Path) -> None:
    file = tmp_path / "data.py"
    file.write_text(
        "date(2026, 3, 4) datetime.date(2026, 1, 1) 'as of 2026-05-06' date(2030, 1, 1)"
    )
    assert newest_date_in(file, date(2026, 6, 1)) == date(2026, 5, 6)
    file.write_text("date(2026, 13, 40)")
    assert newest_date_in(file, date(2026, 6, 1)) is None
    assert checkup._prices(date(2030, 1, 1)).level is Level.WARNING


def test_an_open_address_needs_a_token(in_tmp_path: Path) -> None:
    assert found()["access"].level is Level.OK
    assert found(listen="0.0.0.0:8080")["access"].level is Level.WARNING
    assert found(listen="0.0.0.0:8080", token="t")["access"].level is Level.OK


def test_a_name_that_is_no_tapes_is_one_finding_and_the_others_are_told() -> None:
    every = found(tape="t.weird")
    assert every["store"].level is Level.FAILURE
    assert {"space", "prices", "access", "speed"} <= every.keys()


@pytest.mark.parametrize(
    ("listen", "is_open"),
    [("8080", False), ("[::1]:80", False), ("127.0.0.2:80", False), ("127.x.test:80", True)],
)
def test_whether_strangers_can_reach_the_proxy(listen: str, is_open: bool) -> None:
    assert (found(listen=listen)["access"].level is Level.WARNING) is is_open


def test_an_upstream_with_tls_is_let_go_once_it_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = tls_files(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    def speak(sock: socket.socket) -> None:
        with contextlib.suppress(OSError), context.wrap_socket(sock, server_side=True) as tls:
            tls.recv(65536)
            tls.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            tls.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener, warnings.catch_warnings():
        warnings.simplefilter("error")
        thread = threading.Thread(target=lambda: speak(listener.accept()[0]), daemon=True)
        thread.start()
        unraisable = list[object]()
        monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
        every = found(f"https://localhost:{listener.getsockname()[1]}")
        thread.join(10)
        gc.collect()
    assert every["upstream default"].level is Level.OK
    assert not unraisable
