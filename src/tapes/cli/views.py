"""How tapes and exchanges look: for people in lines, for programs as values with lasting names.

Knows nothing of how results come about.
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal

import click

from tapes.answers import plain_response
from tapes.canonical import plain_body
from tapes.cli.output import (
    Table,
    count,
    cut,
    facts,
    money,
    shows_color,
    size,
    when,
    width,
    write,
)
from tapes.comparing import TapeDifferences
from tapes.errors import as_typed
from tapes.exchange import Exchange, Headers, Request, Response, State
from tapes.explanation import Explanation
from tapes.jsontext import Json, compact, read
from tapes.places import Difference
from tapes.stats import Recorded, Stats
from tapes.summary import Summary, request_json, said_in, summary_of, what_of
from tapes.tape.finding import Glance

_SHOWN = 20
_SHOWN_PLACES = 5
# The digits of a key that people get to see.
SHORT = 12


def dim(text: str) -> str:
    """A text that stands back."""
    return click.style(text, dim=True)


def _bold(text: str) -> str:
    return click.style(text, bold=True)


# --- ls ---------------------------------------------------------------------------------------


def glances(found: Sequence[Glance], paths: Sequence[str]) -> None:
    """The tapes below folders."""
    if not found:
        write(f"no tapes below {', '.join(paths)}")
        return
    room = width()
    is_wide = room is None or room >= _WIDE_TAPES
    table = (
        Table(exchanges=-9, incomplete=-10, size=-9, last_recorded=16, keys_by=14, tape=0)
        if is_wide
        else Table(exchanges=-9, size=-9, tape=0)
    )
    for glance in found:
        if glance.error is not None:
            unknown = ("?",) * (5 if is_wide else 2)
            table.row(*unknown, f"{glance.path}  (unreadable)", color="red")
            continue
        path = glance.path + ("/" if glance.kind == "directory" else "")
        cells: tuple[object, ...] = (
            f"{glance.exchanges:,}",
            glance.incomplete or "",
            size(glance.bytes),
            when(glance.last_recorded),
            ", ".join(glance.canonicalizers) or "-",
            path,
        )
        table.row(*(cells if is_wide else (cells[0], cells[2], path)))


def glance_json(glance: Glance) -> Json:
    """A tape at a glance."""
    return {
        "tape": glance.path,
        "kind": glance.kind,
        "exchanges": glance.exchanges,
        "incomplete": glance.incomplete,
        "bytes": glance.bytes,
        "last_recorded": glance.last_recorded,
        "canonicalizers": glance.canonicalizers,
        "error": None if glance.error is None else glance.error.message,
    }


# A terminal with fewer columns gets fewer of ours.
_WIDE, _WIDE_TAPES, _NARROW = 120, 90, 60


class ExchangeTable:
    """The exchanges of one tape, as much of each as there is room for."""

    def __init__(self) -> None:
        room = width()
        self._is_wide = room is None or room >= _WIDE
        self._is_narrow = room is not None and room < _NARROW
        if self._is_narrow:
            self._table = Table(key=8, status=-6, request=0)
            return
        self._table = (
            Table(
                key=12, recorded=16, status=-6, stream=6, tokens=-12, bytes=-9, model=20, request=0
            )
            if self._is_wide
            else Table(key=8, recorded=10, status=-6, tokens=-11, bytes=-8, request=0)
        )

    def row(self, summary: Summary) -> None:
        """One exchange."""
        complete = summary.state is State.COMPLETE
        status = "" if summary.status is None else summary.status
        tokens = (summary.input_tokens, summary.output_tokens)
        counted = " → ".join("?" if n is None else f"{n}" for n in tokens)
        sample = f"(sample {summary.sample})" if summary.sample else ""
        cells: list[object] = [
            summary.key[:12],
            when(summary.recorded_at),
            status if complete else "cut",
            "stream" if summary.stream else "",
            "" if tokens == (None, None) else counted,
            size(summary.bytes),
            cut(summary.model or "-", 20),
            " ".join(filter(None, (summary.what, quoted(summary.said), sample))),
        ]
        if not self._is_wide:
            request = quoted(summary.said) or summary.what
            day = when(summary.recorded_at)[:10]
            cells = [summary.key[:8], day, cells[2], *cells[4:6], request]
        if self._is_narrow:
            cells = [cells[0], cells[2], cells[-1]]
        self._table.row(*cells, color=None if complete else "yellow")


def quoted(text: str) -> str:
    """The words of a person, or nothing where there are none."""
    return f"“{text}”" if text else ""


# --- show -------------------------------------------------------------------------------------


def exchange(found: Exchange) -> None:
    """One exchange, as people read it."""
    summary = summary_of(found)
    rules = ", ".join(compact(rule) for rule in found.rules)
    tokens = (summary.input_tokens, summary.output_tokens)
    facts(
        ("key", found.key),
        ("recorded", found.recorded_at),
        ("keyed by", found.canonicalizer),
        ("sample", found.sample or None),
        ("state", None if found.state is State.COMPLETE else f"{found.state}: it never answers"),
        ("rules", rules or None),
        ("model", summary.model),
        ("tokens", None if tokens == (None, None) else f"{tokens[0]} in, {tokens[1]} out"),
    )
    write()
    _request(found.request)
    write()
    _response(found.response)


def _request(request: Request | Json) -> None:
    if request is None:
        write(_bold("request") + "  not kept: this tape holds answers alone")
    elif isinstance(request, Request):
        write(f"{_bold('request')}  {request.method} {request.url}")
        _headers(request.headers)
        _body(plain_body(request))
    else:
        write(_bold("request"))
        _json(request)


def _response(response: Response | Json) -> None:
    if not isinstance(response, Response):
        write(_bold("response"))
        _json(response)
        return
    last = response.pieces[-1].at if response.pieces else 0.0
    pieces = f"{count(len(response.pieces), 'piece')} in {last:.3f} s, {size(len(response.body))}"
    status = f"{response.status} {response.reason}".strip()
    write(f"{_bold('response')}  {status}  {dim(pieces)}")
    _headers(response.headers)
    if len(response.pieces) <= 1:
        _body(plain_response(response))
        return
    room = width()
    for piece in response.pieces:
        text = piece.data.decode("utf-8", "backslashreplace")
        line = "⏎".join(text.splitlines()) or "(empty)"
        write(f"{dim(f'{piece.at:9.3f}')}  {line if room is None else cut(line, room - 11)}")


def _headers(headers: Headers) -> None:
    for name, value in headers:
        write(f"  {dim(name + ':')} {value}")


def _body(body: bytes) -> None:
    if not body:
        return
    try:
        _json(read(body))
    except ValueError:
        write(body.decode("utf-8", "backslashreplace"))


def _json(value: Json) -> None:
    """JSON in colours where they can be seen."""
    from rich.console import Console  # imported where used: most commands do without
    from rich.json import JSON

    view = JSON.from_data(value, ensure_ascii=False)
    if not shows_color():
        write(view.text.plain)
        return
    console = Console(force_terminal=True, width=width(), soft_wrap=True)
    with console.capture() as captured:
        console.print(view)
    write(captured.get(), end="")


# --- stats ------------------------------------------------------------------------------------


def stats(found: Stats) -> None:
    """What a tape holds, what runs did with it, and what replay saved."""
    held = found.recorded
    models = ", ".join(f"{name} ({n:,})" for name, n in held.models.most_common(5))
    write(_bold(found.path))
    facts(
        ("recorded", f"{count(held.answers, 'answer')}, {size(held.bytes)}"),
        ("", _extra(held.superseded, held.incomplete, held.samples)),
        ("when", f"{when(held.first)} to {when(held.last)} UTC" if held.first else None),
        ("models", models or None),
        ("tokens", _tokens(held)),
        ("to record it again", _cost(held.usd, held.unpriced)),
    )
    write()
    if found.spent:
        usd = sum((spend.usd for spend in found.spent), Decimal(0))
        total = sum(spend.tokens for spend in found.spent)
        calls = count(len(found.spent), "live call")
        write(f"counted under a budget: {calls}, {total:,} tokens, {money(usd)}")
        write(f"to see whose: tapes budget show {as_typed(found.path)}")
        write()
    if not found.runs:
        write("no run of this tape is known on this machine")
        return
    saved = found.saved
    tokens = "unknown" if saved.tokens is None else f"{saved.tokens:,}"
    write(_bold(f"the latest {count(len(found.runs), 'run')} here"))
    facts(
        ("answered from the tape", f"{found.served:,}"),
        ("live calls", f"{found.total('live'):,}"),
        ("recorded", f"{found.newly_recorded:,}"),
        ("refused", f"{found.total('refused'):,}"),
        ("not used by the latest", f"{found.unused:,}"),
    )
    write()
    write(_bold("saved by replay"))
    facts(
        ("calls", f"{saved.calls:,}"),
        ("tokens", tokens),
        ("money", _cost(saved.usd, saved.unpriced)),
        ("kept instead", f"{size(held.bytes)} on disk, {size(saved.bytes)} answered from it"),
    )


def _tokens(held: Recorded) -> str:
    known = f"{held.input_tokens:,} in, {held.output_tokens:,} out"
    silent = count(held.without_usage, "answer does not say", "answers do not say")
    return f"{known}; {silent}" if held.without_usage else known


def _extra(superseded: int, incomplete: int, samples: int) -> str | None:
    parts = (
        (superseded, f"{superseded:,} superseded"),
        (incomplete, f"{incomplete:,} incomplete"),
        (samples, f"{count(samples, 'further sample')}"),
    )
    return ", ".join(text for number, text in parts if number) or None


def _cost(usd: Decimal | None, unpriced: int) -> str:
    if usd is None:
        return "unknown: no price for these models"
    return money(usd) + (
        f", and {count(unpriced, 'call')} without a known price" if unpriced else ""
    )


def stats_json(found: Stats) -> Json:
    """What `stats` shows."""
    held, saved = found.recorded, found.saved
    return {
        "tape": found.path,
        "kind": found.kind,
        "recorded": {
            "answers": held.answers,
            "superseded": held.superseded,
            "incomplete": held.incomplete,
            "samples": held.samples,
            "bytes": held.bytes,
            "input_tokens": held.input_tokens,
            "output_tokens": held.output_tokens,
            "without_usage": held.without_usage,
            "usd": held.usd,
            "unpriced": held.unpriced,
            "first": held.first,
            "last": held.last,
            "models": dict(held.models),
        },
        "runs": {
            "count": len(found.runs),
            "served": found.served,
            "live": found.total("live"),
            "recorded": found.newly_recorded,
            "refused": found.total("refused"),
            "not_stored": found.total("not_stored"),
            "incomplete": found.total("incomplete"),
            "unused_by_latest": found.unused,
        },
        "saved": {
            "calls": saved.calls,
            "tokens": saved.tokens,
            "usd": saved.usd,
            "unpriced": saved.unpriced,
            "bytes": saved.bytes,
        },
        "spent": {
            "calls": len(found.spent),
            "tokens": sum(spend.tokens for spend in found.spent),
            "usd": sum((spend.usd for spend in found.spent), Decimal(0)),
        },
    }


# --- diff -------------------------------------------------------------------------------------


def tape_differences(
    found: TapeDifferences,
    answers: Iterable[tuple[str, tuple[Difference, ...]]],
    show_all: bool,
) -> None:
    """What two tapes do not answer alike."""
    for keys, where, sign, color in (
        (found.only_ours, found.ours, "-", "red"),
        (found.only_theirs, found.theirs, "+", "green"),
    ):
        if keys:
            write(f"{count(len(keys), 'key')} only on {where}")
            shown = keys if show_all else keys[:_SHOWN]
            for key in shown:
                write(click.style(f"  {sign} {key[:SHORT]}", fg=color))
            _more(len(keys) - len(shown))
    if found.differing:
        write(f"{count(len(found.differing), 'key')} answered differently")
        for number, (key, places) in enumerate(answers):
            if number == _SHOWN and not show_all:
                _more(len(found.differing) - number)
                break
            write(f"  {_bold(key[:SHORT])}")
            _places(places, show_all, "    ")
    write(f"{count(found.same, 'key')} answered alike")


def exchange_differences(
    one: Exchange, other: Exchange, found: Sequence[Difference], show_all: bool
) -> None:
    """Where two exchanges differ."""
    for sign, side, color in (("-", one, "red"), ("+", other, "green")):
        write(click.style(f"{sign} {side.key[:SHORT]}  {what_of(side.request)}", fg=color))
    if not found:
        write("they do not differ")
    _places(found, show_all, "")


def _places(
    places: Sequence[Difference], show_all: bool, indent: str, option: str = "--all"
) -> None:
    limit = len(places) if show_all else _SHOWN_PLACES if indent else _SHOWN
    for difference in places[:limit]:
        write(f"{indent}{difference.place}")
        write(click.style(f"{indent}  - {_value(difference.asked, show_all)}", fg="red"))
        write(click.style(f"{indent}  + {_value(difference.recorded, show_all)}", fg="green"))
    _more(len(places) - limit, indent, option)


def _value(value: Json, whole: bool) -> str:
    if value is None:
        return "(nothing)"
    text = value if isinstance(value, str) else compact(value)
    text = "⏎".join(text.splitlines())
    return text if whole else cut(text, (width() or 120) - 10)


def _more(number: int, indent: str = "  ", option: str = "--all") -> None:
    if number > 0:
        write(dim(f"{indent}… and {number:,} more: add {option}"))


def tape_differences_json(
    found: TapeDifferences, answers: Iterable[tuple[str, tuple[Difference, ...]]]
) -> Json:
    """What `diff` of two tapes shows."""
    return {
        "a": found.ours,
        "b": found.theirs,
        "only_a": list(found.only_ours),
        "only_b": list(found.only_theirs),
        "differing": [{"key": key, "places": _places_json(places)} for key, places in answers],
        "same": found.same,
    }


def exchange_differences_json(
    path: str, one: Exchange, other: Exchange, found: Sequence[Difference]
) -> Json:
    """What `diff` of two exchanges shows."""
    return {"tape": path, "a": one.key, "b": other.key, "places": _places_json(found)}


def _places_json(places: Sequence[Difference], names: tuple[str, str] = ("a", "b")) -> list[Json]:
    return [{"place": d.place, names[0]: d.asked, names[1]: d.recorded} for d in places]


# --- explain ----------------------------------------------------------------------------------

_SHOWN_TEXT = 2000


def explanation(path: str, found: Explanation) -> None:
    """How a key comes about, and what the tape says to it."""
    rules = [compact(rule.declaration()) for rule in found.rules]
    text = found.text
    if len(text) > _SHOWN_TEXT:
        text = f"{text[:_SHOWN_TEXT]}… ({len(found.text) - _SHOWN_TEXT:,} more: add --json)"
    facts(
        ("keyed by", found.canonicalizer),
        ("does not count", ", ".join(found.left_out) or "nothing is left out"),
        ("redacted", ", ".join(found.redacted) or "nothing"),
        ("rules applied", ", ".join(rules) or "none"),
        ("key", found.key),
    )
    write(dim("it is the SHA-256 of"))
    write(text)
    write()
    if found.found is not None:
        key = found.found.key[:SHORT]
        recorded = found.found.recorded_at or "nobody knows when"
        write(click.style(f"cassette hit: {key} on {path}", fg="green", bold=True))
        write(f"recorded: {recorded}")
        write(f"to see the answer: tapes tape show {as_typed(path)} {key}")
        return
    _miss(found)


def _miss(found: Explanation) -> None:
    assert found.error is not None
    write(click.style(found.error.message, fg="red", bold=True))
    if found.near is not None:
        key = found.near.exchange.key[:SHORT]
        words = said_in(request_json(found.near.exchange.request))
        write(f"nearest recording: {key}  {what_of(found.near.exchange.request)} {quoted(words)}")
        write(dim("- this request, + the recording"))
        _places(found.near.differences, False, "  ", "--json")
    if found.diagnosis is not None:
        for line in found.diagnosis.advice():
            write(line)
    write(found.error.remedy.splitlines()[-1])


def explanation_json(path: str, found: Explanation) -> Json:
    """What `explain` shows."""
    near = found.near
    return {
        "tape": path,
        "verdict": "hit" if found.found is not None else "miss",
        "key": found.key,
        "canonicalizer": found.canonicalizer,
        "canonical_text": found.text,
        "left_out": list(found.left_out),
        "redacted": list(found.redacted),
        "rules": [rule.declaration() for rule in found.rules],
        "answered_by": None if found.found is None else found.found.key,
        "recorded_at": None if found.found is None else found.found.recorded_at,
        "error": None
        if found.error is None
        else {
            "slug": found.error.slug,
            "message": found.error.message,
            "remedy": found.error.remedy,
        },
        "nearest": None
        if near is None
        else {
            "key": near.exchange.key,
            "places": _places_json(near.differences, ("asked", "recorded")),
        },
        "diagnosis": None if found.diagnosis is None else found.diagnosis.as_dict(),
    }
