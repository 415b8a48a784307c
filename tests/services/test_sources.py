from pathlib import Path

import pytest

from tapes.errors import BadSetting
from tapes.services.sources import (
    Listed,
    add_source,
    configuration_file,
    remove_source,
    source_list,
    trusted_hosts,
)

A, B, C = (f"http://127.0.0.1:{port}/openapi" for port in (1, 2, 3))


def file_of(folder: Path, text: str) -> Path:
    file = folder / "config.toml"
    file.write_text(text)
    return file


@pytest.mark.row("C1")
def test_the_flag_goes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = file_of(tmp_path, f'cassettes = ["{C}"]\n[proxy]\nmode = "replay"\n')
    environ = {"TAPES_CASSETTES": B}
    assert source_list([A], environ, file) == Listed((A,), "--cassettes")
    assert source_list([], environ, file) == Listed((B,), "TAPES_CASSETTES")
    assert source_list([], {}, file) == Listed((C,), str(file), file)
    assert source_list([], {}, None) == Listed()
    none = tmp_path / "none.toml"
    assert source_list([], {}, none) == Listed(file=none)


@pytest.mark.row("C1")
@pytest.mark.parametrize(
    ("text", "values"),
    [
        (f"{A},{B}", (A, B)),
        (f"  {A} ,\t{B}  ", (A, B)),
        (f'"{A}?x=1,2",{B}', (f"{A}?x=1,2", B)),
        (f"{A}\n{B}", (A,)),
        ("", ()),
        ("   ", ()),
    ],
)
def test_a_variable_is_one_record_with_commas(text: str, values: tuple[str, ...]) -> None:
    assert source_list([], {"TAPES_CASSETTES": text}).values == values


@pytest.mark.row("C1")
def test_values_of_a_repeated_flag_add_up_in_order() -> None:
    assert source_list([f"{A},{B}", C], {}).values == (A, B, C)


@pytest.mark.row("C1")
def test_every_problem_of_a_list_is_told_at_once_and_no_credential() -> None:
    wrong = ["tcp://h/x", A, "http://u:secret@h/x", A, "http://h/x#f"]
    with pytest.raises(BadSetting) as caught:
        source_list(wrong, {})
    text = str(caught.value)
    for place in ("cassettes[0]", "cassettes[2]", "cassettes[3]", "cassettes[4]"):
        assert place in text
    assert "secret" not in text


@pytest.mark.row("C1")
@pytest.mark.parametrize(
    "text", ["cassettes = 5", 'cassettes = ["x", 5]', '[[cassettes]]\nurl = "x"', "cassettes = ["]
)
def test_a_files_own_list_is_judged_even_where_it_is_not_used(tmp_path: Path, text: str) -> None:
    file = file_of(tmp_path, text)
    with pytest.raises(BadSetting, match=r"config\.toml"):
        source_list([A], {}, file)


def test_trusted_hosts_come_from_the_same_places(tmp_path: Path) -> None:
    file = file_of(tmp_path, 'cassette_hosts = ["c.internal"]\n')
    environ = {"TAPES_CASSETTE_HOSTS": "b.internal"}
    assert trusted_hosts(["a.internal"], environ, file).values == ("a.internal",)
    assert trusted_hosts([], environ, file).values == ("b.internal",)
    assert trusted_hosts([], {}, file).values == ("c.internal",)


def test_the_file_is_that_of_this_folder_or_that_of_the_person(
    in_tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = in_tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    here = Path(".tapes/config.toml")
    assert configuration_file() == here
    (home / ".tapes").mkdir(parents=True)
    (home / ".tapes" / "config.toml").write_text("")
    assert configuration_file() == home / ".tapes" / "config.toml"
    here.parent.mkdir()
    here.write_text("")
    assert configuration_file() == here
    assert configuration_file("elsewhere") == Path("elsewhere/config.toml")


# --- changing the list ------------------------------------------------------------------------


def test_a_list_is_begun_in_front_of_what_is_there(tmp_path: Path) -> None:
    file = file_of(tmp_path, "# mine\n[proxy]\nmode = 'replay'  # so\n")
    assert add_source(file, A)
    assert file.read_text().endswith("# mine\n[proxy]\nmode = 'replay'  # so\n")
    assert source_list([], {}, file).values == (A,)


def test_a_file_is_made_where_there_is_none(tmp_path: Path) -> None:
    file = tmp_path / ".tapes" / "config.toml"
    assert add_source(file, A)
    assert not add_source(file, A)
    assert source_list([], {}, file).values == (A,)


@pytest.mark.parametrize(
    "text",
    [
        f'cassettes = ["{A}", "{B}"]\n',
        f'# above\ncassettes = [\n  "{A}",\n  "{B}",\n]\n\n[proxy] # below\nlisten = "#1"\n',
        f"x = 1\ncassettes = [ '{A}',\n'{B}' ]",
    ],
)
def test_a_list_changes_and_everything_else_stays(tmp_path: Path, text: str) -> None:
    file = file_of(tmp_path, text)
    assert add_source(file, C)
    assert source_list([], {}, file).values == (A, B, C)
    assert remove_source(file, A)
    assert not remove_source(file, A)
    assert source_list([], {}, file).values == (B, C)
    for line in text.splitlines():
        if "127.0.0.1" not in line and line not in ("cassettes = [", "]"):
            assert line in file.read_text()


def test_a_list_with_comments_is_left_to_its_writer(tmp_path: Path) -> None:
    text = f'cassettes = [\n  "{A}", # the old one\n]\n'
    file = file_of(tmp_path, text)
    with pytest.raises(BadSetting, match="comments"):
        add_source(file, B)
    assert file.read_text() == text


def test_what_is_no_source_is_not_added(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    with pytest.raises(BadSetting, match="full URL"):
        add_source(file, "127.0.0.1:9999")
    assert not file.exists()


def test_every_other_line_stays_byte_by_byte_whatever_it_ends_in(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    before = "# one\u2028still one\r\nkeep = 1\r\n".encode()
    after = b"\r\n[section]\r\nlast = 'x'\r\n"
    file.write_bytes(before + f'cassettes = ["{A}"]\r\n'.encode() + after)
    assert add_source(file, B)
    written = file.read_bytes()
    assert written.startswith(before)
    assert written.endswith(b"]\r\n" + after)
    assert source_list(file=file, environ={}).values == (A, B)


def test_a_file_that_is_no_text_is_a_setting_to_mend(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(b"\xff")
    with pytest.raises(BadSetting, match=r"config\.toml"):
        add_source(file, A)


def test_a_file_that_is_a_link_stays_one_and_what_it_leads_to_changes(tmp_path: Path) -> None:
    kept = tmp_path / "kept.toml"
    kept.write_text(f'cassettes = ["{A}"]\n')
    link = tmp_path / "config.toml"
    link.symlink_to("kept.toml")
    assert add_source(link, B)
    assert link.is_symlink()
    assert source_list([], {}, kept).values == (A, B)
