"""`tapes tape refresh` and `tapes tape verify --live`: tapes held against the providers of today.

Knows nothing of what is sent or kept: each command calls one library function.
"""

import inspect
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from tapes.cassette import Cassette
from tapes.cli.output import count, cut, json_option, note, width, write, write_json
from tapes.drift import TELLING, Change, Kind
from tapes.errors import BadSetting, CassetteError
from tapes.exchange import Exchange
from tapes.expiry import age_of
from tapes.jsontext import Json, compact
from tapes.project import declared_for
from tapes.refreshing import (
    Checked,
    Item,
    Outcome,
    Round,
    age_note,
    answers,
    refresh,
    stale,
    verify_live,
)
from tapes.tape.kinds import open_tape
from tapes.tape.raw import kind_of_existing

FOUND = 1
_SHOWN_CHANGES = 10
_COLORS = {
    Outcome.SAME: "green",
    Outcome.RECORDED: "green",
    Outcome.CHANGED: "yellow",
    Outcome.NOT_SENDABLE: "red",
    Outcome.FAILED: "red",
}

_KINDS = click.Choice([str(kind) for kind in Kind if kind in TELLING])
_IGNORE = "A kind of change that makes no difference; may be repeated."


# --- verify --live ----------------------------------------------------------------------------


def can_go_live(verify: click.Command) -> None:
    """Give `tapes tape verify` its option --live."""
    offline = verify.callback
    assert offline is not None

    def callback(live: bool, ignored: tuple[str, ...], **options: Any) -> Any:
        if not live:
            if ignored:
                raise click.UsageError("--ignore goes with --live")
            return offline(**options)
        if options.get("mends"):
            raise click.UsageError("--live looks and changes nothing: leave --mend out")
        return _verify_live(options["path"], ignored, options["as_json"])

    verify.callback = callback
    verify.params[-1:-1] = [
        click.Option(["--live"], is_flag=True, help="Send every request again and compare."),
        click.Option(["--ignore", "ignored"], multiple=True, type=_KINDS, help=_IGNORE),
    ]
    example = "DEMO_LIVE=1 tapes tape verify --live weather.jsonl"
    verify.help = f"{inspect.cleandoc(verify.help or '')}\n  {example}\n"


def _verify_live(path: str, ignored: tuple[str, ...], as_json: bool) -> int:
    with _live(path) as cassette:
        found = verify_live(cassette, counts=_counts(ignored), watch=_nothing if as_json else _show)
    return _end(path, found, as_json)


# --- refresh ----------------------------------------------------------------------------------


@click.command("refresh")
@click.argument("path", metavar="TAPE", type=click.Path())
@click.option("--missing", is_flag=True, help="Streams that were cut while they were recorded.")
@click.option("--wanted", metavar="TAPE", type=click.Path(), help="Requests that TAPE has.")
@click.option("--expired", is_flag=True, help="What is older than max_age in tapes.toml.")
@click.option("--older-than", metavar="AGE", help="What is older: 90d, 12h, 6w.")
@click.option("--changed", is_flag=True, help="What the provider answers otherwise by now.")
@click.option("--ignore", "ignored", multiple=True, type=_KINDS, help=_IGNORE)
@click.option("--dry-run", is_flag=True, help="Only say what would be sent; needs no permission.")
@json_option
def refresh_(
    path: str,
    missing: bool,
    wanted: str | None,
    expired: bool,
    older_than: str | None,
    changed: bool,
    ignored: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> int:
    """Record again what is missing, expired or changed; everything else stays as it is.

    Sends live calls, so it needs the latch or a budget. Credentials come from the environment. An
    old answer stays until a new one is whole. Ends with status 1 where something could not be done.

    \b
    Example:
      tapes tape refresh weather.jsonl --older-than 90d --dry-run
      DEMO_LIVE=1 tapes tape refresh weather.jsonl --expired --missing
      CASSETTE_LIVE_BUDGET=20 tapes tape refresh weather.jsonl --changed --ignore content
    """
    if not (missing or wanted or expired or older_than or changed):
        raise click.UsageError(
            "say what is to be recorded again: --missing, --wanted TAPE, --expired,"
            " --older-than AGE or --changed"
        )
    kind_of_existing(path)
    max_age = _max_age(path, older_than, expired)
    others = _answers_of(wanted) if wanted else []
    tape = open_tape(path)
    try:
        items = stale(
            tape,
            max_age=max_age,
            changed=changed,
            wanted=others if missing or wanted else None,
        )
        if dry_run:
            return _show_plan(path, items, as_json)
    finally:
        tape.close()
    with _live(path) as cassette:
        done = refresh(
            cassette, items, counts=_counts(ignored), watch=_nothing if as_json else _show
        )
    return _end(path, done, as_json)


def _max_age(path: str, older_than: str | None, expired: bool) -> timedelta | None:
    if older_than is not None:
        return age_of(older_than)
    if not expired:
        return None
    declared = declared_for(path)
    if declared.max_age is None:
        raise BadSetting(
            f"no tapes.toml says when a recording on {path} expires",
            'declare it: max_age = "90d"; or say it here: --older-than 90d',
        )
    return declared.max_age


def _answers_of(path: str) -> list[Exchange]:
    kind_of_existing(path)
    tape = open_tape(path)
    try:
        return answers(tape)
    finally:
        tape.close()


def _live(path: str) -> Cassette:
    kind_of_existing(path)
    return Cassette(path, "live")


def _counts(ignored: Iterable[str]) -> frozenset[Kind]:
    return TELLING - {Kind(name) for name in ignored}


# --- showing ----------------------------------------------------------------------------------


def _nothing(_: Checked) -> None:
    pass


def _show(checked: Checked) -> None:
    item = checked.item
    outcome = click.style(str(checked.outcome).ljust(12), fg=_COLORS.get(checked.outcome))
    sample = f" sample {item.sample}" if item.sample else ""
    write(f"{outcome}  {item.key[:12]}{sample}  {item.title}", flush_now=True)
    if checked.reason:
        write(f"    {checked.reason}")
    if checked.remedy:
        write(f"    {checked.remedy}")
    telling = [change for change in checked.changes if change.kind in TELLING]
    for change in telling[:_SHOWN_CHANGES]:
        write(f"    {change.kind} of {change.place}")
        for mark, value, color in (("-", change.recorded, "red"), ("+", change.now, "green")):
            write(click.style(f"      {mark} {_shown(value)}", fg=color))
    if len(telling) > _SHOWN_CHANGES:
        write(f"    and {len(telling) - _SHOWN_CHANGES} more: see --json")


def _shown(value: Json) -> str:
    if value is None:
        return "(nothing)"
    text = value if isinstance(value, str) else compact(value)
    return cut(text.replace("\n", "⏎"), (width() or 108) - 8)


def _show_plan(path: str, items: list[Item], as_json: bool) -> int:
    now = datetime.now(UTC)
    if as_json:
        plan = [{**_item_json(item), "why": str(item.why)} for item in items]
        write_json({"tape": path, "would_send": plan})
        return 0
    for item in items:
        write(f"{item.key[:12]}  {age_note(item, now).ljust(22)}  {item.title}")
    write(f"{count(len(items), 'request')} would be sent")
    return 0


def _end(path: str, done: Round, as_json: bool) -> int:
    """The sum of a round, and the status that it ends with."""
    counts = Counter(str(one.outcome) for one in done.checked)
    if as_json:
        write_json(
            {
                "tape": path,
                "counts": dict(counts),
                "refusal": None if done.refusal is None else done.refusal.message,
                "checked": [_checked_json(one) for one in done.checked],
            }
        )
    else:
        parts = ", ".join(f"{number} {name}" for name, number in counts.items())
        write(f"{path}: {parts or 'nothing to send'}")
        if done.refusal is not None:
            _tell(done.refusal)
    good = {Outcome.SAME, Outcome.RECORDED, Outcome.KEPT}
    return 0 if all(one.outcome in good for one in done.checked) else FOUND


def _tell(error: CassetteError) -> None:
    note(error.message)
    if error.remedy:
        note(error.remedy)


def _item_json(item: Item) -> dict[str, Json]:
    return {"key": item.key, "sample": item.sample, "request": item.title}


def _checked_json(checked: Checked) -> Json:
    return {
        **_item_json(checked.item),
        "why": str(checked.item.why),
        "outcome": str(checked.outcome),
        "reason": checked.reason or None,
        "remedy": checked.remedy or None,
        "changes": [_change_json(change) for change in checked.changes],
    }


def _change_json(change: Change) -> Json:
    return {
        "kind": str(change.kind),
        "place": change.place,
        "recorded": change.recorded,
        "now": change.now,
    }
