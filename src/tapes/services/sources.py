"""Where the list of sources comes from: a flag, the environment or the configuration file.

Rule 1: the flag goes before the environment, the environment before the file. The first that says
        anything says all of it. The file's own list is judged even where it is not used.
Rule 2: every problem of a list is told at once, before anything is fetched.
Rule 3: a list that comes from the file can change while the host runs. A file that is gone, or has
        no list, says nothing; that is not the same as a list of nothing.
Rule 4: the file is a person's. A change of its list leaves every other line as it was, and is not
        made where that cannot be known.

Knows nothing of fetching.
"""

import csv
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapes.errors import BadSetting, Problem, as_typed
from tapes.services import toml
from tapes.services.urls import source_problems, subject_of
from tapes.tape.beside import folder_at_home

KEY = "cassettes"
HOSTS_KEY = "cassette_hosts"
VARIABLE = "TAPES_CASSETTES"
HOSTS_VARIABLE = "TAPES_CASSETTE_HOSTS"
FLAG = "--cassettes"
HOSTS_FLAG = "--cassette-host"
FOLDER = ".tapes"
FILE = "config.toml"
NOBODY = "default"


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of texts, and where it comes from: a flag, a variable, a file, or `default`.

    `file` is where it stands or would come to stand, if it is a file that decides.
    """

    values: tuple[str, ...] = ()
    origin: str = NOBODY
    file: Path | None = None

    @property
    def is_said(self) -> bool:
        """Whether somebody says it, be it that there is nothing."""
        return self.origin != NOBODY


def configuration_file(config_dir: str | None = None) -> Path:
    """The file of configuration that is in force, or the one that would be made."""
    if config_dir is not None:
        return Path(config_dir) / FILE
    here, at_home = Path(FOLDER) / FILE, folder_at_home()
    if at_home is None or here.is_file() or not (at_home / FILE).is_file():
        return here
    return at_home / FILE


def source_list(
    flags: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    file: Path | None = None,
) -> Listed:
    """The sources in force. Raises BadSetting with every problem."""
    return _checked(_listed(KEY, FLAG, VARIABLE, flags, environ, file))


def trusted_hosts(
    flags: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    file: Path | None = None,
) -> Listed:
    """The hosts that the operator trusts beside this machine. Raises BadSetting."""
    return _listed(HOSTS_KEY, HOSTS_FLAG, HOSTS_VARIABLE, flags, environ, file)


def _listed(
    key: str,
    flag: str,
    variable: str,
    flags: Sequence[str],
    environ: Mapping[str, str],
    file: Path | None,
) -> Listed:
    in_file = Listed() if file is None else _in_file(file, key)
    if flags:
        values = [value for text in flags for value in _record(text, flag)]
        return Listed(tuple(values), flag)
    if variable in environ:
        return Listed(tuple(_record(environ[variable], variable)), variable)
    return in_file


def _record(text: str, origin: str) -> list[str]:
    """One CSV record: quotes protect commas, an empty text is an empty list."""
    line = text.splitlines()[0] if text.strip() else ""
    try:
        values = next(csv.reader([line], strict=True, skipinitialspace=True), [])
    except csv.Error as error:
        raise BadSetting(f"{origin} is no list with commas: {error}") from None
    return [value.strip() for value in values if value.strip()]


def _in_file(file: Path, key: str) -> Listed:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return Listed(file=file)
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"{file}: {error}") from error
    values = _of_tree(_tree(text, file), key, file)
    listed = Listed(file=file) if values is None else Listed(tuple(values), str(file), file)
    return _checked(listed) if key == KEY else listed


def _tree(text: str, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(
            f"{file}: {error}", f"mend it there: ${{EDITOR:-vi}} {as_typed(file)}"
        ) from error


def _of_tree(tree: dict[str, Any], key: str, file: Path) -> list[str] | None:
    values = tree.get(key)
    if values is None:
        return None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise BadSetting(
            f"{file}: {key} is a list of texts at the top of the file",
            f'{key} = ["…"], before the first [section]; [[{key}]] is the form of long ago',
        )
    return values


def _checked(listed: Listed) -> Listed:
    problems = source_problems(listed.values)
    if problems:
        raise BadSetting(
            f"{listed.origin}: {_all(problems, listed.values)}",
            "a source is the full URL of a document, such as http://127.0.0.1:9999/openapi",
        )
    return listed


def _all(problems: Iterable[Problem], values: Sequence[str]) -> str:
    """Each problem with its place; the text itself may hold a credential."""
    shown = []
    for found in problems:
        index = int(found.field.partition("[")[2].rstrip("]"))
        shown.append(f"{found.field} ({subject_of(values[index])}) {found.message}")
    return "; ".join(shown)


# --- changing the file's list -----------------------------------------------------------------


def add_source(file: Path, url: str) -> bool:
    """Put a source at the end of a file's list; False where it is there. Raises BadSetting."""
    text = _text(file)
    values = _of_tree(_tree(text, file), KEY, file) or []
    if url in values:
        return False
    _checked(Listed((*values, url), str(file)))
    _write(file, text, [*values, url])
    return True


def remove_source(file: Path, url: str) -> bool:
    """Take a source out of a file's list; False where it is not in it. Raises BadSetting."""
    text = _text(file)
    values = _of_tree(_tree(text, file), KEY, file) or []
    if url not in values:
        return False
    _write(file, text, [value for value in values if value != url])
    return True


def _text(file: Path) -> str:
    """What stands in a file, the ends of its lines as they are (rule 4). Raises BadSetting."""
    try:
        return file.read_bytes().decode("utf-8") if file.is_file() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"{file}: {error}") from error


def _write(file: Path, text: str, values: list[str]) -> None:
    """Write the list in the place where it stood (rule 4)."""
    changed = _with_list(text, values)
    before, after = _tree(text, file), _tree(changed, file)
    if {**before, KEY: values} != after:
        raise BadSetting(
            f"{file}: {KEY} stands there in a form that cannot be changed safely",
            f"change it by hand: {KEY} = {_list_text(values)}",
        )
    file = file.resolve()  # what a link leads to is the person's file; the link stays
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    beside.write_bytes(changed.encode("utf-8"))
    if file.exists():
        beside.chmod(file.stat().st_mode & 0o777)
    beside.replace(file)


def _with_list(text: str, values: list[str]) -> str:
    end_of_line = "\r\n" if "\r\n" in text else "\n"
    statement = f"{KEY} = {_list_text(values)}\n".replace("\n", end_of_line)
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)  # a line of TOML ends in nothing else
    start = toml.lines_of(text).get((KEY,)) if text else None
    if start is None:
        return statement + (end_of_line + text if text else "")
    end = start
    while end < len(lines) and not _is_whole("".join(lines[start - 1 : end])):
        end += 1
    old = "".join(lines[start - 1 : end])
    if "#" in _without_strings(old):
        raise BadSetting(
            f"the list {KEY} has comments in it, which a rewritten list would lose",
            f"change it by hand: {KEY} = {_list_text(values)}",
        )
    return "".join([*lines[: start - 1], statement, *lines[end:]])


def _is_whole(statement: str) -> bool:
    try:
        tomllib.loads(statement)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _without_strings(text: str) -> str:
    kept, quote = [], ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            kept.append(character)
    return "".join(kept)


def _list_text(values: list[str]) -> str:
    if not values:
        return "[]"
    quoted = [f'  "{_escaped(value)}",\n' for value in values]
    return "[\n" + "".join(quoted) + "]"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
