"""llhttp's reading of the same bytes, to hold ours against: the parser of Node and many more."""

from dataclasses import dataclass, field

import httptools


@dataclass
class Read:
    """What llhttp made of some bytes. `error` is its message where it refused them."""

    method: bytes = b""
    target: bytes = b""
    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    messages: int = 0
    error: str | None = None

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.messages += 1


def read_requests(data: bytes) -> Read:
    read = Read()
    parser = httptools.HttpRequestParser(read)
    try:
        parser.feed_data(data)
        read.method = parser.get_method()
    except httptools.HttpParserUpgrade:
        read.method = parser.get_method()
    except httptools.HttpParserError as error:
        read.error = str(error)
    return read


def read_responses(data: bytes) -> Read:
    read = Read()
    parser = httptools.HttpResponseParser(read)
    try:
        parser.feed_data(data)
        read.status = parser.get_status_code()
    except httptools.HttpParserUpgrade:
        read.status = parser.get_status_code()
    except httptools.HttpParserError as error:
        read.error = str(error)
    return read
