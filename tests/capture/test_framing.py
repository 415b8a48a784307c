"""Any message, cut anywhere, through the relay: the same bytes in the same framing, or a refusal.

Both sides are held against llhttp, which reads the bytes that went in and those that came out.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from tapes.capture.asked import ProxyMode, Setup
from tapes.capture.desk import Desk
from tapes.capture.proxy import Proxy
from tapes.capture.relay import Clients
from tapes.capture.routes import Routes
from tapes.capture.upstream import Asker, Origin, Pool, UpstreamConnection
from tests.capture.llhttp import read_requests, read_responses
from tests.capture.wires import Wire

CRLF = b"\r\n"
OWN = (b"host", b"connection", b"keep-alive", b"te", b"upgrade", b"expect", b"proxy-connection")


class Upstreams(Pool):
    """Connections in memory, which are there at once."""

    def __init__(self) -> None:
        super().__init__()
        self.wires: list[Wire] = []

    def connect(self, origin: Origin, asker: Asker) -> Callable[[], object]:
        connection = UpstreamConnection(self, origin)
        self.wires.append(Wire(connection))
        asker.connected(connection)
        return lambda: None


@dataclass
class Relayed:
    """What reached each side, and how its connection ended."""

    client: Wire
    upstream: Wire | None = None
    later: list[bytes] = field(default_factory=list)


def relayed(
    request: list[bytes], answer: list[bytes], order: list[bool], hangs_up: bool
) -> Relayed:
    """Both streams, part by part, in an order: an answer waits until it is asked for."""

    async def run() -> Relayed:
        pool = Upstreams()
        desk = Desk(Setup(ProxyMode.PASS, Routes.of({}, "http://up.test")), pool=pool)
        client = Wire(Clients(Proxy(desk)).connection())
        sent, given, turns = list(request), list(answer), list(order)
        while sent or (given and pool.wires):
            upstream = pool.wires[0] if pool.wires else None
            if upstream is not None and given and (not sent or (turns and turns.pop())):
                upstream.receive(given.pop(0))
            elif sent:
                client.receive(sent.pop(0))
            _tell_of_ends(client, upstream)
        for upstream in pool.wires[:1]:
            if hangs_up and not upstream.closed:
                upstream.lose()
            _tell_of_ends(client, upstream)
        desk.close()
        return Relayed(client, pool.wires[0] if pool.wires else None)

    return asyncio.run(run())


def _tell_of_ends(client: Wire, upstream: Wire | None) -> None:
    """As a loop does soon after a side was broken off."""
    for _ in range(2):
        for wire in (client, upstream):
            if wire is not None and wire.aborted:
                wire.aborted_once = True  # type: ignore[attr-defined]  # for this test alone
                wire.aborted = False
                wire.lose()


def was_aborted(wire: Wire) -> bool:
    return bool(getattr(wire, "aborted_once", False))


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({each % (len(data) + 1) for each in cuts} | {len(data)})
    return [data[a:b] for a, b in zip([0, *ends], ends, strict=False) if a < b]


def end_to_end(head: bytes) -> list[bytes]:
    lines = head.split(CRLF)[1:]
    named = {
        token.strip().lower()
        for line in lines
        if line.lower().startswith(b"connection:")
        for token in line.partition(b":")[2].split(b",")
    } - {b"content-length", b"transfer-encoding"}
    return [line for line in lines if line.partition(b":")[0].lower() not in {*OWN, *named}]


# --- messages: what is sound goes through, what is not may not, whatever it is -------------------

chunk_lines = st.sampled_from([b"%x", b"%X", b"0%x", b"%x;a", b"%x;a=b;c", b"%x;a=b"])
odd_chunk_lines = st.sampled_from([b"%x ", b" %x", b"0x%x", b"+%x", b"%x;a b", b"%x\n", b"-%x"])
trailers = st.lists(st.sampled_from([b"X-Sum: 1", b'etag: "a"', b"Empty:"]), max_size=2)
odd_trailers = st.sampled_from([b" folded", b"no colon", b"A : b", b"A: b\nB: c", b"A\x00: b"])
texts = st.lists(st.binary(min_size=1, max_size=20), max_size=4)
cuts = st.lists(st.integers(0, 2000), max_size=8)


@st.composite
def chunked_bodies(draw: st.DrawFn, *, odd: bool) -> bytes:
    faults = (
        draw(st.sets(st.sampled_from(["size", "trailer", "end", "lf"]), min_size=1)) if odd else ()
    )
    out = b""
    for text in draw(texts):
        out += draw(chunk_lines) % len(text) + CRLF + text + CRLF
    if "size" in faults:
        out += draw(odd_chunk_lines) % 3 + CRLF + b"abc" + CRLF
    if "end" in faults:
        out += b"2" + CRLF + b"abc" + CRLF
    out += draw(st.sampled_from([b"0", b"00", b"0;last"])) + (b"\n" if "lf" in faults else CRLF)
    lines = draw(trailers) + ([draw(odd_trailers)] if "trailer" in faults else [])
    return out + b"".join(line + CRLF for line in lines) + CRLF


plain_lines = st.lists(
    st.sampled_from(
        [
            b"Accept: */*", b"accept:x", b"X-A:  two  ", b"X-A: 1", b"X-a: 2", b"Connection: X-A",
            b"Connection: keep-alive", b"TE: trailers", b"Empty:", b"X-Latin: \xe9", b"Cookie: a=b",
            b"Content-Type: application/json", b"Trailer: X-Sum", b"Connection: Content-Length",
        ]
    ),
    max_size=6,
)  # fmt: skip
odd_lines = st.sampled_from(
    [
        b" folded", b"\tfolded: x", b"A : b", b"no colon", b": empty", b"A: b\nB: c", b"A: b\x00",
        b"A: b\rB: c", b"A\xe9: b", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: br",
        b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: \x0bchunked",
        b"Transfer-Encoding: xchunked", b"Content-Length: +3", b"Content-Length: 3, 3",
        b"Content-Length: 0x3", b"Content-Length: -3", b"Content-Length:", b"Content-Length: 3 3",
    ]
)  # fmt: skip
odd_pairs = st.sampled_from(
    [
        [b"Content-Length: 3", b"Content-Length: 3"], [b"Content-Length: 3", b"content-length: 4"],
        [b"Content-Length: 3", b"Transfer-Encoding: chunked"],
        [b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"],
        [b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"],
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Message:
    """A message in its parts, and whether each of them is sound."""

    start: bytes
    lines: tuple[bytes, ...]
    body: bytes
    sound_head: bool = True
    sound_body: bool = True
    before: bytes = b""
    ends_with_connection: bool = False

    @property
    def head(self) -> bytes:
        return CRLF.join((self.start, *self.lines))

    @property
    def data(self) -> bytes:
        return self.before + self.head + CRLF + CRLF + self.body


@st.composite
def messages(
    draw: st.DrawFn, starts: list[bytes], first: list[bytes], *, is_answer: bool
) -> Message:
    start = draw(st.sampled_from(starts))
    lines = [*first, *draw(plain_lines)]
    kind = draw(st.sampled_from(["sized", "chunked", "none", "odd chunks", "odd line", "odd pair"]))
    body, sound_head, sound_body = b"", True, True
    match kind:
        case "sized":
            body = draw(st.binary(max_size=60))
            lines.append(b"Content-Length: %d" % len(body))
        case "chunked" | "odd chunks":
            sound_body = kind == "chunked"
            body = draw(chunked_bodies(odd=not sound_body))
            lines.append(
                draw(st.sampled_from([b"Transfer-Encoding: chunked", b"transfer-encoding:CHUNKED"]))
            )
        case "odd line":
            lines.append(draw(odd_lines))
            body, sound_head = draw(st.sampled_from([b"", b"abc", b"3\r\nabc\r\n0\r\n\r\n"])), False
        case "odd pair":
            lines += draw(odd_pairs)
            body, sound_head = draw(st.sampled_from([b"abc", b"3\r\nabc\r\n0\r\n\r\n"])), False
        case "none" if is_answer:
            body = draw(st.binary(max_size=60))
    lines = draw(st.permutations(lines))
    if not sound_head and lines[0][:1] in b" \t":
        lines.append(lines.pop(0))  # a fold of the start line is another fault
    before = b""
    if is_answer:
        before = b"".join(draw(st.lists(st.sampled_from(INTERIMS), max_size=2)))
    return Message(
        start, tuple(lines), body, sound_head, sound_body, before, is_answer and kind == "none"
    )


INTERIMS = [b"HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n", b"HTTP/1.1 102 Processing\r\n\r\n"]
requests = messages(
    [b"POST /v1/x HTTP/1.1", b"PUT /a?b=c%20 HTTP/1.1", b"DELETE /v1 HTTP/1.1"],
    [b"Host: localhost"],
    is_answer=False,
)
answers = messages(
    [b"HTTP/1.1 200 OK", b"HTTP/1.1 201 ", b"HTTP/1.1 429 Slow down", b"HTTP/1.1 500 caf\xe9"],
    [],
    is_answer=True,
)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi"


@given(requests, cuts)
@example(Message(b"POST / HTTP/1.1", (b"Host: a", b"Host: b"), b"", sound_head=False), [])
@example(Message(b"POST / HTTP/1.1\n", (b"Host: localhost",), b"", sound_head=False), [])
@example(Message(b"POST  / HTTP/1.1", (b"Host: localhost",), b"", sound_head=False), [])
def test_a_request_reaches_the_upstream_as_it_came_or_not_at_all(
    message: Message, at: list[int]
) -> None:
    got = relayed(cut(message.data, at), [OK], [], hangs_up=False)
    if not message.sound_head:
        assert got.upstream is None
        assert got.client.written.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 "))
        return
    assert got.upstream is not None
    head, _, body = got.upstream.written.partition(CRLF + CRLF)
    assert end_to_end(head) == end_to_end(message.head)
    read, meant = read_requests(got.upstream.written), read_requests(message.data)
    if message.sound_body:
        assert (read.error, read.messages, read.body) == (None, 1, meant.body)
        assert body == message.body
        assert got.client.written == OK
        return
    assert read.messages == 0
    assert message.body.startswith(body)
    assert was_aborted(got.client)
    assert was_aborted(got.upstream)


@given(answers, cuts)
@example(Message(b"HTTP/1.1 200 OK\n", (b"Content-Length: 0",), b"", sound_head=False), [])
@example(Message(b"HTTP/1.1 2000 OK", (b"Content-Length: 0",), b"", sound_head=False), [])
def test_an_answer_reaches_the_client_as_it_came_or_as_none(
    message: Message, at: list[int]
) -> None:
    got = relayed([GET], cut(message.data, at), [], hangs_up=True)
    written = got.client.written
    assert written.startswith(message.before)
    head, _, body = written[len(message.before) :].partition(CRLF + CRLF)
    if not message.sound_head:
        assert head.startswith(b"HTTP/1.1 502 ")
        assert read_responses(written[len(message.before) :]).error is None
        return
    if head.startswith(b"HTTP/1.1 502 "):
        raise AssertionError(head)
    assert head.split(CRLF)[0] == message.start
    assert end_to_end(head) == end_to_end(message.head)
    if message.sound_body:
        assert body == message.body
        assert not was_aborted(got.client)
        read = read_responses(written[len(message.before) :])
        assert read.error is None
        assert read.messages == (0 if message.ends_with_connection else 1)
        assert got.client.eof is message.ends_with_connection
        return
    assert message.body.startswith(body)
    assert was_aborted(got.client)
    assert read_responses(written[len(message.before) :]).messages == 0


@given(st.sampled_from([b"HEAD", b"204", b"304"]), plain_lines, st.integers(0, 9), cuts)
def test_what_has_no_body_is_followed_by_none_whatever_it_says(
    which: bytes, lines: list[bytes], length: int, at: list[int]
) -> None:
    status = b"200" if which == b"HEAD" else which
    head = CRLF.join([b"HTTP/1.1 %b x" % status, *lines, b"Content-Length: %d" % length])
    method = b"HEAD" if which == b"HEAD" else b"GET"
    asked = b"%b /v1/x HTTP/1.1\r\nHost: localhost\r\n\r\n" % method
    got = relayed([asked], cut(head + CRLF + CRLF + b"behind it", at), [], hangs_up=False)
    sent, _, body = got.client.written.partition(CRLF + CRLF)
    assert (end_to_end(sent), body) == (end_to_end(head), b"")
    assert got.upstream is not None
    assert got.upstream.closed  # what came behind belongs to nobody


@given(st.binary(min_size=1, max_size=200), cuts, cuts, st.lists(st.booleans(), max_size=12))
def test_an_answer_before_the_end_of_its_request_is_whole_and_ends_both_connections(
    text: bytes, at: list[int], answer_at: list[int], order: list[bool]
) -> None:
    upload = b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n" + text
    reply = b"HTTP/1.1 413 Too large\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nstop\r\n0\r\n\r\n"
    got = relayed(cut(upload, at), cut(reply, answer_at), order, hangs_up=False)
    assert got.client.written == reply
    assert got.client.eof  # and read on, so that the answer can be
    assert not was_aborted(got.client)
    assert got.upstream is not None
    assert got.upstream.closed


@given(
    st.lists(requests.filter(lambda m: m.sound_head and m.sound_body), min_size=2, max_size=3), cuts
)
def test_requests_that_come_at_once_are_told_apart(asked: list[Message], at: list[int]) -> None:
    """Each goes to a connection of its own here, and the next one waits for the answer before."""

    async def run() -> list[bytes]:
        pool = Upstreams()
        desk = Desk(Setup(ProxyMode.PASS, Routes.of({}, "http://up.test")), pool=pool)
        client = Wire(Clients(Proxy(desk)).connection())
        for part in cut(b"".join(message.data for message in asked), at):
            client.receive(part)
        for number in range(len(asked)):
            assert len(pool.wires) == number + 1
            pool.wires[number].receive(OK)
        desk.close()
        assert client.written == OK * len(asked)
        return [wire.written for wire in pool.wires]

    for message, written in zip(asked, asyncio.run(run()), strict=True):
        assert written.partition(CRLF + CRLF)[2] == message.body
