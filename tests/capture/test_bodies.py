"""Bodies: the same however they are cut, their pieces told apart, and llhttp reads the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.capture.bodies import PIECE_LIMIT, Body, Chunks
from tapes.capture.http1 import UNTIL_CLOSE, BadMessage, Framing
from tests.capture.llhttp import read_responses

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
parts = st.one_of(
    st.sampled_from(
        [
            b"5\r\nhello\r\n", b"1\r\na\r\n", b"0\r\n\r\n", b"0\r\nX-Sum: 1\r\n\r\n",
            b"A;ext=1\r\n0123456789\r\n", b"00000005\r\nhello\r\n", b"5\n", b"\r\n", b"\n", b"\r",
            b"5 \r\n", b"+5\r\n", b"0x5\r\n", b";\r\n", b"ffffffffffffffff\r\n", b"-1\r\n",
            b"5;a\x00\r\nhello\r\n", b"0\r\n folded: 1\r\n\r\n", b"GET / HTTP/1.1\r\n",
        ]
    ),
    st.binary(max_size=4),
)  # fmt: skip
streams = st.lists(parts, max_size=8).map(b"".join)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({min(c, len(data)) for c in cuts} | {len(data)})
    return [data[low:high] for low, high in zip([0, *ends], ends, strict=False) if low < high]


Followed = tuple[bytes, tuple[bytes, ...], bool, bytes]


def followed(body: Body, parts: list[bytes]) -> Followed | None:
    """All that a body gives for these parts, or None where it refuses them."""
    raw, pieces, rest, ended = b"", list[bytes](), b"", False
    for part in parts:
        if ended:
            rest += part
            continue
        try:
            step = body.feed(part)
        except BadMessage:
            return None
        raw, rest, ended = raw + step.raw, rest + step.rest, step.ended
        pieces += step.pieces
    return raw, tuple(pieces), ended, rest


@given(streams, st.lists(st.integers(0, 60), max_size=8))
def test_a_chunked_body_is_the_same_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    once = followed(Body(Framing(chunked=True)), cut(data, []))
    assert followed(Body(Framing(chunked=True)), cut(data, cuts)) == once


@given(streams)
def test_a_chunked_body_that_is_accepted_means_the_same_to_llhttp(data: bytes) -> None:
    result = followed(Body(Framing(chunked=True)), cut(data, []))
    if result is None:
        return
    raw, pieces, ended, rest = result
    assert raw + rest == data
    other = read_responses(HEAD + raw)
    if other.error is not None:
        # A line that llhttp refuses at its first wrong byte, we may refuse at its end.
        assert not ended
        assert followed(Body(Framing(chunked=True)), [data, b"\r\n"]) is None
        return
    assert (other.messages == 1) is ended
    if ended:
        assert other.body == b"".join(pieces)


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=6), st.lists(st.integers(0, 300)))
def test_each_chunk_is_one_piece_wherever_it_was_cut(chunks: list[bytes], cuts: list[int]) -> None:
    data = b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"
    result = followed(Body(Framing(chunked=True)), cut(data, cuts))
    assert result == (data, tuple(chunks), True, b"")


@given(st.integers(0, 40), st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=5))
def test_a_body_of_known_length_ends_after_it(length: int, data: bytes, cuts: list[int]) -> None:
    result = followed(Body(Framing(length=length)), cut(data, cuts))
    assert result is not None
    raw, pieces, ended, rest = result
    assert raw == data[:length] == b"".join(pieces)
    assert rest == data[length:]
    assert ended is (len(data) >= length and bool(data))


def test_a_body_that_ends_with_the_connection_never_ends_before() -> None:
    body = Body(UNTIL_CLOSE)
    assert not body.feed(b"data").ended
    assert body.may_end_here


def test_a_large_chunk_comes_in_pieces_of_one_size() -> None:
    data = b"x" * (2 * PIECE_LIMIT + 5)
    step = Chunks().feed(b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data))
    assert [len(piece) for piece in step.pieces] == [PIECE_LIMIT, PIECE_LIMIT, 5]
    assert step.ended


@pytest.mark.parametrize(
    "data",
    [b"5\nhello", b"5 \r\n", b" 5\r\n", b"0x5\r\n", b"+5\r\n", b"\r\n", b"g\r\n",
     b"5\r\nhelloX\r\n", b"5\r\nhello\n", b"1" * 16, b"5;" + b"x" * 5000,
     b"0\r\nno colon\r\n", b"5\rX"],
)  # fmt: skip
def test_chunks_that_could_be_read_in_two_ways_are_refused(data: bytes) -> None:
    with pytest.raises(BadMessage):
        Chunks().feed(data)


def test_trailers_have_a_bound() -> None:
    with pytest.raises(BadMessage):
        Chunks().feed(b"0\r\n" + 100 * (b"X: " + b"x" * 1000 + b"\r\n"))
