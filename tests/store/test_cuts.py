"""Large parts are cut out and put back, to the byte."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.store.cuts import LEAST, cut, hash_of, joined, with_cuts, without_cuts

IMAGE = "A" * 50_000
BODY = json.dumps(
    {
        "system": "be kind " * 1000,
        "tools": [{"name": f"t{n}", "description": "d" * 500} for n in range(20)],
        "messages": [{"role": "user", "content": [{"data": IMAGE}, {"text": "hi"}]}] * 2,
    }
).encode()


def again(data: bytes) -> tuple[bytes, int]:
    left, cuts = cut(data)
    parts = {each.hash: each.data for each in cuts}
    packed, listed = without_cuts(with_cuts(left, cuts))
    return joined(packed, listed, parts.__getitem__), len(parts)


def test_a_body_is_itself_again_and_its_large_parts_are_known_once() -> None:
    body, parts = again(BODY)
    assert body == BODY
    assert parts == 3  # system, tools, and the image that stands there twice
    assert len(cut(BODY)[0]) < 500


def test_the_same_part_of_two_bodies_has_one_name() -> None:
    one = {each.hash for each in cut(BODY)[1]}
    other = {each.hash for each in cut(BODY.replace(b'"hi"', b'"hello"'))[1]}
    assert one == other
    assert hash_of(IMAGE.encode()) in one


@given(st.binary(max_size=200), st.integers(0, 3), st.sampled_from([b'"', b'"system":"', b"["]))
def test_any_bytes_are_themselves_again(data: bytes, times: int, between: bytes) -> None:
    whole = data + (between + b"q" * LEAST + b'"') * times + data
    assert again(whole)[0] == whole


@pytest.mark.parametrize("data", [b"", b"\x02" + b"x" * 40])
def test_a_list_that_is_cut_short_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"kept|short"):
        without_cuts(data)


class Looked(bytes):
    """Bytes that count how often somebody looks through a part of them."""

    looks = 0

    def rfind(self, *where: Any) -> int:
        self.looks += 1
        return super().rfind(*where)


@given(st.lists(st.sampled_from([b'"', b"a" * 100, b"b" * LEAST])))
def test_every_long_run_between_quotes_is_cut_out_and_no_short_one(parts: list[bytes]) -> None:
    data = b"".join(parts)
    expected = [run for run in data.split(b'"') if len(run) >= LEAST]
    assert [each.data for each in cut(data)[1]] == expected


def test_a_body_of_many_texts_that_are_almost_long_enough_is_leapt_through() -> None:
    body = Looked(b'"%b",' % (b"x" * (LEAST - 10)) * 100)
    assert cut(body) == (body, ())
    assert 0 < body.looks < 250
