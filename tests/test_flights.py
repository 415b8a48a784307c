"""One live call per key."""

import asyncio
import gc
import signal
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tapes.flights import Flight, Flights, flights_of
from tests.openfiles import open_below
from tests.running import run, start

KEY, OTHER = "a" * 64, "b" * 64


Result = TypeVar("Result")


def in_thread(work: Callable[[], Result]) -> Result:
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def test_of_two_threads_one_has_the_flight_until_it_lands(tmp_path: Path) -> None:
    flights = Flights(tmp_path / "t.lock")
    flight = flights.take(KEY)
    assert flight is not None
    assert in_thread(lambda: flights.take(KEY)) is None
    flight.land()
    assert in_thread(lambda: flights.take(KEY)) is not None


def test_other_keys_are_other_flights(tmp_path: Path) -> None:
    flights = Flights(tmp_path / "t.lock")
    assert flights.take(KEY) is not None
    assert in_thread(lambda: flights.take(OTHER)) is not None


def test_who_would_wait_for_itself_does_not(tmp_path: Path) -> None:
    flights = Flights(tmp_path / "t.lock")
    first, second = flights.take(KEY), flights.take(KEY)
    assert first is not None
    assert second is not None
    second.land()
    assert in_thread(lambda: flights.take(KEY)) is None
    first.land()


def test_landing_twice_lets_nobody_elses_flight_go(tmp_path: Path) -> None:
    flights = Flights(tmp_path / "t.lock")
    first = flights.take(KEY)
    assert first is not None
    first.land()
    second = flights.take(KEY)
    first.land()
    assert second is not None
    assert in_thread(lambda: flights.take(KEY)) is None


def test_tasks_of_one_thread_wait_for_each_other_and_know_it() -> None:
    flights = Flights(None)

    async def take() -> Flight | None:
        return flights.take(KEY)

    async def main() -> list[bool]:
        first = await asyncio.create_task(take())
        second = await asyncio.create_task(take())
        here = flights.is_of_this_thread(KEY)
        elsewhere = await asyncio.to_thread(flights.is_of_this_thread, KEY)
        return [first is not None, second is None, here, not elsewhere]

    assert all(asyncio.run(main()))


def test_cassettes_of_one_process_share_the_flights_of_a_tape(tmp_path: Path) -> None:
    assert flights_of(tmp_path / "t.lock") is flights_of(tmp_path / "x" / ".." / "t.lock")


def test_without_a_lock_file_the_table_of_the_process_holds(tmp_path: Path) -> None:
    flights = Flights(tmp_path / "no" / "such" / "folder" / "t.lock")
    assert flights.take(KEY) is not None
    assert in_thread(lambda: flights.take(KEY)) is None


HOLDER = """
import sys
from pathlib import Path
from tapes.flights import Flights
flight = Flights(Path("t.lock")).take("a" * 64)
print(flight is not None, flush=True)
sys.stdin.readline()
"""


def test_another_process_waits_until_the_flight_lands_or_its_holder_dies(tmp_path: Path) -> None:
    flights = Flights(tmp_path / "t.lock")
    with start(HOLDER, tmp_path) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "True\n"
        assert flights.take(KEY) is None
        assert flights.take(OTHER) is not None
        child.send_signal(signal.SIGKILL)
    assert flights.take(KEY) is not None


def test_a_forked_child_does_not_take_its_parents_calls_for_its_own(tmp_path: Path) -> None:
    result = run(
        """
        import os
        from pathlib import Path
        from tapes.flights import Flights
        flights = Flights(Path("t.lock"))
        flight = flights.take("a" * 64)
        pid = os.fork()
        if pid == 0:
            held = flights.take("a" * 64) is None   # by the parent, through the file
            flight.land()                            # of the parent: does nothing here
            os._exit(0 if held and flights.take("a" * 64) is None else 1)
        status = os.waitpid(pid, 0)[1]
        flight.land()
        pid = os.fork()
        if pid == 0:
            os._exit(0 if flights.take("a" * 64) is not None else 1)
        print(status, os.waitpid(pid, 0)[1])
        """,
        tmp_path,
    )
    assert (result.stdout, result.stderr) == ("0 0\n", "")


def test_a_lock_file_is_open_only_while_a_call_is_under_way(tmp_path: Path) -> None:
    for number in range(100):
        flight = flights_of(tmp_path / f"{number}.lock").take(KEY)
        assert flight is not None
        assert open_below(tmp_path) == 1
        flight.land()
    assert open_below(tmp_path) == 0


def test_a_lock_holds_on_while_another_call_of_the_same_tape_lands(tmp_path: Path) -> None:
    lock = tmp_path / "t.lock"
    first, second = flights_of(lock).take(KEY), flights_of(lock).take(OTHER)
    assert first is not None
    assert second is not None
    first.land()
    took = run(
        f"""
        from pathlib import Path
        from tapes.flights import flights_of
        print(flights_of(Path("t.lock")).take({OTHER!r}))
        """,
        tmp_path,
    )
    assert took.stdout.strip() == "None"


def test_a_lock_file_that_is_reached_in_two_ways_has_the_same_flights(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    real = flights_of(tmp_path / "real" / "t.lock")
    assert flights_of(tmp_path / "link" / "t.lock") is real


def test_flights_that_nobody_has_are_forgotten(tmp_path: Path) -> None:
    gone = weakref.ref(flights_of(tmp_path / "t.lock"))
    gc.collect()
    assert gone() is None


def test_a_forked_child_asks_though_another_thread_was_asking(tmp_path: Path) -> None:
    result = run(
        """
        import os, signal
        from pathlib import Path
        from tapes.flights import Flights
        flights = Flights(Path("t.lock"))
        with flights._mutex:  # as another thread holds it while it asks a server
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                os._exit(0 if flights.take("a" * 64) is not None else 1)
        print(os.waitpid(pid, 0)[1])
        """,
        tmp_path,
    )
    assert (result.stdout, result.stderr) == ("0\n", "")
