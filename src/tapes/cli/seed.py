"""`tapes seed`: sample sessions, to have something to look at."""

import click

from tapes.cli.opened import opened, store_options, tenant_of
from tapes.cli.output import count, json_option, write, write_json


@click.command()
@store_options
@json_option
def seed(*, store: str | None, org: str, config_dir: str | None, as_json: bool) -> None:
    """Put sample sessions into the log: a coding agent, an assistant with tools, trouble, scripts.

    They are turned in time to have ended just now. Doing it again changes nothing.

    \b
    Example:
      tapes seed
      tapes sessions list
    """
    from tapes.keeping import open_projector
    from tapes.seeding import seed as put

    tenant = tenant_of(org)
    with opened(store, config_dir, may_make=True) as log:
        seeded = put(log, tenant)
        open_projector(log).drain()
        where = log.name
    if as_json:
        write_json({"sessions": seeded.sessions, "turns": seeded.turns, "new": seeded.new})
        return
    write(f"{where}: {count(seeded.sessions, 'session')}, {count(seeded.new, 'new turn')}")
    write("look at them: tapes serve, for a page in the browser, or tapes sessions list")
