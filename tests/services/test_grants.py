import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tapes.errors import BadManifest
from tapes.services.grants import GrantPlan, quoted
from tests.parts import absent
from tests.postgres import found_binaries, other_user

PLAN = GrantPlan(
    role="cassette_daily-summary",
    schema="daily-summary",
    selects=("tapes_v1.sessions", "tapes_v1.spans"),
    tables=("daily_summary",),
)


@pytest.mark.row("C10")
def test_the_plan_as_json_leaves_empty_lists_out() -> None:
    assert PLAN.form() == {
        "role": "cassette_daily-summary",
        "schema": "daily-summary",
        "own_schema": True,
        "selects": ["tapes_v1.sessions", "tapes_v1.spans"],
        "tables": ["daily_summary"],
    }
    bare = GrantPlan(role="cassette_a1", schema="a1")
    assert bare.form() == {"role": "cassette_a1", "schema": "a1", "own_schema": True}


@pytest.mark.row("C10")
def test_every_identifier_in_the_sql_is_quoted() -> None:
    sql = PLAN.sql()
    assert (
        'CREATE SCHEMA IF NOT EXISTS "daily-summary" AUTHORIZATION "cassette_daily-summary";' in sql
    )
    assert 'GRANT SELECT ON "tapes_v1"."spans" TO "cassette_daily-summary";' in sql
    assert sql.count("GRANT USAGE") == 1


@pytest.mark.row("C10")
@pytest.mark.parametrize("name", ['a"; DROP', "A", "", "a b", "a\n", "é", "a'", "a$$", "a" * 64])
def test_a_name_that_no_manifest_may_have_never_becomes_sql(name: str) -> None:
    with pytest.raises(BadManifest, match="validate"):
        quoted(name)
    with pytest.raises(BadManifest):
        GrantPlan(role="cassette_a", schema="a1", selects=(f"tapes_v1.{name}",)).sql()


@pytest.fixture(scope="module")
def psql(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Psql"]:
    """A real PostgreSQL of this test's own, without a port."""
    binaries = found_binaries()
    if binaries is None:
        absent("PostgreSQL is not installed")
    folder = Path("/tmp") / f"tapes-grants-{os.getpid()}"  # a socket's path must be short
    folder.mkdir(mode=0o777)
    database = Psql(folder, binaries)
    try:
        database.start()
        yield database
    finally:
        database.run("pg_ctl", "-D", str(folder / "data"), "-m", "immediate", "stop", check=False)
        shutil.rmtree(folder)


class Psql:
    def __init__(self, folder: Path, binaries: Path) -> None:
        self.folder = folder
        self.binaries = binaries
        self.user = other_user()
        if self.user is not None:
            account = pwd.getpwnam(self.user)
            os.chown(folder, account.pw_uid, account.pw_gid)

    def run(self, program: str, *words: str, check: bool = True, text: str = "") -> str:
        done = subprocess.run(
            [self.binaries / program, *words],
            check=False,
            user=self.user,
            input=text,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, "HOME": str(self.folder), "LC_ALL": "C"},
            timeout=60,
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout if check else done.stderr

    def start(self) -> None:
        data = str(self.folder / "data")
        self.run("initdb", "-D", data, "-U", "admin", "-A", "trust", "--no-sync")
        options = f"-k {self.folder} -c listen_addresses='' -c fsync=off"
        log = str(self.folder / "log")
        self.run("pg_ctl", "-D", data, "-o", options, "-l", log, "-w", "start")

    def __call__(self, sql: str, role: str = "admin", check: bool = True) -> str:
        return self.run(
            "psql",
            *("-h", str(self.folder), "-U", role, "-d", "postgres"),
            *("-v", "ON_ERROR_STOP=1", "-qAt", "-f", "-"),
            check=check,
            text=sql,
        )


@pytest.mark.row("C10")
def test_the_sql_grants_what_is_declared_and_nothing_more(psql: Psql) -> None:
    psql(
        "CREATE SCHEMA tapes_v1; CREATE TABLE raw_turns AS SELECT 1 AS n;"
        "CREATE VIEW tapes_v1.sessions AS SELECT n FROM raw_turns;"
        "CREATE VIEW tapes_v1.spans AS SELECT n FROM raw_turns;"
        "CREATE VIEW tapes_v1.span_links AS SELECT n FROM raw_turns;"
    )
    psql(PLAN.sql())
    assert psql("SELECT n FROM tapes_v1.spans", PLAN.role) == "1\n"
    assert "denied" in psql("SELECT n FROM tapes_v1.span_links", PLAN.role, check=False)
    assert "denied" in psql("SELECT n FROM raw_turns", PLAN.role, check=False)
    psql('CREATE TABLE "daily-summary".daily_summary (n int)', PLAN.role)

    fewer = GrantPlan(role=PLAN.role, schema=PLAN.schema, selects=("tapes_v1.sessions",))
    psql(fewer.sql())
    assert psql("SELECT n FROM tapes_v1.sessions", PLAN.role) == "1\n"
    assert "denied" in psql("SELECT n FROM tapes_v1.spans", PLAN.role, check=False)


@pytest.mark.row("C10")
def test_a_schema_that_belongs_to_something_else_keeps_its_owner(psql: Psql) -> None:
    psql("CREATE SCHEMA billing; CREATE TABLE billing.cards AS SELECT 1 AS n;")
    plan = GrantPlan(role="cassette_billing", schema="billing")
    psql(plan.sql())
    assert "denied" in psql("SELECT n FROM billing.cards", plan.role, check=False)
