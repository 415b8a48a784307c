"""Bringing things through a fork: at rest before, going on in the parent, anew in the child."""

import gc
import importlib
import os
import threading

import pytest

from tapes.forks import bring_through_forks
from tests.tape.homes import fork


class Thing:
    def __init__(self) -> None:
        self.told: list[str] = []

    def before_fork(self) -> None:
        self.told.append("before")

    def after_fork(self) -> None:
        self.told.append("after")

    def in_child(self) -> None:
        self.told.append("child")


def told_in_child(things: list[Thing]) -> str:
    reader, writer = os.pipe()
    pid = fork()
    if pid == 0:
        os.write(writer, repr([thing.told for thing in things]).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    told = os.read(reader, 10_000).decode()
    os.close(reader)
    return told


def test_parent_and_child_are_each_told_once() -> None:
    things = [Thing(), Thing()]
    for thing in things:
        bring_through_forks(thing)
    assert told_in_child(things) == repr([["before", "child"]] * 2)
    assert [thing.told for thing in things] == [["before", "after"]] * 2


def test_what_is_gone_is_not_kept_alive() -> None:
    thing = Thing()
    told = thing.told
    bring_through_forks(thing)
    del thing
    gc.collect()
    told_in_child([])
    assert told == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("directory_contract", "_mutex"),
        ("guard", "_lock"),
        ("keeping", "_lock"),
        ("lanes", "_lock"),
        ("redact", "_lock"),
        ("repeats", "_lock"),
        ("transports.installing", "_lock"),
    ],
)
def test_a_child_finds_free_what_another_thread_holds(module: str, name: str) -> None:
    owner = importlib.import_module(f"tapes.{module}")
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with getattr(owner, name):
            held.set()
            over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    pid = fork()
    if pid == 0:
        os._exit(0 if getattr(owner, name).acquire(blocking=False) else 1)
    _, status = os.waitpid(pid, 0)
    over.set()
    thread.join()
    assert status == 0
