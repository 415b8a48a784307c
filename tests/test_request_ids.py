"""The id of a request."""

import uuid

import pytest

from tapes.request_ids import REQUEST_ID, identified, request_id_of

GIVEN = b"0b6f3d5e-8f5a-4c1e-9b63-8d9a1c2e4f70"


def test_a_request_keeps_the_id_that_it_came_with() -> None:
    assert request_id_of([(b"host", b"a"), (REQUEST_ID, GIVEN)]) == GIVEN


@pytest.mark.parametrize("given", [b"", b"1", GIVEN.upper(), b"{%b}" % GIVEN, GIVEN + b"\n"])
def test_what_is_no_id_is_replaced_by_a_new_one(given: bytes) -> None:
    first, second = (request_id_of([(REQUEST_ID, given)]) for _ in range(2))
    assert first != second
    for made in (first, second):
        found = uuid.UUID(made.decode())
        assert (found.version, found.variant, str(found).encode()) == (4, uuid.RFC_4122, made)


def test_headers_have_one_id() -> None:
    before = [(REQUEST_ID, b"1"), (b"host", b"a"), (REQUEST_ID, b"2")]
    assert identified(before, GIVEN) == [(b"host", b"a"), (REQUEST_ID, GIVEN)]
