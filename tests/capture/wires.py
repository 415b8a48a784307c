"""A connection in memory: what asyncio would tell a protocol, told by the test."""

import asyncio


class Wire(asyncio.Transport):
    """The transport of a protocol under test: keeps what is written, and what it was told to do."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.written = b""
        self.eof = False
        self.closed = False
        self.aborted = False
        self.reading = True
        protocol.connection_made(self)

    def receive(self, data: bytes) -> None:
        """What the other side sends, as far as it is still read."""
        if not self.is_closing():
            self.protocol.data_received(data)

    def lose(self, error: Exception | None = None) -> None:
        self.closed = True
        self.protocol.connection_lost(error)

    # --- asyncio.Transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.eof = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
