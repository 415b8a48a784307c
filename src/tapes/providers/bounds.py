"""The most tokens that a call can use, read from its request.

Rule 1: output is bounded by what the request itself allows. A request that allows any output has
        no bound.
Rule 2: input is bounded by the bytes of the request, since a token is at least one byte. A request
        that points at input elsewhere (an image by URL, a file, an earlier response, a search) has
        no bound.

Knows nothing of prices or budgets.  Pure.
"""

import re
from dataclasses import dataclass

from tapes.exchange import Request
from tapes.jsontext import Json

_OUTPUT_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens", "maxOutputTokens")
_CONFIGS = ("generationConfig", "generation_config", "options")
_CHOICES = ("n", "best_of", "candidateCount", "candidate_count")
# Calls whose answer holds no generated tokens.
_WITHOUT_OUTPUT = (
    "/embeddings", ":embedContent", ":batchEmbedContents", "/api/embed", "/moderations",
    "/count_tokens", ":countTokens",
)  # fmt: skip
_READS = ("GET", "HEAD", "OPTIONS", "DELETE")
# Members that stand for input which does not lie in the request, and those that do by a URL.
_ELSEWHERE = frozenset(
    {
        "previous_response_id", "conversation", "cachedContent", "cached_content", "container",
        "file_id", "fileUri", "file_uri", "mcp_servers",
    }
)  # fmt: skip
_BY_URL = frozenset({"image_url", "video_url", "file_url", "source"})
_TOOLS_THAT_READ = re.compile(
    r"search|fetch|retrieval|browse|url_?context|computer|mcp|code_?(execution|interpreter)",
    re.IGNORECASE,
)
# What a provider writes around tools on its own account.
_TOOL_PREAMBLE = 1000


@dataclass(frozen=True, slots=True)
class Bound:
    """The most tokens that a call can use; `model` is the model that it names."""

    input: int
    output: int
    model: str | None = None


def bound_of(request: Request | Json, value: Json, size: int) -> Bound | None:
    """The bound of a call, or None where its request does not set one.

    `value` is what the request says as JSON (None where it is none), `size` its bytes.
    """
    method, path = "POST", ""
    if isinstance(request, Request):
        method, path = request.method.upper(), request.url.partition("?")[0]
    if method in _READS:
        return Bound(0, 0)
    output = 0 if path.endswith(_WITHOUT_OUTPUT) else output_bound(value)
    if output is None or _points_elsewhere(value):
        return None
    has_tools = isinstance(value, dict) and bool(value.get("tools"))
    return Bound(size + _TOOL_PREAMBLE * has_tools, output, _model_of(value, path))


def output_bound(request: Json) -> int | None:
    """The most tokens that the answer can have, or None where the request does not say."""
    if not isinstance(request, dict):
        return None
    limits = [n for n in _counts(request, (*_OUTPUT_LIMITS, "num_predict")) if n >= 0]
    return max(limits) * max([1, *_counts(request, _CHOICES)]) if limits else None


def _places(request: dict[str, Json]) -> list[dict[str, Json]]:
    """Where a request may have its settings."""
    return [request, *(request[c] for c in _CONFIGS if isinstance(request.get(c), dict))]


def _counts(request: dict[str, Json], names: tuple[str, ...]) -> list[int]:
    found = [place.get(name) for place in _places(request) for name in names]
    return [n for n in found if isinstance(n, int) and not isinstance(n, bool)]


def _points_elsewhere(value: Json) -> bool:
    todo = [("", value)]
    while todo:
        name, item = todo.pop()
        if name in _ELSEWHERE and item:
            return True
        if name in _BY_URL:
            url = item.get("url") if isinstance(item, dict) else item
            if isinstance(url, str) and not url.startswith("data:"):
                return True
        if isinstance(item, dict):
            if item.get("type") == "item_reference":
                return True
            todo.extend(item.items())
        elif isinstance(item, list):
            todo.extend((name, child) for child in item)
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("web_search_options"), dict) or isinstance(value.get("prompt"), dict):
        return True  # a search without a tool; a prompt that the provider keeps
    tools = value.get("tools")
    return isinstance(tools, list) and any(map(_brings_input, tools))


def _brings_input(tool: Json) -> bool:
    """Whether a tool is run by the provider and brings input of its own."""
    if not isinstance(tool, dict):
        return False
    kind = tool.get("type")
    if kind in ("function", "custom"):
        return False
    names = [kind] if isinstance(kind, str) else [*tool]  # Gemini names a tool by its member
    return any(_TOOLS_THAT_READ.search(name) for name in names)


def _model_of(value: Json, path: str) -> str | None:
    """The model that a request names: in its body, or as Gemini does in its path."""
    model = value.get("model") if isinstance(value, dict) else None
    if isinstance(model, str):
        return model
    in_path = re.search(r"/models/([^/:]+)", path)
    return in_path[1] if in_path else None


def hides_variance(request: Json) -> bool:
    """Whether the answer is one sample of many: a temperature above zero and no seed."""
    if not isinstance(request, dict):
        return False
    places = _places(request)
    temperature = next((p["temperature"] for p in places if "temperature" in p), None)
    if not isinstance(temperature, int | float) or temperature <= 0:
        return False
    return all(place.get("seed") is None for place in places)
