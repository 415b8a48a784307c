"""Do something with a module once it has been imported."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tapes.guarding.on_import import OnImport


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "early_bird.py").write_text("value = 1\n")
    (tmp_path / "late_bird").mkdir()
    (tmp_path / "late_bird" / "__init__.py").write_text("from late_bird.inner import value\n")
    (tmp_path / "late_bird" / "inner.py").write_text("value = 2\n")
    (tmp_path / "broken_bird.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("early_bird", "late_bird", "late_bird.inner", "broken_bird"):
        sys.modules.pop(name, None)


def test_what_is_there_is_acted_on_at_once_and_the_rest_later(folder: Path) -> None:
    importlib.import_module("early_bird")
    seen: list[tuple[str, int]] = []

    def note(module: ModuleType) -> None:
        seen.append((module.__name__, module.value))

    on_import = OnImport({"early_bird": note, "late_bird": note, "late_bird.inner": note})
    on_import.start()
    assert seen == [("early_bird", 1)]
    late = importlib.import_module("late_bird")
    on_import.stop()
    assert seen == [("early_bird", 1), ("late_bird.inner", 2), ("late_bird", 2)]
    assert late.__spec__ is not None
    assert type(late.__loader__).__name__ == "SourceFileLoader"


def test_nothing_is_done_after_it_stopped(folder: Path) -> None:
    seen: list[ModuleType] = []
    on_import = OnImport({"late_bird": seen.append})
    on_import.start()
    on_import.start()
    on_import.stop()
    importlib.import_module("late_bird")
    assert seen == []
    assert on_import not in sys.meta_path


def test_a_module_that_is_not_there_is_missed_as_before(folder: Path) -> None:
    on_import = OnImport({"no_bird": lambda _: pytest.fail("there is no such module")})
    on_import.start()
    with pytest.raises(ModuleNotFoundError, match="no_bird"):
        importlib.import_module("no_bird")
    on_import.stop()


def test_a_module_that_fails_is_not_acted_on(folder: Path) -> None:
    on_import = OnImport({"broken_bird": lambda _: pytest.fail("it was not imported")})
    on_import.start()
    with pytest.raises(ZeroDivisionError):
        importlib.import_module("broken_bird")
    on_import.stop()
