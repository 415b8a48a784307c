"""The log that a command works on, opened for it; and sessions by whatever id a person has."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import click

from tapes.config import STORAGE, read_settings
from tapes.errors import BadSetting, UnknownId, UnreadableStore
from tapes.opening import DEFAULT_STORE, Where
from tapes.rows import DERIVATION, NO_ORG
from tapes.store.base import SHORTEST, Derivation, Listed, Project, Store


def store_options(command: Any) -> Any:
    """Which log, and whose rows of it."""
    options = (
        click.option("--store", "store", metavar="FILE|DSN", help="The log; .tapes/tapes.db."),
        click.option("--org", default=NO_ORG, metavar="UUID", help="The tenant, if there are any."),
        click.option("--config-dir", help="The folder of config.toml; ./.tapes or ~/.tapes."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def place_of(store: str | None, config_dir: str | None) -> Where:
    """The place of the log: the one that is said, else the one of the settings."""
    if store is not None:
        return Where.of(store)
    return Where.in_settings(read_settings(STORAGE, {}, config_dir=config_dir))


def age_of(known: Derivation) -> str:
    """By which version of Tapes a log was derived, for people; "" where by this one."""
    if known.newest > DERIVATION:
        return "by a newer version of Tapes"
    if known.version == DERIVATION:
        return ""
    older = "by an older version of Tapes"
    if known.newest == DERIVATION:
        return f"{older}, {known.done(DERIVATION):.0%} of it anew so far"
    return f"{older}: anew beside whatever serves it next, or now: tapes derive"


@contextlib.contextmanager
def opened(store: str | None, config_dir: str | None, *, may_make: bool = False) -> Iterator[Store]:
    """The log, made where there is none; one that is named on the command line only by who may.

    Raises what opening it raises, and UnreadableStore where a file that is named is not there.
    """
    # It brings the database's parts with it; --help should not wait for them.
    from tapes.keeping import open_store

    place = place_of(store, config_dir)
    if store is not None and place.dsn is None and not (may_make or os.path.exists(place.path)):
        raise UnreadableStore(
            f"there is no log {place}", f"name the file of one, as in: --store {DEFAULT_STORE}"
        )
    log = open_store(place)
    try:
        yield log
    finally:
        log.close()


@contextlib.contextmanager
def project(store: str | None, org: str, config_dir: str | None) -> Iterator[Project]:
    """All of one tenant."""
    tenant = tenant_of(org)
    with opened(store, config_dir) as log:
        yield log.project(tenant)


def tenant_of(org: str) -> str:
    """The tenant that `--org` names. Raises BadSetting."""
    try:
        return str(UUID(org))
    except ValueError:
        raise BadSetting(f"--org {org!r} is no UUID", f"for example: --org {NO_ORG}") from None


def session_by(found: Project, text: str) -> Listed:
    """The session of an id that a person has, whichever it is. Raises UnknownId."""
    with contextlib.suppress(ValueError):
        listed = found.session(str(UUID(text)))
        if listed is not None:
            return listed
    exact = found.sessions_of_harness(text)
    ids = {each.session.id for each in exact} or _ids_of(found, text)
    if len(ids) == 1:
        listed = found.session(ids.pop())
        if listed is not None:
            return listed
    if not ids:
        raise UnknownId(
            f"nothing here has the id {text}{too_short(text)}",
            "see what there is: tapes sessions list",
        )
    shown = ", ".join(sorted(ids)[:5])
    raise UnknownId(f"{len(ids)} sessions have an id that begins with {text}: {shown}", "say more")


def too_short(text: str) -> str:
    """What to add where nothing has an id that is too short to look for ids that begin so."""
    return (
        ""
        if len(text) >= SHORTEST
        else f"; of a longer one at least {SHORTEST} characters are needed"
    )


def _ids_of(found: Project, text: str) -> set[str]:
    hits = found.find(text)
    whole = [hit for hit in hits if hit.whole]
    return {hit.session_id for hit in whole or hits if hit.session_id}
