"""`tapes tape`: looking into tapes, and keeping them in order.

Knows nothing of how tapes are read or changed: each command calls one library function.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TextIO

import click

from tapes.cli import outcomes, views
from tapes.cli.output import (
    json_option,
    note,
    progress,
    write_bytes,
    write_json,
    write_json_list,
)
from tapes.cli.refresh import can_go_live, refresh_
from tapes.comparing import answer_differences, compare_tapes, exchange_differences
from tapes.errors import BadSetting, DamagedTape, TapesError, UnknownKey, as_typed
from tapes.exchange import Exchange, Request, Response, row_of
from tapes.expiry import age_of
from tapes.explanation import explain as explain_request
from tapes.explanation import request_of_text
from tapes.jsontext import Json, compact
from tapes.prices import price_of
from tapes.project import declared_for
from tapes.report import KEPT_RUNS, runs_of
from tapes.scanning import Finding, scan_file
from tapes.scanning import scan as scan_tape
from tapes.scanning import scrub as scrub_tape
from tapes.stats import latest_used, stats_of
from tapes.summary import summary_of
from tapes.tape.base import Tape
from tapes.tape.copying import convert as convert_tape
from tapes.tape.copying import merge as merge_tapes
from tapes.tape.finding import find_tapes, glance_at
from tapes.tape.kinds import kind_of, open_tape
from tapes.tape.mending import mend
from tapes.tape.mending import verify as verify_tape
from tapes.tape.pruning import Choice, plan_pruning
from tapes.tape.pruning import prune as prune_tape
from tapes.tape.raw import exchanges, key_that_begins, kind_of_existing, open_rows

FOUND = 1

tape_argument = click.argument("path", metavar="TAPE", type=click.Path())


@click.group()
def tape() -> None:
    """Look into tapes, and keep them in order.

    A TAPE is a file (.jsonl, .db) or a directory of answers. A KEY is the first 4 digits or more
    of a key on the tape.

    \b
    Example:
      tapes tape ls tests/tapes
      tapes tape show tests/tapes/weather.jsonl 3f9a
    """


# --- looking ----------------------------------------------------------------------------------


@tape.command()
@click.argument("paths", nargs=-1, type=click.Path())
@json_option
def ls(paths: tuple[str, ...], as_json: bool) -> int:
    """List the tapes below folders, or the exchanges of one tape.

    Without PATHS: the tapes below this folder.

    \b
    Example:
      tapes tape ls
      tapes tape ls tests/tapes/weather.jsonl
      tapes tape ls --json .cassettes
    """
    if len(paths) == 1 and _is_tape(paths[0]):
        _list_exchanges(paths[0], as_json)
        return 0
    return _list_tapes(paths or (".",), as_json)


def _is_tape(path: str) -> bool:
    """Whether a path is a tape itself. Raises UnreadableTape for one that is not there."""
    try:
        kind = kind_of_existing(path)
    except TapesError:
        if os.path.isdir(path):
            return False
        raise
    return kind != "directory" or bool(os.listdir(path))


def _list_exchanges(path: str, as_json: bool) -> None:
    with open_rows(path) as rows:
        if not as_json:  # the rows themselves show how far it is
            table = views.ExchangeTable()
            for _, exchange in exchanges(rows):
                table.row(summary_of(exchange))
            return
        with progress(f"reading {path}") as told:

            def summaries() -> Iterator[dict[str, object]]:
                for raw, exchange in exchanges(rows):
                    told(raw.done)
                    yield summary_of(exchange).as_dict()

            write_json_list({"tape": path, "kind": rows.kind}, "exchanges", summaries())


def _list_tapes(paths: tuple[str, ...], as_json: bool) -> int:
    found = []
    with progress("looking for tapes") as told:
        for number, path in enumerate(paths):
            told(number / len(paths))
            tapes = [path] if os.path.isfile(path) or _is_tape(path) else []
            if os.path.isdir(path):
                tapes = list(find_tapes(path))
            found += [glance_at(name) for name in tapes]
    if as_json:
        write_json({"tapes": [views.glance_json(glance) for glance in found]})
    else:
        views.glances(found, paths)
    errors = [glance.error for glance in found if glance.error is not None]
    for error in errors:
        note(str(error))
    return errors[0].exit_status if errors else 0


@tape.command()
@tape_argument
@click.argument("key")
@click.option("--raw", is_flag=True, help="Only the bytes of the response's body.")
@click.option("--raw-request", is_flag=True, help="Only the bytes of the request's body.")
@json_option
def show(path: str, key: str, raw: bool, raw_request: bool, as_json: bool) -> None:
    """Show one exchange: the request, the answer, and when each piece came.

    \b
    Example:
      tapes tape show tests/tapes/weather.jsonl 3f9a
      tapes tape show --raw tests/tapes/weather.jsonl 3f9a > answer.sse
      tapes tape show --json tests/tapes/weather.jsonl 3f9a
    """
    exchange = _exchange(path, key)
    if raw or raw_request:
        write_bytes(_body(exchange.response if raw else exchange.request))
    elif as_json:
        write_json(row_of(exchange))
    else:
        views.exchange(exchange)


def _exchange(path: str, key: str) -> Exchange:
    whole = key_that_begins(path, key)
    found = open_tape(path)
    try:
        exchange = found.find(whole)
    finally:
        found.close()
    if exchange is None:
        raise UnknownKey(
            f"{whole[:12]} is no longer on {path}", f"see: tapes tape ls {as_typed(path)}"
        )
    return exchange


def _body(part: Request | Response | Json) -> bytes:
    return part.body if isinstance(part, Request | Response) else compact(part).encode()


@tape.command()
@tape_argument
@json_option
def stats(path: str, as_json: bool) -> None:
    """What a tape holds, what runs did with it, and what replay has saved.

    Runs are this machine's own; the last 50 of a tape are kept. Prices come from genai-prices;
    a model that it does not know has no price, not the price zero.

    \b
    Example:
      tapes tape stats tests/tapes/weather.jsonl
    """
    with progress(f"reading {path}") as told:
        found = stats_of(path, price_of, told)
    if as_json:
        write_json(views.stats_json(found))
    else:
        views.stats(found)


@tape.command()
@click.argument("tapes", nargs=-1, required=True, metavar="TAPE_A TAPE_B | TAPE KEY KEY")
@click.option("--all", "show_all", is_flag=True, help="Every difference, however many there are.")
@json_option
def diff(tapes: tuple[str, ...], show_all: bool, as_json: bool) -> int:
    """What two tapes answer differently; or where two exchanges of one tape differ.

    Ends with status 1 where there is a difference.

    \b
    Example:
      tapes tape diff main.jsonl branch.jsonl
      tapes tape diff weather.jsonl 3f9a 81c0
    """
    if len(tapes) == 3:
        path, *keys = tapes
        one, other = (_exchange(path, key) for key in keys)
        found = exchange_differences(one, other)
        if as_json:
            write_json(views.exchange_differences_json(path, one, other, found))
        else:
            views.exchange_differences(one, other, found, show_all)
        return FOUND if found else 0
    if len(tapes) != 2:
        raise click.UsageError("give two tapes, or one tape and two keys")
    with progress("comparing") as told:
        compared = compare_tapes(*tapes, told)
    left, right = open_tape(tapes[0]), open_tape(tapes[1])
    try:
        answers = ((key, answer_differences(left, right, key)) for key in compared.differing)
        if as_json:
            write_json(views.tape_differences_json(compared, answers))
        else:
            views.tape_differences(compared, answers, show_all)
    finally:
        left.close()
        right.close()
    return 0 if compared.are_none else FOUND


@tape.command()
@tape_argument
@click.argument("key", required=False)
@click.option("--request", "source", type=click.File(), help="A file with the request, or -.")
@click.option("--http", "over_http", is_flag=True, help="The file holds an HTTP request.")
@click.option("--canonicalizer", help="tape/1 or directory/1; else as the tape's kind has it.")
@click.option("--sample", default=0, show_default=True, help="Which answer of several.")
@json_option
def explain(
    path: str,
    key: str | None,
    source: TextIO | None,
    over_http: bool,
    canonicalizer: str | None,
    sample: int,
    as_json: bool,
) -> int:
    """How a request's key comes about, and why it hits or misses.

    Give a KEY that is on the tape, or a request: a JSON object as a program passes it to call(),
    or with --http {"method": …, "url": …, "headers": …, "body": …}. Ends with status 1 on a miss.

    \b
    Example:
      tapes tape explain weather.jsonl 3f9a
      tapes tape explain weather.jsonl --request request.json
      echo '{"prompt": "hello"}' | tapes tape explain weather.jsonl --request -
    """
    if (key is None) is (source is None):
        raise click.UsageError("give either a KEY or --request FILE")
    kind = kind_of_existing(path)
    rule = canonicalizer or ("directory/1" if kind == "directory" else "tape/1")
    if key is not None:
        exchange = _exchange(path, key)
        if exchange.request is None:
            raise BadSetting(
                f"{exchange.key[:12]} was kept without its request, so there is nothing to explain",
                f"give the request itself: tapes tape explain {as_typed(path)} --request FILE",
            )
        request, sample = exchange.request, sample or exchange.sample
        rule = canonicalizer or (rule if isinstance(request, Request) else exchange.canonicalizer)
    else:
        assert source is not None
        request = request_of_text(_text(source), over_http=over_http)
    opened = open_tape(path)
    try:
        found = explain_request(
            opened, request, declared_for(path), canonicalizer=rule, sample=sample
        )
    finally:
        opened.close()
    if as_json:
        write_json(views.explanation_json(path, found))
    else:
        views.explanation(path, found)
    return 0 if found.error is None else found.error.exit_status


def _text(source: TextIO) -> str:
    try:
        return source.read()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no UTF-8"
        raise BadSetting(
            f"the request in {source.name} cannot be read: {why}",
            "give it as one JSON object in a file, or on standard input: --request -",
        ) from error


# --- keeping in order -------------------------------------------------------------------------


@tape.command()
@tape_argument
@click.option("--mend", "mends", is_flag=True, help="Set damaged places aside, keep the rest.")
@json_option
def verify(path: str, mends: bool, as_json: bool) -> int:
    """Read all of a tape: recompute every key, check every row and every body.

    All damage is told, each with its place. Ends with status 3 where there is any; with --mend,
    which keeps the original and sets aside only what nothing can be made of, with status 1.

    \b
    Example:
      tapes tape verify weather.jsonl
      tapes tape verify --mend weather.jsonl
    """
    headers = declared_for(path).headers
    with progress(f"verifying {path}") as told:
        found = (mend if mends else verify_tape)(path, headers, told)
    if as_json:
        write_json(outcomes.verified_json(found))
    else:
        outcomes.verified(found)
    if found.mended is not None:
        return FOUND
    return DamagedTape.exit_status if found.damage else 0


@tape.command()
@click.argument("into", type=click.Path())
@click.argument("sources", metavar="FROM...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--prefer",
    type=click.Choice(["ours", "theirs"]),
    help="Who answers where tapes differ: what comes first, or what comes later.",
)
@json_option
def merge(into: str, sources: tuple[str, ...], prefer: str | None, as_json: bool) -> None:
    """Put everything of other tapes onto INTO, of whatever kinds they are.

    Keys and answers stay as they are; samples, incomplete recordings and bodies come along. Where
    two tapes answer one request differently, nothing is written (status 5), unless --prefer says
    who is right. Doing it again changes nothing.

    \b
    Example:
      tapes tape merge all.jsonl worker-1.jsonl worker-2.jsonl
      tapes tape merge --prefer theirs shared.db branch.jsonl
    """
    with progress(f"merging into {into}") as told:
        copied = merge_tapes(into, sources, prefer, told)
    if as_json:
        write_json({"into": into, "from": [outcomes.copied_json(c) for c in copied]})
    else:
        outcomes.merged(into, copied)


@tape.command()
@click.argument("source", metavar="FROM", type=click.Path())
@click.argument("target", metavar="TO", type=click.Path())
@json_option
def convert(source: str, target: str, as_json: bool) -> None:
    """Write a tape as another kind of tape: TO is made, and its name says the kind.

    .jsonl is a file for git, .db an SQLite database, a name with / at its end a directory.

    \b
    Example:
      tapes tape convert weather.jsonl weather.db
      tapes tape convert weather.db answers/
    """
    with progress(f"writing {target}") as told:
        copied = convert_tape(source, target, told)
    if as_json:
        write_json(outcomes.copied_json(copied))
    else:
        outcomes.converted(copied)


@tape.command()
@tape_argument
@click.option("--unused", is_flag=True, help="What the latest run did not use.")
@click.option(
    "--runs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="With --unused: the latest so many.",
)
@click.option("--superseded", is_flag=True, help="What a later recording has replaced.")
@click.option("--incomplete", is_flag=True, help="Streams that did not end.")
@click.option("--older-than", metavar="AGE", help="What was recorded before: 90d, 12h, 2w.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@json_option
def prune(
    path: str,
    unused: bool,
    runs: int,
    superseded: bool,
    incomplete: bool,
    older_than: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Take recordings off a tape by choice; everything else keeps its bytes.

    Each option names more of what goes. Look first with --dry-run.

    \b
    Example:
      tapes tape prune --unused --dry-run weather.jsonl
      tapes tape prune --superseded --incomplete weather.jsonl
      tapes tape prune --older-than 90d weather.jsonl
    """
    if not (unused or superseded or incomplete or older_than):
        raise click.UsageError(
            "say what is to go: --unused, --superseded, --incomplete or --older-than AGE"
        )
    choice = Choice(
        used=_used(path, runs) if unused else None,
        superseded=superseded,
        incomplete=incomplete,
        before=_before(older_than) if older_than else None,
    )
    with progress(f"pruning {path}") as told:
        found = (plan_pruning if dry_run else prune_tape)(path, choice, told)
    if as_json:
        write_json(outcomes.pruning_json(found, dry_run))
    else:
        outcomes.pruning(found, dry_run)


def _used(path: str, count: int) -> set[str]:
    """The keys that the latest runs used. Raises BadSetting where nobody can know."""
    kind_of_existing(path)
    opened: Tape = open_tape(path)
    try:
        runs = runs_of(opened)
    finally:
        opened.close()
    used = latest_used(runs, count)
    if used is not None:
        return used
    if runs:
        raise BadSetting(
            f"the latest run used {path} more often than is kept ({KEPT_RUNS} times), so nobody"
            " knows all that it used",
            "prune by age instead: --older-than 90d",
        )
    raise BadSetting(
        f"no run of {path} is known on this machine, so nobody knows what is unused",
        "run your program in replay first; its report is kept beside the tape",
    )


def _before(age: str) -> datetime:
    try:
        return datetime.now(UTC) - age_of(age)
    except OverflowError:
        raise BadSetting(f"{age!r} is no age", "for example: --older-than 90d") from None


@tape.command()
@click.argument("paths", metavar="[TAPE|FOLDER]...", nargs=-1, type=click.Path())
@click.option("--all-files", is_flag=True, help="Every file of the folders, not only tapes.")
@json_option
def scan(paths: tuple[str, ...], all_files: bool, as_json: bool) -> int:
    """Look for secrets that slipped onto tapes. Nothing secret is printed.

    Key patterns (those of tapes.toml too), fields and headers made for credentials, headers that
    look like keys. Ends with status 1 where something is found.

    \b
    Example:
      tapes tape scan tests/tapes
      tapes tape scan --all-files .
    """
    found, looked = list[Finding](), 0
    targets = list(_scan_targets(paths or (".",), all_files))
    with progress("looking for secrets") as told:
        for number, (path, as_tape) in enumerate(targets):
            told(number / len(targets))
            looked += 1
            found += scan_tape(path) if as_tape else scan_file(path)
    if as_json:
        write_json({"looked_at": looked, "findings": [outcomes.finding_json(f) for f in found]})
    else:
        outcomes.findings(found, looked)
    return FOUND if found else 0


def _scan_targets(paths: tuple[str, ...], all_files: bool) -> Iterator[tuple[str, bool]]:
    """What to look into, and whether as a tape or as a plain file."""
    for path in paths:
        if not os.path.isdir(path):
            kind_of_existing(path)  # raises where nothing is there
            yield path, not all_files
            continue
        tapes = list(find_tapes(path))
        yield from ((name, True) for name in tapes)
        if all_files:
            # A database is looked at as a file as well: what was deleted may still be in it.
            known = {name for name in tapes if kind_of(name) == "jsonl"}
            yield from ((name, False) for name in _files_below(path) if name not in known)


def _files_below(folder: str) -> Iterator[str]:
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != ".git")
        found = (os.path.normpath(os.path.join(where, name)) for name in sorted(files))
        # A pipe would be waited for, and a link that leads nowhere has no bytes.
        yield from filter(os.path.isfile, found)


@tape.command()
@tape_argument
@click.option("--backup/--no-backup", default=True, help="Keep the original, secrets included.")
@json_option
def scrub(path: str, backup: bool, as_json: bool) -> None:
    """Take the secrets that scan finds out of a tape.

    A request that changes gets the key that it then has: a program that sends the secret still
    finds its answer, since requests are redacted before they are looked up.

    \b
    Example:
      tapes tape scrub weather.jsonl
      tapes tape scrub --no-backup weather.jsonl
    """
    with progress(f"scrubbing {path}") as told:
        found = scrub_tape(path, backup=backup, progress=told)
    if as_json:
        write_json(outcomes.scrubbed_json(found))
    else:
        outcomes.scrubbed(found)


can_go_live(verify)
tape.add_command(refresh_)
