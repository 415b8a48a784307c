"""Servers from settings: what is open to strangers has a token before it listens."""

import contextlib
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from tapes.access import Access, token_hash
from tapes.capture.asked import ProxyMode, Setup
from tapes.capture.shelf import Shelf
from tapes.config import PROXY, read_settings
from tapes.errors import BadSetting, UnknownKind
from tapes.server import Listen, ProxyServer, proxy_in_thread, proxy_setup, token_of
from tapes.serving import HttpServer
from tests.proxies import Raw, chat, proxying


def setup_of(**flags: object) -> Setup:
    given = {f"proxy.{name}": value for name, value in flags.items()}
    return proxy_setup(read_settings(PROXY, given, environ={}), token=None)


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080, True),
        (":9000", "127.0.0.1", 9000, True),
        ("9000", "127.0.0.1", 9000, True),
        ("localhost:0", "localhost", 0, True),
        ("[::1]:80", "::1", 80, True),
        ("0.0.0.0:8080", "0.0.0.0", 8080, False),
        ("[::]:8080", "::", 8080, False),
        ("proxy.example:8080", "proxy.example", 8080, False),
    ],
)
def test_an_address_to_listen_on(text: str, host: str, port: int, loopback: bool) -> None:
    listen = Listen.of(text)
    assert (listen.host, listen.port, listen.is_loopback) == (host, port, loopback)


@pytest.mark.parametrize("text", ["", "host", "host:port", "127.0.0.1:99999", "127.0.0.1:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadSetting):
        Listen.of(text)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_no_server_listens_to_strangers_without_a_token(host: str) -> None:
    with pytest.raises(BadSetting, match="no token"):
        ProxyServer(Setup(ProxyMode.PASS), Listen(host, 0))


def test_strangers_need_the_token_and_whoever_has_it_is_served(tmp_path: Path) -> None:
    access = Access(token_hash("the-token"))
    listen = Listen("0.0.0.0", 0)
    with (
        proxying(None, tmp_path / "t.jsonl", access=access, listen=listen) as proxy,
        Raw(proxy, "127.0.0.2") as raw,
    ):
        assert raw.ask(chat("x")).status == 401
        got = raw.ask(chat("x"), "/~the-token/v1/chat/completions")
        assert got.header("x-tapes-error") == "miss"
        assert "the-token" not in got.body.decode()


@pytest.mark.parametrize("to", ["127.0.0.1", "[::1]"])
def test_all_of_ipv6_is_all_of_ipv4_too(to: str, tmp_path: Path) -> None:
    access = Access(token_hash("the-token"))
    listen = Listen("::", 0)
    with proxying(None, tmp_path / "t.jsonl", access=access, listen=listen) as proxy:
        url = proxy.address.replace("127.0.0.1", to)
        assert httpx.get(f"{url}/_tapes/ping", trust_env=False).status_code == 200
        assert httpx.get(f"{url}/v1/models", trust_env=False).status_code == 401


@pytest.mark.parametrize("to", ["127.0.0.1", "[::1]"])
def test_servers_over_http_listen_to_all_of_ipv4_too(to: str) -> None:
    server = HttpServer(Listen("::", 0))
    host = to.strip("[]")
    port = Listen.of(server.address.removeprefix("http://")).port
    with contextlib.closing(server), socket.create_connection((host, port), timeout=10) as link:
        assert link.getpeername()[1] == port


def test_an_address_that_is_taken_is_named() -> None:
    setup = Setup(ProxyMode.PASS, shelf=Shelf())
    with proxy_in_thread(setup) as first:
        listen = Listen.of(first.address.removeprefix("http://"))
        with pytest.raises(BadSetting, match=str(listen)), proxy_in_thread(setup, listen):
            pass


def test_a_set_up_follows_its_settings(in_tmp_path: Path) -> None:
    setup = setup_of(
        mode="record", tape="t.db", named={"a": "a.jsonl"}, folder="tapes", pace=0.5,
        upstream="http://127.0.0.1:1", upstreams={"vllm": "http://v"}, body_limit=10,
        hosts=["proxy.example:8080"],
    )  # fmt: skip
    assert (setup.mode, setup.pace, setup.body_limit) == (ProxyMode.RECORD, 0.5, 10)
    assert setup.routes.find("/x").upstream.port == 1
    assert setup.routes.find("/vllm/x").upstream.host == "v"
    assert setup.routes.any_url
    assert setup.access.why_not("proxy.example", None, None) is None
    assert setup.shelf.find(None).tape.path == "t.db"
    assert setup.shelf.find("a").tape.path == "a.jsonl"
    assert setup.shelf.find("b").tape.path == "tapes/b.jsonl"
    setup.shelf.close()


def test_an_open_server_sends_on_to_declared_upstreams_alone(in_tmp_path: Path) -> None:
    assert not setup_of(listen="0.0.0.0:0", mode="pass").routes.any_url


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ({"mode": "rewind"}, BadSetting),
        ({"upstream": "ftp://x"}, BadSetting),
        ({"tape": "t.doc"}, UnknownKind),
        ({"upstream": "http://localhost:8080"}, BadSetting),  # where it listens itself
        ({"upstreams": {"openai": "http://127.0.0.1:8080/v1"}}, BadSetting),
    ],
)
def test_what_cannot_be_set_up_is_an_error(
    flags: dict[str, Any], error: type[Exception], in_tmp_path: Path
) -> None:
    with pytest.raises(error):
        setup_of(**flags)


def test_passing_on_opens_no_tape(in_tmp_path: Path) -> None:
    assert list(setup_of(mode="pass").shelf) == []
    assert list(in_tmp_path.iterdir()) == []


def test_a_token_is_given_plain_or_as_its_hash() -> None:
    def given(**environ: str) -> str | None:
        return token_of(read_settings(PROXY, {}, environ=environ))

    hashed = token_hash("t")
    assert given() is None
    assert given(TAPES_PROXY_TOKEN="t") == hashed
    assert given(TAPES_PROXY_TOKEN_SHA256=hashed.upper()) == hashed
    with pytest.raises(BadSetting, match="64 hex digits"):
        given(TAPES_PROXY_TOKEN_SHA256="t")
