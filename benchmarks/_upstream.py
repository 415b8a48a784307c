"""A provider for the benchmarks, as quick as Python can be: `python -m benchmarks._upstream`.

`/json` answers 1.5 KB at once, `/stream` 50 events at once, `/paced` 50 events 5 ms apart, each
with the time at which it was sent (nanoseconds of the monotonic clock). Prints its port.
"""

import asyncio
import time
from typing import cast

import httptools
import uvloop

EVENTS = 50
PACE_S = 0.005
ANSWER = (
    b'{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant",'
    b'"content":"' + b"y" * 1400 + b'"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":35,"completion_tokens":60,"total_tokens":95}}'
)
_JSON = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Request-Id: abc\r\n"
    b"Content-Length: %d\r\n\r\n" % len(ANSWER)
) + ANSWER
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_END = b"0\r\n\r\n"


def event(text: bytes) -> bytes:
    """An event as a chunk."""
    data = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % text
    return b"%x\r\n%b\r\n" % (len(data), data)


_LAST = event(b"end") + b"e\r\ndata: [DONE]\n\n\r\n" + _END


class Connection(asyncio.Protocol):
    """One client."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_message_complete(self) -> None:
        target, self._target = self._target, b""
        if target.endswith(b"/stream"):
            self._transport.write(_HEAD + b"".join(map(event, [b"token "] * (EVENTS - 2))) + _LAST)
        elif target.endswith(b"/paced"):
            self._transport.write(_HEAD)
            self._next(EVENTS)
        else:
            self._transport.write(_JSON)

    def _next(self, left: int) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(event(b"%d" % time.monotonic_ns()))
        if left > 1:
            asyncio.get_running_loop().call_later(PACE_S, self._next, left - 1)
        else:
            self._transport.write(_LAST)


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
