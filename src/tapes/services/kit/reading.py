"""The read API of the host, as a service reads it: sessions, traces and spans over HTTP.

    tapes = ReadApi.of(service)
    for session in tapes.sessions():
        whole = tapes.whole_session(session["id"])

Rule 1: pages are followed to their end, and a cursor that does not move is an error, not a loop.
Rule 2: what is not there is None; whatever else is no answer is an error.
Rule 3: the token goes to nobody else: not where an answer redirects to, and, for an API on this
        machine, to no proxy that the environment names for what is elsewhere.

The manifest declares where it is and, where it needs one, its token: the settings `api_url` and
`api_token`. Knows nothing of what the rows mean.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from tapes.credentials import fits_a_header
from tapes.errors import BadSetting, BrokenAnswer, Unreachable
from tapes.services.kit.service import Service
from tapes.services.kit.settings import Secret
from tapes.services.trust import address_of, is_local_name

URL = "http://127.0.0.1:8081"
_PATIENCE_S = 30.0
_PAGE = 200


class ReadApi:
    """A read API at a base URL. Raises BadSetting for a token that cannot be sent."""

    def __init__(self, base: str = URL, *, token: Secret | None = None) -> None:
        self._base = base.rstrip("/")
        self._token = token
        if token is not None and not fits_a_header(token.reveal()):
            raise BadSetting(
                "the token of the read API has a character that no header can have: the end of a"
                " line, say",
                "set it to the token alone",
            )
        host = urlsplit(self._base).hostname or ""
        address = address_of(host)
        is_here = is_local_name(host) or (address is not None and address.is_loopback)
        direct = [urllib.request.ProxyHandler({})] if is_here else []
        self._opener = urllib.request.build_opener(*direct)

    @classmethod
    def of(cls, service: Service) -> "ReadApi":
        """The one that the settings of a service name."""
        given = service.settings
        return cls(given.get("api_url") or URL, token=given.get("api_token"))

    def sessions(self, **filters: str) -> Iterator[dict[str, Any]]:
        """All sessions, the latest first. Raises Unreachable, BrokenAnswer."""
        cursor, seen = None, set[str]()
        while True:
            asked = {**filters, "limit": str(_PAGE), **({"cursor": cursor} if cursor else {})}
            page = self._asked(f"/v1/sessions?{urlencode(asked)}")
            if page is None:
                raise BrokenAnswer(f"{self._base} has no list of sessions")
            yield from page["items"]
            cursor = page.get("next_cursor")
            if not cursor:
                return
            if cursor in seen:
                raise BrokenAnswer(f"{self._base} gives the same page of sessions again and again")
            seen.add(cursor)

    def session(self, session_id: str) -> dict[str, Any] | None:
        """One session."""
        found = self._asked(f"/v1/sessions/{quote(session_id, safe='')}")
        return None if found is None else found["session"]

    def whole_session(self, session_id: str, payload: str = "full") -> dict[str, Any] | None:
        """A session with its traces, their spans, and the links between them."""
        return self._asked(f"/v1/sessions/{quote(session_id, safe='')}/traces?payload={payload}")

    def trace(self, trace_id: str) -> dict[str, Any] | None:
        """A trace with its spans and links."""
        return self._asked(f"/v1/traces/{quote(trace_id, safe='')}")

    def span(self, trace_id: str, span_id: str) -> dict[str, Any] | None:
        """One span, whole."""
        path = f"/v1/traces/{quote(trace_id, safe='')}/spans/{quote(span_id, safe='')}"
        return self._asked(path)

    def _asked(self, path: str) -> dict[str, Any] | None:
        request = urllib.request.Request(self._base + path, headers={"Accept": "application/json"})
        if self._token is not None:
            request.add_unredirected_header("Authorization", f"Bearer {self._token.reveal()}")
        try:
            with self._opener.open(request, timeout=_PATIENCE_S) as answer:
                found = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                said = error.read(300).decode("utf-8", "replace")
            raise BrokenAnswer(f"{self._base} answers {error.code}: {said}") from None
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            raise Unreachable(
                f"the read API at {self._base} cannot be reached: {error}",
                "start it, or say where it is: CASSETTE_API_URL=http://127.0.0.1:8081",
            ) from error
        except (ValueError, HTTPException) as error:
            raise BrokenAnswer(f"{self._base}{path} is no whole answer: {error}") from error
        if not isinstance(found, dict):
            raise BrokenAnswer(f"{self._base}{path} is no JSON object")
        return found
