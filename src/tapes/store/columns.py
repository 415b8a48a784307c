"""How values lie in columns: ids, texts, money, times and JSON, alike in both databases.

Rule 1: what comes out is what went in. Money is exact to a millionth of a millionth of a dollar.
Rule 2: what a database cannot hold (a NUL, half a surrogate, a number beyond 64 bits) is made
        storable before it is bound, never refused.

Knows nothing of tables.
"""

from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal
from functools import lru_cache
from typing import Any

from sqlalchemy import BigInteger, Dialect, LargeBinary, Numeric, Text
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType

from tapes.jsontext import Json
from tapes.loosejson import as_it_was_kept, packed, storable
from tapes.rows import NO_ORG
from tapes.store.packing import spread, squeezed

POSTGRES = "postgresql"

# Ids and names are compared by their bytes, as SQLite does, so that ranges of prefixes work.
Word = Text().with_variant(Text(collation="C"), POSTGRES)
Bytes = LargeBinary
Whole = BigInteger

_LARGEST = 2**63 - 1


def whole(value: int | None) -> int | None:
    """A number that fits into a column."""
    return None if value is None else max(-_LARGEST, min(value, _LARGEST))


class Id(TypeDecorator[str]):
    """A UUID: text in Python, 16 bytes in the database."""

    impl = LargeBinary(16)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == POSTGRES:
            return dialect.type_descriptor(postgresql.UUID(as_uuid=False))
        return dialect.type_descriptor(LargeBinary(16))

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        return None if dialect.name == POSTGRES else bytes_of_id

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        return _text_of_id if dialect.name == POSTGRES else _id_of_bytes


# What reads a column is given to the database as it is: pages have thousands of values.


def _text_of_id(value: Any) -> str | None:
    return None if value is None else str(value)


@lru_cache(4096)  # as are all turns of a batch
def bytes_of_id(value: str | None) -> bytes | None:
    """An id as 16 bytes."""
    return None if value is None else bytes.fromhex(value.replace("-", ""))


_NOBODY = bytes(16)


@lru_cache(4096)  # all rows of a page are of few sessions
def _id_of_bytes(value: bytes | None) -> str | None:
    if value is None:
        return None
    if value == _NOBODY:  # the tenant of most
        return NO_ORG
    digits = value.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


_PLACES = 12
_PICO = Decimal(1).scaleb(-_PLACES)
_MOST = Decimal(_LARGEST).scaleb(-_PLACES)


def money(value: Decimal | None) -> Decimal | None:
    """An amount as a column keeps it."""
    if value is None:
        return None
    return max(-_MOST, min(value, _MOST)).quantize(_PICO, ROUND_HALF_EVEN)


class Money(TypeDecorator[Decimal]):
    """US dollars: a decimal number; in SQLite a whole number of millionths of millionths."""

    impl = Numeric(24, _PLACES)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        plain: TypeEngine[Any] = Numeric(24, _PLACES)
        return dialect.type_descriptor(plain if dialect.name == POSTGRES else BigInteger())

    def process_bind_param(self, value: Decimal | int | None, dialect: Dialect) -> Any:
        kept = money(None if value is None else Decimal(value))
        if kept is None or dialect.name == POSTGRES:
            return kept
        return int(kept.scaleb(_PLACES))

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:
        if value is None:
            return None
        kept = Decimal(value) if dialect.name == POSTGRES else Decimal(value).scaleb(-_PLACES)
        return kept.normalize() + 0  # without the zeros at its end, and without an exponent


def written(value: Json) -> bytes:
    """The JSON text of a value that every database takes."""
    text = packed(value)
    if b"\\u0000" in text or b"\\ud" in text:
        text = packed(storable(value))
    return text


def read(text: Any) -> Json:
    """The value of a JSON text; a driver may have read it already."""
    if isinstance(text, memoryview):
        text = bytes(text)
    return as_it_was_kept(text) if isinstance(text, str | bytes) else text


class _JsonText(UserDefinedType[Any]):
    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "JSON"


class JsonText(TypeDecorator[Json]):
    """JSON as its text, in the order that it has."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        plain: TypeEngine[Any] = _JsonText() if dialect.name == POSTGRES else Text()
        return dialect.type_descriptor(plain)

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        return _written_or_none

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        return _read_or_none


def _written_or_none(value: Json) -> str | None:
    return None if value is None else written(value).decode()


def _read_or_none(value: Any) -> Json:
    if value is None:
        return None
    if value == "[]":  # as most are
        return []
    return read(value)


# --- sums -------------------------------------------------------------------------------------

# SQLite adds up in 64 bits, and fails where that is not enough: the two halves of each number are
# added up apart, and put together where they are read. PostgreSQL has numbers of any length.
_HALF = 32


class _Wide(TypeDecorator[Any]):
    """A sum of any size, as `WideSum` tells it."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: TypeEngine[Any]) -> None:
        super().__init__()
        self.kind = kind

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        plain: TypeEngine[Any] = Numeric() if dialect.name == POSTGRES else Text()
        return dialect.type_descriptor(plain)

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | int | None:
        if value is None:
            return None
        is_money = isinstance(self.kind, Money)
        if dialect.name == POSTGRES:
            found = Decimal(value)
        else:
            high, low = map(int, value.split())
            found = Decimal((high << _HALF) + low).scaleb(-_PLACES if is_money else 0)
        return found.normalize() + 0 if is_money else int(found)


class High(FunctionElement[Any]):
    """The sum of the upper halves; all of it in PostgreSQL."""

    name = "sum_of_high"
    type: TypeEngine[Any] = BigInteger()
    inherit_cache = True


class Low(FunctionElement[Any]):
    """The sum of the lower halves; nothing in PostgreSQL."""

    name = "sum_of_low"
    type: TypeEngine[Any] = BigInteger()
    inherit_cache = True


class WideSum(FunctionElement[Any]):
    """A sum that no number of rows is too much for: of values, or of halves that were added up."""

    name = "wide_sum"
    inherit_cache = True

    def __init__(self, kind: TypeEngine[Any], *parts: Any) -> None:
        super().__init__(*parts)
        self.type = _Wide(kind)


def _parts(element: Any, compiler: Any, how: Any) -> list[str]:
    return [compiler.process(part, **how) for part in element.clauses]


@compiles(High)
def _high_in_sqlite(element: Any, compiler: Any, **how: Any) -> str:
    return f"sum({_parts(element, compiler, how)[0]} >> {_HALF})"


@compiles(Low)
def _low_in_sqlite(element: Any, compiler: Any, **how: Any) -> str:
    return f"sum({_parts(element, compiler, how)[0]} & {2**_HALF - 1})"


@compiles(WideSum)
def _wide_in_sqlite(element: Any, compiler: Any, **how: Any) -> str:
    high, *low = _parts(element, compiler, how)
    if low:
        return f"(sum({high}) || ' ' || sum({low[0]}))"
    return f"(sum({high} >> {_HALF}) || ' ' || sum({high} & {2**_HALF - 1}))"


@compiles(High, POSTGRES)
@compiles(WideSum, POSTGRES)
def _sum_in_postgres(element: Any, compiler: Any, **how: Any) -> str:
    return f"sum({_parts(element, compiler, how)[0]})"


@compiles(Low, POSTGRES)
def _low_in_postgres(*_: Any, **__: Any) -> str:
    return "0"


class ListOf(FunctionElement[Json]):
    """All values of a column that a sub-select finds, as one list; in no order."""

    name = "list_of"
    type = JsonText()
    inherit_cache = True


@compiles(ListOf)
def _list_in_sqlite(element: Any, compiler: Any, **how: Any) -> str:
    return f"json_group_array({compiler.process(element.clauses, **how)})"


@compiles(ListOf, POSTGRES)
def _list_in_postgres(element: Any, compiler: Any, **how: Any) -> str:
    return f"json_agg({compiler.process(element.clauses, **how)})"


# Shorter JSON is not worth compressing.
_LARGE = 600


class Payload(JsonText):
    """JSON that may be large: in SQLite compressed where that helps. PostgreSQL does so itself."""

    impl = Text
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        return _written_or_none if dialect.name == POSTGRES else _payload_or_none

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        return _read_or_none if dialect.name == POSTGRES else _read_payload


def _payload_or_none(value: Json) -> str | bytes | None:
    if value is None:
        return None
    text = written(value)
    return text.decode() if len(text) < _LARGE else squeezed(text)


def _read_payload(value: Any) -> Json:
    return _read_or_none(spread(value) if isinstance(value, bytes) else value)
