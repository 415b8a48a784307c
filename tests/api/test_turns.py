import gzip
from dataclasses import replace

import httpx
import pytest

from tapes.envelope import Envelope
from tapes.exchange import Exchange, Piece, Request, Response
from tapes.rows import RawTurn, Source
from tapes.store.sql import SqlStore
from tests.api.serving import got, refused, served
from tests.turns import raw_turn

BODY = b'{"model":"m","messages":[]}'


def with_bytes(request: Request, response: Response) -> RawTurn:
    turn = raw_turn(1, "/v1/messages", {}, {})
    return replace(turn, exchange=Exchange("k" * 64, "http/1", request, response))


def kept(store: SqlStore, turn: RawTurn) -> int:
    (receipt,) = store.append([turn])
    return receipt.id


@pytest.mark.row("D4")
def test_turns_come_the_latest_first_and_are_filtered(client: httpx.Client) -> None:
    page = got(client, "/v1/turns", limit=5)
    ids = [turn["id"] for turn in page["items"]]
    assert ids == sorted(ids, reverse=True)
    failed = got(client, "/v1/turns", q="status:429")["items"]
    broken = got(client, "/v1/turns", q="state:aborted_by_client")["items"]
    assert [turn["request_id"] for turn in failed] == ["sample-trouble-1"]
    assert [turn["request_id"] for turn in broken] == ["sample-trouble-3"]


@pytest.mark.row("D2", "D4")
def test_a_turn_is_read_with_every_byte_that_came(store: SqlStore) -> None:
    packed = gzip.compress(b'{"answer": "caf\xc3\xa9"}')
    pieces = (Piece(0.25, packed[:7]), Piece(0.5, packed[7:]))
    headers = (("Content-Type", "application/json"), ("content-encoding", "gzip"), ("X-A", "1"))
    turn = with_bytes(
        Request("POST", "https://provider.test/v1/messages", (("X-Tag", "a"),) * 2, BODY),
        Response(200, headers, pieces, "Fine"),
    )
    number = kept(store, turn)
    with served(store) as client:
        whole = got(client, f"/v1/turns/{number}")
        assert whole["request"]["headers"] == [["X-Tag", "a"], ["X-Tag", "a"]]
        assert whole["request"]["body"]["json"] == {"model": "m", "messages": []}
        assert whole["response"]["body"]["json"] == {"answer": "café"}
        assert whole["response"]["body"]["content_encoding"] == "gzip"
        assert [(c["at"], c["bytes"]) for c in whole["response"]["chunks"]] == [
            (0.25, 7),
            (0.5, len(packed) - 7),
        ]
        assert whole["key"] == "k" * 64
        path = f"/v1/turns/{number}/response/body"
        assert client.get(path).content == packed
        assert client.get(path, params={"decoded": True}).content == gzip.decompress(packed)
        assert client.get(f"/v1/turns/{number}/request/body").content == BODY


def test_a_body_is_never_a_page(store: SqlStore) -> None:
    page = b"<script>alert(1)</script>"
    turn = with_bytes(
        Request("POST", "https://provider.test/x", (), b""),
        Response(200, (("content-type", "text/html\r\nx-evil: 1"),), (Piece(0.1, page),)),
    )
    number = kept(store, turn)
    with served(store) as client:
        answer = client.get(f"/v1/turns/{number}/response/body")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "x-evil" not in answer.headers


def test_what_cannot_be_decoded_says_why(store: SqlStore) -> None:
    turn = with_bytes(
        Request("POST", "https://provider.test/x", (), b"\xff\xfe"),
        Response(200, (("content-encoding", "gzip"),), (Piece(0.1, b"no gzip"),)),
    )
    number = kept(store, turn)
    with served(store) as client:
        whole = got(client, f"/v1/turns/{number}")
        assert whole["response"]["body"]["undecoded"]
        assert whole["request"]["body"]["base64"] == "//4="
        path = f"/v1/turns/{number}/response/body"
        assert refused(client, path, 422, decoded=True)["code"] == "undecodable-body"
        assert client.get(path).content == b"no gzip"


def test_long_bodies_are_cut_in_the_document_and_whole_at_their_address(store: SqlStore) -> None:
    text = b"x" * 1_500_000
    turn = with_bytes(
        Request("POST", "https://provider.test/x", (), b""),
        Response(200, (), (Piece(0.1, text),)),
    )
    number = kept(store, turn)
    with served(store) as client:
        body = got(client, f"/v1/turns/{number}")["response"]["body"]
        assert (body["bytes"], body["cut_at"], len(body["text"])) == (1_500_000, 1048576, 1048576)
        assert client.get(f"/v1/turns/{number}/response/body").content == text


def test_transcripts_and_plain_calls_are_read_too(store: SqlStore) -> None:
    envelope = Envelope(harness_id="claude", harness_session_id="s")
    batch = RawTurn(request_id="b", source=Source.TRANSCRIPT, envelope=envelope, records=[{"a": 1}])
    plain = RawTurn(request_id="p", exchange=Exchange("k", "tape/1", {"model": "m"}, {"ok": True}))
    first, second = store.append([batch, plain])
    with served(store) as client:
        assert got(client, f"/v1/turns/{first.id}")["records"] == [{"a": 1}]
        whole = got(client, f"/v1/turns/{second.id}")
        assert (whole["plain_request"], whole["plain_response"]) == ({"model": "m"}, {"ok": True})
        refused(client, f"/v1/turns/{second.id}/request/body", 404)


def test_a_turn_that_is_not_there_is_404_and_no_number_400(client: httpx.Client) -> None:
    refused(client, "/v1/turns/999999", 404)
    refused(client, "/v1/turns/999999/request/body", 404)
    refused(client, "/v1/turns/x", 400)
    refused(client, f"/v1/turns/{2**63}", 400)
    refused(client, "/v1/turns/1/middle/body", 400)
