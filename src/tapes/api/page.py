"""The web page: its files, as they lie in `tapes/ui`, under a policy that lets nothing else in.

    mount(api.inner)                  # the page is at / and its files under /ui/

Rule 1: a browser loads nothing for the page but these files, and talks to nobody but this server.
Rule 2: only files that are there when the page is mounted are ever read; no path leads elsewhere.
Rule 3: `index.html` works as it lies there, with a file for each sheet and module; what is sent in
its place has them all inside, allowed by their hashes, so that a browser asks once.

Knows nothing of what is on the page.
"""

import base64
import gzip
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from tapes.api.joining import join

KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
PAGE = "index.html"
REFERENCE = "reference.html"
_STYLE = re.compile(r'<link rel="stylesheet" href="/ui/([^"]+)">\n')
_SCRIPT = re.compile(r'<script type="module" src="/ui/([^"]+)"></script>\n')
_ENDS_SCRIPT = re.compile("</script|<!--", re.IGNORECASE)
_LEAST_COMPRESSED = 1024


def policy(*, scripts: str = "", styles: str = "", images: str = "") -> str:
    """What a browser may load, beside the files of this server: what these say."""
    return (
        f"default-src 'none'; script-src 'self'{scripts}; style-src 'self'{styles}; "
        f"connect-src 'self'; img-src 'self'{images}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


# Nothing on the page makes elements from text; a browser that knows the words enforces it.
_NO_TEXT_TO_ELEMENTS = "; require-trusted-types-for 'script'"
POLICY = policy() + _NO_TEXT_TO_ELEMENTS
# The viewer of the API's document draws its arrows from images in its style sheet.
REFERENCE_POLICY = policy(images=" data:")


def mount(app: FastAPI) -> None:
    """Put the page into an application."""
    files = _Files(resources.files("tapes").joinpath("ui"))

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return _reply(request, files, PAGE)

    @app.get("/swagger", tags=["server"], response_class=HTMLResponse)
    async def reference(request: Request) -> Response:
        """The document as a page, to look at and to try."""
        return _reply(request, files, REFERENCE)

    @app.get("/ui/{name:path}", include_in_schema=False)
    async def file(request: Request, name: str) -> Response:
        return _reply(request, files, name or PAGE)


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it is sent: plain, compressed once for all, its entity tag and its policy."""

    body: bytes
    compressed: bytes
    tag: str
    policy: str

    @classmethod
    def of(cls, body: bytes, policy: str = POLICY) -> "_File":
        small = len(body) < _LEAST_COMPRESSED
        tag = hashlib.blake2b(body, digest_size=12).hexdigest()
        return cls(body, b"" if small else gzip.compress(body, 9, mtime=0), f'"{tag}"', policy)


class _Files:
    """The files by their names, each read when it is first asked for."""

    def __init__(self, folder: Traversable) -> None:
        self._there = dict(_below(folder, ""))
        self._read: dict[str, _File] = {}

    def find(self, name: str) -> _File | None:
        """A file; None where none has this name."""
        if name not in self._read:
            if name not in self._there:
                return None
            self._read[name] = self._file(name)
        return self._read[name]

    def _file(self, name: str) -> _File:
        if name == PAGE:
            return self._page()
        given = REFERENCE_POLICY if name == REFERENCE else POLICY
        return _File.of(self._there[name].read_bytes(), given)

    def _page(self) -> _File:
        """The page with its styles and modules inside."""
        page = self._text(PAGE)
        styles = "\n".join(map(self._text, _STYLE.findall(page)))
        [first] = _SCRIPT.findall(page)
        ours = [name for name in self._there if name.endswith(".js") and "swagger" not in name]
        script = join({name: self._text(name) for name in ours}, first)
        if _ENDS_SCRIPT.search(script):
            raise ValueError("a module has a text that ends a script in HTML")
        inside = f'<style>{styles}</style>\n<script type="module">{script}</script>\n</head>'
        bare = _SCRIPT.sub("", _STYLE.sub("", page))
        whole = bare.replace("</head>", inside, 1)
        allowed = policy(scripts=_allowing(script), styles=_allowing(styles))
        return _File.of(whole.encode(), allowed + _NO_TEXT_TO_ELEMENTS)

    def _text(self, name: str) -> str:
        return self._there[name].read_text(encoding="utf-8")


def _allowing(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f" 'sha256-{digest}'"


def _below(folder: Traversable, before: str) -> Iterator[tuple[str, Traversable]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _below(each, f"{before}{each.name}/")
        elif each.name.rpartition(".")[2] in KINDS:
            yield before + each.name, each


def _reply(request: Request, files: _Files, name: str) -> Response:
    file = files.find(name)
    if file is None:
        raise HTTPException(404)
    headers = {
        "etag": file.tag,
        "cache-control": "no-cache",
        "content-security-policy": file.policy,
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "vary": "accept-encoding",
    }
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    body = file.body
    if file.compressed and "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["content-encoding"] = file.compressed, "gzip"
    return Response(body, media_type=KINDS[name.rpartition(".")[2]], headers=headers)
