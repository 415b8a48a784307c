"""For tests of a service: it runs for real, on loopback, alone or behind a host, on a session.

with hosted(service) as host:
    assert host.call("count_words", {"text": "one two"}) == {"words": 2}

with stored_session(ADMIN_URL, service.manifest, {"spans": [{"id": "a", "tokens": 5}]}) as url:
    ...                      # TAPES_DATABASE_URL=url: the service's own role, its own schema
"""

import asyncio
import json
import secrets
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import uvicorn

from tapes.errors import RefusedService
from tapes.jsontext import Json
from tapes.services.grants import quoted
from tapes.services.host import Host, HostServer, Setup
from tapes.services.kit.service import Service
from tapes.services.manifest import Manifest, grant_plan
from tapes.services.sources import Listed

_PATIENCE_S = 30.0
# All of it is on loopback, whatever proxy the environment names.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def running(service: Service) -> Iterator[str]:
    """The service on a free port of loopback; its base URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(service.app, log_config=None, access_log=False))
    with _beside(lambda: server.serve([listener]), lambda: setattr(server, "should_exit", True)):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()


@contextmanager
def _beside(run: Callable[[], Any], stop: Callable[[], object]) -> Iterator[None]:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:  # noqa: BLE001  # raised where the server is wanted
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join(_PATIENCE_S)
    if failed:
        raise failed[0]


@dataclass(frozen=True, slots=True)
class Hosted:
    """A service behind a host."""

    address: str
    name: str

    def get(self, path: str) -> Json:
        """The JSON at a path below the service's public prefix."""
        return self._asked(f"/v1/cassettes/{self.name}{path}", None)

    def post(self, path: str, body: Json) -> Json:
        """What a path answers to a JSON body."""
        return self._asked(f"/v1/cassettes/{self.name}{path}", json.dumps(body).encode())

    def call(self, tool: str, arguments: Json) -> Json:
        """The result of a tool over MCP. Raises AssertionError for a failed one."""
        params = {"name": f"{self.name}.{tool}", "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        told = self._asked("/v1/mcp", json.dumps(message).encode())
        assert "result" in told, told
        assert not told["result"].get("isError"), told["result"]["content"][0]["text"]
        return told["result"].get("structuredContent")

    def _asked(self, path: str, body: bytes | None) -> Json:
        request = urllib.request.Request(self.address + path, data=body)
        request.add_header("Content-Type", "application/json")
        request.add_header("Accept", "application/json, text/event-stream")
        try:
            with _DIRECT.open(request, timeout=_PATIENCE_S) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{error.code}: {error.read().decode()}") from None
        events = [line[5:] for line in text.splitlines() if line.startswith(b"data:")]
        return json.loads(events[-1] if events else text)


@contextmanager
def hosted(service: Service) -> Iterator[Hosted]:
    """The service behind a host of its own. Raises RefusedService where it is not admitted."""
    with running(service) as base:
        source = base + service.manifest.openapi
        host = Host(Setup(sources=Listed((source,), "test"), contracts=(service.manifest.core,)))
        up, stop, told = threading.Event(), asyncio.Event(), list[str]()
        loops: list[asyncio.AbstractEventLoop] = []

        def ready(server: HostServer) -> None:
            loops.append(asyncio.get_running_loop())
            told.append(server.address)
            up.set()

        async def serve() -> None:
            await HostServer(host, "127.0.0.1", 0).serve(ready, stop)

        with _beside(serve, lambda: loops[0].call_soon_threadsafe(stop.set)):
            up.wait(_PATIENCE_S)
            _admitted(host, source, loops[0])
            yield Hosted(told[0], service.name)


def _admitted(host: Host, source: str, loop: asyncio.AbstractEventLoop) -> None:
    """Wait for the first attempts that come to something."""
    for _ in range(20):
        assert host.refresher is not None
        asyncio.run_coroutine_threadsafe(host.refresher.recheck(), loop).result(_PATIENCE_S)
        found = host.registry.source(source)
        if found is not None and found.service is not None:
            return
        if found is not None and found.trouble is not None and found.trouble.code != "fetch":
            raise RefusedService(
                "the host refuses the service", "see the problems", found.trouble.problems
            )
    raise AssertionError(f"the service was not admitted: {found and found.trouble}")


# --- a stored session -------------------------------------------------------------------------


@contextmanager
def stored_session(
    admin_url: str, declared: Manifest, session: Mapping[str, list[dict[str, Json]]]
) -> Iterator[str]:
    """A database of its own that holds a session as the contract's views; the service's URL for it.

    `session` has the rows of each view by its name. The role, its schema and its grants are those
    of the manifest's plan; what was not declared cannot be read. All of it is gone afterwards,
    but for a role that was there before.
    """
    plan = grant_plan(declared)
    database = f"tapes_test_{secrets.token_hex(6)}"
    password = secrets.token_hex(12)
    with psycopg.connect(admin_url, autocommit=True) as admin:
        had = admin.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (plan.role,)).fetchone()
        admin.execute(f"CREATE DATABASE {quoted(database)}")
        try:
            with psycopg.connect(_with(admin_url, database), autocommit=True) as connection:
                _store(connection, f"tapes_{declared.core}", session)
                connection.execute(plan.sql())
                connection.execute(f"ALTER ROLE {quoted(plan.role)} PASSWORD '{password}'")
            yield _with(admin_url, database, plan.role, password)
        finally:
            admin.execute(f"DROP DATABASE {quoted(database)} WITH (FORCE)")
            if not had:
                admin.execute(f"DROP ROLE IF EXISTS {quoted(plan.role)}")


def _store(
    connection: "psycopg.Connection[Any]",
    contract: str,
    session: Mapping[str, list[dict[str, Json]]],
) -> None:
    connection.execute(f"CREATE SCHEMA {quoted(contract)}")
    for view, rows in session.items():
        columns: dict[str, str | None] = {}
        for name, value in ((name, value) for row in rows for name, value in row.items()):
            known, kind = columns.setdefault(name, None), _column_type(value)
            if value is not None:
                columns[name] = kind if known in (None, kind) else "jsonb"
        listed = ", ".join(f"{quoted(name)} {kind or 'text'}" for name, kind in columns.items())
        base = f"{quoted(contract)}.{quoted(f'stored_{view}')}"
        connection.execute(f"CREATE TABLE {base} ({listed})")
        for row in rows:
            connection.execute(
                f"INSERT INTO {base} SELECT * FROM json_populate_record(NULL::{base}, %s)",
                (json.dumps(row),),
            )
        connection.execute(f"CREATE VIEW {quoted(contract)}.{quoted(view)} AS SELECT * FROM {base}")


def _column_type(value: Json) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "bigint"
        case float():
            return "double precision"
        case dict() | list():
            return "jsonb"
        case _:
            return "text"


def _with(url: str, database: str, user: str | None = None, password: str = "") -> str:
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    who = parts.netloc.rpartition("@")[0] if user is None else f"{quote(user)}:{password}"
    return urlunsplit(
        (parts.scheme, f"{who}@{place}" if who else place, f"/{database}", parts.query, "")
    )
