"""Which session the spans of a trace belong to.

Rule 1: a trace lies in one session: that which one of its spans names; else that of the model call
        which the proxy saw and one of its spans names; else one of its own.
Rule 2: a span that names another conversation than its trace lies there, as a part of the trace
        with an id of its own.
Rule 3: the order of arrival does not matter: when a name comes late, what came before it moves.

Knows nothing of what spans say beside that.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from tapes.derive import genai
from tapes.envelope import ID_LIMIT, UNKNOWN, Envelope, cut
from tapes.ingest.otlp import (
    HARNESS,
    Form,
    Place,
    by_trace,
    clean,
    conversation_of,
    harness_of,
    response_id_of,
    turn_of,
)
from tapes.providers.turn import word
from tapes.redact import Redactor
from tapes.rows import RawTurn, session_id_of
from tapes.store.base import Ask, Correction, Project

_REMEMBERED = 10_000
_SHORTEST = 8  # of an id by which an answer is told from others


@dataclass(frozen=True, slots=True)
class Owner:
    """The session of a trace. One that is not `sure` may still be told another."""

    harness_id: str
    session: str
    sure: bool


class TraceSessions:
    """Places spans. Safe to use from many threads."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._owners: OrderedDict[str, Owner] = OrderedDict()
        self._lock = threading.Lock()

    def places(self, forms: Sequence[Form]) -> dict[tuple[str, str], Place]:
        """The place of each span, by trace and span id. Raises UnavailableStore."""
        found: dict[tuple[str, str], Place] = {}
        with self._lock:
            together = list(by_trace(forms))
            homes = self._homes(together) | self._named(together)
            for trace_id, its in together:
                owner = self._owner(trace_id, homes.get(trace_id))
                self._owners[trace_id] = owner
                self._owners.move_to_end(trace_id)
                for form in its:
                    found[trace_id, form["span_id"]] = _place(form, owner)
            while len(self._owners) > _REMEMBERED:
                self._owners.popitem(last=False)
        return found

    def settle(self, forms: Sequence[Form]) -> None:
        """Move what lies in a session of the trace's own and belongs elsewhere.

        To be called when the spans are kept.
        """
        own = {}
        for trace_id in {form["trace_id"] for form in forms}:
            owner = self._sure(trace_id)
            if owner is not None:
                own[self._own_session(trace_id)] = owner
        for session_id in self._project.with_turns(sorted(own)):
            self._move(session_id, own[session_id])

    def _owner(self, trace_id: str, home: Owner | None) -> Owner:
        known = self._sure(trace_id)
        return known or home or self._owners.get(trace_id) or Owner(UNKNOWN, trace_id, False)

    def _sure(self, trace_id: str) -> Owner | None:
        known = self._owners.get(trace_id)
        return known if known is not None and known.sure else None

    def _homes(self, together: Sequence[tuple[str, Sequence[Form]]]) -> dict[str, Owner]:
        """Where traces lie that no span places: by what is derived, else by their answers."""
        unsure = {
            trace_id: [id_ for id_ in map(response_id_of, its) if len(id_) >= _SHORTEST]
            for trace_id, its in together
            if self._sure(trace_id) is None and _naming(its) is None
        }
        if not unsure:
            return {}
        answers = sorted({id_ for ids in unsure.values() for id_ in ids})
        of_traces, of_answers = self._project.homes(sorted(unsure), answers)
        found = {}
        for trace_id, ids in unsure.items():
            homes = (of_traces.get(trace_id), *map(of_answers.get, ids))
            home = next((each for each in homes if each is not None), None)
            if home is not None:
                sure = home.harness_session_id != trace_id
                found[trace_id] = Owner(home.harness_id, home.harness_session_id, sure)
        return found

    def _named(self, together: Sequence[tuple[str, Sequence[Form]]]) -> dict[str, Owner]:
        """The sessions that spans of these traces name."""
        named = {
            trace_id: form
            for trace_id, its in together
            if self._sure(trace_id) is None and (form := _naming(its)) is not None
        }
        # Of one that tells no harness: that of the one session that is called so, if there is one.
        bare = {conversation_of(form) for form in named.values() if not harness_of(form)}
        known = self._project.harnesses(sorted(bare)) if bare else {}
        found = {}
        for trace_id, form in named.items():
            session = conversation_of(form)
            harness_id = harness_of(form) or known.get(session) or UNKNOWN
            found[trace_id] = Owner(harness_id, session, True)
        return found

    def _own_session(self, trace_id: str) -> str:
        return session_id_of(Envelope(org_id=self._project.org_id, harness_session_id=trace_id))

    def _move(self, own: str, owner: Owner) -> None:
        cursor = ""
        while True:
            page = self._project.turns(Ask(cursor=cursor, limit=200), session_id=own)
            for head in page.items:
                self._project.correct(
                    Correction(
                        head.id,
                        owner.harness_id,
                        owner.session,
                        reason="a later span of its trace names the conversation",
                    ),
                    by="otlp",
                )
            if page.next_cursor is None:
                return
            cursor = page.next_cursor


def _naming(forms: Sequence[Form]) -> Form | None:
    # Of a span and its log records, the span tells more: both are looked at.
    return next((form for form in forms if conversation_of(form)), None)


def _place(form: Form, owner: Owner) -> Place:
    session = conversation_of(form)
    if session and session != owner.session:
        part = hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()[:8]
        harness = harness_of(form) or UNKNOWN
        return Place(_envelope(form, harness, session), "otlp", part)
    envelope = _envelope(form, owner.harness_id, owner.session)
    return Place(envelope, "otlp" if owner.sure else "trace")


def _envelope(form: Form, harness_id: str, session: str) -> Envelope:
    """Of a session, with what an export of ours says of it."""
    held, tags = form["resource"], form["resource"].get(genai.SESSION_TAGS)
    is_ours = bool(word(held.get(HARNESS)))
    return Envelope(
        harness_id=harness_id,
        harness_session_id=session,
        harness_version=cut(word(held.get("service.version")), ID_LIMIT) if is_ours else "",
        name=cut(word(held.get(genai.SESSION_NAME)), ID_LIMIT),
        cwd=cut(word(held.get(genai.SESSION_CWD)), ID_LIMIT),
        auth_subject=cut(word(held.get(genai.SESSION_USER)), ID_LIMIT),
        harness_metadata={"tags": tags} if isinstance(tags, list) and tags else None,
    )


def turns_of_spans(
    forms: Sequence[Form], sessions: TraceSessions, redactor: Redactor
) -> list[RawTurn]:
    """The turns of spans, cleaned, each in its session. What was kept is to be settled after."""
    cleaned = [clean(form, redactor) for form in forms]
    places = sessions.places(cleaned)
    now = time.time_ns()
    return [turn_of(form, places[form["trace_id"], form["span_id"]], now) for form in cleaned]
