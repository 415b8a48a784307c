"""The web page: its files, as they lie in `tapes/ui`, under a policy that lets nothing else in.

    mount(api.inner)                  # the page is at / and its files under /ui/

Rule 1: a browser loads nothing for the page but these files, and talks to nobody but this server.
Rule 2: only files that are there when the page is mounted are ever read; no path leads elsewhere.

Knows nothing of what is on the page.
"""

import hashlib
from importlib import resources
from importlib.resources.abc import Traversable

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

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
    files = dict(_files(resources.files("tapes").joinpath("ui"), ""))

    @app.get("/", include_in_schema=False)
    def page(request: Request) -> Response:
        return _file(request, files, "index.html")

    @app.get("/ui/{name:path}", include_in_schema=False)
    def file(request: Request, name: str) -> Response:
        return _file(request, files, name or "index.html")


def _files(folder: Traversable, before: str) -> list[tuple[str, Traversable]]:
    found = []
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        if each.is_dir():
            found += _files(each, f"{before}{each.name}/")
        elif each.name.rpartition(".")[2] in KINDS:
            found.append((before + each.name, each))
    return found


def _file(request: Request, files: dict[str, Traversable], name: str) -> Response:
    if name not in files:
        raise HTTPException(404)
    body = files[name].read_bytes()
    tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
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
