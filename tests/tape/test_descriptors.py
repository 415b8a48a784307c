"""Open files: closed once."""

import gc
import os
from pathlib import Path

import pytest

from tapes.tape.descriptors import Descriptor
from tapes.tape.jsonl import JsonlTape
from tests.tape.homes import plain


def test_a_descriptor_is_closed_once_and_not_again(tmp_path: Path) -> None:
    file = Descriptor(os.open(tmp_path, os.O_RDONLY))
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file.number)
    another = os.open(tmp_path, os.O_RDONLY)  # has the number of the one that was closed
    file.close()
    del file
    os.close(another)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no list of open files here")
def test_a_tape_that_nobody_closed_keeps_no_file_open(tmp_path: Path) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    tape = JsonlTape(tmp_path / "t.jsonl")
    tape.append(plain(1))
    assert len(os.listdir("/proc/self/fd")) > before
    del tape
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
