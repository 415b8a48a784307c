"""What real providers sent, sent again in the same pieces: nothing changes on its way."""

import json
from pathlib import Path
from typing import Any

import pytest

from tapes.exchange import State
from tapes.tape.jsonl import JsonlTape
from tests.proxies import Answered, Raw, proxying
from tests.servers import Received, Script, Wire, chunks, serving


def pieces_of(recording: dict[str, Any]) -> list[bytes]:
    return [chunk["text"].encode() for chunk in recording["response"]["chunks"]]


def sent_again(recording: dict[str, Any]) -> Script:
    """The answer of a recording: its status, its headers, and its pieces."""
    response = recording["response"]
    headers = dict(response["headers"])
    chunked = "transfer-encoding" in headers
    if not chunked:  # a body that was shortened for the file has another length
        headers["content-length"] = str(sum(map(len, pieces_of(recording))))

    def script(_: Received, wire: Wire) -> None:
        wire.head(response["status"], headers.items())
        for piece in pieces_of(recording):
            wire.chunk(piece) if chunked else wire.send(piece)
        if chunked:
            wire.last_chunk()

    return script


def through(script: Script, tape: Path, mode: str, body: bytes) -> Answered:
    with (
        serving(script) as upstream,
        proxying(upstream.url, tape, mode) as proxy,
        Raw(proxy) as raw,
    ):
        return raw.ask(body)


@pytest.mark.row("N06", "N10")
def test_what_a_real_server_sent_is_replayed_piece_by_piece(
    reference_data: Path, tmp_path: Path
) -> None:
    files = sorted((reference_data / "real-model").glob("*.json"))
    assert files
    for file in files:
        recording = json.loads(file.read_text())
        body = json.dumps(recording["request"]).encode()
        pieces = pieces_of(recording)
        tape = tmp_path / f"{file.stem}.jsonl"
        live = through(sent_again(recording), tape, "record", body)
        assert live.body == b"".join(pieces), file.name
        assert live.chunks in ([], pieces), file.name
        if live.status < 500:
            again = through(chunks(b"not asked"), tape, "replay", body)
            assert (again.head, again.body, again.chunks) == (
                live.head,
                live.body,
                live.chunks,
            ), file.name


@pytest.mark.row("N07", "B8")
def test_streams_of_providers_are_kept_whole_or_as_evidence(
    reference_data: Path, tmp_path: Path
) -> None:
    files = sorted((reference_data / "provider-streams").rglob("*.sse"))
    assert files
    for number, file in enumerate(files):
        stream = file.read_bytes()
        events = [event + b"\n\n" for event in stream.split(b"\n\n") if event]
        whole = b"".join(events)
        tape = tmp_path / f"{number}.jsonl"
        live = through(chunks(*events), tape, "record", b'{"stream":true}')
        assert live.body == whole, file.name
        (exchange,) = JsonlTape(tape).exchanges()
        cut = "truncated" in file.name or "error_mid" in file.name
        assert (exchange.state is State.COMPLETE) is not cut, file.name
        again = through(chunks(b"not asked"), tape, "replay", b'{"stream":true}')
        if cut:
            assert again.header("x-tapes-error") == "incomplete", file.name
        else:
            assert again.chunks == live.chunks, file.name
