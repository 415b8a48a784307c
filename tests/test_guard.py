"""What is not covered does not slip through: nothing below the clients leaves this machine."""

import asyncio
import contextlib
import http.client
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
import uvloop

import tapes
from tapes import NetworkBlocked
from tapes.guarding.sitecustomize import FOLDER, VARIABLE
from tapes.tape.base import MemoryTape
from tests.servers import Server, answer, serving

# Addresses for documentation (RFC 5737, RFC 3849): were the guard to fail, nobody would answer.
FAR = "198.51.100.1"
FAR_6 = "2001:db8::1"
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


@pytest.fixture
def own_address() -> str:
    """An address of this machine that is not loopback."""
    address = "127.0.0.1"
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
        contextlib.suppress(OSError),  # no way leads there
    ):
        sock.connect((FAR, 9))
        address = sock.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("this machine has no address but loopback")
    return address


@pytest.fixture
def here() -> Iterator[Server]:
    with serving(answer(b"here")) as server:
        yield server


def replaying(**options: Any) -> tapes.use:
    return tapes.use(MemoryTape(), **options)


# --- in this process --------------------------------------------------------------------------

WAYS: dict[str, Callable[[], object]] = {
    "urllib": lambda: urllib.request.urlopen(f"http://{FAR}:8000/v1"),
    "http.client": lambda: http.client.HTTPConnection(FAR, 8000).request("GET", "/"),
    "connect": lambda: socket.socket().connect((FAR, 8000)),
    "connect_ex": lambda: socket.socket().connect_ex((FAR, 8000)),
    "a client of the loop": lambda: asyncio.run(asyncio.open_connection(FAR, 8000)),
    "a datagram": lambda: datagram(lambda sock: sock.sendto(b"x", (FAR, 8000))),
    "sendmsg": lambda: datagram(lambda sock: sock.sendmsg([b"x"], [], 0, (FAR, 8000))),
}


def datagram(send: Callable[[socket.socket], object]) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        send(sock)


@pytest.mark.row("N16")
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_an_unknown_client_is_refused_by_name(way: Callable[[], object]) -> None:
    with replaying() as cassette, pytest.raises(NetworkBlocked, match=rf"{FAR}:8000") as blocked:
        way()
    assert Exception not in type(blocked.value).__mro__
    assert cassette.report.as_dict()["refusals"] == [blocked.value.message]


@pytest.mark.row("N16")
@pytest.mark.parametrize(
    "look_up", [socket.gethostbyname, lambda name: socket.getaddrinfo(name, 443)]
)
def test_a_name_is_refused_before_it_is_looked_up(look_up: Callable[[str], object]) -> None:
    with replaying(), pytest.raises(NetworkBlocked, match=r"api\.provider\.test"):
        look_up("api.provider.test")


@pytest.mark.row("N16")
def test_a_client_on_a_loop_is_refused(run: Run) -> None:
    with replaying():
        with pytest.raises(NetworkBlocked, match=r"api\.provider\.test:443"):
            run(asyncio.open_connection("api.provider.test", 443))
        with pytest.raises(NetworkBlocked, match=r"\[2001:db8::1\]:443"):
            run(asyncio.open_connection(FAR_6, 443))


@pytest.mark.row("N16")
def test_a_datagram_on_a_loop_is_refused(run: Run) -> None:
    async def send() -> None:
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=(FAR, 53))

    with replaying(), pytest.raises(NetworkBlocked, match=rf"{FAR}:53"):
        run(send())


@pytest.mark.row("N16")
def test_a_refusal_in_another_thread_ends_the_main_one() -> None:
    with replaying(), ThreadPoolExecutor(1) as pool, pytest.raises(NetworkBlocked):
        wait([pool.submit(far_away)], timeout=10)  # and never looks at what came of it


@pytest.mark.row("N16")
def test_loopback_stays_open(run: Run, here: Server, tmp_path: Path) -> None:
    async def speak(host: str) -> bytes:
        reader, writer = await asyncio.open_connection(host, here.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        said = await reader.readline()
        writer.close()
        await writer.wait_closed()
        return said

    with replaying():
        assert run(speak("127.0.0.1")) == run(speak("localhost")) == b"HTTP/1.1 200 OK\r\n"
        with urllib.request.urlopen(here.url) as response:
            assert response.read() == b"here"
        one, other = socket.socketpair()
        with one, other, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "s"))
            listener.listen()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(tmp_path / "s"))


@pytest.mark.row("N16")
def test_an_allowed_host_stays_open(run: Run, own_address: str) -> None:
    async def speak(host: str, port: int) -> None:
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
        await writer.wait_closed()

    with socket.create_server(("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
        for allowed in (own_address, f"{own_address}:{port}"):
            with replaying(allow=[allowed]):
                run(speak(own_address, port))
        with replaying(allow=[f"{own_address}:1"]), pytest.raises(NetworkBlocked):
            run(speak(own_address, port))


def test_the_addresses_of_an_allowed_name_are_allowed(own_address: str) -> None:
    name = f"{own_address}.nip"
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (own_address, 0))]
    real = socket.getaddrinfo

    def look_up(host: Any, *rest: Any, **more: Any) -> Any:  # a name server, for one name
        return found if host == name else real(host, *rest, **more)

    with (
        socket.create_server(("0.0.0.0", 0)) as listener,
        pytest.MonkeyPatch.context() as patch,
        replaying(allow=[name]),
    ):
        port = listener.getsockname()[1]
        patch.setattr(socket, "getaddrinfo", look_up)
        with pytest.raises(NetworkBlocked):
            socket.create_connection((own_address, port)).close()
        sys.audit("socket.getaddrinfo", name, port, 0, 0, 0)  # as the real look-up does
        socket.create_connection((own_address, port)).close()


def test_what_permits_live_calls_guards_nothing(own_address: str) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
        for options in ({"mode": "record", "latch": True}, {"mode": "live"}, {"guard": False}):
            with tapes.use(MemoryTape(), **options):
                socket.create_connection((own_address, port)).close()
        with tapes.use(MemoryTape(), "record", latch=False), pytest.raises(NetworkBlocked):
            socket.create_connection((own_address, port))


def test_the_innermost_decides(own_address: str) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener, replaying():
        port = listener.getsockname()[1]
        with tapes.use(MemoryTape(), "live"):
            socket.create_connection((own_address, port)).close()
        with pytest.raises(NetworkBlocked):
            socket.create_connection((own_address, port))


def test_afterwards_everything_is_open_again(run: Run, own_address: str) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        with replaying():
            pass
        _, writer = run_and_keep(run, own_address, listener.getsockname()[1])
        assert writer is None


def run_and_keep(run: Run, host: str, port: int) -> tuple[object, object]:
    async def speak() -> tuple[object, object]:
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
        await writer.wait_closed()
        return None, None

    result: tuple[object, object] = run(speak())
    return result


# --- child processes --------------------------------------------------------------------------

CALLS_FAR = f"import urllib.request; urllib.request.urlopen('http://{FAR}:8000/')"


def child(code: str, *options: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **more)


@pytest.mark.row("N16")
def test_a_child_python_is_refused_by_name() -> None:
    with replaying():
        done = child(CALLS_FAR)
    assert done.returncode != 0
    assert "network blocked: a child process" in done.stderr
    assert f"{FAR}:8000" in done.stderr


@pytest.mark.row("N16")
@pytest.mark.parametrize(
    "code",
    [
        f"try:\n {CALLS_FAR}\nexcept Exception:\n print('swallowed')",
        f"import threading\ndef far():\n {CALLS_FAR}\nt = threading.Thread(target=far)\n"
        "t.start(); t.join()",
        f"import subprocess, sys\nsys.exit(subprocess.run([sys.executable, '-c', {CALLS_FAR!r}])"
        ".returncode)",
        f"import asyncio, uvloop\nuvloop.run(asyncio.open_connection('{FAR}', 8000))",
    ],
    ids=["swallowing", "thread", "grandchild", "uvloop"],
)
def test_a_child_cannot_get_around_it(code: str) -> None:
    with replaying():
        done = child(code)
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert f"{FAR}:8000" in done.stderr


def test_a_child_reaches_loopback_and_allowed_hosts(here: Server, own_address: str) -> None:
    reads = f"import urllib.request; print(urllib.request.urlopen('{here.url}').read())"
    connects = "import socket; socket.create_connection(({!r}, {})).close()"
    with socket.create_server(("0.0.0.0", 0)) as listener, replaying(allow=[own_address]):
        assert child(reads).stdout == "b'here'\n"
        assert child(connects.format(own_address, listener.getsockname()[1])).returncode == 0


def test_a_child_runs_the_sitecustomize_that_ours_hides(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.hidden = 'was run'")
    environ = os.environ | {"PYTHONPATH": str(tmp_path)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        with replaying():
            done = child("import sys, sitecustomize; print(sys.hidden, sys.path, sitecustomize)")
        plain = child("import sys, sitecustomize; print(sys.hidden, sys.path, sitecustomize)")
    assert done.stdout == plain.stdout
    assert str(tmp_path) in environ["PYTHONPATH"]
    assert "was run" in done.stdout


def far_away(_: int = 0) -> None:
    urllib.request.urlopen(f"http://{FAR}:8000/")


@pytest.mark.row("N16")
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_child_of_multiprocessing_is_refused(
    method: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with replaying():
        context: Any = multiprocessing.get_context(method)
        process = context.Process(target=far_away)
        process.start()
        process.join(60)
    assert process.exitcode not in (0, None)
    assert f"{FAR}:8000" in capfd.readouterr().err


@pytest.mark.parametrize("before", [None, "/somewhere", f"/a{os.pathsep}/b"])
def test_the_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    if before is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", before)
    then = dict(os.environ)
    with replaying(allow=["db.internal"]):
        assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == FOLDER
        with replaying():
            assert json.loads(os.environ[VARIABLE])["allow"] == []
        assert json.loads(os.environ[VARIABLE])["allow"] == ["db.internal"]
        with tapes.use(MemoryTape(), "live"):
            assert VARIABLE not in os.environ
    assert dict(os.environ) == then
