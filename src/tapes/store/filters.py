"""What is asked for in a list or a search: a tree of conditions, and the language that people type.

    refund policy            both words, anywhere, in any order
    "refund policy"          exactly so
    refund*                  words that begin so
    refund OR credit         one of them
    -refund                  not
    model:claude-opus-5      a field; model:a,b is one of several; model:claude* begins so
    cost:>0.5  tokens:>10k   more than; also >=, <, <=, and 1..5 for a range
    duration:>2s  since:24h  lengths of time: ms, s, m, h, d, w
    has:error                has some
    meta.team:search         what a harness said of its session, by its path
    ( … )                    together

Rule 1: what cannot be read is an error with its position, never an empty result.
Rule 2: a word with a colon is a field. A text that has one is put into quotes.

Knows nothing of databases, or of which fields there are.  Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tapes.errors import BadQuery
from tapes.loosejson import storable


class Op(StrEnum):
    """How a field compares."""

    IS = "="
    BEGINS = "^"
    MORE = ">"
    LEAST = ">="
    LESS = "<"
    MOST = "<="


@dataclass(frozen=True, slots=True)
class Text:
    """Words that stand in the text, as they were asked for. `place` is where in the query."""

    text: str
    as_prefix: bool = False
    place: int = 0


@dataclass(frozen=True, slots=True)
class Field:
    """A field that compares so with a value."""

    name: str
    op: Op
    value: str
    place: int = 0


@dataclass(frozen=True, slots=True)
class Has:
    """That there is some."""

    what: str
    place: int = 0


@dataclass(frozen=True, slots=True)
class Not:
    """That a condition does not hold."""

    condition: "Condition"


@dataclass(frozen=True, slots=True)
class All:
    """That all hold; of none: always."""

    conditions: tuple["Condition", ...] = ()


@dataclass(frozen=True, slots=True)
class Some:
    """That at least one holds; of none: never."""

    conditions: tuple["Condition", ...] = ()


Condition = Text | Field | Has | Not | All | Some
EVERYTHING = All()


def is_(name: str, value: str) -> Field:
    """That a field has this value."""
    return Field(name, Op.IS, value)


def both(one: Condition, other: Condition) -> Condition:
    """That both hold."""
    parts = (
        part
        for condition in (one, other)
        for part in (condition.conditions if isinstance(condition, All) else (condition,))
    )
    return All(tuple(parts))


def texts_in(condition: Condition) -> Iterator[Text]:
    """The words that a condition asks for, those that must not stand there left out."""
    match condition:
        case Text():
            yield condition
        case All(conditions) | Some(conditions):
            for part in conditions:
                yield from texts_in(part)
        case _:
            return


# --- reading ----------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"(?P<blank>\s+)"
    r"|(?P<open>\()|(?P<close>\))"
    r"|(?P<minus>-(?=[^\s)]))"
    r"|(?P<field>[A-Za-z][\w.-]*):(?!//)(?P<op>>=|<=|>|<|=)?"
    r'(?P<value>"(?:[^"\\]|\\.)*"|[^\s()"]*)'
    r'|"(?P<phrase>(?:[^"\\]|\\.)*)"'
    r'|(?P<word>[^\s()"]+)'
)
# A chain of conditions that is nested deeper was not typed by a person.
_DEPTH = 50


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    match: re.Match[str]
    place: int


def parse(text: str) -> Condition:
    """The condition that a text asks for. Raises BadQuery, which knows the position."""
    reader = _Reader(_tokens(str(storable(text))), len(text))
    condition = reader.either(0)
    if reader.token is not None:
        raise _bad("this closes nothing", reader.token.place)
    return condition


def _tokens(text: str) -> list[_Token]:
    tokens, place = list[_Token](), 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _bad('this quotation mark has no second: write "…"', place)
        kind = match.lastgroup or ""
        if match["field"] is not None:
            kind = "field"
        if kind != "blank":
            tokens.append(_Token(kind, match, place))
        place = match.end()
    return tokens


def _bad(what: str, place: int) -> BadQuery:
    return BadQuery(f"the query cannot be read at character {place + 1}: {what}", place)


class _Reader:
    """Tokens → conditions, by recursive descent."""

    def __init__(self, tokens: list[_Token], end: int) -> None:
        self._tokens = tokens
        self._at = 0
        self._end = end

    @property
    def token(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _says(self, word: str) -> bool:
        token = self.token
        return token is not None and token.kind == "word" and token.match["word"] == word

    def either(self, depth: int) -> Condition:
        """Conditions with OR between them."""
        if depth > _DEPTH:
            raise _bad("it is nested too deeply", self._place())
        parts = [self._together(depth)]
        while self._says("OR"):
            at = self._place()
            self._at += 1
            if self._ends():
                raise _bad("nothing stands after OR", at)
            parts.append(self._together(depth))
        return parts[0] if len(parts) == 1 else Some(tuple(parts))

    def _place(self) -> int:
        return self.token.place if self.token is not None else self._end

    def _ends(self) -> bool:
        return self.token is None or self.token.kind == "close" or self._says("OR")

    def _together(self, depth: int) -> Condition:
        parts: list[Condition] = []
        if self._says("OR"):
            raise _bad("nothing stands before OR", self._place())
        while not self._ends():
            if self._says("AND"):
                at = self._place()
                self._at += 1
                if not parts or self._ends():
                    raise _bad("AND stands between two conditions", at)
            else:
                parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _one(self, depth: int) -> Condition:
        token = self.token
        assert token is not None
        self._at += 1
        if token.kind == "minus" or (token.kind == "word" and token.match["word"] == "NOT"):
            if self._ends() or depth > _DEPTH:
                raise _bad("nothing stands after it", token.place)
            return Not(self._one(depth + 1))
        if token.kind == "open":
            inner = self.either(depth + 1)
            if self.token is None:
                raise _bad("this is not closed", token.place)
            self._at += 1
            return inner
        return _leaf(token)


def _leaf(token: _Token) -> Condition:
    match, place = token.match, token.place
    if token.kind == "phrase":
        return Text(_plain(match["phrase"]), place=place)
    if token.kind == "field":
        return _field(match, place)
    word = match["word"]
    if word.endswith("*") and word != "*":
        return Text(word.rstrip("*"), as_prefix=True, place=place)
    return Text(word, place=place)


def _field(match: re.Match[str], place: int) -> Condition:
    name, op, value = match["field"], match["op"], match["value"]
    if not value:
        raise _bad(f"{name}: has no value", place)
    quoted = value.startswith('"')
    text = _plain(value[1:-1]) if quoted else value
    if name == "has":
        return Has(text, place)
    if op is not None:
        return Field(name, Op(op), text, place)
    if quoted:
        return Field(name, Op.IS, text, place)
    low, dots, high = text.partition("..")
    if dots and low and high:
        return All((Field(name, Op.LEAST, low, place), Field(name, Op.MOST, high, place)))
    parts = tuple(_value(name, part, place) for part in text.split(",") if part)
    if not parts:
        raise _bad(f"{name}: has no value", place)
    return parts[0] if len(parts) == 1 else Some(parts)


def _value(name: str, text: str, place: int) -> Condition:
    beginning = text.rstrip("*")
    if not beginning:
        raise _bad(f"{name}: says nothing before its * (is it has:{name}?)", place)
    if "*" in beginning:
        raise _bad(f'{name}: has a * that is not at its end (as a character: {name}:"…")', place)
    return Field(name, Op.IS if text == beginning else Op.BEGINS, beginning, place)


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
