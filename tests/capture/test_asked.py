"""What a request head means to the proxy, and which heads it answers by itself."""

from pathlib import Path

import pytest

from tapes.access import Access, token_hash
from tapes.capture.asked import Asked, Control, Fixed, ProxyMode, Setup, note
from tapes.capture.http1 import read_request_head
from tapes.capture.routes import Routes
from tapes.capture.shelf import Shelf
from tapes.cassette import Cassette
from tapes.tape.base import MemoryTape
from tests.capture.llhttp import read_responses


def noted(
    *lines: bytes,
    start: bytes = b"POST /v1/x HTTP/1.1",
    host: bytes = b"localhost",
    keeps_log: bool = False,
    **setup: object,
) -> Asked | Fixed | Control:
    head = read_request_head(b"\r\n".join((start, b"Host: " + host, *lines)))
    options = {"mode": ProxyMode.REPLAY, "shelf": shelf(), **setup}
    return note(head, Setup(**options), keeps_log=keeps_log)  # type: ignore[arg-type]


def shelf(*names: str) -> Shelf:
    def cassette() -> Cassette:
        return Cassette(MemoryTape(), environ={})

    return Shelf(cassette(), {name: cassette() for name in names})


def asked(*lines: bytes, **more: object) -> Asked:
    found = noted(*lines, **more)  # type: ignore[arg-type]
    assert isinstance(found, Asked)
    return found


def status_of(found: object) -> int:
    assert isinstance(found, Fixed)
    return read_responses(found.answer("")).status


def test_our_own_lines_go_no_further() -> None:
    found = asked(b"X-Tapes-Group: g", b"x-tapes-agent-name: a", b"X-Other: 1")
    assert b"apes" not in found.lines
    assert found.headers == (("X-Other", "1"),)
    assert found.group == "g"


def test_the_url_is_that_of_the_upstream() -> None:
    assert asked(start=b"POST /v1/x?a=%2F HTTP/1.1").url == "https://api.openai.com/v1/x?a=%2F"


def test_a_client_that_was_given_a_proxy_sends_the_whole_address() -> None:
    found = asked(start=b"POST http://localhost:8080/v1/x?u=http://a HTTP/1.1")
    assert found.url == "https://api.openai.com/v1/x?u=http://a"


@pytest.mark.row("F10")
def test_a_tape_is_named_by_header_or_path() -> None:
    tapes = shelf("demo")
    by_header = asked(b"x-tapes-tape: demo", shelf=tapes)
    by_path = asked(start=b"POST /@demo/v1/x HTTP/1.1", shelf=tapes)
    assert by_header.cassette is by_path.cassette is tapes.find("demo")
    assert asked(shelf=tapes).cassette is tapes.find(None)


def test_a_tape_that_is_not_there_is_an_answer_that_names_those_that_are() -> None:
    found = noted(b"x-tapes-tape: other", shelf=shelf("demo"))
    assert status_of(found) == 400
    assert isinstance(found, Fixed)
    assert b"demo" in found.answer("")
    assert not found.lasts


def test_a_name_in_a_folder_of_tapes_is_a_file_and_never_a_path(tmp_path: Path) -> None:
    opened: list[object] = []

    def open_(tape: object) -> Cassette:
        opened.append(tape)
        return Cassette(MemoryTape(), environ={})

    tapes = Shelf(None, folder=tmp_path, opened=open_)
    asked(b"x-tapes-tape: test_weather.1", shelf=tapes)
    asked(b"x-tapes-tape: test_weather.1", shelf=tapes)
    assert opened == [str(tmp_path / "test_weather.1.jsonl")]
    for name in (b"../up", b"a/b", b".hidden", b"", b"x" * 200):
        assert status_of(noted(b"x-tapes-tape: " + name, shelf=tapes)) == 400
    assert status_of(noted(shelf=tapes)) == 400


@pytest.mark.parametrize(
    "line",
    [b"x-tapes-sample: -1", b"x-tapes-sample: one", b"x-tapes-pace: fast", b"x-tapes-pace: -1",
     b"x-tapes-pace: nan", b"x-tapes-upstream: nobody"],
)  # fmt: skip
def test_a_wrong_value_in_our_own_lines_is_an_answer(line: bytes) -> None:
    assert status_of(noted(line)) == 400


def test_no_answer_is_given_again_where_calls_are_told_apart() -> None:
    assert asked().seed is not None
    for line in (b"x-tapes-sample: 1", b"x-tapes-group: g", b"x-tapes-pace: 1"):
        assert asked(line).seed is None
    assert asked(mode=ProxyMode.LIVE).seed is None


def test_without_the_token_there_is_no_answer_but_to_ping() -> None:
    access = Access(token_hash("secret-token"))
    assert status_of(noted(access=access)) == 401
    assert isinstance(asked(b"x-tapes-token: secret-token", access=access), Asked)
    by_path = asked(start=b"POST /~secret-token/v1/x HTTP/1.1", access=access)
    assert by_path.url == "https://api.openai.com/v1/x"
    ping = noted(start=b"GET /_tapes/ping HTTP/1.1", access=access)
    assert isinstance(ping, Control)
    assert status_of(noted(start=b"GET /_tapes/report HTTP/1.1", access=access)) == 401


def test_a_foreign_name_or_a_web_page_is_refused() -> None:
    assert status_of(noted(host=b"evil.example")) == 421
    assert status_of(noted(b"Origin: https://evil.example")) == 403
    assert status_of(noted(start=b"GET /_tapes/ping HTTP/1.1", host=b"evil.example")) == 421


def test_a_tunnel_to_somewhere_else_is_refused() -> None:
    assert status_of(noted(start=b"CONNECT localhost:443 HTTP/1.1")) == 501


def test_a_websocket_is_refused_but_when_passing_on() -> None:
    lines = (b"Connection: Upgrade", b"Upgrade: websocket")
    assert status_of(noted(*lines)) == 426
    passed = asked(*lines, mode=ProxyMode.PASS)
    assert b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" in passed.lines


@pytest.mark.parametrize("path", ["/openai/v1/responses", "/chatgpt/backend-api/codex/responses"])
def test_a_log_gets_the_calls_of_codex_over_http_which_a_websocket_would_hide(path: str) -> None:
    lines = (b"Connection: Upgrade", b"Upgrade: websocket")
    start = f"GET {path} HTTP/1.1".encode()
    found = noted(*lines, start=start, mode=ProxyMode.PASS, keeps_log=True)
    assert status_of(found) == 426
    assert isinstance(found, Fixed)
    assert found.refused is None
    assert isinstance(noted(*lines, start=start, mode=ProxyMode.PASS), Asked)
    realtime = b"GET /openai/v1/realtime HTTP/1.1"
    assert isinstance(noted(*lines, start=realtime, mode=ProxyMode.PASS, keeps_log=True), Asked)


@pytest.mark.parametrize("base", ["/anthropic", "/anthropic/", "/anthropic/gateway"])
def test_what_only_opens_a_connection_costs_no_call_and_is_no_miss(base: str) -> None:
    start = f"HEAD {base} HTTP/1.1".encode()
    found = noted(start=start)
    assert status_of(found) == 200
    assert isinstance(found, Fixed)
    assert found.refused is None
    assert isinstance(noted(start=start, mode=ProxyMode.PASS), Asked)


@pytest.mark.parametrize(
    "start",
    ["GET /anthropic/", "HEAD /anthropic/v1/models", "HEAD /anthropic/?a=1", "HEAD /openai/"],
)
def test_every_other_request_is_a_call(start: str) -> None:
    assert isinstance(noted(start=f"{start} HTTP/1.1".encode()), Asked)


def test_passing_on_needs_no_tape() -> None:
    assert asked(mode=ProxyMode.PASS, shelf=Shelf()).cassette is None
    assert status_of(noted(shelf=Shelf())) == 400


def test_refusals_are_worded_for_the_api_that_was_asked() -> None:
    found = noted(b"x-tapes-sample: x", start=b"POST /v1/messages HTTP/1.1")
    assert isinstance(found, Fixed)
    assert b'"type": "error"' in found.answer("")


def test_a_named_upstream_may_be_any_url_only_with_permission() -> None:
    line = b"x-tapes-upstream: http://10.0.0.7:8000/base"
    assert status_of(noted(line)) == 400
    found = asked(line, routes=Routes.of(any_url=True))
    assert found.url == "http://10.0.0.7:8000/base/v1/x"
