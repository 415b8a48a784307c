"""Test suites that are written for a test, and run by a pytest of their own."""

import os
import sys
import textwrap
from importlib.metadata import entry_points

import pytest

RECORDING = {"DEMO_LIVE": "1"}
# Nothing is loaded but what a suite asks for, so that each run says what it depends on.
_ALONE = ("-p", "tapes.pytest_plugin")


def is_installed() -> bool:
    """Whether pytest finds the plugin by itself here."""
    return bool(entry_points(group="pytest11", name="tapes"))


class Suite:
    """A folder of tests."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester = pytester
        self._monkeypatch = monkeypatch
        self.path = pytester.path

    def write(self, name: str, text: str) -> None:
        """Write a file of the suite."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")

    def run(self, *arguments: str, **settings: str) -> pytest.RunResult:
        """Run it with the plugin and nothing else."""
        settings.setdefault("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        return self._run([*_ALONE, *arguments], settings)

    def run_with_others(self, *arguments: str, **settings: str) -> pytest.RunResult:
        """Run it with every plugin that is installed."""
        return self._run([*(() if is_installed() else _ALONE), *arguments], settings)

    def _run(self, arguments: list[str], settings: dict[str, str]) -> pytest.RunResult:
        with self._monkeypatch.context() as environment:
            environment.setenv("COLUMNS", "200")
            environment.setenv("PYTHONPATH", os.pathsep.join(map(os.path.abspath, sys.path)))
            environment.delenv("PYTEST_ADDOPTS", raising=False)
            for name, value in settings.items():
                environment.setenv(name, value)
            return self.pytester.runpytest_subprocess(*arguments, timeout=60)

    def tapes(self) -> list[str]:
        """The tapes that lie in its folders."""
        return sorted(
            str(file.relative_to(self.path))
            for file in self.path.rglob("*.jsonl")
            if ".tapes" not in file.parts
        )
