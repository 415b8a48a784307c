"""The end of a program that serves: what tells it, and that its parts share one deadline."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tapes import ending
from tapes.ending import By, at_most, told_to_end
from tests.running import run

END = """
    import threading
    from tapes import ending

    {limit}
    threading.Thread(target=threading.Event().wait).start()
    {end}
"""


@pytest.mark.parametrize(
    ("limit", "end"),
    [
        ("ending._LEFT_S = 0.01", "ending.end_at_last()"),
        ("ending._end_in = lambda seconds, real=ending._end_in: real(0.01)", "ending.begin()"),
    ],
    ids=["after its parts", "in the middle"],
)
def test_a_thread_that_never_comes_back_is_not_waited_for(
    limit: str, end: str, tmp_path: Path
) -> None:
    ended = run(END.format(limit=limit, end=end), tmp_path)
    assert ended.returncode == 4
    assert "a store does not answer" in ended.stderr


def test_parts_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_told_at", None)
    assert at_most(30, By.KEPT) == 30
    monkeypatch.setattr(ending, "_told_at", 100.0)
    monkeypatch.setattr(time, "monotonic", lambda: 108.0)
    assert at_most(30, By.KEPT) == 2
    assert at_most(1, By.KEPT) == 1
    assert at_most(5, By.ANSWERED) == 0
    assert list(By) == sorted(By)
    assert max(By) < 20


@contextmanager
def _hang_ups(handler: signal.Handlers) -> Iterator[None]:
    """What SIGHUP does, whatever started the tests has it do."""
    before = signal.signal(signal.SIGHUP, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


async def _told_by(number: int) -> None:
    told = told_to_end()
    try:
        os.kill(os.getpid(), number)
        await asyncio.wait_for(told.wait(), 10)
    finally:
        for each in ending._TELLING:
            asyncio.get_running_loop().remove_signal_handler(each)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_is_told_by_signals(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_told_at", None)
    monkeypatch.setattr(ending, "_end_in", lambda _: None)
    with _hang_ups(signal.SIG_DFL):
        asyncio.run(_told_by(number))
    assert ending._told_at is not None


def test_a_hang_up_that_is_ignored_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> bool:
        told_to_end()
        loop = asyncio.get_running_loop()
        return loop.remove_signal_handler(signal.SIGHUP)

    with _hang_ups(signal.SIG_IGN):
        assert not asyncio.run(ask())
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
