"""What agent frameworks send beside their model calls: traces, usage, product analytics.

It tells of a run and answers nothing, and is different each time. So it is never on a tape: it
goes out where live calls may, and to this machine, and else it is not sent.

Pure.
"""

from urllib.parse import urlsplit

from tapes.exchange import Headers, Piece, Request, Response, header

# OpenTelemetry's own paths. Others have such paths too, but none that takes protobuf.
_OTLP = ("/v1/traces", "/v1/metrics", "/v1/logs")
_PROTOBUF = "application/x-protobuf"
# The Agents SDK of OpenAI: on by default, wherever there is a key.
_OF_OPENAI = "/v1/traces/ingest"
_HOSTS = frozenset({"api.smith.langchain.com", "eu.api.smith.langchain.com"})
_DOMAINS = (".posthog.com",)  # Haystack, and others

NOT_SENT = Response(200, (("content-type", "application/json"),), (Piece(0.0, b"{}"),))
"""The answer to what is not sent: whoever gets it neither fails nor tries again."""


def is_telemetry(request: Request) -> bool:
    """Whether a request only tells of the run."""
    return tells(request.method, request.url, request.headers)


def tells(method: str, url: str, headers: Headers) -> bool:
    """As `is_telemetry`, before a request's body is read."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in _HOSTS or host.endswith(_DOMAINS):
        return True
    if method != "POST":
        return False
    if parts.path.endswith(_OTLP):
        return (header(headers, "content-type") or "").startswith(_PROTOBUF)
    return parts.path == _OF_OPENAI
