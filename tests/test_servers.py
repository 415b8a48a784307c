"""What tests rely on where they name a port: nobody else comes to listen on it."""

import socket

import pytest

from tests.servers import closed_port, reserved_port


def _connect(port: int) -> None:
    socket.create_connection(("127.0.0.1", port)).close()


def test_a_closed_port_refuses_and_is_given_to_nobody() -> None:
    port = closed_port()
    with pytest.raises(ConnectionRefusedError):
        _connect(port)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))


def test_who_asks_for_a_reserved_port_by_its_number_may_listen_on_it_again_and_again() -> None:
    with reserved_port() as held:
        port = held.getsockname()[1]
        for _ in range(2):
            with socket.create_server(("127.0.0.1", port)):
                _connect(port)
            with pytest.raises(ConnectionRefusedError):
                _connect(port)
