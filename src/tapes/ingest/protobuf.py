"""OTLP/protobuf → the same forms that OTLP/JSON gives, and the answers in protobuf.

Knows nothing of HTTP or stores.
"""

import base64
from collections.abc import Callable, Sequence
from typing import Any

from tapes.errors import BadEnvelope, MissingExtra
from tapes.ingest.otlp import Form, Received, Rejected, checked
from tapes.jsontext import MAX_DEPTH, Json

# Generated classes without useful types: what comes out of them is read member by member here.
messages: Any = None
try:
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

    messages = {
        "traces": (
            trace_service_pb2.ExportTraceServiceRequest,
            trace_service_pb2.ExportTraceServiceResponse,
        ),
        "logs": (
            logs_service_pb2.ExportLogsServiceRequest,
            logs_service_pb2.ExportLogsServiceResponse,
        ),
        "metrics": (
            metrics_service_pb2.ExportMetricsServiceRequest,
            metrics_service_pb2.ExportMetricsServiceResponse,
        ),
    }
except ImportError:  # OTLP/JSON is read all the same
    pass


def _parsed(signal: str, data: bytes) -> Any:
    if messages is None:
        raise MissingExtra(
            "OTLP in protobuf needs an extra that is not installed",
            "pip install 'tapes-py[otlp]', or send it as JSON",
        )
    message = messages[signal][0]()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise BadEnvelope(f"the body is no OTLP protobuf: {error}") from None
    return message


def spans_of(data: bytes) -> Received:
    """The spans of a request. Raises BadEnvelope or MissingExtra."""
    groups = (
        (of_resource.resource, of_scope.scope, of_scope.spans)
        for of_resource in _parsed("traces", data).resource_spans
        for of_scope in of_resource.scope_spans
    )
    return _received(groups, _span)


def logs_of(data: bytes) -> Received:
    """The log records of a request. Raises BadEnvelope or MissingExtra."""
    groups = (
        (of_resource.resource, of_scope.scope, of_scope.log_records)
        for of_resource in _parsed("logs", data).resource_logs
        for of_scope in of_resource.scope_logs
    )
    return _received(groups, _log)


def count_of(data: bytes) -> int:
    """How many data points a request of metrics has."""
    count = 0
    for of_resource in _parsed("metrics", data).resource_metrics:
        for of_scope in of_resource.scope_metrics:
            for metric in of_scope.metrics:
                kind = metric.WhichOneof("data")
                count += len(getattr(metric, kind).data_points) if kind else 0
    return count


def answer(signal: str, rejected: int, message: str) -> bytes:
    """The answer to a request, with what was rejected of it."""
    response = messages[signal][1]()
    names = {
        "traces": "rejected_spans",
        "logs": "rejected_log_records",
        "metrics": "rejected_data_points",
    }
    if rejected or message:
        setattr(response.partial_success, names[signal], rejected)
        response.partial_success.error_message = message
    data: bytes = response.SerializeToString()
    return data


def _received(groups: Any, read: Callable[[Any], Form]) -> Received:
    found = Received()
    for resource, scope, items in groups:
        about = {
            "resource": _attributes(resource.attributes),
            "scope": scope.name,
            "scope_version": scope.version,
        }
        for item in items:
            try:
                found.forms.append(checked(read(item) | about))
            except Rejected as why:
                found.rejected[str(why)] += 1
    return found


def _span(item: Any) -> Form:
    return {
        "trace_id": item.trace_id.hex(),
        "span_id": item.span_id.hex(),
        "parent_id": item.parent_span_id.hex(),
        "name": item.name,
        "kind": item.kind,
        "started": item.start_time_unix_nano,
        "ended": item.end_time_unix_nano,
        "attributes": _attributes(item.attributes),
        "events": [
            {
                "name": event.name,
                "time": event.time_unix_nano,
                "attributes": _attributes(event.attributes),
            }
            for event in item.events
        ],
        "links": [
            {
                "trace_id": link.trace_id.hex(),
                "span_id": link.span_id.hex(),
                "attributes": _attributes(link.attributes),
            }
            for link in item.links
        ],
        "status": item.status.code,
        "message": item.status.message,
    }


def _log(item: Any) -> Form:
    attributes = _attributes(item.attributes)
    named = attributes.get("event.name")
    return {
        "trace_id": item.trace_id.hex(),
        "span_id": item.span_id.hex(),
        "event": item.event_name or (named if isinstance(named, str) else ""),
        "started": item.time_unix_nano or item.observed_time_unix_nano,
        "attributes": attributes,
        "body": _value(item.body),
    }


def _attributes(pairs: Sequence[Any], depth: int = 0) -> Form:
    return {pair.key: _value(pair.value, depth) for pair in pairs}


def _value(value: Any, depth: int = 0) -> Json:
    if depth > MAX_DEPTH:
        raise Rejected("nested too deeply")
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    held: Any = getattr(value, kind)
    if kind == "array_value":
        return [_value(item, depth + 1) for item in held.values]
    if kind == "kvlist_value":
        return _attributes(held.values, depth + 1)
    if kind == "bytes_value":
        return base64.b64encode(held).decode()
    return held


def status(code: int, text: str) -> bytes:
    """The two members of a `google.rpc.Status` that an error of OTLP has."""
    raw = text.encode("utf-8", "replace")
    return b"\x08" + _varint(code) + b"\x12" + _varint(len(raw)) + raw


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
