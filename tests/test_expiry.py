"""How old a recording may be."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tapes.cassette import Cassette, Play, Refusal
from tapes.errors import BadRule, BadSetting, ExpiredRecording
from tapes.exchange import Exchange
from tapes.expiry import OnExpiry, age_of, expired, how_old
from tapes.project import Declared, declared_for
from tapes.tape.base import MemoryTape

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
KEY = "9d6db0c3dc9d3b4e3b3ffd2b4b0e8b9a31bd5b0a2e4d8f2a6f4c7b6f5a4e3d2c"
REQUEST = {"prompt": "x"}


def exchange(recorded_at: str | None) -> Exchange:
    return Exchange(KEY, "tape/1", REQUEST, {"text": "old"}, recorded_at=recorded_at)


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("90d", timedelta(days=90)),
        ("12 hours", timedelta(hours=12)),
        ("6w", timedelta(weeks=6)),
        ("30m", timedelta(minutes=30)),
        ("1 Week", timedelta(weeks=1)),
        ("5 min", timedelta(minutes=5)),
    ],
)
def test_ages_are_written_as_people_write_them(text: str, age: timedelta) -> None:
    assert age_of(text) == age


@pytest.mark.parametrize(
    "text", ["", "d", "90", "-1d", "90y", "99999999999999w", "3months", "3 mo", "2 decades"]
)
def test_what_is_no_age_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadSetting) as caught:
        age_of(text)
    assert "90d" in caught.value.remedy


@pytest.mark.parametrize(
    ("recorded_at", "is_expired"),
    [
        ("2026-03-09T12:00:01.000+00:00", False),
        ("2026-03-09T11:59:59.000+00:00", True),
        ("2026-03-09T13:30:00.000+02:00", True),
        ("2026-03-10T11:00:00", False),
        (None, True),
        ("yesterday", True),
    ],
)
def test_a_recording_expires_after_its_age_and_without_a_date(
    recorded_at: str | None, is_expired: bool
) -> None:
    assert expired(exchange(recorded_at), timedelta(days=1), NOW) is is_expired


def test_the_age_is_told_in_words() -> None:
    assert how_old(exchange("2026-03-01T12:00:00+00:00"), NOW) == "9 days old"
    assert how_old(exchange("2026-03-10T09:30:00+00:00"), NOW) == "2 hours old"
    assert how_old(exchange("2026-03-09T12:00:00+00:00"), NOW) == "1 day old"
    assert how_old(exchange("2026-03-10T11:30:00+00:00"), NOW) == "30 minutes old"
    assert how_old(exchange(None), NOW) == "of unknown age"


# --- in a cassette ----------------------------------------------------------------------------


def recorded(at: str) -> MemoryTape:
    tape = MemoryTape()
    with_live = Cassette(tape, "record", lambda _: {"text": "old"}, latch=True)
    with_live.call(REQUEST)
    (made,) = tape.exchanges()
    return MemoryTape((Exchange(made.key, made.canonicalizer, REQUEST, made.response,
                                recorded_at=at),))  # fmt: skip


OLD = "2020-01-01T00:00:00+00:00"


def declared(what: OnExpiry) -> Declared:
    return Declared(max_age=timedelta(days=30), expired=what)


def test_an_expired_recording_is_served_and_counted_where_it_only_warns() -> None:
    cassette = Cassette(recorded(OLD), "replay", declared=declared(OnExpiry.WARN))
    assert cassette.call(REQUEST) == {"text": "old"}
    assert cassette.report.as_dict()["expired"] == 1


def test_an_expired_recording_is_refused_where_it_is_to_fail() -> None:
    cassette = Cassette(recorded(OLD), "replay", declared=declared(OnExpiry.FAIL))
    verdict = cassette.decide(REQUEST)
    assert isinstance(verdict, Refusal)
    assert isinstance(verdict.error, ExpiredRecording)
    assert "days old, and max_age is 30 days" in verdict.error.message
    assert "tapes tape refresh memory --expired" in verdict.error.remedy


def test_an_expired_recording_is_made_again_while_recording_is_permitted() -> None:
    tape = recorded(OLD)
    again = Cassette(
        tape, "record", lambda _: {"text": "new"}, latch=True, declared=declared(OnExpiry.RECORD)
    )
    assert again.call(REQUEST) == {"text": "new"}
    assert Cassette(tape, "replay").call(REQUEST) == {"text": "new"}


@pytest.mark.parametrize("mode", ["replay", "record"])
def test_an_expired_recording_is_served_where_nothing_live_is_permitted(mode: str) -> None:
    cassette = Cassette(recorded(OLD), mode, latch=False, declared=declared(OnExpiry.RECORD))
    assert cassette.call(REQUEST) == {"text": "old"}


def test_a_young_recording_is_no_reason_to_go_live() -> None:
    young = datetime.now(UTC).isoformat()
    cassette = Cassette(recorded(young), "record", latch=True, declared=declared(OnExpiry.RECORD))
    assert isinstance(cassette.decide(REQUEST), Play)


def test_the_age_and_what_follows_are_declared_for_a_project(tmp_path: Path) -> None:
    (tmp_path / "tapes.toml").write_text('max_age = "2w"\nexpired = "fail"\n')
    found = declared_for(tmp_path / "t.jsonl")
    assert (found.max_age, found.expired) == (timedelta(weeks=2), OnExpiry.FAIL)
    (tmp_path / "tapes.toml").write_text('max_age = "soon"\n')
    with pytest.raises(BadRule, match="max_age: 'soon' is no age"):
        declared_for(tmp_path / "t.jsonl")
