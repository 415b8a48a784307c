"""`tapes doctor`: whether this machine can keep a store, and what to do where it cannot."""

import json
import os

import click

from tapes.checkup import Finding, Level, findings
from tapes.config import PROXY, read_settings

_MARKS = {Level.OK: "ok  ", Level.WARNING: "warn", Level.FAILURE: "FAIL"}


@click.command()
@click.option("--upstream", "only", multiple=True, metavar="NAME|URL", help="Reach this one alone.")
@click.option("--tape", help="The tape to look at.")
@click.option("--config-dir", help="The folder of config.toml; ./.tapes or ~/.tapes if not said.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def doctor(only: tuple[str, ...], tape: str | None, config_dir: str | None, as_json: bool) -> int:
    """Check what a proxy and its store need of this machine. Makes no model call.

    Ends with 1 where something will not work.
    """
    settings = read_settings(PROXY, {"proxy.tape": tape}, config_dir=config_dir)
    found: list[Finding] = []
    for finding in findings(settings, os.environ, only):
        found.append(finding)
        if not as_json:
            _tell(finding)
    failures = sum(finding.level is Level.FAILURE for finding in found)
    if as_json:
        names = ("check", "level", "what", "remedy")
        checks = [{name: str(getattr(finding, name)) for name in names} for finding in found]
        click.echo(json.dumps({"failures": failures, "checks": checks}, indent=2))
    return 1 if failures else 0


def _tell(finding: Finding) -> None:
    click.echo(f"{_MARKS[finding.level]} {finding.check}: {finding.what}")
    if finding.remedy:
        click.echo(f"     {finding.remedy}")
