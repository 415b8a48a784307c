"""`tapes tail`: what agents do, as it happens."""

import time

import click

from tapes.api.items import session_item, span_item
from tapes.cli.opened import project, store_options
from tapes.cli.output import json_option, one_line, write, write_json_line
from tapes.jsontext import Json
from tapes.rows import Span, SpanKind, Status, time_text
from tapes.store.base import Project

POLL_S = 0.3


@click.command()
@click.option("--sessions", "whole", is_flag=True, help="Sessions as they change, not their spans.")
@click.option(
    "--since", type=click.IntRange(0, 2**63 - 1), help="From this change on; if not said, from now."
)
@click.option("--once", is_flag=True, help="What is there by now, and end.")
@store_options
@json_option
def tail(
    *,
    whole: bool,
    since: int | None,
    once: bool,
    store: str | None,
    org: str,
    config_dir: str | None,
    as_json: bool,
) -> None:
    """Follow calls, tools and sub-agents as they come into the log. Ctrl-C ends it.

    With --json each is one line of JSON.

    \b
    Example:
      tapes tail
      tapes tail --since 0 --once
    """
    with project(store, org, config_dir) as log:
        seq = log.seq() if since is None else since
        look = _look_at_sessions if whole else _look_at_spans
        while True:
            seq = look(log, seq, as_json)
            if once:
                return
            time.sleep(POLL_S)


def _look_at_sessions(log: Project, seq: int, as_json: bool) -> int:
    while changed := log.changes(seq):
        for change in changed:
            seq = change.seq
            listed = None if change.erased else log.session(change.session_id)
            if listed is None:
                _say({"erased": change.session_id}, f"erased {change.session_id}", as_json)
            else:
                item = session_item(listed, time.time_ns())
                _say(item, f"{item['id'][:8]}  {one_line(item['display_title'])[:100]}", as_json)
    return seq


def _look_at_spans(log: Project, seq: int, as_json: bool) -> int:
    while changed := log.changed_spans(seq):
        for number, span in changed:
            seq = max(seq, number)
            _say(span_item(span, "none"), _line(span), as_json)
    return seq


def _say(item: Json, line: str, as_json: bool) -> None:
    if as_json:
        write_json_line(item)
    else:
        write(line, flush_now=True)


_COLORS = {Status.ERROR: "red", Status.ABORTED: "yellow", Status.RUNNING: "cyan"}


def _line(span: Span) -> str:
    clock = time_text(span.started_at)[11:19]
    is_call = span.kind is SpanKind.LLM
    what = (span.model or span.request_model or span.name) if is_call else span.name
    took = "" if span.duration_ns is None else f"{span.duration_ns / 1e9:.1f} s"
    usage = span.usage if isinstance(span.usage, dict) else {}
    tokens = ""
    if usage.get("prompt_tokens") is not None:
        tokens = f"{usage['prompt_tokens']} → {usage.get('completion_tokens')}"
    status = "" if span.status is Status.OK else span.error_type or span.status.value
    parts = (
        clock,
        span.session_id[:8],
        f"{span.kind.value:5}",
        one_line(what),
        took,
        tokens,
        status,
    )
    return click.style("  ".join(filter(None, parts)), fg=_COLORS.get(span.status))
