"""The packages of `tests/provider/package.json`, installed where they are not: a provider, SDKs."""

import contextlib
import fcntl
import json
import shutil
import subprocess
from pathlib import Path

HOME = Path(__file__).parent / "provider"
PROGRAM = HOME / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
PATIENCE_S = 300


def missing() -> str:
    """Install what is not there, one process at a time; why it cannot be had, or nothing."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "node and npm are not installed"
    wanted: dict[str, str] = json.loads((HOME / "package.json").read_text())["dependencies"]
    with (HOME / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if all(_version(name) == version for name, version in wanted.items()):
            return ""
        done = subprocess.run(
            ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"],
            cwd=HOME, capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
    return done.stderr[-300:] if done.returncode else ""


def _version(name: str) -> str | None:
    """The version of an installed package."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        package = HOME / "node_modules" / name / "package.json"
        return str(json.loads(package.read_text())["version"])
    return None
