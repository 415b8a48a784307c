"""`tapes run`: a command with its model calls led through a private proxy."""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import click

from tapes.capture.asked import ProxyMode
from tapes.capture.control import misses_of, report_of
from tapes.cli.output import note
from tapes.cli.serve import limits_of, log_of, proxy_options, settings_of
from tapes.config import Settings
from tapes.errors import BadSetting, UnwritableTape
from tapes.exchange import Request
from tapes.guard import guarded
from tapes.lanes import allowed_of
from tapes.listening import Listen
from tapes.pointing import CODEX_LOGIN_PATH, command_for, pointed_at, upstreams_set_in
from tapes.refusals import RECORD
from tapes.server import ProxyServer, proxy_in_thread, proxy_setup
from tapes.tally import tally_of

NOT_FOUND = 127
NOT_EXECUTABLE = 126
REFUSED = 1
# Signals for the whole program, which a supervisor sends to the parent alone.
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# Signals of the terminal, which the child gets by itself: the parent only waits for what it does.
_LEFT_TO_CHILD = (signal.SIGINT, signal.SIGQUIT)
_SHOWN_MISSES = 10


@click.command(context_settings={"allow_interspersed_args": False})
@proxy_options
@click.option("--allow", multiple=True, metavar="HOST[:PORT]", help="Let Python reach this too.")
@click.option("--no-guard", is_flag=True, help="Let Python reach every host, in replay too.")
@click.option("--report", "report_file", type=click.Path(), help="Write the report there, as JSON.")
@click.option("--quiet", is_flag=True, help="Say nothing where nothing was refused.")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON, on standard error.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    *,
    tape: str | None,
    mode: str | None,
    budget: int | None,
    upstreams: dict[str, str],
    pace: float | None,
    ordered: bool,
    keeps_log: bool | None,
    config_dir: str | None,
    report_file: str | None,
    quiet: bool,
    as_json: bool,
    allow: tuple[str, ...],
    no_guard: bool,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND with its model calls led through a private proxy: replayed, or recorded.

    Python, Node, curl, Claude Code, Codex: whatever reads a base URL from its environment. Ends
    with the command's exit status; where a call was refused and the command ends well all the
    same, with 1.

    \b
    Example:
      tapes run -- pytest
      tapes run --mode record --budget 20 --tape review.jsonl -- claude -p "Review this"
    """
    if report_file:
        _require_room(report_file)
    flags = {"proxy.tape": tape, "proxy.mode": mode, "proxy.pace": pace, "proxy.listen": "0"}
    said = {"--tape": tape, "--config-dir": config_dir}
    switches = {"--ordered": ordered, "--log": keeps_log is True, "--no-log": keeps_log is False}
    recording = _recording(command, said, switches, upstreams)
    flags |= {"proxy.log": keeps_log}
    settings = settings_of(flags, upstreams, config_dir)
    setup = proxy_setup(
        settings,
        token=None,
        limits=limits_of(budget),
        repeated="ordered" if ordered else "reuse",
        further_upstreams=upstreams_set_in(
            os.environ, settings["proxy.upstreams"], Listen.of(settings["proxy.listen"])
        ),
    )
    further = None if no_guard else allowed_of(allow).entries
    calls: list[str] = []
    with (
        log_of(settings, calls.append) as watcher,
        proxy_in_thread(setup, watcher=watcher) as server,
    ):
        status = _ended(command, server, further)
        told = {**report_of(server.desk), **misses_of(server.desk)}
        for miss in told["misses"]:
            miss["remedy"] = miss["remedy"].replace(RECORD, recording)
        tallies = [tally_of(cassette) for cassette in setup.shelf]
    if watcher is not None:
        told["log"] = dict(watcher.counts())  # by now it has kept the last of them
    refused = server.desk.refused
    speaks = as_json or bool(refused) or not quiet
    lost = dict(told["log"] or {}).get("lost", 0)
    wanted = calls if speaks or report_file else ()
    sessions, opening = _became(settings, wanted, config_dir, lost)
    report = {"command": list(command), "exit_status": status, **told, "sessions": sessions}
    with suppress(OSError):  # nobody may hear it any more; the command has ended all the same
        if as_json:
            note(json.dumps(report, indent=2))
        elif speaks:
            for tally in tallies:
                _tell(tally.lines())
            _tell_misses(server, recording)
            _tell(opening)
    status = REFUSED if refused and not status else status
    if report_file and not _is_written(report_file, report):
        return status or UnwritableTape.exit_status
    return status


def _ended(command: Sequence[str], server: ProxyServer, further: tuple[str, ...] | None) -> int:
    """The exit status of the command, run with the variables that lead it to the proxy.

    `further` are hosts that its Python programs may reach in any case; None lets them reach all.
    """
    replays = server.setup.mode is ProxyMode.REPLAY
    environ = {**os.environ, **pointed_at(server.address, os.environ, replays=replays)}
    if further is not None:
        environ |= _guarded(environ, server, further)

    def by_login() -> bool:
        return _was_recorded_by_login(server) if replays else "OPENAI_API_KEY" not in environ

    command = command_for(command, server.address, environ, by_login=by_login)
    with _signals_for_child() as child:
        try:
            return child.status_of(subprocess.Popen(command, env=environ))
        except FileNotFoundError:
            note(f"tapes: {command[0]}: there is no such command")
            return NOT_FOUND
        except OSError as error:
            note(f"tapes: {command[0]}: {error.strerror}")
            return NOT_EXECUTABLE


def _guarded(
    environ: Mapping[str, str], server: ProxyServer, further: tuple[str, ...]
) -> dict[str, str]:
    """What keeps Python programs that go past the proxy off the network, as `tapes.use` does."""
    cassettes = list(server.setup.shelf)
    if server.setup.mode is ProxyMode.PASS or any(c.live_is_permitted for c in cassettes):
        return {}
    declared = [host for cassette in cassettes for host in cassette.declared.allow]
    reason = f"`tapes run` in mode {server.setup.mode} permits no live call"
    allowed = allowed_of((*further, *declared))
    return guarded(environ, allowed, reason, "tapes run --allow HOST …")


class _Child:
    """The child, as signals find it: one that came before it was there is handed on later."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def hand_on(self, number: int, _frame: FrameType | None) -> None:
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)

    def status_of(self, process: "subprocess.Popen[bytes]") -> int:
        """Wait for the process. What a signal ended has the status that a shell gives it."""
        self._process = process
        for number in self._early:
            process.send_signal(number)
        status = process.wait()
        return 128 - status if status < 0 else status


def _was_recorded_by_login(server: ProxyServer) -> bool:
    """Whether the tape has calls that Codex made with a login to ChatGPT."""
    return any(
        isinstance(exchange.request, Request) and CODEX_LOGIN_PATH in exchange.request.url
        for cassette in server.setup.shelf
        for exchange in cassette.tape.exchanges()
    )


@contextmanager
def _signals_for_child() -> Iterator[_Child]:
    """Hand signals on to the child; then let them be as they were.

    Ignored ones stay ignored, here and in the child: that is what `nohup` is for.
    """
    child = _Child()
    handlers: dict[int, Callable[[int, FrameType | None], None]] = {}
    handlers |= dict.fromkeys(_FORWARDED, child.hand_on)
    handlers |= dict.fromkeys(_LEFT_TO_CHILD, _wait_for_child)
    before = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield child
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _wait_for_child(_number: int, _frame: FrameType | None) -> None:
    """The child decides what a signal of the terminal means; see `_LEFT_TO_CHILD`."""


def _recording(
    command: Sequence[str],
    said: Mapping[str, str | None],
    switches: Mapping[str, bool],
    upstreams: Mapping[str, str],
) -> str:
    """The command that records what this one asked for, in the same place and way."""
    options = ["--mode", "record"]
    for name, value in said.items():
        options += [] if value is None else [name, value]
    options += [name for name, is_on in switches.items() if is_on]
    for name, url in upstreams.items():
        options += ["--upstream", f"{name}={url}" if name else url]
    return shlex.join(["tapes", "run", *options, "--", *command])


def _became(
    settings: Settings, calls: Sequence[str], config_dir: str | None, lost: int
) -> tuple[list[dict[str, object]], list[str]]:
    """The sessions that calls became, for programs, and the lines that say how to open them."""
    if not calls:
        return [], []
    # It brings the database's parts with it.
    from tapes.cli.became import became

    found = became(settings, calls, config_dir, lost=lost)
    return found.as_json(), list(found.lines())


def _require_room(report_file: str) -> None:
    """What a run costs is not spent where nothing can come of its report. Raises BadSetting."""
    place: str | Path = report_file
    try:
        os.stat(report_file)
    except FileNotFoundError:
        place = Path(report_file).parent
    except OSError:  # a name that no file can have
        place = ""
    if os.path.isdir(report_file) or not os.access(place, os.W_OK):
        raise BadSetting(
            f"--report {report_file} cannot be written", "name a file in a folder that is there"
        )


def _is_written(report_file: str, report: Mapping[str, object]) -> bool:
    try:
        Path(report_file).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        with suppress(OSError):
            _tell([f"the report {report_file} cannot be written: {error.strerror}"])
        return False
    return True


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        note(f"tapes: {line}")


def _tell_misses(server: ProxyServer, recording: str) -> None:
    desk = server.desk
    shown = list(desk.misses)[:_SHOWN_MISSES]
    remedies = [miss.remedy.splitlines() for miss in shown]
    for miss, remedy, following in zip(shown, remedies, [*remedies, []][1:], strict=True):
        note(f"tapes: refused {miss.method} {miss.path}: {miss.message}")
        # What is to be typed for all of them is told once, after the last.
        lines = remedy[:-1] if remedy[-1:] == following[-1:] else remedy
        # A command of several lines is not indented: it is to be pasted as it is.
        told = "".join(f"  {line.replace(RECORD, recording)}\n" for line in lines)
        note(told, end="")
    if desk.refused > _SHOWN_MISSES:
        note(f"tapes: and {desk.refused - _SHOWN_MISSES} more")
