"""`tapes import` and `tapes export`: recordings from other tools, and back to them.

Knows nothing of formats: each command calls one library function.
"""

import os
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import click

from tapes.cli.files import require_room, whole_file
from tapes.cli.output import count, json_option, note, progress, write, write_bytes, write_json
from tapes.errors import BadSetting, UnreadableTape, as_typed
from tapes.interchange.foreign import Note, Reading
from tapes.jsontext import Json
from tapes.moving import Format, Imported, export_from, import_into, read_file
from tapes.tape.kinds import open_tape
from tapes.tape.raw import kind_of_existing

_ENDINGS = (".yaml", ".yml", ".json", ".har")
_SHOWN = 20
_READ = click.Choice([str(kind) for kind in Format])
_WRITTEN = click.Choice([str(Format.VCR), str(Format.HAR)])


@click.command("import")
@click.argument("into", metavar="TAPE", type=click.Path())
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--format",
    "kind",
    type=_READ,
    help="If it does not show.",
)
@click.option("--each", is_flag=True, help="TAPE is a folder: one tape a file, of the same name.")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Only calls to this host.")
@click.option("--partial", is_flag=True, help="Leave out what cannot be carried.")
@click.option("--replace", "replaces", is_flag=True, help="Imported answers hold over others.")
@click.option("--model", metavar="NAME", help="The model of aimock fixtures that name none.")
@json_option
def import_(
    into: str,
    paths: tuple[str, ...],
    kind: str | None,
    each: bool,
    hosts: tuple[str, ...],
    partial: bool,
    replaces: bool,
    model: str | None,
    as_json: bool,
) -> None:
    """Put recordings of other tools onto a tape: vcrpy's, HTTP archives, aimock's.

    A FILE may be a folder, of which every .yaml, .yml, .json and .har counts. Secrets are taken
    out on the way and counted. What cannot be carried whole is an error (status 5) before the
    tape is touched. Doing it again changes nothing.

    \b
    Example:
      tapes import weather.jsonl tests/cassettes/weather.yaml
      tapes import --each tests/tapes tests/cassettes
      tapes import --host api.openai.com browser.jsonl session.har
    """
    readings = list[Reading]()
    with progress("reading") as told:
        files = list(_files(paths))
        for number, path in enumerate(files):
            told(number / len(files))
            chosen = None if kind is None else Format(kind)
            readings.append(read_file(_bytes_of(path), path, kind=chosen, model=model))
    done = dict[str, Imported]()
    for where, own in _targets(into, readings, paths, each):
        tape = open_tape(where)
        try:
            done[where] = import_into(
                tape, *own, hosts=hosts, partial=partial, replace_answers=replaces
            )
        finally:
            tape.close()
    if as_json:
        write_json({"tapes": [_imported_json(where, one) for where, one in done.items()]})
        return
    for where, one in done.items():
        _show_imported(where, one)


def _files(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for folder, _, names in sorted(os.walk(path)):
            for name in sorted(names):
                if name.lower().endswith(_ENDINGS):
                    yield os.path.join(folder, name)


def _bytes_of(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UnreadableTape(
            f"{path} cannot be read: {error.strerror}", f"check it with: ls -l {as_typed(path)}"
        ) from error


def _targets(
    into: str, readings: list[Reading], paths: Sequence[str], each: bool
) -> Iterator[tuple[str, list[Reading]]]:
    """Which readings go onto which tape; those of one name go onto one together."""
    if not each:
        yield into, readings
        return
    together: dict[str, list[Reading]] = {}
    for reading in readings:
        base = next((p for p in paths if os.path.isdir(p) and _is_below(p, reading.source)), "")
        name = os.path.relpath(reading.source, base) if base else os.path.basename(reading.source)
        where = os.path.join(into, os.path.splitext(name)[0] + ".jsonl")
        together.setdefault(where, []).append(reading)
    yield from together.items()


def _is_below(folder: str, path: str) -> bool:
    """Whether a path that was found by walking a folder lies in it."""
    return path.startswith(os.path.join(folder, ""))


def _show_imported(where: str, done: Imported) -> None:
    there = f", {done.there_already} there already" if done.there_already else ""
    write(f"{where}: {count(done.added, 'exchange')} added{there}")
    if done.secrets:
        names = ", ".join(f"{name} {n}" for name, n in sorted(done.secrets.items()))
        write(f"secrets taken out: {names}")
    _show_notes(done.notes)


def _show_notes(notes: Sequence[Note]) -> None:
    """Notes go beside the result: each text once, with the places that it is about."""
    places: dict[tuple[str, bool], list[str]] = {}
    for one in notes:
        places.setdefault((one.text, one.left_out), []).append(one.place)
    for (text, left_out), where in list(places.items())[:_SHOWN]:
        more = f" and {len(where) - 1} more" if len(where) > 1 else ""
        note(f"{'left out: ' if left_out else ''}{where[0]}{more}: {text}")
    if len(places) > _SHOWN:
        note(f"and {len(places) - _SHOWN} other notes: see --json")


def _imported_json(where: str, done: Imported) -> Json:
    return {
        "tape": where,
        "added": done.added,
        "there_already": done.there_already,
        "secrets": dict(done.secrets),
        "notes": _notes_json(done.notes),
    }


def _notes_json(notes: Sequence[Note]) -> Json:
    return [{"place": n.place, "text": n.text, "left_out": n.left_out} for n in notes]


@click.command("export")
@click.argument("path", metavar="TAPE", type=click.Path())
@click.argument("target", metavar="FILE", type=click.Path())
@click.option(
    "--format",
    "kind",
    type=_WRITTEN,
    help="If FILE does not say.",
)
@click.option("--partial", is_flag=True, help="Leave out what the format cannot hold.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@json_option
def export(
    path: str, target: str, kind: str | None, partial: bool, force: bool, as_json: bool
) -> None:
    """Write the HTTP exchanges of a tape as a cassette of vcrpy or as an HTTP archive.

    .yaml and .json are vcrpy's, .har is an archive; - is standard output and needs --format.
    Read back with `tapes import`, the file gives the same exchanges to the byte and the time.

    \b
    Example:
      tapes export weather.jsonl weather.har
      tapes export --partial mixed.db tests/cassettes/mixed.yaml
    """
    kind_of_existing(path)
    tape = open_tape(path)
    try:
        written = export_from(
            tape.exchanges(),
            _format(target, kind),
            as_json=target.lower().endswith(".json"),
            partial=partial,
            version=version("tapes-py"),
        )
    finally:
        tape.close()
    if target == "-":
        if as_json:
            raise click.UsageError("--json and the file cannot share standard output")
        write_bytes(written.data)
        return
    require_room(target, force=force)
    with whole_file(target) as put:
        put(written.data)
    if as_json:
        write_json(
            {"file": target, "exchanges": written.count, "notes": _notes_json(written.notes)}
        )
        return
    write(f"{target}: {count(written.count, 'exchange')}")
    _show_notes(written.notes)


def _format(target: str, kind: str | None) -> Format:
    if kind is not None:
        return Format(kind)
    ending = os.path.splitext(target)[1].lower()
    if ending == ".har":
        return Format.HAR
    if ending in _ENDINGS:
        return Format.VCR
    raise BadSetting(f"{target} does not say its format", "add: --format vcr or --format har")


# The word belongs to Python; the list of commands finds the command by it all the same.
globals()["import"] = import_
