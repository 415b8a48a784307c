"""Bringing things through a fork: at rest before, going on in the parent, anew in the child."""

import gc
import os

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
