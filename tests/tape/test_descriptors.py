"""Open files: closed once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tapes.tape.descriptors import Descriptor


def test_a_descriptor_is_closed_once_and_not_again(tmp_path: Path) -> None:
    file = Descriptor(os.open(tmp_path, os.O_RDONLY))
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file.number)
    another = os.open(tmp_path, os.O_RDONLY)  # has the number of the one that was closed
    file.close()
    del file
    os.close(another)


# In a program of its own: what else is open here comes and goes.
_NOBODY_CLOSES = """
import gc, os, sys
from tapes.tape.jsonl import JsonlTape
from tests.tape.homes import plain

def open_files():
    return len(os.listdir("/dev/fd"))

before = open_files()
tape = JsonlTape(sys.argv[1])
tape.append(plain(1))
assert open_files() > before
del tape
gc.collect()
assert open_files() == before
"""


def test_a_tape_that_nobody_closed_keeps_no_file_open(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _NOBODY_CLOSES, str(tmp_path / "t.jsonl")]
    subprocess.run(command, check=True, timeout=60)
