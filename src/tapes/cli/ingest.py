"""`tapes ingest`: what agents wrote down themselves, into the log."""

import os
import time
from collections.abc import Sequence

import click

from tapes.access import token_in
from tapes.cli.output import flush, note, write, write_json_line
from tapes.errors import NotAnswered, TapesError
from tapes.ingest.posting import Sender, Sent, found_in

DOOR = "http://127.0.0.1:8082"
_LOOK_S = 1.0


@click.group()
def ingest() -> None:
    """Bring what agents wrote down themselves into the log."""


@ingest.command("transcript")
@click.argument("places", nargs=-1, required=True, metavar="FILE…")
@click.option("--to", "url", help=f"The private door; {DOOR} if not said.")
@click.option("--follow", is_flag=True, help="Send files again as they grow, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Say what became of each, as JSON lines.")
def transcript(*, places: tuple[str, ...], url: str | None, follow: bool, as_json: bool) -> int:
    """Send transcripts of Claude Code or Codex: files, or folders of them.

    Sub-agents of Claude Code are found beside their session. Sending again changes nothing.

    \b
    Example:
      tapes ingest transcript ~/.claude/projects/-home-me-work/
      tapes ingest transcript ~/.codex/sessions/2026/07/ --follow
    """
    door = url or os.environ.get("TAPES_INGEST_URL") or DOOR
    sender = Sender(door, token_in(os.environ, "TAPES_INGEST_TOKEN"))
    if not follow:
        return 2 if _send(sender, places, as_json=as_json) else 0
    answers = True
    while True:
        try:
            _send(sender, places, as_json=as_json)
            answers = True
        except NotAnswered as error:
            if answers:  # said once, not with every look
                note(f"tapes: {error}\ntapes: trying again every second")
            answers = False
        time.sleep(_LOOK_S)


def _send(sender: Sender, places: Sequence[str], *, as_json: bool) -> int:
    """Send what changed and tell what became of each; gives how many were not sent."""
    failed = 0
    for told in sender.send(found_in(places)):
        if isinstance(told, TapesError):
            failed += 1
            note(f"tapes: {told}")
        elif as_json:
            write_json_line({name: getattr(told, name) for name in Sent.__slots__})
        else:
            what = "known" if told.deduped else f"{told.records} records"
            write(f"{told.session} {told.agent or 'main'}: {what}")
    flush()
    return failed
