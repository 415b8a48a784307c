"""What a service may do in the database: the plan that a manifest asks for, and its SQL.

Rule 1: every identifier is quoted, because a service's name may contain a dash, and one that is
        not a lowercase identifier is refused, because a plan becomes statements.
Rule 2: running the statements again changes nothing, and takes away what is no longer declared.
Rule 3: nobody here runs them. They are printed for an operator.

Knows nothing of connections.  Pure.
"""

import re
from dataclasses import dataclass

from tapes.errors import BadManifest
from tapes.jsontext import Json

_SAFE = re.compile(r"[a-z][a-z0-9_-]{0,62}")


def quoted(identifier: str) -> str:
    """An identifier in quotes for PostgreSQL. Raises BadManifest for one of other characters."""
    if not _SAFE.fullmatch(identifier):
        raise BadManifest(
            f"{identifier!r} is not a lowercase identifier of at most 63 bytes",
            "validate the manifest first: tapes cassette validate cassette.toml",
        )
    return f'"{identifier}"'


@dataclass(frozen=True, slots=True)
class GrantPlan:
    """The role of a service, the schema that it owns, and the views that it may read."""

    role: str
    schema: str
    selects: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    own_schema: bool = True

    def form(self) -> dict[str, Json]:
        """The plan as JSON: empty lists are left out."""
        form: dict[str, Json] = {
            "role": self.role,
            "schema": self.schema,
            "own_schema": self.own_schema,
        }
        if self.selects:
            form["selects"] = list(self.selects)
        if self.tables:
            form["tables"] = list(self.tables)
        return form

    def sql(self) -> str:
        """The statements for PostgreSQL, to be run by an administrator of the database."""
        role, schema = quoted(self.role), quoted(self.schema)
        return "\n".join(
            [
                _PREPARE.format(name=self.role, role=role),
                f"CREATE SCHEMA IF NOT EXISTS {schema} AUTHORIZATION {role};",
                *self._reading(role),
                "COMMIT;",
                "",
            ]
        )

    def _reading(self, role: str) -> list[str]:
        views = [select.partition(".") for select in self.selects]
        contracts = sorted({quoted(contract) for contract, _, _ in views})
        usages = [f"GRANT USAGE ON SCHEMA {contract} TO {role};" for contract in contracts]
        return usages + [
            f"GRANT SELECT ON {quoted(contract)}.{quoted(view)} TO {role};"
            for contract, _, view in views
        ]


# A name that may be quoted is also a literal of the same text. A schema that is there already
# keeps its owner: a service must not come by the data of something else that bears its name.
_PREPARE = """\
BEGIN;
DO $$
DECLARE
  contract name;
BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = '{name}') THEN
    CREATE ROLE {role} LOGIN;  -- without a password: the deployment sets one
  END IF;
  -- What an earlier version of the service could read is taken away first.
  FOR contract IN
    SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname ~ '^tapes_v[1-9][0-9]*$'
  LOOP
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM {role}', contract);
    EXECUTE format('REVOKE ALL ON SCHEMA %I FROM {role}', contract);
  END LOOP;
END $$;"""
