"""The id of a request: the one that it came with, or a new one; in the answer it is the same.

Knows nothing of who asks or answers.
"""

import random
import re
from collections.abc import Iterable

REQUEST_ID = b"x-request-id"
_UUID4 = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

_Headers = Iterable[tuple[bytes, bytes]]


def request_id_of(headers: _Headers) -> bytes:
    """The request's own id where it is a canonical UUID v4, or a new one."""
    for name, value in headers:
        if name == REQUEST_ID:
            if _UUID4.fullmatch(value):
                return value
            break
    # Nothing rests on its being a secret, and the system's randomness costs a call of the kernel.
    bits = b"%032x" % random.getrandbits(128)
    variant = b"89ab"[bits[16] & 3 : (bits[16] & 3) + 1]
    parts = (bits[:8], bits[8:12], b"4" + bits[13:16], variant + bits[17:20], bits[20:])
    return b"-".join(parts)


def identified(headers: _Headers, request_id: bytes) -> list[tuple[bytes, bytes]]:
    """The headers with this id and no other. Names are in lower case."""
    return [*(pair for pair in headers if pair[0] != REQUEST_ID), (REQUEST_ID, request_id)]
