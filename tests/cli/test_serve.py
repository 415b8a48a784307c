"""`tapes serve proxy`: a server that says what to set, and that strangers cannot use."""

import contextlib
import json
import resource
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tapes.keeping import open_store
from tapes.opening import Where
from tapes.report import runs_of
from tapes.tape.jsonl import JsonlTape
from tests.commands import Serving, serving_proxy, started_proxy, typed
from tests.noticing import answered
from tests.proxies import Raw, chat
from tests.servers import answer, chunks, serving


@pytest.mark.row("F10", "D1")
def test_it_says_where_it_is_and_what_to_set(tmp_path: Path) -> None:
    with serving_proxy(cwd=tmp_path) as proxy:
        assert f"OPENAI_BASE_URL={proxy.address}/openai/v1" in proxy.said
        assert ".cassettes/agent.jsonl: 0 answers" in proxy.said
        assert "token" not in proxy.said
        with Raw(proxy.port) as raw:
            assert raw.ask(b"", "/_tapes/ping", method="GET").json()["mode"] == "replay"


@pytest.mark.row("F28")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_order_and_leaves_its_report(number: int, tmp_path: Path) -> None:
    with serving(answer(b'{"ok":1}')) as upstream:
        flags = (
            "--mode",
            "record",
            "--upstream",
            upstream.url,
            "--budget",
            "5",
            "--tape",
            "t.jsonl",
        )
        with serving_proxy(*flags, cwd=tmp_path) as proxy:
            assert "live calls are permitted" in proxy.said
            with Raw(proxy.port) as raw:
                assert raw.ask(chat("x")).status == 200
            assert proxy.stop(number) == 0
    (run,) = runs_of(JsonlTape(tmp_path / "t.jsonl"))
    assert run.counts["live"] == 1


def test_without_permission_to_record_it_says_so(tmp_path: Path) -> None:
    with serving_proxy("--mode", "record", cwd=tmp_path) as proxy:
        assert "no live call is permitted: set DEMO_LIVE=1" in proxy.said


@pytest.mark.row("B10")
def test_open_to_strangers_it_makes_a_token_shows_it_once_and_keeps_its_hash(
    tmp_path: Path,
) -> None:
    with serving_proxy("--listen", "0.0.0.0:0", cwd=tmp_path) as proxy:
        token = proxy.said.partition("token (shown once")[2].partition(": ")[2].split()[0]
        assert "/~TOKEN" in proxy.said
        with Raw(proxy.port) as raw:
            assert raw.ask(chat("x")).status == 401
            assert raw.ask(chat("x"), "/v1/x", f"x-tapes-token: {token}").status == 400
    file = tmp_path / ".tapes" / "proxy-token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not [f for f in tmp_path.rglob("*") if f.is_file() and token in f.read_text("latin-1")]
    with serving_proxy("--listen", "0.0.0.0:0", cwd=tmp_path) as proxy:
        assert "shown once" not in proxy.said
        assert "every client needs the token of .tapes/proxy-token; --new-token" in proxy.said
        assert f"curl {proxy.address}/~TOKEN/_tapes/report\n" in proxy.said
        with Raw(proxy.port) as raw:
            assert raw.ask(chat("x"), f"/~{token}/v1/x").status == 400
            assert raw.ask(b"", f"/~{token}/_tapes/report", method="GET").status == 200


def test_a_token_can_be_given_and_replaced(tmp_path: Path) -> None:
    env = {"TAPES_PROXY_TOKEN": "given"}
    with serving_proxy(cwd=tmp_path, env=env) as proxy, Raw(proxy.port) as raw:
        assert raw.ask(chat("x")).status == 401
        assert raw.ask(chat("x"), "/~given/v1/x").status == 400
    assert not (tmp_path / ".tapes" / "proxy-token").exists()
    with serving_proxy("--new-token", cwd=tmp_path) as proxy, Raw(proxy.port) as raw:
        assert "shown once" in proxy.said
        assert raw.ask(chat("x")).status == 401


def test_settings_come_from_file_and_flags(tmp_path: Path) -> None:
    (tmp_path / ".tapes").mkdir()
    (tmp_path / ".tapes" / "config.toml").write_text(
        '[proxy]\ntape = "file.jsonl"\n[proxy.named]\ndemo = "demo.db"\n'
    )
    with serving_proxy("--named", "other=o.jsonl", cwd=tmp_path) as proxy:
        assert "file.jsonl: 0 answers" in proxy.said
        assert "settings: .tapes" in proxy.said
        with Raw(proxy.port) as raw:
            report = raw.ask(b"", "/_tapes/report", method="GET").json()
    assert [Path(part["tape"]).name for part in report["tapes"]] == [
        "file.jsonl",
        "demo.db",
        "o.jsonl",
    ]


@pytest.mark.parametrize(
    "flags",
    [("--listen", "nowhere"), ("--mode", "never"), ("--upstream", "a=b"), ("--budget", "-1")],
)
def test_a_wrong_setting_is_told_and_nothing_listens(
    flags: tuple[str, str], tmp_path: Path
) -> None:
    ended = typed("serve", "proxy", *flags, cwd=tmp_path)
    assert ended.status == 2
    assert flags[1].removeprefix("a=") in ended.err
    assert "Traceback" not in ended.err


def test_no_credential_is_in_what_it_says_or_keeps(tmp_path: Path) -> None:
    """An upstream that refuses connections, and every place where a key could come to rest."""
    secrets = ["TEST-QUERY-0123456789", "test-bearer-abcdef-123", "test-header-0001-xyz"]
    lines = (f"Authorization: Bearer {secrets[1]}", f"x-api-key: {secrets[2]}")
    flags = ("--mode", "record", "--upstream", "http://127.0.0.1:1", "--budget", "5")
    with serving_proxy(*flags, cwd=tmp_path) as proxy, Raw(proxy.port) as raw:
        path = f"/v1beta/models/m:generateContent?key={secrets[0]}"
        got = raw.ask(chat("x"), path, *lines)
        assert got.status == 502
        with Raw(proxy.port) as other:
            said = json.dumps(other.ask(b"", "/_tapes/misses", method="GET").json())
        proxy.stop()
        assert proxy.process.stderr is not None
        said += proxy.said + proxy.process.stderr.read().decode() + got.body.decode()
    for file in tmp_path.rglob("*"):
        said += file.read_text("latin-1") if file.is_file() else ""
    assert not [secret for secret in secrets if secret in said]


def test_it_tells_a_program_where_it_is(tmp_path: Path) -> None:
    with started_proxy("--listen", "0.0.0.0:0", "--json", cwd=tmp_path) as process:
        assert process.stdout is not None
        said = ""
        while not said.endswith("}\n"):
            said += process.stdout.readline().decode()
        told = json.loads(said)
        assert told["mode"] == "replay"
        port = int(told["address"].rpartition(":")[2])
        assert told["variables"]["OPENAI_BASE_URL"].endswith(f":{port}/~TOKEN/openai/v1")
        with Raw(port) as raw:
            path = f"/~{told['token']}/_tapes/ping"
            assert raw.ask(b"", path, method="GET").status == 200


# --- a disk that is full ----------------------------------------------------------------------


@contextlib.contextmanager
def full_disk(serving: Serving) -> Iterator[None]:
    """No file of this server can grow any more, as on a full disk."""
    limits = resource.prlimit(serving.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(serving.process.pid, resource.RLIMIT_FSIZE, (10, limits[1]))
    yield
    resource.prlimit(serving.process.pid, resource.RLIMIT_FSIZE, limits)


RECORDING = ("--mode", "record", "--upstream")
LATCH = {"DEMO_LIVE": "1"}


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="no limits of another process here")
@pytest.mark.parametrize("tape", ["t.jsonl", "t.db", "t/"])
def test_recording_on_a_full_disk_fails_loudly_and_goes_on_when_there_is_space(
    tape: str, tmp_path: Path
) -> None:
    with serving(answer(b'{"ok":1}')) as upstream:
        flags = (*RECORDING, upstream.url, "--tape", tape)
        with serving_proxy(*flags, cwd=tmp_path, env=LATCH) as proxy, Raw(proxy.port) as raw:
            assert raw.ask(chat("before")).status == 200
            with full_disk(proxy):
                got = raw.ask(chat("meanwhile"))
                assert got.status == 400
                assert got.header("x-tapes-error") in ("tape-failed", "ledger-failed")
                assert "cannot be written" in got.json()["error"]["message"]
                assert raw.ask(chat("before")).status == 200  # from the tape
            assert raw.ask(chat("meanwhile")).body == b'{"ok":1}'
    with serving_proxy("--tape", tape, cwd=tmp_path) as proxy, Raw(proxy.port) as raw:
        assert raw.ask(chat("meanwhile")).body == b'{"ok":1}'


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="no limits of another process here")
def test_passing_on_is_not_hurt_by_a_full_disk(tmp_path: Path) -> None:
    with serving(chunks(b"data: a\n\n", b"data: [DONE]\n\n")) as upstream:
        flags = ("--mode", "pass", "--upstream", upstream.url)
        with serving_proxy(*flags, cwd=tmp_path) as proxy, full_disk(proxy), Raw(proxy.port) as raw:
            for _ in range(3):
                assert raw.ask(chat("x")).chunks == [b"data: a\n\n", b"data: [DONE]\n\n"]


# --- the log ----------------------------------------------------------------------------------


def test_a_proxy_that_passes_on_keeps_a_log_and_its_sessions_are_there(tmp_path: Path) -> None:
    with serving(answer(answered("yes"))) as upstream:
        flags = ("--mode", "pass", "--upstream", upstream.url)
        with serving_proxy(*flags, cwd=tmp_path) as proxy:
            assert "the log: .tapes/tapes.db" in proxy.said
            with Raw(proxy.port) as raw:
                assert raw.ask(chat("kept")).status == 200
            assert proxy.stop() == 0
    store = open_store(Where(str(tmp_path / ".tapes" / "tapes.db")))
    (listed,) = store.project().sessions().items
    store.close()
    assert listed.session.preview == "kept"
    assert "tapes.db*" in (tmp_path / ".tapes" / ".gitignore").read_text()


@pytest.mark.parametrize(
    ("flags", "env", "keeps"),
    [
        ((), {}, False),
        (("--mode", "pass"), {}, True),
        (("--mode", "pass", "--no-log"), {}, False),
        (("--log",), {}, True),
        ((), {"TAPES_PROXY_LOG": "yes"}, True),
    ],
    ids=["replay", "pass", "told not to", "asked", "by a variable"],
)
def test_in_other_modes_it_keeps_a_log_where_it_is_asked_to(
    flags: tuple[str, ...], env: dict[str, str], keeps: bool, tmp_path: Path
) -> None:
    with serving_proxy(*flags, cwd=tmp_path, env=env) as proxy:
        assert ("the log:" in proxy.said) is keeps
    assert (tmp_path / ".tapes" / "tapes.db").exists() is keeps
