from pathlib import Path

import pytest

from tapes.errors import BadSetting
from tapes.services.limiting import Limited, limits_in
from tapes.services.traffic import Limits


def file_of(folder: Path, text: str) -> Path:
    file = folder / "config.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize("text", [None, "", '[proxy]\nmode = "replay"\n', "[cassette_limits]\n"])
def test_where_nothing_is_said_the_defaults_hold(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "config.toml" if text is None else file_of(tmp_path, text)
    assert limits_in(file) == Limited(Limits())


def test_what_is_said_of_one_goes_before_what_is_said_of_all(tmp_path: Path) -> None:
    text = (
        "[cassette_limits]\nat_once = 8\nresponse_bytes = 0\n"
        "[cassette_limits.search]\nsilence_s = 1\n"
    )
    every = Limits(at_once=8)
    found = limits_in(file_of(tmp_path, text))
    assert found == Limited(every, (("search", Limits(at_once=8, silence_s=1)),))


def test_a_service_may_be_called_as_a_limit_is(tmp_path: Path) -> None:
    found = limits_in(file_of(tmp_path, "[cassette_limits.failures]\nfailures = 2\n"))
    assert found == Limited(Limits(), (("failures", Limits(failures=2)),))


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    text = (
        "[cassette_limits]\nat_once = 0\nsilence_s = true\nfailures = 1.5\n"
        "rest_s = inf\nslots = 3\n"
        "[cassette_limits.Search]\nconnect_s = -1\n"
    )
    with pytest.raises(BadSetting) as caught:
        limits_in(file_of(tmp_path, text))
    for said in (
        "cassette_limits.at_once: must be a number above zero",
        "cassette_limits.silence_s: a number is needed",
        "cassette_limits.failures: a whole number is needed",
        "cassette_limits.rest_s: must be a number above zero",
        "cassette_limits.slots: there is no such limit",
        "cassette_limits.Search: no service can have this name",
        "cassette_limits.Search.connect_s: must be a number above zero",
    ):
        assert said in caught.value.message


@pytest.mark.parametrize("text", ["cassette_limits = 3\n", "cassette_limits = {"])
def test_what_is_no_table_is_said(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadSetting, match=r"config\.toml"):
        limits_in(file_of(tmp_path, text))
