"""`tapes cassette`: for those who write services, and for those who run a host of them.

Knows nothing of how a service is judged or a host is run: each command calls one library function.
"""

import asyncio
import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import click

from tapes.access import token_in
from tapes.cli.output import Table, confirm, facts, json_option, note, write, write_json
from tapes.errors import BadManifest, BadSetting, TapesError, as_typed
from tapes.jsontext import Json
from tapes.listening import Listen
from tapes.services import manifest as manifests
from tapes.services.manifest import Manifest, grant_plan
from tapes.services.pinfile import FILE as PINS
from tapes.services.pinfile import PinFile
from tapes.services.pins import Pins
from tapes.services.scaffold import CONTRACT, write_new
from tapes.services.sources import (
    VARIABLE,
    add_source,
    configuration_file,
    remove_source,
    source_list,
    trusted_hosts,
)
from tapes.services.trust import Trust
from tapes.services.urls import url_of

HOST = "http://127.0.0.1:8081"
TOKEN = "TAPES_SERVICES_TOKEN"
# Of a host that stands in front of the read API.
API_TOKEN = "TAPES_API_TOKEN"
FAILED = 1
_PATIENCE_S = 60.0
_MARKS = {"passed": ("✔", "green"), "failed": ("✘", "red"), "not judged": ("·", None)}

contracts_option = click.option(
    "--contract", "contracts", multiple=True, default=(CONTRACT,), show_default=True,
    help="A contract that the host serves.",
)  # fmt: skip
host_option = click.option("--host", default=HOST, show_default=True, help="A host that runs.")
folder_option = click.option(
    "--config-dir", help="The folder of config.toml; ./.tapes or ~/.tapes if not said."
)


@click.group()
def cassette() -> None:
    """Write cassette services, and look after those of a host.

    \b
    Example:
      tapes cassette new word-count
      tapes cassette validate word-count/cassette.toml
      python word-count/service.py &
      tapes cassette add http://127.0.0.1:9999/openapi
      tapes serve services
    """


# --- for authors ------------------------------------------------------------------------------


@cassette.command()
@click.argument("name")
@click.option("--folder", type=click.Path(path_type=Path), help="Where; a folder of its name.")
@json_option
def new(name: str, folder: Path | None, as_json: bool) -> None:
    """Begin a new service, with a tool, a route and a test of both.

    \b
    Example:
      tapes cassette new word-count
    """
    written = write_new(name, folder or Path(name))
    if as_json:
        write_json({"name": name, "files": [str(path) for path in written]})
        return
    for path in written:
        write(str(path))
    note(f"run it: python {written[1]}")
    note("check it while it runs: tapes cassette validate http://127.0.0.1:9999/openapi")


@cassette.command()
@click.argument("target")
@click.option("--toml", type=click.Path(path_type=Path), help="The cassette.toml to compare with.")
@contracts_option
@json_option
def validate(target: str, toml: Path | None, contracts: tuple[str, ...], as_json: bool) -> int:
    """Judge a cassette.toml, or a service that runs by the URL of its document.

    Every point of the builder's checklist is told, and what to do where it fails. The exit status
    is 1 if any failed.

    \b
    Example:
      tapes cassette validate cassette.toml
      tapes cassette validate http://127.0.0.1:9999/openapi --toml cassette.toml
    """
    # A host is imported only here: reading a manifest should not take a second.
    from tapes.services.checking import State, check_service, check_toml, subject

    if "://" in target:
        text = None if toml is None else _text(toml)
        points = asyncio.run(check_service(target, contracts, text))
    else:
        points, _ = check_toml(_text(Path(target)), contracts)
    failed = [point for point in points if point.state is State.FAILED]
    if as_json:
        write_json(
            {
                "target": subject(target),
                "passed": not failed,
                "points": [
                    {
                        "what": point.what,
                        "state": str(point.state),
                        "details": list(point.details),
                        "remedy": point.remedy,
                    }
                    for point in points
                ],
            }
        )
        return FAILED if failed else 0
    for point in points:
        mark, color = _MARKS[point.state]
        write(f"{click.style(mark, fg=color)} {point.what}")
        for detail in point.details:
            for line in detail.splitlines():
                write(f"    {line}")
        if point.remedy:
            write(f"    → {point.remedy}")
    return FAILED if failed else 0


@cassette.command()
@click.argument("path", type=click.Path(path_type=Path))
@json_option
def digest(path: Path, as_json: bool) -> None:
    """The identity of a manifest, in TOML or JSON, or embedded in a document.

    \b
    Example:
      tapes cassette digest cassette.toml
    """
    declared = _manifest(path)
    found = manifests.digest(declared)
    if as_json:
        write_json({"path": str(path), "name": declared.name, "digest": found})
    else:
        write(found)


@cassette.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--sql", is_flag=True, help="As statements for an administrator of PostgreSQL.")
@contracts_option
@json_option
def grants(path: Path, sql: bool, contracts: tuple[str, ...], as_json: bool) -> None:
    """What a service needs in the database. Nothing is run.

    \b
    Example:
      tapes cassette grants --sql cassette.toml | psql mydatabase
    """
    declared = _manifest(path)
    problems = manifests.validate(declared, contracts)
    if problems:
        raise BadManifest(f"{path} breaks rules", "tapes cassette validate " + str(path), problems)
    plan = grant_plan(declared)
    if as_json:
        write_json({**plan.form(), "sql": plan.sql()})
    elif sql:
        write(plan.sql(), end="")
    else:
        facts(
            ("role", plan.role),
            ("own schema", plan.schema),
            ("reads", ", ".join(plan.selects) or None),
            ("owns", ", ".join(f"{plan.schema}.{table}" for table in plan.tables) or None),
        )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadSetting(f"{path}: {why}", "name a cassette.toml, or a URL") from error


def _manifest(path: Path) -> Manifest:
    text = _text(path)
    if path.suffix != ".json":
        return manifests.parse_toml(text)
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return manifests.parse_json(text)
    inner = tree.get("x-tapes-cassette") if isinstance(tree, dict) else None
    return manifests.parse_json(text if inner is None else json.dumps(inner))


# --- for operators ----------------------------------------------------------------------------


@cassette.command()
@click.argument("url")
@folder_option
@json_option
def add(url: str, config_dir: str | None, as_json: bool) -> None:
    """Put a service into the list of the configuration file. A host that runs takes it up.

    \b
    Example:
      tapes cassette add http://127.0.0.1:9999/openapi
    """
    file = configuration_file(config_dir)
    is_new = add_source(file, url)
    if as_json:
        write_json({"file": str(file), "url": url, "added": is_new})
    else:
        write(f"{file}: {'added' if is_new else 'was there already'}")
        _say_who_is_trusted(url, file)
    _say_what_overrides()


@cassette.command()
@click.argument("url")
@folder_option
@json_option
def remove(url: str, config_dir: str | None, as_json: bool) -> None:
    """Take a service out of the list. A host that runs withdraws it.

    \b
    Example:
      tapes cassette remove http://127.0.0.1:9999/openapi
    """
    file = configuration_file(config_dir)
    if not remove_source(file, url):
        raise BadSetting(f"{file} does not list that URL", "see what it lists: tapes cassette list")
    if as_json:
        write_json({"file": str(file), "url": url, "removed": True})
    else:
        write(f"{file}: removed")
    _say_what_overrides()


def _say_who_is_trusted(url: str, file: Path) -> None:
    found = url_of(url)
    if found is None or Trust(trusted_hosts(file=file).values).fault(found.hostname) is None:
        return
    host = json.dumps(found.hostname)
    note(f"{found.hostname} is not trusted yet; put it into {file}: cassette_hosts = [{host}]")


def _say_what_overrides() -> None:
    if VARIABLE in os.environ:
        note(f"{VARIABLE} is set: a host that is started here reads its list from there")


@cassette.command("list")
@host_option
@folder_option
@json_option
def list_(host: str, config_dir: str | None, as_json: bool) -> None:
    """The services of a host that runs, and how they do; else those that are configured.

    \b
    Example:
      tapes cassette list
    """
    try:
        found = _asked(host, "/v1/cassettes")
    except _NoHost as error:
        listed = source_list(file=configuration_file(config_dir))
        if as_json:
            write_json({"host": None, "sources": list(listed.values), "origin": listed.origin})
            return
        note(f"{error.message}; configured ({listed.origin}):")
        for url in listed.values:
            write(url)
        return
    if as_json:
        write_json(found)
    else:
        _show(found)


@cassette.command()
@click.argument("name", required=False)
@host_option
@json_option
def recheck(name: str | None, host: str, as_json: bool) -> int:
    """Let a host ask a service now, or all of them.

    \b
    Example:
      tapes cassette recheck summary
    """
    query = "" if name is None else "?" + urllib.parse.urlencode({"cassette": name})
    found = _asked(host, f"/v1/cassettes/-/recheck{query}", method="POST")
    if as_json:
        write_json(found)
    else:
        _show(found)
    asked = [s for s in found["sources"] if name is None or s.get("cassette") == name]
    return FAILED if any(s["health"]["state"] != "up" for s in asked) else 0


@cassette.command()
@click.argument("name")
@host_option
@folder_option
@click.option("--yes", is_flag=True, help="Approve without being asked.")
@json_option
def approve(name: str, host: str, config_dir: str | None, yes: bool, as_json: bool) -> None:
    """Approve what the tools of a service say of themselves now.

    A host that pins tools (tapes serve services --pin-tools) holds back those that changed.

    \b
    Example:
      tapes cassette approve summary
    """
    entries = [c for c in _asked(host, "/v1/cassettes")["cassettes"] if c["name"] == name]
    if not entries:
        raise BadSetting(
            f"no service is published as {name}", "which there are: tapes cassette list"
        )
    held = _held(entries)
    if not held:
        if as_json:
            write_json({"cassette": name, "approved": []})
        else:
            write(f"no tool of {name} waits")
        return
    if not as_json:
        for tool in held:
            facts(("tool", tool["name"]), ("title", tool["title"]), ("says", tool["description"]))
        note(f"their schemas: curl {as_typed(f'{host}/v1/cassettes/{name}/openapi.json')}")
    if not yes:
        for tool in held if as_json else ():  # what is asked about is read before it is answered
            note(f"{tool['name']}: {tool['description']}")
        confirm(
            "May agents read this, with the schemas as they are now?",
            "nothing was approved; to approve without being asked: --yes",
        )
    file = PinFile(configuration_file(config_dir).parent / PINS)
    pins = file.read()
    known = dict(pins.approved.get(name, {}))
    known.update({tool["name"]: tool["prose_digest"] for tool in held})
    file.write(Pins({**pins.approved, name: known}))
    if as_json:
        write_json({"cassette": name, "approved": [tool["name"] for tool in held]})
    else:
        write(f"{file.path}: {len(held)} approved")


def _held(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [tool for entry in entries for tool in entry["tools"] if tool["held"]]


# --- asking a host ----------------------------------------------------------------------------


class _NoHost(BadSetting):
    """Nobody answers there."""


def _asked(host: str, path: str, method: str = "GET") -> Json:
    if not host.startswith(("http://", "https://")):
        raise BadSetting(f"--host {host!r} is no address of a host", f"for example: --host {HOST}")
    token = token_in(os.environ, TOKEN, API_TOKEN)
    try:
        request = urllib.request.Request(host.rstrip("/") + path, method=method)
        if token:
            request.add_header("X-Tapes-Token", token)
        with _opener(host).open(request, timeout=_PATIENCE_S) as answer:
            found: Json = json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            raise TapesError(*_said(error)) from None
    except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        reason = getattr(reason, "strerror", None) or reason
        raise _NoHost(
            f"no host answers at {host}: {reason}", "start one: tapes serve services"
        ) from None
    if not _is_of_a_host(found):
        raise TapesError(f"{host} answers something else", "is this a host of cassette services?")
    return found


# What is read of an answer, by the list that it stands in.
_READ: dict[str, dict[str, type | tuple[type, ...]]] = {
    "cassettes": {
        "name": str, "source": str, "openapi_status": str, "health": dict, "tools": list,
    },
    "sources": {"id": str, "subject": str, "published": bool, "health": dict},
    "problems": {"subject": str, "reason": str, "count": int, "since": str, "remedy": str},
}  # fmt: skip
_TOOL: dict[str, type | tuple[type, ...]] = {
    "name": str, "title": str, "description": str, "held": bool, "prose_digest": (str, type(None)),
}  # fmt: skip


def _is_of_a_host(found: Json) -> bool:
    """Whether an answer is discovery as this program's own host gives it, whole."""
    if not isinstance(found, dict) or not all(
        isinstance(found.get(name), list) and all(_has(each, members) for each in found[name])
        for name, members in _READ.items()
    ):
        return False
    known = {source["id"] for source in found["sources"]}
    return all(
        isinstance(each["health"].get("state"), str)
        for each in [*found["cassettes"], *found["sources"]]
    ) and all(
        entry["source"] in known and all(_has(tool, _TOOL) for tool in entry["tools"])
        for entry in found["cassettes"]
    )


def _has(found: object, members: dict[str, type | tuple[type, ...]]) -> bool:
    return isinstance(found, dict) and all(
        isinstance(found.get(name), kind) for name, kind in members.items()
    )


class _Nowhere(urllib.request.HTTPRedirectHandler):
    """Follows nothing: the token would go there too."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _opener(host: str) -> urllib.request.OpenerDirector:
    """What asks a host; a proxy of the environment is no way to this machine itself."""
    name = urllib.parse.urlsplit(host).hostname or ""
    direct = [urllib.request.ProxyHandler({})] if Listen(name, 0).is_loopback else []
    return urllib.request.build_opener(_Nowhere, *direct)


def _said(error: urllib.error.HTTPError) -> tuple[str, str]:
    try:
        said = json.load(error)
        if "detail" in said:  # the gate of the read API, behind which services may stand
            return f"the host answers {error.code}: {said['detail']}", ""
        return f"the host answers {error.code} {said['error']}: {said['message']}", ""
    except (
        OSError, ValueError, KeyError, TypeError, RecursionError, http.client.HTTPException
    ):  # fmt: skip
        return f"the host answers {error.code}", "is this a host of cassette services?"


def _show(found: dict[str, Any]) -> None:
    table = Table(cassette=20, version=9, health=9, document=8, tools=5, source=40)
    by_id = {source["id"]: source for source in found["sources"]}
    for entry in found["cassettes"]:
        source = by_id[entry["source"]]
        state = entry["health"]["state"]
        table.row(
            entry["name"], entry.get("version", ""), state, entry["openapi_status"],
            len(entry["tools"]), source["subject"], color=None if state == "up" else "yellow",
        )  # fmt: skip
    for source in found["sources"]:
        if not source["published"]:
            state = source["health"]["state"]
            table.row(
                source.get("cassette") or "-", "", state, "-", "", source["subject"], color="red"
            )
    if not found["sources"]:
        write("no sources are configured: tapes cassette add URL")
    for entry in found["cassettes"]:
        if held := _held([entry]):
            write()
            for tool in held:
                write(f"{tool['name']} waits: what it says of itself changed")
            write(f"    → tapes cassette approve {as_typed(entry['name'])}")
    for problem in found["problems"]:
        write()
        write(f"{problem['subject']}: {problem['reason']}")
        again = problem.get("next_attempt")
        soon = "" if again is None else f", next {again}"
        write(f"    {problem['count']} times since {problem['since']}{soon}")
        write(f"    → {problem['remedy']}")
