"""The builder's checklist as one command: a `cassette.toml` alone, or a service that runs.

Rule 1: every point of the list is told: passed, failed with its remedy, or why it was not judged.
Rule 2: a running service is judged by what a host would do with it: a host is started for it, and
        what a client would ask is asked.

Knows nothing of how the points are shown.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tapes.access import Access
from tapes.errors import BadManifest, Problem, RefusedService, TapesError
from tapes.forwarding import Headers, Patience, Sender
from tapes.jsontext import Json
from tapes.services import manifest as manifests
from tapes.services.admission import Operation, Service, admit
from tapes.services.fetching import Document, Fetcher, Unfetched
from tapes.services.host import Host, HostServer, Setup
from tapes.services.manifest import Manifest, grant_plan
from tapes.services.problems import Stage
from tapes.services.sources import Listed
from tapes.services.trust import Addresses, Trust
from tapes.services.urls import origin_of, subject_of, url_of

_ASKED_S = 10.0
_MAX_BYTES = 64 * 1024 * 1024


class State(StrEnum):
    """How a point of the list stands."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the list: what it asks for, how it stands, and what to do."""

    what: str
    state: State
    details: tuple[str, ...] = ()
    remedy: str = ""


def _passed(what: str, *details: str) -> Point:
    return Point(what, State.PASSED, details)


def _failed(what: str, details: Iterable[object], remedy: str) -> Point:
    return Point(what, State.FAILED, tuple(map(str, details)), remedy)


def _open(what: str, why: str) -> Point:
    return Point(what, State.NOT_JUDGED, (why,))


TOML = "cassette.toml is read, and keeps every rule"
HEALTH = "the declared health path answers 200"
DOCUMENT = "the declared OpenAPI path answers 200 with one JSON document"
EMBEDDED = "the document carries the manifest at x-tapes-cassette"
PATHS = "every path stands below the service's own prefix"
OPERATIONS = "operations have responses and ids of their own, and the document can be published"
TOOLS = "every tool is one that a host can offer"
COPIES = "both copies of the manifest have one digest"
CONSISTENT = "name, port, paths and metadata agree"
DATABASE = "the database is provisioned by the deployment, and migrations are the service's own"
HOSTED = "a host admits it: discovery, its document, the document of all, a proxied request"
STREAMING = "streaming answers are for hosts that stream"

_BY_STAGE = {
    EMBEDDED: (Stage.MANIFEST_MISSING, Stage.MANIFEST_PARSE, Stage.MANIFEST_INVALID),
    PATHS: (Stage.PATHS_MISSING, Stage.PATH_OUTSIDE),
    OPERATIONS: (Stage.SHAPE, Stage.REFERENCES, Stage.STRUCTURE, Stage.LINT),
    TOOLS: (Stage.MCP,),
}
_REMEDIES = {
    TOML: "fields and rules: docs/services-manifest.md",
    EMBEDDED: "put the manifest into the document as JSON, under x-tapes-cassette",
    PATHS: "describe the service's API only, each path below /<prefix_path>/<name>",
    OPERATIONS: "mend the places that are named; they are JSON pointers into the document",
    TOOLS: "POST, OpenAPI 3.1, a JSON object in and out, no parameters: docs/services-manifest.md",
}
_MEND_MANIFEST = "mend those fields of x-tapes-cassette; their rules: docs/services-manifest.md"


# --- offline ----------------------------------------------------------------------------------


def check_toml(text: str, contracts: Collection[str]) -> tuple[list[Point], Manifest | None]:
    """The points that a `cassette.toml` alone decides, and the manifest where it can be read."""
    try:
        declared = manifests.parse_toml(text)
    except BadManifest as error:
        return [_failed(TOML, error.problems, _REMEDIES[TOML])], None
    problems = manifests.validate(declared, contracts)
    if problems:
        return [_failed(TOML, problems, _REMEDIES[TOML])], declared
    warned = [f"warning: {found}" for found in manifests.warnings(declared)]
    plan = grant_plan(declared)
    details = [*warned, f"digest {manifests.digest(declared)}"]
    return [_passed(TOML, *details), _database(plan.selects, plan.tables)], declared


def _database(selects: Sequence[str], tables: Sequence[str]) -> Point:
    if not selects and not tables:
        return _passed(DATABASE, "it declares neither views nor tables")
    asked = [f"reads {', '.join(selects)}" if selects else "", f"owns {', '.join(tables)}"]
    return _open(
        DATABASE,
        f"{'; '.join(filter(None, asked[: 1 + bool(tables)]))}; "
        "an administrator runs: tapes cassette grants --sql cassette.toml",
    )


# --- online -----------------------------------------------------------------------------------


async def check_service(
    url: str, contracts: Collection[str], toml: str | None = None
) -> list[Point]:
    """All points, for a service that runs, and its `cassette.toml` where that is given."""
    points, declared = ([], None) if toml is None else check_toml(toml, contracts)
    host = url_of(url)
    addresses = Addresses(Trust([] if host is None or not host.hostname else [host.hostname]))
    sender = Sender(addresses)
    await sender.open()
    try:
        fetcher = Fetcher(sender, addresses)
        try:
            found = await fetcher.fetch(url, None)
        except Unfetched as error:
            remedy = "start the service, and give the URL of its document"
            return [*points, _failed(DOCUMENT, [error.problem], remedy)]
        assert isinstance(found, Document)
        service, judged = _judged(found, url, contracts)
        points += judged
        if service is None:
            points += [_open(what, "the document is refused") for what in (HEALTH, HOSTED)]
            return points
        points.insert(len(points) - len(judged), await _anchor(fetcher, url, service, found))
        points.append(await _health(fetcher, service))
    finally:
        await sender.close()
    points.append(_copies(declared, service))
    points.append(_consistent(declared, service, url))
    if declared is None:
        plan = grant_plan(service.manifest)
        points.append(_database(plan.selects, plan.tables))
    points.append(await _hosted(url, service, contracts))
    points.append(_streaming(service, found))
    return points


def _judged(
    found: Document, url: str, contracts: Collection[str]
) -> tuple[Service | None, list[Point]]:
    try:
        service = admit(found.data, url, contracts)
    except RefusedService as error:
        return None, _by_stage(error.problems)
    tools = ", ".join(tool.full_name for tool in service.tools) or "it offers none"
    details = {
        EMBEDDED: f"digest {service.digest}",
        PATHS: f"below {service.local_prefix}",
        OPERATIONS: f"{len(service.operations)} operations",
        TOOLS: tools,
    }
    return service, [_passed(what, text) for what, text in details.items()]


def _by_stage(problems: Sequence[Problem]) -> list[Point]:
    if problems[0].stage == Stage.DOCUMENT:
        return [_failed(DOCUMENT, problems, "give one JSON object, at most 8 MiB of it")]
    points, is_open = [], False
    for what, stages in _BY_STAGE.items():
        own = [found for found in problems if found.stage in stages]
        if own:
            is_there = what == EMBEDDED and own[0].stage != Stage.MANIFEST_MISSING
            points.append(_failed(what, own, _MEND_MANIFEST if is_there else _REMEDIES[what]))
            # What comes after an unreadable manifest was not looked at.
            is_open = is_open or what == EMBEDDED
        elif is_open:
            points.append(_open(what, "the manifest is needed first"))
        else:
            points.append(_passed(what))
    return points


async def _anchor(fetcher: Fetcher, url: str, service: Service, found: Document) -> Point:
    """The declared path of the document, where it is not the one that was asked."""
    declared = origin_of(url) + service.manifest.openapi
    if declared == url:
        return _passed(DOCUMENT, f"{len(found.data):,} bytes at {service.manifest.openapi}")
    try:
        other = await fetcher.fetch(declared, None)
    except Unfetched as error:
        remedy = f'serve it there, or declare where it is: [api] openapi = "{_path(url)}"'
        return _failed(DOCUMENT, [f"{service.manifest.openapi}: {error.problem.message}"], remedy)
    if isinstance(other, Document) and other.data == found.data:
        return _passed(DOCUMENT, f"the same at {_path(url)} and {service.manifest.openapi}")
    return _failed(
        DOCUMENT,
        [f"{_path(url)} and {service.manifest.openapi} answer different documents"],
        "configure the declared one at the host, or declare this one",
    )


def _path(url: str) -> str:
    found = url_of(url)
    return "/" if found is None else found.path or "/"


async def _health(fetcher: Fetcher, service: Service) -> Point:
    probe = await fetcher.probe(service.origin, service.manifest.health)
    if probe.status == 200:
        return _passed(HEALTH, f"{service.manifest.health}, {(probe.latency_s or 0) * 1000:.0f} ms")
    remedy = f"answer 200 at {service.manifest.health}, or declare another path under [api] health"
    return _failed(HEALTH, [f"{service.manifest.health} {probe.why}"], remedy)


def _copies(declared: Manifest | None, service: Service) -> Point:
    if declared is None:
        return _open(COPIES, "no cassette.toml was given: --toml cassette.toml")
    digest = manifests.digest(declared)
    if digest == service.digest:
        return _passed(COPIES, digest)
    return _failed(
        COPIES,
        [
            f"cassette.toml: {digest}",
            f"embedded:      {service.digest}",
            *_different(declared, service),
        ],
        "let one of the two be made from the other",
    )


def _different(declared: Manifest, service: Service) -> Iterable[str]:
    one, other = (
        json.loads(manifests.canonical_text(manifest)) for manifest in (declared, service.manifest)
    )
    for section in sorted({*one, *other}):
        if one.get(section) != other.get(section):
            ours, theirs = (json.dumps(form.get(section)) for form in (one, other))
            yield f"{section}: {ours} is not {theirs}"


def _consistent(declared: Manifest | None, service: Service, url: str) -> Point:
    wrong = []
    if declared is not None and declared.name != service.name:
        wrong.append(f"cassette.toml says {declared.name!r}, the service {service.name!r}")
    port = service.manifest.port
    asked = url_of(url)
    given = asked.port if asked is not None else ""
    if port and given and str(port) != given:
        wrong.append(f"the manifest says port {port}, and it was reached at {given}")
    if wrong:
        remedy = "let image, port and name say what runs; a mapped port is fine where you mean it"
        return _failed(CONSISTENT, wrong, remedy)
    return _passed(CONSISTENT, f"{service.name} {service.manifest.version}")


def _streaming(service: Service, found: Document) -> Point:
    streams = b"text/event-stream" in found.data
    if not streams:
        return _passed(STREAMING, "it documents none")
    return _passed(
        STREAMING,
        f"{service.name} documents event streams; this host passes them on piece by piece",
        "warning: a host that gathers whole answers gives them in one piece at their end",
    )


# --- what a host makes of it (rule 2) ---------------------------------------------------------


async def _hosted(url: str, service: Service, contracts: Collection[str]) -> Point:
    host = url_of(url)
    trusted = () if host is None else (host.hostname,)
    setup = Setup(
        sources=Listed((url,), "check"),
        trusted=Listed(trusted, "check"),
        contracts=tuple(contracts),
        access=Access(),
    )
    made = Host(setup)
    done: asyncio.Event = asyncio.Event()
    told: list[Point] = []

    def ready(server: HostServer) -> None:
        async def asked() -> None:
            try:
                told.append(await _as_a_client(made, server.address, url, service))
            finally:
                done.set()

        tasks.append(asyncio.create_task(asked()))

    tasks: list[asyncio.Task[None]] = []
    await HostServer(made, "127.0.0.1", 0).serve(ready, done)
    await asyncio.gather(*tasks)
    return told[0]


async def _as_a_client(host: Host, address: str, url: str, service: Service) -> Point:
    assert host.refresher is not None
    async with asyncio.timeout(_ASKED_S * 3):
        await host.refresher.recheck()
    found = host.registry.source(url)
    if found is None or found.service is None:
        trouble = "" if found is None or found.trouble is None else found.trouble.reason
        return _failed(HOSTED, [trouble], "see the points above")
    addresses = Addresses(Trust())
    await addresses.find("127.0.0.1")
    sender = Sender(addresses)
    await sender.open()
    try:
        return await _all_asked(_Asking(sender, address), service)
    except TapesError as error:
        return _failed(HOSTED, [error.message], "see what the service answers")
    finally:
        await sender.close()


class _Asking:
    """A client of the host."""

    def __init__(self, sender: Sender, address: str) -> None:
        self._sender = sender
        self._address = address

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status and body."""
        headers: Headers = [(b"accept", b"application/json")]
        patience = Patience(_ASKED_S, _ASKED_S)
        async with self._sender.ask(
            "GET", self._address, path.encode(), headers, patience=patience
        ) as answer:
            return answer.status, await answer.body(_MAX_BYTES) or b""


async def _all_asked(asking: _Asking, service: Service) -> Point:
    wrong: list[str] = []

    async def asked(path: str, is_right: Callable[[int, bytes], bool], what: str) -> None:
        status, body = await asking.get(path)
        if not is_right(status, body):
            wrong.append(f"GET {path}: {what} (status {status})")

    def lists(status: int, body: bytes) -> bool:
        found: Json = json.loads(body)
        return status == 200 and service.name in [c["name"] for c in found["cassettes"]]

    await asked("/v1/cassettes", lists, "discovery does not list it")
    await asked(
        f"{service.public_prefix}/openapi.json",
        lambda status, body: (status, body) == (200, service.document),
        "its document is not the published one",
    )
    await asked(
        "/openapi",
        lambda status, body: status == 200 and service.public_prefix.encode() in body,
        "the document of all services lacks it",
    )
    plain = _plain_get(service.operations)
    details = [f"asked at {service.public_prefix}"]
    if plain is None:
        details.append("no documented GET without parameters: no proxied request was made")
    else:
        status, _ = await asking.get(plain.public_path)
        details.append(f"GET {plain.public_path}: {status}")
        if status >= 500:
            wrong.append(f"GET {plain.public_path} answers {status}")
    if wrong:
        return _failed(HOSTED, wrong, "see what the service answers at these paths")
    return _passed(HOSTED, *details)


def _plain_get(operations: Sequence[Operation]) -> Operation | None:
    return next((o for o in operations if o.method == "GET" and "{" not in o.public_path), None)


def subject(target: str) -> str:
    """What was checked, as it may be shown."""
    return subject_of(target) if "://" in target else target
