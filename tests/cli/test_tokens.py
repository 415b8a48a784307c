"""Tokens that servers make and keep."""

from pathlib import Path

import pytest

from tapes.access import token_hash
from tapes.cli.tokens import kept_in, new_here
from tapes.errors import BadSetting


def test_a_token_is_kept_as_its_hash_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / ".tapes" / "proxy-token"
    assert kept_in(file) is None
    assert kept_in(file) != new_here(file)
    file.chmod(0o644)
    token = new_here(file)
    assert kept_in(file) == token_hash(token)
    assert file.stat().st_mode & 0o777 == 0o600
    assert "*-token" in (file.parent / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("content", [b"", b"a token itself\n", b"\xff\xfe"])
def test_a_file_without_a_hash_is_an_error_not_a_token(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "proxy-token"
    file.write_bytes(content)
    with pytest.raises(BadSetting, match="proxy-token"):
        kept_in(file)


def test_a_place_where_nothing_can_be_kept_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadSetting, match="no token can be kept in"):
        new_here(tmp_path / "file" / "proxy-token")
    (tmp_path / "proxy-token").mkdir()
    with pytest.raises(BadSetting, match="cannot be read: Is a directory"):
        kept_in(tmp_path / "proxy-token")
