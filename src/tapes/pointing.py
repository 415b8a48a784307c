"""How SDKs and agents are pointed at a proxy: the variables that they read, and their keys.

Rule 1: the path stays. A variable whose usual value is `https://api.example/v1` leads to
        `http://proxy/example/v1`, so a client joins its paths as it always does, and a request
        has the same path upstream as without the proxy.
Rule 2: a base URL that the user has set is where the proxy sends requests on; the variable leads to
        the proxy all the same. One that leads to this very proxy is the client's, no upstream.
Rule 3: a key is made up only where none is set and nothing can be sent on.

Pure.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from tapes.listening import Listen

# variable, upstream, path of the usual base URL
_POINTERS: tuple[tuple[str, str, str], ...] = (
    ("OPENAI_BASE_URL", "openai", "/v1"),
    ("OPENAI_API_BASE", "openai", "/v1"),
    ("ANTHROPIC_BASE_URL", "anthropic", ""),
    ("ANTHROPIC_API_BASE", "anthropic", ""),
    ("GOOGLE_GEMINI_BASE_URL", "gemini", ""),
    ("GEMINI_API_BASE", "gemini", "/v1beta"),
    ("OLLAMA_HOST", "ollama", ""),
    ("OLLAMA_API_BASE", "ollama", ""),
    ("MISTRAL_API_BASE", "mistral", "/v1"),
    ("MISTRAL_AZURE_API_BASE", "mistral", "/v1"),  # LiteLLM reads it for chats with anyone's
    ("GROQ_BASE_URL", "groq", ""),
    ("GROQ_API_BASE", "groq", "/openai/v1"),
    ("CO_API_URL", "cohere", ""),
    ("DEEPSEEK_API_BASE", "deepseek", "/beta"),
    ("OPENROUTER_API_BASE", "openrouter", "/api/v1"),
    ("XAI_API_BASE", "xai", "/v1"),
    ("TOGETHER_BASE_URL", "together", "/v1"),
    ("TOGETHER_AI_API_BASE", "together", "/v1"),
    ("FIREWORKS_API_BASE", "fireworks", "/inference/v1"),
    ("CEREBRAS_BASE_URL", "cerebras", ""),
    ("CEREBRAS_API_BASE", "cerebras", "/v1"),
)
# Keys of which an SDK wants one before it sends anything. Where one of a row is set, all is well.
_KEYS: tuple[tuple[str, ...], ...] = (
    ("OPENAI_API_KEY",),
    ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ("MISTRAL_API_KEY",),
    ("GROQ_API_KEY",),
    ("CO_API_KEY", "COHERE_API_KEY"),
    ("DEEPSEEK_API_KEY",),
    ("OPENROUTER_API_KEY",),
    ("XAI_API_KEY",),
    ("TOGETHER_API_KEY", "TOGETHER_AI_API_KEY"),
    ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY"),
    ("CEREBRAS_API_KEY",),
)
MADE_UP_KEY = "tapes-replay"
# Traffic of agents and libraries beside their model calls; it is no part of a tape, and in replay
# must not be.
_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it fetches prices while it is imported
}
SHOWN = ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "OLLAMA_HOST")


def variables_of(address: str) -> dict[str, str]:
    """The variables that lead clients to the proxy at this address (`http://host:port`)."""
    return {name: f"{address}/{upstream}{path}" for name, upstream, path in _POINTERS}


def upstreams_set_in(
    environ: Mapping[str, str], declared: Mapping[str, str], own: Listen
) -> dict[str, str]:
    """Upstreams that base URLs in the environment name (rule 2); what is declared is left alone.

    `own` is where the proxy listens.
    """
    found: dict[str, str] = {}
    for name, upstream, _ in _POINTERS:
        origin = _origin(environ.get(name, ""))
        if origin is not None and upstream not in declared and not own.is_meant_by(origin):
            found.setdefault(upstream, origin)
    return found


def pointed_at(address: str, environ: Mapping[str, str], *, replays: bool) -> dict[str, str]:
    """What is to be set in a child's environment so that its model calls come to the proxy."""
    variables: dict[str, str] = {}
    for name, upstream, usual in _POINTERS:
        given = environ.get(name, "")
        path = usual if _origin(given) is None else urlsplit(_with_scheme(given)).path.rstrip("/")
        variables[name] = f"{address}/{upstream}{path}"
    for name, value in _QUIET.items():
        variables[name] = environ.get(name, value)
    if replays:
        for names in _KEYS:
            if not any(environ.get(name) for name in names):
                variables[names[0]] = MADE_UP_KEY
    host = urlsplit(address).hostname or ""
    # Programs read one of the two or the other: what is set as one alone is said as both.
    names = ("NO_PROXY", "no_proxy")
    for name, other in (names, names[::-1]):
        direct = environ.get(name) or environ.get(other)
        variables[name] = direct if direct == "*" else ",".join(filter(None, (direct, host)))
    return variables


def _with_scheme(value: str) -> str:
    return value if "://" in value else f"http://{value}"


def _origin(value: str) -> str | None:
    """Scheme and authority of a base URL; `OLLAMA_HOST` may leave the scheme and more out."""
    if not value:
        return None
    try:
        parts = urlsplit(_with_scheme(value))
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    if "://" not in value and port is None:
        port = 11434
    # `ollama serve` may listen on every address; a client calls this machine.
    host = "127.0.0.1" if host == "0.0.0.0" else host
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


# --- agents that want more than variables -----------------------------------------------------


# Where Codex sends its requests when it is logged in to ChatGPT instead of having a key.
CODEX_LOGIN_PATH = "/backend-api/codex"
# An option that names another provider, or what follows one; a prompt may speak of it too.
_OWN_PROVIDER = re.compile(r"(?:-c=?|--config=)?\s*model_providers?\s*[.=]")


def command_for(
    command: Sequence[str],
    address: str,
    environ: Mapping[str, str],
    *,
    by_login: Callable[[], bool],
) -> list[str]:
    """The command with what its program needs on its command line.

    Codex reads no base URL from the environment, so it gets a provider of its own by options.
    Where `by_login` says so, that is the back end of ChatGPT, else the API.
    """
    name = command[0].rpartition("/")[2]
    if name != "codex" or any(_OWN_PROVIDER.match(part) for part in command):
        return list(command)
    path = f"chatgpt{CODEX_LOGIN_PATH}" if by_login() else "openai/v1"
    has_key = bool(environ.get("OPENAI_API_KEY"))
    auth = 'env_key="OPENAI_API_KEY"' if has_key else "requires_openai_auth=true"
    provider = (
        f'{{name="OpenAI",base_url="{address}/{path}",wire_api="responses",{auth},'
        "supports_websockets=false}"
    )
    options = ["-c", 'model_provider="tapes"', "-c", f"model_providers.tapes={provider}"]
    return [command[0], *options, *command[1:]]
