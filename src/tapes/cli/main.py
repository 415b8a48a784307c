"""The command `tapes`: the list of commands, and the one place where errors end.

Rule 1: a failure is told on standard error in a few lines (what, on what, what to type next), and
        the process ends with the status of the error's class. Anything else is a bug, and shows
        where it happened.
Rule 2: Ctrl-C ends quietly with 130, a reader that has gone with 141.
Rule 3: a command is imported when it is typed, so that `tapes --help` comes at once.

Knows nothing of what commands do.
"""

import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence

import click

from tapes.cli.output import ClosedPipe, flush, leave_stdout, note
from tapes.errors import CassetteError, TapesError

INTERRUPTED = 128 + signal.SIGINT
PIPE_CLOSED = 128 + signal.SIGPIPE
# What a command imports stays: looked through as often as usual, it takes a tenth of the start.
_GARBAGE = (50_000, 20, 100)

# Name → module, and what it is for: written here so that nothing has to be imported to be listed.
COMMANDS = {
    "demo": ("tapes.cli.demo", "See it work: a real recorded conversation, no key, no network."),
    "run": ("tapes.cli.run", "Run any command with its model calls replayed, or recorded."),
    "serve": ("tapes.cli.serve", "The servers: proxy, read API, or both and what belongs to them."),
    "sessions": ("tapes.cli.sessions", "What agents did: list, show, erase, export, compare."),
    "search": ("tapes.cli.search", "Find words in what was asked and answered, or any id."),
    "diff": ("tapes.cli.sessions", "Where two sessions part, and what each of them took."),
    "tail": ("tapes.cli.tail", "What agents do, as it happens."),
    "freeze": ("tapes.cli.freeze", "Make a tape and a test of a session."),
    "seed": ("tapes.cli.seed", "Put sample sessions into the log, to have a look."),
    "ingest": ("tapes.cli.ingest", "Bring transcripts of coding agents into the log."),
    "tape": ("tapes.cli.tape", "Look into tapes, and keep them in order."),
    "cassette": ("tapes.cli.cassette", "Write cassette services, and look after those of a host."),
    "import": (
        "tapes.cli.interchange",
        "Bring recordings of vcrpy, browsers, aimock onto a tape.",
    ),
    "export": ("tapes.cli.interchange", "Write a tape as a vcrpy cassette or an HTTP archive."),
    "budget": ("tapes.cli.budget", "Which live calls were made, by whom, and how many are left."),
    "db": ("tapes.cli.db", "Check, back up and move the database of the log."),
    "derive": ("tapes.cli.derive", "Make sessions and spans anew from the log, or prove them."),
    "init": ("tapes.cli.init", "Make a file of settings here."),
    "config": ("tapes.cli.init", "Read and write settings, each with where it comes from."),
    "status": ("tapes.cli.init", "What is running, and what the log holds."),
    "doctor": ("tapes.cli.doctor", "Check this machine, and what to do where something is wrong."),
}


class Commands(click.Group):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """The names in the order in which a newcomer wants them."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, by importing its module."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tapes-py", prog_name="tapes", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Record model calls once, replay them for ever: same answer, no key, no cost, no network.

    \b
    In your code:
      import tapes
      with tapes.use("tests/weather.jsonl"):
          ...                     # your model calls, through any SDK

    \b
    Record once, then replay (a request that is not on the tape is an error, never a live call):
      DEMO_LIVE=1 CASSETTE_MODE=record python agent.py
      python agent.py

    \b
    Then look at what you have:
      tapes tape ls                        # which tapes are here, and what is on them
      tapes tape show TAPE KEY             # one exchange: request, answer, times
      tapes tape explain TAPE KEY          # where its key comes from, why it hits or misses
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main() -> None:
    """Run the command line and end the process with its status."""
    gc.set_threshold(*_GARBAGE)
    sys.exit(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    """Run the command line; gives the exit status."""
    try:
        status = cli.main(args, prog_name="tapes", standalone_mode=False)
        flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (TapesError, CassetteError) as error:
        tell(error)
        return error.exit_status
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except ClosedPipe:
        leave_stdout()
        return PIPE_CLOSED
    return status if isinstance(status, int) else 0


def tell(error: TapesError | CassetteError) -> None:
    """What happened and on what, then what to type next."""
    note(error.message, color="red")
    if error.remedy:
        note(error.remedy)
