"""Which tape a test has: names that stay distinct, and are safe on every file system.

    tests/test_weather.py::TestOslo::test_rain[nb]  →  tests/tapes/test_weather/TestOslo.test_rain[nb].jsonl

Rule 1: two tests never share a tape by accident. A name that had to be changed or shortened ends
        with a hash of what it was.
Rule 2: a tape that is named is looked for in the folder of tapes, so that tests of one folder
        share it; a name with a folder is a path from the test's own folder.

Knows nothing of tapes or pytest.
"""  # noqa: E501  # the example is one line

import hashlib
import os.path
import re

FOLDER = "tapes"
VCR_FOLDER = "cassettes"
SUFFIXES = (".jsonl", ".ndjson", ".db", ".sqlite", ".sqlite3")
# What every file system, git and a shell take; brackets stand around parameters.
_UNSAFE = re.compile(r"[^A-Za-z0-9._,=+@\[\]-]+")
_LONGEST = 120
# As vcrpy's plugins for pytest name their cassettes.
_NOT_IN_VCR_NAMES = str.maketrans(dict.fromkeys("<>?%*:|\"'/\\", "-"))


def safe(name: str) -> str:
    """The name as a file may have it; other than before, it ends with a hash of what it was."""
    cleaned = _UNSAFE.sub("-", name).strip(".-") or "test"
    if cleaned == name and len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{cleaned[: _LONGEST - 9]}-{digest}"


def module_name(file: str) -> str:
    """The folder of a test file's tapes: its name, without the ending that all of them have."""
    return os.path.basename(file).removesuffix(".py")


def own_tape(file: str, classes: tuple[str, ...], test: str, folder: str | None = None) -> str:
    """The path of the tape that one test has for itself."""
    name = safe(".".join((*classes, test)))
    return os.path.join(folder or _folder(file), safe(module_name(file)), f"{name}.jsonl")


def named_tape(file: str, name: str, folder: str | None = None) -> str:
    """The path of a tape that a test names."""
    ending = "" if name.endswith((*SUFFIXES, "/")) else ".jsonl"
    if "/" in name.rstrip("/"):
        return os.path.join(os.path.dirname(file), name + ending)
    return os.path.join(folder or _folder(file), name + ending)


def _folder(file: str) -> str:
    return os.path.join(os.path.dirname(file), FOLDER)


def vcr_folder(file: str) -> str:
    """Where users of the `vcr` marker keep the cassettes of a test file."""
    return os.path.join(os.path.dirname(file), VCR_FOLDER, module_name(file))


def vcr_name(classes: tuple[str, ...], test: str) -> str:
    """The name of a test's cassette under the `vcr` marker, without its ending."""
    return ".".join((*classes[-1:], test)).translate(_NOT_IN_VCR_NAMES)
