"""Sessions from the command line: look, search, follow, erase, move, freeze."""

import io
import json
import os
import re
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tapes.cli.exporting import OTLP_LIMIT
from tapes.cli.main import run
from tapes.prices import Price, Prices
from tapes.projector import Projector
from tapes.rows import Outcome
from tapes.store.sqlite import open_sqlite
from tests.commands import command, environment
from tests.turns import chat, said

CODING = "5a3c9f1e"


@pytest.fixture
def log(in_tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with a log of sample sessions."""
    assert run(["seed"]) == 0
    capsys.readouterr()
    return in_tmp_path


def typed(capsys: pytest.CaptureFixture[str], *args: str, status: int = 0) -> str:
    assert run(args) == status
    return capsys.readouterr().out


def told(capsys: pytest.CaptureFixture[str], *args: str, status: int = 0) -> Any:
    return json.loads(typed(capsys, *args, "--json", status=status))


def test_the_list_shows_the_latest_and_what_a_query_finds(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(typed(capsys, "sessions", "list").splitlines()) == 7
    only = typed(capsys, "sessions", "list", "harness:claude").splitlines()
    assert len(only) == 2
    assert "The invoice test fails" in only[1]
    by_start = ("sessions", "list", "--limit", "1", "--sort", "started_at")
    latest, first = told(capsys, *by_start), told(capsys, *by_start, "--up")
    assert [s["harness_id"] for s in latest["sessions"]] == ["claude"]
    assert [s["harness_session_id"] for s in first["sessions"]] == ["weather-live-2026-11-29"]
    assert run(["sessions", "list", "colour:red"]) == 2
    assert "there are:" in capsys.readouterr().err


def test_a_sum_of_money_says_how_many_calls_it_leaves_out(
    in_tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_sqlite(in_tmp_path / ".tapes" / "tapes.db")
    known = Price(model="paid", input=Decimal(1200), output=Decimal(0))
    ask = [said("user", "hi")]
    store.append([chat(1, ask, "a", model="paid"), chat(2, ask, "b", model="acme-local-7b")])
    Projector(store, price=Prices([known], table=False)).drain()
    store.close()
    assert "$0.12 + 1 unpriced call\n" in typed(capsys, "sessions", "show", "s")
    assert "$0.12+" in typed(capsys, "sessions", "list")


def test_a_session_that_a_tape_answered_cost_nothing(
    in_tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_sqlite(in_tmp_path / ".tapes" / "tapes.db")
    store.append([chat(1, [said("user", "hi")], "a", outcome=Outcome.REPLAYED)])
    Projector(store).drain()
    store.close()
    assert re.search(r"cost +\$0\.00\n", typed(capsys, "sessions", "show", "s"))
    assert "$0.00" in typed(capsys, "sessions", "list", "cost:<=0")


def test_a_call_beside_the_conversation_is_shown_as_what_it_is(
    in_tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_sqlite(in_tmp_path / ".tapes" / "tapes.db")
    ask = [said("user", "hi")]
    store.append([chat(1, ask, "a", asks={"max_tokens": 1}), chat(2, ask, "b")])
    Projector(store).drain()
    store.close()
    lines = typed(capsys, "sessions", "show", "s").splitlines()
    assert [", probe]" in line for line in lines if " llm " in line] == [True, False]


def test_who_stops_reading_an_export_ends_it_quietly(log: Path) -> None:
    with subprocess.Popen(
        command("sessions", "export", "-", "--format", "jsonl"),
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10) == b'{"kind":"t'
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 141


def test_an_empty_log_says_what_to_do(
    in_tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sessions", "list"]) == 0
    assert "tapes seed" in capsys.readouterr().err


@pytest.mark.parametrize("text", [CODING, "toolu_03", "trc_sample-coding-1", "sample-coding-2"])
def test_a_session_is_shown_by_any_id(
    log: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    shown = typed(capsys, "sessions", "show", text)
    assert "its own id  5a3c9f1e-7d42" in shown
    assert 'Agent({"description": "Find roundings"' in shown
    assert told(capsys, "sessions", "show", text)["session"]["harness_id"] == "claude"


def test_ids_that_nothing_or_too_much_has_are_errors(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sessions", "show", "nobody-has-this"]) == 5
    assert "tapes sessions list" in capsys.readouterr().err


def test_erasing_asks_tells_and_is_for_good(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "would go" in typed(capsys, "sessions", "delete", CODING, "--dry-run")
    done = told(capsys, "sessions", "delete", CODING, "--yes", "--reason", "test")
    assert (done["sessions"], done["turns"]) == (1, 8)
    assert run(["sessions", "show", CODING]) == 5
    assert len(told(capsys, "sessions", "list")["sessions"]) == 5


def test_what_is_exported_comes_back_in_another_log(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(capsys, "sessions", "export", "a.jsonl", "harness:claude")["rows"] == 8
    first = told(capsys, "sessions", "import", "a.jsonl", "--store", "b.db")
    again = told(capsys, "sessions", "import", "a.jsonl", "--store", "b.db")
    assert (first, again) == (
        {"new": 8, "known": 0, "erased": 0},
        {"new": 0, "known": 8, "erased": 0},
    )
    one = told(capsys, "sessions", "show", CODING)
    other = told(capsys, "sessions", "show", CODING, "--store", "b.db")
    for whole in (one, other):
        whole["session"].pop("seq")
        for each in whole["traces"]:
            for span in each["spans"]:
                span.pop("raw_turn_id", None)
    assert one == other
    assert run(["sessions", "export", "a.jsonl"]) == 4
    assert "--force" in capsys.readouterr().err


def test_what_was_exported_as_otlp_comes_back_too(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told(capsys, "sessions", "export", "a.json", "--content")
    first = told(capsys, "sessions", "import", "a.json", "--store", "b.db")
    assert first["new"] > 24
    again = told(capsys, "sessions", "import", "a.json", "--store", "b.db")
    assert again == {"new": 0, "known": first["new"], "erased": 0}
    there, here = (
        {
            each["harness_session_id"]: [
                each["rollup"]["usage"],
                *(each.get(n) for n in ("display_title", "name", "cwd", "harness_version", "tags")),
            ]
            for each in told(capsys, "sessions", "list", *where)["sessions"]
        }
        for where in ((), ("--store", "b.db"))
    )
    assert there == here
    assert told(capsys, "derive", "--check", "--store", "b.db")["differences"] == []


@pytest.mark.parametrize(
    ("content", "word"),
    [(b"PAR1\x15\x04", "Parquet"), (b'{"resourceSpans": 3}', "resourceSpans"),
     (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"spanId": "x"}]}]}]}', "line 1")],
)  # fmt: skip
def test_what_does_not_come_back_says_why(
    log: Path, capsys: pytest.CaptureFixture[str], content: bytes, word: str
) -> None:
    Path("a.file").write_bytes(content)
    assert run(["sessions", "import", "a.file", "--store", "b.db"]) == 3
    assert word in capsys.readouterr().err


def test_opentelemetry_that_memory_cannot_hold_is_refused(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("a.json").open("wb") as file:
        file.write(b'{"resourceSpans":[')
        file.truncate(OTLP_LIMIT + 2)  # nothing but room: no disk is needed for it
    assert run(["sessions", "import", "a.json", "--store", "b.db"]) == 3
    told = capsys.readouterr().err
    assert "a.json, line 1: OpenTelemetry of more than 64 MiB" in told
    assert "--format jsonl" in told


def test_an_export_says_that_some_sessions_wait(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_sqlite(log / ".tapes" / "tapes.db")
    store.append([chat(1, [said("user", "late")], "x", session="late")])
    store.close()
    assert run(["sessions", "export", "a.jsonl"]) == 0
    assert "not in it yet: 1 session to derive" in capsys.readouterr().err
    assert "1 session to derive: tapes derive" in typed(capsys, "status")
    assert run(["derive"]) == 0
    capsys.readouterr()
    assert run(["sessions", "export", "a.jsonl", "--force"]) == 0
    assert "not in it" not in capsys.readouterr().err
    assert "late" in Path("a.jsonl").read_text()


def test_other_formats_are_written_by_their_names(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(capsys, "sessions", "export", "a.json")["format"] == "otlp"
    assert len(json.loads(Path("a.json").read_text())["resourceSpans"]) == 6
    assert told(capsys, "sessions", "export", "a.parquet")["format"] == "parquet"
    assert Path("a.parquet").read_bytes().startswith(b"PAR1")
    assert run(["sessions", "export", "a.csv"]) == 2


def test_sessions_are_compared(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = told(capsys, "diff", "weather-live-2026-11-29", "weather-replay-2026-11-29")
    assert same["first_divergence"] is None
    other = told(capsys, "diff", CODING, "phrasebook", status=1)
    assert other["first_divergence"]["differences"]


def test_words_and_ids_are_found(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Do I need an umbrella?" in typed(capsys, "search", "umbrella")
    assert told(capsys, "search", "--id", "toolu_03")["items"][0]["noun"] == "spans"
    typed(capsys, "search", "nowhere-to-be-found", status=1)


def test_a_change_beyond_what_a_database_counts_is_no_place_to_begin(log: Path) -> None:
    assert run(["tail", "--since", str(2**63), "--once"]) == 2
    assert run(["tail", "--since", str(2**63 - 1), "--once"]) == 0


def test_following_shows_spans_and_sessions(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = typed(capsys, "tail", "--since", "0", "--once").splitlines()
    assert len(lines) == 48
    assert any("Bash" in line for line in lines)
    items = typed(capsys, "tail", "--since", "0", "--once", "--sessions", "--json").splitlines()
    assert len([json.loads(item)["id"] for item in items]) == 6
    assert typed(capsys, "tail", "--once") == ""


def test_a_session_is_frozen_and_its_drift_is_found(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tape = "tests/tapes/coding.jsonl"
    done = told(capsys, "freeze", CODING, "-o", tape)
    assert (done["added"], done["test"]) == (8, "tests/test_coding.py")
    compile(Path("tests/test_coding.py").read_text(), "test_coding.py", "exec")
    assert told(capsys, "freeze", CODING, "-o", tape, "--check")["drifted"] == []
    later = told(capsys, "freeze", "phrasebook", "-o", tape, "--check", status=1)
    assert len(later["drifted"]) == 3
    assert run(["freeze", CODING, "-o", tape]) == 4
    assert run(["freeze", CODING, "-o", "new.jsonl", "--test", "./new.jsonl", "--force"]) == 2
    assert not Path("new.jsonl").exists()
    plan = told(capsys, "sessions", "delete", CODING, "--dry-run")
    assert plan["tapes"] == [tape]


def test_the_database_is_checked_backed_up_and_copied(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(capsys, "db", "check")["damage"] == []
    assert told(capsys, "db", "backup", "b.db") == {"file": "b.db"}
    Path("mine.txt").write_text("mine")
    for there in ("b.db", "mine.txt"):
        assert run(["db", "backup", there]) == 4
        assert "--force" in capsys.readouterr().err
    assert Path("mine.txt").read_text() == "mine"
    Path("a folder").mkdir()
    for nowhere in ("a folder", ""):
        assert run(["db", "backup", nowhere, "--force"]) == 4
    assert not [file for file in Path().iterdir() if file.name.endswith(".part")]
    assert run(["db", "backup", ".tapes/tapes.db", "--force"]) == 2
    assert told(capsys, "db", "backup", "b.db", "--force") == {"file": "b.db"}
    assert len(told(capsys, "sessions", "list", "--store", "b.db")["sessions"]) == 6
    assert told(capsys, "db", "copy", "c.db")["new"] == 24
    assert told(capsys, "db", "copy", "c.db")["new"] == 0
    assert run(["db", "copy", ".tapes/tapes.db"]) == 2


def test_a_session_is_frozen_up_to_a_turn(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("freeze", CODING, "--until", "llm_sample-coding-2", "--no-test", "-o")
    assert told(capsys, *args, "fork.jsonl")["added"] == 2
    whole = told(capsys, "freeze", CODING, "-o", "fork.jsonl", "--check", status=1)
    assert (whole["answered"], len(whole["drifted"])) == (2, 6)
    assert told(capsys, *args, "fork.jsonl", "--check")["drifted"] == []
    assert told(capsys, "freeze", CODING, "--until", "2", "-o", "b.jsonl", "--no-test")["added"]


def test_a_turn_that_the_session_has_not_is_refused_before_a_tape_is_made(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["freeze", CODING, "--until", "99999", "-o", "fork.jsonl"]) != 0
    assert "tapes sessions show" in capsys.readouterr().err
    assert not Path("fork.jsonl").exists()


def failed(capsys: pytest.CaptureFixture[str], *args: str, status: int) -> str:
    assert run(args) == status
    return capsys.readouterr().err


def test_a_log_that_is_named_and_not_there_is_an_error_and_is_not_made(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command_of in (["sessions", "list"], ["db", "check"], ["derive"], ["search", "x"]):
        told_ = failed(capsys, *command_of, "--store", "typo.db", status=3)
        assert told_.startswith("there is no log typo.db\n")
    assert not (log / "typo.db").exists()


def test_what_can_be_no_log_is_refused(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no log lies at mysql://" in failed(
        capsys, "sessions", "list", "--store", "mysql://db.local/tapes", status=2
    )
    assert "a folder" in failed(capsys, "sessions", "list", "--store", ".", status=3)
    assert not (log / "mysql:").exists()


def test_nothing_found_is_not_an_empty_log(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert failed(capsys, "sessions", "list", "model:none", status=0) == "no session is so\n"
    assert "no session yet" not in failed(capsys, "sessions", "list", "model:none", status=0)
    assert failed(capsys, "search", "zyzzyva", status=1) == "nothing here has these words\n"


def test_an_id_that_is_too_short_says_so(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for asked in (("sessions", "show", "5a3c"), ("search", "--id", "5a3c")):
        told_ = failed(capsys, *asked, status=5 if asked[0] == "sessions" else 1)
        assert "the id 5a3c; of a longer one at least 8 characters" in told_


def test_a_value_that_cannot_be_read_is_shown_in_its_place(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for query, place in (("cost:>abc", 11), ("since:soon", 11), ("turns:many", 11)):
        told_ = failed(capsys, "sessions", "list", "model:gpt", query, status=2)
        assert f"(character {place})" in told_
    assert "no field 'a' (character 1)" in failed(capsys, "search", "a:b", status=2)


def test_turns_are_shown_by_the_numbers_that_until_takes(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = typed(capsys, "sessions", "show", "nightly-report-0412")
    [number] = re.findall(r"\[turn (\d+), 0\.7 s", shown)
    until = ("--until", number, "-o", "night.jsonl", "--no-test")
    assert told(capsys, "freeze", "nightly-report-0412", *until)["added"] == 1


def test_arguments_of_tools_are_shown_as_json(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 'Read({"path": "shop/invoice.py"})' in typed(capsys, "sessions", "show", CODING)


def test_what_was_erased_is_not_said_to_be_there(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told(capsys, "sessions", "export", "all.jsonl")
    told(capsys, "sessions", "delete", CODING, "--yes")
    assert told(capsys, "sessions", "import", "all.jsonl") == {"new": 0, "known": 16, "erased": 8}
    assert "8 were erased for good" in typed(capsys, "sessions", "import", "all.jsonl")


def test_who_cannot_be_asked_is_told_how_to_erase_all_the_same(log: Path) -> None:
    done = subprocess.run(
        command("sessions", "delete", CODING),
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130
    assert done.stderr.endswith("nothing was erased; to erase without being asked: --yes\n")


def test_damage_of_the_database_itself_is_told_not_stumbled_over(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(".tapes/tapes.db", "r+b") as file:
        file.seek(os.path.getsize(".tapes/tapes.db") // 2)
        file.write(b"\xa5" * 8192)
    told_ = told(capsys, "db", "check", status=1)
    assert told_["damage"]


def test_a_session_of_which_nothing_can_answer_makes_no_tape_and_says_so(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = typed(capsys, "sessions", "show", "nightly-report-0412")
    number = min(re.findall(r"\[turn (\d+),", shown), key=int)  # a limit that was reached
    asked = ("freeze", "nightly-report-0412", "--until", number, "-o", "none.jsonl")
    told_ = failed(capsys, *asked, status=1)
    assert told_.startswith("nothing went onto none.jsonl: no call of it can answer\nleft out: ")
    assert told(capsys, *asked, status=1)["test"] is None
    assert not (log / "none.jsonl").exists()
    assert not (log / "test_none.py").exists()
    gone = told(capsys, "sessions", "delete", "nightly-report-0412", "--dry-run")
    assert gone["tapes"] == []


def test_erasing_asks_whoever_wants_json_too(
    log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert run(["sessions", "delete", CODING, "--json"]) == 130
    ended = capsys.readouterr()
    assert ended.out.strip() == ""
    assert "for good?" in ended.err
    assert run(["sessions", "show", CODING]) == 0


@pytest.mark.parametrize("args", [["seed"], ["status"], ["sessions", "import", "x.jsonl"]])
def test_a_tenant_that_is_no_uuid_is_an_error_everywhere(
    log: Path, capsys: pytest.CaptureFixture[str], args: list[str]
) -> None:
    assert run([*args, "--org", "nobody"]) == 2
    assert capsys.readouterr().err.startswith("--org 'nobody' is no UUID\n")


@pytest.mark.parametrize("test_file", ["tape.jsonl/test_x.py", "x" * 300 + ".py"])
def test_a_test_that_cannot_be_written_is_an_error(
    log: Path, capsys: pytest.CaptureFixture[str], test_file: str
) -> None:
    assert run(["freeze", CODING, "-o", "tape.jsonl", "--test", test_file]) == 4
    assert "cannot be written" in capsys.readouterr().err


def test_no_test_reads_a_tape_on_a_server_and_no_password_is_told(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["freeze", CODING, "-o", "postgresql://me:a-secret@127.0.0.1:1/x"]) == 2
    ended = capsys.readouterr()
    assert "add: --no-test" in ended.err
    assert "a-secret" not in ended.err + ended.out
    assert not list(log.glob("postgresql*"))


def test_a_file_that_no_name_can_have_is_an_error(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sessions", "export", "x" * 300 + ".jsonl"]) == 4
    assert "cannot be written: File name too long" in capsys.readouterr().err
