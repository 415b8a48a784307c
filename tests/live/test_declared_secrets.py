"""What a project declares as secret, sent by a real client: no file of the log holds it."""

import json
from pathlib import Path

import httpx
import pytest

from tapes.store.sqlite import open_sqlite
from tests.cli.test_api import ALL, up
from tests.commands import typed
from tests.late import late
from tests.servers import answer, chunks, serving

openai = late("openai")

ASKED, ANSWERED, SENT = (
    "acme_asked0123456789abcd",
    "acme_told98765432100xyz",
    "acme_sent1111111111abcd",
)
OF_A_TAPE = "emp-778899"
DECLARED = r"""
[[secret]]
name = "acme_key"
pattern = 'acme_[a-z0-9]{16,20}'

[[tape]]
path = "tests/tapes/*.jsonl"
[[tape.secret]]
name = "employee"
pattern = 'emp-\d{6}'
"""
SAID = {
    "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{
        "index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": f"it is {ANSWERED}"},
    }],
}  # fmt: skip


def streamed() -> list[bytes]:
    """The answer's secret, cut over two events."""
    parts = [ANSWERED[:9], ANSWERED[9:]]
    events = [
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
         "choices": [{"index": 0, "delta": {"content": part}}]} for part in parts
    ]  # fmt: skip
    return [*(b"data: %s\n\n" % json.dumps(e).encode() for e in events), b"data: [DONE]\n\n"]


def at_rest(folder: Path) -> dict[str, bytes]:
    files = [path for path in (folder / ".tapes").rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in files}


@pytest.mark.row("D2")
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_a_declared_secret_comes_to_rest_in_no_file_of_the_log(
    tmp_path: Path, is_streamed: bool
) -> None:
    (tmp_path / "tapes.toml").write_text(DECLARED)
    script = chunks(*streamed()) if is_streamed else answer(json.dumps(SAID).encode())
    with serving(script) as upstream, up(*ALL, "--upstream", upstream.url, cwd=tmp_path) as server:
        client = openai.OpenAI(base_url=server.url("proxy", "/v1"), api_key="k", max_retries=0)
        asked = f"use {ASKED} for {OF_A_TAPE}"
        told = ""
        if is_streamed:
            with client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": asked}], stream=True
            ) as stream:
                for chunk in stream:
                    told += chunk.choices[0].delta.content or ""
        else:
            made = client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": asked}]
            )
            told = made.choices[0].message.content or ""
        client.close()
        assert ANSWERED in told  # the client gets what was said
        assert ASKED in upstream.requests[0].body.decode()  # and the provider what was asked
        posted = {
            "provider": "openai",
            "request": {"model": "m", "messages": [{"role": "user", "content": f"with {SENT}"}]},
            "response": {"model": "m", "message": {"role": "assistant", "content": []}},
        }
        assert httpx.post(server.url("ingest", "/v1/ingest"), json=posted).status_code == 202
        server.process.terminate()
        server.process.wait(30)
    store = open_sqlite(tmp_path / ".tapes" / "tapes.db")
    turns = list(store.project().stream_turns())
    store.close()
    assert len(turns) == 2
    read = str([(turn.exchange, turn.reduced) for turn in turns])
    for secret in (ASKED, ANSWERED, SENT, OF_A_TAPE):
        assert secret not in read
        assert not [path for path, data in at_rest(tmp_path).items() if secret.encode() in data]
    assert read.count("acme_key") >= 3


def test_a_declaration_that_cannot_be_read_keeps_servers_from_starting(tmp_path: Path) -> None:
    (tmp_path / "tapes.toml").write_text("[[secret]]\nname = 'x'\npattern = '('\n")
    for server in ("", "ingest"):
        ended = typed("serve", *filter(None, [server]), cwd=tmp_path)
        assert ended.status == 2
        assert "tapes.toml" in ended.err
