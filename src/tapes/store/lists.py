"""Pages of sessions, traces, spans and turns; how many there are, and what they add up to.

Rule 1: a page goes on behind the value and the id of the last row before, so that rows which come
        meanwhile shift nothing.
"""

import base64
import binascii
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Dialect,
    Row,
    Select,
    TextClause,
    and_,
    bindparam,
    case,
    exists,
    func,
    or_,
    select,
    text,
    true,
)

from tapes.errors import BadCursor, BadQuery
from tapes.rows import Span, Trace
from tapes.store.base import (
    MOST,
    Ask,
    Bar,
    Count,
    Facet,
    Histogram,
    Listed,
    Notes,
    Noun,
    Page,
    Stats,
    TurnHead,
)
from tapes.store.columns import High, ListOf, Low, WideSum
from tapes.store.database import Database
from tapes.store.fields import (
    SORTS,
    SPENT,
    TABLES,
    TIES,
    Context,
    Sort,
    compiled,
    uuid_range,
    whole_number,
)
from tapes.store.filters import EVERYTHING, Condition
from tapes.store.logreading import HEADS, head_of
from tapes.store.modelforms import session_reader, span_of, trace_of
from tapes.store.reading import Raw, Reading
from tapes.store.searching import WordTexts
from tapes.store.tables import (
    SAMPLE,
    clocks,
    facets,
    notes,
    raw_turns,
    sampled,
    sessions,
    skips,
    spans,
    tags,
    traces,
)

_OWN_SORTS = {
    Noun.SESSIONS: "last_active",
    Noun.TRACES: "started_at",
    Noun.SPANS: "started_at",
    Noun.TURNS: "id",
}
SPAN_HEADS = tuple(c for c in spans.c if c.name not in ("input", "output"))
_TAGS = (
    select(ListOf(tags.c.tag))
    .where(tags.c.org_id == sessions.c.org_id, tags.c.session_id == sessions.c.id)
    .scalar_subquery()
)
SESSIONS = select(sessions, notes.c.display_name, notes.c.pinned, _TAGS.label("tags")).select_from(
    sessions.outerjoin(
        notes, and_(notes.c.org_id == sessions.c.org_id, notes.c.session_id == sessions.c.id)
    )
)
_SELECTS: Mapping[Noun, Select[Any]] = {
    Noun.SESSIONS: SESSIONS,
    Noun.TRACES: select(traces),
    Noun.SPANS: select(spans.c.place),  # which they are; `_shown` has what they hold
    Noun.TURNS: HEADS,
}


_REAL_SESSIONS = SESSIONS.where(sessions.c.placeholder.is_not(true()))
_SPAN_HEADS, _WHOLE_SPANS = select(*SPAN_HEADS), select(spans)
_LAST_SEQ = select(clocks.c.seq).where(clocks.c.org_id == bindparam("org"))


_Asked = ColumnElement[bool] | TextClause
# What a histogram counts: which rows failed, and what they cost.
_SPREAD: Mapping[Noun, tuple[ColumnElement[bool], ColumnElement[Any]]] = {
    Noun.SESSIONS: (
        or_(sessions.c.failed_calls > 0, sessions.c.tool_error_count > 0),
        SPENT[Noun.SESSIONS],
    ),
    Noun.TRACES: (traces.c.status == "error", SPENT[Noun.TRACES]),
    Noun.SPANS: (spans.c.status == "error", SPENT[Noun.SPANS]),
}


# Durations are put together where their first two digits are the same: up to 10 ms by 0.1 ms, and
# so on, up to 100 s by 1 s and above by 10 s. Few enough groups to look through, for any database.
_GRAINS = tuple((10 ** (digits + 2), 10**digits) for digits in range(5, 10))
_ABOVE = 10**10


def _are_more(connection: Connection, asked: Sequence[_Asked], most: int) -> bool:
    """Whether more spans than that fit, by a sample of them."""
    some = select(spans.c.place).where(*asked, sampled).limit(most // SAMPLE + 1).subquery()
    number = connection.execute(select(func.count()).select_from(some)).scalar_one()
    return int(number) * SAMPLE > most


def _bars(noun: Noun, asked: Sequence[_Asked]) -> Select[Any]:
    """What began in each of some parts: the ends of all and a part's width, then what is in it.

    The rows are looked for once and kept. They are counted in two steps: by part and duration,
    then by part. A duration of which half (or 19 of 20) are no longer is the longest of its group:
    one that is there, never more than the longest, and too long by no more than the group is wide.
    """
    table, (failed, cost) = TABLES[noun], _SPREAD[noun]
    found = (
        select(
            table.c.started_at.label("began"),
            table.c.duration_ns.label("lasted"),
            case((failed, 1), else_=0).label("failed"),
            cost.label("cost"),
        )
        .where(*asked)
        .cte("found")
    )
    ends = select(func.min(found.c.began).label("first"), func.max(found.c.began).label("last"))
    all_of = ends.cte("ends")
    first = select(all_of.c.first).scalar_subquery()
    last = select(all_of.c.last).scalar_subquery()
    # Rounded up, and at least one.
    wide = (last - first) // bindparam("parts") + 1
    lasted = found.c.lasted
    steps = ((lasted < below, lasted - lasted % size) for below, size in _GRAINS)
    grain = case(*steps, else_=lasted - lasted % _ABOVE)
    groups = (
        select(
            ((found.c.began - first) // wide).label("part"),
            grain.label("grain"),
            func.count().label("rows"),
            func.sum(found.c.failed).label("failed"),
            High(found.c.cost).label("cost"),
            Low(found.c.cost).label("low_cost"),
            func.count(lasted).label("timed"),
            func.max(lasted).label("longest"),
        )
        .group_by(text("part"), text("grain"))
        .subquery()
    )
    mine, timed = groups.c.part, func.sum(groups.c.timed)
    counted = select(
        *groups.c,
        timed.over(partition_by=mine, order_by=groups.c.grain).label("until"),
        timed.over(partition_by=mine).label("all"),
    ).subquery()
    each = counted.c

    def share(of: int) -> ColumnElement[int]:
        return func.min(each.longest).filter(100 * each.until >= of * each.all)

    return (
        select(
            first,
            last,
            wide,
            each.part,
            func.sum(each.rows),
            func.sum(each.failed),
            WideSum(cost.type, each.cost, each.low_cost),
            func.max(each.longest),
            share(50),
            share(95),
        )
        .group_by(each.part)
        .order_by(each.part)
    )


class _Place(NamedTuple):
    """Where a page ends: the value by which rows are sorted, and the id of the last one."""

    value: Any
    id: Any


def listed(rows: Sequence[Row[Any]]) -> list[Listed]:
    """Sessions with what people say of them, from rows of `SESSIONS`."""
    if not rows:
        return []
    make = _listed_reader(tuple(rows[0]._fields))
    return [make(row) for row in rows]


@cache
def _listed_reader(names: tuple[str, ...]) -> Callable[[Sequence[Any]], Listed]:
    session = session_reader(names)
    told = itemgetter(*map(names.index, ("display_name", "tags", "pinned", "derive_seq")))

    def make(row: Sequence[Any]) -> Listed:
        name, its_tags, pinned, seq = told(row)
        notes_ = Notes(name or "", tuple(sorted(its_tags or ())), bool(pinned))
        return Listed(session(row), notes_, seq)

    return make


class _Known:
    """Rows of sessions that were read last, each with what it is: most pages are asked for again.

    A row is looked up by all that it holds, so what is found is what would be made of it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[Raw, Listed] = {}

    def of(self, row: Raw, reading: Reading) -> Listed:
        """The session of a row."""
        try:
            found = self._found.get(row)
        except TypeError:  # a driver that reads JSON itself: such a row has no hash
            return _listed_reader(reading.names)(reading.read(row))
        if found is None:
            if len(self._found) >= self._most:
                self._found.clear()
            found = self._found[row] = _listed_reader(reading.names)(reading.read(row))
        return found


_KNOWN = _Known(2000)


def _each(make: Callable[[Mapping[Any, Any]], Any]) -> Callable[[Sequence[Row[Any]]], list[Any]]:
    return lambda rows: [make(row._mapping) for row in rows]


class Lists:
    """The lists of one tenant."""

    def __init__(self, database: Database, org_id: str) -> None:
        self._database, self._org = database, org_id

    # --- pages

    def sessions(
        self, ask: Ask, *, since: int | None, until: int | None, placeholders: bool
    ) -> Page[Listed]:
        """Sessions."""
        more = self._with_trace_in(since, until)
        chosen = SESSIONS if placeholders else _REAL_SESSIONS
        return self._page(Noun.SESSIONS, ask, listed, more, chosen)

    def only(
        self, *, since: int | None, until: int | None, placeholders: bool
    ) -> list[ColumnElement[bool]]:
        """What holds of sessions that are asked for so."""
        real = [] if placeholders else [sessions.c.placeholder.is_not(true())]
        return [*real, *self._with_trace_in(since, until)]

    def traces(self, ask: Ask) -> Page[Trace]:
        """Traces."""
        return self._page(Noun.TRACES, ask, _each(trace_of))

    def spans(self, ask: Ask, *, payload: bool) -> Page[Span]:
        """Spans."""
        shown = _WHOLE_SPANS if payload else _SPAN_HEADS
        return self._page(Noun.SPANS, ask, _each(span_of), shown=shown)

    def turns(self, ask: Ask, *, session_id: str | None) -> Page[TurnHead]:
        """Heads of turns."""
        more = [] if session_id is None else [raw_turns.c.session_id == session_id]
        return self._page(Noun.TURNS, ask, _each(head_of), more)

    def _with_trace_in(self, since: int | None, until: int | None) -> list[ColumnElement[bool]]:
        if since is None and until is None:
            return []
        began = [traces.c.org_id == self._org, traces.c.session_id == sessions.c.id]
        # What follows from it for the session itself is said too: there is an index for that.
        more: list[ColumnElement[bool]] = []
        if since is not None:
            began.append(traces.c.started_at >= since)
            more.append(sessions.c.last_seen_at >= since)
        if until is not None:
            began.append(traces.c.started_at < until)
            more.append(sessions.c.started_at < until)
        return [*more, exists().where(*began)]

    def _page(
        self,
        noun: Noun,
        ask: Ask,
        make: Callable[[Sequence[Row[Any]]], list[Any]],
        more: Sequence[ColumnElement[bool]] = (),
        select_from: Select[Any] | None = None,
        shown: Select[Any] | None = None,
    ) -> Page[Any]:
        name = ask.sort or _OWN_SORTS[noun]
        sort = _sort(noun, name)
        is_plain = noun is Noun.SESSIONS and not more and ask.where is EVERYTHING
        limit = max(1, min(ask.limit, MOST))
        values: dict[str, Any] = {"org": self._org, "most": limit + 1}
        if ask.cursor:
            place = _read_cursor(ask, name, sort, noun)
            values |= {"value": place.value, "tie": place.id}
        tie = TIES[noun]
        if is_plain:
            form = (noun, name, ask.descending, bool(ask.cursor), select_from)
            return self._plain_sessions(ask, form, values, limit)
        with self._database.reading() as connection:
            texts = WordTexts(
                self._database, connection, self._org, where=ask.where, most=limit + 1
            )
            statement = _paged(noun, name, ask.descending, bool(ask.cursor), select_from)
            if more:
                statement = statement.where(*more)
            if ask.where is not EVERYTHING:
                statement = statement.where(compiled(noun, ask.where, self.context(texts)))
            if shown is not None:
                statement = _shown(statement, shown, descending=ask.descending)
            rows = connection.execute(statement, values).all()
            # Of one moment with the rows: their statement tells it, where it tells anything.
            seq = (rows[0].last_seq or 0) if rows else last_seq(connection, self._org)
        items = make(rows[:limit])
        cursor = None
        if len(rows) > limit:
            last = rows[limit - 1]
            cursor = _cursor(name, ask, _Place(last.sorted_by, getattr(last, tie.name)))
        return Page(tuple(items), cursor, seq, texts.remarks())

    def _plain_sessions(
        self, ask: Ask, form: "_Form", values: dict[str, Any], limit: int
    ) -> Page[Listed]:
        """A page of all sessions: what is looked at again and again."""
        reading = _reading(form, self._database.dialect)
        with self._database.reading() as connection:
            rows = reading.rows(connection, values)
            seq = (rows[0][-1] or 0) if rows else last_seq(connection, self._org)
        # The last two values are not the session's: by what it is sorted, and the last change.
        items = tuple([_KNOWN.of((*row[:-2], None, None), reading) for row in rows[:limit]])
        cursor = None
        if len(rows) > limit:
            place = _Place(reading.read(rows[limit - 1])[-2], items[-1].session.id)
            cursor = _cursor(form[1], ask, place)
        return Page(items, cursor, seq)

    def context(self, texts: WordTexts) -> Context:
        """What conditions of this tenant are compiled for."""
        return Context(self._org, time.time_ns(), texts, self._database.json_text)

    # --- numbers

    def count(
        self,
        noun: Noun,
        where: Condition,
        more: Sequence[ColumnElement[bool]] = (),
        *,
        at_most: int,
    ) -> Count:
        """How many rows there are."""
        with self._database.reading() as connection:
            texts = WordTexts(self._database, connection, self._org, where=where, most=at_most)
            condition = compiled(noun, where, self.context(texts))
            rows = select(TIES[noun]).where(TABLES[noun].c.org_id == self._org, condition, *more)
            if at_most:
                rows = rows.limit(at_most + 1)
            number = connection.execute(select(func.count()).select_from(rows.subquery())).scalar()
        found = number or 0
        is_all = not at_most or found <= at_most
        return Count(found if is_all else at_most, is_all and not texts.remarks())

    def stats(self, *, since: int | None, until: int | None, auth_subject: str) -> Stats:
        """Sums over traces."""
        where = list[ColumnElement[bool]]()
        if since is not None:
            where.append(traces.c.started_at >= since)
        if until is not None:
            where.append(traces.c.started_at < until)
        if auth_subject:
            its = select(sessions.c.id).where(
                sessions.c.org_id == self._org, sessions.c.auth_subject == auth_subject
            )
            where.append(traces.c.session_id.in_(its))
        mine = traces.c.org_id == self._org
        of_these = select(traces.c.session_id).where(mine, *where)
        completed = func.count().filter(sessions.c.derived_status == "completed")
        counted = select(func.count().label("sessions"), completed.label("completed")).where(
            sessions.c.org_id == self._org, sessions.c.id.in_(of_these)
        )
        # All rows are read faster as they lie than in the order of an index.
        all_mine = mine if where else self._database.unindexed(traces.c.org_id) == self._org
        summed = select(func.count().label("traces"), *_SUMS).where(all_mine, *where)
        with self._database.reading() as connection:
            row = {
                **connection.execute(counted).mappings().one(),
                **connection.execute(summed).mappings().one(),
            }
        return Stats(**{name: _summed(name, value) for name, value in row.items()})

    def histogram(self, noun: Noun, where: Condition, *, parts: int, at_most: int) -> Histogram:
        """How a list spreads over time: its ends, then its parts, all counted by the database."""
        table = TABLES[noun]
        with self._database.reading() as connection:
            texts = WordTexts(self._database, connection, self._org)
            # A sum, for an index has one lower end, and it is to be the one that was asked for.
            is_by_index = where != EVERYTHING or noun is Noun.SPANS  # whose index has all of it
            org = table.c.org_id if is_by_index else self._database.unindexed(table.c.org_id)
            asked: list[_Asked] = [org == self._org, table.c.started_at + 0 > 0]
            asked.append(compiled(noun, where, self.context(texts)))
            if noun is Noun.SESSIONS:
                asked.append(sessions.c.placeholder.is_not(true()))
            is_sample = noun is Noun.SPANS and at_most > 0 and _are_more(connection, asked, at_most)
            if is_sample:
                asked.append(sampled)
            rows = connection.execute(_bars(noun, asked), {"parts": parts}).all()
        if not rows:
            return Histogram(0, 0, 0)
        first, last, width = rows[0][:3]
        each = SAMPLE if is_sample else 1
        bars = tuple(
            Bar(
                first + part * width,
                int(number) * each,
                int(bad) * each,
                None if cost is None else cost * each,
                *rest,
            )
            for _, _, _, part, number, bad, cost, *rest in rows
        )
        return Histogram(first, last + 1, width, bars, not is_sample)

    def skipped(self) -> Mapping[str, int]:
        """How many turns show nowhere, by reason."""
        ask = select(skips.c.reason, func.count()).where(skips.c.org_id == self._org)
        with self._database.reading() as connection:
            return dict(connection.execute(ask.group_by(skips.c.reason)).all())

    def facets(self, name: str, *, begins: str, limit: int) -> tuple[Facet, ...]:
        """The values of a field, the most frequent first."""
        if name == "tag":
            return self._tags(begins, limit)
        known = (
            "model",
            "provider",
            "tool",
            "agent",
            "kind",
            "error",
            "outcome",
            "stop",
            "harness",
        )
        if name not in known:
            raise BadQuery(
                f"there is no list of {name!r}", 0, f"there are: {', '.join(known)}, tag"
            )
        return self._facets(name, begins, limit)

    def _facets(self, name: str, begins: str, limit: int) -> tuple[Facet, ...]:
        number = func.count().label("number")
        statement = (
            select(facets.c.value, number)
            .where(
                facets.c.org_id == self._org,
                facets.c.name == name,
                facets.c.value >= begins,
                facets.c.value < begins + "\U0010ffff",
            )
            .group_by(facets.c.value)
            .order_by(number.desc(), facets.c.value)
            .limit(limit)
        )
        with self._database.reading() as connection:
            return tuple(Facet(value, count) for value, count in connection.execute(statement))

    def _tags(self, begins: str, limit: int) -> tuple[Facet, ...]:
        harness = select(facets.c.session_id, facets.c.value.label("tag")).where(
            facets.c.org_id == self._org, facets.c.name == "tag"
        )
        people = select(tags.c.session_id, tags.c.tag).where(tags.c.org_id == self._org)
        both = harness.union(people).subquery()
        number = func.count().label("number")
        statement = (
            select(both.c.tag, number)
            .where(both.c.tag >= begins, both.c.tag < begins + "\U0010ffff")
            .group_by(both.c.tag)
            .order_by(number.desc(), both.c.tag)
            .limit(limit)
        )
        with self._database.reading() as connection:
            return tuple(Facet(value, count) for value, count in connection.execute(statement))


_MAYBE = frozenset({"input_tokens", "output_tokens", "cost_usd", "saved_cost_usd"})


# Of tokens and calls there are never too many for a number; of money and time there may be.
_WIDE = frozenset({"cost_usd", "saved_cost_usd", "duration_ns"})
_SUMS = [
    (WideSum(summed.type, summed) if name in _WIDE else func.sum(summed)).label(name)
    for name, summed in {
        "input_tokens": traces.c.total_input_tokens,
        "output_tokens": traces.c.total_output_tokens,
        "cost_usd": SPENT[Noun.TRACES],
        "saved_cost_usd": traces.c.saved_cost_usd,
        "unpriced_calls": traces.c.unpriced_calls,
        "uncounted_calls": traces.c.uncounted_calls,
        "duration_ns": traces.c.duration_ns,
        "tool_calls": traces.c.tool_calls,
    }.items()
]


def _summed(name: str, value: Any) -> Any:
    if value is None:
        return None if name in _MAYBE else 0
    return value if name in ("cost_usd", "saved_cost_usd") else int(value)


def last_seq(connection: Connection, org_id: str) -> int:
    """The number of a tenant's last change."""
    return int(connection.execute(_LAST_SEQ, {"org": org_id}).scalar() or 0)


# --- cursors ----------------------------------------------------------------------------------


def _sort(noun: Noun, name: str) -> Sort:
    sort = SORTS[noun].get(name)
    if sort is None:
        there = ", ".join(SORTS[noun])
        raise BadQuery(f"{noun.value} cannot be sorted by {name!r}", 0, f"sorts: {there}")
    return sort


def _behind(noun: Noun, sort: Sort, place: _Place, *, descending: bool) -> ColumnElement[bool]:
    by, tie = sort.expression, TIES[noun]
    if by is tie:
        return by < place.value if descending else by > place.value  # type: ignore[no-any-return]
    # The first part is the one that an index can begin with.
    if descending:
        return and_(by <= place.value, or_(by < place.value, tie < place.id))
    return and_(by >= place.value, or_(by > place.value, tie > place.id))


_Form = tuple[Noun, str, bool, bool, Select[Any] | None]


@cache
def _reading(form: _Form, dialect: Dialect) -> Reading:
    return Reading(_paged(*form), dialect)


@cache
def _paged(  # what makes one page's statement another
    noun: Noun, name: str, descending: bool, goes_on: bool, select_from: Select[Any] | None
) -> Select[Any]:
    """A page of a list: made once, for to make it takes as long as to run it."""
    sort, tie = SORTS[noun][name], TIES[noun]
    chosen = _SELECTS[noun] if select_from is None else select_from
    statement = chosen.add_columns(
        sort.expression.label("sorted_by"), _LAST_SEQ.scalar_subquery().label("last_seq")
    )
    statement = statement.where(TABLES[noun].c.org_id == bindparam("org"))
    if goes_on:
        last = _Place(bindparam("value"), bindparam("tie"))
        statement = statement.where(_behind(noun, sort, last, descending=descending))
    order = (sort.expression.desc(), tie.desc()) if descending else (sort.expression, tie)
    return statement.order_by(*order).limit(bindparam("most"))


def _shown(page: Select[Any], shown: Select[Any], *, descending: bool) -> Select[Any]:
    """The spans of a page. Which they are is found first, from an index and without their rows."""
    found = page.subquery("found")
    by, place = found.c.sorted_by, found.c.place
    order = (by.desc(), place.desc()) if descending else (by, place)
    statement = shown.add_columns(by, found.c.last_seq)
    return statement.join(found, spans.c.place == place).order_by(*order)


def _direction(ask: Ask) -> str:
    return "desc" if ask.descending else "asc"


def _cursor(name: str, ask: Ask, place: _Place) -> str:
    told = {"sort": name, "dir": _direction(ask), "val": str(place.value), "id": str(place.id)}
    text = json.dumps(told, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def _read_cursor(ask: Ask, name: str, sort: Sort, noun: Noun) -> _Place:
    try:
        padded = ask.cursor + "=" * (-len(ask.cursor) % 4)
        told = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        said = {key: told[key] for key in ("sort", "dir", "val", "id")}
        if not all(isinstance(value, str) for value in said.values()) or not said["id"]:
            raise ValueError("not a cursor")
        if (said["sort"], said["dir"]) != (name, _direction(ask)):
            raise BadCursor(
                f"the cursor is from a list by {said['sort']}, {said['dir']}",
                "ask for the first page of this list again",
            )
        if noun is Noun.SPANS and said["val"] == said["id"]:  # spans were once sorted by place
            raise BadCursor(
                "the cursor is from an older version", "ask for the first page of this list again"
            )
        return _Place(sort.read(said["val"]), _TIED[noun](said["id"]))
    except (ValueError, TypeError, KeyError, ArithmeticError, binascii.Error) as error:
        raise BadCursor(
            "the cursor cannot be read", "take it from next_cursor as it is, or leave it out"
        ) from error


def _uuid(text: str) -> str:
    low, high = uuid_range(text)
    if low is None or low != high:
        raise ValueError("not an id")
    return low


# How the id of the last row is read from a cursor.
_TIED: Mapping[Noun, Callable[[str], Any]] = {
    Noun.SESSIONS: _uuid, Noun.TRACES: str, Noun.SPANS: whole_number, Noun.TURNS: whole_number,
}  # fmt: skip
