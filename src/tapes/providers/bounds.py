"""The most tokens that a call can use, read from its request.

Rule: input is bounded by the bytes of the request (a token is at least one byte), output by what
the request itself allows. A request that allows any output has no bound.

Knows nothing of prices or budgets.  Pure.
"""

from tapes.jsontext import Json

_OUTPUT_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens", "maxOutputTokens")
_CONFIGS = ("generationConfig", "generation_config", "options")
# Calls whose answer holds no generated tokens.
_WITHOUT_OUTPUT = ("/embeddings", ":embedContent", ":batchEmbedContents", "/api/embed", "/models")


def output_bound(request: Json, path: str = "") -> int | None:
    """The most tokens that the answer can have, or None where the request does not say."""
    if path.endswith(_WITHOUT_OUTPUT):
        return 0
    if not isinstance(request, dict):
        return None
    limits = [request.get(name) for name in _OUTPUT_LIMITS]
    for name in _CONFIGS:
        config = request.get(name)
        if isinstance(config, dict):
            limits += [config.get(limit) for limit in (*_OUTPUT_LIMITS, "num_predict")]
    found = [n for n in limits if isinstance(n, int) and not isinstance(n, bool) and n >= 0]
    if not found:
        return None
    choices = request.get("n")
    return max(found) * (choices if isinstance(choices, int) and choices > 1 else 1)


def hides_variance(request: Json) -> bool:
    """Whether the answer is one sample of many: a temperature above zero and no seed."""
    if not isinstance(request, dict):
        return False
    places = [request, *(request[c] for c in _CONFIGS if isinstance(request.get(c), dict))]
    temperature = next((p["temperature"] for p in places if "temperature" in p), None)
    seeded = any(p.get("seed") is not None for p in places)
    return isinstance(temperature, int | float) and temperature > 0 and not seeded
