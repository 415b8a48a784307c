"""Finding by words and by ids.

How words are found: the index says which rows have all terms of what was asked for; where terms
alone do not decide (a phrase, a name with dots), the texts themselves are looked through.

Rule 1: of spans, those come first in which the words stand in what a person asked; each newest
        first. The order does not depend on what else is there, so a cursor stays good.
Rule 2: a text without a letter or digit is an error, never an empty result.
Rule 3: where not everything was looked through, the page says so.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    case,
    exists,
    false,
    func,
    literal,
    or_,
    select,
    union,
)

from tapes.errors import BadCursor, BadQuery
from tapes.rows import LATEST, Span
from tapes.store.base import MOST, SHORTEST, Excerpt, Found, Hit, Noun, Page
from tapes.store.database import Database, Either, Every, Term, Wanted
from tapes.store.fields import uuid_range
from tapes.store.filters import EVERYTHING, All, Condition, Field, Has, Not, Some, Text, texts_in
from tapes.store.modelforms import span_of
from tapes.store.spantexts import Said, said_by
from tapes.store.tables import facets, raw_turns, sessions, spans, traces
from tapes.store.words import asked_terms, excerpt, is_simple, places_of, stands_in, terms_of

# How many spans are looked through at most, for one phrase in a list or one page of hits.
_LOOKED_THROUGH = 2000
_FEW_SESSIONS = 30
# What at most so many spans have is gone through; to look one row up takes as long as going through
# so many; on so many of the newest spans it is tried which is better.
_FEW, _LOOK_UP, _NEWEST = 3000, 10, 5000
_EXCERPTS = 3


def wanted_by(text: Text) -> Wanted:
    """The terms that a row with this text has. Raises BadQuery."""
    terms = asked_terms(text.text)
    if not terms:
        raise BadQuery(
            f"there is no letter or digit to look for in {text.text!r}"
            f" (character {text.place + 1})",
            text.place,
        )
    last = Term(terms[-1], text.as_prefix)
    return Every((*map(Term, terms[:-1]), last))


def _of_session(end: Any) -> Any:
    mine = and_(spans.c.org_id == facets.c.org_id, spans.c.session_id == facets.c.session_id)
    return select(end(spans.c.started_at)).where(mine).scalar_subquery()


# When the first and the last span of some sessions began: in an index each is one step.
_ENDS = select(func.min(_of_session(func.min)), func.max(_of_session(func.max)))


def _is_one_text(where: Condition) -> bool:
    parts = where.conditions if isinstance(where, All) else (where,)
    return sum(isinstance(part, Text) for part in parts) == 1 == _number_of_texts(where)


def _number_of_texts(where: Condition) -> int:
    match where:
        case Text():
            return 1
        case All(parts) | Some(parts):
            return sum(map(_number_of_texts, parts))
        case Not(inner):
            return _number_of_texts(inner)
        case _:
            return 0


class WordTexts:
    """Conditions on words, for lists of one tenant: for so many rows at most, or for all (0).

    Where it is more than one word, what has both may be far though each is near: as for all.
    """

    def __init__(
        self,
        database: Database,
        connection: Connection,
        org_id: str,
        *,
        where: Condition = EVERYTHING,
        most: int = 0,
    ) -> None:
        self._database, self._connection, self._org = database, connection, org_id
        self._most = most if _is_one_text(where) else 0
        self._cut: list[str] = []

    def remarks(self) -> tuple[str, ...]:
        """What was not looked at."""
        return tuple(self._cut)

    def condition(self, noun: Noun, text: Text) -> ColumnElement[bool]:
        """The rows of a list in which a text stands."""
        wanted = wanted_by(text)
        match noun:
            case Noun.SPANS:
                return self._in_span(text, wanted)
            case Noun.TURNS:  # no index leads from one to its spans
                return self._any_with(text, wanted, spans.c.raw_turn_id, raw_turns.c.id)
            case Noun.TRACES:
                if self._is_near(self._number(text, wanted), wanted):
                    return exists(self._having(wanted, spans.c.trace_id == traces.c.trace_id))
                if not self._most:
                    return self._any_with(text, wanted, spans.c.trace_id, traces.c.trace_id)
                # Apart: PostgreSQL would take it for near, and look at one trace after the other.
                apart = self._owners(text, wanted, spans.c.trace_id).offset(0)
                return traces.c.trace_id.in_(apart)
            case Noun.SESSIONS:
                return self._session_has(text, wanted)

    def _session_has(self, text: Text, wanted: Wanted) -> ColumnElement[bool]:
        """Titles are short: that all terms are in one says enough."""
        titles = self._database.session_words.places(self._org, wanted)
        said = self._owners(text, wanted, spans.c.session_id)
        number = self._number(text, wanted)
        if number <= _FEW and self._has_few_titles(wanted):
            # One list of ids: of two, joined by "or", every session would be looked at.
            other = sessions.alias()
            own = other.c.org_id == self._org, other.c.place.in_(titles)
            return sessions.c.id.in_(union(select(other.c.id).where(*own), said))
        if self._is_near(number, wanted):
            # Apart: PostgreSQL would find all such spans first.
            apart = self._having(wanted, spans.c.session_id == sessions.c.id).offset(0)
            return or_(sessions.c.place.in_(titles), exists(apart))
        any_with = self._any_with(text, wanted, spans.c.session_id, sessions.c.id)
        return or_(sessions.c.place.in_(titles), any_with)

    def _any_with(
        self, text: Text, wanted: Wanted, mine: ColumnElement[Any], its: ColumnElement[Any]
    ) -> ColumnElement[bool]:
        """PostgreSQL finds its own way, but for a long list that is not to hold a row."""
        if self._database.is_postgres and self._number(text, wanted) > _FEW:
            return exists(self._having(wanted, mine == its))
        return its.in_(self._owners(text, wanted, mine))

    def kept(self, values: ColumnElement[bool]) -> ColumnElement[bool] | None:
        """Where the spans with such a value of a field are, if few sessions have it."""
        ask = select(facets.c.session_id).where(values).distinct().limit(_FEW_SESSIONS + 1)
        found = list(self._connection.execute(ask).scalars())
        if not found:
            return false()
        if len(found) > _FEW_SESSIONS:
            return None
        mine = and_(spans.c.org_id == self._org, spans.c.session_id.in_(found))
        some = select(spans.c.session_id).where(mine).limit(_LOOKED_THROUGH + 1).subquery()
        number = self._connection.execute(select(func.count()).select_from(some)).scalar_one()
        if number <= _LOOKED_THROUGH:
            return spans.c.session_id.in_(found)
        # Nor are they before these sessions began, or after they ended.
        first, last = self._connection.execute(_ENDS.where(values)).one()
        return spans.c.started_at.between(first, last)

    def _in_span(self, text: Text, wanted: Wanted) -> ColumnElement[bool]:
        if is_simple(text.text):
            return spans.c.place.in_(self._database.span_words.places(self._org, wanted))
        return spans.c.place.in_(self._exactly(text, wanted))

    def _owners(self, text: Text, wanted: Wanted, mine: ColumnElement[Any]) -> Select[Any]:
        """To what all the spans with this text belong."""
        return select(mine).where(spans.c.org_id == self._org, self._in_span(text, wanted))

    def _having(self, wanted: Wanted, mine: ColumnElement[bool]) -> Select[Any]:
        """The spans of one row that have these words: each of its spans is looked at."""
        has = self._database.span_words.has(self._org, wanted, spans.c.place)
        return select(literal(1)).where(spans.c.org_id == self._org, mine, has)

    def _has_few_titles(self, wanted: Wanted) -> bool:
        words = self._database.session_words
        return words.number(self._connection, self._org, wanted, at_most=_FEW + 1) <= _FEW

    def _number(self, text: Text, wanted: Wanted) -> int:
        """How many spans have the terms, as far as that matters; for a phrase few are looked at."""
        if not is_simple(text.text):
            return 0
        most = max(_FEW, _LOOK_UP * self._most) + 1
        return self._database.span_words.number(self._connection, self._org, wanted, at_most=most)

    def _is_near(self, number: int, wanted: Wanted) -> bool:
        """Whether enough is found so soon that it is faster to look at one row after the other.

        It is if enough of the sessions that the newest spans are of have it, or half of them.
        """
        if not self._most or number <= max(_FEW, _LOOK_UP * self._most):
            return False
        own = select(spans.c.session_id, spans.c.place).where(spans.c.org_id == self._org)
        by_time = own.order_by(spans.c.started_at.desc(), spans.c.place.desc())
        newest = by_time.limit(_NEWEST).subquery()
        count, ask = func.count(newest.c.session_id.distinct()), self._connection.execute
        there, lowest = ask(select(count, func.min(newest.c.place))).one()
        places = self._database.span_words.places(self._org, wanted, since=lowest)
        having = ask(select(count).where(newest.c.place.in_(places))).scalar_one()
        return bool(having >= self._most or 2 * having >= there)

    def _exactly(self, text: Text, wanted: Wanted) -> list[int]:
        """The places of the spans in which a text stands as it was asked for."""
        candidates = self._database.span_words.latest(
            self._connection, self._org, wanted, below=None, limit=_LOOKED_THROUGH + 1
        )
        if len(candidates) > _LOOKED_THROUGH:
            self._cut.append(
                f"only the newest {_LOOKED_THROUGH} spans with these words were looked through"
                f" for {text.text!r}"
            )
        some = candidates[:_LOOKED_THROUGH]
        return [
            place
            for place, span in read_spans(self._connection, self._org, some)
            if _stands(text, [said.text for said in said_by(span)])
        ]


def read_spans(
    connection: Connection, org_id: str, places: Sequence[int]
) -> Iterator[tuple[int, Span]]:
    """The spans at these places, in their order."""
    for start in range(0, len(places), 100):
        some = places[start : start + 100]
        ask = select(spans).where(spans.c.place.in_(some), spans.c.org_id == org_id)
        rows = {row["place"]: row for row in connection.execute(ask).mappings()}
        yield from ((place, span_of(rows[place])) for place in some if place in rows)


# --- what a span says -------------------------------------------------------------------------


def _stands(text: Text, texts: Sequence[str]) -> bool:
    """Whether a text stands in one of several: by its terms where these decide, else as it is."""
    if not is_simple(text.text):
        return any(stands_in(text.text, each, as_prefix=text.as_prefix) for each in texts)
    *_, term = asked_terms(text.text)
    if text.as_prefix:
        return any(known.startswith(term) for each in texts for known in terms_of(each))
    return any(term in terms_of(each) for each in texts)


def _leaves(where: Condition) -> Iterator[Field | Has]:
    match where:
        case Field() | Has():
            yield where
        case All(parts) | Some(parts):
            for part in parts:
                yield from _leaves(part)
        case Not(inner):
            yield from _leaves(inner)
        case Text():
            return


def _holds(where: Condition, held: Mapping[Field | Has, bool], texts: Sequence[str]) -> bool:
    """Whether a condition holds for a row: of its fields the database said, of texts these say."""
    match where:
        case All(parts):
            return all(_holds(part, held, texts) for part in parts)
        case Some(parts):
            return any(_holds(part, held, texts) for part in parts)
        case Not(inner):
            return not _holds(inner, held, texts)
        case Text():
            return _stands(where, texts)
        case Field() | Has():
            return held[where]


def _candidates(where: Condition) -> Wanted | None:
    """The terms that every row has for which a condition holds, or None where that says nothing."""
    match where:
        case Text():
            return wanted_by(where)
        case All(parts):
            known = [part for part in map(_candidates, parts) if part is not None]
            return Every(tuple(known)) if known else None
        case Some(parts):
            each = [_candidates(part) for part in parts]
            known = [part for part in each if part is not None]
            return Either(tuple(known)) if known and len(known) == len(each) else None
        case _:
            return None


# --- hits -------------------------------------------------------------------------------------

# In prompts; elsewhere; nothing more.
_IN_PROMPT, _ELSEWHERE, _OVER = range(3)


@dataclass(frozen=True, slots=True)
class Search:
    """Spans for which a condition with words holds. `compile` makes SQL of its fields."""

    database: Database
    connection: Connection
    org_id: str
    where: Condition
    compile: Callable[[Condition], ColumnElement[bool]]

    def page(self, cursor: str, limit: int) -> Page[Hit]:
        """One page of hits. Raises BadQuery and BadCursor."""
        wanted = _candidates(self.where)
        if wanted is None:
            self.compile(self.where)  # a field that is wrong is what the person wants to hear of
            raise BadQuery(
                "there are no words to look for", 0, "write some, or use the list of spans"
            )
        limit = max(1, min(limit, MOST))
        tier, below = _read_cursor(cursor)
        hits, looked = list[tuple[int, int, Hit]](), 0
        while tier != _OVER and len(hits) <= limit and looked < _LOOKED_THROUGH:
            size = max(limit + 1, min(looked, 500))
            places = self.database.span_words.latest(
                self.connection,
                self.org_id,
                wanted,
                below=below,
                limit=size,
                in_prompt=tier == _IN_PROMPT,
            )
            hits += ((tier, place, hit) for place, hit in self._hits(places, tier))
            looked += len(places)
            tier, below = (tier, places[-1]) if len(places) == size else (tier + 1, None)
        items = tuple(hit for _, _, hit in hits[:limit])
        if len(hits) > limit:
            return Page(items, _cursor(hits[limit - 1][0], hits[limit - 1][1]))
        remarks = () if tier == _OVER else (f"{looked} spans with these words were looked through",)
        return Page(items, None if tier == _OVER else _cursor(tier, below), remarks=remarks)

    def _hits(self, places: Sequence[int], tier: int) -> Iterator[tuple[int, Hit]]:
        held = self._held(places)
        for place, span in read_spans(self.connection, self.org_id, places):
            said = list(said_by(span))
            known = held.get(place, {})
            prompts = [each.text for each in said if each.is_prompt]
            in_prompt = _holds(self.where, known, prompts)
            if in_prompt is not (tier == _IN_PROMPT):
                continue  # it came before, or comes with the others
            if _holds(self.where, known, [each.text for each in said]):
                yield place, Hit(span, in_prompt, _excerpts(self.where, said))

    def _held(self, places: Sequence[int]) -> Mapping[int, Mapping[Field | Has, bool]]:
        """Which fields of the condition hold, by place."""
        leaves = list(dict.fromkeys(_leaves(self.where)))
        if not leaves or not places:
            return {}
        columns = [
            case((self.compile(leaf), literal(1)), else_=literal(0)).label(f"leaf_{n}")
            for n, leaf in enumerate(leaves)
        ]
        ask = select(spans.c.place, *columns).where(
            spans.c.place.in_(places), spans.c.org_id == self.org_id
        )
        return {
            row[0]: {leaf: bool(value) for leaf, value in zip(leaves, row[1:], strict=True)}
            for row in self.connection.execute(ask)
        }


def _excerpts(where: Condition, said: Sequence[Said]) -> tuple[Excerpt, ...]:
    """The parts of texts in which something that was asked for stands, prompts first."""
    asked, found = tuple(texts_in(where)), list[Excerpt]()
    for each in sorted(said, key=lambda text: not text.is_prompt):
        places = [
            place
            for text in asked
            for place in places_of(text.text, each.text, as_prefix=text.as_prefix)
        ]
        if places:
            found.append(Excerpt(each.where, *excerpt(each.text, places)))
        if len(found) == _EXCERPTS:
            break
    return tuple(found)


def _cursor(tier: int, below: int | None) -> str:
    return f"{tier}.{'' if below is None else below}"


def _read_cursor(cursor: str) -> tuple[int, int | None]:
    if not cursor:
        return _IN_PROMPT, None
    tier, dot, below = cursor.partition(".")
    is_place = below == "" or (below.isdecimal() and len(below) < 20)
    if tier not in ("0", "1") or not dot or not is_place:
        raise BadCursor("the cursor cannot be read", "take it from next_cursor as it is")
    return int(tier), min(int(below), LATEST) if below else None


# --- ids --------------------------------------------------------------------------------------


def find_ids(connection: Connection, org_id: str, text: str, limit: int) -> tuple[Found, ...]:
    """What has this id, or one that begins so: whole ids first."""
    text = text.strip()
    found: dict[tuple[Noun, str, str], Found] = {}
    for each in _found(connection, org_id, text, limit):
        found.setdefault((each.noun, each.id, each.trace_id), each)
    ordered = sorted(found.values(), key=lambda each: not each.whole)
    return tuple(ordered[:limit])


def _found(connection: Connection, org_id: str, text: str, limit: int) -> Iterator[Found]:
    if not text:
        return
    low, high = uuid_range(text)
    if low is not None and len(text.replace("-", "")) >= SHORTEST:
        ask = select(sessions.c.id).where(
            sessions.c.org_id == org_id, sessions.c.id >= low, sessions.c.id <= high
        )
        for (session_id,) in connection.execute(ask.limit(limit)):
            yield Found(Noun.SESSIONS, session_id, session_id, by="id", whole=low == high)
    if text.isdecimal() and len(text) < 19:
        ask = select(raw_turns.c.id, raw_turns.c.session_id).where(
            raw_turns.c.org_id == org_id, raw_turns.c.id == int(text)
        )
        for turn_id, session_id in connection.execute(ask):
            yield Found(Noun.TURNS, str(turn_id), session_id, by="id", whole=True)
    for noun, by, column, columns, prefix in _ID_COLUMNS:
        ask = select(column, *columns).where(
            column.table.c.org_id == org_id, _begins(column, prefix + text)
        )
        if noun is Noun.TURNS:
            ask = ask.where(raw_turns.c.request_id != "")
        if by == "response_id":
            ask = ask.where(spans.c.response_id != "")
        for value, id_, session_id, trace_id in connection.execute(
            ask.order_by(column).limit(limit)
        ):
            whole = value == prefix + text
            yield Found(noun, str(id_), session_id, trace_id, by, whole)


def _begins(column: ColumnElement[str], text: str) -> ColumnElement[bool]:
    if len(text) < SHORTEST:
        return column == text
    return (column >= text) & (column < text + "\U0010ffff")


_NONE = literal("")
_SESSION = (sessions.c.id, sessions.c.id.label("session"), _NONE)
_TRACE = (traces.c.trace_id.label("id"), traces.c.session_id, traces.c.trace_id.label("trace"))
_SPAN = (spans.c.span_id.label("id"), spans.c.session_id, spans.c.trace_id)
_TURN = (raw_turns.c.id, raw_turns.c.session_id, _NONE)
# What is looked for, by which id, and what may stand before it.
_ID_COLUMNS: tuple[tuple[Noun, str, Any, tuple[Any, ...], str], ...] = (
    (Noun.SESSIONS, "harness_session_id", sessions.c.harness_session_id, _SESSION, ""),
    (Noun.TRACES, "trace_id", traces.c.trace_id, _TRACE, ""),
    (Noun.TRACES, "request_id", traces.c.trace_id, _TRACE, "trc_"),
    (Noun.SPANS, "span_id", spans.c.span_id, _SPAN, ""),
    (Noun.SPANS, "request_id", spans.c.span_id, _SPAN, "llm_"),
    (Noun.SPANS, "response_id", spans.c.response_id, _SPAN, ""),
    (Noun.TURNS, "request_id", raw_turns.c.request_id, _TURN, ""),
)
