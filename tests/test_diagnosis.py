"""What a miss comes from: causes with their evidence, diffs of words, and rules that were tried."""

import json
import re
from typing import Any

import pytest

from tapes import Cassette
from tapes.canonical import TAPE, http_identity, http_text, key_of
from tapes.cassette import Refusal
from tapes.diagnosis import word_diff
from tapes.errors import CassetteMiss
from tapes.exchange import Exchange, Request, Response
from tapes.project import Declared
from tapes.tape.base import MemoryTape
from tapes.varying import Rule

Said = dict[str, Any]
ASKED: Said = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief. Today is 2026-03-01."},
        {"role": "user", "content": "What is the capital of Norway?"},
    ],
    "tools": [{"function": {"name": "weather"}}, {"function": {"name": "search"}}],
}


def changed(**values: Any) -> Said:
    """The request with the first, second … message's content, or another member, changed."""
    request: Said = json.loads(json.dumps(ASKED))
    for name, value in values.items():
        if name in ("system", "user"):
            request["messages"][name == "user"]["content"] = value
        else:
            request[name] = value
    return request


def refusal(recorded: Said, asked: Said, declared: Declared | None = None) -> Any:
    """The refusal of a request on a tape with one recording."""
    tape = MemoryTape((Exchange(key_of(TAPE.text(recorded)), "tape/1", recorded, {}),))
    with Cassette(tape, declared=declared or Declared()) as cassette:
        verdict = cassette.decide(asked)
    assert isinstance(verdict, Refusal)
    return verdict.error


def test_a_month_that_a_tool_tells_is_a_date_and_no_other_list_of_tools() -> None:
    """So Claude Code describes its search: on the first of a month every call would miss."""

    def told(month: str, day: str) -> Said:
        about = f"Search the web. The current month is {month} - use this in queries."
        return changed(system=f"Today is {day}.", tools=[{"name": "s", "description": about}])

    error = refusal(told("November 2026", "2026-11-30"), told("May 2027", "2027-05-01"))
    said = str(error)
    assert "tools[0].description holds a month: recorded November 2026, asked May 2027" in said
    assert "another list of tools" not in said
    assert said.count("[[vary]]") == 2


def test_a_word_that_only_begins_like_a_month_is_none() -> None:
    error = refusal(changed(user="Is the Market 2026 up?"), changed(user="Is the Junta 2026 up?"))
    assert "likely" not in str(error)
    assert "[[vary]]" not in str(error)


def test_a_request_that_names_no_model_asks_for_no_other() -> None:
    error = refusal(ASKED, {name: value for name, value in ASKED.items() if name != "model"})
    assert "model" in str(error)
    assert "likely" not in str(error)


@pytest.mark.row("N15")
@pytest.mark.parametrize(
    ("asked", "kind", "evidence"),
    [
        (
            changed(system="Be brief. Today is 2026-03-02."),
            "time",
            "messages[0].content holds a date: recorded 2026-03-01, asked 2026-03-02",
        ),
        (changed(model="n"), "model", "another model: recorded m, asked n"),
        (
            changed(tools=[{"function": {"name": "weather"}}, {"function": {"name": "maps"}}]),
            "tools",
            "another list of tools (added: maps; gone: search)",
        ),
        (
            changed(tools=[{"function": {"name": "weather"}}, {"function": {"name": "May 2026"}}]),
            "tools",
            "another list of tools (added: May 2026; gone: search)",
        ),
        (
            changed(tools=ASKED["tools"][::-1]),
            "order",
            "tools has the same 2 parts in another order",
        ),
        (
            changed(user="What is the  capital of Norway?\n"),
            "whitespace",
            "messages[1].content differs in white space alone",
        ),
        (
            changed(messages=[*ASKED["messages"], {"role": "user", "content": "And of Sweden?"}]),
            "length",
            "messages has 1 more than the recording",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_a_cause_is_named_with_what_shows_it(asked: Said, kind: str, evidence: str) -> None:
    error = refusal(ASKED, asked)
    assert {"kind": kind, "evidence": evidence}.items() <= error.diagnosis["causes"][0].items()
    assert f"likely: {evidence}" in error.remedy


def test_a_changed_wording_has_no_cause_and_no_rule_but_a_readable_diff() -> None:
    error = refusal(ASKED, changed(user="What is the capital of Sweden?"))
    assert error.diagnosis["causes"] == []
    assert error.diagnosis["rules"] is None
    assert "  messages[1].content: What is the capital of [-Norway-]{+Sweden+}?" in error.remedy


@pytest.mark.row("N15", "N12")
@pytest.mark.parametrize(
    ("recorded", "asked"),
    [
        (ASKED, changed(system="Be brief. Today is 2026-03-02.")),
        (
            changed(system="It is 10:15 on Monday, March 1, 2026"),
            changed(system="It is 10:15 on Tuesday, March 2, 2026"),
        ),
        (
            changed(user="look at run-5f2a11bc", metadata={"run_id": "a b"}),
            changed(user="look at run-99aa20cd", metadata={"run_id": "c d"}),
        ),
        (changed(user="read /tmp/tmpab12/x"), changed(user="read /tmp/tmpzz99/x")),
        (changed(created=1795998040), changed(created=1795999999)),
        (
            changed(user="2f1b7f0e-8f8a-4a4e-9c0e-1d2e3f4a5b6c"),
            changed(user="aaaaaaaa-8f8a-4a4e-9c0e-1d2e3f4a5b6c"),
        ),
    ],
    ids=["date", "words", "ids", "path", "number", "uuid"],
)
def test_a_proposed_rule_makes_the_request_match(recorded: Said, asked: Said) -> None:
    import tomllib

    error = refusal(recorded, asked)
    rules = tuple(Rule.of(table) for table in tomllib.loads(error.diagnosis["rules"])["vary"])
    tape = MemoryTape((Exchange(key_of(TAPE.text(recorded)), "tape/1", recorded, {"a": 1}),))
    with Cassette(tape, declared=Declared(rules=rules)) as cassette:
        assert cassette.call(asked) == {"a": 1}
        assert not isinstance(cassette.decide(changed(user="else")), type(None))


def test_no_rule_is_proposed_where_it_would_not_be_enough() -> None:
    asked = changed(system="Be brief. Today is 2026-03-02.", user="What is the capital of Sweden?")
    assert refusal(ASKED, asked).diagnosis["rules"] is None


@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=b", "application/octet-stream"])
def test_other_bytes_are_no_random_id_though_their_digests_look_like_one(kind: str) -> None:
    head = b'--b\r\ncontent-disposition: form-data; name="file"\r\n\r\n'

    def sent(content: bytes) -> Request:
        return Request("POST", "http://h/f", (("content-type", kind),), head + content)

    recorded, asked = sent(b"one\r\n--b--\r\n"), sent(b"two\r\n--b--\r\n")
    key = key_of(http_text(http_identity(recorded)[0]))
    tape = MemoryTape((Exchange(key, "http/1", recorded, Response(200)),))
    with Cassette(tape, declared=Declared()) as cassette:
        verdict = cassette.decide(asked)
    assert isinstance(verdict, Refusal)
    assert verdict.error.diagnosis is not None
    assert verdict.error.diagnosis["places"]
    assert (verdict.error.diagnosis["causes"], verdict.error.diagnosis["rules"]) == ([], None)


def test_over_http_a_query_parameter_that_is_an_id_may_vary() -> None:
    def post(query: str) -> Request:
        return Request("POST", f"http://h/v1?{query}", (("content-type", "text/plain"),), b"x")

    recorded = post("session=sess_12ab34cd&a=1")
    key = key_of(http_text(http_identity(recorded)[0]))
    tape = MemoryTape((Exchange(key, "http/1", recorded, Response(200)),))
    with Cassette(tape, declared=Declared()) as cassette:
        verdict = cassette.decide(post("session=sess_99zz34cd&a=1"))
    assert isinstance(verdict, Refusal)
    assert verdict.error.diagnosis is not None
    assert verdict.error.diagnosis["rules"] == '[[vary]]\nquery = "session"'


def test_the_diagnosis_is_data_that_json_can_say() -> None:
    error = refusal(ASKED, changed(model="n", extra={"a": [1]}))
    told = json.loads(json.dumps(error.diagnosis))
    assert told["nearest"] == key_of(TAPE.text(ASKED))
    assert [place["place"] for place in told["places"]] == ["model", "extra.a[0]"]
    assert told["places"][0]["diff"] == "[-m-]{+n+}"


@pytest.mark.parametrize(
    ("recorded", "asked", "expected"),
    [
        ("a b c", "a x c", "a [-b-]{+x+} c"),
        ("same", "same and more", "same{+ and more+}"),
        ("", "new", "{+new+}"),
        ("Norwegian", "Norway", "[-Norwegian-]{+Norway+}"),
        ("x" * 50 + " one " + "y" * 50, "x" * 50 + " two " + "y" * 50, None),
    ],
)
def test_texts_are_compared_word_by_word(recorded: str, asked: str, expected: str | None) -> None:
    found = word_diff(recorded, asked)
    if expected is None:
        assert "[-one-]{+two+}" in found
        assert len(found) < 90
    else:
        assert found == expected


def test_very_long_texts_are_compared_without_end() -> None:
    one, other = "a b " * 100_000, "c d " * 100_000
    assert len(word_diff(one, other)) <= 801


def missed(kind: str, recorded: bytes, asked: bytes, *rules: Rule) -> CassetteMiss:
    """What is said of a body that differs from the only recording."""
    requests = [
        Request("POST", "http://h/f", (("content-type", kind),), b) for b in (recorded, asked)
    ]
    key = key_of(http_text(http_identity(requests[0], rules)[0]))
    tape = MemoryTape((Exchange(key, "http/1", requests[0], Response(200)),))
    with Cassette(tape, declared=Declared(rules=rules)) as cassette:
        verdict = cassette.decide(requests[1])
    assert isinstance(verdict, Refusal)
    assert isinstance(verdict.error, CassetteMiss)
    return verdict.error


UPLOAD = '--b\r\ncontent-disposition: form-data; name="q"\r\n\r\n{}\r\n--b--\r\n'
OF_TEXTS = {
    "a text": ("text/plain", "{}", "the body"),
    "JSON with a name twice": ("application/json", '{{"a":1,"a":"{}"}}', "the body"),
    "a form": ("application/x-www-form-urlencoded", "a=1&q={}", "form field q"),
    "an upload": ("multipart/form-data; boundary=b", UPLOAD, "multipart[0].content"),
}


@pytest.mark.row("N15")
@pytest.mark.parametrize("case", OF_TEXTS)
def test_texts_that_count_by_their_bytes_are_told_word_by_word(case: str) -> None:
    kind, form, place = OF_TEXTS[case]
    error = missed(kind, form.format("in Norway").encode(), form.format("in Sweden").encode())
    assert f"differs at {place}\n" in str(error)
    assert "[-Norway-]{+Sweden+}" in str(error)


def test_bytes_that_are_no_text_are_told_by_their_hashes() -> None:
    error = missed("application/octet-stream", b"\xff\x00", b"\xff\x01")
    assert "differs at sha256\n" in str(error)


@pytest.mark.parametrize("case", ["a text", "a form"])
def test_a_date_in_a_text_body_has_a_rule_that_was_tried(case: str) -> None:
    kind, form, place = OF_TEXTS[case]
    old, new = (form.format(day).encode() for day in ("on 2026-03-01", "on 2026-03-02"))
    said = str(missed(kind, old, new))
    assert f"likely: {place} holds a date: recorded 2026-03-01, asked 2026-03-02" in said
    assert "[[vary]]" in said


def test_what_a_rule_lets_vary_in_a_text_is_no_difference_of_it() -> None:
    rule = Rule.of({"pattern": r"\d{4}-\d\d-\d\d", "as": "DATE"})
    error = missed("text/plain", b"2026-03-01 Norway", b"2026-03-02 Sweden", rule)
    assert "the body: DATE [-Norway-]{+Sweden+}" in str(error)


def test_a_form_with_other_fields_is_told_as_a_text() -> None:
    error = missed("application/x-www-form-urlencoded", b"a=1", b"a=1&b=2")
    assert "the body: a=1{+&b=2+}" in str(error)


def test_both_sides_of_a_very_long_word_are_shown() -> None:
    shown = word_diff("a" * 5_000 + "b", "a" * 5_000 + "c")
    assert shown.endswith("b-]{+" + "a" * 100 + "c+}")
    shown = word_diff("x" * 5_000, "y" * 5_000)
    assert "[-xxx" in shown
    assert "{+yyy" in shown


def test_a_date_in_a_very_long_text_is_found_by_looking_at_what_differs_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int] = []
    sub = re.sub

    def counted(pattern: str, word: str, text: str) -> str:
        looked.append(len(text))
        return sub(pattern, word, text)

    monkeypatch.setattr("tapes.diagnosis.re.sub", counted)
    filler = "lorem ipsum " * 50_000
    old, new = (f"{filler}on 2026-03-0{day} {filler}" for day in (1, 2))
    said = str(refusal({"prompt": old}, {"prompt": new}))
    assert "prompt holds a date: recorded 2026-03-01, asked 2026-03-02" in said
    assert max(looked) < 1_000
