"""How the results of work on tapes look: for people in lines, for programs as values.

Knows nothing of how results come about.
"""

from collections.abc import Sequence

import click

from tapes.cli.output import Table, count, facts, moment, money, when, write
from tapes.cli.views import SHORT, dim, quoted
from tapes.errors import as_typed
from tapes.exchange import Request
from tapes.jsontext import Json
from tapes.scanning import Finding, Scrubbed
from tapes.spending import Account
from tapes.summary import said_in, what_of
from tapes.tape.copying import Copied
from tapes.tape.mending import Damage, Verified
from tapes.tape.pruning import Pruning

# --- verify -----------------------------------------------------------------------------------


def verified(found: Verified) -> None:
    """What is on a tape, and all that is wrong with it."""
    for damage in found.damage:
        write(f"{click.style(damage.place, fg='red')}: {damage.what} {dim(f'({damage.fault})')}")
    parts = [count(found.rows, "row")]
    parts += [f"{found.incomplete:,} incomplete"] if found.incomplete else []
    parts += [count(found.bodies, "body", "bodies")] if found.bodies else []
    parts += [f"{found.unchecked:,} without a request to check"] if found.unchecked else []
    sound = "all sound" if not found.damage else f"{count(len(found.damage), 'place')} damaged"
    write(f"{found.path}: {', '.join(parts)}; {sound}")
    if found.mended is not None:
        mended = found.mended
        saved = f", {count(mended.salvaged, 'row')} saved out of them" if mended.salvaged else ""
        write(f"mended: {count(mended.set_aside, 'part')} set aside{saved}")
        write(f"set aside in: {mended.aside}")
        write(f"as it was:    {mended.backup}")
    elif found.damage:
        write(f"to set it aside and keep the rest: tapes tape verify --mend {as_typed(found.path)}")


def verified_json(found: Verified) -> Json:
    """What `verify` shows."""
    mended = found.mended
    return {
        "tape": found.path,
        "kind": found.kind,
        "rows": found.rows,
        "incomplete": found.incomplete,
        "bodies": found.bodies,
        "unchecked": found.unchecked,
        "damage": [_damage_json(damage) for damage in found.damage],
        "mended": None
        if mended is None
        else {
            "set_aside": mended.set_aside,
            "salvaged": mended.salvaged,
            "aside": str(mended.aside),
            "backup": str(mended.backup),
        },
    }


def _damage_json(damage: Damage) -> Json:
    return {
        "place": damage.place,
        "fault": str(damage.fault),
        "what": damage.what,
        "key": damage.key,
    }


# --- merge, convert ---------------------------------------------------------------------------


def merged(into: str, copied: Sequence[Copied]) -> None:
    """What came from where."""
    for each in copied:
        parts = [f"{count(each.rows, 'row')} came"]
        parts += [f"{count(each.known, 'key')} known already"] if each.known else []
        parts += [f"{count(each.kept_out, 'answer')} kept out"] if each.kept_out else []
        write(f"{each.source}: {', '.join(parts)}")
    write(f"to look at it: tapes tape ls {as_typed(into)}")


def converted(copied: Copied) -> None:
    """What was written."""
    write(f"{copied.target}: {count(copied.rows, 'row')} written")
    if copied.left_out:
        write(
            f"{count(copied.left_out, 'superseded row')} left out:"
            " a directory has one answer a request"
        )


def copied_json(copied: Copied) -> Json:
    """What came from one tape to another."""
    return {name: getattr(copied, name) for name in Copied.__slots__}


# --- prune ------------------------------------------------------------------------------------


def pruning(found: Pruning, dry_run: bool) -> None:
    """What went, or would go."""
    if found.gone:
        table = Table(key=SHORT, recorded=16, why=22, request=0)
        for gone in found.gone:
            table.row(
                gone.key[:SHORT], when(gone.recorded_at), gone.why, _request_line(gone.request)
            )
    bodies = f" and {count(found.bodies, 'body', 'bodies')}" if found.bodies else ""
    verb = "would go" if dry_run else "gone"
    write(f"{found.path}: {count(len(found.gone), 'row')}{bodies} {verb}, {found.kept:,} stay")


def _request_line(form: Json) -> str:
    """A request as it lies on a tape, in a few words."""
    if isinstance(form, dict) and {"method", "url"} <= form.keys():
        body = form.get("body")
        asked = body.get("json") if isinstance(body, dict) else None
        head = what_of(Request(str(form["method"]), str(form["url"])))
        return " ".join(filter(None, (head, quoted(said_in(asked)))))
    return quoted(said_in(form))


def pruning_json(found: Pruning, dry_run: bool) -> Json:
    """What `prune` shows."""
    gone = [
        {"key": row.key, "place": row.place, "why": row.why, "recorded_at": row.recorded_at}
        for row in found.gone
    ]
    return {
        "tape": found.path,
        "dry_run": dry_run,
        "gone": gone,
        "kept": found.kept,
        "bodies": found.bodies,
    }


# --- scan, scrub ------------------------------------------------------------------------------


def findings(found: Sequence[Finding], looked: int) -> None:
    """Where secrets are; never the secrets."""
    _finding_lines(found)
    where = len({finding.path for finding in found})
    if not found:
        write(f"no secrets found in {count(looked, 'file')}")
        return
    write(f"{count(len(found), 'secret')} in {where} of {count(looked, 'file')}")
    write(f"to take them out of a tape: tapes tape scrub {as_typed(found[0].path)}")
    write("what was shared or committed is known: revoke it at its provider")


def _finding_lines(found: Sequence[Finding]) -> None:
    for finding in found:
        place = click.style(f"{finding.path}, {finding.place}", fg="red")
        write(f"{place}: {finding.name}  {dim(finding.excerpt)}")


def finding_json(finding: Finding) -> Json:
    """A place where a secret is."""
    return {name: getattr(finding, name) for name in Finding.__slots__}


def scrubbed(found: Scrubbed) -> None:
    """What was taken out."""
    if not found.findings:
        write(f"{found.path}: no secrets found; nothing was changed")
        return
    _finding_lines(found.findings)
    taken = count(len(found.findings), "secret")
    write(f"{found.path}: {taken} taken out of {count(found.rows, 'row')}")
    for old, new in found.rekeyed.items():
        write(f"key {old[:SHORT]} is now {new[:SHORT]}: its request changed")
    together = len(found.rekeyed) - len(set(found.rekeyed.values()))
    if together:
        write(f"{count(together, 'answer')} superseded: the requests differed in a secret only")
    if found.backup is not None:
        write(f"as it was, secrets included: {found.backup} (delete it once you are content)")
    write("what was shared or committed is known: revoke it at its provider")


def scrubbed_json(found: Scrubbed) -> Json:
    """What `scrub` shows."""
    return {
        "tape": found.path,
        "findings": [finding_json(finding) for finding in found.findings],
        "rows": found.rows,
        "rekeyed": found.rekeyed,
        "backup": None if found.backup is None else str(found.backup),
    }


# --- budget -----------------------------------------------------------------------------------


def accounts(found: Sequence[Account]) -> None:
    """The accounts of all tapes below a folder."""
    if not found:
        write("no live call was counted for a tape below this folder")
        return
    table = Table(calls=-7, open=-5, tokens=-12, usd=-12, left=24, tape=0)
    for each in found:
        table.row(
            f"{len(each.counted):,}",
            sum(spend.state == "open" for spend in each.counted) or "",
            f"{each.tokens:,}",
            money(each.usd),
            str(each.left) if each.limits.are_set else "no limit is set",
            each.path,
        )


def account(found: Account) -> None:
    """Who spent what on one tape."""
    facts(
        ("tape", found.path),
        ("run", found.run or None),
        ("limits", str(found.limits) if found.limits.are_set else "none is set here"),
        (
            "spent",
            f"{count(len(found.counted), 'call')}, {found.tokens:,} tokens, {money(found.usd)}",
        ),
        ("left", str(found.left) if found.limits.are_set else None),
    )
    if found.lines:
        write()
        table = Table(when=19, state=22, key=SHORT, tokens=-8, usd=-10, pid=-8, host=0)
        for line in found.lines:
            spend = line.spend
            state = "open: its process died" if line.is_lost else spend.state
            table.row(
                moment(spend.at),
                state,
                spend.key[:SHORT],
                f"{spend.tokens:,}",
                money(spend.usd),
                spend.pid,
                spend.host,
                color="yellow" if spend.state == "open" else None,
            )
        write(dim(f"to begin anew: tapes budget reset {as_typed(found.path)}"))


def account_json(found: Account) -> Json:
    """What `budget show` shows."""
    limits, left = found.limits, found.left
    return {
        "tape": found.path,
        "run": found.run,
        "limits": {"calls": limits.calls, "tokens": limits.tokens, "usd": limits.usd},
        "spent": {"calls": len(found.counted), "tokens": found.tokens, "usd": found.usd},
        "left": {"calls": left.calls, "tokens": left.tokens, "usd": left.usd},
        "calls": [
            {
                "key": line.spend.key,
                "state": line.spend.state,
                "is_lost": line.is_lost,
                "host": line.spend.host,
                "pid": line.spend.pid,
                "at": line.spend.at,
                "tokens": line.spend.tokens,
                "usd": line.spend.usd,
            }
            for line in found.lines
        ],
    }
