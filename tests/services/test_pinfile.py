from pathlib import Path

from tapes.services.pinfile import PinFile
from tapes.services.pins import Pins

APPROVED = Pins({"summary": {"summary.run": "sha256:00"}})


def test_what_is_written_is_read_and_no_change_of_somebody_else(tmp_path: Path) -> None:
    file = PinFile(tmp_path / "folder" / "pins.json")
    assert file.read() == Pins()
    file.write(APPROVED)
    assert not file.changed()
    assert PinFile(file.path).read() == APPROVED
    file.path.write_text("{}")
    assert file.changed()


def test_a_file_that_is_gone_takes_no_approval_back(tmp_path: Path) -> None:
    file = PinFile(tmp_path / "pins.json")
    file.write(APPROVED)
    file.path.unlink()
    assert not file.changed()
