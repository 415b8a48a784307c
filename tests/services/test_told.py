from pathlib import Path

import pytest

from tapes.errors import BadSetting
from tapes.services.limiting import Limited, limits_in
from tapes.services.sources import Listed, source_list, trusted_hosts
from tapes.services.told import Told
from tapes.services.traffic import Limits

WHOLE = """
cassettes = ["http://summary.internal/openapi"]
cassette_hosts = ["summary.internal"]
[cassette_limits]
at_once = 2
"""


def told(file: Path) -> Told:
    return Told(source_list((), {}, file), trusted_hosts((), {}, file), limits_in(file))


def test_what_the_file_decides_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    before = told(file)
    file.write_text(WHOLE)
    now = before.anew()
    assert now.sources.values == ("http://summary.internal/openapi",)
    assert now.trusted.values == ("summary.internal",)
    assert now.limited.of("any") == Limits(at_once=2)


def test_what_a_flag_or_a_program_says_stands(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    said = Told(Listed((), "--cassettes"), Listed(("a",), "--cassette-host"), Limited())
    file.write_text(WHOLE)
    assert said.file is None
    assert said.anew() == said


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        WHOLE.replace("at_once = 2", "at_once = -1"),
        WHOLE.replace('"summary.internal"', '"a/b"'),
        WHOLE.replace("http:", "ftp:"),
    ],
    ids=["gone", "empty", "limit", "host", "source"],
)
def test_what_cannot_be_taken_whole_is_not_taken(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "config.toml"
    file.write_text(WHOLE)
    before = told(file)
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    with pytest.raises(BadSetting):
        before.anew()


def test_hosts_and_limits_that_are_said_no_more_hold_no_more(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(WHOLE)
    before = told(file)
    file.write_text("cassettes = []\n")
    now = before.anew()
    assert (now.sources.values, now.trusted.values, now.limited) == ((), (), Limited())
