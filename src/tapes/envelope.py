"""Whose turn it is: session and thread, read from request headers, and written into them.

Rule 1: what a caller says about itself is read as it is; what cannot be read costs that field only.
Rule 2: reading never refuses; `problems` says what a receiver must refuse.
Rule 3: a header that is written cannot carry a line end, and all of them fit into 8 KiB.
Rule 4: where nobody said a session id, the ids that known agents send of themselves count.

Knows nothing of turns, stores or HTTP clients.  Pure.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import unquote
from uuid import UUID

from tapes.errors import BadEnvelope
from tapes.exchange import Headers
from tapes.jsontext import Json, compact
from tapes.loosejson import loose

UNKNOWN = "unknown"
# The longest id of a session, a thread or a call, in bytes: they are looked up by an index.
ID_LIMIT = 512
NAME_LIMIT = 256
METADATA_LIMIT = 4 * 1024
HEADERS_LIMIT = 8 * 1024


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a caller says about its session. `parent_harness_session_id` is None where unsaid."""

    org_id: str = ""
    auth_subject: str = ""
    harness_id: str = UNKNOWN
    harness_session_id: str = ""
    harness_version: str = ""
    cwd: str = ""
    name: str = ""
    parent_harness_session_id: str | None = None
    harness_metadata: Json = None


# Field, header, and whether its value is percent-escaped. The order is the order of writing.
_FIELDS: tuple[tuple[str, str, bool], ...] = (
    ("harness_id", "x-tapes-harness-id", False),
    ("org_id", "x-paper-auth-org-id", False),
    ("auth_subject", "x-paper-auth-subject", False),
    ("harness_session_id", "x-tapes-harness-session-id", False),
    ("harness_version", "x-tapes-harness-version", False),
    ("cwd", "x-tapes-cwd", True),
    ("name", "x-tapes-session-name", True),
    ("parent_harness_session_id", "x-tapes-parent-harness-session-id", False),
)
_METADATA = "x-tapes-harness-metadata"
AGENT_NAME = "x-tapes-agent-name"
# What makes room first where the headers are too large. Ids never go.
_EXPENDABLE = (_METADATA, "x-tapes-session-name", "x-tapes-cwd", "x-tapes-harness-version")


# --- headers ----------------------------------------------------------------------------------


def from_headers(headers: Headers) -> Envelope:
    """The envelope that request headers carry. Never refuses; see `problems`."""
    values = _by_name(headers)
    fields: dict[str, Json] = {}
    for field, name, escaped in _FIELDS:
        value = values.get(name, "")
        if value:
            fields[field] = _unescaped(value) if escaped else value
    return Envelope(**fields, harness_metadata=_metadata_of(values.get(_METADATA, "")))


def to_headers(envelope: Envelope) -> dict[str, str]:
    """The headers that carry an envelope. A field that has no safe header is left out."""
    headers: dict[str, str] = {}
    for field, name, escaped in _FIELDS:
        value = getattr(envelope, field) or ""
        if field == "name":
            value = cut(value, NAME_LIMIT)
        value = _escaped(value) if escaped else value
        if value and not _CONTROL.search(value):
            headers[name] = value
    if envelope.harness_metadata is not None:
        text = compact(envelope.harness_metadata).encode()
        if len(text) <= METADATA_LIMIT:
            headers[_METADATA] = base64.urlsafe_b64encode(text).decode().rstrip("=")
    for name in _EXPENDABLE:
        if _size(headers) > HEADERS_LIMIT:
            headers.pop(name, None)
    return headers


def _by_name(headers: Headers) -> dict[str, str]:
    """The first value of each header, its name in lower case."""
    values: dict[str, str] = {}
    for name, value in headers:
        values.setdefault(name.lower(), value.strip())
    return values


def _size(headers: Mapping[str, str]) -> int:
    return sum(len(name) + len(value.encode()) for name, value in headers.items())


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TO_ESCAPE = re.compile(rb"[\x00-\x20\x7f-\xff%\"\\]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def _escaped(text: str) -> str:
    raw = text.encode("utf-8", "replace")
    return _TO_ESCAPE.sub(lambda found: b"%%%02X" % found[0][0], raw).decode("ascii")


def _unescaped(value: str) -> str:
    """As a URL path: a plus stays a plus, and a bad escape leaves the value as it came."""
    text = value if _BAD_ESCAPE.search(value) else unquote(value, errors="replace")
    return "" if _CONTROL.search(text) else text


_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")


def _metadata_of(value: str) -> Json:
    if not _BASE64URL.fullmatch(value):
        return None
    try:
        return loose(base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)))
    except (ValueError, binascii.Error):
        return None


def cut(text: str, limit: int) -> str:
    """The longest beginning of a text that has at most so many bytes of UTF-8."""
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= limit else raw[:limit].decode("utf-8", "ignore")


def shortened(text: str, limit: int) -> str:
    """The text where it has at most so many bytes of UTF-8; else its beginning and its hash."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return text
    return f"{cut(text, 64)}~{hashlib.sha256(raw).hexdigest()}"


# --- JSON -------------------------------------------------------------------------------------


def to_json(envelope: Envelope) -> dict[str, Json]:
    """The JSON form: what is not said is left out, the harness is always there."""
    form: dict[str, Json] = {name: getattr(envelope, name) for name in Envelope.__slots__}
    return {name: value for name, value in form.items() if value not in ("", None)}


def from_json(value: Json) -> Envelope:
    """The envelope of a JSON object. Raises BadEnvelope, naming every problem."""
    if not isinstance(value, dict):
        raise BadEnvelope("a session is a JSON object")
    wrong = [
        f"{name}: text, not {type(value[name]).__name__}"
        for name in Envelope.__slots__
        if name != "harness_metadata" and not isinstance(value.get(name), str | None)
    ]
    if wrong:
        raise BadEnvelope("; ".join(wrong))
    said = {name: value[name] for name in Envelope.__slots__ if value.get(name) is not None}
    envelope = Envelope(**said)
    found = problems(envelope)
    if found:
        raise BadEnvelope("; ".join(found))
    return envelope if envelope.harness_id else replace(envelope, harness_id=UNKNOWN)


def problems(envelope: Envelope) -> tuple[str, ...]:
    """What a receiver has to refuse, each with its field; empty where all is well."""
    found = []
    if envelope.org_id and not _is_uuid(envelope.org_id):
        found.append("org_id: empty or a UUID")
    if envelope.harness_metadata is not None and not isinstance(envelope.harness_metadata, dict):
        found.append("harness_metadata: a JSON object")
    if envelope.parent_harness_session_id == "":
        found.append("parent_harness_session_id: absent or not empty")
    return tuple(found)


def _is_uuid(text: str) -> bool:
    try:
        return len(text) == 36 and bool(UUID(text))
    except ValueError:
        return False


# --- threads and the agents' own ids ----------------------------------------------------------


def thread_of(headers: Headers) -> str:
    """The sub-agent that makes the call; "" is the main thread."""
    values = _by_name(headers)
    agent = values.get("x-claude-code-agent-id", "")
    if agent:
        return agent
    if _parent_in(values):
        return values.get("x-session-id", "")
    thread, session = values.get("thread-id", ""), values.get("session-id", "")
    return thread if thread and session and thread != session else ""


# A header that an agent or a framework sends of itself, and the harness that it tells of.
OWN_IDS: tuple[tuple[str, str], ...] = (
    ("x-claude-code-session-id", "claude"),
    ("session-id", "codex"),
    ("session_id", UNKNOWN),
    ("helicone-session-id", UNKNOWN),
    ("x-litellm-session-id", UNKNOWN),
    ("x-session-id", UNKNOWN),
)
# What the name of an agent in `user-agent` begins with, and the harness that it tells of: what
# Codex once sent, others send too.
_AGENTS: tuple[tuple[str, str], ...] = (
    ("codex", "codex"),
    ("opencode/", "opencode"),
    ("geminicli", "gemini-cli"),
    ("qwencode/", "qwen-code"),
)
_USER_ID_SESSION = re.compile(r"_session_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$")


def identified(headers: Headers, body: Json = None) -> tuple[Envelope, str]:
    """The envelope of a request, and how its session is known: header, agent, body or "".

    Where the headers name no session, the agent's own header counts, then what it puts into the
    request body.
    """
    envelope = from_headers(headers)
    if envelope.harness_session_id:
        return envelope, "header"
    values = _by_name(headers)
    told = _agent_in(values)
    if told and envelope.harness_id == UNKNOWN:
        envelope = replace(envelope, harness_id=told)
    for name, harness in OWN_IDS:
        if values.get(name):
            return _with_session(envelope, harness, _parent_in(values) or values[name]), "agent"
    session, harness = session_in(body)
    if session:
        return _with_session(envelope, harness, session), "body"
    return envelope, ""


def _agent_in(values: Mapping[str, str]) -> str:
    agent = values.get("user-agent", "").lower()
    return next((harness for beginning, harness in _AGENTS if agent.startswith(beginning)), "")


def _parent_in(values: Mapping[str, str]) -> str:
    """The session that a sub-agent of OpenCode works for; each of them has an id like a session."""
    return values.get("x-parent-session-id", "") if _agent_in(values) == "opencode" else ""


def _with_session(envelope: Envelope, harness: str, session: str) -> Envelope:
    named = envelope.harness_id if envelope.harness_id != UNKNOWN else harness
    return replace(envelope, harness_id=named, harness_session_id=session)


def session_in(body: Json) -> tuple[str, str]:
    """The session id that an agent puts into its requests, and the harness; "" where none."""
    metadata = body.get("metadata") if isinstance(body, dict) else None
    if not isinstance(metadata, dict):
        return "", UNKNOWN
    user = metadata.get("user_id")
    if isinstance(user, str):
        old_form = _USER_ID_SESSION.search(user)
        if old_form:
            return old_form[1], "claude"
        try:
            said = loose(user) if user.startswith("{") else None
        except ValueError:
            said = None
        if isinstance(said, dict) and isinstance(said.get("session_id"), str):
            return said["session_id"], "claude"
    session = metadata.get("session_id")
    return (session, UNKNOWN) if isinstance(session, str) else ("", UNKNOWN)
