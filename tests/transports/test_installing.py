"""Which client libraries are covered, and when their entry points are replaced."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tapes
from tapes.tape.base import MemoryTape
from tapes.transports import installing


@pytest.mark.filterwarnings("error")
def test_a_version_that_is_too_old_is_left_alone_and_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "aiohttp.py").write_text("__version__ = '3.9.5'\n")
    monkeypatch.delitem(sys.modules, "aiohttp", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with (
        tapes.use(MemoryTape()),
        pytest.warns(UserWarning, match=r"aiohttp 3\.9\.5 is too old .* 'aiohttp>=3\.12\.4'"),
    ):
        import aiohttp
    assert not hasattr(aiohttp, "ClientSession")


@pytest.mark.parametrize("name", installing.COVERED)
def test_every_covered_library_is_at_hand_and_new_enough(name: str) -> None:
    library: Any = __import__(name)
    _, since = installing.COVERED[name]
    assert isinstance(library, ModuleType)
    assert tuple(int(part) for part in library.__version__.split(".")[:3]) >= since
