"""What `import tapes` gives, and what it costs."""

import json
from pathlib import Path

import pytest

import tapes
from tests.running import run

NAMES = [
    "BudgetExhausted", "Cassette", "CassetteError", "CassetteMiss", "EffectRefused", "Effects",
    "LatchClosed", "Mode", "NetworkBlocked", "TapesError", "UnusedRecordings", "canonicalize",
    "open_tape", "ordered",
    "req_hash", "resolve", "sample", "use",
]  # fmt: skip

BLOCKED = """
import importlib.abc, sys

class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"blocked: {{name}}")
        return None

sys.meta_path.insert(0, Block())
"""
OTHERS = {"orjson", "click", "rich", "brotli", "zstandard", "genai_prices", "httpx", "requests"}


def test_the_public_names_are_these() -> None:
    assert tapes.__all__ == NAMES == sorted(NAMES)


@pytest.mark.parametrize("name", tapes.__all__)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    assert getattr(tapes, name).__doc__
    assert name in dir(tapes)


def test_a_name_that_is_not_there_is_named() -> None:
    with pytest.raises(AttributeError, match="module 'tapes' has no attribute 'casette'"):
        tapes.casette  # noqa: B018  # type: ignore[attr-defined]


def test_importing_the_package_loads_nothing_else(tmp_path: Path) -> None:
    code = """
    import json, sys
    before = set(sys.modules)
    import tapes
    print(json.dumps(sorted(set(sys.modules) - before)))
    """
    assert json.loads(run(code, tmp_path).stdout) == ["tapes"]


def test_a_name_loads_what_it_needs_and_no_other_package(tmp_path: Path) -> None:
    code = BLOCKED.format(blocked=OTHERS - {"orjson"}) + "import tapes; print(tapes.Cassette)"
    assert run(code, tmp_path).stdout == "<class 'tapes.cassette.Cassette'>\n"


@pytest.mark.parametrize("blocked", [OTHERS, set[str]()], ids=["alone", "with everything"])
def test_the_recorder_works_without_any_other_package(blocked: set[str], tmp_path: Path) -> None:
    code = BLOCKED.format(blocked=blocked) + (
        """
from tapes import Cassette, req_hash
request = {"prompt": "é", "t": 1e-07, "n": 2**70, "x": {"b": 1, "a": [0.1, None, True]}}
with Cassette("t.jsonl", "record", lambda r: {"echo": r["prompt"], "f": 1e16}, latch=True) as c:
    recorded = c.call(request)
with Cassette("t.jsonl") as c:
    answers = [c.call(dict(reversed(request.items()))) for _ in range(3)]
assert answers == [recorded] * 3 == [{"echo": "é", "f": 1e16}] * 3, answers
print(req_hash(request))
"""
    )
    result = run(code, tmp_path)
    assert result.stderr == ""
    assert result.stdout.strip() == tapes.req_hash(
        {"prompt": "é", "t": 1e-07, "n": 2**70, "x": {"b": 1, "a": [0.1, None, True]}}
    )


def test_a_tape_is_the_same_with_and_without_the_faster_writer(tmp_path: Path) -> None:
    lines = []
    for blocked in (OTHERS, set[str]()):
        folder = tmp_path / str(len(blocked))
        folder.mkdir()
        code = BLOCKED.format(blocked=blocked) + (
            """
from tapes import Cassette
answer = {"f": [0.1, 2.0, None], "s": "\\u2028é"}
with Cassette("t.jsonl", "record", lambda r: answer, latch=True) as c:
    c.call({"t": 0.7, "p": "é"})
"""
        )
        assert run(code, folder).stderr == ""
        row = json.loads((folder / "t.jsonl").read_text(encoding="utf-8"))
        text = (folder / "t.jsonl").read_text(encoding="utf-8")
        lines.append(text.replace(row["recorded_at"], "now"))
    assert lines[0] == lines[1]
