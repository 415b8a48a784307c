import gzip
import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapes.services.limiting import limits_in
from tapes.services.registry import Freshness, Health
from tapes.services.sources import Listed, source_list, trusted_hosts
from tests.servers import Received, Script, Wire, answer, closed_port

from .hosting import Hosting, ask, hosted, hosting, serving_service, until
from .making import document

Json = Any


def trouble(host: Hosting, source: str) -> Any:
    """The trouble of a source, once it has one."""
    found = until(lambda: (s := host.host.registry.source(source)) and (s.trouble and s), "trouble")
    return found.trouble


# --- fetching ---------------------------------------------------------------------------------


@pytest.mark.row("C1", "C3")
def test_the_exact_url_is_fetched_without_credentials_and_only_its_origin_is_asked() -> None:
    with serving_service() as service:
        source = f"{service.server.url}/openapi?token=x%20y"
        with hosting(source, ready=("summary",)) as host:
            fetched = service.service.fetches[0]
            assert fetched.target == "/openapi?token=x%20y"
            assert fetched.header("accept") == "application/json"
            assert fetched.header("authorization") is None
            host.get("/v1/cassettes/summary/x")
            assert service.last.target == "/api/summary/x"
            assert "token" not in host.get("/v1/cassettes").body.decode()


@pytest.mark.row("C8")
def test_a_document_that_is_held_is_asked_for_conditionally_and_kept_on_304() -> None:
    with hosted(etag='"v1"') as (host, service):
        host.recheck()
        assert service.service.fetches[0].header("if-none-match") is None
        assert service.service.fetches[-1].header("if-none-match") == '"v1"'
        assert host.snapshot.services["summary"].freshness is Freshness.FRESH
        service.service.etag = '"v2"'
        service.service.document = document(info={"title": "new"})
        host.recheck()
        assert b'"title": "new"' in host.get("/v1/cassettes/summary/openapi.json").body


@pytest.mark.row("C3")
@pytest.mark.parametrize(
    ("script", "code", "word"),
    [
        (answer(b"{}", status=302, headers=[("Location", "/other")]), "status", "redirects"),
        (answer(b"{}", status=500, reason="Oops"), "status", "500 Oops"),
        (answer(b"{}", status=404), "status", "names the document itself"),
        (lambda _r, wire: wire.head(304, [], "Not Modified"), "unexpected_304", "304"),
        (lambda _r, wire: wire.send(b"SSH-2.0-x\r\n"), "unreachable",
         "was reached, but what it answered is not HTTP"),
        (answer(b" " * (8 * 1024 * 1024 + 1)), "too_large", "8,388,608"),
        (answer(gzip.compress(b" " * 9_000_000), headers=[("Content-Encoding", "gzip")]),
         "too_large", "bytes"),
        (answer(b"xx", headers=[("Content-Encoding", "gzip")]), "coding", "gzip"),
        (answer(gzip.compress(b"{}" * 500)[:-9], headers=[("Content-Encoding", "gzip")]),
         "broken", "short"),
        (lambda _r, wire: wire.close(), "unreachable", "closed the connection"),
    ],
    ids=["redirect", "500", "404", "304", "ssh", "large", "bomb", "no-gzip", "cut-gzip", "drop"],
)  # fmt: skip
def test_what_is_no_document_is_a_problem_with_a_code(script: Script, code: str, word: str) -> None:
    with serving_service(document_script=script) as service, hosting(service.source) as host:
        found = trouble(host, service.source)
        assert (found.code, found.problems[0].code) == ("fetch", code)
        assert word in found.reason
        assert host.snapshot.services == {}


@pytest.mark.row("C3")
def test_a_coded_document_is_read_decoded() -> None:
    body = gzip.compress(json.dumps(document()).encode())
    script = answer(body, headers=[("Content-Encoding", "gzip")])
    with hosted(document_script=script) as (host, _):
        assert "summary" in host.snapshot.services


@pytest.mark.row("C3")
def test_a_document_that_drips_is_given_up_in_all() -> None:
    leave = threading.Event()

    def drips(_: Received, wire: Wire) -> None:
        wire.head(200, [("Content-Length", "1000")])
        while not leave.wait(0.02):
            wire.send(b" ")

    with (
        serving_service(document_script=drips) as service,
        hosting(service.source, fetch_s=0.3) as host,
    ):
        found = trouble(host, service.source)
        assert found.problems[0].code == "timeout"
        leave.set()


@pytest.mark.row("C1")
@pytest.mark.parametrize("host", ["example.org", "10.1.2.3", "169.254.169.254"])
def test_a_host_that_nobody_trusts_is_not_asked(host: str) -> None:
    source = f"http://{host}/openapi"
    asked: list[str] = []

    async def lookup(name: str) -> list[str]:
        asked.append(name)
        return ["127.0.0.1"]

    with hosting(source, lookup=lookup) as running:
        found = trouble(running, source)
        assert (found.code, found.problems[0].code) == ("source_url", "untrusted_host")
        assert f"--cassette-host {host}" in found.reason
        assert asked == []


def test_a_trusted_name_that_leads_to_this_machine_is_not_asked() -> None:
    async def lookup(_: str) -> list[str]:
        return ["127.0.0.1"]

    with serving_service() as service:
        source = f"http://summary.internal:{service.server.port}/openapi"
        with hosting(source, lookup=lookup, trusted=Listed(("summary.internal",), "test")) as host:
            assert trouble(host, source).problems[0].code == "no_address"
            assert service.server.connections == 0


def test_a_name_is_looked_up_once_and_never_while_it_works() -> None:
    asked: list[str] = []

    async def lookup(name: str) -> list[str]:
        asked.append(name)
        return ["127.0.0.1"]

    with serving_service() as service:
        source = f"http://localhost:{service.server.port}/openapi"
        with hosting(source, lookup=lookup, ready=("summary",)) as host:
            for _ in range(3):
                host.recheck()
                assert host.get("/v1/cassettes/summary/x").status == 200
            assert asked == ["localhost"]
            assert service.last.header("host") == f"localhost:{service.server.port}"


def test_hosts_that_are_trusted_change_without_a_restart(tmp_path: Path) -> None:
    async def lookup(_: str) -> list[str]:
        return ["127.0.0.1"]

    file = tmp_path / "config.toml"

    def trust(*hosts: str) -> None:
        file.write_text(f'cassettes = ["{source}"]\ncassette_hosts = {json.dumps(hosts)}\n')

    with serving_service() as service:
        source = f"http://summary.internal:{service.server.port}/openapi"
        trust()
        listed, trusted = source_list([], {}, file), trusted_hosts([], {}, file)
        with hosting(lookup=lookup, listed=listed, trusted=trusted) as host:
            assert trouble(host, source).problems[0].code == "untrusted_host"
            trust("summary.internal", "127.0.0.1")
            host.ready("summary")
            assert host.get("/v1/cassettes/summary/x").status == 200
            trust("no/name")
            problem = until(lambda: host.discovery()["problems"], "the problem")[0]
            assert problem["code"] == "source_list"
            assert host.get("/v1/cassettes/summary/x").status == 200
            trust("other.internal")
            until(lambda: not host.snapshot.services, "the withdrawal")
            assert host.get("/v1/cassettes/summary/x").status == 404
            asked = len(service.service.fetches)
            host.recheck()
            assert len(service.service.fetches) == asked


def test_limits_change_without_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    with serving_service() as service:
        file.write_text(f'cassettes = ["{service.source}"]\n')
        listed, limited = source_list([], {}, file), limits_in(file)
        with hosting(ready=("summary",), listed=listed, limited=limited) as host:

            def status() -> int:
                got = ask(host.port, "POST", "/v1/cassettes/summary/x", {}, b"12345")
                return got.status

            assert status() == 200
            with file.open("a") as more:
                more.write("[cassette_limits.summary]\nrequest_bytes = 4\n")
            until(lambda: status() == 413, "the limit of one service")
            file.write_text(f'cassettes = ["{service.source}"]\n[cassette_limits]\nat_once = 0\n')
            until(lambda: "at_once" in str(host.discovery()["problems"]), "the problem")
            assert status() == 413
            file.write_text(f'cassettes = ["{service.source}"]\n')
            until(lambda: status() == 200, "the end of the limit")


# --- over time --------------------------------------------------------------------------------


@pytest.mark.row("C8")
def test_a_service_that_fails_later_goes_on_being_served_stale_and_recovers_by_itself() -> None:
    with hosted() as (host, service):
        whole = host.get("/v1/cassettes/summary/openapi.json").body
        service.service.document_script = answer(b"{}", status=500)
        host.recheck()
        entry = host.discovery()["cassettes"][0]
        assert (entry["openapi_status"], entry["health"]["state"]) == ("stale", "degraded")
        assert host.get("/v1/cassettes/summary/openapi.json").body == whole
        assert host.get("/v1/cassettes/summary/x").status == 200
        problem = host.discovery()["problems"][0]
        assert (problem["subject"], problem["code"]) == (service.source, "fetch")
        service.service.document_script = None
        until(lambda: host.discovery()["problems"] == [])
        assert host.discovery()["cassettes"][0]["openapi_status"] == "fresh"


@pytest.mark.row("C8")
def test_a_refused_change_keeps_the_document_and_the_tools_that_were_admitted() -> None:
    with hosted() as (host, service):
        service.service.document = document({"/elsewhere": {}})
        host.recheck()
        found = trouble(host, service.source)
        assert found.code == "path_outside"
        assert "summary" in host.snapshot.services
        assert found.problems[0].field == "#/paths/~1elsewhere"


@pytest.mark.row("C8")
def test_the_same_document_is_judged_once_however_often_it_comes() -> None:
    with hosted() as (host, service):
        before = host.snapshot.services["summary"].service
        for _ in range(3):
            host.recheck()
        assert host.snapshot.services["summary"].service is before
        assert len(service.service.fetches) >= 4


@pytest.mark.row("C7", "C8")
def test_the_earlier_of_two_sources_has_the_name_when_it_comes_up(tmp_path: Path) -> None:
    with serving_service() as first, serving_service() as second:
        first.service.document_script = answer(b"", status=503)
        with hosting(first.source, second.source, ready=("summary",)) as host:
            host.get("/v1/cassettes/summary/x")
            assert len(second.service.requests) == 1
            first.service.document_script = None
            until(lambda: host.snapshot.services["summary"].url == first.source)
            host.get("/v1/cassettes/summary/x")
            assert len(first.service.requests) == 1
            assert trouble(host, second.source).code == "name_taken"
            host.follow(second.source)
            until(lambda: "summary" in host.snapshot.services)
            host.get("/v1/cassettes/summary/x")
            assert len(second.service.requests) == 2


@pytest.mark.row("C8")
def test_a_list_in_a_file_changes_without_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    with serving_service() as one, serving_service(document(name="other")) as two:
        file.write_text(f'cassettes = ["{one.source}"]\n')
        with hosting(listed=source_list([], {}, file), ready=("summary",)) as host:
            file.write_text(f'cassettes = ["{two.source}"]\n')
            until(lambda: list(host.snapshot.services) == ["other"], "the new list")
            assert host.get("/v1/cassettes/summary/x").status == 404
            file.write_text("cassettes = [")
            until(lambda: host.get("/v1/cassettes/other/x").status == 200)
            file.write_text(f'cassettes = ["{two.source}", "{one.source}"]\n')
            until(lambda: list(host.snapshot.services) == ["other", "summary"], "both")


@pytest.mark.row("C8")
@pytest.mark.parametrize(
    "left", [None, "", '[proxy]\nmode = "replay"\n', "cassettes = [", "\udcff"]
)
def test_a_list_that_is_gone_withdraws_nothing_and_says_since_when(
    tmp_path: Path, left: str | None
) -> None:
    file = tmp_path / "config.toml"
    with serving_service() as one:
        file.write_text(f'cassettes = ["{one.source}"]\n')
        with hosting(listed=source_list([], {}, file), ready=("summary",)) as host:
            if left is None:
                file.unlink()
            else:
                file.write_bytes(left.encode("utf-8", "surrogateescape"))
            problem = until(lambda: host.discovery()["problems"], "the problem")[0]
            assert (problem["subject"], problem["code"]) == (str(file), "source_list")
            assert "what was said before stays" in problem["reason"]
            assert problem["since"].startswith("20")
            assert "cassettes = []" in problem["remedy"]
            assert host.get("/v1/cassettes/summary/x").status == 200
            file.write_text(f'# back\ncassettes = ["{one.source}"]\n')
            until(lambda: not host.discovery()["problems"], "the end of the problem")


@pytest.mark.row("C8")
def test_a_list_that_says_nothing_withdraws_all(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    with serving_service() as one:
        file.write_text(f'cassettes = ["{one.source}"]\n')
        with hosting(listed=source_list([], {}, file), ready=("summary",)) as host:
            file.write_text("cassettes = []\n")
            until(lambda: not host.snapshot.services, "the withdrawal")
            assert host.discovery()["problems"] == []
            file.unlink()
            file.write_text(f'cassettes = ["{one.source}"]\n')
            host.ready("summary")


@pytest.mark.row("C8")
def test_an_interval_of_zero_asks_no_more_after_success() -> None:
    with hosted(interval_s=0.0) as (host, service):
        assert host.host.registry.source(service.source).next_attempt is None  # type: ignore[union-attr]
        host.recheck()
        assert len(service.service.fetches) == 2


def test_a_document_that_brings_its_reader_down_is_that_documents_problem_alone() -> None:
    with serving_service() as good, hosting(good.source, ready=("summary",)) as host:
        admitting = host.host._admitting

        async def kill() -> None:
            assert admitting._process is not None
            admitting._process.kill()
            await admitting._process.wait()

        host.call(kill)
        good.service.document = document(info={"title": "after"})
        host.recheck()
        assert b'"title": "after"' in host.get("/v1/cassettes/summary/openapi.json").body


def test_a_document_whose_reader_was_killed_is_judged_again_though_it_did_not_change() -> None:
    with hosted() as (host, service):
        process = host.host._admitting._process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)  # so that it dies in the middle of the work
        service.service.document = document(info={"title": "after"})
        asking = threading.Thread(target=host.recheck)
        asking.start()
        until(host.host._admitting._turn.locked)
        os.kill(process.pid, signal.SIGKILL)
        asking.join()
        assert trouble(host, service.source).problems[0].code == "too_costly"
        until(lambda: host.discovery()["cassettes"][0]["openapi_status"] == "fresh")
        assert b'"title": "after"' in host.get("/v1/cassettes/summary/openapi.json").body


# --- case 14 ----------------------------------------------------------------------------------


@pytest.mark.row("C8", "C14")
def test_one_dead_service_and_one_that_hangs_harm_only_themselves() -> None:
    held = threading.Event()

    def hangs(_: Received, wire: Wire) -> None:
        held.wait(30)
        wire.close()

    dead = f"http://127.0.0.1:{closed_port()}/openapi"
    with serving_service() as a, serving_service(document_script=hangs) as c:  # noqa: SIM117
        with hosting(dead, c.source, a.source, ready=("summary",)) as host:
            said = host.discovery()
            states = {source["subject"]: source["health"]["state"] for source in said["sources"]}
            assert states == {dead: "down", c.source: "starting", a.source: "up"}
            assert "/v1/cassettes/summary/reports" in host.json("/openapi")["paths"]
            (first,) = [source for source in said["sources"] if source["subject"] == dead]
            assert "refused" in first["last_error"]
            assert first["last_attempt"] < first["next_attempt"]
            held.set()


@pytest.mark.row("C8", "C14")
def test_a_service_that_comes_up_appears_and_one_that_goes_is_down_and_comes_back() -> None:
    with serving_service() as service:
        port, made = service.server.port, service.service
        service.server.close()
        with hosting(service.source, interval_s=0.3) as host:
            assert trouble(host, service.source).problems[0].code == "unreachable"
            with _listening(port, made):
                host.ready("summary")
            states: list[Health] = []

            def state_is(health: Health) -> Callable[[], bool]:
                return lambda: host.snapshot.services["summary"].health is health

            until(state_is(Health.DOWN), "down")
            states = [c.health for c in host.snapshot.services["summary"].changes]
            assert states[-3:] == [Health.UP, Health.DEGRADED, Health.DOWN]
            assert host.discovery()["cassettes"][0]["openapi_status"] == "stale"
            with _listening(port, made):
                until(state_is(Health.UP), "up again")


def _listening(port: int, script: Script) -> Any:
    """A server on a port of before."""
    import contextlib
    import socket

    from tests.servers import Server

    @contextlib.contextmanager
    def listening() -> Any:
        server = Server(script)
        server.close()
        server._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        thread = threading.Thread(target=server._accept, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.close()
            thread.join(10)

    return listening()


def test_a_service_that_is_well_while_its_document_cannot_be_had_is_degraded() -> None:
    with hosted() as (host, service):
        service.service.document_script = answer(b"", status=500)
        host.recheck()
        entry = host.discovery()["cassettes"][0]
        assert entry["health"]["state"] == "degraded"
        assert entry["health"]["probe"]["status"] == 200
        service.service.document_script = None
        service.service.health = answer(b"", status=503)
        host.recheck()
        entry = host.discovery()["cassettes"][0]
        assert (entry["health"]["state"], entry["openapi_status"]) == ("degraded", "fresh")


def test_nobody_is_asked_without_sources() -> None:
    with hosting(listed=Listed()) as host:
        assert host.json("/v1/cassettes") == {
            "contract_version": "v1", "cassettes": [], "problems": [], "sources": [],
            "withdrawn_tools": [],
        }  # fmt: skip
