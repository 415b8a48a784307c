"""What can be asked of sessions, traces, spans and turns: fields and sorts, by name.

Rule 1: a field that a list does not have is an error that names those it has.
Rule 2: every condition is about rows of one tenant; it names the tenant itself.

The tables at the end are the documentation.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

from sqlalchemy import (
    Column,
    ColumnElement,
    False_,
    Table,
    and_,
    case,
    exists,
    false,
    func,
    literal,
    literal_column,
    not_,
    or_,
    select,
    true,
)

from tapes.errors import BadQuery
from tapes.rows import LATEST, Outcome
from tapes.store.base import Noun
from tapes.store.filters import All, Condition, Field, Has, Not, Op, Some, Text
from tapes.store.tables import (
    answered,
    facets,
    judged,
    known,
    notes,
    raw_turns,
    sessions,
    skips,
    spans,
    tags,
    traces,
)
from tapes.store.values import dollars, length, moment, number, truth

Sql = ColumnElement[Any]


class Texts(Protocol):
    """Finds rows by their words, and what there is at all."""

    def condition(self, noun: Noun, text: Text) -> Sql:
        """The rows of a list in which a text stands. Raises BadQuery."""
        ...

    def kept(self, values: Sql) -> Sql | None:
        """Where the spans with such a value of a field are; None where they may be anywhere."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """What conditions are compiled for."""

    org_id: str
    now: int
    texts: Texts
    json_text: Callable[[Column[Any], tuple[str, ...]], Sql]


Make = Callable[[Field, Context], Sql]


def compiled(noun: Noun, condition: Condition, context: Context) -> Sql:
    """A condition as SQL over the rows of a list. Raises BadQuery."""
    match condition:
        case All(parts):
            return and_(true(), *(compiled(noun, part, context) for part in parts))
        case Some(parts):
            return or_(false(), *(compiled(noun, part, context) for part in parts))
        case Not(inner):
            return not_(func.coalesce(compiled(noun, inner, context), false()))
        case Text():
            return context.texts.condition(noun, condition)
        case Has(what, place):
            made = HAS[noun].get(what)
            if made is None:
                raise _unknown(f"has:{what}", noun, (f"has:{n}" for n in HAS[noun]), place)
            return made(context)
        case Field(name, _, _, place):
            return _field(noun, name, place)(condition, context)


def _field(noun: Noun, name: str, place: int) -> Make:
    if name.startswith("meta."):
        return _of_session(noun, _meta)
    made = FIELDS[noun].get(name)
    if made is None:
        raise _unknown(name, noun, FIELDS[noun], place)
    return made


def _unknown(name: str, noun: Noun, there: Any, place: int) -> BadQuery:
    listed = ", ".join(sorted(there))
    return BadQuery(
        f"{noun.value} have no field {name!r} (character {place + 1})",
        place,
        f"there are: {listed}; to look for the words themselves put them into quotes",
    )


# --- money ------------------------------------------------------------------------------------

_NOTHING = literal(Decimal(0), spans.c.cost_usd.type)
_REPLAYED = spans.c.outcome == Outcome.REPLAYED
# What was answered from a tape cost nothing: that is known also where no price is.
SPENT: Mapping[Noun, ColumnElement[Any]] = {
    Noun.SESSIONS: case(
        (
            and_(
                sessions.c.total_cost_usd.is_(None),
                sessions.c.unpriced_calls == 0,
                sessions.c.replayed_calls > 0,
            ),
            _NOTHING,
        ),
        else_=sessions.c.total_cost_usd,
    ),
    Noun.TRACES: case(
        (
            and_(
                traces.c.total_cost_usd.is_(None),
                traces.c.unpriced_calls == 0,
                traces.c.saved_cost_usd.is_not(None),
            ),
            _NOTHING,
        ),
        else_=traces.c.total_cost_usd,
    ),
    Noun.SPANS: case((_REPLAYED, _NOTHING), else_=spans.c.cost_usd),
}
# The price of such a call is what was not spent.
_SAVED = case((_REPLAYED, spans.c.cost_usd))


# --- kinds of fields --------------------------------------------------------------------------


def _compared(column: Any, op: Op, value: Any) -> Sql:
    match op:
        case Op.IS:
            return column == value  # type: ignore[no-any-return]
        case Op.MORE:
            return column > value  # type: ignore[no-any-return]
        case Op.LEAST:
            return column >= value  # type: ignore[no-any-return]
        case Op.LESS:
            return column < value  # type: ignore[no-any-return]
        case Op.MOST:
            return column <= value  # type: ignore[no-any-return]
        case Op.BEGINS:
            return and_(column >= value, column < value + "\U0010ffff")


def _word(*columns: Any) -> Make:
    def make(asked: Field, _: Context) -> Sql:
        return or_(*(_compared(column, asked.op, asked.value) for column in columns))

    return make


def _call(column: Any) -> Make:
    """As a word; the index has none of the turns that have no name of their call."""
    by_word = _word(column)

    def make(asked: Field, context: Context) -> Sql:
        named = and_(by_word(asked, context), column != literal_column("''"))
        is_named = asked.op in (Op.IS, Op.BEGINS) and asked.value
        return named if is_named else by_word(asked, context)

    return make


def _counted(column: Any) -> Make:
    return lambda asked, _: _compared(column, _exact(asked), number(asked.value, asked.place))


def _money(column: Any) -> Make:
    return lambda asked, _: _compared(column, _exact(asked), dollars(asked.value, asked.place))


def _lasting(column: Any) -> Make:
    return lambda asked, _: _compared(column, _exact(asked), length(asked.value, asked.place))


def _at(column: Any) -> Make:
    return lambda asked, context: _compared(
        column, _exact(asked), moment(asked.value, context.now, asked.place)
    )


def _bound(column: Any, op: Op) -> Make:
    return lambda asked, context: _compared(
        column, op, moment(asked.value, context.now, asked.place)
    )


def _exact(asked: Field) -> Op:
    if asked.op is Op.BEGINS:
        raise BadQuery(f"{asked.name} is no text: it cannot begin so", asked.place)
    return asked.op


def _flag(column: Any) -> Make:
    def make(asked: Field, _: Context) -> Sql:
        wanted = truth(asked.value, asked.place)
        return column.is_(true()) if wanted else not_(column)  # type: ignore[no-any-return]

    return make


def _id(column: Any) -> Make:
    """A UUID, or how it begins."""

    def make(asked: Field, _: Context) -> Sql:
        low, high = uuid_range(asked.value)
        if low is None:
            return false()
        return and_(column >= low, column <= high)

    return make


def uuid_range(text: str) -> tuple[str | None, str | None]:
    """The first and the last UUID that begin so; None where none does."""
    digits = text.replace("-", "").lower()
    if not digits or len(digits) > 32 or digits.strip("0123456789abcdef"):
        return None, None
    return _dashed(digits.ljust(32, "0")), _dashed(digits.ljust(32, "f"))


def _dashed(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _facet(name: str) -> Make:
    def make(asked: Field, context: Context) -> Sql:
        return sessions.c.id.in_(
            select(facets.c.session_id).where(
                facets.c.org_id == context.org_id,
                facets.c.name == name,
                _compared(facets.c.value, asked.op, asked.value),
            )
        )

    return make


# Fields of spans whose values are kept for each session as well, under the same name.
_KEPT = ("model", "tool", "agent", "kind", "error")


def _values(name: str, asked: Field, context: Context) -> Sql | None:
    """What is kept for sessions of whatever a span has that fits; None where nothing is."""
    if name not in _KEPT or not asked.value or asked.op in (Op.LESS, Op.MOST):  # "" is not kept
        return None
    return and_(
        facets.c.org_id == context.org_id,
        facets.c.name == name,
        _compared(facets.c.value, asked.op, asked.value),
    )


def _kept(name: str, make: Make) -> Make:
    """What few sessions have is looked for where they are, and what none has nowhere."""

    def made(asked: Field, context: Context) -> Sql:
        values = _values(name, asked, context)
        there = None if values is None else context.texts.kept(values)
        if there is None:
            return make(asked, context)
        return there if isinstance(there, False_) else and_(there, make(asked, context))

    return made


def _tag(asked: Field, context: Context) -> Sql:
    mine = select(tags.c.session_id).where(
        tags.c.org_id == context.org_id, _compared(tags.c.tag, asked.op, asked.value)
    )
    return or_(_facet("tag")(asked, context), sessions.c.id.in_(mine))


def _pinned(asked: Field, context: Context) -> Sql:
    pinned = select(notes.c.session_id).where(notes.c.org_id == context.org_id, notes.c.pinned)
    found = sessions.c.id.in_(pinned)
    return found if truth(asked.value, asked.place) else not_(found)


def _named(asked: Field, context: Context) -> Sql:
    called = select(notes.c.session_id).where(
        notes.c.org_id == context.org_id, _compared(notes.c.display_name, asked.op, asked.value)
    )
    own = _word(sessions.c.name, sessions.c.derived_title)(asked, context)
    return or_(own, sessions.c.id.in_(called))


def _meta(asked: Field, context: Context) -> Sql:
    path = tuple(asked.name.split(".")[1:])
    if not all(path):
        raise BadQuery(f"{asked.name} is no path", asked.place, "write meta.team:search")
    return _compared(context.json_text(sessions.c.harness_metadata, path), asked.op, asked.value)


def _of_session(noun: Noun, make: Make) -> Make:
    """A field of the session that a row belongs to."""
    if noun is Noun.SESSIONS:
        return make
    column = {Noun.TRACES: traces, Noun.SPANS: spans, Noun.TURNS: raw_turns}[noun].c.session_id

    def made(asked: Field, context: Context) -> Sql:
        mine = select(sessions.c.id).where(
            sessions.c.org_id == context.org_id, make(asked, context)
        )
        return column.in_(mine)

    return made


def _of_trace_spans(name: str, make: Make) -> Make:
    """A field that some span of a trace has: looked for in the sessions that have it, if known."""

    def made(asked: Field, context: Context) -> Sql:
        fits = make(asked, context)
        if isinstance(fits, False_):
            return fits
        some = exists().where(
            spans.c.org_id == context.org_id, spans.c.trace_id == traces.c.trace_id, fits
        )
        values = _values(name, asked, context)
        if values is None:
            return some
        return and_(traces.c.session_id.in_(select(facets.c.session_id).where(values)), some)

    return made


def _tool(asked: Field, context: Context) -> Sql:
    return and_(spans.c.kind == "tool", _word(spans.c.name)(asked, context))


def _model(asked: Field, context: Context) -> Sql:
    return and_(spans.c.kind == "llm", _word(spans.c.model, spans.c.request_model)(asked, context))


def _parent(asked: Field, context: Context) -> Sql:
    """What hangs below a span is in a trace with it, and ids of spans are in an index."""
    fits = _word(spans.c.parent_span_id)(asked, context)
    if asked.op is not Op.IS or not asked.value:
        return fits
    above = spans.alias("above")
    its = select(above.c.trace_id).where(
        above.c.org_id == context.org_id, above.c.span_id == asked.value
    )
    return and_(spans.c.trace_id.in_(its), fits)


def _response(asked: Field, context: Context) -> Sql:
    return and_(_word(spans.c.response_id)(asked, context), answered)


def _skipped(asked: Field, context: Context) -> Sql:
    return raw_turns.c.id.in_(
        select(skips.c.raw_turn_id).where(
            skips.c.org_id == context.org_id, _compared(skips.c.reason, asked.op, asked.value)
        )
    )


# --- the tables -------------------------------------------------------------------------------

_OF_SESSIONS: dict[str, Make] = {
    "harness": _word(sessions.c.harness_id),
    "harness_session": _word(sessions.c.harness_session_id),
    "subject": _word(sessions.c.auth_subject),
    "cwd": _word(sessions.c.cwd),
    "version": _word(sessions.c.harness_version),
    "tag": _tag,
    "pinned": _pinned,
    "name": _named,
}
_OF_SPANS: dict[str, Make] = {
    "model": _kept("model", _model),
    "provider": _word(spans.c.provider),
    "tool": _kept("tool", _tool),
    "agent": _kept("agent", _word(spans.c.agent)),
    "kind": _kept("kind", _word(spans.c.call_kind)),
    "error": _kept("error", _word(spans.c.error_type)),
    "outcome": _word(spans.c.outcome),
    "stop": _word(spans.c.stop_reason),
    "thread": _word(spans.c.thread_id),
}
FIELDS: Mapping[Noun, Mapping[str, Make]] = {
    Noun.SESSIONS: {
        **_OF_SESSIONS,
        **{
            name: _facet(name)
            for name in ("model", "provider", "tool", "agent", "kind", "error", "outcome", "stop")
        },
        "id": _id(sessions.c.id),
        "parent": _id(sessions.c.parent_session_id),
        "status": _word(sessions.c.derived_status),
        "by": _word(sessions.c.session_by),
        "fidelity": _word(sessions.c.fidelity),
        "cost": _money(SPENT[Noun.SESSIONS]),
        "saved": _money(sessions.c.saved_cost_usd),
        "tokens": _counted(sessions.c.total_tokens),
        "input": _counted(sessions.c.total_input_tokens),
        "output": _counted(sessions.c.total_output_tokens),
        "cached": _counted(sessions.c.cache_read_tokens),
        "reasoning": _counted(sessions.c.reasoning_tokens),
        "turns": _counted(sessions.c.turn_count),
        "calls": _counted(sessions.c.llm_calls),
        "errors": _counted(sessions.c.failed_calls),
        "tool_errors": _counted(sessions.c.tool_error_count),
        "replayed": _counted(sessions.c.replayed_calls),
        "duration": _lasting(sessions.c.duration_ns),
        "started": _at(sessions.c.started_at),
        "seen": _at(sessions.c.last_seen_at),
        "since": _bound(sessions.c.last_seen_at, Op.LEAST),
        "until": _bound(sessions.c.started_at, Op.LESS),
    },
    Noun.TRACES: {
        **{name: _of_session(Noun.TRACES, make) for name, make in _OF_SESSIONS.items()},
        **{name: _of_trace_spans(name, make) for name, make in _OF_SPANS.items()},
        "id": _word(traces.c.trace_id),
        "session": _id(traces.c.session_id),
        "status": _word(traces.c.status),
        "synthetic": _word(traces.c.synthetic),
        "source": _word(traces.c.source),
        "fidelity": _word(traces.c.fidelity),
        "cost": _money(SPENT[Noun.TRACES]),
        "saved": _money(traces.c.saved_cost_usd),
        "tokens": _counted(traces.c.total_tokens),
        "input": _counted(traces.c.total_input_tokens),
        "output": _counted(traces.c.total_output_tokens),
        "cached": _counted(traces.c.cache_read_tokens),
        "tools": _counted(traces.c.tool_calls),
        "spans": _counted(traces.c.span_count),
        "missing": _counted(traces.c.missing_count),
        "duration": _lasting(traces.c.duration_ns),
        "started": _at(traces.c.started_at),
        "since": _bound(traces.c.started_at, Op.LEAST),
        "until": _bound(traces.c.started_at, Op.LESS),
    },
    Noun.SPANS: {
        **{name: _of_session(Noun.SPANS, make) for name, make in _OF_SESSIONS.items()},
        **_OF_SPANS,
        "id": _word(spans.c.span_id),
        "trace": _word(spans.c.trace_id),
        "session": _id(spans.c.session_id),
        "parent": _parent,
        "type": _word(spans.c.kind),
        "name": _word(spans.c.name),
        "status": _word(spans.c.status),
        "request": _word(spans.c.request_id),
        "response": _response,
        "turn": _counted(spans.c.raw_turn_id),
        "anchor": _word(spans.c.anchor),
        "fidelity": _word(spans.c.fidelity),
        "cost": _money(SPENT[Noun.SPANS]),
        "saved": _money(_SAVED),
        "tokens": _counted(spans.c.total_tokens),
        "duration": _lasting(spans.c.duration_ns),
        "first": _lasting(spans.c.first_chunk_ns),
        "started": _at(spans.c.started_at),
        "since": _bound(spans.c.started_at, Op.LEAST),
        "until": _bound(spans.c.started_at, Op.LESS),
    },
    Noun.TURNS: {
        **{name: _of_session(Noun.TURNS, make) for name, make in _OF_SESSIONS.items()},
        "harness": _word(raw_turns.c.harness_id),
        "id": _counted(raw_turns.c.id),
        "session": _id(raw_turns.c.session_id),
        "request": _call(raw_turns.c.request_id),
        "source": _word(raw_turns.c.source),
        "provider": _word(raw_turns.c.provider),
        "agent": _word(raw_turns.c.agent_name),
        "thread": _word(raw_turns.c.thread_id),
        "outcome": _word(raw_turns.c.outcome),
        "state": _word(raw_turns.c.state),
        "status": _counted(raw_turns.c.status),
        "skipped": _skipped,
        "received": _at(raw_turns.c.received_at),
        "since": _bound(raw_turns.c.received_at, Op.LEAST),
        "until": _bound(raw_turns.c.received_at, Op.LESS),
    },
}

HasMake = Callable[[Context], Sql]


def _some(condition: Any) -> HasMake:
    return lambda _: condition


def _has_facet(name: str) -> HasMake:
    return lambda context: sessions.c.id.in_(
        select(facets.c.session_id).where(facets.c.org_id == context.org_id, facets.c.name == name)
    )


def _has_tag(context: Context) -> Sql:
    mine = select(tags.c.session_id).where(tags.c.org_id == context.org_id)
    return or_(_has_facet("tag")(context), sessions.c.id.in_(mine))


def _has_skip(context: Context) -> Sql:
    mine = select(skips.c.raw_turn_id).where(skips.c.org_id == context.org_id)
    return raw_turns.c.id.in_(mine)


HAS: Mapping[Noun, Mapping[str, HasMake]] = {
    Noun.SESSIONS: {
        "error": _some(sessions.c.failed_calls > 0),
        "tool_error": _some(sessions.c.tool_error_count > 0),
        "tool": _has_facet("tool"),
        "tag": _has_tag,
        "cost": _some(SPENT[Noun.SESSIONS].is_not(None)),
        "unpriced": _some(sessions.c.unpriced_calls > 0),
        "uncounted": _some(sessions.c.uncounted_calls > 0),
        "replayed": _some(sessions.c.replayed_calls > 0),
        "title": _some(sessions.c.derived_title != ""),
        "parent": _some(sessions.c.parent_session_id.is_not(None)),
        "git": _some(sessions.c.has_git_activity),
        "pin": lambda context: _pinned(Field("pinned", Op.IS, "yes"), context),
    },
    Noun.TRACES: {
        "error": _some(traces.c.status == "error"),
        "tool": _some(traces.c.tool_calls > 0),
        "missing": _some(traces.c.missing_count > 0),
        "cost": _some(SPENT[Noun.TRACES].is_not(None)),
        "unpriced": _some(traces.c.unpriced_calls > 0),
        "prompt": _some(traces.c.user_prompt != ""),
    },
    Noun.SPANS: {
        "error": _some(spans.c.status == "error"),
        "cost": _some(SPENT[Noun.SPANS].is_not(None)),
        "tokens": _some(spans.c.total_tokens.is_not(None)),
        "verdict": _some(judged),
        "turn": _some(spans.c.raw_turn_id.is_not(None)),
    },
    Noun.TURNS: {
        "skip": _has_skip,
        "session": _some(raw_turns.c.session_id.is_not(None)),
    },
}


@dataclass(frozen=True, slots=True)
class Sort:
    """How a list can be sorted: by an expression, and how its value is read from a cursor."""

    expression: Any
    read: Callable[[str], Any]
    is_text: bool = False


def _text(value: str) -> str:
    return value


def whole_number(value: str) -> int:
    """A number that a column holds. Raises ValueError."""
    if abs(found := int(value)) > LATEST:
        raise ValueError("beyond all numbers of rows")
    return found


def _amount(value: str) -> Decimal:
    if not (found := Decimal(value)).is_finite():
        raise ValueError("not an amount")
    return found


SORTS: Mapping[Noun, Mapping[str, Sort]] = {
    Noun.SESSIONS: {
        "last_active": Sort(sessions.c.last_seen_at, whole_number),
        "started_at": Sort(sessions.c.started_at, whole_number),
        "turn_count": Sort(sessions.c.turn_count, whole_number),
        "total_cost_usd": Sort(known(sessions.c.total_cost_usd), _amount),
        "total_tokens": Sort(known(sessions.c.total_tokens), whole_number),
        "duration_ns": Sort(sessions.c.duration_ns, whole_number),
        "derived_status": Sort(sessions.c.derived_status, _text, True),
        "auth_subject": Sort(sessions.c.auth_subject, _text, True),
    },
    Noun.TRACES: {
        "started_at": Sort(traces.c.started_at, whole_number),
        "duration_ns": Sort(known(traces.c.duration_ns), whole_number),
        "total_cost_usd": Sort(known(traces.c.total_cost_usd), _amount),
        "total_tokens": Sort(known(traces.c.total_tokens), whole_number),
    },
    Noun.SPANS: {
        "started_at": Sort(spans.c.started_at, whole_number),
        "seq": Sort(spans.c.seq, whole_number),
        "duration_ns": Sort(known(spans.c.duration_ns), whole_number),
        "cost_usd": Sort(known(SPENT[Noun.SPANS]), _amount),
        "total_tokens": Sort(known(spans.c.total_tokens), whole_number),
    },
    Noun.TURNS: {
        "id": Sort(raw_turns.c.id, whole_number),
        "received_at": Sort(raw_turns.c.received_at, whole_number),
    },
}
TABLES: Mapping[Noun, Table] = {
    Noun.SESSIONS: sessions,
    Noun.TRACES: traces,
    Noun.SPANS: spans,
    Noun.TURNS: raw_turns,
}
# What tells rows of equal value apart.
TIES: Mapping[Noun, Column[Any]] = {
    Noun.SESSIONS: sessions.c.id,
    Noun.TRACES: traces.c.trace_id,
    Noun.SPANS: spans.c.place,
    Noun.TURNS: raw_turns.c.id,
}
