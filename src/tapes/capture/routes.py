"""Which upstream a request is for, and whose API it speaks.

    /[~TOKEN/][@TAPE/][UPSTREAM/]the path that the upstream gets

Rule 1: `x-tapes-upstream` names the upstream, else the first segment of the path where that is
        the name of one, else the default upstream, else a header that only one provider's SDKs
        send, else the shape of the path. What is meant for another server of ours is guessed to be
        for nobody.
Rule 2: prefixes are taken off. The identity of a request holds the path that the upstream gets, so
        what was recorded through the proxy replays in process and the other way round.
Rule 3: the target is passed on as it came, query string and all. Only Anthropic's messages get the
        /v1 that clients with another idea of the base URL, such as Vercel's AI SDK, leave out.

Pure.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from tapes.doors import USUAL, WHAT, Door, door_of
from tapes.errors import BadSetting
from tapes.listening import Listen


class Dialect(StrEnum):
    """Whose API a request speaks; it decides how a refusal is worded."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    OLLAMA = "ollama"
    COHERE = "cohere"
    OPENROUTER = "openrouter"


# name → base URL
KNOWN_UPSTREAMS: dict[str, str] = {
    "openai": "https://api.openai.com",
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com",
    "ollama": "http://localhost:11434",
    "mistral": "https://api.mistral.ai",
    "groq": "https://api.groq.com",
    "cohere": "https://api.cohere.com",
    "deepseek": "https://api.deepseek.com",
    "openrouter": "https://openrouter.ai",
    "xai": "https://api.x.ai",
    "together": "https://api.together.xyz",
    "fireworks": "https://api.fireworks.ai",
    "perplexity": "https://api.perplexity.ai",
    "cerebras": "https://api.cerebras.ai",
    "chatgpt": "https://chatgpt.com",
}

_DIALECTS = {dialect.value: dialect for dialect in Dialect}
# A header that only one provider's SDKs send → whose API it is
_SIGNS: dict[bytes, Dialect] = {
    b"anthropic-version": Dialect.ANTHROPIC,
    b"x-goog-api-key": Dialect.GEMINI,
}
# The beginning of a path without query → whose API it is; the first that fits.
_SHAPES: tuple[tuple[str, Dialect], ...] = (
    ("/v1/completions", Dialect.OPENAI),
    ("/v1/messages", Dialect.ANTHROPIC),
    ("/v1/complete", Dialect.ANTHROPIC),
    ("/v1beta/", Dialect.GEMINI),
    ("/v1alpha/", Dialect.GEMINI),
    ("/upload/v1beta/", Dialect.GEMINI),
    ("/api/", Dialect.OLLAMA),
    ("/v1/", Dialect.OPENAI),
)
# Those that no shape tells: their own API, but for what they offer to clients of others.
_BY_NAME_ALONE = frozenset({Dialect.COHERE, Dialect.OPENROUTER})
_FOR_OTHERS: tuple[tuple[str, Dialect], ...] = (
    ("/compatibility/", Dialect.OPENAI),
    ("/api/v1/messages", Dialect.ANTHROPIC),
)
# A path that only looks like ours.
_OF_PROVIDERS = frozenset({"/v1/traces/ingest"})
# As in models/NAME:generateContent; OpenAI's own models have colons too: models/ft:NAME:ORG::ID.
_GEMINI_VERB = re.compile(r"/v1/(?:models|tunedModels)/(?!ft:)[^/:]+:[A-Za-z]+")

_MESSAGES = re.compile(r"/messages(?![^/?])")


@dataclass(frozen=True, slots=True)
class Upstream:
    """A provider's base URL, taken apart."""

    name: str
    host: str
    port: int
    tls: bool
    path: str

    @classmethod
    def of(cls, name: str, url: str) -> "Upstream":
        """The upstream of a base URL. Raises BadSetting."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        wrong = parts.scheme not in ("http", "https") or not parts.hostname
        if wrong or parts.query or parts.fragment or parts.username is not None:
            raise BadSetting(
                f"upstream {name}: {shown(url)!r} is not a base URL",
                "for example: https://api.openai.com or http://127.0.0.1:11434",
            )
        tls = parts.scheme == "https"
        usual = 443 if tls else 80
        return cls(name, parts.hostname or "", port or usual, tls, parts.path.rstrip("/"))


def shown(url: str) -> str:
    """What was given for a base URL, for people: a password may stand before @ and behind ?."""
    head = url.partition("?")[0]
    scheme, _, rest = head.rpartition("://")
    return f"{scheme}://…@{rest.rpartition('@')[2]}" if "@" in head else head


@dataclass(frozen=True, slots=True)
class Prefix:
    """What stands before the path: the token, the name of a tape, and the rest of the target."""

    token: str | None
    tape: str | None
    target: str


def prefix_of(target: str) -> Prefix:
    """Take `/~TOKEN` and `/@TAPE` off a target."""
    token, target = _taken(target, "/~")
    tape, target = _taken(target, "/@")
    return Prefix(token, tape, target)


def _taken(target: str, mark: str) -> tuple[str | None, str]:
    if not target.startswith(mark):
        return None, target
    ends = [at for at in (target.find("/", len(mark)), target.find("?")) if at >= 0]
    end = min(ends, default=len(target))
    rest = target[end:]
    return target[len(mark) : end], rest if rest.startswith("/") else f"/{rest}"


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes: the upstream, the target it gets there, and the API it speaks."""

    upstream: Upstream
    target: str
    dialect: Dialect


@dataclass(slots=True)
class Routes:
    """The upstreams of one proxy. `default` serves whatever names none, in place of the shapes."""

    upstreams: dict[str, Upstream] = field(default_factory=dict)
    default: Upstream | None = None
    any_url: bool = False
    own: Listen | None = None
    # Where the other servers of ours listen, as far as that is known.
    beside: Mapping[Door, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        declared: Mapping[str, str] | None = None,
        default: str | None = None,
        *,
        any_url: bool = False,
        own: Listen | None = None,
    ) -> "Routes":
        """The known upstreams, with those that are declared. Raises BadSetting.

        `default` is a base URL, or the name of an upstream. `any_url` permits a base URL in
        `x-tapes-upstream`: only where strangers cannot reach the proxy; `own` is where that
        listens.
        """
        urls = {**KNOWN_UPSTREAMS, **(declared or {})}
        upstreams = {name: Upstream.of(name, url) for name, url in urls.items()}
        if default is None or default in upstreams:
            return cls(upstreams, upstreams.get(default or ""), any_url, own)
        return cls(upstreams, Upstream.of("default", default), any_url, own)

    def find(
        self, target: str, named: str | None = None, header_names: Collection[bytes] = ()
    ) -> Route:
        """The route of a request target. Raises BadSetting where nothing says who it is for."""
        if named is not None:
            return self._route(self._named(named), target)
        first, rest = _taken(target, "/")
        if first in self.upstreams:
            return self._route(self.upstreams[first], rest)
        if self.default is not None:
            return self._route(self.default, target)
        dialect: Dialect | None = next(
            (d for name, d in _SIGNS.items() if name in header_names), None
        )
        if dialect is None:
            self._require_nobody_else(target.partition("?")[0])
        dialect = dialect or dialect_of(target)
        if dialect is None or not target.startswith("/") or target.startswith("/v1/v1/"):
            raise self._unroutable(target)
        return self._route(self.upstreams[dialect.value], target)

    def _named(self, name: str) -> Upstream:
        if name in self.upstreams:
            return self.upstreams[name]
        if self.any_url and "://" in name:
            if self.own is not None and self.own.is_meant_by(name):
                raise BadSetting(
                    f"x-tapes-upstream: {name} is where this proxy listens",
                    "name the provider: https://…",
                )
            return Upstream.of("named", name)
        raise BadSetting(
            f"x-tapes-upstream: no upstream is named {shown(name)!r}",
            f"there are: {', '.join(self.upstreams)}; declare one with: --upstream NAME=https://…",
        )

    def _route(self, upstream: Upstream, target: str) -> Route:
        by_name = _DIALECTS.get(upstream.name)
        if by_name is Dialect.ANTHROPIC and _lacks_version(upstream, target):
            target = f"/v1{target}"
        if by_name in _BY_NAME_ALONE:
            others = (d for start, d in _FOR_OTHERS if target.startswith(start))
            return Route(upstream, f"{upstream.path}{target}", next(others, by_name))
        by_shape = dialect_of(target)
        if by_name is not None and by_shape in (None, Dialect.OPENAI):
            # Models and files have the same paths everywhere; Ollama speaks OpenAI's API as well.
            by_shape = by_shape if by_name is Dialect.OLLAMA else by_name
        return Route(upstream, f"{upstream.path}{target}", by_shape or by_name or Dialect.OPENAI)

    def _require_nobody_else(self, path: str) -> None:
        """Raises BadSetting where a path is one of our ingest or read API.

        No provider has these paths: to guess one would send it what others captured, or a token.
        """
        door = door_of("POST", path)
        door = door if door is Door.INGEST else door_of("GET", path)
        if door not in (Door.INGEST, Door.API) or path in _OF_PROVIDERS:
            return
        known = self.beside.get(door)
        raise BadSetting(
            f"this is the proxy; {path} is for {WHAT[door]}",
            f"send it there: {known}{path}"
            if known is not None
            else f"send it there: {USUAL[door]}{path} if it listens nowhere else",
        )

    def _unroutable(self, target: str) -> BadSetting:
        path = target.partition("?")[0]
        names = ", ".join(f"/{name}/…" for name in self.upstreams)
        remedy = (
            f"begin the path with the name of an upstream ({names}), or start the proxy with"
            " --upstream URL"
        )
        if path.startswith("/v1/v1/"):
            remedy = "this SDK adds /v1 itself: take /v1 off its base URL"
        elif dialect_of(f"/v1{path}") is not None and path.count("/") <= 3 and path != "/":
            remedy = f"most base URLs end with /v1 (Anthropic's and Gemini's do not); or {remedy}"
        return BadSetting(f"nothing says who {path} is for", remedy)


def _lacks_version(upstream: Upstream, target: str) -> bool:
    return bool(_MESSAGES.match(target)) and not upstream.path.endswith("/v1")


def dialect_of(target: str) -> Dialect | None:
    """Whose API a path has the shape of."""
    path = target.partition("?")[0]
    if _GEMINI_VERB.fullmatch(path):
        return Dialect.GEMINI
    return next((dialect for start, dialect in _SHAPES if path.startswith(start)), None)
