"""A private PostgreSQL for a run of tests: its own folder, its own port, gone at the end."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.parts import absent
from tests.servers import reserved_port

PATIENCE_S = 60
_MEMORY, _ROOM = "/dev/shm", 2 * 1024**3
# Only one line a test of durability needs is missing here: the tests kill no machine.
_OPTIONS = {
    "fsync": "off",
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "dynamic_shared_memory_type": "mmap",
}


@dataclass
class Postgres:
    """A running server, and how it is stopped and started again."""

    folder: Path
    bin: Path
    port: int
    user: str | None
    flushes: bool = False
    process: "subprocess.Popen[bytes] | None" = None
    _by_hand: "psycopg.Connection[Any] | None" = None

    def url(self, database: str = "postgres", tape: str = "") -> str:
        return f"postgresql://tester:secret-password@127.0.0.1:{self.port}/{database}" + (
            f"#{tape}" if tape else ""
        )

    def start(self) -> None:
        settings = _OPTIONS | {"fsync": "on" if self.flushes else "off"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    self.bin / "postgres",
                    "-D",
                    self.folder,
                    "-p",
                    str(self.port),
                    "-k",
                    "",
                    *options,
                ],
                user=self.user,
                cwd=self.folder,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        for _ in range(PATIENCE_S * 20):
            ready = [str(self.bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
            if subprocess.run(ready, timeout=PATIENCE_S).returncode == 0:
                return
            assert self.process.poll() is None, (self.folder / "log").read_text()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)
        raise AssertionError("PostgreSQL did not start")

    def stop(self) -> None:
        """At once, as a machine that fails does; what was acknowledged is in its log."""
        if self._by_hand is not None:
            self._by_hand.close()
            self._by_hand = None
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)  # do not wait for clients
            self.process.wait(PATIENCE_S)

    def new_database(self, name: str, template: str = "template1") -> str:
        self._do(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
        return self.url(name)

    def drop_database(self, name: str) -> None:
        self._do(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _do(self, statement: str) -> None:
        """On one connection for all: a new one takes as long as making a database."""
        if self._by_hand is None or self._by_hand.closed:
            self._by_hand = psycopg.connect(self.url(), autocommit=True)
        self._by_hand.execute(statement)


def found_binaries() -> Path | None:
    """The folder of the newest server on this machine."""
    on_path = shutil.which("postgres")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name))
    if on_path is not None:
        folders.append(Path(on_path).resolve().parent)
    return next((f for f in reversed(folders) if (f / "initdb").exists()), None)


def other_user() -> str | None:
    """Whom to run the server as: it refuses root."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)


def _quick_folder() -> str | None:
    """A folder in memory, where there is room: a database takes a tenth of the time there."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(_MEMORY).free > _ROOM:
            return _MEMORY
    return None


@contextlib.contextmanager
def running(*, flushes: bool = False) -> Iterator[Postgres]:
    """A server for as long as this lasts; skips the test where there is none on this machine.

    It does not flush to the disk unless that is what is measured.
    """
    binaries = found_binaries()
    if binaries is None:
        absent("PostgreSQL is not installed")
    user = other_user()
    with tempfile.TemporaryDirectory(
        prefix="tapes-postgres-", dir=None if flushes else _quick_folder()
    ) as name:
        folder = Path(name) / "data"
        folder.mkdir()
        if user is not None:
            entry = pwd.getpwnam(user)
            os.chown(name, entry.pw_uid, entry.pw_gid)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
        password = Path(name) / "password"
        password.write_text("secret-password\n")
        os.chmod(password, 0o644)
        subprocess.run(
            [
                binaries / "initdb", "-D", folder, "-U", "tester", f"--pwfile={password}",
                "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync",
            ],
            user=user,
            cwd=name,
            check=True,
            capture_output=True,
        )  # fmt: skip
        with reserved_port() as held:  # also while the server is down
            server = Postgres(folder, binaries, held.getsockname()[1], user, flushes)
            server.start()
            try:
                yield server
            finally:
                server.stop()
