"""A bounded table keeps what is used, and forgets the rest."""

from hypothesis import given
from hypothesis import strategies as st

from tapes.capture.recent import Recent


def test_what_is_used_stays_and_what_is_not_goes() -> None:
    recent: Recent[str, int] = Recent(100_000)
    recent.add("kept", 1, 100)
    for number in range(1_000):
        recent.add(f"new {number}", number, 100)
        assert recent.find("kept") == 1
    assert recent.find("new 0") is None


def test_what_is_larger_than_half_the_bound_is_not_kept() -> None:
    recent: Recent[str, int] = Recent(1_000)
    recent.add("large", 1, 600)
    assert recent.find("large") is None


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 2_000)), max_size=60))
def test_the_last_value_is_found_or_none(added: list[tuple[str, int]]) -> None:
    recent: Recent[str, int] = Recent(8_000)
    last: dict[str, int] = {}
    for key, size in added:
        recent.add(key, size, size)
        last[key] = size
        assert recent.find(key) == size
    for key, size in last.items():
        assert recent.find(key) in (size, None)


def test_an_entry_can_be_forgotten() -> None:
    recent: Recent[str, int] = Recent(10_000)
    recent.add("a", 1, 10)
    recent.forget("a")
    assert recent.find("a") is None
