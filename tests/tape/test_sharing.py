"""What machines count together in PostgreSQL: live calls, to the call; and one call per key."""

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from typing import Any

import psycopg
import pytest

import tapes.tape.postgres
from tapes.budget import Limits, Reserve, Spent, Unit
from tapes.cassette import Cassette, Play, Refusal
from tapes.errors import BudgetExhausted, LedgerFailed, UnreadableTape, UnwritableTape
from tapes.exchange import Request
from tapes.permit import Permit
from tapes.tape.postgres import PostgresTape, connected
from tapes.tape.sharing import PostgresFlights, PostgresLedger
from tests.postgres import Postgres
from tests.tape.homes import key, plain

ONE = Limits(calls=1)


@pytest.fixture
def ledger(database: str) -> Iterator[PostgresLedger]:
    ledger = ledger_of(database)
    yield ledger
    ledger.close()


def ledger_of(database: str, tape: str = "t", run: str = "") -> PostgresLedger:
    return PostgresLedger(lambda: connected(database), "postgresql://shown", tape, run)


@pytest.mark.row("B5")
def test_a_unit_is_taken_settled_and_given_back(ledger: PostgresLedger) -> None:
    limits = Limits(calls=2, tokens=100)
    first = ledger.take(key(1), limits, Reserve(60))
    assert isinstance(first, Unit)
    assert isinstance(ledger.take(key(2), limits, Reserve(60)), Spent)
    ledger.settle(first, 10, Decimal("0.0025"))
    second = ledger.take(key(2), limits, Reserve(60))
    assert isinstance(second, Unit)
    ledger.give_back(second)
    spent = ledger.spent()
    assert (spent.calls, spent.tokens, spent.usd) == (1, 10, Decimal("0.0025"))
    assert spent.since is not None


def test_tapes_and_runs_are_counted_apart(database: str) -> None:
    ledgers = [ledger_of(database), ledger_of(database, run="2"), ledger_of(database, "other")]
    assert all(isinstance(each.take(key(1), ONE, Reserve()), Unit) for each in ledgers)
    assert isinstance(ledgers[0].take(key(1), ONE, Reserve()), Spent)
    assert [len(each.spends()) for each in ledgers] == [2, 2, 1]
    assert ledgers[0].reset() == 2
    assert isinstance(ledgers[0].take(key(1), ONE, Reserve()), Unit)
    for each in ledgers:
        each.close()


def test_who_spent_what_can_be_seen(ledger: PostgresLedger) -> None:
    ledger.take(key(1), ONE, Reserve(5, Decimal("0.5")))
    (line,) = ledger.spends()
    assert (line.key, line.state, line.tokens, line.usd) == (key(1), "open", 5, Decimal("0.5"))


def _take(database: str, results: Any) -> None:
    ledger = ledger_of(database)
    results.put(isinstance(ledger.take(key(1), Limits(calls=3), Reserve()), Unit))
    ledger.close()


@pytest.mark.row("B5", "N17")
def test_a_limit_holds_exactly_over_processes(database: str) -> None:
    spawning = multiprocessing.get_context("spawn")
    results = spawning.Queue()
    workers = [spawning.Process(target=_take, args=(database, results)) for _ in range(8)]
    for worker in workers:
        worker.start()
    taken = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
    assert sorted(taken) == [False] * 5 + [True] * 3


def test_a_limit_holds_exactly_over_threads(ledger: PostgresLedger, database: str) -> None:
    ledgers = [ledger_of(database) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        taken = list(
            pool.map(lambda each: each.take(key(1), Limits(calls=3), Reserve()), ledgers * 5)
        )
    assert sum(isinstance(unit, Unit) for unit in taken) == 3
    for each in ledgers:
        each.close()


def test_a_count_that_cannot_be_had_permits_nothing(postgres: Postgres) -> None:
    ledger = ledger_of(postgres.new_database("count"))
    assert isinstance(ledger.take(key(1), ONE, Reserve()), Unit)
    postgres.stop()
    try:
        with pytest.raises(LedgerFailed, match="postgresql://shown"):
            ledger.take(key(2), Limits(calls=9), Reserve())
    finally:
        postgres.start()
    assert ledger.spent().calls == 1
    ledger.close()


def flights_of(database: str, tape: str = "t") -> PostgresFlights:
    return PostgresFlights(lambda: connected(database), tape)


def test_one_machine_at_a_time_makes_a_call(database: str) -> None:
    one, two, other = flights_of(database), flights_of(database), flights_of(database, "other")
    flight = one.take(key(1), "an exchange")
    assert flight is not None
    assert one.take(key(1), "another") is None
    assert two.take(key(1), "another") is None
    assert two.take(key(2), "another") is not None
    assert other.take(key(1), "another") is not None
    flight.land()
    assert two.take(key(1), "another") is not None
    for flights in (one, two, other):
        flights.close()


def test_the_flight_of_a_machine_that_died_is_free(database: str) -> None:
    one, two = flights_of(database), flights_of(database)
    assert one.take(key(1), "an exchange") is not None
    assert two.take(key(1), "another") is None
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory'"
        )
    assert two.take(key(1), "another") is not None
    one.close()
    two.close()


def test_flights_are_not_let_go_under_who_asks_for_one(database: str) -> None:
    flights = flights_of(database)
    connection = flights._connection = connected(database)
    flights._connection_pid = os.getpid()
    ending = threading.Thread(target=flights.close)
    with flights._mutex:
        ending.start()
        ending.join(0.05)
        assert not connection.closed
    ending.join(20)
    assert connection.closed


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tapes.tape.postgres, "_SILENCE_S", 0.05)


@pytest.mark.usefixtures("impatient")
def test_a_tape_that_hangs_is_an_error_and_found_again_later(database: str) -> None:
    with closing(PostgresTape(database)) as tape, psycopg.connect(database) as other:
        tape.append(plain(1))
        other.execute("LOCK TABLE tapes_exchanges")
        with pytest.raises(UnreadableTape, match="has not answered for"):
            tape.find(key(1))
        with pytest.raises(UnwritableTape, match="has not answered for"):
            tape.append(plain(2))
        other.rollback()
        assert tape.find(key(1)) is not None


@pytest.mark.usefixtures("impatient")
def test_a_count_that_hangs_permits_nothing(ledger: PostgresLedger, database: str) -> None:
    assert isinstance(ledger.take(key(1), ONE, Reserve()), Unit)
    with psycopg.connect(database) as other:
        other.execute("LOCK TABLE tapes_spends")
        with pytest.raises(LedgerFailed, match="has not answered for"):
            ledger.take(key(2), Limits(calls=9), Reserve())


@pytest.mark.row("B5", "B10")
def test_cassettes_on_two_machines_share_answers_and_budget(database: str) -> None:
    request = Request("POST", "https://h/v1/x", (("Content-Type", "application/json"),), b'{"a":1}')
    other = Request("POST", "https://h/v1/x", (("Content-Type", "application/json"),), b'{"a":2}')
    one, two = (Cassette(database, "record", limits=ONE, environ={}) for _ in range(2))
    permit = one.decide(request)
    assert isinstance(permit, Permit)
    permit.answered(200, (("Content-Type", "application/json"),))
    permit.feed(b"{}")
    permit.finish()
    assert isinstance(two.decide(request), Play)
    refused = two.decide(other)
    assert isinstance(refused, Refusal)
    assert isinstance(refused.error, BudgetExhausted)
    assert not one.answers_at_once
    one.close()
    two.close()
    tape = PostgresTape(database)
    assert [line.state for line in tape.ledger("").spends()] == ["spent"]
    tape.close()
