"""`tapes freeze`: a session becomes a committed tape, and a test that replays it."""

import os
from pathlib import Path

import click

from tapes.cli.files import require_room, whole_file
from tapes.cli.opened import project, session_by, store_options
from tapes.cli.output import count, json_option, note, write, write_json
from tapes.errors import BadSetting, as_typed
from tapes.forking import turn_named, turns_until
from tapes.freezing import Drift, drift, module_for
from tapes.freezing import freeze as frozen
from tapes.tape.kinds import is_on_server, open_tape
from tapes.tape.raw import kind_of_existing

_SHOWN = 20


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.option("-o", "--output", "tape", required=True, type=click.Path(), help="The tape.")
@click.option("--until", metavar="TURN", help="End with this turn: to go on live from there.")
@click.option("--test", "test_file", type=click.Path(), help="Where the test goes.")
@click.option("--no-test", is_flag=True, help="Write no test.")
@click.option("--check", is_flag=True, help="Only say which requests the tape no longer answers.")
@click.option("--force", is_flag=True, help="Write over a test that is there.")
@store_options
@json_option
def freeze(
    session_id: str,
    *,
    tape: str,
    until: str | None,
    test_file: str | None,
    no_test: bool,
    check: bool,
    force: bool,
    store: str | None,
    org: str,
    config_dir: str | None,
    as_json: bool,
) -> int:
    """Make a tape of a session, redacted, and a pytest module that replays it.

    With --check nothing is written: SESSION is a later run of the same agent, and whatever of it
    the tape does not answer has drifted, with the places that differ; status 1 if any has.

    With --until the tape ends with TURN: its number, or the id of a call, a tool or a trace (which
    means its last call). An agent that is run with it in mode record is answered from the tape up
    to there, and goes on live.

    Status 1 where no call of the session can answer; then there is no tape and no test.

    \b
    Example:
      tapes freeze 5a3c9f1e -o tests/tapes/invoice.jsonl
      tapes freeze 8d21f0aa -o tests/tapes/invoice.jsonl --check
      tapes freeze 5a3c9f1e --until 3 -o forks/invoice.jsonl --no-test
      tapes run --tape forks/invoice.jsonl --mode record --budget 20 -- python agent.py
    """
    with project(store, org, config_dir) as log:
        session = session_by(log, session_id).session
        turns = log.stream_turns(session_id=session.id)
        if until is not None:
            turns = turns_until(turns, turn_named(log, session.id, until))
        if check:
            kind_of_existing(tape)
            opened = open_tape(tape)
            tape = opened.path
            try:
                found = drift(turns, opened)
            finally:
                opened.close()
            _tell_drift(tape, found, as_json)
            return 1 if found.drifted or not found.asked else 0
        target = None if no_test else _test_file(tape, test_file, force)
        opened = open_tape(tape)
        tape = opened.path  # which has no password
        try:
            done = frozen(turns, opened)
        finally:
            opened.close()
        answers = done.added + done.there_already
        if answers:
            log.note_tape(session.id, tape)
            log.note("freeze", by="command line", details=_noted(session.id, tape, until))
    if not answers:
        target = None
    if target is not None:
        relative = os.path.relpath(tape, target.parent)
        agent = session.agent_name or session.harness_id
        text = module_for(tape, relative, agent=agent, session=session.id)
        with whole_file(target) as put:
            put(text.encode())
    left_out = [n for n in done.notes if n.left_out]
    if as_json:
        write_json(
            {
                "tape": tape,
                "test": None if target is None else str(target),
                "added": done.added,
                "there_already": done.there_already,
                "secrets": dict(done.secrets),
                "left_out": [{"turn": n.place, "why": n.text} for n in left_out],
            }
        )
        return 0 if answers else 1
    if answers:
        write(f"{tape}: {count(done.added, 'answer')} added, {done.there_already} there already")
    else:
        note(f"nothing went onto {tape}: no call of it can answer")
    if done.secrets:
        names = ", ".join(f"{name} {n}" for name, n in sorted(done.secrets.items()))
        write(f"secrets taken out: {names}")
    if target is not None:
        write(f"{target}: replays it; run it with: pytest {as_typed(target)}")
    for each in left_out[:_SHOWN]:
        note(f"left out: {each.place}: {each.text}")
    return 0 if answers else 1


def _noted(session_id: str, tape: str, until: str | None) -> dict[str, str]:
    noted = {"session": session_id, "tape": tape}
    return noted if until is None else {**noted, "until": until}


def _test_file(tape: str, said: str | None, force: bool) -> Path:
    """Where the test goes. Raises UnwritableTape where something is there, BadSetting."""
    if is_on_server(tape):
        raise BadSetting(
            "a test reads its tape from a file, and this one is on a server", "add: --no-test"
        )
    path = Path(tape)
    folder = path.parent.parent if path.parent.name in ("tapes", "cassettes") else path.parent
    name = "".join(c if c.isalnum() else "_" for c in path.stem)
    file = Path(said) if said else folder / f"test_{name}.py"
    if os.path.realpath(file) == os.path.realpath(path):
        raise BadSetting(f"{file} is the tape itself", "name another file for the test")
    require_room(file, force=force, instead="--no-test")
    return file


def _tell_drift(tape: str, found: Drift, as_json: bool) -> None:
    if as_json:
        write_json(
            {
                "tape": tape,
                "asked": found.asked,
                "answered": found.answered,
                "drifted": [
                    {
                        "turn": each.turn_id,
                        "key": each.key,
                        "what": each.what,
                        "nearest": each.nearest,
                        "places": list(each.places),
                    }
                    for each in found.drifted
                ],
                "unused": list(found.unused),
                "left_out": [{"turn": n.place, "why": n.text} for n in found.left_out],
            }
        )
        return
    write(f"{tape}: {found.answered} of {count(found.asked, 'request')} are answered")
    for each in found.drifted[:_SHOWN]:
        write(f"drifted: turn {each.turn_id}, {each.what}")
        if each.nearest is not None:
            places = ", ".join(each.places[:3]) or "what a rule or redaction covers"
            more = f" and {len(each.places) - 3} more" if len(each.places) > 3 else ""
            write(f"  nearest {each.nearest[:12]}, differs at {places}{more}")
    if len(found.drifted) > _SHOWN:
        write(f"and {len(found.drifted) - _SHOWN} more")
    if found.unused:
        write(f"{count(len(found.unused), 'answer')} of the tape not asked for")
    for one in found.left_out[:_SHOWN]:
        note(f"left out: {one.place}: {one.text}")
