"""`tapes db`: the database of the log, checked, copied whole, moved to the other kind."""

import os

import click

from tapes.cli.opened import opened, place_of, store_options
from tapes.cli.output import count, json_option, write, write_json
from tapes.errors import BadSetting, UnwritableTape
from tapes.opening import Where


@click.group()
def db() -> None:
    """Check, back up and move the database of the log."""


@db.command("check")
@store_options
@json_option
def check(*, store: str | None, org: str, config_dir: str | None, as_json: bool) -> int:
    """Read everything and say what is damaged; status 1 if anything is.

    \b
    Example:
      tapes db check
    """
    del org
    with opened(store, config_dir) as log:
        damage = log.check()
        name = log.name
    if as_json:
        write_json({"store": name, "damage": list(damage)})
    else:
        write(f"{name}: {'nothing is damaged' if not damage else count(len(damage), 'place')}")
        for line in damage:
            write(f"  {line}")
    return 1 if damage else 0


@db.command("backup")
@click.argument("target", metavar="FILE", type=click.Path())
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@store_options
@json_option
def backup(
    target: str, *, force: bool, store: str | None, org: str, config_dir: str | None, as_json: bool
) -> None:
    """Write a whole copy, while others read and write.

    \b
    Example:
      tapes db backup tapes-backup.db
    """
    del org
    place = place_of(store, config_dir)
    if place.dsn is None and os.path.realpath(target) == os.path.realpath(place.path):
        raise BadSetting(f"{target} is the log itself", "name another file")
    if os.path.lexists(target) and not force:
        raise UnwritableTape(f"{target} is there already", "to write over it: --force")
    with opened(store, config_dir) as log:
        log.backup(target)
        for tenant in log.orgs():
            log.project(tenant).note("backup", by="command line", details={"file": target})
    if as_json:
        write_json({"file": target})
    else:
        write(target)


@db.command("copy")
@click.argument("target", metavar="FILE|DSN")
@store_options
@json_option
def copy(
    target: str, *, store: str | None, org: str, config_dir: str | None, as_json: bool
) -> None:
    """Copy the log to another database, of either kind, and derive there.

    All tenants' turns go over, with what people said of sessions (names, tags, pins), the audit,
    erasures and how long things are kept. Doing it again adds what is new, and erases there what
    was erased here.

    \b
    Example:
      tapes db copy postgresql://tapes@db.local/tapes
    """
    from tapes.copying import copy_log
    from tapes.keeping import open_projector, open_store

    del org
    where = Where.of(target)
    if _is_same(where, place_of(store, config_dir)):
        raise BadSetting(f"{where} is the log itself", "name another database")
    with opened(store, config_dir) as log:
        other = open_store(where)
        try:
            done = copy_log(log, other, lambda: open_projector(other).drain())
        finally:
            other.close()
    if as_json:
        write_json(
            {
                "from": log.name,
                "to": str(where),
                "turns": done.turns,
                "new": done.new,
                "records": done.records,
            }
        )
    else:
        others = f", {count(done.records, 'record')} of the audit and the like"
        write(f"{where}: {count(done.new, 'turn')} added of {done.turns}{others}")


def _is_same(one: Where, other: Where) -> bool:
    """Whether two places are one database, as far as their texts tell."""
    if one.dsn is None or other.dsn is None:
        paths = [os.path.realpath(place.path) for place in (one, other) if place.dsn is None]
        return len(paths) == 2 and paths[0] == paths[1]
    are_urls = "://" in one.dsn and "://" in other.dsn
    return one.dsn == other.dsn or (are_urls and str(one) == str(other))
