"""The read API as a service reads it."""

import json
import urllib.request
from typing import Any

import pytest

from tapes.errors import BadSetting, BrokenAnswer, Unreachable
from tapes.services.kit import Service
from tapes.services.kit.reading import ReadApi
from tapes.services.kit.service import setting
from tapes.services.kit.settings import Secret
from tapes.services.manifest import Manifest
from tests.servers import answer, closed_port, serving
from tests.services.reading import reading


@pytest.mark.row("C14")
def test_all_pages_of_sessions_are_read_and_each_whole() -> None:
    with reading() as (served, base):
        tapes = ReadApi(base)
        listed = [session["id"] for session in tapes.sessions()]
        assert sorted(listed) == sorted(served.ids.values())
        whole = tapes.whole_session(served.ids["invoice"])
        assert whole is not None
        assert [s["name"] for s in whole["traces"][0]["spans"] if s["kind"] == "tool"] == ["Bash"]
        span = whole["traces"][0]["spans"][0]
        assert tapes.span(span["trace_id"], span["span_id"]) == span
        trace = tapes.trace(span["trace_id"])
        assert trace is not None
        assert trace["spans"] == whole["traces"][0]["spans"]


def test_what_is_not_there_is_none_and_an_id_is_never_a_path() -> None:
    with reading() as (served, base):
        tapes = ReadApi(base)
        assert tapes.session("nobody") is None
        assert tapes.whole_session("../../v1/sessions?x=") is None
        assert served.asked[-1].startswith("/v1/sessions/..%2F..%2Fv1%2Fsessions%3Fx%3D/traces")


@pytest.mark.row("C11")
def test_settings_of_the_manifest_say_where_it_is_and_its_token_is_sent_and_never_shown() -> None:
    declared = Manifest(
        name="reader",
        version="1",
        core="v1",
        config=(setting("api_url"), setting("api_token", secret=True)),
    )
    with reading(token="sesame") as (_, base):
        environ = {"CASSETTE_API_URL": base, "CASSETTE_API_TOKEN": "sesame"}
        tapes = ReadApi.of(Service(declared, environ=environ))
        assert len(list(tapes.sessions())) == 3
        with pytest.raises(BrokenAnswer, match="401") as refused:
            list(ReadApi(base, token=Secret("wrong-token")).sessions())
        assert "wrong-token" not in str(refused.value)


def test_an_api_on_this_machine_is_asked_directly_whatever_proxy_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(answer(b"{}")) as proxy, reading(token="sesame") as (_, base):
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.setattr(urllib.request, "_opener", None)  # it remembers the proxies of before
        assert len(list(ReadApi(base, token=Secret("sesame")).sessions())) == 3
        assert proxy.requests == []


def test_nobody_there_and_no_answer_are_told_apart() -> None:
    with pytest.raises(Unreachable, match="CASSETTE_API_URL"):
        list(ReadApi(f"http://127.0.0.1:{closed_port()}").sessions())
    for body in (b"[]", b"{", b"<html>"):
        with serving(answer(body)) as server, pytest.raises(BrokenAnswer):
            list(ReadApi(server.url).sessions())


def test_a_cursor_that_does_not_move_is_an_error_and_no_loop() -> None:
    page: dict[str, Any] = {"items": [{"id": "a"}], "next_cursor": "same"}
    with (
        serving(answer(json.dumps(page).encode())) as server,
        pytest.raises(BrokenAnswer, match="again"),
    ):
        list(ReadApi(server.url).sessions())


def test_the_token_goes_to_nobody_to_whom_the_api_sends_us() -> None:
    with serving(answer(b'{"session": {}}')) as other:
        moved = answer(b"", status=302, headers=[("Location", f"{other.url}/v1/x")])
        with serving(moved) as server:
            ReadApi(server.url, token=Secret("sesame")).session("a")
    (came,) = other.requests
    assert b"sesame" not in came.head


def test_a_token_that_no_header_can_have_is_in_no_error() -> None:
    with serving(answer(b"{}")) as server:
        with pytest.raises(BadSetting, match="no header can have") as refused:
            ReadApi(server.url, token=Secret("sesame\n")).session("a")
        assert "sesame" not in str(refused.value)
        assert not server.requests
