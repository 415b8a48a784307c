"""The web page: its files, as they lie in `tapes/ui`, under a policy that lets nothing else in.

    mount(api.inner, first)           # the page is at / and its files under /ui/

Rule 1: a browser loads nothing for the page but these files, and talks to nobody but this server.
Rule 2: only files that are there when the page is mounted are ever read; no path leads elsewhere.
Rule 3: `index.html` works as it lies there, with a file for each sheet and module; what is sent in
its place has inside what is seen first, allowed by its hashes, and asks once for all the rest.
Rule 4: what the page asks for first comes with it, for those who may ask; such a page is kept by
nobody. It is data that a browser does not run, and no text in it can end it.

Knows nothing of what is on the page.
"""

import base64
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
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
REST = "js/rest.js"
_QUOTE = '"'
_STYLE = re.compile(r'<link rel="stylesheet" href="/ui/([^"]+)">\n')
_SCRIPT = re.compile(r'<script type="module" src="/ui/([^"]+)"></script>\n')
_ENDS_SCRIPT = re.compile("</script|<!--", re.IGNORECASE)
_LEAST_COMPRESSED = 1024
_END = "</body>"
_GZIP = 31  # the form of zlib's window that makes gzip

# The answers that the page will ask for first, by their addresses; none to whom may not ask.
First = Callable[[Request], Mapping[str, bytes]]


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
# Pictures in what was said are drawn from bytes that the page has; none is fetched from anywhere.
_PICTURES = " blob:"
# The viewer of the API's document draws its arrows from images in its style sheet.
REFERENCE_POLICY = policy(images=" data:")


def mount(app: FastAPI, first: First) -> None:
    """Put the page into an application."""
    files = _Files(resources.files("tapes").joinpath("ui"))

    @app.get("/", include_in_schema=False)
    def page(request: Request) -> Response:
        known = first(request)
        return _with(request, files.whole(), known) if known else _reply(request, files, PAGE)

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


class _Whole:
    """The page in two parts, between which its first answers go; the first is compressed once."""

    def __init__(self, page: _File) -> None:
        head, end, tail = page.body.rpartition(_END.encode())
        self._head, self._tail = head, end + tail
        self.policy = page.policy
        self._packer = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
        self._packed = self._packer.compress(head) + self._packer.flush(zlib.Z_SYNC_FLUSH)

    def plain(self, between: bytes) -> bytes:
        """The page."""
        return self._head + between + self._tail

    def packed(self, between: bytes) -> bytes:
        """The page, compressed."""
        packer = self._packer.copy()
        return self._packed + packer.compress(between + self._tail) + packer.flush()


class _Files:
    """The files by their names, each read when it is first asked for."""

    def __init__(self, folder: Traversable) -> None:
        self._there = dict(_below(folder, ""))
        self._read: dict[str, _File] = {}
        self._whole: _Whole | None = None

    def whole(self) -> _Whole:
        """The page, to put its first answers into."""
        if self._whole is None:
            page = self.find(PAGE)
            assert page is not None
            self._whole = _Whole(page)
        return self._whole

    def find(self, name: str) -> _File | None:
        """A file; None where none has this name."""
        if name == REST:
            self.find(PAGE)
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
        """The page with its styles and first modules inside; the others become one file."""
        page = self._text(PAGE)
        styles = "\n".join(map(self._text, _STYLE.findall(page)))
        [first] = _SCRIPT.findall(page)
        ours = [name for name in self._there if name.endswith(".js") and "swagger" not in name]
        joined = join({name: self._text(name) for name in ours}, first, self._keep_rest)
        script = joined.first
        if _ENDS_SCRIPT.search(script):
            raise ValueError("a module has a text that ends a script in HTML")
        inside = f'<style>{styles}</style>\n<script type="module">{script}</script>\n</head>'
        bare = _SCRIPT.sub("", _STYLE.sub("", page))
        whole = bare.replace("</head>", inside, 1)
        allowed = policy(scripts=_allowing(script), styles=_allowing(styles), images=_PICTURES)
        return _File.of(whole.encode(), allowed + _NO_TEXT_TO_ELEMENTS)

    def _keep_rest(self, script: str) -> str:
        """Where the other modules lie: an address that is theirs alone, so a browser keeps them."""
        self._read[REST] = _File.of(script.encode())
        return f"/ui/{REST}?{self._read[REST].tag.strip(_QUOTE)}"

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


def _with(request: Request, page: _Whole, known: Mapping[str, bytes]) -> Response:
    """The page with its first answers (rule 4)."""
    members = (json.dumps(address).encode() + b":" + body for address, body in known.items())
    # Only texts have a `<` in JSON, and there it may be written so.
    safe = b",".join(members).replace(b"<", rb"\u003c")
    between = b'<script type="application/json" id="first">{%s}</script>\n' % safe
    headers = _headers(page.policy) | {"cache-control": "no-store"}
    if _takes_gzip(request):
        headers["content-encoding"] = "gzip"
        return Response(page.packed(between), media_type=KINDS["html"], headers=headers)
    return Response(page.plain(between), media_type=KINDS["html"], headers=headers)


def _headers(policy: str) -> dict[str, str]:
    return {
        "content-security-policy": policy,
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "vary": "accept-encoding",
    }


def _takes_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def _reply(request: Request, files: _Files, name: str) -> Response:
    file = files.find(name)
    if file is None:
        raise HTTPException(404)
    is_named = file.tag.strip(_QUOTE) == request.url.query
    kept = "public, max-age=31536000, immutable" if is_named else "no-cache"
    headers = _headers(file.policy) | {"etag": file.tag, "cache-control": kept}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    body = file.body
    if file.compressed and _takes_gzip(request):
        body, headers["content-encoding"] = file.compressed, "gzip"
    return Response(body, media_type=KINDS[name.rpartition(".")[2]], headers=headers)
