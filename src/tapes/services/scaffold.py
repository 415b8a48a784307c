"""A new service that is complete from the start: it passes its checks before a line is changed.

Knows nothing of the kit: what it writes uses it.
"""

from pathlib import Path

from tapes.errors import BadSetting
from tapes.services import manifest as manifests

CONTRACT = "v1"

_TOML = """\
kind = "cassette/v1alpha1"

[cassette]
name = "{name}"
version = "0.1.0"
description = "Says what it does in one line."

[depends]
core = "{contract}"
# views = ["sessions", "spans"]       # what it reads: tapes cassette grants --sql cassette.toml

# [[config]]                          # a value that the deployment supplies: {variable}
# key = "greeting"
# type = "string"
# default = "Hello"
"""
_VARIABLE = "CASSETTE_GREETING"

_SERVICE = '''\
"""The service {name}. Run it: python service.py"""

from pathlib import Path

from pydantic import BaseModel

from tapes.services.kit import Service

service = Service(Path(__file__).with_name("cassette.toml"))


class Text(BaseModel):
    text: str


class Words(BaseModel):
    words: int


@service.tool("count_words", read_only=True, idempotent=True)
def count_words(asked: Text) -> Words:
    """Count the words of a text."""
    return Words(words=len(asked.text.split()))


@service.get("/about")
def about() -> dict[str, str]:
    """Say which service this is."""
    return {{"cassette": service.name, "version": service.manifest.version}}


if __name__ == "__main__":
    service.run()
'''

_TEST = '''\
"""The service as a host sees it. Run it: pytest"""

from service import service
from tapes.services.kit.testing import hosted


def test_it_counts_words_for_an_agent() -> None:
    with hosted(service) as host:
        assert host.call("count_words", {{"text": "one two three"}}) == {{"words": 3}}
        assert host.get("/about")["cassette"] == service.name
'''


def files_of(name: str) -> dict[str, str]:
    """The files of a new service, by name. Raises BadSetting for a name that none can have."""
    toml = _TOML.format(name=name, contract=CONTRACT, variable=_VARIABLE)
    declared = manifests.parse_toml(toml) if '"' not in name and "\\" not in name else None
    problems = () if declared is None else manifests.validate(declared, [CONTRACT])
    if declared is None or problems:
        why = problems[0].message if problems else "has a character that no name can have"
        raise BadSetting(f"the name {name!r}: {why}", "for example: tapes cassette new word-count")
    return {
        "cassette.toml": toml,
        "service.py": _SERVICE.format(name=name),
        "test_service.py": _TEST.format(),
    }


def write_new(name: str, folder: Path) -> list[Path]:
    """Write a new service. Raises BadSetting where something is in the way, or nothing can be."""
    files = files_of(name)
    there = [folder / file for file in files if (folder / file).exists()]
    if there:
        raise BadSetting(f"{there[0]} is there already", "choose another --folder")
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
            written.append(folder / file)
    except OSError as error:
        raise BadSetting(
            f"{folder} cannot be written: {error.strerror}", "choose another --folder"
        ) from error
    return written
