"""A refusal ends the process, whoever swallows what and wherever the main thread is."""

from pathlib import Path

import pytest

from tests.running import run, run_file

BEFORE = """
import asyncio, queue, select, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from tapes import Cassette

cassette = Cassette("t.jsonl", "replay", lambda request: {"text": "live"})

def ask():
    try:
        cassette.call({"prompt": "not recorded"})
    except Exception:
        print("swallowed", flush=True)

async def ask_async():
    try:
        await cassette.acall({"prompt": "not recorded"})
    except Exception:
        print("swallowed", flush=True)

def in_thread(daemon=True):
    threading.Thread(target=ask, daemon=daemon).start()

print("began", flush=True)
"""

# How a program may ask, and where its main thread may be meanwhile.
PROGRAMS = {
    "except Exception around it": "ask()",
    "a retry around it": "for _ in range(3): ask()",
    "a thread, joined": "t = threading.Thread(target=ask); t.start(); t.join()",
    "a future that nobody reads": """
with ThreadPoolExecutor() as pool:
    pool.submit(ask)
    time.sleep(30)
""",
    "a future that nobody reads, and the end": """
pool = ThreadPoolExecutor()
pool.submit(ask)
""",
    "a task that nobody awaits": """
async def main():
    asyncio.create_task(ask_async())
    await asyncio.sleep(30)
asyncio.run(main())
""",
    "tasks gathered with exceptions as results": """
async def main():
    await asyncio.gather(ask_async(), asyncio.sleep(30), return_exceptions=True)
asyncio.run(main())
""",
    "a thread of an event loop": """
async def main():
    asyncio.get_running_loop().run_in_executor(None, ask)
    await asyncio.sleep(30)
asyncio.run(main())
""",
    "a thread under asyncio.run": "in_thread(); asyncio.run(asyncio.sleep(30))",
    "a thread under uvloop": "import uvloop; in_thread(); uvloop.run(asyncio.sleep(30))",
    "a thread under queue.get": "in_thread(); queue.Queue().get(timeout=30)",
    "a thread under sleep": "in_thread(); time.sleep(30)",
    "a thread under select": "in_thread(); select.select([sys.stdin], [], [], 30)",
    "a thread under input": "in_thread(); sys.stdin.readline()",
    "a thread under a lock": """
lock = threading.Lock()
lock.acquire()
in_thread()
lock.acquire(timeout=30)
""",
    "a thread under a busy loop": """
in_thread()
until = time.monotonic() + 30
while time.monotonic() < until:
    pass
""",
    "a thread beyond the end of the main one": """
def later():
    threading.main_thread().join()
    ask()
threading.Thread(target=later).start()
""",
    "many threads at once": """
barrier = threading.Barrier(8)
def together():
    barrier.wait()
    ask()
threads = [threading.Thread(target=together) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
""",
    "a cassette made in a thread": """
def work():
    with_own = Cassette("u.jsonl", "replay")
    with_own.call({"prompt": "not recorded"})
t = threading.Thread(target=work)
t.start()
t.join()
""",
}


@pytest.mark.row("A6")
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_refusal_ends_the_process_with_one_message(program: str, tmp_path: Path) -> None:
    result = run(BEFORE + program, tmp_path)
    assert result.returncode == 1, result.stderr
    assert result.stdout == "began\n"
    assert result.stderr.count("cassette miss: ") == 1
    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr


def test_nobody_hears_in_a_thread_when_the_signal_is_taken(tmp_path: Path) -> None:
    taken = "import signal; signal.signal(signal.SIGRTMIN + 11, lambda *_: None)\n"
    program = "t = threading.Thread(target=ask); t.start(); t.join(); print('went on')"
    result = run(taken + BEFORE + program, tmp_path)
    assert result.returncode == 1
    assert result.stdout == "began\nwent on\n"
    assert result.stderr.count("cassette miss: ") == 1


def test_a_program_that_means_to_catch_a_refusal_may(tmp_path: Path) -> None:
    program = """
from tapes import CassetteMiss
try:
    cassette.call({"prompt": "not recorded"})
except CassetteMiss as miss:
    print(miss.slug)
"""
    result = run(BEFORE + program, tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "began\nmiss\n", "")


def test_a_forked_child_does_not_end_with_its_parents_refusal(tmp_path: Path) -> None:
    program = """
import os
from tapes import halt
from tapes.errors import CassetteMiss
halt._undelivered.append(CassetteMiss("the parent's"))
child = os.fork()
if child == 0:
    sys.exit(0)
halt._undelivered.clear()
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    result = run(BEFORE + program, tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "began\nchild 0\n", "")


def test_reports_are_kept_although_the_process_ends_early(tmp_path: Path) -> None:
    result = run(BEFORE + "in_thread(); time.sleep(30)", tmp_path)
    assert result.returncode == 1
    seen = run(
        """
        from tapes import open_tape
        from tapes.report import runs_of
        print(runs_of(open_tape("t.jsonl"))[0].counts)
        """,
        tmp_path,
    )
    assert seen.stdout == "{'refused': 1}\n"


# --- pools of processes

POOL = """
import multiprocessing, threading
from tapes import Cassette, CassetteMiss

def ask(number):
    return Cassette("t.jsonl", "replay").call({"prompt": number})

def ask_in_a_thread(number):
    cassette = Cassette("t.jsonl", "replay")
    thread = threading.Thread(target=cassette.call, args=({"prompt": number},))
    thread.start()
    thread.join()

def caught(number):
    try:
        return ask(number)
    except CassetteMiss:
        return number

if __name__ == "__main__":
    with multiprocessing.get_context("%s").Pool(2, maxtasksperchild=1) as pool:
        print(%s, flush=True)
"""


@pytest.mark.row("A6", "N15")
@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize(
    "asks",
    [
        "pool.map(ask, range(3))",
        "list(pool.imap_unordered(ask, range(3)))",
        "pool.starmap_async(ask, [(1,), (2,)], chunksize=1).get()",
        "pool.apply(ask_in_a_thread, (1,))",
    ],
)
def test_nobody_waits_for_ever_for_a_worker_of_a_pool(
    start: str, asks: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(POOL % (start, asks))
    result = run_file(program, tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert "cassette miss: " in result.stderr.splitlines()[-2]
    assert "Traceback" not in result.stderr


CHILD = """
import multiprocessing, threading
from tapes import Cassette

def ask_in_a_thread():
    def ask():
        return Cassette("t.jsonl", "replay").call({"prompt": 1})
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()

if __name__ == "__main__":
    child = multiprocessing.get_context("%s").Process(target=ask_in_a_thread)
    child.start()
    child.join()
    print(child.exitcode)
"""


@pytest.mark.row("A6")
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_child_process_ends_with_the_refusal_that_one_of_its_threads_had(
    start: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(CHILD % start)
    result = run_file(program, tmp_path)
    assert result.stdout == "1\n"
    assert result.stderr.count("cassette miss: ") == 1


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_worker_of_a_pool_that_means_to_catch_a_refusal_may(start: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(POOL % (start, "pool.map(caught, range(3), chunksize=1)"))
    result = run_file(program, tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "[0, 1, 2]\n", "")
