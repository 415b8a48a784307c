"""The tape of one test, opened as it was chosen; cassettes of vcrpy are read where they lie.

Rule 1: where a tape is not there and a cassette of vcrpy is, replay answers from the cassette, and
        writes nothing. The first run that may record puts it onto the tape, where it stays.

Knows nothing of pytest.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tapes import guard
from tapes.budget import Limits, latch_is_on
from tapes.cassette import Cassette
from tapes.errors import UnreadableTape, as_typed
from tapes.expiry import OnExpiry, age_of
from tapes.lanes import Lane, allowed_of, enter, leave
from tapes.modes import Mode, live_is_permitted
from tapes.moving import import_into, read_file
from tapes.project import Declared, declared_for
from tapes.tape.base import MemoryTape, Tape
from tapes.tape.kinds import kind_of, open_tape
from tapes.testing.choices import Choices, mode_of
from tapes.using import use
from tapes.varying import Rule

VCR_ENDINGS = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Opening:
    """A tape that is to be opened, the modes that its words mean, and what is to be said of it."""

    context: use
    path: str
    mode: Mode
    notes: tuple[str, ...] = ()


def opening(
    path: str,
    chosen: Choices,
    *,
    cassettes: Sequence[str] = (),
    rules: Sequence[Rule] = (),
) -> Opening:
    """What opens the tape at a path. `cassettes` are files of vcrpy that stand in for it.

    Raises BadSetting, UnreadableTape, ForeignFile, MissingExtra.
    """
    found = [file for file in cassettes if os.path.isfile(file)]
    is_there = _is_recorded(path)
    mode = mode_of(chosen.mode, is_recorded=is_there or bool(found))
    declared = _declared(path, chosen, rules)
    notes = list[str]()
    tape: Tape | str = shown(path)
    if found and not is_there:
        may_record = mode is not Mode.REPLAY and live_is_permitted(
            mode, latch_is_on(os.environ), Limits.of(os.environ)
        )
        tape = open_tape(path) if may_record else _of_cassettes(found[0])
        notes += _taken_over(tape, found, declared)
        if may_record:
            tape.close()
            notes.append(f"{shown(found[0])} was put onto {shown(path)}, which answers from now on")
            tape = shown(path)
    context = use(
        tape,
        str(mode),
        pace=chosen.pace,
        allow=chosen.allow,
        guard=chosen.guard,
        repeated=chosen.repeated,
        declared=declared,
    )
    at = tape if isinstance(tape, str) else tape.path
    return Opening(context, os.path.abspath(at), mode, tuple(notes))


def _is_recorded(path: str) -> bool:
    if kind_of(path) != "directory":
        return os.path.isfile(path) and os.path.getsize(path) > 0
    return os.path.isdir(path) and any(name.endswith(".json") for name in os.listdir(path))


def _of_cassettes(file: str) -> MemoryTape:
    tape = MemoryTape()
    tape.path = shown(file)
    return tape


def _taken_over(tape: Tape, files: Sequence[str], declared: Declared) -> list[str]:
    readings = []
    for file in files:
        try:
            with open(file, "rb") as opened:
                readings.append(read_file(opened.read(), shown(file)))
        except OSError as error:
            raise UnreadableTape(
                f"{file} cannot be read: {error.strerror}", f"check it with: ls -l {as_typed(file)}"
            ) from error
    done = import_into(tape, *readings, partial=True, declared=declared)
    return [f"{note.place}: left out: {note.text}" for note in done.notes if note.left_out]


def _declared(path: str, chosen: Choices, rules: Sequence[Rule]) -> Declared:
    declared = declared_for(path)
    return replace(
        declared,
        rules=(*declared.rules, *rules),
        max_age=age_of(chosen.max_age) if chosen.max_age else declared.max_age,
        expired=OnExpiry(chosen.expired or declared.expired),
        errors=chosen.errors or declared.errors,
    )


def shown(path: str) -> str:
    """A path as a person at this prompt would type it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


class Blocked:
    """No tape, and no network either: what leaves this machine is refused by name."""

    def __init__(self, allow: Sequence[str] = ()) -> None:
        tape = MemoryTape()
        tape.path = "no tape (the network is blocked)"
        self.cassette = Cassette(tape, "replay", declared=Declared(), environ={})
        self._lane = Lane(self.cassette, allowed=allowed_of(allow), guarded=True)

    def open(self) -> None:
        """Block the network, until `close`."""
        enter(self._lane)
        guard.follow()

    def close(self) -> None:
        """Let the network be as it was."""
        leave(self._lane)
        guard.follow()
        self.cassette.close()
