"""Threads beside the loop: everything is done, and told on the loop, errors as values."""

import asyncio
import threading

from tapes.capture.workers import Workers
from tapes.errors import CassetteMiss


def test_everything_is_done_and_told_on_the_loop() -> None:
    async def main() -> tuple[list[int], set[str]]:
        workers, told, threads = Workers(4, "test"), list[int](), set[str]()
        all_told = asyncio.Event()

        def work(number: int) -> int:
            threads.add(threading.current_thread().name)
            return number

        def then(result: object) -> None:
            assert threading.current_thread() is threading.main_thread()
            assert isinstance(result, int)
            told.append(result)
            if len(told) == 1000:
                all_told.set()

        for number in range(1000):
            workers.do(lambda n=number: work(n), then)  # type: ignore[misc]
        await asyncio.wait_for(all_told.wait(), 30)
        await asyncio.to_thread(workers.close, 10)
        return told, threads

    told, threads = asyncio.run(main())
    assert sorted(told) == list(range(1000))
    assert threads <= {f"test {n}" for n in range(1, 5)}


def test_what_is_raised_is_told_and_the_thread_goes_on() -> None:
    async def main() -> list[object]:
        workers, told, both = Workers(1, "test"), list[object](), asyncio.Event()

        def then(result: object) -> None:
            told.append(result)
            if len(told) == 3:
                both.set()

        def refuse() -> None:
            raise CassetteMiss("missed")

        workers.do(refuse, then)
        workers.do(lambda: 1 // 0, then)
        workers.do(lambda: "done", then)
        await asyncio.wait_for(both.wait(), 30)
        workers.close(10)
        return told

    refused, wrong, done = asyncio.run(main())
    assert isinstance(refused, CassetteMiss)
    assert isinstance(wrong, ZeroDivisionError)
    assert done == "done"


def test_slow_work_holds_up_no_other_while_threads_are_left() -> None:
    async def main() -> None:
        workers, free, told = Workers(2, "test"), threading.Event(), asyncio.Event()
        workers.do(lambda: free.wait(30), lambda _: None)
        workers.do(lambda: 1, lambda _: told.set())
        await asyncio.wait_for(told.wait(), 10)
        free.set()
        await asyncio.to_thread(workers.close, 10)

    asyncio.run(main())


def test_what_is_given_while_the_threads_go_is_done_as_well() -> None:
    async def main() -> list[int]:
        workers, done = Workers(8, "test"), list[int]()
        closing = asyncio.ensure_future(asyncio.to_thread(workers.close, 30))
        for number in range(100):
            workers.do(lambda n=number: done.append(n), lambda _: None)  # type: ignore[misc]
        assert await closing
        workers.do(lambda: done.append(100), lambda _: None)
        await asyncio.to_thread(workers.close, 30)
        return done

    for _ in range(20):
        assert sorted(asyncio.run(main())) == list(range(101))


def test_closing_waits_for_what_is_being_done_but_not_for_ever() -> None:
    async def main() -> list[str]:
        done: list[str] = []
        workers, never = Workers(2, "test"), threading.Event()
        workers.do(lambda: done.append("kept"), lambda _: None)
        workers.do(lambda: never.wait(60), lambda _: None)
        await asyncio.to_thread(workers.close, 0.1)
        never.set()
        return done

    assert asyncio.run(main()) == ["kept"]


def test_whoever_fails_when_it_is_told_holds_up_no_other() -> None:
    async def main() -> list[object]:
        workers, told, both = Workers(1, "test"), list[object](), asyncio.Event()
        failed = list[object]()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failed.append(context["exception"]))

        def fail() -> None:
            raise ValueError("told and failed")

        def then() -> None:
            told.append("done")
            both.set()

        workers.tell(fail)
        workers.tell(then)
        await asyncio.wait_for(both.wait(), 10)
        await asyncio.to_thread(workers.close, 10)
        return [*told, *map(str, failed)]

    assert asyncio.run(main()) == ["done", "told and failed"]
