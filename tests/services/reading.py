"""A tiny read API over derived rows, on loopback, in the shapes of the contract."""

import contextlib
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tapes.derive.deriver import derive
from tapes.prices import Prices
from tapes.rows import SCHEMA, Link, Projection, RawTurn, Session, Span, Trace, time_text
from tests.derive.talks import conversation, with_thread
from tests.servers import Received, Server, Wire, answer
from tests.turns import assistant, call, messages, result, user

Json = Any
PAGE = 1  # so that clients have to follow cursors


def recorded() -> list[RawTurn]:
    """Three sessions: an agent that lists files, one with a subagent, and one about a test."""
    ask = user("why does test_invoice_total fail?")
    run = assistant("I run it.", call("t7", "Bash", command="pytest tests/test_invoice.py"))
    back = user(result("t7", "AssertionError: expected 42.00 but got 41.99", failed=True))
    done = assistant("A rounding error: the total is rounded before the tax is added.")
    sessions = {
        "files": conversation(),
        "widgets": with_thread(),
        "invoice": [messages(1, [ask], run), messages(2, [ask, run, back], done)],
    }
    turns, number = list[RawTurn](), 0
    for name, made in sessions.items():
        for raw in made:
            number += 1
            envelope = replace(raw.envelope, harness_session_id=name)
            turns.append(replace(raw, id=number, request_id=f"{name}{number}", envelope=envelope))
    return turns


def uuid_of(session: Session) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, session.id))


@dataclass
class ReadApi:
    """The rows that are served. A test may take sessions away, or refuse everything."""

    made: Projection
    token: str | None = None
    broken: bool = False
    asked: list[str] = field(default_factory=list)

    @property
    def ids(self) -> dict[str, str]:
        """The ids of sessions by the names that the agents gave them."""
        return {s.harness_session_id: uuid_of(s) for s in self.made.sessions}

    def without(self, name: str) -> None:
        kept = tuple(s for s in self.made.sessions if s.harness_session_id != name)
        self.made = replace(self.made, sessions=kept)

    def __call__(self, received: Received, wire: Wire) -> None:
        self.asked.append(received.target)
        given = received.header("authorization")
        if self.token is not None and given != f"Bearer {self.token}":
            answer(b'{"error":"no token"}', status=401)(received, wire)
            return
        found = None if self.broken else self._found(received.target)
        status = 500 if self.broken else 404 if found is None else 200
        body = {"error": "there is nothing"} if found is None else found
        answer(json.dumps(body).encode(), status=status)(received, wire)

    def _found(self, target: str) -> Json:
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        match parts.path.split("/")[1:]:
            case ["v1", "sessions"]:
                return self._page(int(query.get("cursor", "0")))
            case ["v1", "sessions", one]:
                session = self._session(one)
                return None if session is None else {"session": session_item(session)}
            case ["v1", "sessions", one, "traces"]:
                session = self._session(one)
                return None if session is None else whole(session, self.made)
            case ["v1", "traces", trace]:
                return self._trace(trace)
            case ["v1", "traces", trace, "spans", span]:
                found = [s for s in self.made.spans if (s.trace_id, s.span_id) == (trace, span)]
                return span_item(found[0]) if found else None
        return None

    def _page(self, start: int) -> Json:
        items = [session_item(s) for s in self.made.sessions[start : start + PAGE]]
        more = start + PAGE < len(self.made.sessions)
        return {"items": items, **({"next_cursor": str(start + PAGE)} if more else {})}

    def _session(self, session_id: str) -> Session | None:
        return next((s for s in self.made.sessions if uuid_of(s) == session_id), None)

    def _trace(self, trace_id: str) -> Json:
        found = [t for t in self.made.traces if t.trace_id == trace_id]
        spans = [span_item(s) for s in self.made.spans if s.trace_id == trace_id]
        if not found:
            return None
        return {"schema": SCHEMA, "trace": trace_item(found[0], len(spans)), "spans": spans}


@contextlib.contextmanager
def reading(token: str | None = None) -> Iterator[tuple[ReadApi, str]]:
    """A read API that listens, and its base URL."""
    served = ReadApi(derive(recorded(), Prices()), token)
    server = Server(served)
    try:
        yield served, server.url
    finally:
        server.close()


# --- rows as the contract has them ------------------------------------------------------------


def whole(session: Session, made: Projection) -> Json:
    own = made.of_session(session.id)
    return {
        "schema": SCHEMA,
        "session": session_item(session),
        "traces": [
            {
                "trace": trace_item(trace, sum(s.trace_id == trace.trace_id for s in own.spans)),
                "spans": [span_item(s) for s in own.spans if s.trace_id == trace.trace_id],
            }
            for trace in own.traces
        ],
        "links": [link_item(link) for link in own.links],
    }


def session_item(session: Session) -> Json:
    return {
        "id": uuid_of(session),
        "harness_id": session.harness_id,
        "harness_session_id": session.harness_session_id,
        "started_at": time_text(session.started_at),
        "last_seen_at": time_text(session.last_seen_at),
        "display_title": session.preview or session.harness_session_id,
        "live": False,
        "rollup": {
            "status": session.derived_status,
            "turn_count": session.turn_count,
            "kind_counts": dict(session.kind_counts),
            "tasks": [],
            "usage": {
                "input_tokens": session.total_input_tokens,
                "output_tokens": session.total_output_tokens,
                "cost_usd": None,
            },
        },
    }


def trace_item(trace: Trace, spans: int) -> Json:
    return {
        "trace_id": trace.trace_id,
        "user_prompt": trace.user_prompt,
        "status": str(trace.status),
        "source": trace.source,
        "started_at": time_text(trace.started_at),
        "duration_ns": trace.duration_ns,
        "span_count": spans,
    }


def span_item(span: Span) -> Json:
    return {
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_span_id": span.parent_span_id,
        "seq": span.seq,
        "kind": str(span.kind),
        "name": span.name,
        "status": str(span.status),
        "started_at": time_text(span.started_at),
        "duration_ns": span.duration_ns,
        "call_kind": span.call_kind,
        "model": span.model,
        "stop_reason": span.stop_reason,
        "thread_id": span.thread_id,
        "verdict": span.verdict,
        "input": list(span.input),
        "output": list(span.output),
        "usage": span.usage,
    }


def link_item(link: Link) -> Json:
    return {
        "kind": str(link.kind),
        "from_trace_id": link.from_trace_id,
        "from_span_id": link.from_span_id,
        "to_trace_id": link.to_trace_id,
        "to_span_id": link.to_span_id,
    }
