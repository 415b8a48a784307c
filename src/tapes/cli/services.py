"""`tapes serve services`: a host of cassette services alone.

Knows nothing of how services are asked.
"""

import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tapes.access import token_hash
from tapes.cli.output import flush, json_option, note, write_json
from tapes.errors import BadSetting
from tapes.listening import Listen
from tapes.server import run_loop, settle
from tapes.services.limiting import limits_in
from tapes.services.pinfile import FILE as PINS
from tapes.services.settings import duration_of
from tapes.services.sources import configuration_file, source_list, trusted_hosts

TOKEN = "TAPES_SERVICES_TOKEN"
LISTEN = "127.0.0.1:8081"


def service_options(command: Any) -> Any:
    """What every server with services is told of them, as the keywords of `setup_of`."""
    options = (
        click.option("--cassettes", multiple=True, metavar="URL[,URL]", help="Cassette services."),
        click.option(
            "--cassette-refresh", default="30s", show_default=True, help="How often to ask."
        ),
        click.option("--cassette-host", multiple=True, metavar="NAME", help="A host to trust."),
        click.option("--only-documented", is_flag=True, help="Pass on documented paths alone."),
        click.option("--lenient-tools", is_flag=True, help="Allow tools with GET, path and query."),
        click.option("--pin-tools", is_flag=True, help="Hold back tools whose words changed."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def setup_of(
    *,
    config_dir: str | None,
    cassettes: tuple[str, ...],
    cassette_refresh: str,
    cassette_host: tuple[str, ...],
    only_documented: bool,
    lenient_tools: bool,
    pin_tools: bool,
) -> Any:
    """The set-up of a host that flags, environment and file describe. Raises BadSetting."""
    # The host brings an HTTP client and a server with it; --help should not wait for them.
    from tapes.services.host import Setup

    file = configuration_file(config_dir)
    return Setup(
        sources=source_list(cassettes, os.environ, file),
        trusted=trusted_hosts(cassette_host, os.environ, file),
        interval_s=_seconds(cassette_refresh),
        limited=limits_in(file),
        only_documented=only_documented,
        lenient_tools=lenient_tools,
        pin_file=Path(file.parent) / PINS if pin_tools else None,
        settles=True,
    )


@click.command("services")
@click.option("--listen", default=LISTEN, show_default=True, help="Address and port.")
@service_options
@click.option("--config-dir", help="The folder of config.toml; ./.tapes or ~/.tapes if not said.")
@json_option
def services(*, listen: str, as_json: bool, **told: Any) -> None:
    """Host cassette services: discovery, proxy, MCP.

    The list of services comes from --cassettes, TAPES_CASSETTES, or `cassettes` in config.toml,
    which may change while it runs, with the hosts that it trusts and the limits that it sets.
    Beyond loopback every client needs TAPES_SERVICES_TOKEN.

    \b
    Example:
      tapes serve services --cassettes=http://127.0.0.1:9999/openapi
    """
    from tapes.services.host import Host, HostServer, access_for

    address = Listen.of(listen)
    token = os.environ.get(TOKEN)
    access = access_for(
        address.host,
        is_loopback=address.is_loopback,
        token_sha256=None if not token else token_hash(token),
    )
    setup = replace(setup_of(**told), access=access)
    sources = setup.sources
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    for noisy in ("mcp", "uvicorn", "sse_starlette"):
        logging.getLogger(noisy).setLevel(logging.WARNING)

    def tell(server: HostServer) -> None:
        settle()
        if as_json:
            write_json({"address": server.address, "sources": [*sources.values]})
            flush()
            return
        lines = [
            f"tapes services: {server.address}",
            f"  {len(sources.values)} sources ({sources.origin})",
            f"  discovery: curl {server.address}/v1/cassettes",
            f"  tools over MCP: {server.address}/v1/mcp",
        ]
        note("\n".join(lines))
        sys.stderr.flush()

    async def serve() -> None:
        await HostServer(Host(setup), address.host, address.port).serve(tell)

    run_loop(serve())


def _seconds(text: str) -> float:
    nanoseconds = duration_of(text)
    if nanoseconds is None:
        raise BadSetting(
            f"--cassette-refresh {text!r} is no duration", "for example: --cassette-refresh 30s"
        )
    return nanoseconds / 1e9
