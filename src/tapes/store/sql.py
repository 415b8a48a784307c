"""The store over a database: what SQLite and PostgreSQL share, which is nearly all."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from sqlalchemy import Select, Table, delete, func, select

from tapes.errors import DamagedStore, UnavailableStore
from tapes.rows import NO_ORG, RawTurn
from tapes.store.appending import Appending, count_drops
from tapes.store.base import Derivation, Receipt, Stats
from tapes.store.database import Database
from tapes.store.erasing import Erasing, Purge
from tapes.store.lately import Lately
from tapes.store.logreading import Bodies, SessionTurns, TurnReader, unnamed_turns
from tapes.store.migrate import say_about
from tapes.store.placing import Placements, PlacingWork
from tapes.store.project import SqlProject
from tapes.store.records import orgs_of_records
from tapes.store.renewing import Renewing
from tapes.store.strays import strays
from tapes.store.tables import about, dirty, drops, raw_turns
from tapes.store.working import WAITS, TakenWork, Working

_KINDS = (raw_turns.c.state, raw_turns.c.outcome, raw_turns.c.source)
_BY_KIND = select(*_KINDS, func.count()).group_by(*_KINDS).order_by(*_KINDS)
# A row that is gone again: of one that stays as it was SQLite would write nothing.
_TRIED = "tried"


class SqlStore:
    """The log and its read model in one database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.name = database.name
        self._appending = Appending(database)
        self._working = Working(database)
        self._renewing = Renewing(database)
        self._placements = Placements(database)
        self._bodies = Bodies()
        self._erasing = Erasing(database, self._forget)
        self._counts = Lately[Mapping[str, Mapping[str, int]]](lambda by: sum(by["state"].values()))
        self._stats = Lately[Stats](lambda stats: stats.traces)

    def _forget(self) -> None:
        self._appending.forget()
        self._bodies.forget()
        self._counts.forget()
        self._stats.forget()

    # --- appending

    def append(self, turns: Sequence[RawTurn]) -> list[Receipt]:
        """Keep turns, all or none."""
        return self._appending.append(turns)

    def count_drops(self, numbers: Mapping[tuple[str, str, str], int]) -> None:
        """Add to the numbers of exchanges that became no turn."""
        if numbers:
            with self.database.writing() as connection:
                count_drops(self.database, connection, numbers)

    # --- tenants

    def project(self, org_id: str = NO_ORG) -> SqlProject:
        """What belongs to one tenant."""
        return SqlProject(self.database, org_id, self._erasing, self._stats)

    def orgs(self) -> tuple[str, ...]:
        """The tenants of which there are turns."""
        ask = select(raw_turns.c.org_id).distinct().order_by(raw_turns.c.org_id)
        with self.database.reading() as connection:
            return tuple(connection.execute(ask).scalars())

    def orgs_of_records(self) -> tuple[str, ...]:
        """The tenants of which there is anything beside turns."""
        return tuple(sorted(orgs_of_records(self.database)))

    # --- deriving

    def leading(self) -> AbstractContextManager[bool]:
        """Whether this process may derive."""
        return self.database.leading()

    def placing(self, limit: int) -> AbstractContextManager[PlacingWork | None]:
        """Turns that name no session and were not looked at."""
        return self._placements.placing(limit)

    def take(
        self,
        limit: int,
        *,
        ready_at: int,
        overdue_at: int,
        but: Collection[tuple[str, str]] = (),
    ) -> AbstractContextManager[TakenWork]:
        """Dirty sessions that no other worker has."""
        return self._working.take(limit, ready_at=ready_at, overdue_at=overdue_at, but=but)

    def turns_of(
        self, org_id: str, session_id: str, *, known: frozenset[int] = frozenset()
    ) -> tuple[frozenset[int], list[RawTurn]]:
        """The ids of a session's turns, and those of its turns that are not known."""
        with self.turns_of_many(org_id, {session_id: known}) as turns:
            return turns(session_id)

    @contextmanager
    def turns_of_many(
        self, org_id: str, known: Mapping[str, frozenset[int]]
    ) -> Iterator[Callable[[str], tuple[frozenset[int], list[RawTurn]]]]:
        """The same for several sessions; each is read when it is asked for."""
        with self.database.reading() as connection:
            reader = TurnReader(connection, org_id, self._bodies)
            yield SessionTurns(reader, connection, known, org_id).of

    def sessions_of_log(self, org_id: str) -> Iterator[str]:
        """The sessions of which there are turns."""
        ask = (
            select(raw_turns.c.session_id)
            .where(raw_turns.c.org_id == org_id, raw_turns.c.session_id.is_not(None))
            .distinct()
            .order_by(raw_turns.c.session_id)
        )
        with self.database.reading() as connection:
            yield from connection.execute(ask).scalars().all()

    def unnamed(self, org_id: str) -> Iterator[tuple[RawTurn, str]]:
        """Turns that name no session, and where they were placed."""
        where = (raw_turns.c.harness_session_id == "") & raw_turns.c.corrected.is_(False)
        return unnamed_turns(self.database, org_id, where)

    def strays(self, org_id: str) -> Iterator[str]:
        """Rows of the read model with no turn behind them."""
        with self.database.reading() as connection:
            yield from strays(connection, org_id)

    def mark_dirty(self, org_id: str | None = None, session_ids: Iterable[str] = ()) -> int:
        """Have sessions derived anew."""
        return self._working.mark(org_id, session_ids)

    def derivation(self) -> Derivation:
        """By which deriver the log was derived."""
        return self._renewing.derivation()

    def renew(self, number: int) -> Derivation:
        """Give out what a lower number derived."""
        return self._renewing.renew(number)

    def take_renewed(self, limit: int) -> AbstractContextManager[TakenWork]:
        """Sessions that were given out so."""
        return self._working.take_renewed(limit)

    def derived(self, number: int) -> None:
        """All of it was derived by this number."""
        self._renewing.derived(number)

    def waiting(self, org_id: str) -> int:
        """How many sessions of a tenant are still to be derived, those that a worker has too."""
        return self._working.waiting(org_id)

    # --- counts

    def counts(self, org_id: str | None = None) -> Mapping[str, Mapping[str, int]]:
        """Numbers of a tenant, or of all together; of a large log those of lately."""
        return self._counts.of(org_id, lambda: self._counted(org_id))

    def _counted(self, org_id: str | None) -> Mapping[str, Mapping[str, int]]:
        def of(statement: Select[Any], table: Table) -> Select[Any]:
            return statement if org_id is None else statement.where(table.c.org_id == org_id)

        with self.database.reading() as connection:
            ask = connection.execute
            by: dict[str, dict[str, int]] = {"state": {}, "outcome": {}, "source": {}}
            for *values, number in ask(of(_BY_KIND, raw_turns)):
                for numbers, value in zip(by.values(), map(str, values), strict=True):
                    numbers[value] = numbers.get(value, 0) + number
            lost = select(drops.c.reason, func.sum(drops.c.number)).group_by(drops.c.reason)
            by["drops"] = {reason: int(number) for reason, number in ask(of(lost, drops))}
            waiting = of(select(func.count()).select_from(dirty), dirty)
            unplaced = select(func.count()).where(
                raw_turns.c.session_id.is_(None), raw_turns.c.placed.is_(None)
            )
            by["waiting"] = {
                "sessions": ask(waiting.where(WAITS)).scalar() or 0,
                "failed": ask(waiting.where(dirty.c.failed.is_not(None))).scalar() or 0,
                "unplaced": ask(of(unplaced, raw_turns)).scalar() or 0,
            }
        return by

    # --- erasing

    def when_erasing(self, purge: Purge, unsearched: Callable[[], Sequence[str]]) -> None:
        """Have this called for sessions that are about to be erased: turns wait elsewhere too."""
        self._erasing.purges.append((purge, unsearched))

    def finish_erasures(self) -> int:
        """Take what was erased out of the file's bytes."""
        return self._erasing.finish()

    # --- keeping

    def unwritten(self) -> str:
        """Why nothing can be written just now; "" where it can. Tried where it failed before."""
        if self.database.unwritten and not self.database.only_read:
            with suppress(UnavailableStore), self.database.writing() as connection:
                say_about(connection, _TRIED, "")
                connection.execute(delete(about).where(about.c.name == _TRIED))
        return self.database.unwritten

    def check(self) -> tuple[str, ...]:
        """What is damaged: in the database's own structure, then turn by turn."""
        found = list[str]()
        for looked in (self.database.damage, *(self._damage_of(org_id) for org_id in self.orgs())):
            try:
                found += looked()
            except DamagedStore as error:  # so much that there is no reading on
                found.append(error.message)
        return tuple(dict.fromkeys(found))

    def _damage_of(self, org_id: str) -> Callable[[], list[str]]:
        return lambda: self._damaged_turns(org_id)

    def _damaged_turns(self, org_id: str) -> list[str]:
        found, after = list[str](), 0
        ask = select(raw_turns).where(raw_turns.c.org_id == org_id).order_by(raw_turns.c.id)
        while True:
            with self.database.reading() as connection:
                reader = TurnReader(connection, org_id)
                some = connection.execute(ask.where(raw_turns.c.id > after).limit(200)).mappings()
                rows = some.all()
                for row in rows:
                    try:
                        reader.read(row)
                    except DamagedStore as error:
                        found.append(error.message)
            if not rows:
                return found
            after = rows[-1]["id"]

    def backup(self, path: str) -> None:
        """A whole copy, while others read and write."""
        self.database.backup(path)

    def close(self) -> None:
        """Let go of all connections."""
        self.database.close()
