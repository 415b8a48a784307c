"""The contract of the private door as an OpenAPI document.

Knows nothing of how it is kept.  Pure.
"""

from tapes.jsontext import Json

_TEXT: Json = {"type": "string"}
_COUNT: Json = {"type": "integer"}
_TRUTH: Json = {"type": "boolean"}
_ANY: Json = {}


def _object(*needed: str, **members: Json) -> Json:
    found: dict[str, Json] = {"type": "object", "properties": members}
    return found | ({"required": list(needed)} if needed else {})


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _answer(about: str, schema: Json | None = None) -> Json:
    content = {"content": {"application/json": {"schema": schema}}} if schema else {}
    return {"description": about, **content}


_ERRORS = {
    400: "The body is no such JSON; nothing of it is kept",
    401: "The token is missing or wrong",
    410: "The turn, or its session, was erased for good",
    413: "The body is larger than the limit, or decodes to more",
    415: "The content coding is not known",
    422: "The turn is kept, and nobody can read it yet",
    500: "It could not be kept",
    502: "The store cannot be reached; send it again",
    503: "More is being sent than can be kept; send it again after Retry-After",
}


def _post(operation: str, summary: str, asked: str, status: int, answered: str) -> Json:
    errors = {str(code): _answer(about, _ref("ErrorResponse")) for code, about in _ERRORS.items()}
    return {
        "post": {
            "operationId": operation,
            "summary": summary,
            "tags": ["ingest"],
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": _ref(asked)}},
            },
            "responses": {str(status): _answer("Durable", _ref(answered)), **errors},
        }
    }


def _otlp(operation: str, summary: str) -> Json:
    kinds = ("application/x-protobuf", "application/json")
    return {
        "post": {
            "operationId": operation,
            "summary": summary,
            "tags": ["otlp"],
            "requestBody": {
                "required": True,
                "content": {kind: {"schema": _ANY} for kind in kinds},
            },
            "responses": {
                "200": _answer("Durable, but for what the partial success names"),
                "400": _answer("No OTLP"),
                "503": _answer("Send it again after Retry-After"),
            },
        }
    }


_SCHEMAS: dict[str, Json] = {
    "ErrorResponse": _object("error", error=_TEXT),
    "IngestEnvelope": _object(
        org_id=_TEXT,
        auth_subject=_TEXT,
        harness_id=_TEXT,
        harness_session_id=_TEXT,
        harness_version=_TEXT,
        cwd=_TEXT,
        name=_TEXT,
        parent_harness_session_id=_TEXT,
        harness_metadata=_object(),
    ),
    "TurnMeta": _object(
        request_id=_TEXT,
        thread_id=_TEXT,
        method=_TEXT,
        path=_TEXT,
        content_type=_TEXT,
        upstream_status=_COUNT,
        elapsed_seconds={"type": "number"},
        ts_request={"type": "string", "format": "date-time"},
        captured_at={"type": "string", "format": "date-time"},
    ),
    "TurnPayload": _object(
        "provider",
        "request",
        provider=_TEXT,
        agent_name=_TEXT,
        request=_object(),
        response=_object(),
        raw_response={"type": "string", "format": "byte"},
        raw_response_encoding=_TEXT,
        raw_response_withheld=_TRUTH,
        meta=_ref("TurnMeta"),
        session=_ref("IngestEnvelope"),
    ),
    "TurnBatch": _object("turns", turns={"type": "array", "items": _ref("TurnPayload")}),
    "TranscriptPayload": _object(
        "session",
        session=_ref("IngestEnvelope"),
        agent_id=_TEXT,
        agent_type=_TEXT,
        description=_TEXT,
        tool_use_id=_TEXT,
        kind=_TEXT,
        records={"type": "array", "items": _ANY},
    ),
    "Accepted": _object("status", status=_TEXT, deduped=_TRUTH, id=_COUNT),
    "TranscriptAccepted": _object(
        "status", status=_TEXT, deduped=_TRUTH, records=_COUNT, agent_id=_TEXT
    ),
    "BatchResult": _object(
        "code", code=_COUNT, status=_TEXT, deduped=_TRUTH, id=_COUNT, error=_TEXT
    ),
    "BatchAnswer": _object(
        "accepted",
        "deduped",
        "failed",
        "results",
        accepted=_COUNT,
        deduped=_COUNT,
        failed=_COUNT,
        results={"type": "array", "items": _ref("BatchResult")},
    ),
    "Pong": _object("status", status=_TEXT),
}

DOCUMENT: dict[str, Json] = {
    "openapi": "3.0.3",
    "info": {
        "title": "Tapes ingest",
        "version": "1.0",
        "description": "Turns, transcripts and spans that others captured, into the log.",
    },
    "paths": {
        "/ping": {
            "get": {
                "operationId": "ingestPing",
                "summary": "The process serves",
                "tags": ["health"],
                "responses": {"200": _answer("It does", _ref("Pong"))},
            }
        },
        "/v1/ingest": _post("ingestTurn", "Keep one turn", "TurnPayload", 202, "Accepted"),
        "/v1/ingest/batch": _post(
            "ingestBatch",
            "Keep many turns, each with its own answer",
            "TurnBatch",
            200,
            "BatchAnswer",
        ),
        "/v1/ingest/transcript": _post(
            "ingestTranscript",
            "Keep an agent's own log",
            "TranscriptPayload",
            202,
            "TranscriptAccepted",
        ),
        "/v1/traces": _otlp("otlpTraces", "Spans over OTLP"),
        "/v1/logs": _otlp("otlpLogs", "Events of model calls over OTLP"),
        "/v1/metrics": _otlp("otlpMetrics", "Counted and not kept"),
    },
    "components": {"schemas": _SCHEMAS},
}
