"""`tapes derive`: the read model made anew from the log, or the proof that it changes nothing."""

import click

from tapes.cli.opened import age_of, opened, place_of
from tapes.cli.output import json_option, write, write_json
from tapes.rows import DERIVATION

_SHOWN = 50


@click.command()
@click.option("--check", is_flag=True, help="Only say what a rebuild would change; status 1 if so.")
@click.option("--store", metavar="FILE|DSN", help="The log; .tapes/tapes.db.")
@click.option("--config-dir", help="The folder of config.toml; ./.tapes or ~/.tapes if not said.")
@json_option
def derive(*, check: bool, store: str | None, config_dir: str | None, as_json: bool) -> int:
    """Make sessions, traces and spans anew from the log.

    What is there already is as it would be made; --check proves it: it rebuilds everything beside
    what is kept and compares row by row. It also says where an older version derived the log.

    \b
    Example:
      tapes derive
      tapes derive --check
    """
    # They bring the database's parts with them; --help should not wait for them.
    from tapes.keeping import open_projector

    with opened(store, config_dir) as log:
        projector = open_projector(log)
        if not check:
            log.mark_dirty()
        progress = projector.drain()
        differences = list(projector.check()) if check else []
        if not check:
            log.derived(DERIVATION)
        known = log.derivation()
    told = {
        "store": str(place_of(store, config_dir)),
        "derived": progress.derived,
        "changed": progress.changed,
        "failed": progress.failed,
        "derived_by": known.version,
        "deriver": DERIVATION,
        "done": known.done(DERIVATION),
    }
    if as_json:
        write_json(told | ({"differences": differences} if check else {}))
    else:
        write(_told(told, check=check, differences=differences))
        if check and age_of(known):
            write(f"  derived {age_of(known)}")
    return 1 if differences or progress.failed else 0


def _told(told: dict[str, object], *, check: bool, differences: list[str]) -> str:
    lines = [
        f"{told['store']}: {told['derived']} sessions derived, {told['changed']} rows changed"
        + (f", {told['failed']} sessions failed" if told["failed"] else "")
    ]
    if check:
        lines = [f"{told['store']}: a rebuild changes {len(differences) or 'nothing'}"]
        lines += [f"  {line}" for line in differences[:_SHOWN]]
        if len(differences) > _SHOWN:
            lines.append(f"  and {len(differences) - _SHOWN} more; --json lists all")
    return "\n".join(lines)
