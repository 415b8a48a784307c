"""`tapes serve services`: a host of cassette services alone.

Knows nothing of how services are asked.
"""

import asyncio
import logging
import os
import sys
from pathlib import Path

import click

from tapes.access import token_hash
from tapes.cli.output import flush, json_option, write_json
from tapes.errors import BadSetting
from tapes.listening import Listen
from tapes.services.pinfile import FILE as PINS
from tapes.services.settings import duration_of
from tapes.services.sources import configuration_file, source_list, trusted_hosts

TOKEN = "TAPES_SERVICES_TOKEN"
LISTEN = "127.0.0.1:8081"


@click.command("services")
@click.option("--listen", default=LISTEN, show_default=True, help="Address and port.")
@click.option("--cassettes", multiple=True, metavar="URL[,URL]", help="Documents of services.")
@click.option("--cassette-refresh", default="30s", show_default=True, help="How often to ask.")
@click.option("--cassette-host", multiple=True, metavar="NAME", help="A host to trust.")
@click.option("--config-dir", help="The folder of config.toml; ./.tapes or ~/.tapes if not said.")
@click.option("--only-documented", is_flag=True, help="Pass on documented paths alone.")
@click.option("--lenient-tools", is_flag=True, help="Allow tools with GET, path and query.")
@click.option("--pin-tools", is_flag=True, help="Hold back tools whose words changed.")
@json_option
def services(
    *,
    listen: str,
    cassettes: tuple[str, ...],
    cassette_refresh: str,
    cassette_host: tuple[str, ...],
    config_dir: str | None,
    only_documented: bool,
    lenient_tools: bool,
    pin_tools: bool,
    as_json: bool,
) -> None:
    """Host cassette services: discovery, proxy, MCP.

    The list of services comes from --cassettes, TAPES_CASSETTES, or `cassettes` in config.toml,
    which may change while it runs. Beyond loopback every client needs TAPES_SERVICES_TOKEN.

    \b
    Example:
      tapes serve services --cassettes=http://127.0.0.1:9999/openapi
    """
    # The host brings FastAPI's and MCP's parts with it; --help should not wait for them.
    from tapes.services.host import Host, HostServer, Setup, access_for

    file = configuration_file(config_dir)
    sources = source_list(cassettes, os.environ, file)
    address = Listen.of(listen)
    token = os.environ.get(TOKEN)
    setup = Setup(
        sources=sources,
        trusted=trusted_hosts(cassette_host, os.environ, file).values,
        interval_s=_seconds(cassette_refresh),
        access=access_for(
            address.host,
            is_loopback=address.is_loopback,
            token_sha256=None if not token else token_hash(token),
        ),
        only_documented=only_documented,
        lenient_tools=lenient_tools,
        pin_file=Path(file.parent) / PINS if pin_tools else None,
    )
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    for noisy in ("mcp", "uvicorn", "sse_starlette"):
        logging.getLogger(noisy).setLevel(logging.WARNING)

    def tell(server: HostServer) -> None:
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
        click.echo("\n".join(lines), err=True)
        sys.stderr.flush()

    async def serve() -> None:
        await HostServer(Host(setup), address.host, address.port).serve(tell)

    try:
        # An optional library: without it the standard loop does, at half the speed.
        import uvloop
    except ImportError:
        asyncio.run(serve())
    else:
        uvloop.run(serve())


def _seconds(text: str) -> float:
    nanoseconds = duration_of(text)
    if nanoseconds is None:
        raise BadSetting(
            f"--cassette-refresh {text!r} is no duration", "for example: --cassette-refresh 30s"
        )
    return nanoseconds / 1e9
