"""`tapes serve`: the servers."""

import contextlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from tapes.access import token_hash
from tapes.budget import Limits
from tapes.capture.asked import ProxyMode
from tapes.capture.watched import LogWatcher
from tapes.cli.api import api, api_options, whole
from tapes.cli.output import flush, json_option, note, write_json
from tapes.cli.services import services
from tapes.cli.tokens import kept_in, new_here
from tapes.config import FOLDER, INGEST, PROXY, STORAGE, Settings, read_settings
from tapes.errors import MissingExtra
from tapes.opening import Where, require_extra
from tapes.pointing import SHOWN, upstreams_set_in, variables_of
from tapes.redact import Redactor
from tapes.server import (
    Listen,
    ProxyServer,
    access_of,
    proxy_setup,
    run_beside,
    run_proxy,
    tenants_of,
    token_of,
)


def pairs(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> Any:
    """Options of the form NAME=VALUE, together; a URL without a name is the default upstream."""
    found: dict[str, str] = {}
    for text in given:
        name, eq, value = text.partition("=")
        if not eq or "://" in name:
            name, value = "", text
        found[name] = value
    return found


@click.group(invoke_without_command=True)
@click.pass_context
@click.option("--api-listen", help="Where the read API listens; 127.0.0.1:8081 if not said.")
@click.option("--proxy-listen", help="Where the proxy listens; 127.0.0.1:8080 if not said.")
@click.option("--ingest-listen", help="Where the ingest listens; 127.0.0.1:8082 if not said.")
@click.option("--mode", help="The proxy's: pass (the default here), replay, record or live.")
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    callback=pairs,
    metavar="[NAME=]URL",
    help="Where requests go: a named upstream, or the one for all that name none.",
)
@api_options
def serve(ctx: click.Context, **given: Any) -> None:
    """Serve everything: proxy, ingest, and the read API for what they see. Or one of them alone.

    Without a command all of it runs in this process: point a client's base URL to the proxy, and
    look at what it did through the API. The proxy passes calls on and keeps them in the log; with
    --mode replay it answers from a tape.

    \b
    Example:
      tapes serve
      OPENAI_BASE_URL=http://127.0.0.1:8080/openai/v1 python agent.py
      tapes sessions list
    """
    if ctx.invoked_subcommand is None:
        whole(**given)


serve.add_command(api)
serve.add_command(services)


def proxy_options(command: Any) -> Any:
    """The options that `tapes serve proxy` and `tapes run` share."""
    options = (
        click.option("--tape", help="The tape: a file, a folder, a database or postgresql://…"),
        click.option("--mode", help="replay (the default), record, live or pass."),
        click.option("--budget", type=click.IntRange(0), help="At most so many live calls."),
        click.option(
            "--upstream",
            "upstreams",
            multiple=True,
            callback=pairs,
            metavar="[NAME=]URL",
            help="Where requests go: a named upstream, or the one for all that name none.",
        ),
        click.option("--pace", type=float, help="A factor on recorded times: 0 at once, 1 as was."),
        click.option(
            "--ordered", is_flag=True, help="Equal requests are different calls, in order."
        ),
        click.option(
            "--log/--no-log",
            "keeps_log",
            default=None,
            help="Keep every call in the log; in mode pass that is the default.",
        ),
        click.option(
            "--config-dir", help="The folder of config.toml; ./.tapes or ~/.tapes if not said."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def settings_of(
    flags: dict[str, Any], upstreams: dict[str, str], config_dir: str | None
) -> Settings:
    """The settings in force with these flags."""
    default = upstreams.pop("", None)
    given = {**flags, "proxy.upstream": default, "proxy.upstreams": upstreams or None}
    return read_settings((*PROXY, *STORAGE), given, config_dir=config_dir)


@contextlib.contextmanager
def log_of(
    settings: Settings, tell: Callable[[str], None] | None = None
) -> Iterator[LogWatcher | None]:
    """The log that a proxy keeps; None where it keeps none: in every mode but `pass`, if not asked.

    `tell` is told the request id of each turn. Raises what opening a store raises.
    """
    said = settings["proxy.log"]
    if not (settings["proxy.mode"] == ProxyMode.PASS if said is None else said):
        yield None
        return
    where = Where.in_settings(settings)
    try:
        require_extra(where)
    except MissingExtra as error:
        if said:
            raise
        note(f"tapes: no log is kept: {error.message}: {error.remedy}")
        yield None
        return
    # It brings the database's parts with it; a proxy that keeps no log starts without.
    from tapes.keeping import keeping

    with keeping(where) as kept:
        if tell is not None:
            kept.log.told_by(tell)
        yield LogWatcher(kept)


def limits_of(budget: int | None) -> Limits | None:
    """The limits that `--budget` sets; without it the environment's hold."""
    return None if budget is None else Limits(calls=budget)


@serve.command("proxy")
@click.option("--listen", help="Address and port; 127.0.0.1:8080 if not said.")
@proxy_options
@click.option("--named", multiple=True, callback=pairs, metavar="NAME=TAPE", help="A further tape.")
@click.option("--folder", help="A folder of tapes: @NAME is the file NAME.jsonl in it.")
@click.option("--body-limit", help="The largest request, as in 256MiB.")
@click.option("--new-token", is_flag=True, help="Make a new token, and show it once.")
@click.option("--json", "as_json", is_flag=True, help="Say where it listens as one JSON document.")
def proxy(
    *,
    listen: str | None,
    tape: str | None,
    mode: str | None,
    budget: int | None,
    upstreams: dict[str, str],
    pace: float | None,
    ordered: bool,
    keeps_log: bool | None,
    config_dir: str | None,
    named: dict[str, str],
    folder: str | None,
    body_limit: str | None,
    new_token: bool,
    as_json: bool,
) -> None:
    """Answer model calls from a tape, for clients in any language.

    Point a client's base URL here. Beyond loopback every client needs the token.

    \b
    Example:
      tapes serve proxy --tape weather.jsonl
      OPENAI_BASE_URL=http://127.0.0.1:8080/openai/v1 node agent.mjs
    """
    flags = {
        "proxy.listen": listen,
        "proxy.tape": tape,
        "proxy.mode": mode,
        "proxy.pace": pace,
        "proxy.named": named or None,
        "proxy.folder": folder,
        "proxy.body_limit": body_limit,
        "proxy.log": keeps_log,
    }
    settings = settings_of(flags, upstreams, config_dir)
    address = Listen.of(settings["proxy.listen"])
    token = _token(settings, address, new_token=new_token)
    setup = proxy_setup(
        settings,
        token=token.hash,
        limits=limits_of(budget),
        repeated="ordered" if ordered else "reuse",
        further_upstreams=upstreams_set_in(os.environ, settings["proxy.upstreams"], address),
    )
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    lives = settings.folder or Path(FOLDER)
    tell = _tell_json if as_json else _tell
    with log_of(settings) as watcher:
        run_proxy(setup, address, lambda server: tell(server, settings, token), lives, watcher)


@dataclass(frozen=True, slots=True)
class Token:
    """What clients have to show, by its hash; itself only where it was made just now."""

    hash: str | None
    made: str | None = None
    file: Path | None = None


def _token(settings: Settings, listen: Listen, *, new_token: bool, section: str = "proxy") -> Token:
    """The token: the one that is set, or one that is made."""
    given = token_of(settings, f"{section}.token")
    if given is not None and not new_token:
        return Token(given)
    file = (settings.folder or Path(FOLDER)) / f"{section}-token"
    kept = None if new_token else kept_in(file)
    if kept is not None:
        return Token(kept, file=file)
    if listen.is_loopback and not new_token:
        return Token(None)
    token = new_here(file)
    return Token(token_hash(token), token, file)


def _tell(server: ProxyServer, settings: Settings, token: Token) -> None:
    """Say where it listens, what it does, and what to set."""
    setup, base = server.setup, server.address
    lines = [f"tapes proxy: {base} ({setup.mode})"]
    if token.made is not None:
        lines.append(f"  token (shown once, kept hashed in {token.file}): {token.made}")
    elif token.file is not None:
        lines.append(f"  every client needs the token of {token.file}; --new-token makes another")
    lines += [f"  {c.tape.path}: {len(c.tape.keys())} answers" for c in setup.shelf]
    if setup.mode in (ProxyMode.RECORD, ProxyMode.LIVE):
        lines += [f"  {_permission(c.live_is_permitted)}" for c in setup.shelf][:1]
    shown = _variables(server)
    lines += [f"  {name}={shown[name]}" for name in SHOWN]
    if settings.folder is not None:
        lines.append(f"  settings: {settings.folder}")
    if isinstance(server.desk.watcher, LogWatcher):
        lines.append(f"  the log: {Where.in_settings(settings)}")
    lines.append(f"  the report: curl {base}{_prefix(server)}/_tapes/report")
    note("\n".join(lines))
    sys.stderr.flush()


def _tell_json(server: ProxyServer, settings: Settings, token: Token) -> None:
    """Say the same to a program."""
    write_json(
        {
            "address": server.address,
            "mode": str(server.setup.mode),
            "tapes": [c.tape.path for c in server.setup.shelf],
            "variables": {name: _variables(server)[name] for name in SHOWN},
            "token": token.made,
            "log": None if server.desk.watcher is None else Where.in_settings(settings),
            "settings": None if settings.folder is None else str(settings.folder),
        }
    )
    flush()


def _variables(server: ProxyServer) -> dict[str, str]:
    return variables_of(server.address + _prefix(server))


def _prefix(server: ProxyServer) -> str:
    return "" if server.setup.access.token is None else "/~TOKEN"


def _permission(permitted: bool) -> str:
    if permitted:
        return "live calls are permitted"
    return "no live call is permitted: set DEMO_LIVE=1, or a limit with --budget N"


# --- the private door


@serve.command("ingest")
@click.option("--listen", help="Address and port; 127.0.0.1:8082 if not said.")
@click.option("--body-limit", help="The largest body, as in 64MiB.")
@click.option("--new-token", is_flag=True, help="Make a new token, and show it once.")
@click.option("--config-dir", help="The folder of config.toml; ./.tapes or ~/.tapes if not said.")
@click.option("--json", "as_json", is_flag=True, help="Say where it listens as one JSON document.")
def ingest(
    *,
    listen: str | None,
    body_limit: str | None,
    new_token: bool,
    config_dir: str | None,
    as_json: bool,
) -> None:
    """Take in turns, transcripts and OTLP spans that others captured.

    \b
    Example:
      tapes serve ingest
      OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:8082 python agent.py
    """
    flags = {"ingest.listen": listen, "ingest.body_limit": body_limit}
    settings = read_settings((*INGEST, *STORAGE), flags, config_dir=config_dir)
    require_ingest_extra()
    address = Listen.of(settings["ingest.listen"])
    token = _token(settings, address, new_token=new_token, section="ingest")
    # They bring a web framework and the database's parts with them.
    from tapes.ingesting import IngestServer, run_ingest
    from tapes.keeping import open_store, secrets_of

    where = Where.in_settings(settings)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    tenants, org_id = tenants_of(settings, "ingest"), settings["ingest.org"]
    redactor = partial(Redactor, patterns=secrets_of(where))
    store = open_store(where)
    try:
        server = IngestServer(
            store,
            address,
            access_of(settings, "ingest", token.hash),
            tenants=tenants,
            org_id=org_id,
            body_limit=settings["ingest.body_limit"],
            redactor=redactor,
        )
        run_ingest(server, lambda up: _tell_ingest(up.address, where, token, as_json=as_json))
    finally:
        store.close()


def require_ingest_extra() -> None:
    """Raises MissingExtra where the private door needs what is not installed."""
    missing = [n for n in ("starlette", "uvicorn") if importlib.util.find_spec(n) is None]
    if missing:
        raise MissingExtra(
            f"the private door is an extra, and {missing[0]} is not installed",
            "pip install 'tapes-py[ingest]'",
        )


def _tell_ingest(address: str, where: Where, token: Token, *, as_json: bool) -> None:
    prefix = "" if token.hash is None else "/~TOKEN"
    if as_json:
        write_json({"address": address, "log": str(where), "token": token.made})
        flush()
        return
    lines = [f"tapes ingest: {address}"]
    if token.made is not None:
        lines.append(f"  token (shown once, kept hashed in {token.file}): {token.made}")
    lines += [
        f"  the log: {where}",
        f"  turns: POST {address}{prefix}/v1/ingest",
        f"  OTEL_EXPORTER_OTLP_ENDPOINT={address}{prefix}",
    ]
    note("\n".join(lines))
    sys.stderr.flush()


# --- the projector alone


@serve.command("derive-worker")
@click.option("--config-dir", help="The folder of config.toml; ./.tapes or ~/.tapes if not said.")
@json_option
def derive_worker(*, config_dir: str | None, as_json: bool) -> None:
    """Derive sessions from the log, beside servers that only write to it.

    Several may work on one PostgreSQL: they share the sessions. Every proxy that keeps a log has
    one of its own.

    \b
    Example:
      TAPES_STORAGE_POSTGRES_DSN=postgresql://… tapes serve derive-worker
    """
    # It brings the database's parts with it.
    from tapes.keeping import deriving, open_projector, open_store

    where = Where.in_settings(read_settings(STORAGE, {}, config_dir=config_dir))
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    store = open_store(where)

    def tell() -> None:
        if as_json:
            write_json({"store": str(where)})
            flush()
        else:
            note(f"tapes derive-worker: {where}")

    try:
        run_beside(deriving(open_projector(store)), tell)
    finally:
        store.close()
