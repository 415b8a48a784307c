"""What the proxy says of itself."""

from pathlib import Path

from tapes.access import Access, token_hash
from tests.proxies import Raw, chat, proxying, report_of


def test_the_proxy_says_that_it_is_there(tmp_path: Path) -> None:
    access = Access(token_hash("a-token"))
    with proxying(None, tmp_path / "t.jsonl", access=access) as proxy, Raw(proxy) as raw:
        got = raw.ask(b"", "/_tapes/ping", method="GET")
        assert got.json() == {"status": "ok", "mode": "replay"}
        assert raw.ask(b"", "/_tapes/report", method="GET").status == 401
        assert raw.ask(b"", "/~a-token/_tapes/report", method="GET").status == 200


def test_the_report_has_a_part_for_each_tape(tmp_path: Path) -> None:
    named = {"demo": tmp_path / "demo.jsonl"}
    with proxying(None, tmp_path / "t.jsonl", named=named) as proxy:
        with Raw(proxy) as raw:
            raw.ask(chat("x"), "/v1/chat/completions", "x-tapes-tape: demo")
        report = report_of(proxy)
    refused = {Path(part["tape"]).name: part["refused"] for part in report["tapes"]}
    assert refused == {"t.jsonl": 0, "demo.jsonl": 1}
    assert report["requests"] == 2


def test_an_unknown_question_names_those_that_there_are(tmp_path: Path) -> None:
    with proxying(None, tmp_path / "t.jsonl") as proxy, Raw(proxy) as raw:
        got = raw.ask(b"", "/_tapes/shutdown")
        assert got.status == 404
        assert "/_tapes/report" in got.json()["error"]["message"]


def test_a_question_may_come_with_head(tmp_path: Path) -> None:
    with proxying(None, tmp_path / "t.jsonl") as proxy, Raw(proxy) as raw:
        assert raw.ask(b"", "/_tapes/report", method="HEAD").status == 200
        assert raw.ask(b"", "/_tapes/ping", method="GET").status == 200


def test_a_token_in_a_path_is_in_no_list_of_refusals(tmp_path: Path) -> None:
    access = Access(token_hash("a-token"))
    with proxying(None, tmp_path / "t.jsonl", access=access) as proxy, Raw(proxy) as raw:
        raw.ask(b"{}", "/~a-token/@unknown/v1/chat/completions?key=a-key")
        raw.ask(b"{}", "/~a-token/nobody/knows")
        got = raw.ask(b"", "/_tapes/misses", "x-tapes-token: a-token", method="GET")
        assert [miss["path"] for miss in got.json()["misses"]] == [
            "/v1/chat/completions",
            "/nobody/knows",
        ]
        assert b"a-token" not in got.body
        assert b"a-key" not in got.body
