"""`tapes sessions`: what agents did, from the command line.

Knows nothing of databases or of the API.
"""

import json
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import click

from tapes.api.items import display_title, erasure_item, session_item, whole_session
from tapes.cli.opened import opened, place_of, project, session_by, store_options, tenant_of
from tapes.cli.output import (
    Table,
    confirm,
    count,
    facts,
    json_option,
    money,
    note,
    one_line,
    size,
    when,
    width,
    write,
    write_json,
    write_json_list,
)
from tapes.errors import BadSetting
from tapes.exporting import Form
from tapes.rows import Session, Span, SpanKind, Status, Trace, time_text
from tapes.store.base import MOST, Ask, Listed, Noun, Project
from tapes.store.filters import EVERYTHING, parse

# How the kinds begin of calls that an agent makes beside the conversation.
_BESIDE = "offshoot:"
_MARKS = {Status.ERROR: "red", Status.ABORTED: "yellow", Status.MISSING: "yellow"}


@click.group()
def sessions() -> None:
    """Look at what agents did: list sessions, show one, erase, export, import.

    QUERY is words that stand in it, and fields: `model:claude*`, `has:error`, `cost:>0.5`,
    `since:24h`, `tag:review`. See `docs/sessions.md`.
    """


# --- list -------------------------------------------------------------------------------------


@sessions.command("list")
@click.argument("query", nargs=-1)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True)
@click.option("--sort", default="", help="last_active, started_at, total_cost_usd, …")
@click.option("--up", is_flag=True, help="The smallest, or oldest, first.")
@store_options
@json_option
def list_(
    query: tuple[str, ...],
    *,
    limit: int,
    sort: str,
    up: bool,
    store: str | None,
    org: str,
    config_dir: str | None,
    as_json: bool,
) -> None:
    """The latest sessions, or those that a query finds.

    \b
    Example:
      tapes sessions list
      tapes sessions list has:error since:24h
    """
    text = " ".join(query)
    where = parse(text) if text else EVERYTHING
    with project(store, org, config_dir) as log:
        found = _rows(log, Ask(where, sort, not up, limit=min(limit, MOST)), limit)
        if as_json:
            now = time.time_ns()
            write_json_list({}, "sessions", (session_item(each, now) for each in found))
            return
        table, shown = SessionTable(), 0
        for listed in found:
            table.row(listed)
            shown += 1
        total = log.count(Noun.SESSIONS, where)
        if not total.value and text:
            note("no session is so")
        elif not total.value:
            note("no session yet: tapes seed puts samples there, tapes serve captures your own")
        elif shown < total.value:
            more = "" if total.exact else "more than "
            note(f"{shown} of {more}{count(total.value, 'session')}; --limit shows more")


def _rows(log: Project, ask: Ask, limit: int) -> Iterator[Listed]:
    left = limit
    while True:
        page = log.sessions(ask)
        yield from page.items[:left]
        left -= len(page.items)
        for remark in page.remarks:
            note(remark)
        if left <= 0 or page.next_cursor is None:
            return
        ask = Ask(ask.where, ask.sort, ask.descending, page.next_cursor, min(left, MOST))


# A terminal with fewer columns gets fewer of ours.
_WIDE = 80


class SessionTable:
    """Sessions, as much of each as there is room for."""

    def __init__(self) -> None:
        room = width()
        self._is_wide = room is None or room >= _WIDE
        self._table = (
            Table(started=16, status=9, turns=-5, tokens=-8, cost=-9, id=8, title=40)
            if self._is_wide
            else Table(started=10, id=8, title=40)
        )

    def row(self, listed: Listed) -> None:
        """One session."""
        session = listed.session
        started, title = (
            when(time_text(session.started_at)), one_line(display_title(session, listed.notes)),
        )  # fmt: skip
        cells: list[object] = [
            started,
            session.derived_status,
            session.turn_count,
            session.total_tokens if session.total_tokens is not None else "-",
            _cost(session),
            session.id[:8],
            title,
        ]
        if not self._is_wide:
            cells = [started[:10], session.id[:8], title]
        self._table.row(*cells, color="red" if session.derived_status == "failed" else None)


def _cost(session: Session) -> str:
    cost = _spent(session)
    if cost is None:
        return "-"
    return money(cost) + ("+" if session.unpriced_calls else "")


def _spent(session: Session) -> Decimal | None:
    """What a tape answered cost nothing: that is known also where there is no other call."""
    is_replay = session.replayed_calls > 0 and session.unpriced_calls == 0
    return Decimal(0) if session.total_cost_usd is None and is_replay else session.total_cost_usd


# --- show -------------------------------------------------------------------------------------


@sessions.command("show")
@click.argument("session_id", metavar="ID")
@click.option("--full", is_flag=True, help="Texts in full length.")
@store_options
@json_option
def show(
    session_id: str,
    *,
    full: bool,
    store: str | None,
    org: str,
    config_dir: str | None,
    as_json: bool,
) -> None:
    """One session: its numbers, and what happened, turn by turn.

    ID is any id that you have: the session's or its first 8 characters, the agent's own, a
    trace's, a tool call's, a response's.

    \b
    Example:
      tapes sessions show 5a3c9f1e
    """
    with project(store, org, config_dir) as log:
        listed = session_by(log, session_id)
        if as_json:
            sheet = log.sheet_of_session(listed.session.id)
            pieces = whole_session(listed, sheet, "full", time.time_ns())
            write_json(json.loads(b"".join(pieces)))
            return
        rows = log.rows_of_session(listed.session.id)
    _show_head(listed)
    spans: dict[str, list[Span]] = {}
    for span in rows.spans:
        spans.setdefault(span.trace_id, []).append(span)
    for trace in rows.traces:
        _show_trace(trace, spans.get(trace.trace_id, []), full=full)


def _show_head(listed: Listed) -> None:
    session = listed.session
    tokens = f"{session.total_input_tokens} in, {session.total_output_tokens} out"
    cost = money(_spent(session))
    if session.unpriced_calls:
        cost += f" + {count(session.unpriced_calls, 'unpriced call')}"
    facts(
        ("session", session.id),
        ("title", one_line(display_title(session, listed.notes))),
        ("agent", " ".join(filter(None, (session.harness_id, session.harness_version)))),
        ("its own id", session.harness_session_id),
        ("folder", session.cwd or None),
        ("status", session.derived_status),
        ("when", f"{when(time_text(session.started_at))}, {_length(session.duration_ns)}"),
        ("models", ", ".join(usage.model for usage in session.model_usage) or None),
        ("tokens", tokens if session.total_tokens is not None else "unknown"),
        ("cost", cost),
        ("saved", money(session.saved_cost_usd) if session.saved_cost_usd is not None else None),
        ("tags", ", ".join(listed.notes.tags) or None),
        ("pinned", "yes" if listed.notes.pinned else None),
    )


def _length(nanoseconds: int | None) -> str:
    if nanoseconds is None:
        return "-"
    seconds = nanoseconds / 1e9
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _show_trace(trace: Trace, spans: list[Span], *, full: bool) -> None:
    write()
    head = f"▸ {_cut(trace.user_prompt or trace.synthetic or trace.trace_id, full)}"
    write(click.style(head, bold=True))
    below: dict[str, list[Span]] = {}
    known = {span.span_id for span in spans}
    for span in spans:
        parent = span.parent_span_id if span.parent_span_id in known else ""
        below.setdefault(parent, []).append(span)
    todo = [(span, 1) for span in reversed(below.get("", []))]
    while todo:
        span, depth = todo.pop()
        _show_span(span, depth, full=full)
        todo += [(child, depth + 1) for child in reversed(below.get(span.span_id, []))]


def _show_span(span: Span, depth: int, *, full: bool) -> None:
    told = {
        SpanKind.LLM: lambda: _said(span, full),
        SpanKind.TOOL: lambda: f"{span.name}({_cut(_texts(span.input, 'tool_input'), full)})",
        SpanKind.AGENT: lambda: f"agent {span.agent or span.name}",
    }.get(span.kind, lambda: span.name)()
    facts_of = [_length(span.duration_ns)]
    if span.kind is SpanKind.LLM:
        if span.raw_turn_id is not None:
            facts_of.insert(0, f"turn {span.raw_turn_id}")
        facts_of.append(span.model or span.request_model)
        if span.call_kind.startswith(_BESIDE):
            facts_of.append(span.call_kind.removeprefix(_BESIDE))
        if span.outcome not in ("", "live"):
            facts_of.append(span.outcome)
    if span.status is not Status.OK:
        facts_of.append(span.error_type or span.status.value)
    line = f"{'  ' * depth}{span.kind.value:5} {told}  [{', '.join(filter(None, facts_of))}]"
    write(click.style(line, fg=_MARKS.get(span.status)))
    if span.kind is SpanKind.TOOL and span.output:
        write(f"{'  ' * depth}      → {_cut(_texts(span.output, 'tool_output'), full)}")


def _said(span: Span, full: bool) -> str:
    return _cut(_texts(span.output, "text") or "(no text)", full)


def _texts(blocks: tuple[dict[str, Any], ...], name: str) -> str:
    return " ".join(_text(block[name]) for block in blocks if block.get(name))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str, full: bool) -> str:
    plain = one_line(text)
    return plain if full or len(plain) <= 100 else f"{plain[:99]}…"


# --- erase ------------------------------------------------------------------------------------


@sessions.command("delete")
@click.argument("session_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", default="", help="Why; it is kept in the audit.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_options
@json_option
def delete(
    session_ids: tuple[str, ...],
    *,
    reason: str,
    dry_run: bool,
    yes: bool,
    store: str | None,
    org: str,
    config_dir: str | None,
    as_json: bool,
) -> None:
    """Erase sessions for good: from the log, all that was derived, the index, the file's bytes.

    \b
    Example:
      tapes sessions delete 5a3c9f1e --dry-run
    """
    with project(store, org, config_dir) as log:
        ids = [session_by(log, text).session.id for text in session_ids]
        plan = log.erase(ids, reason=reason, by="command line", dry_run=True)
        if not (dry_run or yes):
            many = count(plan.sessions, "session"), count(plan.turns, "turn"), size(plan.bytes)
            confirm(
                f"erase {', '.join(many)} for good?",
                "nothing was erased; to erase without being asked: --yes",
            )
        done = plan
        if not dry_run:
            done = log.erase(ids, reason=reason, by="command line")
    if as_json:
        write_json(erasure_item(done, planned=dry_run))
        return
    verb = "would go" if dry_run else "went"
    parts = count(done.sessions, "session"), count(done.turns, "turn"), size(done.bytes)
    write(f"{', '.join(parts)} {verb}")
    for path in done.tapes:
        note(f"a tape made from it is not touched: {path}")
    for path in done.backups:
        note(f"a backup still holds it: {path}")
    for path in done.unsearched:
        note(f"it may hold some of it, what is damaged in it cannot be searched: {path}")


# --- out and in -------------------------------------------------------------------------------


_KINDS = click.Choice([str(form) for form in Form])


@sessions.command("export")
@click.argument("target", metavar="FILE", type=click.Path())
@click.argument("query", nargs=-1)
@click.option("--format", "kind", type=_KINDS, help="If FILE does not say.")
@click.option("--content", is_flag=True, help="Texts too, in OTLP.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@store_options
@json_option
def export(
    target: str,
    query: tuple[str, ...],
    *,
    kind: str | None,
    content: bool,
    force: bool,
    store: str | None,
    org: str,
    config_dir: str | None,
    as_json: bool,
) -> None:
    """Write sessions, all or those that a query finds, into a file.

    .jsonl has their raw turns, and comes back with `tapes sessions import`; .json is OpenTelemetry
    (OTLP), .parquet a table of spans. - is standard output.

    \b
    Example:
      tapes sessions export review.jsonl tag:review
      tapes sessions export spans.parquet since:7d
    """
    from tapes.cli.exporting import written

    form = Form(kind or _kind_of(target))
    text = " ".join(query)
    where = parse(text) if text else EVERYTHING
    with project(store, org, config_dir) as log:
        waiting = log.waiting()
        done = written(log, where, target, form, force=force, content=content)
        log.note("export", by="command line", details={"format": form, "query": text})
    if waiting:
        note(f"not in it yet: {count(waiting, 'session')} to derive: tapes derive")
    if as_json and target != "-":
        told = {"file": target, "format": form, "sessions": done.sessions, "rows": done.rows}
        write_json(told)
        return
    note(f"{target}: {count(done.sessions, 'session')}, {done.rows} rows")


def _kind_of(target: str) -> str:
    for ending, kind in ((".jsonl", "jsonl"), (".parquet", "parquet"), (".json", "otlp")):
        if target.endswith(ending):
            return kind
    raise BadSetting(f"{target} does not say its format", "add: --format jsonl, otlp or parquet")


@sessions.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@store_options
@json_option
def import_(
    files: tuple[str, ...],
    *,
    store: str | None,
    org: str,
    config_dir: str | None,
    as_json: bool,
) -> None:
    """Bring exported sessions (.jsonl, or .json of OpenTelemetry) into the log.

    Doing it again changes nothing.

    \b
    Example:
      tapes sessions import review.jsonl
    """
    from tapes.cli.exporting import brought
    from tapes.keeping import cleaner_of, open_projector

    tenant = tenant_of(org)
    redactor = cleaner_of(place_of(store, config_dir))
    with opened(store, config_dir, may_make=True) as log:
        done = brought(log, files, tenant, redactor)
        open_projector(log).drain()
    if as_json:
        write_json(done)
    else:
        gone = f", {done['erased']} were erased for good" if done["erased"] else ""
        write(f"{count(done['new'], 'turn')} added, {done['known']} there already{gone}")


# --- compare ----------------------------------------------------------------------------------


@click.command
@click.argument("one", metavar="ID")
@click.argument("other", metavar="ID")
@store_options
@json_option
def diff(
    one: str,
    other: str,
    *,
    store: str | None,
    org: str,
    config_dir: str | None,
    as_json: bool,
) -> int:
    """Where two sessions part: the first call that differs, and what each took. Status 1 if so.

    \b
    Example:
      tapes diff weather-live weather-replay
    """
    from tapes.sessiondiff import compared

    with project(store, org, config_dir) as log:
        pair = [session_by(log, text) for text in (one, other)]
        left, right = (log.rows_of_session(each.session.id) for each in pair)
    difference = compared(pair[0].session, left, pair[1].session, right)
    if as_json:
        write_json(difference.as_json())
    else:
        write(difference.as_text())
    return 1 if difference.is_some else 0
