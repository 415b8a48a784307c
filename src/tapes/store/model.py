"""Writes the read model: the rows of sessions in the place of those that were there.

Rule 1: what did not change is not written. Only rows that did get the number of this change.
Rule 2: numbers of changes are given one after another: who reads up to a number has missed nothing
        below it.
Rule 3: the index of words has the words of exactly the rows that are there.
Rule 4: many sessions take as many statements as one: a table is read once and written once.

Knows nothing of deriving.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Row,
    Table,
    bindparam,
    delete,
    select,
    update,
)

from tapes.rows import Projection, Session, content_hash
from tapes.store.database import Database, WordIndex, Words
from tapes.store.edits import Edit, LinkKey, Stored, facets_of, link_key, span_key
from tapes.store.modelforms import (
    held,
    link_values,
    place_of,
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
    session_parents,
    sessions,
    skips,
    spans,
    tags,
    traces,
)
from tapes.store.words import terms_of_all

Item = TypeVar("Item")


def chunks(items: Sequence[Item], size: int = 500) -> Iterator[Sequence[Item]]:
    """A sequence in parts that one statement takes."""
    return (items[start : start + size] for start in range(0, len(items), size))


def words_of(place: int, org_id: str, said: Iterable[Said]) -> Words:
    """The words of a row."""
    texts = list(said)
    prompt = terms_of_all(each.text for each in texts if each.is_prompt)
    rest = terms_of_all(each.text for each in texts if not each.is_prompt)
    return Words(place, org_id, frozenset(prompt), frozenset(rest - prompt))


class ModelWriter:
    """Writes rows of sessions of one tenant, in a transaction that is open."""

    def __init__(self, database: Database, connection: Connection, org_id: str) -> None:
        self._database, self._connection, self._org = database, connection, org_id

    def replace(self, made: Mapping[str, Projection]) -> int:
        """Put these rows in the place of each session's; gives the number of rows that changed."""
        stored = self._stored(sorted(made))
        all_edits = [Edit(each, held(made[each]), stored[each]) for each in sorted(made)]
        self._write_skips([edit for edit in all_edits if edit.skips != edit.stored.skips])
        edits = [edit for edit in all_edits if edit.count]
        if not edits:
            return 0
        for edit, seq in zip(edits, self._next_seqs(len(edits)), strict=True):
            edit.seq = seq
        self._take_over(edits)
        self._write_traces(edits)
        self._write_spans(edits)
        self._write_links(edits)
        self._write_facets(edits)
        self._write_sessions([edit for edit in edits if edit.has_other_session])
        self._write_parents(edits)
        self._note_changes([(edit.session_id, edit.seq) for edit in edits], erased=False)
        return sum(edit.count for edit in edits)

    # --- what is there

    def _rows_of(self, ask: "_Ask", session_ids: Sequence[str]) -> list[Sequence[Any]]:
        return self._database.rows_among(self._connection, *ask, session_ids, o=self._org)

    def _stored(self, session_ids: Sequence[str]) -> dict[str, Stored]:
        found = {session_id: Stored() for session_id in session_ids}
        for session_id, hashed, place, placeholder in self._rows_of(_HEADS, session_ids):
            found[session_id].session_place = place
            found[session_id].session = "" if placeholder else hashed
        for session_id, trace_id, hashed in self._rows_of(_TRACES, session_ids):
            found[session_id].traces[trace_id] = hashed
        for session_id, trace_id, span_id, hashed, place in self._rows_of(_SPANS, session_ids):
            found[session_id].spans[trace_id, span_id] = (hashed, place)
        for session_id, kind, *key in self._rows_of(_LINKS, session_ids):
            found[session_id].links[_link_key(key)] = kind
        for session_id, turn_id, reason in self._rows_of(_SKIPS, session_ids):
            found[session_id].skips[turn_id] = reason
        for session_id, name, value in self._rows_of(_FACETS, session_ids):
            found[session_id].facets.add((name, value))
        for session_id, parent_id, *said in self._rows_of(_PARENTS, session_ids):
            found[session_id].parents[parent_id] = (said[0], said[1], said[2])
        return found

    def _take_over(self, edits: Sequence[Edit]) -> None:
        """Traces that were another session's, before it was known whose they are, become ours."""
        new = {
            trace.trace_id: edit
            for edit in edits
            for trace in edit.rows.traces
            if trace.trace_id not in edit.stored.traces
        }
        for trace_id, span_id, session_id, place in self._rows_of(_OF_TRACES, list(new)):
            edit = new[trace_id]
            if session_id != edit.session_id:
                edit.stored.spans[trace_id, span_id] = ("", place)

    # --- numbers of changes

    def _next_seqs(self, count: int) -> range:
        """Numbers of changes. Whoever has them holds the tenant's clock until he is done."""
        tick = {"org": self._org, "count": count}
        last = self._connection.execute(_TICK, tick).scalar()
        if last is None:
            insert = self._database.insert(clocks).on_conflict_do_nothing()
            self._connection.execute(insert, {"org_id": self._org, "seq": 0})
            last = self._connection.execute(_TICK, tick).scalar_one()
        return range(int(last) - count + 1, int(last) + 1)

    def note_change(self, session_id: str, *, erased: bool) -> None:
        """The session changed, and when."""
        self._note_changes([(session_id, self._next_seqs(1)[0])], erased=erased)

    def _note_changes(self, changed: Sequence[tuple[str, int]], *, erased: bool) -> None:
        now = time.time_ns()
        statement = self._database.insert(changes)
        said = statement.excluded
        self._connection.execute(
            statement.on_conflict_do_update(
                index_elements=[changes.c.org_id, changes.c.session_id],
                set_={"seq": said.seq, "erased": said.erased, "at": said.at},
            ),
            [
                {"org_id": self._org, "session_id": each, "seq": seq, "erased": erased, "at": now}
                for each, seq in changed
            ],
        )

    # --- traces, links, skips

    def _run(self, statement: Any, values: Sequence[Mapping[str, Any]]) -> None:
        if values:
            self._connection.execute(statement, values)

    def _drop(self, drop: "_Ask", keys: Sequence[Any]) -> None:
        """Delete rows by what tells them apart."""
        self._database.run_among(self._connection, *drop, keys, o=self._org)

    def _insert(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            self._database.insert_rows(self._connection, table, rows)

    def _owned(self, edit: Edit, values: Mapping[str, Any]) -> dict[str, Any]:
        return {**values, "org_id": self._org, "session_id": edit.session_id}

    def _numbered(self, edit: Edit, values: dict[str, Any]) -> dict[str, Any]:
        values["org_id"], values["session_id"] = self._org, edit.session_id
        values["derive_seq"] = edit.seq
        return values

    def _write_traces(self, edits: Sequence[Edit]) -> None:
        out = {t for edit in edits for t in edit.gone_traces}
        out |= {trace.trace_id for edit in edits for trace, _ in edit.traces}
        self._drop(_DROP_TRACES, sorted(out))
        self._insert(
            traces,
            [
                self._numbered(edit, trace_values(trace, hashed))
                for edit in edits
                for trace, hashed in edit.traces
            ],
        )

    def _write_links(self, edits: Sequence[Edit]) -> None:
        out = {key for edit in edits for key in edit.gone_links}
        out |= {link_key(link) for edit in edits for link in edit.links}
        keys = [dict(zip("abcdef", key, strict=True)) | {"o": self._org} for key in sorted(out)]
        self._run(_DROP_LINK, keys)
        rows = [self._owned(edit, link_values(link)) for edit in edits for link in edit.links]
        self._insert(links, rows)

    def _write_skips(self, edits: Sequence[Edit]) -> None:
        mine = [{"o": self._org, "s": edit.session_id} for edit in edits if edit.stored.skips]
        self._run(_DROP_SKIPS, mine)
        self._insert(
            skips,
            [
                self._owned(edit, {"raw_turn_id": turn_id, "reason": why})
                for edit in edits
                for turn_id, why in edit.skips.items()
            ],
        )

    # --- spans and their words

    def _write_spans(self, edits: Sequence[Edit]) -> None:
        out = {
            edit.stored.spans[key][1]
            for edit in edits
            for key in chain(edit.gone_spans, (span_key(span) for span, _ in edit.spans))
            if key in edit.stored.spans
        }
        old = self._span_words(sorted(out))
        self._drop(_DROP_SPANS, sorted(out))
        places = iter(self._places(edits))
        rows, new = list[dict[str, Any]](), list[Words]()
        for edit in edits:
            for (span, hashed), place in zip(edit.spans, places, strict=False):
                rows.append(self._numbered(edit, span_values(span, hashed)) | {"place": place})
                new.append(words_of(place, self._org, said_by(span)))
        self._insert(spans, rows)
        reword(self._database.span_words, self._connection, old, new)

    def _span_words(self, places: Sequence[int]) -> list[Words]:
        """The words of rows that are about to go, as they were taken in."""
        return [
            words_of(row["place"], self._org, said_by(span_of(row)))
            for some in chunks(places)
            for row in self._connection.execute(_AT, {"o": self._org, "p": some}).mappings()
        ]

    def _places(self, edits: Sequence[Edit]) -> list[int]:
        """Where each changed span stands: where it stood, or at the next free place of its time."""
        known = [edit.stored.spans.get(span_key(span)) for edit in edits for span, _ in edit.spans]
        new = [
            place_of(span.started_at, self._org, span.trace_id, span.span_id)
            for edit in edits
            for span, _ in edit.spans
        ]
        places = [new if was is None else was[1] for was, new in zip(known, new, strict=True)]
        wanted = [place for was, place in zip(known, places, strict=True) if was is None]
        taken = self._taken(spans, wanted) | {was[1] for was in known if was is not None}
        for number, was in enumerate(known):
            if was is None:
                places[number] = self._free(spans, places[number], taken)
                taken.add(places[number])
        return places

    def _free(self, table: Table, place: int, taken: set[int]) -> int:
        while place in taken:
            place += 1
            taken |= self._taken(table, [place])
        return place

    def _taken(self, table: Table, places: Sequence[int]) -> set[int]:
        taken = self._database.rows_among(self._connection, *_TAKEN[table.name], places)
        return {place for (place,) in taken}

    # --- the session

    def _write_sessions(self, edits: Sequence[Edit]) -> None:
        heads = [_Head(e.session_id, e.own, e.hash, e.stored.session_place, e.seq) for e in edits]
        self._write_heads(heads)
        for edit in edits:
            if edit.own is None and edit.stored.session:
                self.settle(edit.session_id)  # others may name it

    def _write_heads(self, heads: Sequence["_Head"]) -> None:
        if not heads:
            return
        ids = [head.session_id for head in heads]
        renamed = self._renamed(heads)
        old = self._session_words(renamed)
        self._drop(_DROP_SESSIONS, ids)
        given = {
            head.session_id: place_of(head.row.started_at, self._org, head.session_id)
            for head in heads
            if head.row is not None and head.place is None
        }
        taken = self._taken(sessions, list(given.values()))
        taken |= {head.place for head in heads if head.place is not None}
        rows = []
        for head in heads:
            if head.row is not None:
                place = head.place
                if place is None:
                    place = self._free(sessions, given[head.session_id], taken)
                    taken.add(place)
                own = {"org_id": self._org, "derive_seq": head.seq, "place": place}
                rows.append(session_values(head.row, head.hash) | own)
        self._insert(sessions, rows)
        reword(self._database.session_words, self._connection, old, self._session_words(renamed))

    def _renamed(self, heads: Sequence["_Head"]) -> list[str]:
        """Of these sessions those that are known by other words than before, or by none before."""
        ids = [head.session_id for head in heads]
        before = {row[0]: _named(row) for row in self._rows_of(_NAMED, ids)}
        return [
            head.session_id
            for head in heads
            if head.row is None
            or head.session_id not in before
            or _names(before[head.session_id]) != _names(head.row)
        ]

    def _session_words(self, session_ids: Sequence[str]) -> list[Words]:
        called = {row[0]: row[1] for row in self._rows_of(_CALLED, session_ids)}
        tagged: dict[str, list[str]] = {}
        for session_id, tag in self._rows_of(_TAGGED, session_ids):
            tagged.setdefault(session_id, []).append(tag)
        return [
            words_of(
                row[1],
                self._org,
                said_of(_named(row), called.get(row[0]) or "", tagged.get(row[0], ())),
            )
            for row in self._rows_of(_NAMED, session_ids)
        ]

    def forget_words(self, session_id: str) -> None:
        """Before anything changes that the session is known by."""
        old = self._session_words([session_id])
        reword(self._database.session_words, self._connection, old, ())

    def remember_words(self, session_id: str) -> None:
        """After it changed."""
        new = self._session_words([session_id])
        reword(self._database.session_words, self._connection, (), new)

    def _write_facets(self, edits: Sequence[Edit]) -> None:
        out, rows = list[dict[str, Any]](), list[dict[str, Any]]()
        for edit in edits:
            new = facets_of(edit.own, edit.rows.spans) if edit.own else set()
            old = edit.stored.facets
            out += ({"n": n, "v": v, "o": self._org, "s": edit.session_id} for n, v in old - new)
            rows += (self._owned(edit, {"name": n, "value": v}) for n, v in sorted(new - old))
        self._run(_DROP_FACET, out)
        self._insert(facets, rows)

    # --- sessions that are only named

    def _write_parents(self, edits: Sequence[Edit]) -> None:
        named: set[str] = set()
        for edit in edits:
            parents = {
                parent.id: (parent.harness_id, parent.harness_session_id, parent.started_at)
                for parent in edit.rows.sessions
                if parent.placeholder
            }
            named |= parents.keys() | edit.stored.parents.keys()
            if parents == edit.stored.parents:
                continue
            self._connection.execute(_DROP_PARENTS, {"o": self._org, "s": edit.session_id})
            names = ("harness_id", "harness_session_id", "started_at")
            rows = [
                self._owned(edit, {"parent_id": each, **dict(zip(names, said, strict=True))})
                for each, said in parents.items()
            ]
            self._insert(session_parents, rows)
        for parent_id in sorted(named):
            self.settle(parent_id)

    def erase(self, session_id: str) -> None:
        """Take all rows of the session away."""
        self.replace({session_id: Projection()})
        self.forget_words(session_id)  # of what is left: a placeholder that others name
        self._drop(_DROP_SESSIONS, [session_id])
        self.note_change(session_id, erased=True)

    def settle(self, session_id: str) -> None:
        """Be a placeholder where others name the session and nothing came of it; else be not."""
        heads = self._rows_of(_HEADS, [session_id])
        _, known, place, placeholder = heads[0] if heads else (None, None, None, True)
        if not placeholder:
            return
        named = self._connection.execute(_NAMERS, {"o": self._org, "s": session_id}).first()
        own = None if named is None else _placeholder(self._org, session_id, named)
        hashed = None if own is None else content_hash(own)
        if hashed == known:
            return
        seq = self._next_seqs(1)[0]
        self._write_heads([_Head(session_id, own, hashed, place, seq)])
        self._note_changes([(session_id, seq)], erased=False)


@dataclass(frozen=True, slots=True)
class _Head:
    """The row of a session that is to be written, or none; and where it stood."""

    session_id: str
    row: Session | None
    hash: str | None
    place: int | None
    seq: int


def reword(
    index: WordIndex, connection: Connection, old: Iterable[Words], new: Iterable[Words]
) -> None:
    """Have an index know rows by their new words; what did not change is left alone."""
    before = {words.place: words for words in old if words.prompt or words.rest}
    after = {words.place: words for words in new if words.prompt or words.rest}
    out = [words for place, words in before.items() if after.get(place) != words]
    come = [words for place, words in after.items() if before.get(place) != words]
    if out or come:
        index.replace(connection, out, come)


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


def _named(row: Sequence[Any]) -> Session:
    """What a session is known by, and no more of it."""
    session_id, _, title, name, preview, cwd, agent_name, harness_id = row
    return Session(
        id=session_id,
        derived_title=title,
        name=name,
        preview=preview,
        cwd=cwd,
        agent_name=agent_name,
        harness_id=harness_id,
    )


def _names(session: Session) -> tuple[str, ...]:
    one = session
    titles = (one.derived_title, one.name, one.preview)
    return (*titles, one.cwd, one.agent_name, one.harness_id)


def index_all(database: Database, connection: Connection) -> None:
    """Take all words in anew."""
    database.span_words.forget_all(connection)
    database.session_words.forget_all(connection)
    after = -1
    ask = select(spans).order_by(spans.c.place).limit(500)
    while rows := connection.execute(ask.where(spans.c.place > after)).mappings().all():
        words = (words_of(row["place"], row["org_id"], said_by(span_of(row))) for row in rows)
        reword(database.span_words, connection, (), words)
        after = rows[-1]["place"]
    for org_id, session_id in connection.execute(select(sessions.c.org_id, sessions.c.id)).all():
        ModelWriter(database, connection, org_id).remember_words(session_id)


def _link_key(key: Sequence[str]) -> LinkKey:
    one, two, three, four, five, six = key
    return one, two, three, four, five, six


# Made once: to make a statement takes longer than to run it.
_O: BindParameter[Any] = bindparam("o")
_S: BindParameter[Any] = bindparam("s")
_PLACES: BindParameter[Any] = bindparam("p", expanding=True)


# A statement, and the column that is to be one of many.
_Ask = tuple[Any, ColumnElement[Any]]


def _of_sessions(table: Table, *columns: ColumnElement[Any]) -> _Ask:
    column = table.c.session_id
    return select(column, *columns).where(table.c.org_id == _O), column


_HEADS: _Ask = (
    select(sessions.c.id, sessions.c.content_hash, sessions.c.place, sessions.c.placeholder).where(
        sessions.c.org_id == _O
    ),
    sessions.c.id,
)
_NAMED: _Ask = (
    select(
        sessions.c.id, sessions.c.place, sessions.c.derived_title, sessions.c.name,
        sessions.c.preview, sessions.c.cwd, sessions.c.agent_name, sessions.c.harness_id,
    ).where(sessions.c.org_id == _O),
    sessions.c.id,
)  # fmt: skip
_LINK_KEY = (
    links.c.from_trace_id, links.c.from_span_id, links.c.from_io,
    links.c.to_trace_id, links.c.to_span_id, links.c.to_io,
)  # fmt: skip
_TRACES = _of_sessions(traces, traces.c.trace_id, traces.c.content_hash)
_SPANS = _of_sessions(spans, spans.c.trace_id, spans.c.span_id, spans.c.content_hash, spans.c.place)
_LINKS = _of_sessions(links, links.c.kind, *_LINK_KEY)
_SKIPS = _of_sessions(skips, skips.c.raw_turn_id, skips.c.reason)
_FACETS = _of_sessions(facets, facets.c.name, facets.c.value)
_PARENTS = _of_sessions(
    session_parents, session_parents.c.parent_id, session_parents.c.harness_id,
    session_parents.c.harness_session_id, session_parents.c.started_at,
)  # fmt: skip
_CALLED = _of_sessions(notes, notes.c.display_name)
_TAGGED = _of_sessions(tags, tags.c.tag)
_OF_TRACES: _Ask = (
    select(spans.c.trace_id, spans.c.span_id, spans.c.session_id, spans.c.place).where(
        spans.c.org_id == _O
    ),
    spans.c.trace_id,
)
_AT = select(spans).where(spans.c.place.in_(_PLACES), spans.c.org_id == _O)
_TAKEN: dict[str, _Ask] = {
    table.name: (select(table.c.place), table.c.place) for table in (spans, sessions)
}
_NAMERS = (
    select(session_parents)
    .where(session_parents.c.org_id == _O, session_parents.c.parent_id == _S)
    .order_by(session_parents.c.started_at, session_parents.c.session_id)
    .limit(1)
)
_TICK = (
    update(clocks)
    .where(clocks.c.org_id == bindparam("org"))
    .values(seq=clocks.c.seq + bindparam("count"))
    .returning(clocks.c.seq)
)
_DROP_TRACES: _Ask = delete(traces).where(traces.c.org_id == _O), traces.c.trace_id
_DROP_SPANS: _Ask = delete(spans).where(spans.c.org_id == _O), spans.c.place
_DROP_SESSIONS: _Ask = delete(sessions).where(sessions.c.org_id == _O), sessions.c.id
_DROP_LINK = delete(links).where(
    links.c.org_id == _O,
    *(column == bindparam(name) for name, column in zip("abcdef", _LINK_KEY, strict=True)),
)
_DROP_FACET = delete(facets).where(
    facets.c.org_id == _O,
    facets.c.name == bindparam("n"),
    facets.c.value == bindparam("v"),
    facets.c.session_id == _S,
)
_DROP_SKIPS = delete(skips).where(skips.c.org_id == _O, skips.c.session_id == _S)
_DROP_PARENTS = delete(session_parents).where(
    session_parents.c.org_id == _O, session_parents.c.session_id == _S
)
