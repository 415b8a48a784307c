"""Which upstream a request is for, and whose API it speaks.

Rule 1: a header names it (`x-tapes-upstream`), else the first segment of the path where that is
        the name of an upstream, else the shape of the path.
Rule 2: the prefix is taken off. The identity of a request holds the path that the upstream gets, so
        what was recorded through the proxy replays in process and the other way round.

Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from tapes.errors import BadSetting


class Dialect(StrEnum):
    """Whose API a request speaks; it decides how a refusal is worded."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    OLLAMA = "ollama"


# name → base URL
KNOWN_UPSTREAMS: dict[str, str] = {
    "openai": "https://api.openai.com",
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com",
    "ollama": "http://localhost:11434",
    "mistral": "https://api.mistral.ai",
    "groq": "https://api.groq.com/openai",
    "cohere": "https://api.cohere.com",
    "deepseek": "https://api.deepseek.com",
    "openrouter": "https://openrouter.ai/api",
    "xai": "https://api.x.ai",
    "together": "https://api.together.xyz",
    "fireworks": "https://api.fireworks.ai/inference",
    "perplexity": "https://api.perplexity.ai",
    "chatgpt": "https://chatgpt.com/backend-api",
}

# The beginning of a path without query → whose API it is
_SHAPES: tuple[tuple[str, Dialect], ...] = (
    ("/v1/messages", Dialect.ANTHROPIC),
    ("/v1/complete", Dialect.ANTHROPIC),
    ("/v1beta/", Dialect.GEMINI),
    ("/v1alpha/", Dialect.GEMINI),
    ("/upload/v1beta/", Dialect.GEMINI),
    ("/api/", Dialect.OLLAMA),
    ("/v1/", Dialect.OPENAI),
)
# `/v1/complete` begins `/v1/completions` as well.
_OPENAI_FIRST = ("/v1/completions",)


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
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or port == -1
        if wrong or parts.query or parts.fragment or parts.username:
            raise BadSetting(
                f"upstream {name}: {url!r} is not a base URL",
                "for example: https://api.openai.com or http://127.0.0.1:11434",
            )
        tls = parts.scheme == "https"
        usual = 443 if tls else 80
        return cls(name, parts.hostname or "", port or usual, tls, parts.path.rstrip("/"))


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

    @classmethod
    def of(cls, declared: Mapping[str, str] | None = None, default: str | None = None) -> "Routes":
        """The known upstreams, with those that are declared. Raises BadSetting."""
        urls = {**KNOWN_UPSTREAMS, **(declared or {})}
        return cls(
            {name: Upstream.of(name, url) for name, url in urls.items()},
            None if default is None else Upstream.of("default", default),
        )

    def find(self, target: str, named: str | None) -> Route | None:
        """The route of a request target, or None where nothing says who it is for."""
        if named is not None:
            upstream = self.upstreams.get(named)
            if upstream is None and "://" in named:
                upstream = Upstream.of("named", named)
            return None if upstream is None else self._route(upstream, target)
        first, slash, rest = target.removeprefix("/").partition("/")
        if first in self.upstreams and slash:
            return self._route(self.upstreams[first], f"/{rest}")
        if self.default is not None:
            return self._route(self.default, target)
        dialect = dialect_of(target)
        if dialect is None:
            return None
        return self._route(self.upstreams[dialect.value], target)

    def _route(self, upstream: Upstream, target: str) -> Route:
        by_name = next((d for d in Dialect if d.value == upstream.name), None)
        dialect = dialect_of(target) or by_name or Dialect.OPENAI
        return Route(upstream, f"{upstream.path}{target}", dialect)


def dialect_of(target: str) -> Dialect | None:
    """Whose API a path has the shape of."""
    path = target.partition("?")[0]
    if path.startswith(_OPENAI_FIRST):
        return Dialect.OPENAI
    return next((dialect for start, dialect in _SHAPES if path.startswith(start)), None)
