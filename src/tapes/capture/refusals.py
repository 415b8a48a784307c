"""A refusal as an HTTP answer that SDKs neither retry nor hide.

Rule 1: the status is a 4xx that no SDK retries, and `x-should-retry: false` says so once more.
Rule 2: the body has the shape in which the provider reports errors, so its SDK shows the message.
Rule 3: the message is the diagnosis, and says last where a person sees more of it, where that is
        known; `x-tapes-error` has the slug for programs.

Pure.
"""

import json

from tapes.capture.routes import Dialect
from tapes.errors import CassetteError, TapesError

_REASONS = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
            413: "Content Too Large", 415: "Unsupported Media Type", 421: "Misdirected Request",
            422: "Unprocessable Content", 426: "Upgrade Required",
            431: "Request Header Fields Too Large", 500: "Internal Server Error",
            501: "Not Implemented", 502: "Bad Gateway", 504: "Gateway Timeout",
            505: "HTTP Version Not Supported", 507: "Insufficient Storage"}  # fmt: skip
# Statuses below 500 that some SDK tries again.
_TRIED_AGAIN = frozenset({408, 409, 425, 429})
_GOOGLE_STATUS = {400: "FAILED_PRECONDITION", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED",
                  404: "NOT_FOUND", 502: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}  # fmt: skip
_ANTHROPIC_TYPE = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}


def refusal(error: CassetteError | TapesError, dialect: Dialect | None, more: str = "") -> bytes:
    """The whole answer to a request that is refused; `more` says where a person sees more of it."""
    message = told(error.message, error.remedy, more)
    status = error.http_status
    # Not every SDK looks at the header of rule 1: Cohere's and OpenRouter's go by the status alone.
    final = 400 if status >= 500 or status in _TRIED_AGAIN else status
    return answer(final, error.slug, message, dialect)


def told(*texts: str) -> str:
    """What an answer says, line by line, without what is empty."""
    return "\n".join(filter(None, texts))


def answer(
    status: int,
    slug: str,
    message: str,
    dialect: Dialect | None,
    *,
    close: bool = False,
    retry: bool = False,
) -> bytes:
    """A whole answer that reports an error; `retry` where trying again may help."""
    body = json.dumps(_body(status, slug, message, dialect), ensure_ascii=False)
    data = body.encode("utf-8", "backslashreplace")
    lines = [
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}",
        "content-type: application/json",
        f"content-length: {len(data)}",
        f"x-tapes-error: {slug}",
    ]
    if status == 426:
        lines.append("upgrade: HTTP/1.1")
    if not retry:
        lines.append("x-should-retry: false")
    if close:
        lines.append("connection: close")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def closes(data: bytes) -> bool:
    """Whether an answer of ours says that the connection ends with it."""
    return b"\r\nconnection: close\r\n" in data


def without_body(data: bytes) -> bytes:
    """An answer as HEAD gets it."""
    return data[: data.index(b"\r\n\r\n") + 4]


def _body(status: int, slug: str, message: str, dialect: Dialect | None) -> object:
    match dialect:
        case Dialect.ANTHROPIC:
            usual = "invalid_request_error" if status < 500 else "api_error"
            kind = _ANTHROPIC_TYPE.get(status, usual)
            return {"type": "error", "error": {"type": kind, "message": message}}
        case Dialect.GEMINI:
            code = _GOOGLE_STATUS.get(status, "UNKNOWN")
            return {"error": {"code": status, "message": message, "status": code}}
        case Dialect.OLLAMA:
            return {"error": message}
        case Dialect.COHERE:
            return {"message": message}
        case Dialect.OPENROUTER:
            # Its SDK reads nothing where the code is no number.
            return {"error": {"code": status, "message": message, "metadata": {"code": slug}}}
        case _:
            return {
                "error": {"message": message, "type": f"tapes_{slug}", "param": None, "code": slug}
            }
