"""Ways to take from a process what it needs: disk space, rights, a file system that writes."""

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_NOBODY = 65534


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file can grow beyond a size: writing fails in the middle, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def without_rights() -> Iterator[Path]:
    """A folder to work in, as a user to whom permissions apply."""
    folder = Path(tempfile.mkdtemp())
    user = os.geteuid()
    if user == 0:
        os.chown(folder, _NOBODY, -1)
        os.seteuid(_NOBODY)
    try:
        yield folder
    finally:
        os.seteuid(user)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o700)
        shutil.rmtree(folder)


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """A small file system of its own; skips the test where this user may not mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except OSError as error:
        pytest.skip(f"no mount command here: {error}")
    if done.returncode:
        pytest.skip(f"this user cannot mount: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount_read_only(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
