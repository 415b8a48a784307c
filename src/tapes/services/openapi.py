"""The OpenAPI document of a service on the host: contained, rewritten, and merged with others.

Rule 1: every path is below the service's own prefix, by whole segments, and has no segment that
        leads out of it again.
Rule 2: the republished document is the fetched one with two edits: its paths stand in the host's
        namespace, and nothing in it names another server.
Rule 3: the bytes that are published are the bytes that are hashed.
Rule 4: the aggregate is a function of the documents in it. Each keeps all that it defines, under
        its own namespace; where two names still meet, the host's wins, then that of the service
        whose name comes first, and the other is told apart by a hash of where it comes from.

Knows nothing of sources, tools or HTTP.  Pure.
"""

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from tapes.jsontext import Json
from tapes.services import compiling
from tapes.services.compiling import members, normal_path
from tapes.services.problems import Findings, Stage
from tapes.services.rendering import Names, Rendering, external_docs
from tapes.services.spelling import published, read, text_of

# A dot segment, plain or escaped, that a client or a server resolves to somewhere else. Servers
# that know parameters of segments take `..;x` for one too.
_DOT_SEGMENT = re.compile(
    r"(?:^|/|\\|%2f|%5c)(?:\.|%2e){1,2}(?:$|/|\\|;|%2f|%5c|%3b)", re.IGNORECASE
)


def is_inside(path: str, prefix: str) -> bool:
    """Whether a path is the prefix or below it, by whole segments."""
    return path == prefix or path.startswith(prefix + "/")


def leads_out(path: str) -> bool:
    """Whether a path has a segment that means its parent or itself."""
    return _DOT_SEGMENT.search(path.strip()) is not None


def check_containment(document: dict[str, Json], local_prefix: str, findings: Findings) -> None:
    """Note every path that is not inside the service's own prefix (C3)."""
    paths = document.get("paths")
    if type(paths) is not dict:
        findings.add(Stage.PATHS_MISSING, "wrong_type", (None, "paths"), "must be an object")
        return
    for path in paths:
        where = ((None, "paths"), path)
        if not is_inside(path, local_prefix):
            message = f"is outside {local_prefix}; a document describes the service's own API only"
            findings.add(Stage.PATH_OUTSIDE, "outside", where, message)
        elif leads_out(path):
            message = "has a dot segment, which leads out of the service's prefix"
            findings.add(Stage.PATH_OUTSIDE, "dot_segment", where, message)


def public_path(path: str, local_prefix: str, public_prefix: str) -> str:
    """A local path as the host names it: another prefix, the rest as it is."""
    return public_prefix + path[len(local_prefix) :]


def republished(
    document: dict[str, Json], local_prefix: str, public_prefix: str
) -> dict[str, Json]:
    """The document as the host publishes it. What is not edited is shared with the original."""
    result = {name: value for name, value in document.items() if name != "servers"}
    result["paths"] = {
        public_path(path, local_prefix, public_prefix): _item(item)
        for path, item in members(document.get("paths")).items()
    }
    if type(document.get("webhooks")) is dict:
        result["webhooks"] = _each(document["webhooks"], _item)
    if type(document.get("components")) is dict:
        result["components"] = _components(document["components"])
    return result


_Edit = Callable[[Json], Json]


def _each(value: Json, edit: _Edit) -> Json:
    """The members of an object, edited; anything else as it is."""
    return {k: edit(v) for k, v in value.items()} if type(value) is dict else value


def _edited(value: Json, dropped: str, **edits: _Edit) -> Json:
    """An object without one member and with some edited; anything else as it is."""
    if type(value) is not dict:
        return value
    return {
        name: edits[name](member) if name in edits else member
        for name, member in value.items()
        if name != dropped
    }


# Servers stand in path items and operations, and again in those of callbacks, at any depth.
def _item(item: Json) -> Json:
    return _edited(_each(item, _operation), "servers")


def _operation(operation: Json) -> Json:
    return _edited(operation, "servers", callbacks=_callbacks, responses=_responses)


def _callbacks(callbacks: Json) -> Json:
    return _each(callbacks, lambda callback: _each(callback, _item))


def _responses(responses: Json) -> Json:
    return _each(responses, lambda response: _edited(response, "", links=_links))


def _links(links: Json) -> Json:
    return _each(links, lambda link: _edited(link, "server"))


def _components(components: Json) -> Json:
    return _edited(
        components,
        "",
        callbacks=_callbacks,
        links=_links,
        pathItems=lambda items: _each(items, _item),
        responses=_responses,
    )


def with_items(document: dict[str, Json]) -> dict[str, Json]:
    """The document with each path item that is a reference replaced by what it leads to.

    What cannot be found is an empty path item. Members beside the reference come first.
    """
    paths = members(document.get("paths"))
    if not any(members(item).get("$ref") for item in paths.values()):
        return document
    known = members(members(document.get("components")).get("pathItems"))

    def resolved(item: Json) -> Json:
        found: dict[str, Json] = {}
        for _ in range(_STEPS):
            if type(item) is not dict or not item.get("$ref"):
                break
            found = {**item, **found}
            target = found.pop("$ref")
            name = target.removeprefix("#/components/pathItems/") if type(target) is str else ""
            item = known.get(name)
        else:
            return found
        return {**item, **found} if type(item) is dict else found or item

    return {**document, "paths": {path: resolved(item) for path, item in paths.items()}}


_STEPS = 9


def etag_of(text: bytes) -> str:
    """The strong entity tag of published bytes."""
    return f'"sha256:{hashlib.sha256(text).hexdigest()}"'


# --- the aggregate ----------------------------------------------------------------------------

VERSION = "3.0.3"
_INFO: dict[str, Json] = {
    "title": "tapes",
    "version": "v1",
    "description": "The API of this host and of the cassette services that it has admitted.",
}


class Published(Protocol):
    """A service as far as the aggregate needs it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def document(self) -> bytes:
        """Its republished document."""
        ...


def namespace_of(name: str) -> str:
    """What the names of a service's definitions begin with in the aggregate."""
    return name.replace("-", "_") + "_"


def aggregate(services: Iterable[Published], own_document: dict[str, Json] | None = None) -> bytes:
    """One document of the host's own API and of all services, in OpenAPI 3.0.3 (C4, C6).

    Order does not matter. The host's own document keeps its names, its info and its requirement
    for all; a service's requirement for all holds for its own operations.
    """
    merged = _Aggregate(with_items(own_document or {}))
    for service in sorted(services, key=lambda service: service.name):
        # It was judged when it was admitted, and is indented already.
        merged.add(service.name, read(text_of(service.document), max_published=math.inf))
    return published(merged.document())


class _Aggregate:
    def __init__(self, own: dict[str, Json]) -> None:
        self._own = own
        components = members(own.get("components"))
        names = {s: {n: n for n in members(components.get(s))} for s in compiling.SECTIONS}
        self._taken = {section: set(found) for section, found in names.items()}
        self._ids: set[str] = set()
        ids: dict[tuple[str, str], str] = {}
        for path, method, operation in _operations_of(own):
            given = operation.get("operationId")
            if type(given) is str and given:
                ids[path, method] = given
                self._ids.add(given)
        rendering = Rendering(own, names, lambda path, method: ids.get((path, method)))
        self._paths = {
            path: rendering.path_item(path, item)
            for path, item in members(own.get("paths")).items()
            if path.startswith("/")
        }
        self._components = rendering.components()
        self._tags: dict[str, dict[str, Json]] = {}
        self._add_tags(own)

    def add(self, service: str, document: dict[str, Json]) -> None:
        """Add a service, after those whose names come before its own."""
        document = with_items(document)
        rendering = Rendering(
            document, self._names(service, document), self._new_ids(service, document)
        )
        for section, found in rendering.components().items():
            self._components.setdefault(section, {}).update(found)
        shared = document.get("security")
        for path, item in sorted(members(document.get("paths")).items()):
            path = normal_path(path)
            rendered = rendering.path_item(path, item, shared)
            self._paths[path] = {**rendered, **self._paths.get(path, {})}
        self._add_tags(document)

    def _names(self, service: str, document: dict[str, Json]) -> Names:
        components = members(document.get("components"))
        return {
            section: {
                name: self._free(
                    self._taken[section],
                    namespace_of(service) + name,
                    f"{service}\0{section}\0{name}",
                )
                for name in sorted(members(components.get(section)))
            }
            for section in compiling.SECTIONS
        }

    @staticmethod
    def _free(taken: set[str], wanted: str, identity: str) -> str:
        """The name that is wanted, or where it is taken one that only this identity has."""
        name, count = wanted, 0
        while name in taken:
            told = hashlib.sha256(f"{identity}\0{count}".encode()).hexdigest()
            name, count = f"{wanted}_{told[:8]}", count + 1
        taken.add(name)
        return name

    def _new_ids(self, service: str, document: dict[str, Json]) -> Callable[[str, str], str | None]:
        """New ids by path and method; those that are given come before those that are made."""
        wanted: list[tuple[bool, str, str, str]] = []
        for path, method, operation in _operations_of(document):
            given = operation.get("operationId")
            given = given.strip() if type(given) is str else ""
            path = normal_path(path)
            made = not given
            wanted.append((made, path, method, given or synthesized_id(method, path)))
        ids = {
            (path, method): self._free(
                self._ids, namespace_of(service) + wish, f"{service}\0{method} {path}"
            )
            for _, path, method, wish in sorted(wanted)
        }
        return lambda path, method: ids.get((path, method))

    def _add_tags(self, document: dict[str, Json]) -> None:
        tags = document.get("tags")
        for tag in tags if type(tags) is list else ():
            name = members(tag).get("name")
            if type(name) is not str:
                continue
            known = self._tags.setdefault(name, {"name": name})
            if tag.get("description"):
                known.setdefault("description", tag["description"])
            for member, value in external_docs(tag).items():
                known.setdefault(member, value)

    def document(self) -> dict[str, Json]:
        """All that was added, as one document."""
        result: dict[str, Json] = {
            "openapi": VERSION,
            "info": {**_INFO, **_known_info(members(self._own.get("info")))},
            "paths": self._paths,
        }
        if self._components:
            result["components"] = self._components
        if self._tags:
            result["tags"] = [tag for _, tag in sorted(self._tags.items())]
        for name in ("security", "servers", "externalDocs"):
            if self._own.get(name):
                result[name] = self._own[name]
        return result


def _known_info(info: dict[str, Json]) -> dict[str, Json]:
    known = ("title", "description", "termsOfService", "contact", "license", "version")
    return {name: info[name] for name in known if info.get(name) is not None}


def _operations_of(document: dict[str, Json]) -> Iterator[tuple[str, str, dict[str, Json]]]:
    for path, item in sorted(members(document.get("paths")).items()):
        for method, operation in compiling.operations_of(item):
            yield path, method, operation


def synthesized_id(method: str, path: str) -> str:
    """The id of an operation that has none: its method and the words of its public path."""
    words = (re.sub(r"[{}.\-_]", "", segment) for segment in path.split("/"))
    return method + "".join(word[:1].upper() + word[1:] for word in words if word)
