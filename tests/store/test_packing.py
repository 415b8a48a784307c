"""What is unpacked is what was packed, in little space."""

import random
from dataclasses import replace

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tapes.store.packing import (
    NewerWay,
    NotPacked,
    Packed,
    Way,
    common_prefix,
    common_suffix,
    pack,
    spread,
    squeezed,
    unpack,
    way_of,
)

CHANCE = random.Random(3)
LONG = bytes(CHANCE.choices(b"abcdefgh ", k=60_000))


@given(st.binary(max_size=3000), st.binary(max_size=3000), st.binary(max_size=300))
def test_any_body_is_itself_again_against_any_base(one: bytes, two: bytes, middle: bytes) -> None:
    base = one + two
    for body in (one + middle + two, middle, base, one + middle):
        assert unpack(pack(body, base), base) == body
        assert unpack(pack(body)) == body


@pytest.mark.parametrize(
    ("body", "way"),
    [
        (LONG + b" and more", Way.SPLICED),
        (LONG[:30_000] + b" inserted " + LONG[30_000:], Way.SPLICED),
        (LONG + LONG[20_000:32_000], Way.CONTINUED),
        (b"new " + LONG[:25_000] + b"changed" + LONG[25_010:] + b"end", Way.PATCHED),
        (bytes(CHANCE.choices(b"ijklmnop", k=9000)), Way.WHOLE),
    ],
    ids=["grown", "inserted", "said again", "changed in places", "another"],
)
def test_the_way_that_costs_least_is_taken(body: bytes, way: Way) -> None:
    packed = pack(body, LONG)
    assert packed.way is way
    assert unpack(packed, LONG) == body
    assert way is Way.WHOLE or len(packed.data) < 300


@given(st.binary(max_size=5000), st.binary(max_size=50), st.binary(max_size=50))
def test_what_two_bodies_share_is_measured_to_the_byte(
    shared: bytes, one: bytes, other: bytes
) -> None:
    expected = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    more = min(len(one), len(other)) if expected is None else expected
    assert common_prefix(shared + one, shared + other) == len(shared) + more
    mirrored = (one + shared)[::-1], (other + shared)[::-1]
    limit = min(map(len, mirrored))
    assert common_suffix(one + shared, other + shared, limit) == common_prefix(*mirrored)


def test_what_was_packed_by_any_version_is_read() -> None:
    more = bytes(CHANCE.choices(b"abcdefgh ", k=2_000))
    spliced = Packed(Way.SPLICED, squeezed(more), len(LONG), 0)
    assert unpack(spliced, LONG) == LONG + more
    beside = zstandard.ZstdCompressionDict(LONG[-64 * 1024 :], zstandard.DICT_TYPE_RAWCONTENT)
    data = zstandard.ZstdCompressor(level=9, dict_data=beside).compress(more)
    assert unpack(Packed(Way.CONTINUED, data, len(LONG), 0), LONG) == LONG + more
    base, end = b"x" * 70_000 + LONG, b"the end"
    again = pack(base + LONG[5_000:9_000] + end, base + end)
    assert (again.way, again.prefix, again.suffix) == (Way.CONTINUED, len(base), len(end))
    assert unpack(again, base + end) == base + LONG[5_000:9_000] + end


def test_a_way_of_a_newer_version_says_so() -> None:
    assert [way_of(way.value) for way in Way] == list(Way)
    with pytest.raises(NewerWay, match=r"newer version.*99"):
        way_of(99)


def test_damage_is_an_error_and_never_a_guess() -> None:
    packed = pack(LONG + b" and more", LONG)
    with pytest.raises(NotPacked):
        unpack(packed)
    with pytest.raises(NotPacked):
        unpack(packed, LONG[:100])
    with pytest.raises(NotPacked):
        unpack(replace(packed, data=packed.data[:-3]), LONG)
    with pytest.raises(NotPacked):
        unpack(Packed(Way.WHOLE, b"not packed"))
    with pytest.raises(NotPacked):
        spread(squeezed(LONG)[:-5])
