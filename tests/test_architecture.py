"""Who may import whom: the table of `docs/architecture.md`, checked by reading the sources."""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent / "src" / "tapes"

# A module imports from lower layers, from its own folder, and from what stands left of it in its
# layer; folders of one layer do not import each other.
LAYERS: dict[str, tuple[str, ...]] = {
    "words": (
        "errors", "jsontext", "loosejson", "exchange", "varying", "wire", "credentials",
        "canonical", "patterns", "views", "redact", "expiry", "waiting", "listening", "host_keys",
        "places", "answers", "drift", "envelope", "rows", "turnlines", "doors",
        "telemetry",
    ),
    "keep, read": (
        "providers/", "guarding/", "state", "forks", "budget", "flights", "tape/", "repeats",
        "origin", "modes", "prices", "project",
    ),
    "decide": (
        "halt", "report", "hot", "witness", "sketches", "permit", "sending", "explain", "summary",
        "diagnosis", "cost", "refusals", "calling", "cassette", "refreshing", "effects",
        "directory_contract", "interchange/", "moving", "comparing", "scanning", "spending",
        "stats", "tally", "explanation", "derive/", "store/", "forwarding", "access",
        "sessiondiff", "freezing", "forking", "exporting", "copying", "dated", "asgi",
        "request_ids", "ending",
    ),
    "move": (
        "lanes", "guard", "transports/", "capture/", "ingest/", "projector", "seeding", "api/",
        "services/",
    ),
    "open": ("config", "pointing", "lives", "opening", "keeping", "using", "demo/"),
    "run": (
        "checkup", "server", "ingesting", "serving", "testing/", "pytest_plugin", "cli/",
        "__main__",
    ),
}  # fmt: skip

# Modules of values alone: they import only each other, and nothing that waits, counts or draws.
PURE = {
    *LAYERS["words"], "providers/", "interchange/", "derive/", "pointing", "capture.bodies",
    "capture.http1", "capture.noticed", "capture.refusals", "capture.replies", "capture.routes",
    "capture.watching", "witness",
    "tape.rowtext", "api.joining", "api.models", "store.commonplaces", "store.cuts",
    "store.edits", "store.filters", "store.spantexts", "store.values", "store.words",
    *(f"ingest.{name}" for name in ("contract", "otlp", "transcripts", "turns")),
    *(f"services.{name}" for name in (
        "admission", "compiling", "described", "discovery", "documented", "fitting", "grants",
        "manifest", "openapi", "patterns", "pins", "placing", "problems", "registry", "rendering",
        "schemas", "settings", "spelling", "toml", "tools", "toolschema", "traffic", "urls",
    )),
}  # fmt: skip
IMPURE = {"asyncio", "os", "random", "socket", "threading", "time"}
# The exceptions, each with its reason.
ALLOWED_IMPURE = {
    ("redact", "threading"): "what it remembers is shared by threads, behind one lock",
    ("redact", "os"): "that lock is a new one in a child made by fork",
}

# Third-party packages, and the modules or folders that import them.
OUTSIDE: dict[str, str | tuple[str, ...]] = {
    "orjson": ("jsontext", "services/", "api/"),
    "brotli": "wire",
    "zstandard": ("wire", "store/"),
    "sqlalchemy": "store/",
    "alembic": "store/",
    "yaml": "interchange/",
    "genai_prices": "prices",
    "google": "ingest/",
    "opentelemetry": "ingest/",
    "psycopg": ("tape/", "store/", "services/"),
    "httpx": "transports/",
    "httpx2": "transports/",
    "httpcore": "transports/",
    "requests": "transports/",
    "urllib3": "transports/",
    "aiohttp": ("transports/", "forwarding"),
    "anyio": ("transports/", "services/"),
    "openai": "demo/",
    "multidict": "transports/",
    "yarl": ("transports/", "forwarding"),
    "uvloop": ("server", "cli/"),
    "click": "cli/",
    "rich": "cli/",
    "pyarrow": "exporting",
    "pytest": "pytest_plugin",
    "fastapi": ("services/", "api/"),
    "mcp": "services/",
    "mcp_types": "services/",
    "pydantic": ("services/", "api/"),
    "re2": "services/",
    "starlette": ("services/", "ingest/", "api/"),
    "tomli": "services/",
    "typing_extensions": "api/",
    "uvicorn": ("services/", "asgi"),
    "httptools": "asgi",
}
# Imports inside a function, each with its reason. `cli/` and `using` import late what costs time.
LATE = {
    ("prices", "genai_prices"): "it takes longer than everything else together",
    ("services/", "services.mcp"): "the SDK takes a second to load, and nothing else waits for it",
    ("tape/", "tape.postgres"): "the driver is an extra, and takes long to load",
    ("store/", "alembic"): "most openings find tables that are up to date",
    ("keeping", "store.postgres"): "its driver is an extra",
    ("exporting", "pyarrow"): "an extra of its own, and large",
    ("project", "tomllib"): "most tapes have no tapes.toml to read",
    ("cassette", "asyncio"): "programs without tasks need not load it",
    ("server", "uvloop"): "an optional library: without it the standard loop serves, more slowly",
}
LATE_FOLDERS = {"cli/", "using", "opening", "pytest_plugin"}


@dataclass(frozen=True, slots=True)
class Import:
    """One import: `target` is a module of ours (with a dot for a folder's) or a package."""

    source: str
    target: str
    is_ours: bool
    is_late: bool
    line: int

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.target}"


def unit_of(module: str) -> str:
    """The name in the table: the module, or the folder that it lies in."""
    head, dot, _ = module.partition(".")
    return f"{head}/" if dot or (SOURCES / head).is_dir() else head


def is_pure(module: str) -> bool:
    """Whether a module, or the folder that it lies in, is in the list."""
    return module in PURE or unit_of(module) in PURE


@cache
def modules() -> dict[str, ast.Module]:
    found = {}
    for file in sorted(SOURCES.rglob("*.py")):
        name = ".".join(file.relative_to(SOURCES).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = ast.parse(file.read_text(encoding="utf-8"))
    return found


def imports_of(source: str) -> list[Import]:
    return [
        Import(source, target, is_ours, is_late, line)
        for node, is_late in _import_nodes(modules()[source], False)
        for target, is_ours in _targets(node, source)
        for line in [node.lineno]
    ]


def _import_nodes(
    node: ast.AST, is_late: bool
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue  # no import stands in one, and most of a tree is made of them
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, is_late
        inside = is_late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _import_nodes(child, inside)


def _targets(node: ast.Import | ast.ImportFrom, source: str) -> Iterator[tuple[str, bool]]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif node.level:
        folder = source.split(".")[: -node.level]
        names = [".".join(["tapes", *folder, *filter(None, [node.module])])]
    elif node.module and node.module.split(".")[0] == "tapes":
        # Modules of a folder, or names of a module.
        names = [_ours(node.module, alias.name) for alias in node.names]
    else:
        names = [node.module or ""]
    for name in names:
        head, _, rest = name.partition(".")
        yield (rest, True) if head == "tapes" else (head, False)


def _ours(module: str, name: str) -> str:
    inner = f"{module}.{name}"
    return inner if inner.removeprefix("tapes.") in modules() else module


@cache
def imports() -> list[Import]:
    return [found for module in modules() for found in imports_of(module) if module != "__init__"]


PLACES = {
    unit: (layer, position)
    for layer, units in enumerate(LAYERS.values())
    for position, unit in enumerate(units)
}


def test_every_module_has_a_place_in_the_table() -> None:
    units = {unit_of(module) for module in modules() if module != "__init__"}
    assert sorted(units - PLACES.keys()) == []


def test_the_page_shows_the_same_table() -> None:
    page = (SOURCES.parent.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([a-z, ]+) \| (`.*) \|$", page, re.MULTILINE))
    there = {unit_of(module) for module in modules()}
    assert list(rows) == list(LAYERS)
    for layer, units in LAYERS.items():
        shown = re.findall(r"`([^`]+)`", rows[layer])
        assert shown == [unit for unit in units if unit in shown], layer
        assert there & set(units) <= set(shown), layer


def _is_allowed(found: Import) -> bool:
    source, target = unit_of(found.source), unit_of(found.target)
    if source == target:
        return True
    (layer, position), (their_layer, their_position) = PLACES[source], PLACES[target]
    if their_layer != layer:
        return their_layer < layer
    both_are_folders = source.endswith("/") and target.endswith("/")
    return their_position < position and not both_are_folders


def test_imports_go_one_way() -> None:
    ours = [found for found in imports() if found.is_ours and found.target]
    assert len(ours) > 50
    assert [str(found) for found in ours if not _is_allowed(found)] == []


def test_nobody_imports_the_root_of_the_package() -> None:
    assert [str(found) for found in imports() if found.is_ours and not found.target] == []


def test_pure_modules_import_only_each_other() -> None:
    wrong = [
        str(found)
        for found in imports()
        if is_pure(found.source)
        and (
            not is_pure(found.target)
            if found.is_ours
            else found.target in IMPURE
            and (unit_of(found.source), found.target) not in ALLOWED_IMPURE
        )
    ]
    assert wrong == []


def test_a_module_that_calls_itself_pure_is_in_the_list() -> None:
    claims = {
        module for module, tree in modules().items() if "Pure." in (ast.get_docstring(tree) or "")
    }
    assert {module for module in claims if not is_pure(module)} == set()


def _may_import(found: Import) -> bool:
    allowed = OUTSIDE.get(found.target, ())
    units = (allowed,) if isinstance(allowed, str) else allowed
    return unit_of(found.source) in units


def test_other_packages_are_imported_by_the_one_file_that_needs_them() -> None:
    foreign = [
        found
        for found in imports()
        if not found.is_ours and found.target not in sys.stdlib_module_names
    ]
    assert foreign
    wrong = [str(found) for found in foreign if not _may_import(found)]
    assert wrong == []


def test_imports_stand_at_the_top_but_for_those_with_a_reason() -> None:
    late = [
        found
        for found in imports()
        if found.is_late
        and unit_of(found.source) not in LATE_FOLDERS
        and (unit_of(found.source), found.target) not in LATE
    ]
    assert [str(found) for found in late] == []


@pytest.mark.parametrize("exceptions", [ALLOWED_IMPURE, LATE], ids=["impure", "late"])
def test_every_exception_is_still_needed(exceptions: dict[tuple[str, str], str]) -> None:
    used = {(unit_of(found.source), found.target) for found in imports()}
    assert exceptions.keys() - used == set()


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        module
        for module, tree in modules().items()
        if not ast.get_docstring(tree) and not module.endswith("__main__")
    ]
    assert silent == []
