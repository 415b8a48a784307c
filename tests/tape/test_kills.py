"""Writers that are killed at random instants lose nothing that was acknowledged."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tape import killing
from tests.tape.homes import all_on_disk, path_of


def _kill(home: str, folder: Path, rounds: int) -> dict[str, int]:
    seed = int.from_bytes(os.urandom(4))
    program = [sys.executable, str(Path(killing.__file__)), home, path_of(home, folder)]
    done = subprocess.run(
        [*program, str(rounds), str(seed)], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, f"seed {seed}:\n{done.stderr}"
    result: dict[str, int] = json.loads(done.stdout)
    return result


@all_on_disk
@pytest.mark.row("A12", "B3", "B7", "N05")
def test_nothing_acknowledged_is_lost_when_writers_are_killed(tmp_path: Path, home: str) -> None:
    result = _kill(home, tmp_path, rounds=50)
    assert result["killed"] == 200
    assert result["found"] >= result["acknowledged"] > 50
