from pathlib import Path

import pytest

from tapes.canonical import TAPE, key_of
from tapes.cassette import Cassette
from tapes.errors import BadSetting, CassetteMiss, IncompleteRecording, WrongCanonicalizer
from tapes.exchange import Request, State
from tapes.explanation import explain, http_request_of, request_of_text
from tapes.project import Declared
from tapes.report import runs_of
from tapes.tape.base import MemoryTape
from tapes.tape.kinds import open_tape
from tapes.varying import Rule
from tests.making import KINDS, call, chat, tape_in

KEY = "sk-proj-" + "a1B2" * 8


def test_a_hit_names_what_answers_and_how_the_key_comes_about() -> None:
    tape = MemoryTape((call("one"),))
    found = explain(tape, {"prompt": "one", "cwd": "/home/me"}, Declared(), canonicalizer="tape/1")
    assert found.found == call("one")
    assert found.key == call("one").key == key_of(found.text)
    assert found.text == '{"prompt":"one"}'
    assert found.left_out == ("cwd",)


@pytest.mark.row("N15")
def test_a_miss_names_the_nearest_recording_and_every_difference() -> None:
    tape = MemoryTape((call("one"), call("another thing")))
    found = explain(tape, {"prompt": "ones", "temperature": 1}, Declared(), canonicalizer="tape/1")
    assert isinstance(found.error, CassetteMiss)
    assert found.near is not None
    assert found.near.exchange == call("one")
    assert [(d.place, d.asked, d.recorded) for d in found.near.differences] == [
        ("prompt", "ones", "one"),
        ("temperature", 1, None),
    ]


def test_rules_and_redactions_are_told() -> None:
    rule = Rule.of({"at": "/run"})
    declared = Declared(rules=(rule,))
    found = explain(
        MemoryTape(), {"prompt": f"use {KEY}", "run": 7}, declared, canonicalizer="tape/1"
    )
    assert found.rules == (rule,)
    assert found.redacted == ("prompt",)
    assert KEY not in found.text
    assert '"run":"VARIES"' in found.text


def test_what_of_an_http_request_does_not_count() -> None:
    recorded = chat("hello")
    assert isinstance(recorded.request, Request)
    request = Request(
        "POST",
        f"http://localhost:9/v1/chat/completions?key={KEY}",
        (*recorded.request.headers, ("Authorization", f"Bearer {KEY}"), ("User-Agent", "x")),
        recorded.request.body,
    )
    found = explain(MemoryTape((recorded,)), request, Declared(), canonicalizer="tape/1")
    assert found.found == recorded
    assert found.canonicalizer == "http/1"
    assert found.left_out == (
        "the scheme and the host",
        "query parameter key",
        "header Authorization",
        "header User-Agent",
    )


def test_the_reasons_of_other_misses_are_told() -> None:
    cut = chat("hello", state=State.ABORTED_BY_CLIENT)
    assert isinstance(cut.request, Request)
    found = explain(MemoryTape((cut,)), cut.request, Declared(), canonicalizer="tape/1")
    assert isinstance(found.error, IncompleteRecording)
    other = explain(
        MemoryTape((call("ü"),)), {"prompt": "ü"}, Declared(), canonicalizer="directory/1"
    )
    assert isinstance(other.error, WrongCanonicalizer)


def test_a_further_sample_has_a_key_of_its_own() -> None:
    tape = MemoryTape((chat("x", "a"), chat("x", "b", sample=1)))
    request = chat("x").request
    first = explain(tape, request, Declared(), canonicalizer="tape/1")
    second = explain(tape, request, Declared(), canonicalizer="tape/1", sample=1)
    assert first.found == chat("x", "a")
    assert second.found == chat("x", "b", sample=1)
    assert second.key == chat("x", sample=1).key


@pytest.mark.parametrize("kind", KINDS)
def test_explaining_is_no_run(tmp_path: Path, kind: str) -> None:
    tape = open_tape(tape_in(tmp_path, kind, [call("one")]))
    for prompt in ("one", "two"):
        explain(tape, {"prompt": prompt}, Declared(), canonicalizer="tape/1")
    assert runs_of(tape) == []
    tape.close()


def test_the_key_is_the_one_that_a_program_asks_with(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    request = {"prompt": "other", "timestamp": "now", "nested": {"b": 1, "a": [1.5, None]}}
    found = explain(open_tape(path), request, Declared(), canonicalizer="tape/1")
    with Cassette(path) as cassette, pytest.raises(CassetteMiss) as caught:
        cassette.call(request)
    assert found.key[:12] in caught.value.message
    assert found.key == key_of(TAPE.text(request))


# --- requests from files


def test_an_http_request_from_json_in_the_ways_that_people_write_it() -> None:
    wanted = chat("hello").request
    assert isinstance(wanted, Request)
    body = {
        "model": "gpt-4o-mini",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
    }
    url = wanted.url
    forms = [
        {"url": url, "body": body},
        {"url": url, "headers": {"content-type": "application/json"}, "body": {"json": body}},
        {
            "method": "POST",
            "url": url,
            "headers": [["content-type", "application/json"]],
            "body": {"text": wanted.body.decode()},
        },
    ]
    assert [http_request_of(form) for form in forms] == [wanted] * 3


@pytest.mark.parametrize("value", [[], {}, {"url": "http://x", "headers": 3}, "text", None])
def test_what_is_no_http_request_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(BadSetting, match="it looks like this"):
        http_request_of(value)


@pytest.mark.parametrize("text", ["", "[1]", "{oops", "3"])
def test_what_is_no_request_is_refused(text: str) -> None:
    with pytest.raises(BadSetting, match="object"):
        request_of_text(text, over_http=False)


def test_a_request_that_is_nested_too_deeply_is_an_error() -> None:
    with pytest.raises(BadSetting, match="the request is not JSON"):
        request_of_text("[" * 100_000, over_http=False)


def test_the_name_of_a_header_need_not_be_a_text() -> None:
    request = http_request_of({"url": "http://h/v1", "headers": [[1, "x"]], "body": {}})
    assert request.headers == (("1", "x"), ("content-type", "application/json"))
