"""All of one tenant, over one database: the `Project` of the store."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, and_, bindparam, func, select

from tapes.rows import Projection, RawTurn, Span, Trace
from tapes.store.base import (
    MOST,
    MOST_SPREAD,
    Ask,
    AuditEntry,
    Change,
    Correction,
    Count,
    Erasure,
    Facet,
    Found,
    Histogram,
    Hit,
    Home,
    Listed,
    Noun,
    Page,
    Policy,
    Record,
    Sheet,
    Stats,
    TurnHead,
)
from tapes.store.database import Database
from tapes.store.erasing import Erasing
from tapes.store.fields import compiled
from tapes.store.filters import EVERYTHING, Condition
from tapes.store.lately import Lately
from tapes.store.lists import SESSIONS, SPAN_HEADS, Lists, last_seq, listed
from tapes.store.logreading import TurnReader, all_corrections, stream_turns
from tapes.store.modelforms import link_of, span_of, trace_of
from tapes.store.people import People, unknown
from tapes.store.records import date_tombstone, stream_records, take_records
from tapes.store.searching import Search, WordTexts, find_ids
from tapes.store.sheets import LINK_ORDER, sheet_of_session, sheet_of_trace
from tapes.store.tables import changes, dirty, links, raw_turns, sessions, spans, traces
from tapes.store.working import WAITS


class SqlProject:
    """What belongs to one tenant."""

    def __init__(
        self, database: Database, org_id: str, erasing: Erasing, sums: Lately[Stats]
    ) -> None:
        self.org_id = org_id
        self._sums = sums
        self._database = database
        self._lists = Lists(database, org_id)
        self._people = People(database, org_id)
        self._erasing = erasing

    # --- lists

    def sessions(
        self,
        ask: Ask = Ask(),  # noqa: B008  # a frozen value
        *,
        since: int | None = None,
        until: int | None = None,
        placeholders: bool = False,
    ) -> Page[Listed]:
        """Sessions."""
        return self._lists.sessions(ask, since=since, until=until, placeholders=placeholders)

    def traces(self, ask: Ask = Ask()) -> Page[Trace]:  # noqa: B008  # a frozen value
        """Traces."""
        return self._lists.traces(ask)

    def spans(self, ask: Ask = Ask(), *, payload: bool = False) -> Page[Span]:  # noqa: B008  # same
        """Spans."""
        return self._lists.spans(ask, payload=payload)

    def turns(
        self,
        ask: Ask = Ask(),  # noqa: B008  # a frozen value
        *,
        session_id: str | None = None,
    ) -> Page[TurnHead]:
        """Raw turns without their content."""
        return self._lists.turns(ask, session_id=session_id)

    def count(
        self,
        noun: Noun,
        where: Condition = EVERYTHING,
        *,
        at_most: int = 10_000,
        since: int | None = None,
        until: int | None = None,
        placeholders: bool = False,
    ) -> Count:
        """How many there are."""
        lists, more = self._lists, list[ColumnElement[bool]]()
        if noun is Noun.SESSIONS:
            more = lists.only(since=since, until=until, placeholders=placeholders)
        return lists.count(noun, where, more, at_most=at_most)

    def facets(self, name: str, *, begins: str = "", limit: int = 20) -> tuple[Facet, ...]:
        """The values of a field."""
        return self._lists.facets(name, begins=begins, limit=limit)

    def histogram(
        self,
        noun: Noun,
        where: Condition = EVERYTHING,
        *,
        parts: int = 60,
        at_most: int = MOST_SPREAD,
    ) -> Histogram:
        """How a list spreads over time."""
        return self._lists.histogram(noun, where, parts=parts, at_most=at_most)

    def stats(
        self, *, since: int | None = None, until: int | None = None, auth_subject: str = ""
    ) -> Stats:
        """Sums over traces; over very many those of lately."""
        return self._sums.of(
            (self.org_id, since, until, auth_subject),
            lambda: self._lists.stats(since=since, until=until, auth_subject=auth_subject),
        )

    # --- single rows

    def session(self, session_id: str) -> Listed | None:
        """A session."""
        found = self._listed(sessions.c.id == session_id)
        return found[0] if found else None

    def sessions_of_harness(
        self, harness_session_id: str, harness_id: str | None = None
    ) -> tuple[Listed, ...]:
        """Sessions by what their harness calls them."""
        where = sessions.c.harness_session_id == harness_session_id
        if harness_id is not None:
            where = and_(where, sessions.c.harness_id == harness_id)
        return self._listed(where)

    def harnesses(self, harness_session_ids: Sequence[str]) -> Mapping[str, str]:
        """The harness of each session that is the only one called so."""
        among, column = self._database.rows_among, sessions.c.harness_session_id
        with self._database.reading() as connection:
            rows = among(connection, _CALLED, column, harness_session_ids, org=self.org_id)
        times = Counter(row[0] for row in rows)
        return {row[0]: row[1] for row in rows if times[row[0]] == 1}

    def _listed(self, where: Any) -> tuple[Listed, ...]:
        ask = SESSIONS.where(sessions.c.org_id == self.org_id, where)
        with self._database.reading() as connection:
            return tuple(listed(connection.execute(ask.order_by(sessions.c.harness_id)).all()))

    def trace(self, trace_id: str) -> Trace | None:
        """A trace."""
        ask = select(traces).where(traces.c.org_id == self.org_id, traces.c.trace_id == trace_id)
        with self._database.reading() as connection:
            row = connection.execute(ask).mappings().first()
        return None if row is None else trace_of(row)

    def span(self, trace_id: str, span_id: str) -> Span | None:
        """A span."""
        ask = select(spans).where(
            spans.c.org_id == self.org_id,
            spans.c.trace_id == trace_id,
            spans.c.span_id == span_id,
        )
        with self._database.reading() as connection:
            row = connection.execute(ask).mappings().first()
        return None if row is None else span_of(row)

    def rows_of_session(self, session_id: str, *, payload: bool = True) -> Projection:
        """All rows of a session."""
        columns = spans.c if payload else SPAN_HEADS

        def mine(table: Any) -> Any:
            return and_(table.c.org_id == self.org_id, table.c.session_id == session_id)

        with self._database.reading() as connection:
            ask = connection.execute
            own = SESSIONS.where(sessions.c.org_id == self.org_id, sessions.c.id == session_id)
            found = listed(ask(own).all())
            by_time = (traces.c.started_at, traces.c.trace_id)
            its_traces = ask(select(traces).where(mine(traces)).order_by(*by_time)).mappings().all()
            in_order = (spans.c.trace_id, spans.c.seq, spans.c.span_id)
            of_spans = select(*columns).where(mine(spans)).order_by(*in_order)
            its_spans = ask(of_spans).mappings().all()
            its_links = ask(select(links).where(mine(links)).order_by(*LINK_ORDER)).mappings().all()
        return Projection(
            tuple(each.session for each in found),
            tuple(map(trace_of, its_traces)),
            tuple(map(span_of, its_spans)),
            tuple(map(link_of, its_links)),
        )

    def sheet_of_session(self, session_id: str, *, payload: bool = True) -> Sheet:
        """All of a session, for passing it on."""
        with self._database.reading() as connection:
            return sheet_of_session(connection, self.org_id, session_id, payload=payload)

    def sheet_of_trace(self, trace_id: str, *, payload: bool = True) -> Sheet:
        """All of a trace, for passing it on."""
        with self._database.reading() as connection:
            return sheet_of_trace(connection, self.org_id, trace_id, payload=payload)

    # --- turns

    def turn(self, turn_id: int) -> RawTurn | None:
        """A raw turn."""
        ask = select(raw_turns).where(raw_turns.c.org_id == self.org_id, raw_turns.c.id == turn_id)
        with self._database.reading() as connection:
            row = connection.execute(ask).mappings().first()
            return None if row is None else TurnReader(connection, self.org_id).read(row)

    def stream_turns(
        self, *, session_id: str | None = None, after: int = 0, as_captured: bool = False
    ) -> Iterator[RawTurn]:
        """Raw turns one by one."""
        return stream_turns(
            self._database,
            self.org_id,
            session_id=session_id,
            after=after,
            as_captured=as_captured,
        )

    def corrections(self) -> Iterator[Correction]:
        """The correction that holds of each turn that has one."""
        return all_corrections(self._database, self.org_id)

    def skipped(self) -> Mapping[str, int]:
        """How many turns show nowhere, by reason."""
        return self._lists.skipped()

    # --- finding

    def search(self, where: Condition, *, cursor: str = "", limit: int = 20) -> Page[Hit]:
        """Spans in which words stand."""
        with self._database.reading() as connection:
            texts = WordTexts(self._database, connection, self.org_id)
            context = self._lists.context(texts)
            search = Search(
                self._database,
                connection,
                self.org_id,
                where,
                lambda leaf: compiled(Noun.SPANS, leaf, context),
            )
            return search.page(cursor, limit)

    def find(self, id_text: str, *, limit: int = 20) -> tuple[Found, ...]:
        """What has this id."""
        with self._database.reading() as connection:
            return find_ids(connection, self.org_id, id_text, limit)

    def homes(
        self, trace_ids: Sequence[str], response_ids: Sequence[str]
    ) -> tuple[Mapping[str, Home], Mapping[str, Home]]:
        """The sessions in which traces and answers lie, with two questions for all of them."""
        with self._database.reading() as connection:

            def lying(ask: Select[Any], column: Any, ids: Sequence[str]) -> dict[str, Home]:
                among = self._database.rows_among
                rows = among(connection, ask, column, ids, org=self.org_id)
                return {row[0]: Home(row[1], row[2]) for row in rows}

            return (
                lying(_HOMES_OF_TRACES, traces.c.trace_id, trace_ids),
                lying(_HOMES_OF_ANSWERS, spans.c.response_id, response_ids),
            )

    def with_turns(self, session_ids: Sequence[str]) -> frozenset[str]:
        """Those of the sessions to which turns belong."""
        column, found = raw_turns.c.session_id, set[str]()
        mine = select(column).distinct().where(raw_turns.c.org_id == self.org_id)
        with self._database.reading() as connection:
            for at in range(0, len(session_ids), MOST):
                some = mine.where(column.in_(session_ids[at : at + MOST]))
                found |= set(connection.execute(some).scalars())
        return frozenset(found)

    def waiting(self) -> int:
        """How many sessions are not derived yet; a turn that has none so far counts as one."""
        own = raw_turns.c.org_id == self.org_id
        asks = (
            select(func.count()).where(dirty.c.org_id == self.org_id, WAITS),
            select(func.count()).where(
                own, raw_turns.c.session_id.is_(None), raw_turns.c.placed.is_(None)
            ),
        )
        with self._database.reading() as connection:
            return sum(connection.execute(ask).scalar() or 0 for ask in asks)

    # --- changes

    def seq(self) -> int:
        """The number of the last change."""
        with self._database.reading() as connection:
            return last_seq(connection, self.org_id)

    def changes(self, after: int, *, limit: int = 500) -> tuple[Change, ...]:
        """Sessions that changed since."""
        ask = (
            select(changes.c.seq, changes.c.session_id, changes.c.erased, changes.c.at)
            .where(changes.c.org_id == self.org_id, changes.c.seq > after)
            .order_by(changes.c.seq)
            .limit(limit)
        )
        with self._database.reading() as connection:
            rows = connection.execute(ask).all()
        return tuple(Change(r.seq, r.session_id, bool(r.erased), r.at) for r in rows)

    def changed_spans(self, after: int, *, limit: int = 500) -> tuple[tuple[int, Span], ...]:
        """Spans that changed since; those of one change are never parted."""
        mine = and_(spans.c.org_id == self.org_id, spans.c.derive_seq > after)
        ask = select(*SPAN_HEADS).order_by(spans.c.derive_seq, spans.c.place)
        with self._database.reading() as connection:
            ends = select(spans.c.derive_seq).where(mine).order_by(spans.c.derive_seq)
            last = connection.execute(ends.offset(limit - 1).limit(1)).scalar()
            if last is not None:
                mine = and_(mine, spans.c.derive_seq <= last)
            rows = connection.execute(ask.where(mine)).mappings().all()
        return tuple((row["derive_seq"], span_of(row)) for row in rows)

    # --- what people say

    def _after(self, session_id: str) -> Listed:
        found = self.session(session_id)
        if found is None:
            raise unknown("session", session_id)
        return found

    def rename(self, session_id: str, display_name: str, *, by: str = "") -> Listed:
        """Give a session a name."""
        self._people.rename(session_id, display_name, by)
        return self._after(session_id)

    def tag(
        self, session_id: str, *, add: Iterable[str] = (), remove: Iterable[str] = (), by: str = ""
    ) -> Listed:
        """Add and remove tags."""
        self._people.tag(session_id, add, remove, by)
        return self._after(session_id)

    def pin(self, session_id: str, *, pinned: bool = True, by: str = "") -> Listed:
        """Exempt a session from retention, or no longer."""
        self._people.pin(session_id, by, pinned=pinned)
        return self._after(session_id)

    def note_tape(self, session_id: str, path: str) -> None:
        """A tape was made from a session."""
        self._people.note_tape(session_id, path)

    def correct(self, correction: Correction, *, by: str = "") -> None:
        """Say whose turn it really was."""
        self._people.correct(correction, by)

    # --- erasing

    def erase(
        self, session_ids: Sequence[str], *, reason: str, by: str = "", dry_run: bool = False
    ) -> Erasure:
        """Erase sessions for good."""
        return self._erasing.erase(self.org_id, session_ids, reason=reason, by=by, dry_run=dry_run)

    def erasure(self, erasure_id: int) -> Erasure | None:
        """What became of an erasure."""
        return self._erasing.find(self.org_id, erasure_id)

    def erasure_of(self, session_id: str) -> Erasure | None:
        """The erasure by which a session went."""
        return self._erasing.find_of(self.org_id, session_id)

    def policy(self) -> Policy:
        """How long sessions are kept."""
        return self._people.policy()

    def set_policy(self, policy: Policy, *, by: str = "") -> None:
        """Change it."""
        self._people.set_policy(policy, by)

    def retain(self, *, now: int, by: str = "", dry_run: bool = False) -> Erasure:
        """Erase what is beyond the policy."""
        return self._erasing.retain(self.org_id, self.policy(), now=now, by=by, dry_run=dry_run)

    def audit(self, *, before: int | None = None, limit: int = 100) -> tuple[AuditEntry, ...]:
        """What was done."""
        return self._people.audit(before, limit)

    def note(
        self, action: str, *, by: str = "", details: Mapping[str, object] | None = None
    ) -> None:
        """Write into the audit."""
        self._people.note(action, by, details or {})

    # --- moving to another log

    def records(self) -> Iterator[Record]:
        """What there is beside turns."""
        return stream_records(self._database, self.org_id)

    def take_records(self, records: Sequence[Record]) -> int:
        """Take in records of another log."""
        return take_records(self._database, self.org_id, records)

    def erase_as(self, tombstone: Record, *, by: str) -> bool:
        """Erase a session that another log has erased."""
        session_id, erased_at = (str(tombstone.values["session_id"]), tombstone.values["erased_at"])
        first = self.turns(Ask(descending=False, limit=1), session_id=session_id).items
        began = [each.started_at or each.received_at for each in first]
        if not began or began[0] > int(str(erased_at)):
            return False  # what is here came later
        reason = str((tombstone.erasure or {}).get("reason", ""))
        self.erase([session_id], reason=reason, by=by)
        date_tombstone(self._database, self.org_id, tombstone)
        return True


def _homes(table: Table, column: Any) -> Select[Any]:
    together = and_(sessions.c.org_id == table.c.org_id, sessions.c.id == table.c.session_id)
    named = (sessions.c.harness_id, sessions.c.harness_session_id)
    return (
        select(column, *named)
        .select_from(table.join(sessions, together))
        .where(table.c.org_id == bindparam("org"), sessions.c.harness_session_id != "")
    )


_CALLED = select(sessions.c.harness_session_id, sessions.c.harness_id).where(
    sessions.c.org_id == bindparam("org")
)
_HOMES_OF_TRACES = _homes(traces, traces.c.trace_id)
# The index of answers has only those that have an id.
_HOMES_OF_ANSWERS = _homes(spans, spans.c.response_id).where(spans.c.response_id != "")
