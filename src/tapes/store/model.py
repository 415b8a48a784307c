"""Writes the read model: the rows of one session in the place of those that were there.

Rule 1: what did not change is not written. Only rows that did get the number of this change.
Rule 2: numbers of changes are given one after another: who reads up to a number has missed nothing
        below it.
Rule 3: the index of words has the words of exactly the rows that are there.

Knows nothing of deriving.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Table, and_, bindparam, delete, select, true, update

from tapes.rows import Link, Projection, Session, Span, SpanKind
from tapes.store.database import Database, Words
from tapes.store.modelforms import (
    link_values,
    place_of,
    session_of,
    session_values,
    span_of,
    span_values,
    trace_values,
)
from tapes.store.spantexts import Said, said_by, said_of
from tapes.store.tables import (
    changes,
    clocks,
    facets,
    links,
    notes,
    raw_turns,
    session_parents,
    sessions,
    skips,
    spans,
    tags,
    traces,
)
from tapes.store.words import terms_of_all

Item = TypeVar("Item")
SpanKey = tuple[str, str]
LinkKey = tuple[str, str, str, str, str, str]


def chunks(items: Sequence[Item], size: int = 500) -> Iterator[Sequence[Item]]:
    """A sequence in parts that one statement takes."""
    return (items[start : start + size] for start in range(0, len(items), size))


def words_of(place: int, org_id: str, said: Iterable[Said]) -> Words:
    """The words of a row."""
    texts = list(said)
    prompt = terms_of_all(each.text for each in texts if each.is_prompt)
    rest = terms_of_all(each.text for each in texts if not each.is_prompt)
    return Words(place, org_id, frozenset(prompt), frozenset(rest - prompt))


def link_key(link: Link) -> LinkKey:
    """What tells a link from others."""
    source = (link.from_trace_id, link.from_span_id, link.from_io)
    return (*source, link.to_trace_id, link.to_span_id, link.to_io)


@dataclass(slots=True)
class Stored:
    """What a database has of a session: hashes and places by key."""

    session: str | None = None
    session_place: int | None = None
    traces: dict[str, str] = field(default_factory=dict)
    spans: dict[SpanKey, tuple[str, int]] = field(default_factory=dict)
    links: dict[LinkKey, str] = field(default_factory=dict)


class ModelWriter:
    """Writes rows of one session of one tenant, in a transaction that is open."""

    def __init__(
        self, database: Database, connection: Connection, org_id: str, session_id: str
    ) -> None:
        self._database, self._connection = database, connection
        self._org, self._session = org_id, session_id
        self._seq = 0

    def replace(self, rows: Projection) -> int:
        """Put these rows in the place of the session's; gives the number of rows that changed."""
        stored = self._stored()
        own = [s for s in rows.sessions if s.id == self._session and not s.placeholder]
        parents = [s for s in rows.sessions if s.placeholder]
        new_spans = [(span, span_values(span)) for span in rows.spans]
        changed_spans = [
            (span, values)
            for span, values in new_spans
            if _hash_in(stored.spans, (span.trace_id, span.span_id)) != values["content_hash"]
        ]
        all_traces = [(trace, trace_values(trace)) for trace in rows.traces]
        changed_traces = [
            values
            for t, values in all_traces
            if stored.traces.get(t.trace_id) != values["content_hash"]
        ]
        gone_traces = stored.traces.keys() - {trace.trace_id for trace in rows.traces}
        gone_spans = stored.spans.keys() - {(s.trace_id, s.span_id) for s in rows.spans}
        new_links = {link_key(link): link for link in rows.links}
        changed_links = [
            link for key, link in new_links.items() if stored.links.get(key) != link.kind.value
        ]
        gone_links = stored.links.keys() - new_links.keys()
        session = session_values(own[0]) if own else None
        session_changed = stored.session != (session["content_hash"] if session else None)
        parts = (changed_spans, changed_traces, gone_traces, gone_spans, changed_links, gone_links)
        count = sum(len(part) for part in parts) + session_changed
        self._replace_skips(rows)
        if not count:
            return 0
        self._seq = self.next_seq()
        self._take_over(
            stored, [t.trace_id for t in rows.traces if t.trace_id not in stored.traces]
        )
        self._write_traces(changed_traces, gone_traces)
        self._write_spans(stored, changed_spans, gone_spans)
        self._write_links(changed_links, gone_links)
        self._write_facets(own, rows)
        if session_changed:
            self._write_session(stored, own, session)
        self._write_parents(parents)
        self.note_change(erased=False)
        return count

    # --- what is there

    def _mine(self, table: Table) -> Any:
        return and_(table.c.org_id == self._org, table.c.session_id == self._session)

    def _stored(self) -> Stored:
        ask = self._connection.execute
        found = ask(
            select(sessions.c.content_hash, sessions.c.place, sessions.c.placeholder).where(
                sessions.c.org_id == self._org, sessions.c.id == self._session
            )
        ).first()
        stored = Stored()
        if found is not None:
            stored.session_place = found.place
            stored.session = "" if found.placeholder else found.content_hash
        stored.traces = dict(
            ask(select(traces.c.trace_id, traces.c.content_hash).where(self._mine(traces))).all()
        )
        columns = (spans.c.trace_id, spans.c.span_id, spans.c.content_hash, spans.c.place)
        for row in ask(select(*columns).where(self._mine(spans))):
            stored.spans[row.trace_id, row.span_id] = (row.content_hash, row.place)
        for link in ask(select(links).where(self._mine(links))):
            key = (
                link.from_trace_id, link.from_span_id, link.from_io,
                link.to_trace_id, link.to_span_id, link.to_io,
            )  # fmt: skip
            stored.links[key] = link.kind
        return stored

    def _take_over(self, stored: Stored, trace_ids: Sequence[str]) -> None:
        """Traces that were another session's, before it was known whose they are, become ours."""
        columns = (spans.c.trace_id, spans.c.span_id, spans.c.content_hash, spans.c.place)
        for some in chunks(trace_ids):
            ask = select(*columns).where(
                spans.c.org_id == self._org,
                spans.c.trace_id.in_(some),
                spans.c.session_id != self._session,
            )
            for row in self._connection.execute(ask):
                stored.spans[row.trace_id, row.span_id] = ("", row.place)

    # --- numbers of changes

    def next_seq(self) -> int:
        """The number of this change. Whoever has it holds the tenant's clock until he is done."""
        seq = self._connection.execute(_TICK, {"org": self._org}).scalar()
        if seq is not None:
            return int(seq)
        insert = self._database.insert(clocks).on_conflict_do_nothing()
        self._connection.execute(insert, {"org_id": self._org, "seq": 0})
        return int(self._connection.execute(_TICK, {"org": self._org}).scalar_one())

    def note_change(self, *, erased: bool) -> None:
        """The session changed, and when."""
        self._seq = self._seq or self.next_seq()
        statement = self._database.insert(changes)
        values = {"seq": self._seq, "erased": erased, "at": time.time_ns()}
        self._connection.execute(
            statement.on_conflict_do_update(
                index_elements=[changes.c.org_id, changes.c.session_id], set_=values
            ),
            {"org_id": self._org, "session_id": self._session, **values},
        )

    # --- traces, links, skips

    def _write_traces(self, changed: Sequence[dict[str, Any]], gone: Iterable[str]) -> None:
        out = [
            {"o": self._org, "t": trace_id}
            for trace_id in (*gone, *(t["trace_id"] for t in changed))
        ]
        if out:
            self._connection.execute(_DROP_TRACE, out)
        if changed:
            rows = [self._owned(values) for values in changed]
            self._connection.execute(traces.insert(), rows)

    def _owned(self, values: dict[str, Any]) -> dict[str, Any]:
        return values | {
            "org_id": self._org, "session_id": self._session, "derive_seq": self._seq
        }  # fmt: skip

    def _write_links(self, changed: Sequence[Link], gone: Iterable[LinkKey]) -> None:
        out = [*gone, *map(link_key, changed)]
        if out:
            keys = [dict(zip("abcdef", key, strict=True)) | {"o": self._org} for key in out]
            self._connection.execute(_DROP_LINK, keys)
        if changed:
            rows = [
                link_values(link) | {"org_id": self._org, "session_id": self._session}
                for link in changed
            ]
            self._connection.execute(links.insert(), rows)

    def _replace_skips(self, rows: Projection) -> None:
        mine = {skip.raw_turn_id: skip.reason for skip in rows.skipped if skip.raw_turn_id}
        ask = select(skips.c.raw_turn_id, skips.c.reason).where(self._mine(skips))
        if dict(self._connection.execute(ask).all()) == mine:
            return
        self._connection.execute(delete(skips).where(self._mine(skips)))
        if mine:
            owned = {"org_id": self._org, "session_id": self._session}
            values = [owned | {"raw_turn_id": n, "reason": why} for n, why in mine.items()]
            self._connection.execute(skips.insert(), values)

    # --- spans and their words

    def _write_spans(
        self,
        stored: Stored,
        changed: Sequence[tuple[Span, dict[str, Any]]],
        gone: Iterable[SpanKey],
    ) -> None:
        changed_keys = [(span.trace_id, span.span_id) for span, _ in changed]
        out = [stored.spans[key][1] for key in (*gone, *changed_keys) if key in stored.spans]
        old = self._old_words(out)
        if out:
            self._connection.execute(_DROP_SPAN, [{"p": place, "o": self._org} for place in out])
        places = self._places(stored, changed)
        rows, new = list[dict[str, Any]](), list[Words]()
        for (span, values), place in zip(changed, places, strict=True):
            rows.append(self._owned(values) | {"place": place})
            words = words_of(place, self._org, said_by(span))
            if words.prompt or words.rest:
                new.append(words)
        if rows:
            self._connection.execute(spans.insert(), rows)
        self._database.span_words.replace(self._connection, old, new)

    def _old_words(self, places: Sequence[int]) -> list[Words]:
        """The words of rows that are about to go, as they were taken in."""
        words = list[Words]()
        for some in chunks(places):
            ask = select(spans).where(spans.c.place.in_(some), spans.c.org_id == self._org)
            for row in self._connection.execute(ask).mappings():
                words.append(words_of(row["place"], self._org, said_by(span_of(row))))
        return [each for each in words if each.prompt or each.rest]

    def _places(self, stored: Stored, changed: Sequence[tuple[Span, dict[str, Any]]]) -> list[int]:
        places, wanted = list[int](), list[int]()
        for span, _ in changed:
            known = stored.spans.get((span.trace_id, span.span_id))
            place = (
                known[1]
                if known is not None
                else place_of(span.started_at, self._org, span.trace_id, span.span_id)
            )
            places.append(place)
            if known is None:
                wanted.append(place)
        taken = self._taken(spans, wanted)
        mine: set[int] = set()
        for number, (span, _) in enumerate(changed):
            if (span.trace_id, span.span_id) not in stored.spans:
                while places[number] in taken or places[number] in mine:
                    places[number] += 1
                    taken |= self._taken(spans, [places[number]])
                mine.add(places[number])
        return places

    def _taken(self, table: Table, places: Sequence[int]) -> set[int]:
        taken: set[int] = set()
        for some in chunks(places):
            ask = select(table.c.place).where(table.c.place.in_(some))
            taken |= set(self._connection.execute(ask).scalars())
        return taken

    # --- the session

    def _write_session(
        self, stored: Stored, own: Sequence[Session], values: dict[str, Any] | None
    ) -> None:
        self.forget_session_words()
        mine = and_(sessions.c.org_id == self._org, sessions.c.id == self._session)
        self._connection.execute(delete(sessions).where(mine))
        if values is None:
            if stored.session:
                self.settle()  # others may name it
            return
        place = stored.session_place
        if place is None:
            place = place_of(own[0].started_at, self._org, self._session)
            while self._taken(sessions, [place]):
                place += 1
        self._connection.execute(
            sessions.insert(),
            values | {"org_id": self._org, "derive_seq": self._seq, "place": place},
        )
        self.remember_session_words()

    def _session_words(self) -> list[Words]:
        found = self._connection.execute(
            select(sessions).where(sessions.c.org_id == self._org, sessions.c.id == self._session)
        ).mappings()
        row = found.first()
        if row is None:
            return []
        called = select(notes.c.display_name).where(self._mine(notes))
        tagged = select(tags.c.tag).where(self._mine(tags))
        said = said_of(
            session_of(row),
            self._connection.execute(called).scalar() or "",
            self._connection.execute(tagged).scalars().all(),
        )
        words = words_of(row["place"], self._org, said)
        return [words] if words.prompt or words.rest else []

    def forget_session_words(self) -> None:
        """Before anything changes that the session is known by."""
        self._database.session_words.replace(self._connection, self._session_words(), ())

    def remember_session_words(self) -> None:
        """After it changed."""
        self._database.session_words.replace(self._connection, (), self._session_words())

    def _write_facets(self, own: Sequence[Session], rows: Projection) -> None:
        new = facets_of(own[0], rows.spans) if own else set()
        ask = select(facets.c.name, facets.c.value).where(self._mine(facets))
        old = {(row.name, row.value) for row in self._connection.execute(ask)}
        out = [{"n": n, "v": v, "o": self._org, "s": self._session} for n, v in old - new]
        if out:
            self._connection.execute(_DROP_FACET, out)
        owned = {"org_id": self._org, "session_id": self._session}
        if new - old:
            values = [owned | {"name": n, "value": v} for n, v in sorted(new - old)]
            self._connection.execute(facets.insert(), values)

    # --- sessions that are only named

    def _write_parents(self, parents: Sequence[Session]) -> None:
        ask = select(session_parents.c.parent_id).where(self._mine(session_parents))
        before = set(self._connection.execute(ask).scalars())
        self._connection.execute(delete(session_parents).where(self._mine(session_parents)))
        if parents:
            owned = {"org_id": self._org, "session_id": self._session}
            values = [
                owned
                | {
                    "parent_id": parent.id,
                    "harness_id": parent.harness_id,
                    "harness_session_id": parent.harness_session_id,
                    "started_at": parent.started_at,
                }
                for parent in parents
            ]
            self._connection.execute(session_parents.insert(), values)
        for parent_id in sorted(before | {parent.id for parent in parents}):
            ModelWriter(self._database, self._connection, self._org, parent_id).settle()

    def erase(self) -> None:
        """Take all rows of the session away."""
        self.replace(Projection())
        self.forget_session_words()  # of what is left: a placeholder that others name
        gone = and_(sessions.c.org_id == self._org, sessions.c.id == self._session)
        self._connection.execute(delete(sessions).where(gone))
        self.note_change(erased=True)

    def settle(self) -> None:
        """Be a placeholder where others name the session and nothing came of it; else be not."""
        row = self._connection.execute(
            select(sessions.c.placeholder, sessions.c.content_hash, sessions.c.place).where(
                sessions.c.org_id == self._org, sessions.c.id == self._session
            )
        ).first()
        if row is not None and not row.placeholder:
            return
        named = self._connection.execute(
            select(session_parents)
            .where(
                session_parents.c.org_id == self._org,
                session_parents.c.parent_id == self._session,
            )
            .order_by(session_parents.c.started_at, session_parents.c.session_id)
            .limit(1)
        ).first()
        own = [] if named is None else [_placeholder(self._org, self._session, named)]
        values = session_values(own[0]) if own else None
        if (values and values["content_hash"]) == (row and row.content_hash):
            return
        self._seq = self.next_seq()
        self._write_session(Stored(session_place=row.place if row else None), own, values)
        self.note_change(erased=False)


def _placeholder(org_id: str, session_id: str, named: Row[Any]) -> Session:
    return Session(
        id=session_id,
        org_id=org_id,
        harness_id=named.harness_id,
        harness_session_id=named.harness_session_id,
        placeholder=True,
        started_at=named.started_at,
        last_seen_at=named.started_at,
    )


def strays(connection: Connection, org_id: str) -> Iterator[str]:
    """Rows with no turn behind them, and placeholders of what is not named or is there."""
    of_log = select(raw_turns.c.session_id).where(
        raw_turns.c.org_id == org_id, raw_turns.c.session_id.is_not(None)
    )
    real = sessions.c.placeholder.is_(False)
    for table, column, more in (
        (sessions, sessions.c.id, real),
        (traces, traces.c.session_id, true()),
        (spans, spans.c.session_id, true()),
        (links, links.c.session_id, true()),
        (session_parents, session_parents.c.session_id, true()),
    ):
        ask = select(column).where(table.c.org_id == org_id, more, column.not_in(of_log))
        for session_id in connection.execute(ask.distinct()).scalars():
            yield f"{table.name} of {session_id}: no turn is behind it"
    named = select(session_parents.c.parent_id).where(session_parents.c.org_id == org_id)
    mine = sessions.c.org_id == org_id
    there = select(sessions.c.id).where(mine)
    unnamed = select(sessions.c.id).where(mine, sessions.c.placeholder, sessions.c.id.not_in(named))
    for session_id in connection.execute(unnamed).scalars():
        yield f"session {session_id}: nobody names the placeholder"
    for session_id in connection.execute(
        named.distinct().where(session_parents.c.parent_id.not_in(there))
    ).scalars():
        yield f"session {session_id}: is named and has no placeholder"


def index_all(database: Database, connection: Connection) -> None:
    """Take all words in anew."""
    database.span_words.forget_all(connection)
    database.session_words.forget_all(connection)
    after = -1
    ask = select(spans).order_by(spans.c.place).limit(500)
    while rows := connection.execute(ask.where(spans.c.place > after)).mappings().all():
        words = (words_of(row["place"], row["org_id"], said_by(span_of(row))) for row in rows)
        database.span_words.replace(connection, (), [w for w in words if w.prompt or w.rest])
        after = rows[-1]["place"]
    for org_id, session_id in connection.execute(select(sessions.c.org_id, sessions.c.id)).all():
        ModelWriter(database, connection, org_id, session_id).remember_session_words()


def facets_of(session: Session, its_spans: Iterable[Span]) -> set[tuple[str, str]]:
    """What there is in a session, by name of the field."""
    found: set[tuple[str, str]] = set()
    for span in its_spans:
        if span.kind is SpanKind.LLM:
            found |= {
                ("model", span.model), ("model", span.request_model), ("provider", span.provider),
                ("outcome", span.outcome), ("stop", span.stop_reason),
            }  # fmt: skip
        elif span.kind is SpanKind.TOOL:
            found.add(("tool", span.name))
        found |= {
            ("agent", span.agent), ("kind", span.call_kind), ("error", span.error_type),
            ("span_status", span.status.value if span.status.value != "ok" else ""),
        }  # fmt: skip
    found |= {("agent", session.agent_name), ("harness", session.harness_id)}
    said: object = session.harness_metadata
    given = said.get("tags") if isinstance(said, Mapping) else None
    if isinstance(given, list):
        found |= {("tag", tag) for tag in given if isinstance(tag, str)}
    return {(name, value) for name, value in found if value}


def _hash_in(known: Mapping[SpanKey, tuple[str, int]], key: SpanKey) -> str | None:
    found = known.get(key)
    return None if found is None else found[0]


_TICK = (
    update(clocks)
    .where(clocks.c.org_id == bindparam("org"))
    .values(seq=clocks.c.seq + 1)
    .returning(clocks.c.seq)
)
_DROP_TRACE = delete(traces).where(
    traces.c.org_id == bindparam("o"), traces.c.trace_id == bindparam("t")
)
_DROP_SPAN = delete(spans).where(spans.c.place == bindparam("p"), spans.c.org_id == bindparam("o"))
_DROP_LINK = delete(links).where(
    links.c.org_id == bindparam("o"),
    *(
        column == bindparam(name)
        for name, column in zip(
            "abcdef",
            (
                links.c.from_trace_id, links.c.from_span_id, links.c.from_io,
                links.c.to_trace_id, links.c.to_span_id, links.c.to_io,
            ),
            strict=True,
        )
    ),
)  # fmt: skip
_DROP_FACET = delete(facets).where(
    facets.c.org_id == bindparam("o"),
    facets.c.name == bindparam("n"),
    facets.c.value == bindparam("v"),
    facets.c.session_id == bindparam("s"),
)
