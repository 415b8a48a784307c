"""Packages of Node.js that tests talk through, installed where their `package.json` lies."""

import contextlib
import fcntl
import json
import shutil
import subprocess
from pathlib import Path

from tests.parts import absent

PROVIDER = Path(__file__).parent / "provider"
PROGRAM = PROVIDER / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
PATIENCE_S = 300


def node_modules_of(home: Path) -> Path:
    """The folder of the packages that `package.json` names."""
    why = missing(home)
    if why:
        absent(f"the packages of {home.name} cannot be installed: {why}")
    return home / "node_modules"


def missing(home: Path = PROVIDER) -> str:
    """Install what is not there, one process at a time; why it cannot be had, or nothing."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "node and npm are not installed"
    wanted: dict[str, str] = json.loads((home / "package.json").read_text())["dependencies"]
    with (home / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if all(_version(home, name) == version for name, version in wanted.items()):
            return ""
        done = subprocess.run(
            ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"],
            cwd=home, capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
    return done.stderr[-300:] if done.returncode else ""


def _version(home: Path, name: str) -> str | None:
    """The version of an installed package."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        package = home / "node_modules" / name / "package.json"
        return str(json.loads(package.read_text())["version"])
    return None
