"""The JSONL document's own three tests, with only the import changed."""

# ruff: noqa: I001
from pathlib import Path
import pytest
from tapes import Cassette, req_hash

pytestmark = pytest.mark.row("A9")


def test_hash_ignores_timestamp():
    a = {"prompt": "x", "timestamp": "2026-09-17T10:00:00Z"}
    b = {"prompt": "x", "timestamp": "2026-09-17T11:00:00Z"}
    assert req_hash(a) == req_hash(b)


def test_replay_hit(tmp_path: Path):
    calls = {"n": 0}

    def live(req):
        calls["n"] += 1
        return {"text": "ok"}

    tape = Cassette(tmp_path / "t.jsonl", "record", live)
    import os

    os.environ["DEMO_LIVE"] = "1"
    assert tape.call({"prompt": "x"})["text"] == "ok"
    os.environ.pop("DEMO_LIVE", None)
    replay = Cassette(tmp_path / "t.jsonl", "replay", live)
    assert replay.call({"prompt": "x"})["text"] == "ok"
    assert calls["n"] == 1


def test_replay_miss_fails_closed(tmp_path: Path):
    tape = Cassette(tmp_path / "t.jsonl", "replay", lambda req: {"text": "nope"})
    with pytest.raises(SystemExit):
        tape.call({"prompt": "missing"})
