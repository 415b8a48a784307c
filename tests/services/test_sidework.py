"""The process beside a host."""

import asyncio
import os

from tapes.services.sidework import Sidework


def test_a_key_that_interrupts_the_host_does_not_reach_the_process_beside_it() -> None:
    """Its terminal would tell both, and the process may be about to import what it needs."""

    async def session() -> int:
        work = Sidework()
        await work.get_ready()
        try:
            assert work._process is not None
            return os.getsid(work._process.pid)
        finally:
            await work.close()

    assert asyncio.run(session()) != os.getsid(0)
