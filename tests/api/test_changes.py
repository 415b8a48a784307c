import asyncio
import gc
import json
import uuid
from collections.abc import Iterator
from threading import Event, Thread

import httpx
import pytest

from tapes.api import changes
from tapes.store.sql import SqlStore
from tests.api.serving import got, refused, served
from tests.contracts.test_store import fill
from tests.turns import chat, said


def events(answer: httpx.Response) -> Iterator[dict[str, str]]:
    """The events of a stream: each as its fields."""
    fields: dict[str, str] = {}
    for line in answer.iter_lines():
        name, colon, value = line.partition(": ")
        if colon and name:
            fields[name] = value
        if not line and "event" in fields:
            yield fields
            fields = {}


def append(store: SqlStore, session: str, number: int) -> None:
    fill(store, [chat(number, [said("user", f"ask {number}")], "ok", session=session)])


def test_changes_are_each_told_once_with_their_last_number(store: SqlStore) -> None:
    with served(store) as client:
        append(store, "a", 1)
        append(store, "b", 2)
        first = got(client, "/v1/changes")
        append(store, "a", 3)
        later = got(client, "/v1/changes", after=first["seq"])
        assert len(first["items"]) == 2
        assert len(later["items"]) == 1
        assert later["seq"] > first["seq"]
        assert got(client, "/v1/changes", after=later["seq"])["items"] == []
        part = got(client, "/v1/changes", limit=1)
        assert part["seq"] == part["items"][-1]["seq"]


def test_a_listener_hears_of_sessions_as_they_change_and_go(store: SqlStore) -> None:
    with served(store) as client, client.stream("GET", "/v1/changes/stream") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        heard = events(answer)
        append(store, "a", 1)
        change = next(heard)
        told = json.loads(change["data"])
        assert (change["event"], change["id"]) == ("session", str(told["seq"]))
        session = told["session_id"]
        store.project().erase([session], reason="test")
        gone = next(heard)
        assert gone["event"] == "erased"
        assert json.loads(gone["data"])["session_id"] == session


def test_who_comes_back_misses_nothing(store: SqlStore) -> None:
    with served(store) as client:
        append(store, "a", 1)
        seq = got(client, "/v1/changes")["seq"]
        append(store, "b", 2)
        headers = {"last-event-id": str(seq)}
        with client.stream("GET", "/v1/changes/stream", headers=headers) as answer:
            assert int(next(events(answer))["id"]) > seq
        with client.stream("GET", "/v1/changes/stream", params={"after": seq}) as answer:
            assert int(next(events(answer))["id"]) > seq


def test_who_saw_more_than_there_is_hears_of_all(store: SqlStore) -> None:
    """The log that they saw was another: this one was put in its place."""
    with served(store) as client:
        append(store, "a", 1)
        assert len(got(client, "/v1/changes", after=999_999)["items"]) == 1
        headers = {"last-event-id": "999999"}
        with client.stream("GET", "/v1/changes/stream", headers=headers) as answer:
            heard = events(answer)
            first = json.loads(next(heard)["data"])
            append(store, "b", 2)
            second = json.loads(next(heard)["data"])
            assert second["seq"] > first["seq"]


def test_many_listeners_hear_the_same(store: SqlStore) -> None:
    heard: list[str] = []
    ready = [Event() for _ in range(5)]

    def listen(client: httpx.Client, number: int) -> None:
        with client.stream("GET", "/v1/changes/stream") as answer:
            lines = answer.iter_lines()
            next(lines)
            ready[number].set()
            heard.append(next(line for line in lines if line.startswith("data: ")))

    with served(store) as client:
        threads = [Thread(target=listen, args=(client, n)) for n in range(5)]
        for thread in threads:
            thread.start()
        assert all(each.wait(10) for each in ready)
        append(store, "a", 1)
        for thread in threads:
            thread.join(20)
        assert len(heard) == 5
        assert len(set(heard)) == 1


def test_a_number_that_is_none_is_refused(client: httpx.Client) -> None:
    refused(client, "/v1/changes", 400, after=-1)
    refused(client, "/v1/changes/stream", 400, after="x")
    answer = client.get("/v1/changes/stream", headers={"last-event-id": "x"})
    assert answer.status_code == 400


def test_listeners_are_bounded(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "LISTENERS", 1)
    with served(store) as client, client.stream("GET", "/v1/changes/stream") as answer:
        lines = answer.iter_lines()  # kept: letting go of it would close the connection
        next(lines)
        refusal = client.get("/v1/changes/stream")
        assert (refusal.status_code, refusal.headers["retry-after"]) == (503, "5")


def test_streams_end_when_their_server_does(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "HEARTBEAT_S", 3600.0)
    told = changes.Changes()

    async def heard() -> list[bytes]:
        stream = told.stream(store.project(), None)
        first = await anext(stream)
        asyncio.get_running_loop().call_later(0.05, told.close)  # when it waits for a change
        async with asyncio.timeout(20):
            return [first, *[each async for each in stream]]

    assert len(asyncio.run(heard())) == 1


def test_a_head_of_the_stream_does_not_wait(client: httpx.Client) -> None:
    assert client.head("/v1/changes/stream").status_code == 405


def watches() -> int:
    """Of whichever servers this process has seen."""
    gc.collect()
    return sum(type(each) is changes._Watch for each in gc.get_objects())


def test_nothing_is_kept_of_tenants_to_whom_nobody_listens(store: SqlStore) -> None:
    told = changes.Changes()
    before = watches()

    async def listen_and_leave(number: int) -> None:
        stream = told.stream(store.project(str(uuid.UUID(int=number))), None)
        await anext(stream)
        await stream.aclose()

    async def all_of_them() -> None:
        for number in range(50):
            await listen_and_leave(number)

    asyncio.run(all_of_them())
    assert watches() <= before
