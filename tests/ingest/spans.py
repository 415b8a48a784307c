"""Spans in OTLP/JSON, made from what a test wants to say."""

from typing import Any

from tapes.jsontext import Json

NOW = 1_785_000_000_000_000_000
T1 = "a" * 32


def span(
    number: str,
    given: Json = None,
    *,
    trace: str = T1,
    parent: str = "",
    at: int = NOW,
    ends: int | None = None,
    name: str = "work",
    events: list[Json] | None = None,
    status: int = 0,
) -> dict[str, Any]:
    """A span that takes a second; `number` is a hex digit that makes its id."""
    return {
        "traceId": trace,
        "spanId": number * 16,
        "parentSpanId": parent * 16,
        "name": name,
        "kind": 3,
        "startTimeUnixNano": str(at),
        "endTimeUnixNano": str(at + 1_000_000_000 if ends is None else ends),
        "attributes": attributes(given or {}),
        "events": events or [],
        "status": {"code": status},
    }


def attributes(given: dict[str, Json]) -> list[Json]:
    return [{"key": name, "value": value_of(value)} for name, value in given.items()]


def value_of(value: Json) -> Json:
    """The AnyValue of a value."""
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [value_of(item) for item in value]}}
        case dict():
            return {"kvlistValue": {"values": attributes(value)}}
    return {"stringValue": value}


def request(*spans: Json, scope: str = "my.lib", **resource: Json) -> dict[str, Any]:
    """A request with these spans."""
    of_scope = {"scope": {"name": scope}, "spans": list(spans)}
    about = {"attributes": attributes(resource)}
    return {"resourceSpans": [{"resource": about, "scopeSpans": [of_scope]}]}
