"""Something asynchronous in a thread of its own, for the time of a test."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

PATIENCE_S = 20.0


@contextlib.contextmanager
def beside(
    run: Callable[[], Coroutine[Any, Any, Any]], stop: Callable[[], object]
) -> Iterator[None]:
    """Run a coroutine; whatever ends it is raised at the end."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:  # noqa: BLE001  # raised where it is wanted
            failed.append(error)

    thread = threading.Thread(target=work, name="beside")
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    if failed:
        raise failed[0]
