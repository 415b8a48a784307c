"""Settings: defaults < file < environment < flags, and each value knows its origin."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tapes.config import API, DEFAULT_TAPE, INGEST, PROXY, STORAGE, Settings, read_settings
from tapes.errors import BadRule, BadSetting
from tapes.rows import NO_ORG
from tests.commands import environment
from tests.running import ROOT


def settings(flags: dict[str, object] | None = None, **environ: str) -> Settings:
    return read_settings(PROXY, flags or {}, environ=environ)


def written(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(text)
    return folder


@pytest.fixture(autouse=True)
def _at_home(in_tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(in_tmp_path / "home"))
    (in_tmp_path / ".git").mkdir()


def test_a_later_source_wins_and_says_so(in_tmp_path: Path) -> None:
    found = settings()
    assert (found["proxy.tape"], found.origin("proxy.tape")) == (DEFAULT_TAPE, "default")
    written(in_tmp_path / ".tapes", '[proxy]\ntape = "file.jsonl"')
    assert (settings()["proxy.tape"], settings().origin("proxy.tape")) == (
        "file.jsonl",
        ".tapes/config.toml",
    )
    found = settings(TAPES_PROXY_TAPE="env.jsonl")
    assert (found["proxy.tape"], found.origin("proxy.tape")) == ("env.jsonl", "TAPES_PROXY_TAPE")
    found = settings({"proxy.tape": "flag.jsonl"}, TAPES_PROXY_TAPE="env.jsonl")
    assert (found["proxy.tape"], found.origin("proxy.tape")) == ("flag.jsonl", "--tape")


def test_the_folder_at_hand_comes_before_the_one_at_home(in_tmp_path: Path) -> None:
    (in_tmp_path / "home").mkdir()
    written(in_tmp_path / "home" / ".tapes", '[proxy]\ntape = "home.jsonl"')
    assert settings()["proxy.tape"] == "home.jsonl"
    written(in_tmp_path / ".tapes", "")
    assert settings()["proxy.tape"] == DEFAULT_TAPE
    written(in_tmp_path / "own", '[proxy]\ntape = "own.jsonl"')
    found = read_settings(PROXY, {}, environ={}, config_dir="own")
    assert found["proxy.tape"] == "own.jsonl"
    with pytest.raises(BadSetting, match="no such folder"):
        read_settings(PROXY, {}, environ={}, config_dir="absent")


def test_who_has_no_home_has_no_settings_there(in_tmp_path: Path) -> None:
    """As in a container that runs under a number that nobody has."""
    code = (
        "import os, pwd\n"
        "os.getuid = lambda: 4_000_000\n"
        "from tapes.cli.main import run\n"
        "raise SystemExit(run(['run', '--', 'true']) or run(['status']))"
    )
    env = {name: value for name, value in environment().items() if name != "HOME"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


def test_the_recorders_own_variable_sets_the_mode() -> None:
    assert settings()["proxy.mode"] == "replay"
    assert settings(CASSETTE_MODE="record").origin("proxy.mode") == "CASSETTE_MODE"


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("256MiB", 256 << 20), ("2 GB", 2 * 10**9), ("1kib", 1024)]
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert settings({"proxy.body_limit": text})["proxy.body_limit"] == size


def test_lists_and_tables_can_be_written_as_text() -> None:
    found = settings(TAPES_PROXY_UPSTREAMS="a=http://a, b=http://b:1", TAPES_PROXY_HOSTS="x, y")
    assert found["proxy.upstreams"] == {"a": "http://a", "b": "http://b:1"}
    assert found["proxy.hosts"] == ["x", "y"]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("[proxy]\nlistne = 1", "proxy.listne"),
        ("proxy = 1", r"\[proxy\]"),
        ("[proxy]\npace = -1", "proxy.pace"),
        ('[proxy]\npace = "fast"', "proxy.pace = 'fast': a number is needed"),
        ("[proxy]\npace = true", "proxy.pace"),
        ("[proxy]\ntape = 1", "proxy.tape"),
        ('[proxy]\nmode = "recrod"', "proxy.mode"),
        ('[proxy]\nlisten = "localhost"', "proxy.listen"),
        ("[proxy]\nlisten = 65536", "proxy.listen"),
        ('[proxy]\nbody_limit = "1 potato"', "proxy.body_limit"),
        ("[proxy]\nupstreams = 1", "proxy.upstreams"),
        ("[proxy", "config.toml"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_file(
    content: str, named: str, in_tmp_path: Path
) -> None:
    written(in_tmp_path / ".tapes", content)
    with pytest.raises(BadSetting, match=named) as caught:
        settings()
    assert ".tapes/config.toml" in str(caught.value)


def test_a_wrong_token_is_not_shown() -> None:
    with pytest.raises(BadSetting) as caught:
        settings({"proxy.token": 5})
    assert "5" not in str(caught.value)


def test_a_token_in_the_place_of_its_hash_is_not_shown() -> None:
    for variable in ("TAPES_API_TOKEN_SHA256", "TAPES_API_TENANTS"):
        with pytest.raises(BadSetting, match=variable) as caught:
            read_settings(API, {}, environ={variable: f"{NO_ORG}=sesame"})
        assert "sesame" not in str(caught.value)


def test_what_other_programs_keep_in_the_file_is_left_alone(in_tmp_path: Path) -> None:
    written(in_tmp_path / ".tapes", '[proxy]\nprovider = "ollama"\n[storage]\nx = 1')
    assert settings()["proxy.mode"] == "replay"


@pytest.mark.parametrize("slip", ["storag", "proxys", "ingests", "apis"])
def test_a_section_that_is_nearly_one_of_ours_is_an_error(in_tmp_path: Path, slip: str) -> None:
    written(in_tmp_path / ".tapes", f'[{slip}]\nlisten = "127.0.0.1:1"')
    with pytest.raises(BadSetting, match=rf"config.toml: unknown \[{slip}\]") as told:
        settings()
    assert told.value.remedy.startswith("is it [")


def test_a_byte_order_mark_is_no_part_of_a_file_of_settings(in_tmp_path: Path) -> None:
    written(in_tmp_path / ".tapes", '\ufeff[proxy]\ntape = "file.jsonl"')
    assert settings()["proxy.tape"] == "file.jsonl"


def test_upstreams_of_the_project_stand_beside_those_of_the_file(in_tmp_path: Path) -> None:
    (in_tmp_path / "tapes.toml").write_text('[upstreams]\na = "http://project"\nb = "http://b"')
    assert settings()["proxy.upstreams"] == {"a": "http://project", "b": "http://b"}
    found = settings(TAPES_PROXY_UPSTREAMS="a=http://env")
    assert found["proxy.upstreams"] == {"a": "http://env", "b": "http://b"}
    assert "tapes.toml" in found.origin("proxy.upstreams")
    (in_tmp_path / "tapes.toml").write_text("upstreams = 1")
    with pytest.raises(BadRule):
        settings()


# --- the page -------------------------------------------------------------------------------------


def test_the_page_has_every_setting_with_its_variable_and_default() -> None:
    page = (ROOT / "docs" / "proxy.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(proxy\.\w+)` \| `(\w+)` \| (.*?) \|", page, re.MULTILINE)
    shown = {s.key: "none" if not s.default and s.default != 0 else s.default for s in PROXY}
    assert {key: (variable, default.strip("`")) for key, variable, default in rows} == {
        s.key: (s.variable, str(shown[s.key]).removesuffix(".0")) for s in PROXY
    }


def test_a_folder_without_a_file_of_settings_says_so(in_tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"there is no config\.toml in \.") as caught:
        read_settings(STORAGE, {}, config_dir=".")
    assert caught.value.remedy.endswith("tapes init")


def test_of_several_addresses_the_flag_of_the_wrong_one_is_named() -> None:
    every = (*PROXY, *API, *INGEST)
    with pytest.raises(BadSetting, match=r"^--api-listen: api\.listen = 'x'"):
        read_settings(every, {"api.listen": "x"}, environ={})
    with pytest.raises(BadSetting, match=r"^--listen: api\.listen = 'x'"):
        read_settings(API, {"api.listen": "x"}, environ={})
