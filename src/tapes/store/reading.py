"""A select as text, made once, and how the values of its rows are read.

To have SQLAlchemy look at every statement and every value again takes longer than the database
needs; what it knows of them stays the same.

Knows nothing of what is selected.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Dialect, Select

Raw = tuple[Any, ...]


class Reading:
    """A select without lists of values in it, for one database."""

    def __init__(self, statement: Select[Any], dialect: Dialect) -> None:
        compiled: Any = statement.compile(dialect=dialect)
        self._sql = str(compiled)
        self._order: Sequence[str] | None = compiled.positiontup
        self._fixed: Mapping[str, Any] = compiled.params
        self._binds = {
            name: bind
            for name, parameter in compiled.binds.items()
            if (bind := parameter.type.dialect_impl(dialect).bind_processor(dialect)) is not None
        }
        self.names = tuple(statement.selected_columns.keys())
        self._types = [c.type.dialect_impl(dialect) for c in statement.selected_columns]
        self._dialect = dialect
        self._readers: list[tuple[int, Callable[[Any], Any]]] | None = None

    def rows(self, connection: Connection, values: Mapping[str, Any]) -> Sequence[Raw]:
        """The rows as the driver gives them."""
        bound = {**self._fixed, **values}
        for name, bind in self._binds.items():
            bound[name] = bind(bound[name])
        given = bound if self._order is None else tuple(bound[name] for name in self._order)
        result = connection.exec_driver_sql(self._sql, given)
        cursor: Any = result.cursor
        if self._readers is None:
            self._readers = self._readers_of([column[1] for column in cursor.description])
        rows: Sequence[Raw] = cursor.fetchall()  # all at once: there may be many thousand
        result.close()
        return rows

    def _readers_of(self, codes: Sequence[Any]) -> list[tuple[int, Callable[[Any], Any]]]:
        """What reads which value; a driver gives each type a code of its own."""
        found = (
            (at, kind.result_processor(self._dialect, code))
            for at, (kind, code) in enumerate(zip(self._types, codes, strict=True))
        )
        return [(at, read) for at, read in found if read is not None]

    def read(self, row: Raw) -> list[Any]:
        """The values of a row that was read here."""
        values = list(row)
        for at, read in self._readers or ():
            values[at] = read(values[at])
        return values
