"""The keys that hosts ask for besides the request, which never lie on a tape.

Rule 1: a credential goes to the hosts of its own provider, to those that a `tapes.toml` names, and
        to the base URL that the environment sets for the provider. What a tape says about hosts
        counts for nothing: it may come from anywhere.
Rule 2: nothing secret goes over a plain connection, except on this machine.
Rule 3: a place where something was redacted is filled from the environment, or the request is not
        sent. Never is a placeholder sent.

Knows nothing of tapes or connections.  Pure.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from urllib.parse import quote, urlsplit

from tapes.canonical import plain_body
from tapes.credentials import MARK
from tapes.errors import BadRule, NotSendable
from tapes.exchange import Request
from tapes.listening import Listen

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_HINT = 'host = "llm.internal", header = "authorization", value = "Bearer $LLM_KEY"'


@dataclass(frozen=True, slots=True)
class Credential:
    """What goes to a host: a header made of variables of the environment; or nothing."""

    host: str
    header: str | None = None
    value: str = ""

    @classmethod
    def of(cls, declared: Mapping[str, object], where: str) -> "Credential":
        """A credential from its declaration. Raises BadRule naming `where`."""
        texts = {name: value for name, value in declared.items() if isinstance(value, str)}
        if len(texts) != len(declared) or set(texts) - {"host", "header", "value"}:
            raise BadRule(f"{where}: a credential has host, header and value, all text", _HINT)
        if "host" not in texts or ("header" in texts) != ("value" in texts):
            raise BadRule(f"{where}: a credential has a host, and header and value or none", _HINT)
        if "value" in texts and not _VARIABLE.search(texts["value"]):
            raise BadRule(
                f"{where}: a secret itself must not stand in a file that is shared", _HINT
            )
        return cls(texts["host"].lower(), texts.get("header"), texts.get("value", ""))


@dataclass(frozen=True, slots=True)
class _Provider:
    """Where a provider lives, and what it asks for: of several variables the first that is set."""

    hosts: tuple[str, ...]
    header: str
    prefix: str
    variables: tuple[str, ...]
    base: str = ""
    query: str = ""
    also: tuple[tuple[str, str], ...] = ()
    shape: str = ""  # of its paths, where one base URL leads to several providers


def _bearer(host: str, variable: str, *others: str, base: str = "") -> _Provider:
    return _Provider((host,), "authorization", "Bearer ", (variable, *others), base)


_PROVIDERS = (
    _Provider(
        ("api.openai.com", "*.api.openai.com"), "authorization", "Bearer ", ("OPENAI_API_KEY",),
        "OPENAI_BASE_URL",
        also=(("openai-organization", "OPENAI_ORG_ID"), ("openai-project", "OPENAI_PROJECT_ID")),
    ),
    _Provider(
        ("api.anthropic.com",), "x-api-key", "", ("ANTHROPIC_API_KEY",), "ANTHROPIC_BASE_URL",
        shape=r"/v1/messages(?:/|$)",
    ),
    _Provider(
        ("generativelanguage.googleapis.com",), "x-goog-api-key", "",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"), "GOOGLE_GEMINI_BASE_URL", query="key",
        shape=r"/v1(?:alpha|beta)/|/models/[^/]+:\w+$",
    ),
    _Provider(
        ("*.openai.azure.com", "*.services.ai.azure.com"), "api-key", "",
        ("AZURE_OPENAI_API_KEY",), "AZURE_OPENAI_ENDPOINT",
    ),
    _bearer("api.mistral.ai", "MISTRAL_API_KEY"),
    _bearer("api.cohere.com", "CO_API_KEY", "COHERE_API_KEY"),
    _bearer("api.groq.com", "GROQ_API_KEY", base="GROQ_BASE_URL"),
    _bearer("openrouter.ai", "OPENROUTER_API_KEY"),
    _bearer("api.x.ai", "XAI_API_KEY"),
    _bearer("api.deepseek.com", "DEEPSEEK_API_KEY"),
    _bearer("api.together.xyz", "TOGETHER_API_KEY"),
    _bearer("api.fireworks.ai", "FIREWORKS_API_KEY"),
    _bearer("api.perplexity.ai", "PERPLEXITY_API_KEY", "PPLX_API_KEY"),
    _bearer("ollama.com", "OLLAMA_API_KEY"),
    _bearer("router.huggingface.co", "HF_TOKEN"),
    _bearer("bedrock-runtime.*.amazonaws.com", "AWS_BEARER_TOKEN_BEDROCK"),
)  # fmt: skip


def with_credentials(
    request: Request, environ: Mapping[str, str], declared: Iterable[Credential] = ()
) -> Request:
    """A recorded request as it can be sent. Raises NotSendable saying what it lacks."""
    parts = urlsplit(request.url)
    host = (parts.hostname or "").lower()
    is_near = Listen(host, 0).is_loopback
    own = next((c for c in declared if host_is(parts.netloc.lower(), host, c.host)), None)
    provider = _provider_of(request.url, host, environ)
    added: tuple[tuple[str, str], ...] = ()
    if own is not None:
        if own.header is not None:
            added = ((own.header, _filled(own.value, environ, host)),)
    elif provider is not None:
        request, added = _for_provider(request, provider, environ, host)
    elif not is_near:
        raise NotSendable(
            f"no credential is known for {host}",
            f'say what it asks for in tapes.toml: [[credential]] host = "{host}" …',
        )
    if added and parts.scheme != "https" and not is_near:
        raise NotSendable(f"a credential for {host} would go over a plain connection")
    request = replace(request, headers=(*request.headers, *added))
    require_no_placeholder(request)
    return request


def host_is(netloc: str, host: str, pattern: str) -> bool:
    """Whether a pattern means this host; one with a port means that port alone."""
    return fnmatchcase(netloc if ":" in pattern else host, pattern)


def _provider_of(url: str, host: str, environ: Mapping[str, str]) -> _Provider | None:
    here = [
        provider
        for provider in _PROVIDERS
        if provider.base and environ.get(provider.base)
        and _origin(environ[provider.base]) == _origin(url)
    ]  # fmt: skip
    if here:
        path = urlsplit(url).path
        fits = (p for p in here if p.shape and re.search(p.shape, path))
        return next(fits, next((p for p in here if not p.shape), here[0]))
    for provider in _PROVIDERS:
        if any(fnmatchcase(host, pattern) for pattern in provider.hosts):
            return provider
    return None


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    try:
        return parts.scheme, (parts.hostname or "").lower(), parts.port
    except ValueError:
        return parts.scheme, url, None


def _for_provider(
    request: Request, provider: _Provider, environ: Mapping[str, str], host: str
) -> tuple[Request, tuple[tuple[str, str], ...]]:
    secret = next((environ[name] for name in provider.variables if environ.get(name)), None)
    if secret is None:
        raise NotSendable(
            f"{host} asks for a credential, and {' or '.join(provider.variables)} is not set",
            f"set it: export {provider.variables[0]}=…",
        )
    placeholder = f"{provider.query}={MARK}{provider.query}"
    if provider.query and placeholder in request.url:
        filled = f"{provider.query}={quote(secret, safe='')}"
        return replace(request, url=request.url.replace(placeholder, filled)), ()
    also = tuple((name, environ[v]) for name, v in provider.also if environ.get(v))
    return request, ((provider.header, provider.prefix + secret), *also)


def _filled(value: str, environ: Mapping[str, str], host: str) -> str:
    def found(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if not environ.get(name):
            raise NotSendable(
                f"{host} asks for a credential, and {name} is not set", f"set it: export {name}=…"
            )
        return environ[name]

    return _VARIABLE.sub(found, value)


def require_no_placeholder(request: Request) -> None:
    """Refuse a request in which something redacted has not been filled. Raises NotSendable."""
    places = {
        "its URL": request.url,
        "its body": plain_body(request).decode("latin-1"),
        **{f"its header {name}": value for name, value in request.headers},
    }
    for place, text in places.items():
        if MARK in text:
            raise NotSendable(
                f"{place} held a secret that was redacted",
                "record it again from your program: DEMO_LIVE=1 CASSETTE_MODE=live …",
            )
