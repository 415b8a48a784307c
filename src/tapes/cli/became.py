"""The sessions of the log that the calls of a run became, and how to open them.

Rule 1: they are what the log says of these calls, never a guess.
Rule 2: no other machine is asked for a page, and none of this machine holds up a run that is over.

Knows nothing of proxies.
"""

import http.client
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from tapes.api.items import display_title
from tapes.cli.opened import session_by
from tapes.cli.output import count, cut, one_line
from tapes.cli.views import quoted
from tapes.config import API, Settings, read_settings
from tapes.errors import TapesError, UnknownId
from tapes.keeping import open_store
from tapes.listening import Listen
from tapes.opening import Where
from tapes.rows import NO_ORG
from tapes.store.base import MOST, Ask, Project, TurnHead
from tapes.store.filters import is_

PING = b'"pong"'
_SHOWN = 3
_TITLE = 60
# What another who derives may take for the last calls; this process has derived what it could.
_PATIENCE_S = 5.0
_LOOK_S = 0.05
# Where nobody listens that is known at once; a server of ours is waited for on a busy machine too.
_PING_S = 1.0
_ANSWER_S = 3.0


@dataclass(frozen=True, slots=True)
class Session:
    """A session that calls of this run belong to. `short` is how its id begins, if that is enough
    for every command; `url` is its page, where a server shows it.
    """

    id: str
    title: str | None
    calls: int
    short: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Became:
    """What became of the calls of a run: sessions, how many are not in the log yet, or never."""

    sessions: tuple[Session, ...] = ()
    waiting: int = 0
    lost: int = 0
    problem: str = ""
    more: tuple[str, ...] = ()  # options of the commands that open them

    def as_json(self) -> list[dict[str, object]]:
        """For programs."""
        names = ("id", "title", "calls", "url")
        return [{name: getattr(each, name) for name in names} for each in self.sessions]

    def lines(self) -> Iterator[str]:
        """For people: each with what opens it."""
        for session in self.sessions[:_SHOWN]:
            title = f" {quoted(cut(session.title, _TITLE))}" if session.title else ""
            opens = session.url or self._typed("sessions", "show", session.id)
            yield f"session {session.short}{title}: {opens}"
        if len(self.sessions) > _SHOWN:
            listed = self._typed("sessions", "list")
            yield f"and {count(len(self.sessions) - _SHOWN, 'session')} more: {listed}"
        if self.sessions and self.sessions[0].url is None:
            yield f"to see them in a browser: {self._typed('serve', 'api')}"
        if self.lost:
            yield f"{count(self.lost, 'call')} lost: neither the log nor its spool could be written"
        if self.waiting > 0:
            yield f"{count(self.waiting, 'call')} not in the log yet: {self.problem}"

    def _typed(self, *words: str) -> str:
        return shlex.join(["tapes", *words, *self.more])


def became(
    settings: Settings, calls: Sequence[str], config_dir: str | None, *, lost: int = 0
) -> Became:
    """What the calls of these request ids are in the log now. Raises nothing of ours.

    `lost` are those of which the log says that nothing could take them.
    """
    more = ("--config-dir", config_dir) if config_dir else ()
    if not calls:
        return Became(more=more)
    where = Where.in_settings(settings)
    try:
        with closing(open_store(where)) as store:
            log = store.project(NO_ORG)
            heads = _settled(log, calls)
            sessions = _sessions(log, heads)
    except TapesError as error:
        waits = f"{error.message}; {_waits(where)}"
        return Became((), len(set(calls)) - lost, lost, waits, more)
    base = _server_of(sessions, config_dir)
    if base is not None:
        sessions = [replace(each, url=f"{base}/#/session/{each.id}") for each in sessions]
    missing = len(set(calls)) - len(heads) - lost
    return Became(tuple(sessions), missing, lost, _waits(where), more)


def _waits(where: Where) -> str:
    return f"what waits lies in {where.spool} for whoever keeps this log next"


# --- what the log says


def _settled(log: Project, calls: Iterable[str]) -> list[TurnHead]:
    """The turns of these calls, each in its place as soon as whoever derives has put it there."""
    until = time.monotonic() + _PATIENCE_S
    heads = {head.id: head for head in _heads(log, calls)}
    while time.monotonic() < until:
        late = [head.request_id for head in heads.values() if not _is_settled(log, head)]
        if not late:
            break
        time.sleep(_LOOK_S)
        heads |= {head.id: head for head in _heads(log, late)}
    return [heads[turn_id] for turn_id in sorted(heads)]


def _is_settled(log: Project, head: TurnHead) -> bool:
    if head.session_id is None:
        return bool(head.skipped)
    return log.session(head.session_id) is not None


def _heads(log: Project, calls: Iterable[str]) -> Iterator[TurnHead]:
    # One by one: each is found by the index of calls, where several at once read all turns.
    for call in dict.fromkeys(calls):
        yield from log.turns(Ask(is_("request", call), limit=MOST)).items


def _sessions(log: Project, heads: Iterable[TurnHead]) -> list[Session]:
    calls = Counter(head.session_id for head in heads if head.session_id is not None)
    found = []
    for session_id, number in calls.items():
        listed = log.session(session_id)
        title = None if listed is None else one_line(display_title(listed.session, listed.notes))
        found.append(Session(session_id, title, number, _short(log, session_id)))
    return found


def _short(log: Project, session_id: str) -> str:
    with suppress(UnknownId):
        if session_by(log, session_id[:8]).session.id == session_id:
            return session_id[:8]
    return session_id


# --- the page


def _server_of(sessions: Sequence[Session], config_dir: str | None) -> str | None:
    """The address of a server of this machine that shows these sessions; None where none does."""
    if not sessions:
        return None
    try:
        settings = read_settings(API, {}, config_dir=config_dir)
        listen = Listen.of(settings["api.listen"])
    except TapesError:  # who serves is told of it
        return None
    if not listen.is_loopback or not listen.port:
        return None
    headers = {"x-tapes-token": settings["api.token"]} if settings["api.token"] else {}
    try:
        if _answered(listen, "/ping", {}, _PING_S) == PING:
            shown = f"/v1/sessions/{sessions[-1].id}"
            if _answered(listen, shown, headers, _ANSWER_S) is not None:
                return f"http://{listen}"
    except (OSError, http.client.HTTPException, ValueError):
        pass  # nobody, or somebody else
    return None


def _answered(
    listen: Listen, path: str, headers: dict[str, str], patience_s: float
) -> bytes | None:
    """How an answer begins; None where it is none."""
    with closing(http.client.HTTPConnection(listen.host, listen.port, timeout=patience_s)) as asked:
        asked.request("GET", path, headers=headers)
        answer = asked.getresponse()
        return answer.read(len(PING)) if answer.status == 200 else None
