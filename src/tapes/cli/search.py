"""`tapes search`: where words stand in what was asked and answered."""

import click

from tapes.api.items import found_item, hit_item
from tapes.cli.opened import project, store_options, too_short
from tapes.cli.output import json_option, note, one_line, shows_color, when, write, write_json
from tapes.rows import time_text
from tapes.store.base import MOST, Excerpt
from tapes.store.filters import parse

_LINE = 160


@click.command()
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, MOST), default=10, show_default=True)
@click.option("--id", "by_id", is_flag=True, help="QUERY is an id, or how one begins.")
@store_options
@json_option
def search(
    query: tuple[str, ...],
    *,
    limit: int,
    by_id: bool,
    store: str | None,
    org: str,
    config_dir: str | None,
    as_json: bool,
) -> int:
    """Find words in prompts, answers, tool arguments and results; or anything by its id.

    Status 1 where nothing is found.

    \b
    Example:
      tapes search umbrella model:gpt*
      tapes search --id toolu_03
    """
    text = " ".join(query)
    with project(store, org, config_dir) as log:
        if by_id:
            found = log.find(text, limit=limit)
            if as_json:
                write_json({"items": [found_item(each) for each in found]})
            for each in () if as_json else found:
                write(f"{each.noun.value[:-1]:8} {each.id}  session {(each.session_id or '-')[:8]}")
            if not found:
                note(f"nothing here has the id {text}{too_short(text)}")
            return 0 if found else 1
        page = log.search(parse(text), limit=limit)
    if as_json:
        write_json({"items": [hit_item(hit) for hit in page.items], "remarks": list(page.remarks)})
        return 0 if page.items else 1
    for hit in page.items:
        span = hit.span
        head = f"{when(time_text(span.started_at))}  {span.session_id[:8]}  {one_line(span.name)}"
        write(click.style(head, dim=True))
        for excerpt in hit.excerpts:
            write(f"  {excerpt.where:9} {_marked(excerpt)}")
    for remark in page.remarks:
        note(remark)
    if page.next_cursor:
        note("there are more: --limit shows them")
    if not page.items:
        note("nothing here has these words")
    return 0 if page.items else 1


def _marked(excerpt: Excerpt) -> str:
    """The text on one line, the places marked where a terminal can show it."""
    if not shows_color():
        return _plain(excerpt.text)[:_LINE]
    parts, at = [], 0
    for begin, end in excerpt.places:
        parts.append(_plain(excerpt.text[at:begin]))
        parts.append(click.style(_plain(excerpt.text[begin:end]), bold=True, fg="yellow"))
        at = end
    return "".join([*parts, _plain(excerpt.text[at:])])


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
