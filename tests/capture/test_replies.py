"""Recorded responses as bytes on the wire: what llhttp reads in them is what was recorded."""

from hypothesis import given
from hypothesis import strategies as st

from tapes.capture.http1 import read_request_head
from tapes.capture.replies import reply_of
from tapes.exchange import Piece, Response
from tests.capture.llhttp import read_responses

POST = read_request_head(b"POST / HTTP/1.1\r\nHost: h")
OLD = read_request_head(b"POST / HTTP/1.0")
HEAD = read_request_head(b"HEAD / HTTP/1.1\r\nHost: h")


def response(*pieces: bytes, status: int = 200, **headers: str) -> Response:
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    timed = tuple(Piece(float(n), data) for n, data in enumerate(pieces))
    return Response(status, pairs, timed, "OK")


@given(
    st.lists(st.binary(max_size=9), max_size=5),
    st.sampled_from([200, 201, 204, 304, 429, 500]),
    st.sampled_from([{}, {"transfer_encoding": "chunked"}, {"content_length": "7"}]),
    st.sampled_from([POST, HEAD]),
)
def test_every_reply_is_one_whole_message(
    pieces: list[bytes], status: int, headers: dict[str, str], request: object
) -> None:
    given_response = response(*pieces, status=status, **headers)
    data = reply_of(given_response, request).data  # type: ignore[arg-type]
    if request is HEAD:
        assert data.endswith(b"\r\n\r\n")
        assert data.count(b"\r\n\r\n") == 1
        return
    read = read_responses(data)
    assert (read.error, read.messages) == (None, 1)
    assert read.body == (b"" if status in (204, 304) else b"".join(pieces))


def test_each_piece_is_a_chunk_and_an_empty_one_does_not_end_the_body() -> None:
    reply = reply_of(response(b"a", b"", b"bc", transfer_encoding="chunked"), POST)
    assert reply.data.endswith(b"\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n")


def test_a_client_of_http_1_0_gets_no_chunks_and_the_end_of_the_connection() -> None:
    reply = reply_of(response(b"a", b"bc"), OLD)
    assert reply.data.endswith(b"connection: close\r\n\r\nabc")
    assert not reply.keeps_alive


def test_the_length_is_that_of_the_bytes_that_are_there() -> None:
    reply = reply_of(response(b"12345", content_length="99"), POST)
    assert b"content-length: 5\r\n" in reply.data


def test_head_keeps_the_length_that_was_recorded() -> None:
    assert b"content-length: 99\r\n" in reply_of(response(content_length="99"), HEAD).data


def test_no_recorded_text_can_end_a_line() -> None:
    reply = reply_of(response(b"{}", x="a\r\nset-cookie: b=1\x00"), POST)
    assert b"\r\nset-cookie" not in reply.data
    assert read_responses(reply.data).error is None


def test_no_trailers_are_promised_that_are_not_sent() -> None:
    data = reply_of(response(b"x", transfer_encoding="chunked", Trailer="X-Sum"), POST).data
    assert b"railer" not in data
    assert data.endswith(b"\r\n\r\n1\r\nx\r\n0\r\n\r\n")


def test_the_head_comes_with_the_first_piece() -> None:
    reply = reply_of(response(b"a", b"b"), POST)
    assert [at for at, _ in reply.timed] == [0.0, 0.0, 1.0, 1.0]
