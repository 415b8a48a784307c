"""Four processes record into one tape and are killed at random instants, round after round.

Run as a program: `killing.py HOME PATH ROUNDS SEED`. Each writer says over a pipe which exchanges
`append` acknowledged. After every round a fresh look at the tape has to find all of them right.
Ends with a line of JSON: how many were killed, acknowledged and found.
"""

import hashlib
import json
import os
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable

from tapes.exchange import Exchange, Piece, Request, Response
from tapes.tape.base import Tape
from tapes.tape.directory import DirectoryTape
from tapes.tape.jsonl import JsonlTape
from tapes.tape.sqlite import SqliteTape

OPEN: dict[str, Callable[[str], Tape]] = {
    "jsonl": JsonlTape,
    "directory": DirectoryTape,
    "sqlite": SqliteTape,
}
WRITERS = 4


def exchange(name: str) -> Exchange:
    """The exchange of a name: plain or over HTTP, large bodies shared by many.

    Some are so large that a kill can hit the middle of a single write.
    """
    key = hashlib.sha256(name.encode()).hexdigest()
    size = int(key[:2], 16) ** 2 // 4 + 1
    if key[4] in "01":
        return Exchange(key, "tape/1", {"name": name}, {"text": key * 40_000})
    if int(key[2], 16) < 10:
        return Exchange(key, "tape/1", {"name": name}, {"text": key * (size // 16)})
    shared = f"body {key[3]} ".encode() * 4000
    pieces = (Piece(0.5, shared), Piece(0.75, key.encode() * (size // 64)))
    return Exchange(key, "http/1", Request("POST", name, (), shared), Response(200, (), pieces))


def write(home: str, path: str, who: str, acknowledge: int) -> None:
    tape = OPEN[home](path)
    for n in range(1_000_000):
        name = f"{who} {n}"
        tape.append(exchange(name))
        os.write(acknowledge, f"{name}\n".encode())


def one_round(home: str, path: str, number: int, chance: random.Random) -> list[str]:
    """Let writers write and be killed; gives the names of what was acknowledged."""
    reader, acknowledge = os.pipe()
    children = []
    for writer in range(WRITERS):
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            status = 1
            try:
                write(home, path, f"{number}.{writer}", acknowledge)
            except BaseException:  # noqa: BLE001  # said, and then it is over
                traceback.print_exc()
            finally:
                os._exit(status)
        children.append(pid)
    os.close(acknowledge)
    # Nobody is killed before somebody was heard, else slow machines would test nothing.
    told = os.read(reader, 65536) if select.select([reader], [], [], 60)[0] else b""
    for pid in chance.sample(children, len(children)):
        time.sleep(chance.expovariate(300))
        os.kill(pid, signal.SIGKILL)
    while more := os.read(reader, 65536):
        told += more
    os.close(reader)
    for pid in children:
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert ended == -signal.SIGKILL, f"a writer ended by itself: {ended}"
    return told.decode().splitlines()


def require_whole(tape: Tape, names: list[str]) -> None:
    for name in names:
        expected = exchange(name)
        assert tape.find(expected.key) == expected, f"acknowledged and not found: {name}"


def main(home: str, path: str, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    acknowledged: list[str] = []
    for number in range(rounds):
        names = one_round(home, path, number, chance)
        tape = OPEN[home](path)
        require_whole(tape, names)
        # Recording goes on, whatever was left behind.
        tape.append(exchange(f"after {number}"))
        acknowledged += [*names, f"after {number}"]
        tape.close()
    tape = OPEN[home](path)
    require_whole(tape, acknowledged)
    wanted = {exchange(name).key for name in acknowledged}
    found = 0
    for each in tape.exchanges():
        name = each.request.url if isinstance(each.request, Request) else each.request["name"]
        assert each == exchange(name), f"not what was written: {name}"
        wanted.discard(each.key)
        found += 1
    assert not wanted, "acknowledged, and not among the exchanges"
    tape.close()
    result = {"killed": rounds * WRITERS, "acknowledged": len(acknowledged), "found": found}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
