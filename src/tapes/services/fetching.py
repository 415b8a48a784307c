"""One question to a source: its document, and how its health path does.

Rule 1: the exact URL is asked, conditionally where its document is held, within ten seconds in
        all and 8 MiB once decoded. No redirect is followed, no credential is sent.
Rule 2: a host is asked only where it is trusted, at addresses that were found and judged before.
Rule 3: what goes wrong is a problem with a code, in words without queries or credentials.

Knows nothing of admission.
"""

import asyncio
import time
from dataclasses import dataclass

from tapes.errors import BrokenAnswer, Problem, TapesError, TooSlow, Unreachable
from tapes.forwarding import Answer, Headers, Patience, Sender
from tapes.services.admission import MAX_BYTES
from tapes.services.problems import Stage, problem
from tapes.services.registry import Probe
from tapes.services.trust import Addresses
from tapes.services.urls import origin_of, source_fault, url_of
from tapes.wire import decoded

FETCH_S = 10.0
PROBE_S = 5.0
_PROBED_BYTES = 64 * 1024
# Bodies that grow beyond this take turns, so that many large ones are never held at once.
_LARGE = 1024 * 1024
_LARGE_AT_ONCE = 8
_DOCUMENT: Headers = [(b"accept", b"application/json"), (b"accept-encoding", b"gzip")]


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it came, and its validator."""

    data: bytes
    validator: str | None
    latency_s: float


@dataclass(frozen=True, slots=True)
class NotModified:
    """The document that is held is still the one."""

    latency_s: float


class Unfetched(Exception):
    """There is no document. `answered` says whether the source gave any answer at all."""

    def __init__(self, found: Problem, *, answered: bool) -> None:
        super().__init__(found.message)
        self.problem = found
        self.answered = answered


class Fetcher:
    """Asks sources."""

    def __init__(
        self,
        sender: Sender,
        addresses: Addresses,
        *,
        fetch_s: float = FETCH_S,
        probe_s: float = PROBE_S,
    ) -> None:
        self._sender = sender
        self._addresses = addresses
        self._fetch_s = fetch_s
        self._probe_s = probe_s
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)

    async def fetch(
        self, source: str, validator: str | None, *, anew: bool = False
    ) -> Document | NotModified:
        """The document of a source. Raises Unfetched.

        `anew` finds the addresses of its host again: it could not be reached at the known ones.
        """
        fault = source_fault(source)
        url = url_of(source)
        if fault is not None or url is None:
            raise _unfetched("bad_url", fault or "not a URL", Stage.SOURCE_URL)
        fault = self._addresses.trust.fault(url.hostname)
        if fault is not None:
            raise _unfetched(
                "untrusted_host",
                f"{fault}; name it: --cassette-host {url.hostname}",
                Stage.SOURCE_URL,
            )
        try:
            async with asyncio.timeout(self._fetch_s):
                if anew or not self._addresses.knows(url.hostname):
                    fault = await self._addresses.find(url.hostname)
                    if fault is not None:
                        raise _unfetched("no_address", fault)
                query = "" if url.query is None else f"?{url.query}"
                target = ((url.path or "/") + query).encode("utf-8", "surrogatepass")
                return await self._document(origin_of(source), target, validator)
        except TimeoutError:
            raise _unfetched(
                "timeout", f"there was no whole answer within {self._fetch_s:g} s"
            ) from None
        except (Unreachable, TooSlow) as error:
            code = "timeout" if isinstance(error, TooSlow) else "unreachable"
            raise _unfetched(code, _of(origin_of(source), error)) from None
        except BrokenAnswer as error:
            raise _unfetched("broken", error.message, answered=True) from None

    async def _document(
        self, origin: str, target: bytes, validator: str | None
    ) -> Document | NotModified:
        headers = list(_DOCUMENT)
        if validator is not None:
            headers.append((b"if-none-match", validator.encode("latin-1", "replace")))
        start = time.perf_counter()
        patience = Patience(connect_s=self._fetch_s, silence_s=self._fetch_s)
        async with self._sender.ask("GET", origin, target, headers, patience=patience) as answer:
            latency = time.perf_counter() - start
            if answer.status == 304 and validator is not None:
                return NotModified(latency)
            if answer.status != 200:
                why = f"the answer is {answer.status} {answer.reason}".rstrip()
                if answer.status == 404:
                    why += f"; a source names the document itself, such as {origin}/openapi"
                elif 300 < answer.status < 400:
                    why += ", and redirects are not followed"
                code = "unexpected_304" if answer.status == 304 else "status"
                raise _unfetched(code, why, answered=True)
            body = await self._body(answer)
            given = dict(answer.headers)
        try:
            coding = given.get(b"content-encoding", b"").decode("latin-1")
            found = decoded(body, coding, MAX_BYTES)
        except TapesError as error:
            code = "too_large" if error.http_status == 413 else "coding"
            raise _unfetched(code, error.message, answered=True) from None
        if not found.whole:
            raise _unfetched("broken", "the coded document was cut short", answered=True)
        etag = given.get(b"etag")
        return Document(found.data, None if etag is None else etag.decode("latin-1"), latency)

    async def _body(self, answer: Answer) -> bytes:
        data, holds = bytearray(), False
        try:
            while piece := await answer.piece():
                data += piece
                if len(data) > MAX_BYTES:
                    raise _unfetched(
                        "too_large",
                        f"the document has more than {MAX_BYTES:,} bytes",
                        answered=True,
                    )
                if len(data) > _LARGE and not holds:
                    holds = await self._large.acquire()
        finally:
            if holds:
                self._large.release()
        return bytes(data)

    async def probe(self, origin: str, path: str) -> Probe:
        """How a health path does."""
        start = time.perf_counter()
        # No server ever sees a fragment.
        target = path.partition("#")[0].encode("utf-8", "surrogatepass")
        patience = Patience(connect_s=self._probe_s, silence_s=self._probe_s)
        try:
            async with asyncio.timeout(self._probe_s):
                async with self._sender.ask("GET", origin, target, [], patience=patience) as answer:
                    latency = time.perf_counter() - start
                    await answer.body(_PROBED_BYTES)
        except TimeoutError:
            return Probe(None, f"did not answer within {self._probe_s:g} s", None)
        except (Unreachable, TooSlow, BrokenAnswer) as error:
            return Probe(None, f"did not answer: {_of(origin, error)}", None)
        return Probe(answer.status, f"answered {answer.status}", latency)


def _of(origin: str, error: TapesError) -> str:
    """What went wrong, without the origin in front: whoever says it names the source himself."""
    return error.message.removeprefix(f"{origin} ")


def _unfetched(
    code: str, message: str, stage: Stage = Stage.FETCH, *, answered: bool = False
) -> Unfetched:
    return Unfetched(problem(stage, code, "", message), answered=answered)
