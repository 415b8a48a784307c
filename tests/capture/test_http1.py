"""Heads: what is accepted means the same to llhttp, and what can be read in two ways is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.capture.http1 import (
    HEAD_LIMIT,
    UNTIL_CLOSE,
    BadMessage,
    Framing,
    HeadReader,
    read_request_head,
    read_response_head,
)
from tests.capture.llhttp import read_requests, read_responses

TOKEN = "!#$%&'*+-.^_`|~09AZaz"
# Everything that a head is made of, and what does not belong there.
pieces = st.one_of(
    st.sampled_from(
        [
            b"POST /v1/messages?beta=true HTTP/1.1\r\n", b"GET / HTTP/1.0\r\n",
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 204\r\n", b"Host: a\r\n", b"Content-Length: 5\r\n", b"Content-Length:0\r\n",
            b"content-length: 5, 5\r\n", b"Transfer-Encoding: chunked\r\n",
            b"Transfer-Encoding: gzip, chunked\r\n", b"Transfer-Encoding : chunked\r\n",
            b"Connection: close, X-Hop\r\n", b"X-Hop: 1\r\n", b" folded\r\n", b"X: \x00\r\n",
            b"X\r\n",
            b": empty\r\n", b"X: a\n", b"\r", b"\n", b"\r\n", b"X-Tag: \xc3\xa9\t \r\n",
            b"Upgrade: h2c\r\n",
        ]
    ),
    st.binary(max_size=6),
)  # fmt: skip


def request(*lines: bytes, start: bytes = b"POST /v1/x HTTP/1.1") -> bytes:
    return b"\r\n".join((start, b"Host: localhost", *lines))


def response(*lines: bytes, start: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return b"\r\n".join((start, *lines))


@given(st.lists(pieces, max_size=8).map(b"".join))
def test_a_request_head_that_is_accepted_means_the_same_to_llhttp(data: bytes) -> None:
    try:
        found = HeadReader().feed(data)
        head = None if found is None else read_request_head(found[0])
    except BadMessage:
        return
    if found is None or head is None:
        return
    other = read_requests(found[0] + b"\r\n\r\n")
    assert other.error is None
    assert (other.method, other.target) == (head.method, head.target)
    ours = [
        (line.split(b":", 1)[0], line.split(b":", 1)[1].strip(b" \t"))
        for _, line in head.head.lines
    ]
    assert [(name, value.strip(b" \t")) for name, value in other.headers] == ours
    assert (other.messages == 1) is not head.framing.has_body


@given(st.lists(pieces, max_size=8).map(b"".join))
def test_a_response_head_that_is_accepted_means_the_same_to_llhttp(data: bytes) -> None:
    try:
        found = HeadReader().feed(data)
        head = None if found is None else read_response_head(found[0], b"GET")
    except BadMessage:
        return
    if found is None or head is None:
        return
    other = read_responses(found[0] + b"\r\n\r\n")
    assert other.error is None
    assert other.status == head.status
    assert (other.messages == 1) is not (head.framing.has_body or head.status == 101)


@given(st.lists(pieces, max_size=8).map(b"".join), st.lists(st.integers(0, 200), max_size=4))
def test_a_head_is_the_same_however_its_bytes_are_cut(data: bytes, cuts: list[int]) -> None:
    def fed(parts: list[bytes]) -> object:
        reader = HeadReader()
        for number, part in enumerate(parts):
            try:
                found = reader.feed(part)
            except BadMessage as error:
                return error.status
            if found is not None:
                return found[0], found[1] + b"".join(parts[number + 1 :])
        return None

    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    parts = [data[low:high] for low, high in zip([0, *ends], ends, strict=False)]
    once, cut = fed([data]), fed(parts)
    # Whatever is refused when it comes at once is refused, or not yet whole, when it is cut.
    assert cut == once or (400 in (once, cut) and not isinstance(cut, tuple))


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(
            request(b"Content-Length: 5", b"Transfer-Encoding: chunked"), id="two framings"
        ),
        pytest.param(request(b"Content-Length: 5", b"Content-Length: 6"), id="two lengths"),
        pytest.param(request(b"Content-Length: 5", b"Content-Length: 5"), id="one length twice"),
        pytest.param(request(b"Content-Length: 5, 5"), id="a list of lengths"),
        pytest.param(request(b"Content-Length: +5"), id="a signed length"),
        pytest.param(request(b"Content-Length: 0x5"), id="a hexadecimal length"),
        pytest.param(request(b"Content-Length: " + b"9" * 19), id="a length beyond 64 bits"),
        pytest.param(request(b"Content-Length:"), id="no length"),
        pytest.param(request(b"Transfer-Encoding: xchunked"), id="unknown coding"),
        pytest.param(
            request(b"Transfer-Encoding: chunked, identity"), id="a coding behind chunked"
        ),
        pytest.param(
            request(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), id="twice"
        ),
        pytest.param(request(b"Transfer-Encoding : chunked"), id="blank before the colon"),
        pytest.param(request(b"Transfer-Encoding:\x0bchunked"), id="vertical tab"),
        pytest.param(request(b"X: a", b" Transfer-Encoding: chunked"), id="folded line"),
        pytest.param(request(b"X: a\nTransfer-Encoding: chunked"), id="bare LF"),
        pytest.param(request(b"X: a\rTransfer-Encoding: chunked"), id="bare CR"),
        pytest.param(request(b"X: a\x00"), id="NUL"),
        pytest.param(request(b": a"), id="a line without a name"),
        pytest.param(request(b"Host: other"), id="two hosts"),
        pytest.param(b"POST / HTTP/1.1\r\nX: a", id="no host"),
        pytest.param(request(start=b"POST  / HTTP/1.1"), id="two blanks"),
        pytest.param(request(start=b"POST / HTTP/1.1 "), id="blank at the end"),
        pytest.param(request(start=b"POST /a b HTTP/1.1"), id="blank in the target"),
        pytest.param(request(start=b"PO ST / HTTP/1.1"), id="blank in the method"),
        pytest.param(request(b"Transfer-Encoding: chunked", start=b"POST / HTTP/1.0"), id="1.0"),
    ],
)
def test_what_two_parsers_could_read_differently_is_refused(block: bytes) -> None:
    with pytest.raises(BadMessage):
        read_request_head(block)


@pytest.mark.parametrize("start", [b"PRI * HTTP/2.0", b"GET / HTTP/3", b"GET / HTTP/1.2"])
def test_another_version_is_refused_with_a_status_that_says_so(start: bytes) -> None:
    with pytest.raises(BadMessage) as caught:
        read_request_head(request(start=start))
    assert caught.value.status == 505


def test_the_lines_go_on_as_they_came_but_for_hop_by_hop_ones() -> None:
    """Order, case, blanks and repetition are kept; `Connection` and what it names end here."""
    lines = [
        b"User-Agent: agent/1.2", b"X-App:cli", b"anthropic-beta: a,b", b"X-Tag: 1", b"X-Tag:  2 ",
        b"Connection: X-Hop", b"X-Hop: 1", b"Keep-Alive: timeout=5", b"TE: trailers",
    ]  # fmt: skip
    head = read_request_head(b"POST / HTTP/1.1\r\nHost: h\r\n" + b"\r\n".join(lines))
    assert head.head.end_to_end() == [b"Host: h", *lines[:5]]


@pytest.mark.parametrize(
    ("method", "status", "lines", "framing"),
    [
        (b"GET", 200, [b"Content-Length: 5"], Framing(length=5)),
        (b"GET", 200, [b"Transfer-Encoding: Chunked"], Framing(chunked=True)),
        (b"GET", 200, [], UNTIL_CLOSE),
        (b"HEAD", 200, [b"Content-Length: 5"], Framing(length=0)),
        (b"GET", 204, [b"Content-Length: 5"], Framing(length=0)),
        (b"GET", 304, [b"Content-Length: 5"], Framing(length=0)),
        (b"GET", 103, [b"Content-Length: 5"], Framing(length=0)),
        (b"GET", 101, [], UNTIL_CLOSE),
    ],
)
def test_the_framing_of_a_response(
    method: bytes, status: int, lines: list[bytes], framing: Framing
) -> None:
    block = response(*lines, start=b"HTTP/1.1 %d X" % status)
    assert read_response_head(block, method).framing == framing


def test_a_reason_may_be_missing_or_hold_any_text() -> None:
    assert read_response_head(b"HTTP/1.1 200", b"GET").reason == b""
    assert (
        read_response_head(b"HTTP/1.1 200 Tr\xc3\xa8s bien", b"GET").reason == b"Tr\xc3\xa8s bien"
    )


@pytest.mark.parametrize(
    ("version", "line", "keeps"),
    [
        (b"1.1", b"X: a", True),
        (b"1.1", b"Connection: Close", False),
        (b"1.1", b"Connection: x, close", False),
        (b"1.0", b"X: a", False),
        (b"1.0", b"Connection: keep-alive", True),
    ],
)
def test_whether_a_connection_is_used_again(version: bytes, line: bytes, keeps: bool) -> None:
    head = read_request_head(b"GET / HTTP/" + version + b"\r\nHost: h\r\n" + line)
    assert head.keeps_alive is keeps


def test_an_offer_of_http_2_is_ignored_and_one_of_a_websocket_is_not() -> None:
    upgrade = request(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: x")
    head = read_request_head(upgrade)
    assert not head.wants_websocket
    assert head.head.end_to_end() == [b"Host: localhost"]
    assert read_request_head(request(b"Connection: Upgrade", b"Upgrade: WebSocket")).wants_websocket


def test_a_head_that_grows_too_large_is_refused_before_it_is_whole() -> None:
    reader = HeadReader()
    for _ in range(HEAD_LIMIT // 1000):
        assert reader.feed(b"X-Bomb: " + b"x" * 990 + b"\r\n") is None
    with pytest.raises(BadMessage) as caught:
        reader.feed(b"X-Bomb: " + b"x" * 990 + b"\r\n")
    assert caught.value.status == 431


def test_too_many_lines_are_refused() -> None:
    with pytest.raises(BadMessage) as caught:
        read_request_head(request(*[b"X: 1"] * 300))
    assert caught.value.status == 431


def test_tls_on_a_plain_port_is_told_at_its_first_byte() -> None:
    with pytest.raises(BadMessage, match="without TLS"):
        HeadReader().feed(b"\x16\x03\x01\x02\x00\x01")


def test_line_ends_before_a_head_are_passed_over() -> None:
    found = HeadReader().feed(b"\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\nrest")
    assert found == (b"GET / HTTP/1.1\r\nHost: h", b"rest")


@pytest.mark.parametrize("line", [b"Content-Length: 5", b"Transfer-Encoding: chunked"])
def test_the_framing_of_a_body_cannot_be_called_off_by_naming_it(line: bytes) -> None:
    """Without it the body would be read as the next message of the same connection."""
    named = b"Connection: X-Hop, " + line.partition(b":")[0]
    asked = read_request_head(request(named, line, b"X-Hop: 1")).head
    answered = read_response_head(response(named, line, b"X-Hop: 1"), b"GET").head
    for head in (asked, answered):
        assert line in head.end_to_end()
        assert b"X-Hop: 1" not in head.end_to_end()
