"""`tapes serve` and `tapes serve api`: the read API, alone or with everything else.

Knows nothing of routes.
"""

import contextlib
import logging
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from tapes.access import token_hash
from tapes.cli.output import flush, json_option, note, write_json
from tapes.cli.services import service_options, setup_of
from tapes.cli.tokens import kept_in, new_here
from tapes.config import API, FOLDER, INGEST, PROXY, STORAGE, Settings, read_settings
from tapes.errors import BadSetting, MissingExtra
from tapes.listening import Listen
from tapes.opening import Where
from tapes.pointing import SHOWN, upstreams_set_in, variables_of
from tapes.redact import Redactor
from tapes.server import access_of, proxy_setup, tenants_of, token_of
from tapes.services.sources import configuration_file, source_list

READ_FILE, ADMIN_FILE = "api-token", "api-admin-token"


def api_options(command: Any) -> Any:
    """The options that both commands share."""
    options = (
        click.option("--store", "store", metavar="FILE|DSN", help="The log; .tapes/tapes.db."),
        service_options,
        click.option("--config-dir", help="The folder of config.toml; ./.tapes or ~/.tapes."),
        json_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def storage_flags(store: str | None) -> dict[str, Any]:
    """The settings that `--store` sets: a DSN, or a file, which then wins over any DSN."""
    if store is None:
        return {}
    where = Where.of(store)
    return {"storage.path": where.path, "storage.postgres_dsn": where.dsn or ""}


def where_of(settings: Settings) -> Where:
    """The place of the log. An empty DSN is none."""
    return Where(settings["storage.path"], settings["storage.postgres_dsn"] or None)


@click.command("api")
@click.option("--listen", help="Address and port; 127.0.0.1:8081 if not said.")
@click.option("--derive/--no-derive", default=True, help="Keep sessions up to date as well.")
@api_options
def api(
    *,
    listen: str | None,
    derive: bool,
    store: str | None,
    config_dir: str | None,
    as_json: bool,
    **services: Any,
) -> None:
    """Answer for what the log holds: sessions, traces, spans, raw turns.

    Beyond loopback readers need a token and changes another; they are made and shown once.

    \b
    Example:
      tapes seed && tapes serve api
      curl 'http://127.0.0.1:8081/v1/sessions?q=has:error'
    """
    # It brings FastAPI and the database's parts with it; --help should not wait for them.
    serving = _serving()
    flags = {"api.listen": listen, **storage_flags(store)}
    settings = read_settings((*API, *STORAGE), flags, config_dir=config_dir)
    address = Listen.of(settings["api.listen"])
    keys, made = _keys(settings, address)
    plan = serving.Plan(
        where_of(settings),
        api=address,
        keys=keys,
        bounds=serving.bounds_of(settings),
        in_front=_in_front(services, config_dir),
        derives=derive,
    )
    _quiet()
    serving.run(plan, lambda served: _tell(served, plan, made, as_json=as_json))


def whole(
    *,
    api_listen: str | None,
    proxy_listen: str | None,
    ingest_listen: str | None,
    mode: str | None,
    upstreams: dict[str, str],
    store: str | None,
    config_dir: str | None,
    as_json: bool,
    **services: Any,
) -> None:
    """Serve everything."""
    serving = _serving()
    default = upstreams.pop("", None)
    flags = {
        "api.listen": api_listen,
        "proxy.listen": proxy_listen,
        "ingest.listen": ingest_listen,
        "proxy.mode": mode,
        "proxy.upstream": default,
        "proxy.upstreams": upstreams or None,
        **storage_flags(store),
    }
    every = (*PROXY, *API, *INGEST, *STORAGE)
    settings = read_settings(every, flags, config_dir=config_dir)
    if settings.origin("proxy.mode") == "default":
        # Who starts the whole server wants to see what happens, not what is on a tape.
        flags["proxy.mode"] = "pass"
        settings = read_settings(every, flags, config_dir=config_dir)
    address, door = Listen.of(settings["api.listen"]), Listen.of(settings["proxy.listen"])
    ingest = _ingest(settings)
    setup = proxy_setup(
        settings,
        token=token_of(settings),
        further_upstreams=upstreams_set_in(os.environ, settings["proxy.upstreams"], door),
    )
    # Last of all: what is made is shown once, so nothing may be refused behind it.
    keys, made = _keys(settings, address)
    plan = serving.Plan(
        where_of(settings),
        api=address,
        keys=keys,
        bounds=serving.bounds_of(settings),
        proxy=(setup, door),
        keeps_log=settings["proxy.log"] is not False,
        ingest=ingest,
        in_front=_in_front(
            services, config_dir, token_of(settings), token_of(settings, "ingest.token")
        ),
    )
    _quiet()
    serving.run(plan, lambda served: _tell(served, plan, made, as_json=as_json))


def _ingest(settings: Settings) -> Any:
    """What makes the private door, and where it listens. Raises BadSetting, MissingExtra."""
    try:
        from tapes.ingest.app import ingest_app
        from tapes.keeping import secrets_of
    except ImportError as error:
        raise MissingExtra(
            f"the private door is an extra, and {error.name} is not installed",
            "pip install 'tapes-py[ingest]'",
        ) from error
    listen = Listen.of(settings["ingest.listen"])
    token = token_of(settings, "ingest.token")
    tenants, org_id = tenants_of(settings, "ingest"), settings["ingest.org"]
    if not listen.is_loopback and token is None and not tenants:
        raise BadSetting(
            f"{listen} can be reached by strangers, and no token is set",
            "set one: TAPES_INGEST_TOKEN=…, or listen on 127.0.0.1",
        )
    access, limit = access_of(settings, "ingest", token), settings["ingest.body_limit"]
    redactor = partial(Redactor, patterns=secrets_of(where_of(settings)))

    def made(store: Any, wake: Any, addresses: Any) -> Any:
        return ingest_app(
            store,
            access=access,
            tenants=tenants,
            org_id=org_id,
            body_limit=limit,
            redactor=redactor,
            kept=wake,
            addresses=addresses,
        )

    return made, listen


def _serving() -> Any:
    """The servers, where what they need is installed."""
    try:
        from tapes import serving
    except ImportError as error:
        raise MissingExtra(
            f"the read API is an extra, and {error.name} is not installed",
            "pip install 'tapes-py[server]'",
        ) from error
    return serving


def _quiet() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


# --- tokens -----------------------------------------------------------------------------------


def _keys(settings: Settings, listen: Listen) -> tuple[Any, dict[str, str]]:
    """Who is let in; and the tokens that were made just now, to be shown once."""
    serving = _serving()
    made: dict[str, str] = {}
    files: dict[str, str] = {}
    for key, name in (("api.token", READ_FILE), ("api.admin_token", ADMIN_FILE)):
        if listen.is_loopback or settings[key] or settings[f"{key}_sha256"]:
            continue
        file = (settings.folder or Path(FOLDER)) / name
        kept = kept_in(file)
        if kept is None:
            made[key] = new_here(file)
            kept = token_hash(made[key])
        files[f"{key}_sha256"] = kept
    return serving.keys_of(settings.with_values(files, "a file of tokens"), listen), made


# --- services in front ------------------------------------------------------------------------


def _in_front(told: dict[str, Any], config_dir: str | None, *hashes: str | None) -> Any:
    """What puts the services in front of the API: those there are, and those that are added later.

    The gate of the API decides who is answered. Its tokens, and those of these hashes, are ours.
    """
    try:
        from tapes.services.mounting import in_front_of
    except ImportError as error:
        file = configuration_file(config_dir)
        if not source_list(told["cassettes"], os.environ, file).values:
            return None
        raise MissingExtra(
            f"cassette services are an extra, and {error.name} is not installed",
            "pip install 'tapes-py[services]'",
        ) from error
    setup = setup_of(config_dir=config_dir, **told)

    def mounted(api: Any) -> Any:
        own = api.keys.hashes | {hashed for hashed in hashes if hashed}
        front = replace(setup, access=None, own_tokens=own)
        app = in_front_of(api.inner, api.document, front)
        return app, app.host.running()

    return mounted


# --- telling ----------------------------------------------------------------------------------


def _tell(served: Any, plan: Any, made: dict[str, str], *, as_json: bool) -> None:
    from tapes.doors import Door

    addresses = {str(door): address for door, address in served.addresses.items()}
    variables = {}
    if served.proxy is not None:
        prefix = "" if served.proxy.setup.access.token is None else "/~TOKEN"
        every = variables_of(served.proxy.address + prefix)
        variables = {name: every[name] for name in SHOWN}
    if as_json:
        write_json(
            {"addresses": addresses, "store": str(plan.where), "variables": variables,
             "tokens": made}
        )  # fmt: skip
        flush()
        return
    lines = []
    if Door.API in served.addresses:
        base = served.addresses[Door.API]
        lines += [f"tapes api: {base}  (a page for people, and GET {base}/v1/sessions)"]
        lines += [f"  {key} (shown once, kept hashed): {token}" for key, token in made.items()]
    if served.proxy is not None:
        lines.append(f"tapes proxy: {served.proxy.address} ({served.proxy.setup.mode})")
        lines += [f"  {name}={value}" for name, value in variables.items()]
    if Door.INGEST in served.addresses:
        lines.append(f"tapes ingest: {served.addresses[Door.INGEST]}")
    lines.append(f"  the log: {plan.where}")
    with contextlib.suppress(BrokenPipeError):
        note("\n".join(lines))
        sys.stderr.flush()
