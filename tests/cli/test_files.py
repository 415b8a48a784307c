"""Files that commands write."""

from pathlib import Path

import pytest

from tapes.cli.files import require_room, whole_file
from tapes.errors import UnwritableTape


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "new" / "a.txt"
    with whole_file(target) as put:
        put(b"whole")
    with pytest.raises(ZeroDivisionError), whole_file(target) as put:
        put(b"half" * (1 // 0))
    assert target.read_bytes() == b"whole"
    assert list(target.parent.iterdir()) == [target]


def test_a_place_that_cannot_be_written_is_an_error_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file/a.txt", "x" * 300):
        with pytest.raises(UnwritableTape, match="cannot be written"), whole_file(tmp_path / name):
            pass


def test_what_is_there_stays_unless_somebody_gave_it_up(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("nowhere")
    require_room(tmp_path / "free", force=False)
    require_room(link, force=True)
    with pytest.raises(UnwritableTape, match="is there already\nto write over it: --force, or x"):
        require_room(link, force=False, instead="x")
