"""Keys: what belongs to a request's identity, and what does not."""

import gzip
import json
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes import canonicalize, req_hash
from tapes.canonical import (
    DICT_CANONICALIZERS,
    DIRECTORY,
    TAPE,
    dict_canonicalizer,
    evidence_key,
    http_identity,
    http_text,
    key_of,
    key_of_exchange_request,
    media_type,
    multipart_parts,
    normal_percent,
    sample_key,
)
from tapes.errors import NotCanonical, UnknownCanonicalizer, UnsupportedCoding
from tapes.exchange import Request
from tapes.varying import Rule
from tests.strategies import JSON, OBJECTS

DATA = Path(__file__).parent / "data"
JSON_TYPE = ("content-type", "application/json")


def chat(value: Any, *headers: tuple[str, str], url: str = "https://h/v1/chat") -> Request:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Request("POST", url, (JSON_TYPE, *headers), body)


def key(request: Request, *rules: dict[str, str]) -> str:
    identity, _ = http_identity(request, [Rule.of(rule) for rule in rules])
    return key_of(http_text(identity))


# --- requests that are dicts


def _vectors(file: Path) -> list[dict[str, Any]]:
    vectors: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["vectors"]
    return vectors


def _check(vector: dict[str, Any]) -> None:
    request = json.loads(vector["request_json"])
    for rule, expected in ((TAPE, vector["tape"]), (DIRECTORY, vector["directory"])):
        assert rule.text(request) == expected["canonical"]
        assert key_of(rule.text(request)) == expected["key"]
    assert canonicalize(request) == vector["tape"]["canonical"]
    assert req_hash(request) == vector["tape"]["key"]


@pytest.mark.row("A2", "A3", "B2")
def test_every_golden_vector_of_the_reference_holds(reference_data: Path) -> None:
    vectors = _vectors(reference_data / "canonical-vectors.json")
    assert len(vectors) == 24
    for vector in vectors:
        _check(vector)


@pytest.mark.row("A2", "A3", "B2")
@pytest.mark.parametrize(
    "vector", _vectors(DATA / "canonical.json"), ids=lambda vector: vector["name"]
)
def test_every_golden_vector_of_our_own_holds(vector: dict[str, Any]) -> None:
    _check(vector)


@pytest.mark.row("A2")
@given(OBJECTS)
def test_volatile_fields_do_not_count_and_only_at_the_top(request_: dict[str, Any]) -> None:
    for rule in DICT_CANONICALIZERS.values():
        volatile = dict.fromkeys(rule.leaves_out, "now")
        plain = {k: v for k, v in request_.items() if k not in volatile}
        assert rule.text({**volatile, **plain}) == rule.text(plain)
        assert rule.text({"nested": volatile}) != rule.text({"nested": {}})


@pytest.mark.row("A3", "N12")
@given(OBJECTS)
def test_the_order_of_names_does_not_matter(request_: dict[str, Any]) -> None:
    assert req_hash(dict(reversed(request_.items()))) == req_hash(request_)


@pytest.mark.row("A3", "N12")
def test_the_order_of_lists_and_the_types_of_values_matter() -> None:
    values: list[Any] = [[1, 2], [2, 1], 1, "1", 1.0, True, None, "", [], {}, [1], "true"]
    assert len({req_hash({"a": value}) for value in values}) == len(values)


@pytest.mark.parametrize("request_", [None, [], "text", 3])
def test_a_request_that_is_no_dict_is_refused(request_: Any) -> None:
    with pytest.raises(NotCanonical, match="a request is a dict"):
        req_hash(request_)


def test_a_lone_surrogate_has_a_key_only_where_it_is_escaped() -> None:
    with pytest.raises(NotCanonical, match=r"lone surrogate after '.*text'"):
        req_hash({"a": "text\ud83d"})
    assert key_of(DIRECTORY.text({"a": "\ud83d"}))


def test_a_canonicalizer_is_found_by_its_name() -> None:
    assert dict_canonicalizer("directory/1") is DIRECTORY
    with pytest.raises(UnknownCanonicalizer, match=r"'tape/9'\nthere are: directory/1, tape/1"):
        dict_canonicalizer("tape/9")


def test_samples_and_evidence_have_keys_of_their_own() -> None:
    one = req_hash({"a": 1})
    keys = [sample_key(one, 0), sample_key(one, 1), sample_key(one, 2), evidence_key(one)]
    assert keys[0] == one
    assert len(set(keys)) == 4


# --- HTTP: what counts


@pytest.mark.parametrize("vector", _vectors(DATA / "http-keys.json"), ids=lambda v: v["name"])
def test_the_golden_keys_over_http_hold(vector: dict[str, Any]) -> None:
    request = Request(
        vector["method"],
        vector["url"],
        tuple((name, value) for name, value in vector["headers"]),
        vector["body"].encode("latin-1"),
    )
    identity, _ = http_identity(request)
    assert http_text(identity) == vector["canonical"]
    assert key_of(http_text(identity)) == vector["key"]


@pytest.mark.row("N01", "N02")
def test_everything_that_can_change_the_answer_changes_the_key() -> None:
    user = {"role": "user", "content": "hello world"}
    base: dict[str, Any] = {"model": "m", "messages": [user]}
    requests = [
        base,
        {**base, "model": "n"},
        {**base, "messages": [{"role": "user", "content": "hello world and more"}]},
        {**base, "messages": [{"role": "system", "content": "A"}, user]},
        {**base, "messages": [{"role": "system", "content": "B"}, user]},
        {**base, "messages": [user, {"role": "tool", "content": "x"}]},
        {**base, "tools": [{"name": "a"}]},
        {**base, "tools": [{"name": "a"}, {"name": "b"}]},
        {**base, "tools": [{"name": "b"}, {"name": "a"}]},
        {**base, "tool_choice": "auto"},
        {**base, "response_format": {"type": "json_object"}},
        {**base, "temperature": 0},
        {**base, "temperature": 1},
        {**base, "reasoning": {"effort": "low"}},
        {**base, "stream": True},
        {**base, "stream": False},
        {**base, "x_new": 1},
        {**base, "x_new": 2},
    ]
    assert len({key(chat(request)) for request in requests}) == len(requests)
    assert len({req_hash(request) for request in requests}) == len(requests)


def test_method_path_query_and_feature_headers_count() -> None:
    body = {"a": 1}
    requests = [
        chat(body),
        Request("PUT", "https://h/v1/chat", (JSON_TYPE,), b'{"a": 1}'),
        chat(body, url="https://h/v1/other"),
        chat(body, url="https://h/v1/chat?alt=sse"),
        chat(body, url="https://h/v1/chat?a=1&b=2"),
        chat(body, url="https://h/v1/chat?b=2&a=1"),
        chat(body, ("anthropic-version", "2023-06-01")),
        chat(body, ("anthropic-beta", "a")),
        chat(body, ("anthropic-beta", "b")),
        Request("POST", "https://h/v1/chat", (("content-type", "text/plain"),), b'{"a": 1}'),
        Request("POST", "https://h/v1/chat"),
    ]
    for one, other in combinations(requests, 2):
        assert key(one) != key(other)


@pytest.mark.row("N14")
def test_host_credentials_and_chatter_do_not_count() -> None:
    plain = key(chat({"a": 1}))
    same = [
        chat({"a": 1}, url="http://other:8080/v1/chat"),
        chat({"a": 1}, url="https://h/v1/chat?key=AAA"),
        chat({"a": 1}, url="https://h/v1/chat?%6Bey=BBB#part"),
        chat({"a": 1}, ("authorization", "Bearer x"), ("user-agent", "u"), ("x-trace", "1")),
        Request(
            "post",
            "https://h/v1/chat",
            (("Content-Type", "Application/JSON; charset=utf-8"),),
            b'{"a":1}',
        ),
    ]
    assert {key(request) for request in same} == {plain}


def test_a_declared_header_counts() -> None:
    also = frozenset({"x-variant"})
    one, other = (http_identity(chat({}, ("X-Variant", v)), (), also)[0] for v in "ab")
    assert one != other


@pytest.mark.row("N12")
@pytest.mark.parametrize(
    "body",
    [
        b'{"b":"\\u00fc", "a":1}',
        '{ "a" : 1,\n"b":"ü"}'.encode(),
        gzip.compress(b'{"a":1,"b":"\\u00fc"}'),
    ],
    ids=["escaped", "spaced", "gzip"],
)
def test_the_same_json_is_the_same_request_however_it_is_written(body: bytes) -> None:
    coding = () if body.startswith(b"{") else (("content-encoding", "gzip"),)
    assert key(chat(body, *coding)) == key(chat('{"a":1,"b":"ü"}'.encode()))


@given(JSON, JSON)
def test_bodies_have_one_key_just_if_they_mean_the_same(one: Any, other: Any) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (key(chat({"v": one})) == key(chat({"v": other}))) is same


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1,"a":2}',
        b'{"a":NaN}',
        b"not json",
        b'{"t":"\\ud83d"}',
        b"[" * 200 + b"]" * 200,
        b"[" * 100_000,
    ],
    ids=["a name twice", "NaN", "text", "surrogate", "deep", "too deep"],
)
def test_what_is_not_one_json_value_is_known_by_its_bytes(body: bytes) -> None:
    identity, _ = http_identity(chat(body))
    assert "sha256" in identity["body"]
    assert key(chat(body)) != key(chat(body + b" "))


def test_how_deep_the_caller_is_does_not_change_a_key() -> None:
    body = b"[" * 99 + b"]" * 99

    def deeper(levels: int) -> str:
        return deeper(levels - 1) if levels else key(chat(body))

    assert deeper(sys.getrecursionlimit() // 2) == key(chat(body))


def test_a_coding_that_nobody_knows_is_bytes_and_one_without_its_decoder_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert key(chat(b"x", ("content-encoding", "snappy"))) != key(chat(b"y"))
    monkeypatch.setattr("tapes.wire.brotli", None)
    with pytest.raises(UnsupportedCoding, match="codecs"):
        key(chat(b"x", ("content-encoding", "br")))


def test_a_body_that_is_not_what_its_coding_says_is_known_by_its_bytes() -> None:
    broken = [
        chat(body, ("content-encoding", "gzip")) for body in (b"x", b"y", gzip.compress(b"{}")[:-4])
    ]
    assert len({key(request) for request in broken}) == 3


def test_what_is_no_url_is_named() -> None:
    with pytest.raises(NotCanonical, match="is no URL"):
        http_identity(Request("GET", "http://[broken/"))


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("a%7eb", "a~b"),
        ("%2f", "%2F"),
        ("ü", "%C3%BC"),
        ("a b", "a%20b"),
        ("a+b", "a+b"),
        ("%", "%"),
    ],
)
def test_escapes_in_urls_have_one_form(text: str, normal: str) -> None:
    assert normal_percent(text) == normal
    assert normal_percent(normal) == normal


def test_the_media_type_is_told_without_its_parameters() -> None:
    assert media_type((("Content-Type", " Text/HTML ; charset=x"),)) == "text/html"
    assert media_type(()) == ""


# --- uploads


def form(boundary: str, *parts: tuple[str, bytes], before: bytes = b"") -> Request:
    body = before
    for head, content in parts:
        body += f"--{boundary}\r\n{head}\r\n\r\n".encode() + content + b"\r\n"
    body += f"--{boundary}--\r\n".encode()
    headers = (("content-type", f'multipart/form-data; boundary="{boundary}"'),)
    return Request("POST", "https://h/v1/files", headers, body)


FILE = 'Content-Disposition: form-data; name="file"; filename="a.txt"\r\nContent-Type: text/plain'


@pytest.mark.row("N11")
def test_the_boundary_of_an_upload_is_no_difference() -> None:
    one = form(
        "boundary-1", (FILE, b"bytes \x00\xff\r\n\r\n--"), ("Content-Disposition: form-data", b"")
    )
    other = form(
        "b2",
        (FILE, b"bytes \x00\xff\r\n\r\n--"),
        ("content-disposition:form-data", b""),
        before=b"\r\n",
    )
    assert key(one) == key(other)


@pytest.mark.row("N11")
@pytest.mark.parametrize(
    "part",
    [
        (FILE, b"byteZ"),
        (FILE.replace("a.txt", "b.txt"), b"bytes"),
        (FILE.replace('"file"', '"document"'), b"bytes"),
        (FILE.replace("text/plain", "text/html"), b"bytes"),
        (FILE, b"bytes\r\n"),
    ],
    ids=["byte", "file name", "name", "type", "line end"],
)
def test_every_other_difference_of_an_upload_counts(part: tuple[str, bytes]) -> None:
    assert key(form("b", part)) != key(form("b", (FILE, b"bytes")))


def test_the_order_of_parts_counts() -> None:
    one, two = (FILE, b"1"), (FILE, b"2")
    assert key(form("b", one, two)) != key(form("b", two, one))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--b",
        b"--b\r\nno blank line\r\n--b--",
        b"--b\r\na: b\r\n\r\nc\r\n",
        b"--bcd\r\n\r\n\r\n--b--",
    ],
)
def test_a_broken_upload_is_known_by_its_bytes(body: bytes) -> None:
    assert multipart_parts("multipart/form-data; boundary=b", body) is None


def test_an_upload_without_a_boundary_is_known_by_its_bytes() -> None:
    assert multipart_parts("multipart/form-data", b"--b--") is None


# --- what is declared to vary


@pytest.mark.row("N12")
def test_a_prompt_that_holds_the_time_matches_with_one_declared_rule() -> None:
    one, other = (chat({"messages": [{"content": f"It is {t}. Hello"}]}) for t in ("9:15", "9:16"))
    rule = {"at": "/messages/*/content", "pattern": r"\d+:\d\d"}
    assert key(one) != key(other)
    assert key(one, rule) == key(other, rule)


def at(path: str) -> Request:
    return chat({}, url=f"https://h/{path}")


def beta(value: str) -> Request:
    return chat({}, ("anthropic-beta", value))


@pytest.mark.parametrize(
    ("one", "other", "rule"),
    [
        (at("a?s=1&t=2"), at("a?s=9&t=2"), {"query": "s"}),
        (at("run-1/x"), at("run-2/x"), {"pattern": r"run-\d"}),
        (at("a?on=2026"), at("a?on=2027"), {"pattern": r"20\d\d"}),
        (beta("a"), beta("b"), {"header": "anthropic-beta"}),
        (chat(b"run 1"), chat(b"run 2"), {"pattern": r"run \d"}),
    ],
    ids=["parameter", "path", "text of a parameter", "header", "text body"],
)
def test_a_rule_takes_one_difference_out(
    one: Request, other: Request, rule: dict[str, str]
) -> None:
    assert key(one) != key(other)
    assert key(one, rule) == key(other, rule)
    _, used = http_identity(one, [Rule.of(rule), Rule.of({"at": "/nowhere"})])
    assert used == (Rule.of(rule),)


def test_a_key_can_be_made_again_from_what_lies_on_a_tape() -> None:
    request = chat({"t": "run 1"})
    rules = [Rule.of({"pattern": r"run \d"})]
    assert key_of_exchange_request("http/1", request, rules) == key(request, {"pattern": r"run \d"})
    assert key_of_exchange_request("tape/1", {"a": 1, "cwd": "/"}) == req_hash({"a": 1})
    with pytest.raises(UnknownCanonicalizer):
        key_of_exchange_request("http/9", request)


@given(
    st.binary(max_size=60),
    st.sampled_from(["application/json", "multipart/form-data; boundary=b", "", "text/x"]),
)
def test_any_bytes_have_a_key(body: bytes, media: str) -> None:
    request = Request("POST", "http://h/", (("content-type", media),), body)
    assert len(key(request)) == 64
