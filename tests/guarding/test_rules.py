"""Where a call wants to go, and whether that is on this machine."""

import socket
from typing import Any

import pytest

from tapes.guarding.rules import Allowed, Destination, destination, destination_of, is_here

HERE = ["127.0.0.1", "127.8.9.10", "127.1", "localhost", "a.localhost", "::1", "0.0.0.0", "::",
        "::ffff:127.0.0.1", "", socket.gethostname().lower()]  # fmt: skip
ELSEWHERE = ["provider.test", "10.0.0.1", "192.168.1.1", "2001:db8::1", "::ffff:10.0.0.1",
             "localhost.provider.test", "127.0.0.1.provider.test", "169.254.1.1"]  # fmt: skip


@pytest.mark.parametrize("host", HERE)
def test_this_machine_is_here(host: str) -> None:
    assert is_here(host)


@pytest.mark.parametrize("host", ELSEWHERE)
def test_all_others_are_not(host: str) -> None:
    assert not is_here(host)


@pytest.mark.parametrize(
    ("host", "port", "shown"),
    [
        ("Provider.Test.", 443, "provider.test:443"),
        (b"provider.test", "443", "provider.test:443"),
        ("provider.test", "https", "provider.test"),
        ("[2001:db8::1]", 80, "[2001:db8::1]:80"),
        ("fe80::1%eth0", None, "[fe80::1]"),
        (None, None, ""),
    ],
)
def test_a_destination_has_one_spelling(host: object, port: object, shown: str) -> None:
    assert str(destination(host, port)) == shown


class Sock:
    def __init__(self, family: int) -> None:
        self.family = family


INTERNET, INTERNET_6, UNIX = Sock(socket.AF_INET), Sock(socket.AF_INET6), Sock(socket.AF_UNIX)


@pytest.mark.parametrize(
    ("event", "arguments", "found"),
    [
        ("socket.connect", (INTERNET, ("10.0.0.1", 80)), ("10.0.0.1", 80)),
        ("socket.connect", (INTERNET_6, ("2001:db8::1", 80, 0, 0)), ("2001:db8::1", 80)),
        ("socket.connect", (UNIX, "/run/x.sock"), None),
        ("socket.sendto", (INTERNET, ("10.0.0.1", 53)), ("10.0.0.1", 53)),
        ("socket.sendmsg", (INTERNET, None), None),
        ("socket.getaddrinfo", ("provider.test", "443", 0, 0, 0), ("provider.test", 443)),
        ("socket.getaddrinfo", ("10.0.0.1", 80, 0, 0, 0), None),
        ("socket.gethostbyname", ("provider.test",), ("provider.test", None)),
        ("socket.gethostbyaddr", ("10.0.0.1",), ("10.0.0.1", None)),
        ("socket.getnameinfo", (("10.0.0.1", 80),), ("10.0.0.1", 80)),
    ],
)
def test_an_event_tells_its_destination(
    event: str, arguments: tuple[Any, ...], found: tuple[str, int | None] | None
) -> None:
    assert destination_of(event, arguments) == found


@pytest.mark.parametrize(
    ("entry", "covered", "not_covered"),
    [
        ("db.internal", ("db.internal", 5432), ("other.internal", 5432)),
        ("DB.internal:5432", ("db.internal", 5432), ("db.internal", 5433)),
        ("db.internal:5432", ("db.internal", None), ("a.db.internal", None)),
        ("10.0.0.1", ("10.0.0.1", 1), ("10.0.0.2", 1)),
        ("2001:db8::1", ("2001:db8::1", 1), ("2001:db8::2", 1)),
        ("[2001:db8::1]:80", ("2001:db8::1", 80), ("2001:db8::1", 81)),
        ("[2001:db8::1]", ("2001:db8::1", 80), ("2001:db8::2", 80)),
    ],
)
def test_a_list_covers_what_it_names(
    entry: str, covered: tuple[str, int | None], not_covered: tuple[str, int | None]
) -> None:
    allowed = Allowed([entry])
    assert allowed.covers(Destination(*covered))
    assert not allowed.covers(Destination(*not_covered))


@pytest.mark.parametrize("entry", ["https://provider.test", "provider.test/v1", "", "a:b", "a:"])
def test_what_is_no_host_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="host"):
        Allowed([entry])


def test_an_empty_list_allows_nothing() -> None:
    assert not Allowed()
    assert not Allowed().covers(Destination("provider.test", 443))


def test_the_addresses_of_a_name_have_its_ports() -> None:
    allowed = Allowed(["localhost:5432"])
    allowed.learn(Destination("localhost", 5432))
    assert allowed.covers(Destination("127.0.0.1", 5432))
    assert not allowed.covers(Destination("127.0.0.1", 80))
