"""Work that would hold the host's loop, done in a process beside it: admitting and merging.

Rule 1: the work is a function of bytes and values, so it may be done anywhere.
Rule 2: whatever a hostile document does to the process that reads it (time, memory, a crash) ends
        that process and that document's admission, and nothing else.
Rule 3: the process is started when it is needed, let go when it is idle, and ends with the host.

Threads would not do: reading a large document holds the interpreter's lock, and every other
request with it.
"""

import asyncio
import contextlib
import os
import pickle
import sys
from collections.abc import Collection, Sequence
from typing import Any, cast

from tapes.errors import RefusedService, TapesError
from tapes.jsontext import Json
from tapes.services import beside
from tapes.services.admission import Service
from tapes.services.beside import Named
from tapes.services.problems import UNDECIDED, Stage, problem

WORK_S = 30.0
_IDLE_S = 30.0


class WorkFailed(Exception):
    """The process ended in the middle of the work, or took too long."""


class Sidework:
    """One process that does one piece of work after the other. To be used on one loop."""

    def __init__(self, *, work_s: float = WORK_S, idle_s: float = _IDLE_S) -> None:
        self._work_s = work_s
        self._idle_s = idle_s
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None
        self._closed = False

    async def admit(
        self, document: bytes, source: str, contracts: Collection[str], *, lenient: bool = False
    ) -> Service:
        """The service that a document declares. Raises RefusedService."""
        try:
            return cast(Service, await self._done("admit", document, source, contracts, lenient))
        except WorkFailed as error:
            found = problem(Stage.DOCUMENT, UNDECIDED, "", f"the document {error}")
            raise RefusedService(
                "the document is refused: 1 problem",
                "rules and limits: docs/services-manifest.md",
                (found,),
            ) from None

    async def merge(self, services: Sequence[Named], own: dict[str, Json]) -> bytes:
        """The aggregate of documents and the host's own. Raises WorkFailed."""
        return cast(bytes, await self._done("merge", list(services), own))

    async def get_ready(self) -> None:
        """Start the process: who knows that there will be work need not wait for it later."""
        async with self._turn:
            if not self._closed:
                with contextlib.suppress(OSError):  # whoever has work will be told
                    await self._started()
                self._rest()

    async def close(self) -> None:
        """End the process."""
        self._closed = True
        async with self._turn:
            await self._end()

    async def _done(self, task: str, *arguments: Any) -> Any:
        async with self._turn:
            if self._closed:
                raise WorkFailed("was not read: the host is ending")
            if self._idle is not None:
                self._idle.cancel()
            try:
                async with asyncio.timeout(self._work_s):
                    ended, value = await self._asked(task, arguments)
            except TimeoutError:
                await self._end()
                raise WorkFailed(f"took more than {self._work_s:g} s") from None
            except (OSError, asyncio.IncompleteReadError, pickle.UnpicklingError, EOFError):
                await self._end()
                raise WorkFailed("ended the process that read it") from None
            except BaseException:
                await self._end()  # in the middle of a piece of work its state is unknown
                raise
            self._rest()
        if ended == "memory":
            raise WorkFailed("needs too much memory")
        if isinstance(value, TapesError):
            raise value
        return value

    async def _asked(self, task: str, arguments: tuple[Any, ...]) -> tuple[str, Any]:
        process = await self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        data = pickle.dumps((task, arguments), pickle.HIGHEST_PROTOCOL)
        process.stdin.write(beside.LENGTH.pack(len(data)))
        process.stdin.write(data)
        await process.stdin.drain()
        (length,) = beside.LENGTH.unpack(await process.stdout.readexactly(beside.LENGTH.size))
        found: tuple[str, Any] = pickle.loads(await process.stdout.readexactly(length))
        return found

    async def _started(self) -> asyncio.subprocess.Process:
        """The process, started where there is none."""
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                beside.__name__,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                limit=1024 * 1024,
                start_new_session=True,  # Ctrl-C is for the host alone
            )
        return process

    def _rest(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._let_go)

    def _let_go(self) -> None:
        """Tell the idle process to end; it does when its input ends."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()

    async def _end(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        if process.stdin is not None:
            process.stdin.close()
        await process.wait()
