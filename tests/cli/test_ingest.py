"""`tapes serve ingest` and `tapes ingest`, as real processes."""

import contextlib
import json
import re
import signal
import stat
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import httpx
import pytest

from tapes.store.sqlite import open_sqlite
from tests.commands import PATIENCE_S, Serving, started, typed
from tests.doors import wait_for
from tests.ingest.payloads import payload
from tests.ingest.test_transcripts import CLAUDE, DATA
from tests.servers import closed_port, serving

LOG = Path(".tapes/tapes.db")


def answered(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


@contextlib.contextmanager
def serving_ingest(*args: str, cwd: Path, env: dict[str, str] | None = None) -> Iterator[Serving]:
    """`tapes serve ingest` on any free port, from the moment at which it listens."""
    arguments = args if "--listen" in args else ("--listen", "127.0.0.1:0", *args)
    process = started(
        "serve",
        "ingest",
        *arguments,
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        said = ""
        while "OTEL_EXPORTER" not in said:
            line = process.stderr.readline().decode()
            assert line, f"the server ended before it listened: {said}"
            said += line
        found = re.search(r"tapes ingest: (http://\S+)", said)
        assert found is not None
        yield Serving(process, found[1], said)
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=PATIENCE_S)


def kept(cwd: Path) -> set[str]:
    store = open_sqlite(cwd / LOG)
    try:
        return {raw.request_id for raw in store.project().stream_turns()}
    finally:
        store.close()


def sessions(cwd: Path) -> list[str]:
    store = open_sqlite(cwd / LOG)
    try:
        return [item.session.harness_session_id for item in store.project().sessions().items]
    finally:
        store.close()


@pytest.mark.row("D5")
def test_what_is_posted_is_derived_beside_and_kept_in_the_log(tmp_path: Path) -> None:
    with serving_ingest(cwd=tmp_path) as door:
        answer = httpx.post(f"{door.address}/v1/ingest", json=payload())
        assert answer.status_code == 202
        wait_for(lambda: sessions(tmp_path) == ["s"])
        assert door.stop() == 0
    assert kept(tmp_path) == {"req-1"}


@pytest.mark.row("D2", "D5")
def test_a_door_that_is_killed_has_kept_all_that_it_acknowledged(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    enough = threading.Event()
    with serving_ingest(cwd=tmp_path) as door:
        client = httpx.Client(base_url=door.address)

        def send(number: int) -> None:
            with contextlib.suppress(httpx.HTTPError):
                answer = client.post("/v1/ingest", json=payload(number))
                if answer.status_code == 202:
                    acknowledged.add(f"req-{number}")
                    if len(acknowledged) > 40:
                        enough.set()

        with ThreadPoolExecutor(8) as pool:
            sending = [pool.submit(send, number) for number in range(400)]
            assert enough.wait(PATIENCE_S)
            door.stop(signal.SIGKILL)
            for each in sending:
                each.result()
        client.close()
    assert 40 < len(acknowledged) < 400
    assert acknowledged <= kept(tmp_path)


def test_open_to_strangers_it_makes_a_token_and_asks_for_it(tmp_path: Path) -> None:
    with serving_ingest("--listen", "0.0.0.0:0", cwd=tmp_path) as door:
        token = door.said.partition("token (shown once")[2].partition(": ")[2].split()[0]
        bare = httpx.post(f"{door.address}/v1/ingest", json=payload())
        by_path = httpx.post(f"{door.address}/~{token}/v1/ingest", json=payload())
    assert (bare.status_code, by_path.status_code) == (401, 202)
    file = tmp_path / ".tapes" / "ingest-token"
    assert token not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_program_is_told_where_it_is(tmp_path: Path) -> None:
    env = {"TAPES_INGEST_LISTEN": "127.0.0.1:0"}
    process = started(
        "serve",
        "ingest",
        "--json",
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            text += process.stdout.readline().decode()
        told = json.loads(text)
        assert httpx.get(f"{told['address']}/ping").json() == {"status": "ok"}
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def test_an_address_that_is_taken_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with serving_ingest(cwd=tmp_path) as door:
        ended = typed("serve", "ingest", "--listen", f"127.0.0.1:{door.port}", cwd=tmp_path)
    assert ended.status == 2
    assert "cannot listen on" in ended.err
    assert "--listen 127.0.0.1:0" in ended.err


# --- transcripts ------------------------------------------------------------------------------


def test_transcripts_are_sent_and_sent_again_without_a_change(tmp_path: Path) -> None:
    with serving_ingest(cwd=tmp_path) as door:
        env = {"TAPES_INGEST_URL": door.address}
        first = typed("ingest", "transcript", str(DATA / "claude"), cwd=tmp_path, env=env)
        again = typed("ingest", "transcript", str(DATA / "claude"), "--json", cwd=tmp_path, env=env)
        wait_for(lambda: sessions(tmp_path) == [CLAUDE])
    assert (first.status, again.status) == (0, 0)
    assert f"{CLAUDE} main: 8 records" in first.out
    lines = [json.loads(line) for line in again.out.splitlines()]
    assert {line["agent"] for line in lines if line["deduped"]} >= {"ag1"}


def test_where_nobody_is_there_the_remedy_is_said(tmp_path: Path) -> None:
    ended = typed(
        "ingest", "transcript", str(DATA / "claude"), "--to", "http://127.0.0.1:9", cwd=tmp_path
    )
    assert ended.status == 2
    assert "start it: tapes serve ingest" in ended.err


def test_a_token_that_no_header_can_have_is_in_no_error(tmp_path: Path) -> None:
    to, env = f"http://127.0.0.1:{closed_port()}", {"TAPES_INGEST_TOKEN": "sesame\n"}
    ended = typed("ingest", "transcript", str(DATA / "claude"), "--to", to, cwd=tmp_path, env=env)
    assert ended.status == 2
    assert "TAPES_INGEST_TOKEN has a character" in ended.err
    assert "sesame" not in ended.err


@pytest.mark.parametrize(
    "said", [b"SSH-2.0-OpenSSH_9.9\r\n", answered(b"[]"), answered(b"[" * 90_000)]
)
def test_what_is_no_door_is_told_in_words(tmp_path: Path, said: bytes) -> None:
    with serving(lambda _, wire: wire.send(said)) as other:
        ended = typed("ingest", "transcript", str(DATA / "claude"), "--to", other.url, cwd=tmp_path)
    assert ended.status == 2
    assert "start it: tapes serve ingest" in ended.err
    assert "Traceback" not in ended.err


@contextlib.contextmanager
def following(path: Path, cwd: Path) -> Iterator[IO[bytes]]:
    """What a command says that follows transcripts, until it is told to end."""
    with serving_ingest(cwd=cwd) as door:
        process = started(
            "ingest",
            "transcript",
            str(path),
            "--follow",
            "--to",
            door.address,
            cwd=cwd,
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            yield process.stdout
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 130
            assert process.stdout.read() == b""
        finally:
            process.kill()
            process.communicate(timeout=PATIENCE_S)


def test_a_file_that_grows_is_followed(tmp_path: Path) -> None:
    lines = (DATA / "claude" / f"{CLAUDE}.jsonl").read_text().splitlines(keepends=True)
    file = tmp_path / "session.jsonl"
    file.write_text("".join(lines[:2]))
    with following(file, tmp_path) as said:
        assert b"2 records" in said.readline()
        file.write_text("".join(lines))
        assert b"8 records" in said.readline()


def test_of_followed_files_only_those_that_grew_are_sent_again(tmp_path: Path) -> None:
    lines = (DATA / "claude" / f"{CLAUDE}.jsonl").read_text().splitlines(keepends=True)
    folder = tmp_path / "sessions"
    folder.mkdir()
    other = "".join(lines[:2]).replace(CLAUDE, CLAUDE[::-1].replace("-", "0"))
    (folder / "a.jsonl").write_text(other)
    (folder / "b.jsonl").write_text("".join(lines[:2]))
    with following(folder, tmp_path) as said:
        assert all(b"2 records" in said.readline() for _ in range(2))
        (folder / "b.jsonl").write_text("".join(lines[:4]))
        assert b"4 records" in said.readline()
        (folder / "b.jsonl").write_text("".join(lines))
        assert b"8 records" in said.readline()


def test_followed_files_wait_for_a_door_that_is_closed(tmp_path: Path) -> None:
    file = tmp_path / f"{CLAUDE}.jsonl"
    file.write_text((DATA / "claude" / file.name).read_text())
    listen = f"127.0.0.1:{closed_port()}"
    follow = ("ingest", "transcript", str(file), "--follow", "--to", f"http://{listen}")
    process = started(*follow, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert b"Connection refused" in process.stderr.readline()
        with serving_ingest("--listen", listen, cwd=tmp_path):
            assert b"8 records" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
        assert process.stderr.read().count(b"trying again") == 1
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)
