import json
import socket
import threading
import time
from typing import Any

import pytest

from tapes.access import Access, token_hash
from tapes.services.traffic import Limits
from tests.servers import Acknowledged, Received, Wire, answer, chunks

from .hosting import ask, connected, hosted, hosting, request, serving_service, until
from .making import document

Json = Any

PUBLIC = "/v1/cassettes/summary"


# --- what the service gets --------------------------------------------------------------------


@pytest.mark.row("C7")
@pytest.mark.parametrize(
    ("sent", "came"),
    [
        ("/reports/a%20b%2Fc?x=1&y=%20+;z", "/api/summary/reports/a%20b%2Fc?x=1&y=%20+;z"),
        ("", "/api/summary"),
        ("/", "/api/summary/"),
        ("//a//b/;p=1", "/api/summary//a//b/;p=1"),
        ("/%e4%BD%A0?q=%zz", "/api/summary/%e4%BD%A0?q=%zz"),
        ("/a?x=1&x=2&x=", "/api/summary/a?x=1&x=2&x="),
        ("/...?b", "/api/summary/...?b"),
        ("/a?", "/api/summary/a?"),
        ("?", "/api/summary?"),
        ("/a??", "/api/summary/a??"),
        ("/a%3F", "/api/summary/a%3F"),
    ],
)
def test_path_and_query_arrive_as_they_were_sent(sent: str, came: str) -> None:
    with hosted() as (host, service):
        assert host.get(PUBLIC + sent).status == 200
        assert service.last.target == came


@pytest.mark.row("C7")
@pytest.mark.parametrize(
    "path",
    ["/../x", "/a/..", "/./a", "/a/%2e%2E/b", "/a/.%2e/b", "/a%2f..%2fb", "/a\\..\\b", "/%2e",
     "/..;/x", "/a/%2e.;v=1/b", "/..%3B/x"],
)  # fmt: skip
def test_a_path_that_leads_out_of_the_service_is_refused(path: str) -> None:
    with hosted() as (host, service):
        refused = host.get(PUBLIC + path)
        assert (refused.status, refused.json["error"]) == (400, "bad_path")
        assert service.service.requests == []


@pytest.mark.row("C7")
def test_headers_of_one_connection_stay_and_others_go_on_in_order() -> None:
    sent = [
        ("Connection", "close, X-Hop"), ("X-Hop", "1"), ("Keep-Alive", "5"), ("TE", "trailers, x"),
        ("Upgrade", "h2c"), ("Proxy-Authorization", "p"), ("Proxy-Connection", "q"),
        ("X-Forwarded-For", "6.6.6.6"), ("Forwarded", "for=6.6.6.6"),
        ("X-Forwarded-Proto", "https"), ("X-Forwarded-Host", "evil"), ("X-Tapes-Cassette", "other"),
        ("X-Tag", "one"), ("Authorization", "Bearer theirs"), ("X-Tag", "two"),
        ("Cookie", "a=1; tapes_session=secret; b=2"), ("If-None-Match", '"x"'),
        ("X-Real-Ip", "1.2.3.4"), ("User-Agent", "agent/1"),
    ]  # fmt: skip
    with hosted() as (host, service):
        ask(host.port, "GET", f"{PUBLIC}/x", sent)
        got = service.last.headers
    names = [name.lower() for name, _ in got]
    for gone in ("connection", "x-hop", "keep-alive", "upgrade", "proxy-authorization",
                 "proxy-connection", "forwarded"):  # fmt: skip
        assert gone not in names, gone
    assert [value for name, value in got if name.lower() == "x-tag"] == ["one", "two"]
    found = {name.lower(): value for name, value in got}
    assert found["te"] == "trailers"
    assert found["host"] == service.server.url.removeprefix("http://")
    assert found["x-forwarded-for"] == "127.0.0.1"
    assert found["x-forwarded-host"] == f"127.0.0.1:{host.port}"
    assert found["x-forwarded-proto"] == "http"
    assert found["x-tapes-cassette"] == "summary"
    assert names.count("x-tapes-cassette") == 1
    assert found["cookie"] == "a=1; b=2"
    assert found["authorization"] == "Bearer theirs"
    assert found["user-agent"] == "agent/1"
    assert "accept-encoding" not in found
    assert "accept" not in found


@pytest.mark.row("C7")
def test_what_a_client_names_as_a_header_of_the_connection_cannot_unframe_its_body() -> None:
    with hosted() as (host, service):
        sent = {"Connection": "Content-Length, X-Tapes-Cassette", "Content-Length": "3"}
        ask(host.port, "POST", f"{PUBLIC}/x", sent, b"abc")
        assert service.last.body == b"abc"
        assert service.last.header("x-tapes-cassette") == "summary"


def test_a_canonical_request_id_is_kept_and_another_replaced() -> None:
    own = "0b7e41ab-58cf-4d0e-9a0f-2b2c3d4e5f60"
    with hosted() as (host, service):
        kept = host.get(f"{PUBLIC}/x", **{"X-Request-Id": own})
        assert kept.header("x-request-id") == service.last.header("x-request-id") == own
        for other in ("1", own.upper(), own.replace("-", ""), "a" * 36):
            new = host.get(f"{PUBLIC}/x", **{"X-Request-Id": other}).header("x-request-id")
            assert new not in (None, other)
            assert service.last.header("x-request-id") == new


@pytest.mark.row("C7")
def test_the_hosts_own_token_goes_no_further_however_it_was_sent() -> None:
    access = Access(token_hash("host-token"))
    with hosted(access=access) as (host, service):
        assert host.get(f"{PUBLIC}/x").status == 401
        assert host.get(f"{PUBLIC}/x", **{"X-Tapes-Token": "host-token"}).status == 200
        assert host.get(f"{PUBLIC}/x", Authorization="Bearer host-token").status == 200
        sent = {"X-Tapes-Token": "host-token", "Authorization": "Bearer service-token"}
        assert host.get(f"{PUBLIC}/x", **sent).status == 200
        requests = service.service.requests
    assert all(b"host-token" not in received.head for received in requests)
    assert requests[-1].header("authorization") == "Bearer service-token"


def test_a_token_beyond_ascii_is_known_as_the_hosts_own_as_well() -> None:
    with hosted(access=Access(token_hash("h\u00f4te"))) as (host, service):
        assert host.get(f"{PUBLIC}/x", Authorization="Bearer h\u00f4te").status == 200
    assert service.last.header("authorization") is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"Host": "evil.example"}, 421), ({"Origin": "https://evil.example"}, 403)],
)
def test_a_page_of_somebody_else_is_not_answered(headers: dict[str, str], status: int) -> None:
    with hosted() as (host, service):
        assert host.get(f"{PUBLIC}/x", **headers).status == status
        assert host.get("/v1/mcp", **headers).status == status
        own = {"Origin": host.address}
        assert host.get(f"{PUBLIC}/x", **own).status == 200
        assert len(service.service.requests) == 1


@pytest.mark.row("C7")
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_every_method_goes_on(method: str) -> None:
    with hosted() as (host, service):
        answered = host.get(f"{PUBLIC}/x", method)
        assert (answered.status, service.last.method) == (200, method)
        assert answered.header("content-length") == "11"
        assert answered.body == (b"" if method == "HEAD" else b'{"ok":true}')


def test_only_documented_paths_are_passed_on_where_the_operator_says_so() -> None:
    def operation(*names: str) -> Json:
        parameters = [{"name": n, "in": "path", "required": True} for n in names]
        return {"responses": {"200": {"description": "ok"}}, "parameters": parameters}

    tree = document(
        {
            "/api/summary/reports/{id}": {"get": operation("id")},
            "/api/summary/a{x}b{y}c": {"post": operation("x", "y")},
            "/api/summary/ünder": {"get": operation()},
        }
    )
    with hosted(tree, only_documented=True) as (host, service):
        for path in ("/reports/1", "/reports/a%2Fb/", "/%C3%BCnder"):
            assert host.get(PUBLIC + path).status == 200, path
        assert host.get(f"{PUBLIC}/a1b2c", "POST").status == 200
        for path in ("/reports", "/reports/1/2", "/reports/", "/other", "/abc"):
            refused = host.get(PUBLIC + path)
            assert (refused.status, refused.json["error"]) == (404, "undocumented_path"), path
        assert host.get(f"{PUBLIC}/reports/1", "POST").status == 404
        assert len(service.service.requests) == 4


@pytest.mark.row("C7")
def test_a_websocket_is_refused_in_words() -> None:
    with hosted() as (host, service):
        sent = {"Connection": "keep-alive, Upgrade", "Upgrade": "WebSocket"}
        refused = host.get(f"{PUBLIC}/live", **sent)
        assert (refused.status, refused.json["error"]) == (501, "no_websocket")
        assert service.service.requests == []


@pytest.mark.row("C7")
def test_a_body_whose_coding_would_be_lost_is_passed_on_in_neither_direction() -> None:
    def script(_: Received, wire: Wire) -> None:
        wire.head(200, [("Transfer-Encoding", "gzip, chunked")])
        wire.chunk(b"abc")
        wire.last_chunk()

    with hosted(script=script) as (host, service):
        with connected(host.port) as sock:
            head = f"POST {PUBLIC}/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            coded = "Transfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
            sock.sendall((head + coded).encode())
            assert b'"error":"bad_coding"' in _to_the_end(sock)
        assert service.service.requests == []
        answered = host.get(f"{PUBLIC}/x")
        assert (answered.status, answered.json["error"]) == (502, "bad_answer")


# --- what the client gets ---------------------------------------------------------------------


@pytest.mark.row("C7")
def test_status_headers_and_body_come_back_as_they_are() -> None:
    script = answer(
        b"\x1f\x8bnot really",
        status=429,
        reason="Slow Down",
        content_type="application/problem+json",
        headers=[
            ("Retry-After", "12"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"),
            ("Content-Encoding", "gzip"), ("Location", "/api/summary/elsewhere"),
            ("Connection", "X-Hop"), ("X-Hop", "1"), ("ETag", 'W/"x"'),
        ],
    )  # fmt: skip
    with hosted(script=script) as (host, _):
        got = host.get(f"{PUBLIC}/x")
    assert (got.status, got.body) == (429, b"\x1f\x8bnot really")
    assert [v for n, v in got.headers if n == "set-cookie"] == ["a=1", "b=2"]
    assert got.header("location") == "/api/summary/elsewhere"
    assert got.header("content-encoding") == "gzip"
    assert got.header("etag") == 'W/"x"'
    assert got.header("retry-after") == "12"
    assert got.header("x-hop") is None
    assert got.header("connection") is None


def test_a_service_cannot_speak_for_the_origin_that_it_shares_with_the_host() -> None:
    script = answer(
        b"<script>alert(1)</script>",
        content_type="text/html",
        headers=[
            ("Set-Cookie", "tapes_session=theirs"), ("Set-Cookie", "__Host-tapes_x=1"),
            ("Set-Cookie", "= tapes_session=theirs"),
            ("Set-Cookie", "own=1"), ("Service-Worker-Allowed", "/"),
            ("Clear-Site-Data", '"*"'), ("Strict-Transport-Security", "max-age=1"),
            ("Alt-Svc", "h2=\":1\""),
        ],
    )  # fmt: skip
    with hosted(script=script) as (host, _):
        got = host.get(f"{PUBLIC}/page")
    assert [v for n, v in got.headers if n == "set-cookie"] == ["own=1"]
    for name in ("service-worker-allowed", "clear-site-data", "strict-transport-security",
                 "alt-svc"):  # fmt: skip
        assert got.header(name) is None
    assert (got.header("content-security-policy") or "").startswith("sandbox ")
    assert "allow-same-origin" not in (got.header("content-security-policy") or "")
    assert got.header("x-content-type-options") == "nosniff"


@pytest.mark.parametrize(
    ("kinds", "is_page"),
    [
        (["application/atom+xml; charset=utf-8"], True),
        (["image/svg+xml"], True),
        (["text/plain", "text/html"], True),
        (["application/json, text/html"], True),
        (["multipart/x-mixed-replace; boundary=x"], True),
        (["application/json"], False),
        (["text/event-stream"], False),
    ],
)
def test_whatever_a_browser_may_run_is_put_in_a_sandbox(kinds: list[str], is_page: bool) -> None:
    def script(_: Received, wire: Wire) -> None:
        wire.head(200, [*(("Content-Type", kind) for kind in kinds), ("Content-Length", "2")])
        wire.send(b"{}")

    with hosted(script=script) as (host, _):
        got = host.get(f"{PUBLIC}/x")
    assert (got.header("content-security-policy") is not None) is is_page


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_has_none(status: int) -> None:
    def script(_: Received, wire: Wire) -> None:
        wire.head(status, [("ETag", '"x"'), ("Content-Length", "5")] if status == 304 else [])

    with hosted(script=script) as (host, _):
        assert (host.get(f"{PUBLIC}/x").status, host.get(f"{PUBLIC}/x").body) == (status, b"")


@pytest.mark.row("C14")
def test_server_sent_events_come_through_one_by_one() -> None:
    script = Acknowledged((b"data: one\n\n", b"data: two\n\n", b"data: three\n\n"))
    with hosted(script=script) as (host, _), connected(host.port) as sock:
        sock.sendall(request(f"{PUBLIC}/events"))
        seen = b""
        for word in (b"one", b"two", b"three"):
            while b"data: " + word + b"\n\n" not in seen:
                seen += sock.recv(65536)
            script.got()
        while not seen.endswith(b"0\r\n\r\n"):
            seen += sock.recv(65536)
    assert not script.was_kept_waiting
    assert b"text/event-stream" in seen


@pytest.mark.row("C14")
def test_a_request_body_goes_on_while_it_comes() -> None:
    # The service reads its own wire here, so that it sees each piece when it comes.
    with serving_service() as service, hosting(service.source, ready=("summary",)) as host:
        port = service.server.port
        service.server.close()
        with socket.create_server(("127.0.0.1", port)) as listener, connected(host.port) as sock:
            listener.settimeout(10)
            sock.sendall(request(f"{PUBLIC}/up", "Transfer-Encoding: chunked", method="POST"))
            sock.sendall(b"5\r\nfirst\r\n")
            upstream, _ = listener.accept()
            with upstream:
                upstream.settimeout(10)
                seen = b""
                while b"first" not in seen:
                    seen += upstream.recv(65536)
                sock.sendall(b"6\r\nsecond\r\n")
                while b"second" not in seen:
                    seen += upstream.recv(65536)
                sock.sendall(b"0\r\n\r\n")
                while not seen.endswith(b"0\r\n\r\n"):
                    seen += upstream.recv(65536)
                upstream.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
                assert b" 201 " in sock.recv(65536)


@pytest.mark.row("C14")
def test_a_large_download_passes_in_bounded_memory_and_whole() -> None:
    piece = bytes(range(256)) * 256
    count = 256

    def script(_: Received, wire: Wire) -> None:
        wire.head(200, [("Content-Length", str(len(piece) * count))])
        for _n in range(count):
            wire.send(piece)

    with hosted(script=script) as (host, _):
        assert host.get(f"{PUBLIC}/file").body == piece * count


@pytest.mark.row("C14")
def test_when_the_client_leaves_the_service_is_told() -> None:
    gone = threading.Event()

    def script(_: Received, wire: Wire) -> None:
        wire.head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
        try:
            while True:
                wire.chunk(b": still here\n\n")
                time.sleep(0.01)
        except OSError:
            gone.set()
            raise

    with hosted(script=script) as (host, _):
        with connected(host.port) as sock:
            sock.sendall(request(f"{PUBLIC}/events"))
            seen = b""
            while b"still here" not in seen:
                seen += sock.recv(65536)
        assert gone.wait(10)
        traffic = host.host.caller.traffic_of("summary")
        until(lambda: traffic.in_flight == 0)
        assert traffic.failures["client-left"] == 1


def test_uploads_that_their_clients_break_off_are_no_failures_of_the_service() -> None:
    with hosted(limits=Limits(failures=2)) as (host, _):
        traffic = host.host.caller.traffic_of("summary")
        for _ in range(3):
            with connected(host.port) as sock:
                head = request(f"{PUBLIC}/x", "Content-Length: 10", method="POST")
                sock.sendall(head + b"abc")
                until(lambda: traffic.in_flight == 1)
            until(lambda: traffic.in_flight == 0)
        assert traffic.failures == {"client-left": 3}
        assert host.get(f"{PUBLIC}/x").status == 200


def test_an_upload_that_falls_silent_holds_no_slot_for_ever() -> None:
    with (
        hosted(limits=Limits(failures=1, at_once=1, silence_s=1)) as (host, _),
        connected(host.port) as sock,
    ):
        head = request(f"{PUBLIC}/x", "Content-Length: 10", method="POST")
        sock.sendall(head + b"abc")
        assert b" 408 " in _to_the_end(sock)
        until(lambda: host.host.caller.traffic_of("summary").in_flight == 0)
        assert host.get(f"{PUBLIC}/x").status == 200
        assert host.host.caller.traffic_of("summary").failures == {"client-silent": 1}


def test_uploads_that_are_too_large_are_no_failures_of_the_service() -> None:
    head = request(f"{PUBLIC}/x", "Transfer-Encoding: chunked", method="POST")
    with hosted(limits=Limits(failures=2, request_bytes=9)) as (host, _):
        for _ in range(3):
            with connected(host.port) as sock:
                sock.sendall(head + b"a\r\n0123456789\r\n")
                assert b" 413 " in sock.recv(65536)
        assert host.host.caller.traffic_of("summary").failures == {"too-large": 3}
        assert host.get(f"{PUBLIC}/x").status == 200


def test_a_client_that_leaves_before_any_answer_frees_the_service() -> None:
    entered, gone = threading.Event(), threading.Event()

    def script(_: Received, wire: Wire) -> None:
        entered.set()
        if wire._sock.recv(1) == b"":
            gone.set()

    with hosted(script=script) as (host, _):
        with connected(host.port) as sock:
            sock.sendall(request(f"{PUBLIC}/slow"))
            assert entered.wait(10)
        assert gone.wait(10)


@pytest.mark.parametrize("ends", ["close", "reset"])
def test_an_answer_that_breaks_off_breaks_off_for_the_client_too(ends: str) -> None:
    def script(_: Received, wire: Wire) -> None:
        wire.head(200, [("Transfer-Encoding", "chunked")])
        wire.chunk(b"half")
        getattr(wire, ends)()

    with hosted(script=script) as (host, _), connected(host.port) as sock:
        sock.sendall(request(f"{PUBLIC}/x"))
        seen = _to_the_end(sock)
        assert b"200 OK" in seen
        assert not seen.endswith(b"0\r\n\r\n")
        traffic = host.host.caller.traffic_of("summary")
        assert traffic.failures["broken-answer"] == 1


def _to_the_end(sock: socket.socket) -> bytes:
    seen = b""
    try:
        while data := sock.recv(65536):
            seen += data
    except ConnectionResetError:
        pass
    return seen


# --- failures and limits ----------------------------------------------------------------------


def test_a_name_that_nobody_has_is_unknown() -> None:
    with hosted() as (host, _):
        for name in ("summaryx", "Summary", "%73ummary", "..", "x", ""):
            got = host.get(f"/v1/cassettes/{name}/x")
            assert (got.status, got.json["error"]) == (404, "unknown_cassette"), name


@pytest.mark.row("C7")
def test_a_service_that_is_gone_is_said_to_be() -> None:
    with hosted() as (host, service):
        service.server.close()
        got = host.get(f"{PUBLIC}/x")
        assert (got.status, got.json["error"]) == (502, "cassette_unavailable")
        assert "summary" in got.json["message"] or service.server.url in got.json["message"]


def test_a_service_that_says_nothing_is_given_up_in_time() -> None:
    held = threading.Event()
    limits = Limits(silence_s=0.2)
    with hosted(script=lambda _r, _w: print(held.wait(10)), limits=limits) as (host, _):
        got = host.get(f"{PUBLIC}/x")
        assert (got.status, got.json["error"]) == (504, "cassette_timeout")
        held.set()


def test_an_answer_that_falls_silent_is_broken_off() -> None:
    held = threading.Event()

    def script(_received: Received, wire: Wire) -> None:
        wire.head(200, [("Transfer-Encoding", "chunked")])
        wire.chunk(b"one")
        held.wait(10)

    with hosted(script=script, limits=Limits(silence_s=0.2)) as (host, _):
        with connected(host.port) as sock:
            sock.sendall(request(f"{PUBLIC}/x"))
            got = _to_the_end(sock)
        assert b"one" in got
        assert not got.endswith(b"0\r\n\r\n")
        held.set()
        until(lambda: host.host.caller.traffic_of("summary").failures["too-slow"] == 1)


def test_an_answer_may_last_for_longer_than_a_service_may_be_silent() -> None:
    never = threading.Event()

    def script(_received: Received, wire: Wire) -> None:
        wire.head(200, [("Transfer-Encoding", "chunked")])
        for _ in range(5):
            never.wait(0.5)
            wire.chunk(b"x")
        wire.last_chunk()

    with hosted(script=script, limits=Limits(silence_s=2)) as (host, _):
        assert host.get(f"{PUBLIC}/x").body == b"xxxxx"


@pytest.mark.parametrize("length", [True, False])
def test_a_request_that_is_too_large_is_refused(length: bool) -> None:
    limits = Limits(request_bytes=1000)
    with hosted(limits=limits) as (host, service), connected(host.port) as sock:
        if length:
            sock.sendall(request(f"{PUBLIC}/x", "Content-Length: 1001", method="POST"))
        else:
            head = request(f"{PUBLIC}/x", "Transfer-Encoding: chunked", method="POST")
            sock.sendall(head + b"3e9\r\n" + b"x" * 1001 + b"\r\n")
        assert b" 413 " in sock.recv(65536)
        assert service.service.requests == []
        fits = ask(host.port, "POST", f"{PUBLIC}/x", {}, b"x" * 1000)
        assert (fits.status, len(service.last.body)) == (200, 1000)


def test_an_answer_that_is_too_large_is_refused_or_broken_off() -> None:
    limits = Limits(response_bytes=100)
    with hosted(script=answer(b"x" * 101), limits=limits) as (host, service):
        got = host.get(f"{PUBLIC}/x")
        assert (got.status, got.json["error"]) == (502, "answer_too_large")
        service.service.script = chunks(b"x" * 60, b"x" * 60)
        with connected(host.port) as sock:
            sock.sendall(request(f"{PUBLIC}/x"))
            assert not _to_the_end(sock).endswith(b"0\r\n\r\n")


def test_a_service_has_so_many_requests_at_once_and_no_more() -> None:
    entered, leave = threading.Semaphore(0), threading.Event()

    def script(received: Received, wire: Wire) -> None:
        entered.release()
        leave.wait(10)
        answer()(received, wire)

    with hosted(script=script, limits=Limits(at_once=2)) as (host, _):
        statuses: list[int] = []
        threads = [
            threading.Thread(target=lambda: statuses.append(host.get(f"{PUBLIC}/x").status))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        assert entered.acquire(timeout=10)
        assert entered.acquire(timeout=10)
        got = host.get(f"{PUBLIC}/x")
        assert (got.status, got.json["error"], got.header("retry-after")) == (
            503, "cassette_busy", "1",
        )  # fmt: skip
        leave.set()
        for thread in threads:
            thread.join()
        assert statuses == [200, 200]


def drops(_: Received, wire: Wire) -> None:
    wire.close()


def test_a_service_that_fails_again_and_again_rests() -> None:
    limits = Limits(failures=3, rest_s=60, longest_rest_s=60)
    with hosted(script=drops, limits=limits) as (host, service):
        codes = [ask(host.port, "POST", f"{PUBLIC}/x").json["error"] for _ in range(4)]
        assert codes == ["cassette_unavailable"] * 3 + ["cassette_busy"]
        asked = len(service.service.requests)
        assert ask(host.port, "POST", f"{PUBLIC}/x").status == 503
        assert len(service.service.requests) == asked


def test_a_service_comes_back_after_its_rest() -> None:
    limits = Limits(failures=1, rest_s=0.05, longest_rest_s=0.05)
    with hosted(script=drops, limits=limits) as (host, service):
        assert ask(host.port, "POST", f"{PUBLIC}/x").json["error"] == "cassette_unavailable"
        service.service.script = answer()
        until(lambda: ask(host.port, "POST", f"{PUBLIC}/x").status == 200)


def test_counters_tell_what_happened() -> None:
    with hosted() as (host, service):
        ask(host.port, "POST", f"{PUBLIC}/x", {}, b"12345")
        service.service.script = answer(status=404, reason="Not Found")
        host.get(f"{PUBLIC}/x")
        text = host.get("/v1/cassettes/-/metrics").body.decode()
        entry = host.discovery()["cassettes"][0]
    assert 'tapes_cassette_requests_total{cassette="summary",status="2xx"} 1' in text
    assert 'tapes_cassette_requests_total{cassette="summary",status="4xx"} 1' in text
    assert 'tapes_cassette_bytes_total{cassette="summary",direction="request"} 5' in text
    assert 'tapes_cassette_answer_seconds_count{cassette="summary"} 2' in text
    assert 'tapes_cassette_health{cassette="summary",state="up"} 1' in text
    assert entry["traffic"]["answers"] == {"2xx": 1, "4xx": 1}
    assert json.dumps(entry)
