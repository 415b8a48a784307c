"""A PostgreSQL server of our own: a real one, on loopback, in a folder that goes with the tests."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

PLACES = ("/usr/lib/postgresql/*/bin", "/usr/local/bin", "/opt/homebrew/bin")
# PostgreSQL does not run as root.
_USERS = ("postgres", "nobody")


def binaries() -> Path | None:
    """The folder of the newest server that is installed, or None."""
    found = [folder for place in PLACES for folder in Path("/").glob(place[1:])]
    with_server = [f for f in found if (f / "postgres").exists() and (f / "initdb").exists()]
    return max(with_server, key=lambda folder: folder.parts, default=None)


@dataclass
class Cluster:
    """A server: it can be stopped, killed and started again."""

    bin: Path
    folder: Path
    port: int
    user: str | None
    settings: dict[str, str] = field(default_factory=dict)
    _databases: int = 0

    @classmethod
    def made(cls, bin_: Path, **settings: str) -> "Cluster":
        """A new, empty one, running."""
        user = None
        if os.geteuid() == 0:
            names = {entry.pw_name for entry in pwd.getpwall()}
            user = next(name for name in _USERS if name in names)
        folder = Path(tempfile.mkdtemp(prefix="tapes-postgres-"))
        if user is not None:
            shutil.chown(folder, user)
        cluster = cls(bin_, folder, _free_port(), user, settings)
        options = ["-A", "trust", "-U", "tapes", "-E", "UTF8", "--no-locale", "--no-sync"]
        cluster._run("initdb", "-D", str(folder / "data"), *options)
        cluster.start()
        return cluster

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self.bin / program), *arguments],
            user=self.user, cwd="/", capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        told = {"port": str(self.port), "listen_addresses": "127.0.0.1"}
        told |= {"unix_socket_directories": "", "max_connections": "120"} | self.settings
        options = " ".join(f"-c {name}='{value}'" for name, value in told.items())
        log = str(self.folder / "log")
        self._run(
            "pg_ctl", "start", "-w", "-D", str(self.folder / "data"), "-l", log, "-o", options
        )

    def stop(self) -> None:
        """Stop it in order."""
        self._run("pg_ctl", "stop", "-w", "-m", "fast", "-D", str(self.folder / "data"))

    def kill(self) -> None:
        """Kill it as a power cut would end it, and wait until all of it is gone."""
        pid = int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            os.kill(each, signal.SIGKILL)
        until = time.monotonic() + 20
        while time.monotonic() < until and Path(f"/proc/{pid}").exists():
            time.sleep(0.01)

    def remove(self) -> None:
        """Stop it at once and remove its folder."""
        try:
            self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", str(self.folder / "data"))
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def dsn(self, database: str) -> str:
        """How to reach one of its databases."""
        return f"postgresql://tapes@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The DSN of a new, empty database."""
        self._databases += 1
        name = f"test_{os.getpid()}_{self._databases}"
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.dsn(name)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
