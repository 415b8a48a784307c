"""Files of other tools onto tapes and back."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tapes.cassette import Cassette, Play
from tapes.errors import ForeignFile, MergeConflict, NotCarried, SecretFound
from tapes.exchange import Exchange, Piece, Request, Response
from tapes.interchange import har, vcr
from tapes.moving import Format, export_from, format_of, import_into, read_file
from tapes.project import Declared
from tapes.tape.base import MemoryTape
from tapes.tape.kinds import open_tape
from tapes.varying import Rule
from tests.interchange.made import content, entry, read


def exchange(body: bytes, url: str = "http://h/") -> Exchange:
    response = Response(200, (), (Piece(0.0, body),))
    return Exchange("0" * 64, "http/1", Request("GET", url), response)


@pytest.mark.parametrize("name", ["t.jsonl", "t.db", "t/"])
def test_an_import_lands_on_every_kind_of_tape(name: str, tmp_path: Path) -> None:
    where = f"{tmp_path}/{name}"
    reading = read(*(entry(response=content(text)) for text in "ab"))
    tape = open_tape(where)
    assert import_into(tape, reading).added == 2
    tape.close()
    with Cassette(where, "replay") as cassette:
        verdict = cassette.decide(reading.found[0].request, sample=1)
        assert isinstance(verdict, Play)
        assert isinstance(verdict.exchange.response, Response)
        assert verdict.exchange.response.body == b"b"


def test_importing_a_file_twice_adds_nothing(tmp_path: Path) -> None:
    tape = open_tape(tmp_path / "t.jsonl")
    reading = read(*(entry(response=content(text)) for text in "ab"))
    import_into(tape, reading)
    before = (tmp_path / "t.jsonl").read_bytes()
    again = import_into(tape, reading)
    assert (again.added, again.there_already) == (0, 2)
    assert (tmp_path / "t.jsonl").read_bytes() == before


@pytest.mark.row("B13")
def test_another_answer_to_a_recorded_request_is_a_conflict_unless_it_is_to_hold() -> None:
    tape = MemoryTape()
    import_into(tape, read(entry(response=content("old"))))
    new = read(entry(response=content("new")))
    with pytest.raises(MergeConflict, match="otherwise than memory"):
        import_into(tape, new)
    assert len(list(tape.exchanges())) == 1
    assert import_into(tape, new, replace_answers=True).added == 1


def test_a_file_that_cannot_be_carried_whole_leaves_the_tape_untouched() -> None:
    tape = MemoryTape()
    reading = read(entry(), entry(response={"status": 101}))
    with pytest.raises(NotCarried, match="entry 2 cannot be carried: a WebSocket"):
        import_into(tape, reading)
    assert not list(tape.exchanges())
    assert import_into(tape, reading, partial=True).added == 1


def test_several_files_land_on_a_tape_together_or_not_at_all() -> None:
    one, other, third = (
        replace(read(entry(response=content(text))), source=name)
        for name, text in (("a.har", "x"), ("b.har", "x"), ("c.har", "y"))
    )
    tape = MemoryTape()
    with pytest.raises(MergeConflict, match=r"c\.har answers"):
        import_into(tape, one, other, third)
    assert not list(tape.exchanges())
    done = import_into(tape, one, other)
    assert (done.added, done.there_already) == (1, 1)


def test_notes_name_the_file_that_they_are_about() -> None:
    reading = read_file(har.write([exchange(b"a")]).data, "x.har")
    blocked = replace(read(entry(response={"status": 0})), source="y.har")
    done = import_into(MemoryTape(), reading, blocked)
    assert [note.place for note in done.notes] == ["y.har, entry 1"]
    with pytest.raises(ForeignFile, match=r"^z\.yaml: not YAML"):
        read_file(b"{", "z.yaml")


def test_hosts_choose_what_is_imported() -> None:
    tape = MemoryTape()
    reading = read(entry(), entry({"url": "https://cdn.example/x.css"}))
    assert import_into(tape, reading, hosts=["H"]).added == 1
    assert not import_into(MemoryTape(), reading, hosts=["h", "CDN.example"]).notes
    (kept,) = tape.exchanges()
    assert isinstance(kept.request, Request)
    assert kept.request.url.startswith("https://h/")


def test_the_rules_and_the_secrets_of_a_project_hold_for_imports() -> None:
    tape = MemoryTape()
    vary = Declared(rules=(Rule.of({"query": "a"}),))
    import_into(tape, read(entry()), declared=vary)
    (kept,) = tape.exchanges()
    assert kept.rules == ({"query": "a"},)
    variants = [entry({"headers": [{"name": "x-variant", "value": v}]}) for v in "ab"]
    import_into(tape, read(*variants), declared=Declared(headers=frozenset({"x-variant"})))
    assert [exchange.sample for exchange in tape.exchanges()] == [0, 0, 0]
    secret = content("sk-abcdefghijklmnop0123456789")
    with pytest.raises(SecretFound):
        import_into(tape, read(entry(response=secret)), declared=Declared(secrets="refuse"))


@pytest.mark.parametrize(
    ("data", "name", "kind"),
    [
        (vcr.write([exchange(b"a")]).data, "", Format.VCR),
        (vcr.write([exchange(b"fixtures log")], as_json=True).data, "", Format.VCR),
        (har.write([exchange(b"interactions fixtures")]).data, "x", Format.HAR),
        (b'{"fixtures": []}', "interactions.json", Format.AIMOCK),
        (b"", "empty.yaml", Format.VCR),
    ],
)
def test_a_file_says_its_own_format(data: bytes, name: str, kind: Format) -> None:
    assert format_of(data, name) is kind


def test_a_file_of_no_known_format_is_an_error_with_a_remedy() -> None:
    with pytest.raises(ForeignFile) as caught:
        read_file(b"hello", "notes.txt")
    assert "--format" in caught.value.remedy


def test_an_export_of_plain_json_calls_is_refused_unless_a_part_will_do() -> None:
    plain = Exchange("1" * 64, "tape/1", {"a": 1}, {"b": 2})
    with pytest.raises(NotCarried, match="111111111111 cannot be carried"):
        export_from([plain, exchange(b"a")], Format.HAR)
    written = export_from([plain, exchange(b"a")], Format.HAR, partial=True)
    assert len(json.loads(written.data)["log"]["entries"]) == 1


def test_fixtures_are_not_written() -> None:
    with pytest.raises(NotCarried, match="rules, not exchanges"):
        export_from([], Format.AIMOCK)


def test_a_later_answer_is_the_one_that_is_exported() -> None:
    written = export_from([exchange(b"old"), exchange(b"new")], Format.HAR)
    (only,) = har.read(written.data).found
    assert only.response.body == b"new"
