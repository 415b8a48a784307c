"""What the plugin adds to a run of pytest that uses no tape."""

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import Measurement

_LIMIT_MS = 50.0
_TESTS = "import pytest\n@pytest.mark.parametrize('n', range(500))\ndef test_a(n): pass\n"


def measurements(quick: bool) -> Iterator[Measurement]:
    """Runs that take turns, with the plugin and without."""
    rounds = 5 if quick else 15
    with tempfile.TemporaryDirectory(prefix="tapes-bench-") as folder:
        (Path(folder) / "test_it.py").write_text(_TESTS)
        runs = [(_seconds(folder, "no:tapes"), _seconds(folder, None)) for _ in range(rounds)]
    without, plugged = (min(column) for column in zip(*runs, strict=True))
    added = max(plugged - without, 0.0) * 1e3
    yield Measurement(
        "added to a run of 500 tests without a tape", added, _LIMIT_MS, "limit", "ms", 1.0
    )
    yield Measurement(
        "such a run, in processor time", plugged * 1e3, without * 1e3, "without the plugin", "ms"
    )


def _seconds(folder: str, blocked: str | None) -> float:
    """Processor time is what it costs: other programs on the machine do not count."""
    plugin = ["-p", blocked] if blocked else ["-p", "tapes.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, folder]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command, check=True, capture_output=True,
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
