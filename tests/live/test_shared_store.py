"""A store that laptop, second machine and CI share: proxies on two addresses, clients of both."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.commands import Serving, serving_proxy
from tests.proxies import Raw, chat
from tests.servers import Received, Server, Wire, answer, serving

HOMES = ["jsonl", "directory", "sqlite", "postgres"]


@pytest.fixture(params=HOMES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The name of a store of each kind that all machines can reach."""
    if request.param == "postgres":
        return f"{request.getfixturevalue('database')}#shared"
    return str(tmp_path / {"jsonl": "s.jsonl", "directory": "s/", "sqlite": "s.db"}[request.param])


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def machine(
    stack: ExitStack, folder: Path, host: str, store: str, upstream: str, *flags: str
) -> Serving:
    """A proxy as a process of its own, on an address of its own, in a folder of its own."""
    folder.mkdir(exist_ok=True)
    options = ("--listen", f"{host}:0", "--tape", store, "--upstream", upstream, *flags)
    return stack.enter_context(serving_proxy(*options, cwd=folder))


def ask(proxy: Serving, text: str) -> tuple[int, bytes]:
    with Raw(proxy.port, proxy.address.split("//")[1].split(":")[0]) as raw:
        raw.sock.settimeout(60)
        answered = raw.ask(chat(text))
        return answered.status, answered.body


class Slow:
    """An upstream that answers each call differently, once the test lets it."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.arrived = threading.Semaphore(0)
        self.count = 0

    def __call__(self, received: Received, wire: Wire) -> None:
        self.count += 1
        self.arrived.release()
        self.open.wait(60)
        answer(b'{"call":%d}' % self.count)(received, wire)


@pytest.mark.row("B10", "N05", "F15")
def test_every_machine_gets_the_answers_that_one_recorded(
    store: str, stack: ExitStack, tmp_path: Path
) -> None:
    upstream = stack.enter_context(serving(answer(b'{"n":1}'), answer(b'{"n":2}')))
    record = ("--mode", "record", "--budget", "5")
    laptop = machine(stack, tmp_path / "laptop", "127.0.0.1", store, upstream.url, *record)
    second = machine(stack, tmp_path / "second", "127.0.0.2", store, upstream.url, *record)
    ci = machine(stack, tmp_path / "ci", "127.0.0.3", store, upstream.url)
    assert ask(laptop, "one") == (200, b'{"n":1}')
    assert ask(second, "one") == ask(ci, "one") == (200, b'{"n":1}')
    assert ask(second, "two") == (200, b'{"n":2}')
    assert ask(laptop, "two") == ask(ci, "two") == (200, b'{"n":2}')
    assert ask(ci, "three")[0] == 400
    assert len(upstream.requests) == 2


@pytest.mark.row("B10")
def test_the_same_call_from_two_machines_at_once_is_made_once(
    store: str, stack: ExitStack, tmp_path: Path
) -> None:
    slow = Slow()
    upstream: Server = stack.enter_context(serving(slow))
    flags = ("--mode", "record", "--budget", "9")
    hosts = ("127.0.0.1", "127.0.0.2")
    machines = [
        machine(stack, tmp_path / host, host, store, upstream.url, *flags) for host in hosts
    ]
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, machines[n % 2], "the same") for n in range(8)]
        assert slow.arrived.acquire(timeout=60)
        slow.open.set()
        answers = {future.result(60) for future in asked}
    assert answers == {(200, b'{"call":1}')}
    assert len(upstream.requests) == 1


@pytest.mark.row("B5", "N17")
def test_a_limit_holds_exactly_over_machines(store: str, stack: ExitStack, tmp_path: Path) -> None:
    slow = Slow()
    upstream: Server = stack.enter_context(serving(slow))
    slow.open.set()
    flags = ("--mode", "record", "--budget", "3")
    hosts = ("127.0.0.1", "127.0.0.2")
    machines = [
        machine(stack, tmp_path / host, host, store, upstream.url, *flags) for host in hosts
    ]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: ask(machines[n % 2], f"question {n}"), range(8)))
    assert len(upstream.requests) == 3
    assert sorted(status for status, _ in answers) == [200] * 3 + [400] * 5
    assert all(b"budget exhausted" in body for status, body in answers if status == 400)
