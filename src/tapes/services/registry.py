"""What is admitted, pinned, stale, rejected: one state per source, and the snapshot that all read.

Rule 1: a snapshot is whole and never changes. Whoever reads one sees each service in its old or in
        its new state; nobody waits.
Rule 2: a source is pinned to the first name that it was admitted with, for as long as it stays in
        the list.
Rule 3: of two sources with one name the earlier in the list has it. The other is refused, and that
        changes nothing for the first.
Rule 4: old stays until new is whole. A failure keeps the service and its tools, and makes its
        document stale; only the operator withdraws it, by the list or by whom he trusts.
Rule 5: a source's trouble is its own: one at a time, replaced, counted, with its code and times.
        So is that of the list of sources: while it cannot be read, the last one stands.

Times come as arguments.  Pure.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import EllipsisType

from tapes.errors import Problem
from tapes.services.admission import Service
from tapes.services.pins import Pins
from tapes.services.problems import Stage, problem
from tapes.services.tools import Tool
from tapes.services.urls import subject_of

HISTORY = 20
MAX_WITHDRAWN = 1_000
# After so many rounds in which nothing answered, a service that was up is down.
DOWN_AFTER = 2
FIRST_DELAY_S = 0.5
_GROWTH = 1.5


class Health(StrEnum):
    """How a service does, as far as the host can tell."""

    STARTING = "starting"
    UP = "up"
    DEGRADED = "degraded"
    DOWN = "down"


class Freshness(StrEnum):
    """Whether the published document is what the source said when it was last asked."""

    FRESH = "fresh"
    STALE = "stale"


# --- what happens to a source -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Probe:
    """What a service's health path answered: a status, or None and the reason why not."""

    status: int | None
    why: str
    latency_s: float | None

    @property
    def is_well(self) -> bool:
        """Whether it says that it is well."""
        return self.status is not None and 200 <= self.status <= 299


@dataclass(frozen=True, slots=True)
class Admitted:
    """The source gave a document that is admitted, under this validator."""

    service: Service
    validator: str | None
    latency_s: float | None = None


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The source says that its document is the one that is published."""

    latency_s: float | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The source gave nothing that is admitted. `answered` says whether it gave any answer."""

    problems: tuple[Problem, ...]
    answered: bool


Outcome = Admitted | Unchanged | Failed


# --- the state of a source --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a source: since when, when last, how often in a row."""

    problems: tuple[Problem, ...]
    since: float
    last: float
    count: int

    @property
    def code(self) -> str:
        """The step of admission that found it."""
        return self.problems[0].stage

    @property
    def reason(self) -> str:
        """In words."""
        return "\n".join(map(str, self.problems))


@dataclass(frozen=True, slots=True)
class Change:
    """When the health of a source became what, and why."""

    at: float
    health: Health
    why: str


@dataclass(frozen=True, slots=True)
class Source:
    """One configured source, and all that is known of it."""

    url: str
    since: float
    name: str | None = None  # the pin
    service: Service | None = None  # while it is the one that is published
    validator: str | None = None
    trouble: Trouble | None = None
    health: Health = Health.STARTING
    changes: tuple[Change, ...] = ()
    probe: Probe | None = None
    latency_s: float | None = None
    failures: int = 0  # rounds in a row without an admitted document
    silences: int = 0  # rounds in a row in which nothing answered
    attempted: float | None = None
    succeeded: float | None = None
    next_attempt: float | None = None

    @property
    def subject(self) -> str:
        """The URL as it may be shown."""
        return subject_of(self.url)

    @property
    def freshness(self) -> Freshness:
        """Whether its document is what it said when it was last asked."""
        return Freshness.FRESH if self.trouble is None else Freshness.STALE


@dataclass(frozen=True, slots=True)
class Unlisted:
    """The list of sources cannot be read: where it should stand, and what is wrong with it."""

    subject: str
    trouble: Trouble


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A tool that was there and is not any more."""

    at: float
    service: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All sources, and what is published of them."""

    version: int = 0
    sources: tuple[Source, ...] = ()
    services: Mapping[str, Source] = field(default_factory=dict)
    tools: Mapping[str, Tool] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)  # tools without the operator's word
    withdrawn: Mapping[str, Withdrawn] = field(default_factory=dict)
    unlisted: Unlisted | None = None
    # Counts only what changes documents or tools, so that these are made anew only then.
    published: int = 0

    def service(self, name: str) -> Service | None:
        """The published service of a name."""
        source = self.services.get(name)
        return None if source is None else source.service

    def tool(self, name: str) -> Tool | None:
        """The tool of a full name, or of an alias."""
        return self.tools.get(self.aliases.get(name, name))


def delay_after(failures: int, interval_s: float) -> float:
    """How long to wait after so many failures in a row: more and more, up to the interval."""
    if failures == 0:
        return interval_s
    grown: float = FIRST_DELAY_S * _GROWTH ** min(failures - 1, 60)
    return min(grown, interval_s)


# --- the registry -----------------------------------------------------------------------------


class Registry:
    """Applies what happens to the sources, and swaps the snapshot that everybody reads."""

    def __init__(self, pins: Pins | None = None) -> None:
        self.snapshot = Snapshot()
        self._pins = pins
        self._watchers: list[Callable[[Snapshot, Snapshot], object]] = []

    def watch(self, watcher: Callable[[Snapshot, Snapshot], object]) -> None:
        """Call this with the old and the new snapshot whenever it is swapped."""
        self._watchers.append(watcher)

    @property
    def pins(self) -> Pins | None:
        """What the operator has approved; None where nothing has to be."""
        return self._pins

    def pin(self, pins: Pins | None, now: float) -> None:
        """Take over what the operator has approved."""
        self._pins = pins
        self._swap(self.snapshot.sources, now, republish=True)

    def source(self, url: str) -> Source | None:
        """The state of a source."""
        return next((source for source in self.snapshot.sources if source.url == url), None)

    def configure(self, urls: Iterable[str], now: float) -> None:
        """The list of sources, in the order of their rights to a name (rules 3, 4)."""
        known = {source.url: source for source in self.snapshot.sources}
        kept = tuple(known.get(url) or Source(url, since=now) for url in dict.fromkeys(urls))
        self._swap(kept, now, republish=True)

    def list_read(self, subject: str, problems: tuple[Problem, ...], now: float) -> None:
        """What was wrong with the list of sources when it was read; nothing where it is well."""
        had = self.snapshot.unlisted
        if had is None and not problems:
            return
        trouble = _counted(None if had is None else had.trouble, problems, now)
        unlisted = Unlisted(subject, trouble) if problems else None
        self._swap(self.snapshot.sources, now, republish=False, unlisted=unlisted)

    def schedule(self, url: str, at: float | None) -> None:
        """When a source will be asked again."""
        self._replace(url, lambda source: replace(source, next_attempt=at))

    def attempted(
        self, url: str, outcome: Outcome, probe: Probe | None, now: float
    ) -> Source | None:
        """Apply what asking a source came to; its new state, or None if it is in the list no more.

        The admission of one source can end another's: a name goes to the earlier one.
        """
        source = self.source(url)
        if source is None:
            return None
        sources = {s.url: s for s in self.snapshot.sources}
        if isinstance(outcome, Admitted):
            self._admit(sources, source, outcome, now)
        elif isinstance(outcome, Unchanged) and source.service is not None:
            sources[url] = replace(source, trouble=None, failures=0)
        elif isinstance(outcome, Unchanged):
            said = problem(Stage.FETCH, "unexpected_304", "", "answered 304 to an open question")
            sources[url] = _troubled(source, (said,), now)
        else:
            if outcome.problems[:1] and outcome.problems[0].stage == Stage.SOURCE_URL:
                source = replace(source, service=None, validator=None)
            sources[url] = _troubled(source, outcome.problems, now)
        answered = not isinstance(outcome, Failed) or outcome.answered
        latency = None if isinstance(outcome, Failed) else outcome.latency_s
        current = replace(
            sources[url],
            attempted=now,
            succeeded=sources[url].succeeded if sources[url].trouble else now,
            latency_s=latency if latency is not None else source.latency_s,
            probe=probe or source.probe,
        )
        sources[url] = _with_health(current, probe, now, answered=answered)
        before, after = self._service_of(url), sources[url].service
        moved = {s.url for s in sources.values() if s.service is not self._service_of(s.url)}
        self._swap(tuple(sources.values()), now, republish=bool(moved) and not _same(before, after))
        return sources[url]

    def _service_of(self, url: str) -> Service | None:
        source = self.source(url)
        return None if source is None else source.service

    def _admit(
        self, sources: dict[str, Source], source: Source, outcome: Admitted, now: float
    ) -> None:
        """Give a source its name, or refuse it (rules 2, 3)."""
        service = outcome.service
        if source.name is not None and source.name != service.name:
            message = (
                f"the document is now that of {service.name!r}; this source is {source.name!r} "
                "for as long as it is configured"
            )
            found = problem(Stage.NAME_CHANGED, "name_changed", "", message)
            sources[source.url] = _troubled(source, (found,), now)
            return
        order = list(sources)
        owner = next(
            (s for s in sources.values() if s.service and s.service.name == service.name), None
        )
        if owner is not None and owner.url != source.url:
            if order.index(owner.url) < order.index(source.url):
                sources[source.url] = _troubled(source, (_taken(service.name, owner),), now)
                return
            lost = replace(owner, service=None, validator=None)
            sources[owner.url] = _troubled(lost, (_taken(service.name, source),), now)
        if self._pins is not None and service.name not in self._pins.approved:
            self._pins = self._pins.approving(service.name, service.tools)
        sources[source.url] = replace(
            source,
            name=service.name,
            service=service,
            validator=outcome.validator,
            trouble=None,
            failures=0,
        )

    def _replace(self, url: str, change: Callable[[Source], Source]) -> None:
        sources = tuple(change(s) if s.url == url else s for s in self.snapshot.sources)
        self._swap(sources, 0.0, republish=False)

    def _swap(
        self,
        sources: Sequence[Source],
        now: float,
        *,
        republish: bool,
        unlisted: Unlisted | EllipsisType | None = ...,
    ) -> None:
        """Put a new snapshot in the place of the old one (rule 1)."""
        old = self.snapshot
        services = {s.service.name: s for s in sources if s.service is not None}
        new = replace(
            old,
            version=old.version + 1,
            sources=tuple(sources),
            services=dict(sorted(services.items())),
            unlisted=old.unlisted if unlisted is ... else unlisted,
        )
        if republish:
            new = self._published(new, old, now)
        self.snapshot = new
        for watcher in self._watchers:
            watcher(old, new)

    def _published(self, new: Snapshot, old: Snapshot, now: float) -> Snapshot:
        """The tools of a snapshot, and which of those before are gone."""
        tools: dict[str, Tool] = {}
        held: dict[str, str] = {}
        for name, source in new.services.items():
            offered = () if source.service is None else source.service.tools
            waiting = () if self._pins is None else self._pins.held(name, offered)
            for tool in offered:
                if tool.full_name in waiting:
                    held[tool.full_name] = name
                else:
                    tools[tool.full_name] = tool
        tools = dict(sorted(tools.items()))
        gone = {
            name: Withdrawn(now, tool.service)
            for name, tool in old.tools.items()
            if name not in tools and name not in held
        }
        withdrawn = {
            name: when
            for name, when in [*old.withdrawn.items(), *gone.items()]
            if name not in tools and name not in held
        }
        return replace(
            new,
            tools=tools,
            aliases={tool.alias: name for name, tool in tools.items()},
            held=held,
            withdrawn=dict(list(withdrawn.items())[-MAX_WITHDRAWN:]),
            published=old.published + 1,
        )


def _same(one: Service | None, other: Service | None) -> bool:
    """Whether two services publish the same."""
    if one is None or other is None:
        return one is other
    return (one.etag, one.digest, one.tools) == (other.etag, other.digest, other.tools)


def _taken(name: str, owner: Source) -> Problem:
    message = f"the name {name!r} belongs to {owner.subject}, which stands earlier in the list"
    return problem(Stage.NAME_TAKEN, "name_taken", "", message)


def _troubled(source: Source, problems: tuple[Problem, ...], now: float) -> Source:
    """A source with its trouble: the one that it had, counted on, or a new one (rule 5)."""
    trouble = _counted(source.trouble, problems, now)
    return replace(source, trouble=trouble, failures=source.failures + 1)


def _counted(had: Trouble | None, problems: tuple[Problem, ...], now: float) -> Trouble:
    if had is None or had.problems != problems:
        return Trouble(problems, since=now, last=now, count=1)
    return replace(had, last=now, count=had.count + 1)


def _with_health(source: Source, probe: Probe | None, now: float, *, answered: bool) -> Source:
    """What the document and the health path say together of how a service does.

    | document | health path | health |
    | admitted | well, or not known | up |
    | admitted | not well | degraded |
    | none, or refused | answers, or the source itself answered | degraded |
    | none | nothing answers | down; degraded at first where the service was up |
    """
    heard = answered or (probe is not None and probe.status is not None)
    silences = 0 if heard else source.silences + 1
    if source.trouble is None:
        well = probe is None or probe.is_well
        health = Health.UP if well else Health.DEGRADED
        why = "" if well or probe is None else f"the health path {probe.why}"
    elif heard or (source.service is not None and silences < DOWN_AFTER):
        health, why = Health.DEGRADED, source.trouble.reason
    else:
        health, why = Health.DOWN, source.trouble.reason
    changes = source.changes
    if health is not source.health:
        changes = (*changes, Change(now, health, why.splitlines()[0] if why else ""))[-HISTORY:]
    return replace(source, health=health, changes=changes, silences=silences)
