"""The web page: its files, as they lie in `tapes/ui`, under a policy that lets nothing else in.

    mount(api.inner)                  # the page is at / and its files under /ui/

Rule 1: a browser loads nothing for the page but these files, and talks to nobody but this server.
Rule 2: only files that are there when the page is mounted are ever read; no path leads elsewhere.

Knows nothing of what is on the page.
"""

import hashlib
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'{images}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Nothing on the page makes elements from text; a browser that knows the word enforces it.
POLICY = _POLICY.format(images="") + "; require-trusted-types-for 'script'"
# The viewer of the API's document draws its arrows from images in its style sheet.
REFERENCE = "reference.html"
REFERENCE_POLICY = _POLICY.format(images=" data:")


def mount(app: FastAPI) -> None:
    """Put the page into an application."""
    files = _Files(resources.files("tapes").joinpath("ui"))

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return _reply(request, files, "index.html")

    @app.get("/swagger", tags=["server"], response_class=HTMLResponse)
    async def reference(request: Request) -> Response:
        """The document as a page, to look at and to try."""
        return _reply(request, files, REFERENCE)

    @app.get("/ui/{name:path}", include_in_schema=False)
    async def file(request: Request, name: str) -> Response:
        return _reply(request, files, name or "index.html")


class _Files:
    """The files by their names, each read when it is first asked for."""

    def __init__(self, folder: Traversable) -> None:
        self._there = dict(_below(folder, ""))
        self._read: dict[str, tuple[bytes, str]] = {}

    def find(self, name: str) -> tuple[bytes, str] | None:
        """The bytes of a file, and their entity tag."""
        if name not in self._there:
            return None
        if name not in self._read:
            body = self._there[name].read_bytes()
            tag = hashlib.blake2b(body, digest_size=12).hexdigest()
            self._read[name] = (body, f'"{tag}"')
        return self._read[name]


def _below(folder: Traversable, before: str) -> Iterator[tuple[str, Traversable]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _below(each, f"{before}{each.name}/")
        elif each.name.rpartition(".")[2] in KINDS:
            yield before + each.name, each


def _reply(request: Request, files: _Files, name: str) -> Response:
    found = files.find(name)
    if found is None:
        raise HTTPException(404)
    body, tag = found
    headers = {
        "etag": tag,
        "cache-control": "no-cache",
        "content-security-policy": REFERENCE_POLICY if name == REFERENCE else POLICY,
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
    }
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=KINDS[name.rpartition(".")[2]], headers=headers)
