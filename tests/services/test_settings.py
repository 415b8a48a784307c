from typing import Any

import pytest

from tapes.services.settings import (
    ABSENT,
    Setting,
    default_fault,
    is_duration,
    setting_environment_name,
)
from tapes.services.spelling import Number


@pytest.mark.row("C11")
@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("llm.model", "CASSETTE_LLM_MODEL"),
        ("batch_size", "CASSETTE_BATCH_SIZE"),
        ("a.b.c1", "CASSETTE_A_B_C1"),
    ],
)
def test_a_setting_has_a_conventional_environment_name(key: str, name: str) -> None:
    assert setting_environment_name(key) == name
    assert Setting(key=key).environment_name == name


@pytest.mark.row("C11")
@pytest.mark.parametrize(
    ("kind", "default", "fits"),
    [
        ("string", "", True),
        ("string", 1, False),
        ("int", 0, True),
        ("int", Number("-0"), True),
        ("int", Number("1.0"), False),
        ("int", Number("9223372036854775808"), False),
        ("int", True, False),
        ("int", "1", False),
        ("bool", False, True),
        ("bool", 0, False),
        ("duration", "1h30m", True),
        ("duration", 30, False),
        ("json", ' {"a": 1, "a": 2} ', True),
        ("json", '"\\ud800"', True),
        ("json", "{} {}", False),
        ("json", {"a": 1}, False),
        ("bogus", object(), True),
        ("string", ABSENT, True),
    ],
)
def test_a_default_is_of_the_type_of_its_setting(kind: str, default: Any, fits: bool) -> None:
    assert (default_fault(Setting(key="k", type=kind, default=default)) is None) is fits


def test_a_default_keeps_to_the_bounds_and_the_choices() -> None:
    assert "below min" in str(default_fault(Setting(type="int", default=1, min=2, max=3)))
    assert "above max" in str(default_fault(Setting(type="int", default=4, min=2, max=3)))
    assert default_fault(Setting(type="int", default=2, min=2, max=2)) is None
    assert "one of a, b" in str(default_fault(Setting(type="string", default="c", enum=("a", "b"))))


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-0",
        "+5s",
        ".5s",
        "5.s",
        "1.5h",
        "1us",
        "1µs",
        "1μs",
        "1m1m",
        "0.000000000000001s",
        "2562047h47m16.854775807s",
        "-2562047h47m16.854775808s",
    ],
)
def test_durations(text: str) -> None:
    assert is_duration(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        ".s",
        "1d",
        "1 s",
        "1S",
        "1e3s",
        "1h-5m",
        "--1s",
        "+",
        "1.1.1s",
        "١s",
        "1s\n",
        "9223372037s",
        "2562047h47m16.854775808s",
        "9" * 5000 + "s",
    ],
)
def test_what_is_no_duration(text: str) -> None:
    assert not is_duration(text)


def test_a_duration_fits_64_bits_of_nanoseconds() -> None:
    assert is_duration("2562047h47m16.854775807s")
    assert is_duration("-2562047h47m16.854775808s")
    for text in ("2562047h47m16.854775808s", "9223372037s", "9" * 5000 + "s"):
        assert not is_duration(text)
