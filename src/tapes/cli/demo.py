"""`tapes demo`: a real recorded conversation, replayed; then a miss; then what was saved.

Knows nothing of how calls are answered: it makes them, and shows what comes.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from tapes.cassette import Cassette
from tapes.cli.output import count, cut, facts, json_option, size, width, write, write_json
from tapes.errors import MissingExtra
from tapes.exchange import Exchange, Response
from tapes.prices import price_of
from tapes.report import Savings, savings
from tapes.stats import never_missing

_INDENT = "  "
Say = Callable[..., None]


def _nothing(*_: object, **__: object) -> None:
    """What is said while the result is one document."""


@dataclass(slots=True)
class Played:
    """What was answered from the tape, and how long it took when it was recorded."""

    turns: list[dict[str, object]] = field(default_factory=list)
    streams: list[dict[str, object]] = field(default_factory=list)
    served: list[Exchange] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def recorded_seconds(self) -> float:
        """How long the same answers took from the server."""
        return sum(_last(exchange) for exchange in self.served)

    @property
    def saved(self) -> Savings:
        """What the answers made unnecessary."""
        return savings(((exchange, 1) for exchange in self.served), never_missing(price_of))


@click.command()
@click.option("--at-once", is_flag=True, help="Without the recorded pauses.")
@json_option
def demo(at_once: bool, as_json: bool) -> None:
    """See it work: a real recorded conversation, replayed through the real openai SDK.

    No key, no network: the tape comes with this package. Then a request with one other character,
    which is refused; then what replay saved.

    \b
    Example:
      tapes demo
      tapes demo --at-once
    """
    try:
        # Imported where used: the SDK is the demo's alone.
        from tapes.demo import conversation
    except ImportError as error:
        raise MissingExtra(
            f"the demo talks through the openai SDK, which is not installed ({error})",
            "pip install openai, then again: tapes demo",
        ) from error
    say: Say = _nothing if as_json else write
    with tempfile.TemporaryDirectory() as folder:
        # A copy: what a run leaves beside a tape does not belong into the package.
        tape = shutil.copy(conversation.TAPE, folder)
        say(_OPENING)
        played = _play(tape, at_once, say)
        say(f"\n{_bold('3. One other character: a miss, never a live call')}")
        miss = _miss(tape, conversation.OTHER_TICKET, say)
    if as_json:
        write_json(_json(played, miss))
        return
    _show_savings(played)
    write(_closing(typed_here()))


_OPENING = """\
Tapes replays recorded model calls: the same answer, without a key, a cost or a network.

On the tape: six exchanges with a real model server (llama.cpp), recorded on 29 November 2026.
The model is tiny, 270 million parameters, and it rambles; every byte and every pause is real."""


def typed_here() -> str:
    """This command as a shell takes it here: by name where that leads to it, else by its path."""
    typed, found = Path(sys.argv[0]), shutil.which("tapes")
    if typed.name != "tapes" or not typed.exists() or (found and typed.samefile(found)):
        return "tapes"
    return shlex.quote(os.path.relpath(typed))


def _closing(command: str) -> str:
    return f"""
{click.style("In your own code", bold=True)}

    import tapes

    with tapes.use("tests/tapes/mine.jsonl"):
        ...  # your model calls, through any SDK

Record once:     DEMO_LIVE=1 CASSETTE_MODE=record python your_program.py
Replay for ever: python your_program.py

{click.style("See what agents did, in the browser", bold=True)}

    {command} seed    # samples; find the failing tool call in “The invoice test fails”
    {command} serve   # open the first address that it prints"""


def _bold(text: str) -> str:
    return click.style(text, bold=True)


def _play(tape: str, at_once: bool, say: Say) -> Played:
    from tapes.demo import conversation
    from tapes.using import use

    played, started = Played(), time.perf_counter()
    sdk = conversation.client()
    say(f"\n{_bold('1. A conversation, through the openai SDK')}")
    with use(tape, "replay", pace="at once") as cassette:
        for turn in conversation.converse(sdk):
            say(f"{_INDENT}you    {turn.asked}")
            say(f"{_INDENT}model  {_shortened(turn.answered)}  ({turn.tokens} tokens)")
            played.turns.append(
                {"asked": turn.asked, "answered": turn.answered, "tokens": turn.tokens}
            )
        played.served += _served(cassette)
    pauses = "without its pauses" if at_once else "with the pauses that it had"
    say(f"\n{_bold(f'2. As a stream, {pauses}')}")
    with use(tape, "replay", pace="at once" if at_once else "as recorded") as cassette:
        for messages in (conversation.ticket(conversation.TICKET), conversation.greeting()):
            asked = messages[-1]["content"]
            say(f"{_INDENT}you    {asked}")
            say(f"{_INDENT}model  ", end="")
            text = ""
            for piece in conversation.stream(sdk, messages):
                # A line end waits for the line that follows it.
                held = text[len(text.rstrip("\n")) :]
                shown = (held + piece).rstrip("\n") if piece.strip("\n") else ""
                text += piece
                say(shown.replace("\n", "\n         "), end="", flush_now=True)
            say()
            played.streams.append({"asked": asked, "answered": text})
        played.served += _served(cassette)
    played.seconds = time.perf_counter() - started
    return played


def _shortened(text: str) -> str:
    room = (width() or 100) - 30
    return cut(" ".join(text.split()), max(room, 20))


def _served(cassette: Cassette) -> Iterator[Exchange]:
    for key in cassette.report.hits:
        exchange = cassette.tape.find(key)
        if exchange is not None:
            yield exchange


def _last(exchange: Exchange) -> float:
    response = exchange.response
    return response.pieces[-1].at if isinstance(response, Response) and response.pieces else 0.0


def _miss(tape: str, text: str, say: Say) -> dict[str, object]:
    """What a program meets that asks for something else."""
    say(f"{_INDENT}you    {text}")
    say(f"{_INDENT}$ python -m tapes.demo.ask {Path(tape).name} '…'")
    command = [sys.executable, "-m", "tapes.demo.ask", tape, text]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    shown = ended.stderr.replace(tape, Path(tape).name).strip()
    for line in shown.splitlines():
        say(f"{_INDENT}{click.style(line, fg='red')}")
    say(f"{_INDENT}exit status {ended.returncode}: nothing was sent, and nothing was made up")
    return {"asked": text, "status": ended.returncode, "said": shown}


def _show_savings(played: Played) -> None:
    saved = played.saved
    price = "no price is known for this model, so none is claimed"
    write(f"\n{_bold('4. What replay saved just now')}")
    facts(
        (f"{_INDENT}live calls", saved.calls),
        (f"{_INDENT}tokens", f"{saved.tokens or 0:,}, as far as the answers count them"),
        (f"{_INDENT}waiting", f"{played.recorded_seconds:.1f} s then, {played.seconds:.1f} s now"),
        (f"{_INDENT}money", price if saved.usd is None else f"${saved.usd:.4f}"),
        (f"{_INDENT}instead", f"{count(saved.calls, 'answer')} from disk, {size(saved.bytes)}"),
    )


def _json(played: Played, miss: dict[str, object]) -> dict[str, object]:
    saved = played.saved
    return {
        "turns": played.turns,
        "streams": played.streams,
        "seconds": round(played.seconds, 4),
        "miss": miss,
        "saved": {
            "calls": saved.calls,
            "tokens": saved.tokens,
            "usd": saved.usd,
            "bytes": saved.bytes,
            "seconds": round(played.recorded_seconds, 4),
        },
    }
