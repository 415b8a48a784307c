"""A recorded "come back later" without the wait.

Rule: clients take the delay from `retry-after` (whole seconds, or a date) or `retry-after-ms`; some
take zero for no advice and wait for their own time. One millisecond is understood by both.

Pure.
"""

from dataclasses import replace

from tapes.exchange import Response, header

_SOON = {"retry-after": "0", "retry-after-ms": "1"}


def at_once(response: Response) -> Response:
    """The response with its advice to wait turned into none; itself where there is no advice."""
    if all(header(response.headers, name) is None for name in _SOON):
        return response
    headers = tuple(pair for pair in response.headers if pair[0].lower() not in _SOON)
    return replace(response, headers=(*headers, *_SOON.items()))
