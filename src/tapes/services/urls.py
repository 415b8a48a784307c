"""URLs as the contract reads them: strictly, by hand, and without ever showing a credential.

Rule 1: `urllib` takes what the contract refuses (any port, any escape, control characters), so a
        URL is taken apart here, once, for sources and for homepages.
Rule 2: whatever names a source to people has its userinfo and its query taken out.

Knows nothing of fetching.  Pure.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address

from tapes.errors import Problem
from tapes.services.problems import Stage

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
# In a host only what is not ASCII may be escaped.
_BAD_HOST_ESCAPE = re.compile(r"%(?![89A-Fa-f][0-9A-Fa-f])")
_NOT_IN_HOST = re.compile(r"[ |\\^`{}/%\"<>\[\]]")
_USERINFO = re.compile(r"(?:[A-Za-z0-9\-._:~!$&'()*+,;=@]|%[0-9A-Fa-f]{2})*")


@dataclass(frozen=True, slots=True)
class Url:
    """An absolute URL in its parts, each as it was written."""

    scheme: str
    userinfo: str | None
    host: str
    port: str
    path: str
    query: str | None
    fragment: str | None

    @property
    def authority(self) -> str:
        """Host and port as written."""
        return f"{self.host}:{self.port}" if self.port else self.host

    @property
    def hostname(self) -> str:
        """The host without its brackets."""
        return self.host.removeprefix("[").removesuffix("]")


def url_of(text: str) -> Url | None:
    """The parts of an absolute URL with an authority, or None where the text is none."""
    if _CONTROL.search(text):
        return None
    scheme = _SCHEME.match(text)
    if scheme is None:
        return None
    rest, hash_mark, fragment = text[scheme.end() :].partition("#")
    rest, mark, query = rest.partition("?")
    if not rest.startswith("//") or _BAD_ESCAPE.search(fragment):
        return None
    authority, slash, path = rest[2:].partition("/")
    userinfo, at, address = authority.rpartition("@")
    if _BAD_ESCAPE.search(path) or not _USERINFO.fullmatch(userinfo):
        return None
    parts = _host_and_port(address)
    if parts is None:
        return None
    return Url(
        scheme=scheme[0][:-1].lower(),
        userinfo=userinfo if at else None,
        host=parts[0],
        port=parts[1],
        path=slash + path,
        query=query if mark else None,
        fragment=fragment if hash_mark else None,
    )


def _host_and_port(address: str) -> tuple[str, str] | None:
    if address.startswith("["):
        host, bracket, rest = address.partition("]")
        if not bracket or (rest and not rest.startswith(":")) or not _is_ipv6(host[1:]):
            return None
        host, port = host + "]", rest[1:]
    else:
        host, _, port = address.partition(":")
        if _BAD_HOST_ESCAPE.search(host) or _NOT_IN_HOST.search(host.replace("%", "")):
            return None
    return (host, port) if not port or (port.isascii() and port.isdigit()) else None


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text.replace("%25", "%"))
    except AddressValueError:
        return False
    return True


def is_web_url(text: str) -> bool:
    """Whether this is an absolute `http` or `https` URL with a host."""
    url = url_of(text)
    return url is not None and url.scheme in ("http", "https") and bool(url.host)


# --- sources ----------------------------------------------------------------------------------


def source_fault(text: str) -> str | None:
    """Why this cannot be the URL of a service's document, or None where it can."""
    url = url_of(text)
    if url is None:
        return "not a full URL, such as http://127.0.0.1:9999/openapi"
    if url.scheme not in ("http", "https"):
        return f"the scheme is {url.scheme!r}; it must be http or https"
    if not url.host:
        return "it names no host"
    if url.userinfo is not None:
        return "it carries a user name or password; a source is fetched without credentials"
    if url.fragment:
        return "it has a fragment, which no server ever sees"
    return None


def source_problems(sources: Iterable[str]) -> tuple[Problem, ...]:
    """All problems of a list of sources, each with its place in the list (C1)."""
    problems, seen = list[Problem](), dict[str, int]()
    for index, source in enumerate(sources):
        field = f"cassettes[{index}]"
        fault = source_fault(source)
        if fault is not None:
            problems.append(Problem(Stage.SOURCE_URL, "bad_url", field, fault))
        if source in seen:
            problems.append(
                Problem(
                    Stage.SOURCE_URL,
                    "repeated_url",
                    field,
                    f"the same URL stands at cassettes[{seen[source]}]",
                )
            )
        seen.setdefault(source, index)
    return tuple(problems)


def origin_of(source: str) -> str:
    """Where requests to the service go: scheme, host and port of its source, nothing else.

    Raises ValueError for what is no source.
    """
    url = url_of(source)
    if url is None or source_fault(source) is not None:
        raise ValueError("not the URL of a source")
    return f"{url.scheme}://{url.authority}"


def subject_of(source: str) -> str:
    """A source as it may be shown and logged: recognisable, without credentials."""
    url = url_of(source)
    if url is None:
        return "<invalid URL>"
    userinfo = "" if url.userinfo is None else "redacted@"
    query = "" if url.query is None else "?redacted"
    fragment = "" if not url.fragment else f"#{url.fragment}"
    return f"{url.scheme}://{userinfo}{url.authority}{url.path}{query}{fragment}"
