"""`tapes doctor`: whether this machine can keep a store, and what to do where it cannot."""

import os
from itertools import chain

import click

from tapes.checkup import Finding, Level, findings, of_log
from tapes.cli.opened import opened, place_of
from tapes.cli.output import json_option, write, write_json
from tapes.config import PROXY, read_settings
from tapes.errors import TapesError

_MARKS = {Level.OK: "ok  ", Level.WARNING: "warn", Level.FAILURE: "FAIL"}


@click.command()
@click.option("--upstream", "only", multiple=True, metavar="NAME|URL", help="Reach this one alone.")
@click.option("--tape", help="The tape to look at.")
@click.option("--config-dir", help="The folder of config.toml; ./.tapes or ~/.tapes if not said.")
@json_option
def doctor(only: tuple[str, ...], tape: str | None, config_dir: str | None, as_json: bool) -> int:
    """Check what a proxy and its store need of this machine. Makes no model call.

    Ends with 1 where something will not work.

    \b
    Example:
      tapes doctor
      tapes doctor --json --upstream openai
    """
    settings = read_settings(PROXY, {"proxy.tape": tape}, config_dir=config_dir)
    found: list[Finding] = []
    for finding in chain(findings(settings, os.environ, only), [_log(config_dir)]):
        found.append(finding)
        if not as_json:
            _tell(finding)
    failures = sum(finding.level is Level.FAILURE for finding in found)
    if as_json:
        names = ("check", "level", "what", "remedy")
        checks = [{name: str(getattr(finding, name)) for name in names} for finding in found]
        write_json({"failures": failures, "checks": checks})
    return 1 if failures else 0


def _log(config_dir: str | None) -> Finding:
    """How the log is. It is made by whoever first writes to it, and not here."""
    where = place_of(None, config_dir)
    if where.dsn is None and not os.path.exists(where.path):
        return Finding("log", Level.OK, f"{where} is made with the first call that is kept")
    try:
        with opened(None, config_dir) as log:
            # It brings the database's parts with it, as the log does.
            from tapes.keeping import open_spool

            spool = open_spool(where).counts()
            return of_log(str(where), log.counts()["waiting"], spool, where.spool)
    except TapesError as error:
        return Finding("log", Level.FAILURE, error.message, error.remedy)


def _tell(finding: Finding) -> None:
    write(f"{_MARKS[finding.level]} {finding.check}: {finding.what}", flush_now=True)
    if finding.remedy:
        write(f"     {finding.remedy}", flush_now=True)
