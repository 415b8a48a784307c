"""Document bytes → Service, or every problem at once: the steps in order.

Rule 1: any problem refuses the whole document; nothing of it is used.
Rule 2: what is admitted is complete. A Service holds all that discovery, the proxy, the documents
        and the tools need, and nothing that could fail later.
Rule 3: limits hold before work is done: bytes, values, depth, patterns, sizes of schemas.

Knows nothing of fetching, other services or the host's own document.  Pure.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from tapes.errors import BadManifest, Problem, RefusedService
from tapes.jsontext import Json
from tapes.services import compiling, manifest
from tapes.services.manifest import Manifest
from tapes.services.openapi import (
    check_containment,
    etag_of,
    public_path,
    republished,
    with_items,
)
from tapes.services.problems import Findings, Stage, problem
from tapes.services.spelling import (
    Path,
    Unreadable,
    lines_of,
    published,
    read,
    text_of,
)
from tapes.services.tools import Tool, tools_of
from tapes.services.urls import origin_of, source_fault, subject_of

MAX_BYTES = 8 * 1024 * 1024
EXTENSION = "x-tapes-cassette"


@dataclass(frozen=True, slots=True)
class Operation:
    """A documented operation: its method, its paths with their parameters in braces, its id."""

    method: str
    local_path: str
    public_path: str
    operation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """An admitted service: what it declared, and what the host publishes and calls for it."""

    source: str
    origin: str
    manifest: Manifest
    digest: str
    document: bytes
    etag: str
    operations: tuple[Operation, ...]
    tools: tuple[Tool, ...]

    @property
    def name(self) -> str:
        """The name under which everything of the service stands."""
        return self.manifest.name

    @property
    def local_prefix(self) -> str:
        """What the service's own paths begin with."""
        return self.manifest.local_prefix

    @property
    def public_prefix(self) -> str:
        """What they begin with on the host."""
        return self.manifest.public_prefix


def admit(
    document: bytes, source: str, contracts: Collection[str], *, lenient: bool = False
) -> Service:
    """The service that a document declares. Raises RefusedService with every problem.

    `lenient` lets tools be more than a POST with a body, as far as `placing` goes.
    """
    fault = source_fault(source)
    if fault is not None:
        raise _refused(source, [problem(Stage.SOURCE_URL, "bad_url", "", fault)])
    text, tree = _document(document, source)
    declared = _manifest(tree, text, source, contracts)
    findings = Findings()
    check_containment(tree, declared.local_prefix, findings)
    seen = with_items(tree)
    if not findings.any(Stage.PATHS_MISSING):
        compiling.check(seen, findings)
    tools: tuple[Tool, ...] = ()
    if not findings.any(Stage.PATHS_MISSING, Stage.SHAPE):
        tools = tools_of(seen, declared, findings, lenient=lenient)
    if findings.any():
        raise _refused(source, findings.problems(lambda paths: lines_of(text, paths)))
    local, public = declared.local_prefix, declared.public_prefix
    body = published(republished(tree, local, public))
    return Service(
        source=source,
        origin=origin_of(source),
        manifest=declared,
        digest=manifest.digest(declared),
        document=body,
        etag=etag_of(body),
        operations=tuple(_operations(seen, local, public)),
        tools=tools,
    )


def _refused(source: str, problems: Collection[Problem]) -> RefusedService:
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return RefusedService(
        f"the document of {subject_of(source)} is refused: {count}",
        "rules and remedies: docs/services-manifest.md",
        tuple(problems),
    )


def _document(data: bytes, source: str) -> tuple[str, dict[str, Json]]:
    """Step 2: one JSON object."""
    try:
        if len(data) > MAX_BYTES:
            raise Unreadable("too_large", f"the document has more than {MAX_BYTES:,} bytes")
        text = text_of(data)
        tree = read(text)
        if type(tree) is not dict:
            raise Unreadable("not_object", "a document is one JSON object")
    except Unreadable as error:
        found = problem(Stage.DOCUMENT, error.code, "", str(error), error.line)
        raise _refused(source, [found]) from None
    return text, tree


def _manifest(
    tree: dict[str, Json], text: str, source: str, contracts: Collection[str]
) -> Manifest:
    """Step 3: the manifest in it, read and valid."""
    if EXTENSION not in tree:
        found = problem(
            Stage.MANIFEST_MISSING,
            "missing",
            f"#/{EXTENSION}",
            "the document carries no manifest at its root",
        )
        raise _refused(source, [found])

    def lines(paths: Iterable[Path]) -> dict[Path, int]:
        found = lines_of(text, [(EXTENSION, *path) for path in paths])
        return {path[1:]: line for path, line in found.items()}

    try:
        declared = manifest.of_tree(tree[EXTENSION], lines)
    except BadManifest as error:
        raise _refused(source, error.problems) from None
    problems = manifest.validate(declared, contracts)
    if problems:
        raise _refused(source, problems)
    # The text is let go: an admitted service keeps its published form only.
    return replace(declared, lines=manifest.no_lines)


def _operations(tree: dict[str, Json], local: str, public: str) -> Iterable[Operation]:
    for path, item in sorted(tree["paths"].items()):
        for method, operation in compiling.operations_of(item):
            yield Operation(
                method=method.upper(),
                # White space around a path is no part of the path of a request.
                local_path=path.strip(),
                public_path=public_path(path.strip(), local, public),
                operation_id=operation.get("operationId") or None,
            )
