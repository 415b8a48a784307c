"""What `GET /v1/cassettes` says: the services, their state, and what is wrong with which source.

Rule 1: the members of the contract stand first, in its order and with its presence; what goes
        beyond it has names of its own behind them.
Rule 2: no value of a setting, no credential and no query of a source appears.

Knows nothing of HTTP.  Pure.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from shlex import quote

from tapes.errors import Problem
from tapes.jsontext import Json
from tapes.services.admission import Service
from tapes.services.manifest import Manifest, grant_plan
from tapes.services.pins import prose_digest
from tapes.services.problems import Stage
from tapes.services.registry import Snapshot, Source, Trouble
from tapes.services.settings import Setting
from tapes.services.tools import Tool
from tapes.services.traffic import Traffic

_CONTRACT = re.compile(r"v[1-9][0-9]*")
# What a person can do about a problem, by the step that found it.
REMEDIES = {
    Stage.SOURCE_LIST: "put the file in order; to withdraw every service, write: cassettes = []",
    Stage.SOURCE_URL: "correct the source, or trust its host: --cassette-host NAME",
    Stage.FETCH: "start the service, or look at what it answers: tapes cassette validate URL",
    Stage.NAME_CHANGED: "give the document its name back, or configure it under another URL",
    Stage.NAME_TAKEN: "give one of the two services another name",
}
_BY_DEFAULT = "see what is wrong where: tapes cassette validate URL"


def contract_version(contracts: Collection[str]) -> str:
    """The served contract with the greatest number."""
    known = [contract for contract in contracts if _CONTRACT.fullmatch(contract)]
    return max(known, key=lambda contract: int(contract[1:]), default="")


def source_id(url: str) -> str:
    """A name for a source that gives nothing of its URL away."""
    return hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def moment(seconds: float | None) -> str | None:
    """A time as RFC 3339 text in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def discovery(
    snapshot: Snapshot, contracts: Collection[str], traffic: Mapping[str, Traffic]
) -> dict[str, Json]:
    """The whole answer."""
    entries = [
        _entry(source, source.service, snapshot, traffic.get(name))
        for name, source in snapshot.services.items()
        if source.service is not None
    ]
    problems = [
        _problem(source.subject, source.trouble, source)
        for source in snapshot.sources
        if source.trouble is not None
    ]
    if snapshot.unlisted is not None:
        problems.append(_problem(snapshot.unlisted.subject, snapshot.unlisted.trouble))
    problems.sort(key=lambda found: str(found["subject"]))
    return {
        "contract_version": contract_version(contracts),
        "cassettes": entries,
        "problems": problems,
        "sources": [_source(source) for source in snapshot.sources],
        "withdrawn_tools": [
            {"name": name, "cassette": gone.service, "at": moment(gone.at)}
            for name, gone in snapshot.withdrawn.items()
        ],
    }


def _entry(
    source: Source, service: Service, snapshot: Snapshot, traffic: Traffic | None
) -> dict[str, Json]:
    declared = service.manifest
    optional = {
        name: text
        for name, text in (
            ("version", declared.version),
            ("display_name", declared.display_name),
            ("description", declared.description),
        )
        if text
    }
    return {
        "name": declared.name,
        **optional,
        "route_prefix": declared.public_prefix,
        "depends": {"core": declared.core, "views": list(declared.views)},
        "tables": [f"{declared.name}.{table}" for table in sorted(declared.tables)],
        "config": [_setting(setting) for setting in declared.config],
        "openapi_path": f"{declared.public_prefix}/openapi.json",
        "openapi_status": str(source.freshness),
        "manifest_digest": service.digest,
        # Beyond the contract.
        "openapi_etag": service.etag,
        "source": source_id(source.url),
        "health": _health(source, declared),
        "tools": [
            {
                **_tool(tool),
                "held": tool.full_name in snapshot.held,
                # What the operator approves by approving it as it is now.
                "prose_digest": prose_digest(tool) if tool.full_name in snapshot.held else None,
            }
            for tool in service.tools
        ],
        "grants": grant_plan(declared).form(),
        "anchors": {
            "health": declared.health,
            "openapi": declared.openapi,
            "prefix": declared.local_prefix,
        },
        "license": declared.license,
        "homepage": declared.homepage,
        "image": declared.image,
        "port": declared.port or None,
        "x_source_digest": declared.source_digest,
        "traffic": None if traffic is None else traffic.form(),
    }


def _tool(tool: Tool) -> dict[str, Json]:
    return {
        "name": tool.full_name,
        "alias": tool.alias,
        "title": tool.title,
        "description": tool.description,
        "annotations": tool.annotations,
    }


def _setting(setting: Setting) -> dict[str, Json]:
    form: dict[str, Json] = {
        "key": setting.key,
        "type": setting.type,
        "required": setting.required,
        "secret": setting.secret,
    }
    if setting.has_default and not setting.secret:
        form["default"] = setting.default
    if setting.description:
        form["description"] = setting.description
    form["environment"] = setting.environment_name
    if setting.enum:
        form["enum"] = list(setting.enum)
    for name, bound in (("min", setting.min), ("max", setting.max)):
        if bound is not None:
            form[name] = bound
    return form


def _health(source: Source, declared: Manifest | None) -> dict[str, Json]:
    since = source.changes[-1].at if source.changes else source.since
    form: dict[str, Json] = {
        "state": str(source.health),
        "since": moment(since),
        "consecutive_failures": source.failures,
        "last_success": moment(source.succeeded),
        "latency_ms": _ms(source.latency_s),
    }
    if source.probe is not None and declared is not None:
        form["probe"] = {
            "path": declared.health,
            "status": source.probe.status,
            "latency_ms": _ms(source.probe.latency_s),
            "said": source.probe.why,
        }
    form["history"] = [
        {"at": moment(change.at), "state": str(change.health), "why": change.why}
        for change in source.changes
    ]
    return form


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)


def _source(source: Source) -> dict[str, Json]:
    return {
        "id": source_id(source.url),
        "subject": source.subject,
        "cassette": source.name,
        "published": source.service is not None,
        "last_attempt": moment(source.attempted),
        "next_attempt": moment(source.next_attempt),
        "last_error": None if source.trouble is None else source.trouble.reason,
        "health": _health(source, None if source.service is None else source.service.manifest),
    }


def _problem(subject: str, trouble: Trouble, source: Source | None = None) -> dict[str, Json]:
    return {
        "subject": subject,
        "reason": trouble.reason,
        "source": None if source is None else source_id(source.url),
        "cassette": None if source is None else source.name,
        "code": trouble.code,
        "since": moment(trouble.since),
        "last": moment(trouble.last),
        "count": trouble.count,
        "next_attempt": None if source is None else moment(source.next_attempt),
        "remedy": _remedy(trouble, source),
        "problems": [_form(found) for found in trouble.problems],
    }


def _remedy(trouble: Trouble, source: Source | None) -> str:
    """What to do, with the source's own address where all of it may be shown."""
    remedy = REMEDIES.get(Stage(trouble.code), _BY_DEFAULT)
    if source is None or source.subject != source.url:
        return remedy
    return remedy.replace("validate URL", f"validate {quote(source.url)}")


def _form(found: Problem) -> dict[str, Json]:
    return {
        "stage": found.stage,
        "code": found.code,
        "field": found.field,
        "message": found.message,
        "line": found.line,
    }


def tool_list(snapshot: Snapshot, *, service: str = "", query: str = "") -> list[dict[str, Json]]:
    """The tools, without their schemas: of one service, and with these words, where asked for."""
    words = query.lower().split()
    return [
        {**_tool(tool), "cassette": tool.service}
        for tool in snapshot.tools.values()
        if service in ("", tool.service)
        and all(
            word in f"{tool.full_name} {tool.title} {tool.description}".lower() for word in words
        )
    ]
