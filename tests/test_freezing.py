import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tapes.cassette import Cassette, Play
from tapes.exchange import Request, Response, State
from tapes.freezing import drift, freeze, module_for, why_not
from tapes.jsontext import Json
from tapes.rows import Outcome, RawTurn, Source
from tapes.seeding import sample_turns
from tapes.tape.jsonl import JsonlTape
from tests.running import run
from tests.turns import chat, raw_turn, said


def coding() -> list[RawTurn]:
    return [turn for turn in sample_turns() if turn.request_id.startswith("sample-coding")]


def sent(turn: RawTurn) -> Request:
    assert turn.exchange is not None
    assert isinstance(turn.exchange.request, Request)
    return turn.exchange.request


def test_a_session_replays_from_its_tape_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "coding.jsonl"
    done = freeze(coding(), JsonlTape(path))
    assert (done.added, done.there_already) == (8, 0)
    assert freeze(coding(), JsonlTape(path)).added == 0
    with Cassette(path, "replay") as cassette:
        for turn in coding():
            verdict = cassette.decide(sent(turn))
            assert isinstance(verdict, Play)
            assert turn.exchange is not None
            assert isinstance(turn.exchange.response, Response)
            assert verdict.exchange.response.body == turn.exchange.response.body


def test_secrets_do_not_come_to_rest_on_the_tape(tmp_path: Path) -> None:
    secret = "sk-ant-api03-" + "A1b2C3d4" * 6
    turn = chat(1, [said("user", f"my key is {secret}")], "do not tell me")
    path = tmp_path / "a.jsonl"
    done = freeze([turn], JsonlTape(path))
    assert done.secrets
    assert secret not in path.read_text()


@pytest.mark.parametrize(
    ("turn", "why"),
    [
        (RawTurn(source=Source.TRANSCRIPT, records=[]), "log"),
        (RawTurn(reduced={}), "request"),
        (replace(chat(1, [], "x"), dropped=True), "bytes"),
        (replace(chat(1, [], "x"), outcome=Outcome.REFUSED), "refused"),
        (raw_turn(1, "/v1/messages", {}, {}, state=State.ABORTED_BY_CLIENT), "whole"),
        (raw_turn(1, "/v1/messages", {}, {}, status=429), "429"),
    ],
    ids=["transcript", "reduced", "dropped", "refused", "aborted", "error"],
)
def test_what_is_no_answer_is_left_out_with_its_reason(
    turn: RawTurn, why: str, tmp_path: Path
) -> None:
    assert why in (why_not(turn) or "")
    done = freeze([turn], JsonlTape(tmp_path / "a.jsonl"))
    assert done.added == 0
    assert [note.left_out for note in done.notes] == [True]


def as_json(turn: RawTurn) -> RawTurn:
    assert turn.exchange is not None
    request = replace(sent(turn), headers=(("content-type", "application/json"),))
    return replace(turn, exchange=replace(turn.exchange, request=request))


def test_a_prompt_that_drifted_is_found_with_its_place(tmp_path: Path) -> None:
    tape = JsonlTape(tmp_path / "a.jsonl")
    before = [chat(1, [said("user", "hi")], "hello"), chat(2, [said("user", "bye")], "x")]
    freeze(map(as_json, before), tape)
    later = [chat(3, [said("user", "hi")], "hello"), chat(4, [said("user", "high")], "other")]
    found = drift(map(as_json, later), tape)
    assert (found.asked, found.answered, len(found.unused)) == (2, 1, 1)
    (drifted,) = found.drifted
    assert drifted.turn_id == 4
    assert drifted.places == ("messages[0].content",)


def test_a_session_has_not_drifted_from_its_own_tape_though_a_call_of_it_failed(
    tmp_path: Path,
) -> None:
    tape = JsonlTape(tmp_path / "a.jsonl")
    asked: Json = {"model": "m", "messages": [said("user", "one too many")]}
    failed = raw_turn(2, "/v1/chat/completions", asked, {"error": {}}, status=429)
    turns = [as_json(chat(1, [said("user", "hi")], "hello")), as_json(failed)]
    freeze(turns, tape)
    found = drift(turns, tape)
    assert (found.asked, found.answered, found.drifted) == (1, 1, ())
    assert [(note.place, "429" in note.text) for note in found.left_out] == [("turn 2", True)]
    refused = replace(turns[1], outcome=Outcome.REFUSED)
    assert len(drift([refused], tape).drifted) == 1


def test_the_test_that_is_made_passes_and_can_fail(tmp_path: Path) -> None:
    path = tmp_path / "coding.jsonl"
    freeze(coding(), JsonlTape(path))
    module = module_for(str(path), "coding.jsonl", agent="claude", session="s")
    (tmp_path / "test_coding.py").write_text(module)
    code = "import pytest, sys; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '.']))"
    assert run(code, tmp_path).returncode == 0
    lines = path.read_text().splitlines()
    broken = json.loads(lines[0])
    broken["hash"] = "0" * 64
    path.write_text("\n".join([json.dumps(broken), *lines[1:]]) + "\n")
    assert run(code, tmp_path).returncode == 1


def test_what_an_agent_is_called_is_no_code_of_the_test_that_is_made() -> None:
    """The name came with a request: whoever could call the proxy chose it."""
    name = '"""\nraise SystemExit("it ran")\n"""'
    plain = ast.parse(module_for("a.jsonl", "a.jsonl", agent="claude", session="s"))
    for agent, session in ((name, "s"), ("claude", name), ("\\N{", "\\u12"), ("\ud800", "\0")):
        text = module_for("C:\\Users\\a.jsonl", "a.jsonl", agent=agent, session=session)
        made = ast.parse(text.encode("utf-8"))
        assert [ast.dump(node) for node in made.body[1:]] == [
            ast.dump(node) for node in plain.body[1:]
        ]
