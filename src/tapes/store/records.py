"""What a log holds beside its turns: who did what, what was erased, how long things are kept.

Rule 1: records go from one log into another, of either kind, as they are and once: what is there
        already is known by what it says, not by its number. Numbers are given anew.
Rule 2: what became no turn is counted there at least as often as here; copying again adds nothing.
Rule 3: what one log has erased is refused by the other as by the first.

Knows nothing of turns, and nothing of who copies.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, and_, insert, literal, select, tuple_, update

from tapes.store.base import Record, Records
from tapes.store.database import Database
from tapes.store.tables import (
    audit,
    drops,
    erased_turns,
    erasures,
    policies,
    tapes,
    tombstones,
)

_AT_ONCE = 500
# Each kind with its table, and the columns by which it is read on.
_TABLES: Mapping[Records, tuple[Table, tuple[str, ...]]] = {
    Records.POLICIES: (policies, ("org_id",)),
    Records.ERASURES: (erasures, ("id",)),
    Records.TOMBSTONES: (tombstones, ("session_id",)),
    Records.ERASED_TURNS: (erased_turns, ("request_hash",)),
    Records.AUDIT: (audit, ("id",)),
    Records.TAPES: (tapes, ("session_id", "path")),
    Records.DROPS: (drops, ("provider", "reason")),
}
# What tells an erasure, or an entry of the audit, from all others.
_ERASURE = ("asked_at", "by", "reason", "sessions")
_ENTRY = ("at", "action", "by")


def orgs_of_records(database: Database) -> set[str]:
    """The tenants of which there are records."""
    with database.reading() as connection:
        return {
            org
            for table, _ in _TABLES.values()
            for org in connection.execute(select(table.c.org_id).distinct()).scalars()
        }


def stream_records(database: Database, org_id: str) -> Iterator[Record]:
    """All records of a tenant, each kind after those that it names."""
    for kind, (table, order) in _TABLES.items():
        columns = [table.c[name] for name in order]
        ask = select(table).where(table.c.org_id == org_id).order_by(*columns).limit(_AT_ONCE)
        page = ask
        while True:
            with database.reading() as connection:
                rows = connection.execute(page).mappings().all()
                records = [_record(connection, org_id, kind, row) for row in rows]
            yield from records
            if len(rows) < _AT_ONCE:
                break
            last = (literal(rows[-1][column.name], column.type) for column in columns)
            page = ask.where(tuple_(*columns) > tuple_(*last))


def _record(connection: Connection, org_id: str, kind: Records, row: Mapping[Any, Any]) -> Record:
    values = {str(name): value for name, value in row.items() if name not in ("id", "org_id")}
    number = None
    if kind is Records.TOMBSTONES:
        number = values.pop("erasure_id")
    elif kind is Records.AUDIT and isinstance(values["details"], dict):
        number = values["details"].get("erasure")
    erasure = None
    if number is not None:
        mine = and_(erasures.c.org_id == org_id, erasures.c.id == number)
        found = connection.execute(select(erasures).where(mine)).mappings().first()
        erasure = None if found is None else {name: found[name] for name in _ERASURE}
    return Record(kind, values, erasure)


def take_records(database: Database, org_id: str, records: Sequence[Record]) -> int:
    """Take in records of another log, all or none; gives the number of those that are new."""
    with database.writing() as connection:
        taking = _Taking(database, connection, org_id)
        return sum(map(taking.take, records))


class _Taking:
    def __init__(self, database: Database, connection: Connection, org_id: str) -> None:
        self._database, self._connection, self._org = database, connection, org_id

    def take(self, record: Record) -> bool:
        """Take one in; gives whether it is new."""
        values = dict(record.values)
        match record.kind:
            case Records.ERASURES:
                # Its bytes were never in this database's file.
                values["done_at"] = values["done_at"] or time.time_ns()
                return self._added(erasures, values, _ERASURE)
            case Records.AUDIT:
                number = self._erasure(record)
                if number is not None:
                    values["details"] = {**_mapping(values["details"]), "erasure": number}
                return self._added(audit, values, _ENTRY)
            case Records.TOMBSTONES:
                return self._buried({**values, "erasure_id": self._erasure(record) or 0})
            case Records.POLICIES | Records.ERASED_TURNS | Records.TAPES:
                table, _ = _TABLES[record.kind]
                return self._put(table, values)
            case Records.DROPS:
                return self._counted(values)

    def _erasure(self, record: Record) -> int | None:
        """The number here of the erasure that a record names."""
        if record.erasure is None:
            return None
        ask = select(erasures.c.id).where(self._like(erasures, record.erasure, _ERASURE))
        return self._connection.execute(ask).scalar()

    def _like(self, table: Table, values: Mapping[str, Any], names: Sequence[str]) -> Any:
        same = (table.c[name] == values[name] for name in names)
        return and_(table.c.org_id == self._org, *same)

    def _added(self, table: Table, values: dict[str, Any], names: Sequence[str]) -> bool:
        ask = select(table.c.id).where(self._like(table, values, names))
        if self._connection.execute(ask.limit(1)).first() is not None:
            return False
        self._connection.execute(insert(table), {"org_id": self._org, **values})
        return True

    def _put(self, table: Table, values: dict[str, Any]) -> bool:
        added = self._database.insert(table).on_conflict_do_nothing().returning(table.c.org_id)
        done = self._connection.execute(added, {"org_id": self._org, **values})
        return done.first() is not None

    def _counted(self, values: dict[str, Any]) -> bool:
        if self._put(drops, values):
            return True
        mine = self._like(drops, values, ("provider", "reason"))
        fewer = and_(mine, drops.c.number < values["number"])
        done = self._connection.execute(update(drops).where(fewer).values(number=values["number"]))
        return bool(done.rowcount > 0)

    def _buried(self, values: dict[str, Any]) -> bool:
        if self._put(tombstones, values):
            return True
        mine = self._like(tombstones, values, ("session_id",))
        older = and_(mine, tombstones.c.erased_at < values["erased_at"])
        done = self._connection.execute(update(tombstones).where(older).values(**values))
        return bool(done.rowcount > 0)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def date_tombstone(database: Database, org_id: str, record: Record) -> None:
    """Have a session that was erased here because it was erased there count as erased then."""
    with database.writing() as connection:
        mine = and_(
            tombstones.c.org_id == org_id, tombstones.c.session_id == record.values["session_id"]
        )
        then = {"erased_at": record.values["erased_at"]}
        connection.execute(update(tombstones).where(mine).values(then))
