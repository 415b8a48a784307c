"""Secrets on tapes: found with their place, shown masked, taken out."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tapes.errors import DamagedTape
from tapes.exchange import Exchange, Piece, Request, Response
from tapes.jsontext import Json, compact
from tapes.scanning import looks_random, scan, scan_file, scrub
from tapes.tape.mending import verify
from tests.making import KINDS, answers, assorted, call, chat, contents, large, tape_in

KEY = "sk-proj-" + "a1B2" * 8
OTHER = "ghp_" + "Zz9" * 13
TOKEN = "Qk3vX9pLmN7rT2wY8sD4fG6h"


def http(
    *,
    url: str = "https://api.example.com/v1/chat",
    headers: tuple[tuple[str, str], ...] = (),
    body: Json = None,
    answer: tuple[tuple[str, str], ...] = (),
    pieces: tuple[bytes, ...] = (b"{}",),
) -> Exchange:
    from tapes.canonical import HTTP_1, key_of_exchange_request

    content = ("content-type", "application/json")
    request = Request("POST", url, (content, *headers), compact(body).encode())
    response = Response(200, answer, tuple(Piece(0.1 * n, p) for n, p in enumerate(pieces)))
    return Exchange(key_of_exchange_request(HTTP_1, request), HTTP_1, request, response)


SECRETS = {
    "a key in a prompt": (call(f"use {KEY} please"), "line 1, request.prompt", "openai_key"),
    "a key in an answer": (call("x", f"it is {KEY}"), "line 1, response.text", "openai_key"),
    "a field made for it": (
        call("x", password="correct horse battery"),
        "line 1, request.password",
        "password",
    ),
    "a header": (
        http(headers=(("Authorization", f"Bearer {TOKEN}"),)),
        "line 1, request.headers.Authorization",
        "authorization",
    ),
    "a header that looks like a key": (
        http(headers=(("x-upstream", TOKEN),)),
        "line 1, request.headers.x-upstream",
        "x-upstream",
    ),
    "a response header that looks like a key": (
        http(answer=(("x-upstream", TOKEN),)),
        "line 1, response.headers.x-upstream",
        "header",
    ),
    "a cookie": (
        http(answer=(("Set-Cookie", "sid=123456789"),)),
        "line 1, response.headers.Set-Cookie",
        "set-cookie",
    ),
    "an account": (
        http(answer=(("openai-organization", "org-acme"),)),
        "line 1, response.headers.openai-organization",
        "openai_organization",
    ),
    "a parameter of the query": (
        http(url=f"https://api.example.com/v1?key={TOKEN}"),
        "line 1, request.url",
        "key",
    ),
    "a user in the address": (
        http(url=f"https://me:{TOKEN}@api.example.com/v1"),
        "line 1, request",
        "secret",
    ),
    "a key in a body": (
        http(body={"messages": [{"content": f"my key: {KEY}"}]}),
        "line 1, request.body.messages[0].content",
        "openai_key",
    ),
    "a key over several events": (
        http(
            answer=(("content-type", "text/event-stream"),),
            pieces=(
                f'data: {{"text":"{KEY[:9]}"}}\n\n'.encode(),
                f'data: {{"text":"{KEY[9:20]}"}}\n\n'.encode(),
                f'data: {{"text":"{KEY[20:]}"}}\n\n'.encode(),
            ),
        ),
        "line 1, response.pieces[0]",
        "openai_key",
    ),
    "a key in a large body": (
        large("x", f"filler {OTHER} "),
        "line 2, response.body.text",
        "github_token",
    ),
}  # fmt: skip


@pytest.mark.row("N13")
@pytest.mark.parametrize(("exchange", "place", "name"), SECRETS.values(), ids=SECRETS)
def test_a_secret_is_found_shown_masked_and_taken_out(
    tmp_path: Path, exchange: Exchange, place: str, name: str
) -> None:
    path = tape_in(tmp_path, "jsonl", [exchange, call("harmless")])
    finding = scan(path)[0]
    assert (finding.place, finding.name, finding.key) == (place, name, exchange.key)
    for secret in (KEY, OTHER, TOKEN, "correct horse", "123456789", "org-acme"):
        assert secret not in finding.excerpt
    scrub(path, backup=False)
    assert scan(path) == []
    assert verify(path).damage == []
    everything = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    for secret in (KEY, OTHER, TOKEN, "correct horse", "sid=123456789", "org-acme", KEY[9:20]):
        assert secret.encode() not in everything


@pytest.mark.parametrize("kind", KINDS)
def test_a_tape_of_the_recorders_own_holds_nothing_to_be_found(tmp_path: Path, kind: str) -> None:
    assert scan(tape_in(tmp_path, kind, assorted())) == []


@pytest.mark.row("N14")
@pytest.mark.parametrize("kind", KINDS)
def test_scrubbing_leaves_no_secret_in_any_file(tmp_path: Path, kind: str) -> None:
    exchanges = [
        *assorted(),
        call(f"use {KEY}"),
        large("secret", f"filler {OTHER} "),
        large("secret again", f"filler {OTHER} "),
    ]
    path = tape_in(tmp_path, kind, exchanges)
    done = scrub(path, backup=False)
    assert done.rows == 3
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes(), file
            assert OTHER.encode() not in file.read_bytes(), file
    assert verify(path).damage == []
    assert verify(path).bodies == 2
    for exchange in assorted():
        assert exchange in contents(path)


@pytest.mark.row("N14")
@pytest.mark.parametrize("kind", KINDS)
def test_a_request_that_changes_gets_its_new_key_and_still_answers(
    tmp_path: Path, kind: str
) -> None:
    from tapes import Cassette

    path = tape_in(tmp_path, kind, [call(f"use {KEY}", "fine")])
    done = scrub(path)
    ((old, new),) = done.rekeyed.items()
    assert (old, set(answers(path))) == (call(f"use {KEY}").key, {new})
    with Cassette(path, "replay", canonicalizer="tape/1") as cassette:
        assert cassette.call({"prompt": f"use {KEY}"}) == {"text": "fine"}


def test_keys_of_samples_and_of_evidence_move_along(tmp_path: Path) -> None:
    from tapes.canonical import evidence_key, sample_key
    from tapes.exchange import State

    plain = http(body={"prompt": f"use {KEY}"})
    sample = replace(plain, key=sample_key(plain.key, 2), sample=2)
    cut = replace(plain, key=evidence_key(plain.key), state=State.UPSTREAM_ERROR)
    path = tape_in(tmp_path, "jsonl", [plain, sample, cut])
    done = scrub(path)
    new = done.rekeyed[plain.key]
    assert done.rekeyed[sample.key] == sample_key(new, 2)
    assert done.rekeyed[cut.key] == evidence_key(new)
    assert verify(path).damage == []


def test_a_credential_of_one_row_is_found_in_the_text_of_an_earlier_one(tmp_path: Path) -> None:
    early = call("x", "the token is plainsecret99")
    late = call("y", access_token="plainsecret99")
    path = tape_in(tmp_path, "jsonl", [early, late])
    assert {finding.key for finding in scan(path)} == {early.key, late.key}
    scrub(path, backup=False)
    assert b"plainsecret99" not in Path(path).read_bytes()


def test_what_a_project_declares_secret_is_found(in_tmp_path: Path) -> None:
    Path("tapes.toml").write_text("[[secret]]\nname = \"acme\"\npattern = 'acme_[a-z]{8}'\n")
    path = tape_in(Path(), "jsonl", [call("use acme_abcdefgh", "fine")])
    assert [finding.name for finding in scan(path)] == ["acme"]


def test_rows_without_a_finding_keep_their_bytes(tmp_path: Path) -> None:
    path = Path(tape_in(tmp_path, "jsonl", [call("one"), call(f"use {KEY}"), chat("three")]))
    before = path.read_bytes().splitlines()
    before[0] = before[0].replace(b'"v":1,', b'"v": 1, ')
    path.write_bytes(b"\n".join(before) + b"\n")
    scrub(path)
    after = path.read_bytes().splitlines()
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[1] != before[1]


def test_a_member_that_no_tape_knows_is_looked_at_and_kept(tmp_path: Path) -> None:
    path = Path(tape_in(tmp_path, "jsonl", [call("one")]))
    row = json.loads(path.read_text()) | {"note": f"{KEY} was mine"}
    path.write_text(json.dumps(row) + "\n")
    assert [finding.place for finding in scan(path)] == ["line 1, note"]
    scrub(path)
    assert json.loads(path.read_text())["note"].startswith("REDACTED.openai_key.")


def test_the_name_of_a_member_that_no_tape_knows_is_looked_at(tmp_path: Path) -> None:
    path = Path(tape_in(tmp_path, "jsonl", [call("one")]))
    row = json.loads(path.read_text()) | {"notes": {KEY: [1, 2]}}
    path.write_text(json.dumps(row) + "\n")
    assert {finding.name for finding in scan(path)} == {"openai_key"}
    assert all(KEY not in finding.place + finding.excerpt for finding in scan(path))
    scrub(path, backup=False)
    assert KEY not in path.read_text()
    assert not scan(path)


def test_a_torn_last_line_is_looked_at_and_taken_away(tmp_path: Path) -> None:
    path = Path(tape_in(tmp_path, "jsonl", [call("one")]))
    with path.open("ab") as file:
        file.write(b'{"hash":"12","request":"' + KEY.encode())
    assert [finding.place for finding in scan(path)] == ["line 2"]
    scrub(path, backup=False)
    assert set(answers(str(path))) == {call("one").key}
    assert KEY.encode() not in path.read_bytes()


def test_a_damaged_tape_is_scanned_and_not_scrubbed(tmp_path: Path) -> None:
    path = Path(tape_in(tmp_path, "jsonl", [call("one")]))
    with path.open("ab") as file:
        file.write(b"{oops " + KEY.encode() + b"\n")
    before = path.read_bytes()
    assert [finding.place for finding in scan(path)] == ["line 2"]
    with pytest.raises(DamagedTape, match="line 2"):
        scrub(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", KINDS)
def test_the_original_is_kept_unless_it_is_not_wanted(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, [call(f"use {KEY}")])
    before = contents(path)
    backup = scrub(path).backup
    assert backup is not None
    assert contents(str(backup)) == before if kind != "jsonl" else KEY in backup.read_text()
    other = tape_in(tmp_path, kind, [call(f"use {KEY}")], "other")
    assert scrub(other, backup=False).backup is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_tape_without_secrets_is_not_touched(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, assorted())
    before = contents(path)
    done = scrub(path)
    assert (done.findings, done.rows, done.backup) == ([], 0, None)
    assert contents(path) == before


# --- any file


def test_any_file_is_scanned_by_line(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text(f"A=1\nOPENAI_API_KEY={KEY}\n# {OTHER}\n")
    found = scan_file(path)
    assert [finding.place for finding in found] == ["line 2", "line 3"]
    assert found[0].name.startswith("openai")
    assert found[1].name == "github_token"
    assert all(KEY not in finding.excerpt for finding in scan_file(path))


def test_a_secret_of_several_lines_moves_no_other(tmp_path: Path) -> None:
    path = tmp_path / "deploy.env"
    private = "\n".join(["-----BEGIN PRIVATE KEY-----", *["abcd"] * 9, "-----END PRIVATE KEY-----"])
    path.write_text(f"A=1\n{private}\n\nB=2\nOPENAI_API_KEY={KEY}\n# {OTHER}\n")
    found = [(finding.name.partition("_")[0], finding.place) for finding in scan_file(path)]
    assert found == [("private", "line 2"), ("openai", "line 15"), ("github", "line 16")]


def test_a_secret_at_the_edge_of_two_blocks_is_found_once(tmp_path: Path) -> None:
    path = tmp_path / "big.log"
    line = b"x" * 99 + b"\n"
    path.write_bytes(line * 41943 + KEY.encode() + b"\n" + line * 500)
    assert [finding.place for finding in scan_file(path)] == ["line 41944"]


@pytest.mark.parametrize(
    ("name", "value", "random"),
    [
        ("x-auth", TOKEN, True),
        ("x-auth", f"Token {TOKEN}", True),
        ("x-request-id", TOKEN, False),
        ("cf-ray", "8f3a9b2c1d4e5f60-FRA", False),
        ("etag", f'W/"{TOKEN}"', False),
        ("content-type", "text/event-stream; charset=utf-8", False),
        ("date", "Wed, 04 Mar 2026 05:06:07 GMT", False),
        ("x-build", "2026.03.04-release-candidate", False),
        ("x-hex", "0123456789abcdef0123456789abcdef", False),
        ("x-long-words", "application-default-configuration", False),
    ],
)
def test_what_looks_like_a_key_in_a_header(name: str, value: str, random: bool) -> None:
    assert looks_random(name, value) is random
