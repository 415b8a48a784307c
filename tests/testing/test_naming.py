"""Which tape a test has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.testing.naming import named_tape, own_tape, safe, vcr_folder, vcr_name


def test_a_test_has_a_tape_beside_its_file_under_the_names_of_its_classes() -> None:
    path = own_tape("/p/tests/test_weather.py", ("TestOslo", "TestInner"), "test_rain[nb]")
    assert path == "/p/tests/tapes/test_weather/TestOslo.TestInner.test_rain[nb].jsonl"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("shared", "/p/tests/tapes/shared.jsonl"),
        ("shared.db", "/p/tests/tapes/shared.db"),
        ("shared/", "/p/tests/tapes/shared/"),
        ("fixtures/shared", "/p/tests/fixtures/shared.jsonl"),
        ("/q/shared.jsonl", "/q/shared.jsonl"),
    ],
)
def test_a_named_tape_lies_in_the_folder_of_tapes_unless_it_names_a_folder(
    name: str, path: str
) -> None:
    assert named_tape("/p/tests/test_weather.py", name) == path


@given(st.text(), st.text())
def test_two_names_never_become_one(one: str, other: str) -> None:
    assert (safe(one) == safe(other)) is (one == other)


@given(st.text(min_size=1))
def test_a_safe_name_is_short_and_plain(name: str) -> None:
    made = safe(name)
    assert made.isascii()
    assert "/" not in made
    assert 0 < len(made) <= 120
    assert made not in (".", "..")


def test_a_harmless_name_stays_as_it_is() -> None:
    assert safe("TestOslo.test_rain[a=1,b@2]") == "TestOslo.test_rain[a=1,b@2]"


def test_under_the_vcr_marker_cassettes_have_the_names_that_they_had() -> None:
    assert vcr_folder("/p/tests/test_a.py") == "/p/tests/cassettes/test_a"
    assert vcr_name(("TestOuter", "TestInner"), "test_a[x/y:z]") == "TestInner.test_a[x-y-z]"
