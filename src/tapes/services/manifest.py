"""The manifest `cassette/v1alpha1`: what a service declares about itself.

Rule 1: reading is strict. A repeated name, an unknown one, a wrong type or another kind is an
        error; every one of them is named at once, with its line.
Rule 2: reading is not validating. `validate` judges what was read, all rules at once.
Rule 3: TOML and JSON are two spellings of one manifest. Defaults are filled in and lists that
        are sets are sorted before it is hashed, so both have one digest.
Rule 4: whatever can be read has a digest, valid or not.

Knows nothing of OpenAPI, hosts or databases.  Pure.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tapes.errors import BadManifest, Problem
from tapes.jsontext import Json
from tapes.services import toml
from tapes.services.grants import GrantPlan
from tapes.services.problems import Stage, cut, problem
from tapes.services.settings import (
    ABSENT,
    CONVENTIONAL_NAMES,
    KEY,
    Setting,
    SettingType,
    default_fault,
    integer_of,
    setting_environment_name,
)
from tapes.services.spelling import Path, Unreadable, canonical, lines_of, read, text_of
from tapes.services.urls import is_web_url

__all__ = [
    "KIND",
    "GrantPlan",
    "Manifest",
    "Setting",
    "canonical_text",
    "digest",
    "grant_plan",
    "of_tree",
    "parse_json",
    "parse_toml",
    "redacted",
    "setting_environment_name",
    "validate",
    "warnings",
]

KIND = "cassette/v1alpha1"
DEFAULT_HEALTH = "/ping"
DEFAULT_OPENAPI = "/openapi"
DEFAULT_PREFIX = "api"
# Far beyond what people declare, so that no manifest keeps the host busy.
MAX_ITEMS = 10_000
MAX_PROBLEMS = 1_000
_REMEDY = "fields and rules: docs/services-manifest.md"

# Where each of the given paths stands in the text that the manifest was read from.
LinesOf = Callable[[Iterable[Path]], Mapping[Path, int]]


def no_lines(_: Iterable[Path]) -> Mapping[Path, int]:
    return {}


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest as it was read, defaults filled in. It may break rules: see `validate`."""

    name: str = ""
    version: str = ""
    display_name: str = ""
    description: str = ""
    license: str = ""
    homepage: str = ""
    image: str = ""
    port: int = 0
    core: str = ""
    views: tuple[str, ...] = ()
    health: str = DEFAULT_HEALTH
    openapi: str = DEFAULT_OPENAPI
    prefix_path: str = DEFAULT_PREFIX
    tables: tuple[str, ...] = ()
    config: tuple[Setting, ...] = ()
    source_digest: str = ""
    lines: LinesOf = field(default=no_lines, compare=False, repr=False)

    @property
    def normalized_prefix(self) -> str:
        """The prefix as routing reads it: without slashes at its ends, empty for the root."""
        return self.prefix_path.strip("/")

    @property
    def local_prefix(self) -> str:
        """What every path of the service's own API begins with."""
        prefix = self.normalized_prefix
        return f"/{prefix}/{self.name}" if prefix else f"/{self.name}"

    @property
    def public_prefix(self) -> str:
        """What every path of the service begins with on the host."""
        return f"/v1/cassettes/{self.name}"


# --- reading ----------------------------------------------------------------------------------


class _Type:
    """What a member must be, in the words of the message."""

    TEXT = "a string"
    FLAG = "true or false"
    WHOLE = "a whole number of at most 64 bits"
    TEXTS = "a list of strings"
    TABLE = "an object"
    TABLES = "a list of objects"
    ANY = "anything"


# Every member that a manifest may have. The documentation and the reader both follow this table.
FIELDS: dict[str, dict[str, str]] = {
    "": {
        "kind": _Type.TEXT,
        "cassette": _Type.TABLE,
        "depends": _Type.TABLE,
        "api": _Type.TABLE,
        "tables": _Type.TABLES,
        "config": _Type.TABLES,
        "x-source-digest": _Type.TEXT,
    },
    "cassette": {
        "name": _Type.TEXT,
        "version": _Type.TEXT,
        "display_name": _Type.TEXT,
        "description": _Type.TEXT,
        "license": _Type.TEXT,
        "homepage": _Type.TEXT,
        "image": _Type.TEXT,
        "port": _Type.WHOLE,
    },
    "depends": {"core": _Type.TEXT, "views": _Type.TEXTS},
    "api": {"health": _Type.TEXT, "openapi": _Type.TEXT, "prefix_path": _Type.TEXT},
    "tables": {"name": _Type.TEXT},
    "config": {
        "key": _Type.TEXT,
        "type": _Type.TEXT,
        "required": _Type.FLAG,
        "secret": _Type.FLAG,
        "default": _Type.ANY,
        "description": _Type.TEXT,
        "enum": _Type.TEXTS,
        "min": _Type.WHOLE,
        "max": _Type.WHOLE,
    },
}


def _is_of(kind: str, value: Json) -> bool:
    match kind:
        case _Type.TEXT:
            return isinstance(value, str)
        case _Type.FLAG:
            return isinstance(value, bool)
        case _Type.WHOLE:
            return integer_of(value) is not None
        case _Type.TEXTS:
            return isinstance(value, list) and all(v is None or isinstance(v, str) for v in value)
        case _Type.TABLE:
            return isinstance(value, dict)
        case _Type.TABLES:
            return isinstance(value, list) and all(v is None or isinstance(v, dict) for v in value)
        case _:
            return True


def parse_json(data: bytes | str) -> Manifest:
    """The manifest in a JSON text. Raises BadManifest with every problem."""
    text = text_of(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
    repeated: list[str] = []

    def lines(paths: Iterable[Path]) -> Mapping[Path, int]:
        return lines_of(text, paths)

    try:
        tree = read(text, repeated=repeated)
        _kind_of(tree, lines)  # another kind is another schema: its members are nobody's business
        if repeated:
            read(text)
    except Unreadable as error:
        raise _unreadable(error) from None
    return of_tree(tree, lines)


def parse_toml(text: str) -> Manifest:
    """The manifest in a TOML text. Raises BadManifest with every problem."""

    def lines(paths: Iterable[Path]) -> Mapping[Path, int]:
        found = toml.lines_of(text)
        return {
            path: next(found[path[:n]] for n in range(len(path), -1, -1) if path[:n] in found)
            for path in paths
        }

    try:
        tree = toml.read(text)
    except Unreadable as error:
        raise _unreadable(error) from None
    return of_tree(tree, lines)


class _Faults:
    """The problems of one manifest, in the order in which they are found."""

    def __init__(self) -> None:
        self.found: list[tuple[Path, str, str, str]] = []
        self._more = 0

    def add(self, path: Path, code: str, message: str, field_name: str | None = None) -> None:
        """Note a problem; the field is the path unless the contract names it otherwise."""
        if len(self.found) < MAX_PROBLEMS:
            self.found.append((path, code, field_name or _dotted(path), cut(message)))
        else:
            self._more += 1

    def problems(self, stage: str, lines: LinesOf) -> tuple[Problem, ...]:
        """All of them, with their lines."""
        at = lines([path for path, *_ in self.found]) if self.found else {}
        named = [problem(stage, c, name, m, at.get(path)) for path, c, name, m in self.found]
        if self._more:
            named.append(problem(stage, "more", "", f"and {self._more} more problems"))
        return tuple(named)


def _unreadable(error: Unreadable) -> BadManifest:
    return _bad([problem(Stage.MANIFEST_PARSE, error.code, "", str(error), error.line)])


def _bad(problems: Collection[Problem]) -> BadManifest:
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return BadManifest(f"the manifest cannot be read: {count}", _REMEDY, tuple(problems))


def _kind_of(tree: Json, lines: LinesOf) -> None:
    """Refuse what is no manifest of this kind. Raises BadManifest."""

    def bad(code: str, name: str, message: str) -> BadManifest:
        path: Path = ("kind",) if name else ()
        line = lines([path]).get(path)
        return _bad([problem(Stage.MANIFEST_PARSE, code, name, message, line)])

    if tree is not None and not isinstance(tree, dict):
        raise bad("not_object", "", "a manifest is an object")
    kind = (tree or {}).get("kind")
    if kind is None or kind == "":
        raise bad("missing_kind", "kind", f"is missing; it must be {KIND!r}")
    if not isinstance(kind, str):
        raise bad("wrong_type", "kind", f"must be a string, {KIND!r}")
    if kind != KIND:
        raise bad("unsupported_kind", "kind", f"is {kind!r}; this host knows {KIND!r}")


def of_tree(tree: Json, lines: LinesOf = no_lines) -> Manifest:
    """The manifest in a value that was read by `spelling.read`. Raises BadManifest."""
    _kind_of(tree, lines)
    faults = _Faults()

    def members(value: Json, path: Path, table: str) -> dict[str, Json]:
        given = value if isinstance(value, dict) else {}
        for name in sorted(given):
            kind = FIELDS[table].get(name)
            if kind is None:
                known = ", ".join(FIELDS[table])
                faults.add((*path, name), "unknown_field", f"is not known here; known: {known}")
            elif given[name] is not None and not _is_of(kind, given[name]):
                faults.add((*path, name), "wrong_type", f"must be {kind}")
            elif isinstance(given[name], list) and len(given[name]) > MAX_ITEMS:
                faults.add((*path, name), "too_many", f"must have at most {MAX_ITEMS:,} elements")
                given = {**given, name: []}
        return {
            name: given[name]
            for name, kind in FIELDS[table].items()
            if given.get(name) is not None and _is_of(kind, given[name])
        }

    root = members(tree, (), "")
    cassette = members(root.get("cassette"), ("cassette",), "cassette")
    depends = members(root.get("depends"), ("depends",), "depends")
    api = members(root.get("api"), ("api",), "api")
    tables = [
        members(table, ("tables", n), "tables") for n, table in enumerate(root.get("tables", ()))
    ]
    config = [
        members(item, ("config", n), "config") for n, item in enumerate(root.get("config", ()))
    ]
    if faults.found:
        raise _bad(faults.problems(Stage.MANIFEST_PARSE, lines))
    return Manifest(
        **{name: value for name, value in cassette.items() if name != "port"},
        port=integer_of(cassette.get("port", 0)) or 0,
        core=depends.get("core", ""),
        views=_texts(depends.get("views")),
        health=api.get("health") or DEFAULT_HEALTH,
        openapi=api.get("openapi") or DEFAULT_OPENAPI,
        prefix_path=api.get("prefix_path") or DEFAULT_PREFIX,
        tables=tuple(table.get("name", "") for table in tables),
        config=tuple(map(_setting, config)),
        source_digest=root.get("x-source-digest", ""),
        lines=lines,
    )


def _dotted(path: Path) -> str:
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}"
    return text.removeprefix(".")


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(item or "" for item in value or ())


def _setting(members: dict[str, Json]) -> Setting:
    plain = {n: v for n, v in members.items() if n not in ("default", "enum", "min", "max")}
    default = members.get("default", ABSENT)
    if members.get("type") == SettingType.INT and integer_of(default) is not None:
        default = integer_of(default)
    return Setting(
        **plain,
        default=default,
        enum=_texts(members.get("enum")),
        min=integer_of(members.get("min")),
        max=integer_of(members.get("max")),
    )


# --- identity ---------------------------------------------------------------------------------


def canonical_text(manifest: Manifest) -> str:
    """The one text of a manifest, whichever way it was written."""
    return canonical(_form(manifest)).decode()


def digest(manifest: Manifest) -> str:
    """The identity of a manifest: `sha256:` and 64 hex digits over its canonical text (C2)."""
    return "sha256:" + hashlib.sha256(canonical(_form(manifest))).hexdigest()


def _form(manifest: Manifest) -> dict[str, Json]:
    optional = ("description", "display_name", "homepage", "image", "license", "port")
    form: dict[str, Json] = {
        "kind": KIND,
        "api": {
            "health": manifest.health or DEFAULT_HEALTH,
            "openapi": manifest.openapi or DEFAULT_OPENAPI,
            "prefix_path": manifest.prefix_path or DEFAULT_PREFIX,
        },
        "cassette": {"name": manifest.name, "version": manifest.version}
        | {name: getattr(manifest, name) for name in optional if getattr(manifest, name)},
        "depends": {"core": manifest.core},
    }
    if manifest.views:
        form["depends"]["views"] = sorted(manifest.views)
    if manifest.tables:
        form["tables"] = [{"name": name} for name in sorted(manifest.tables)]
    if manifest.config:
        form["config"] = [_setting_form(s) for s in sorted(manifest.config, key=lambda s: s.key)]
    if manifest.source_digest:
        form["x-source-digest"] = manifest.source_digest
    return form


def _setting_form(setting: Setting) -> dict[str, Json]:
    form: dict[str, Json] = {"key": setting.key, "type": setting.type}
    for name in ("description", "required", "secret"):
        if getattr(setting, name):
            form[name] = getattr(setting, name)
    if setting.enum:
        form["enum"] = sorted(setting.enum)
    for name in ("min", "max"):
        if getattr(setting, name) is not None:
            form[name] = getattr(setting, name)
    if setting.has_default:
        form["default"] = setting.default
    return form


def redacted(manifest: Manifest) -> Manifest:
    """The manifest without the defaults of secret settings, which a valid one does not have."""
    config = (replace(s, default=ABSENT) if s.secret else s for s in manifest.config)
    return replace(manifest, config=tuple(config))


def grant_plan(manifest: Manifest) -> GrantPlan:
    """The role, schema, views and tables that a manifest asks for (C10)."""
    return GrantPlan(
        role=f"cassette_{manifest.name}",
        schema=manifest.name,
        selects=tuple(sorted(f"tapes_{manifest.core}.{view}" for view in manifest.views)),
        tables=tuple(sorted(manifest.tables)),
    )


# --- rules ------------------------------------------------------------------------------------

_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}[a-z0-9]")
_RESERVED = ("public", "tapes")
_CONTRACT = re.compile(r"v[1-9][0-9]*")
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]{0,62}")
_SEGMENT = re.compile(r"[a-z0-9][a-z0-9_-]*")
_SOURCE_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_IN_ANCHOR = re.compile(r"[?%\x00-\x1f\x7f]")
# The White_Space property of Unicode. Python's `strip()` also takes U+001C to U+001F.
_WHITE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_RAW_LOG = "raw_turns"


def is_name(text: str) -> bool:
    """Whether a text has the form of a service's name."""
    return _NAME.fullmatch(text) is not None


def validate(manifest: Manifest, contracts: Collection[str]) -> tuple[Problem, ...]:
    """Every rule that the manifest breaks, in the order of its members; none for a valid one.

    `contracts` are those that the host serves; an empty set admits nothing.
    """
    faults = _Faults()
    _check_identity(manifest, faults)
    _check_depends(manifest, contracts, faults)
    _check_anchor(manifest.health, "health", faults)
    _check_anchor(manifest.openapi, "openapi", faults)
    _check_prefix(manifest.prefix_path, faults)
    _check_packaging(manifest, faults)
    _check_tables(manifest.tables, faults)
    _check_settings(manifest.config, faults)
    return faults.problems(Stage.MANIFEST_INVALID, manifest.lines)


def _check_identity(manifest: Manifest, faults: _Faults) -> None:
    if not is_name(manifest.name):
        faults.add(
            ("cassette", "name"),
            "bad_name",
            f"is {manifest.name!r}; a name has 2 to 32 lowercase letters, digits and dashes, "
            "begins with a letter and does not end with a dash",
        )
    elif manifest.name in _RESERVED:
        faults.add(("cassette", "name"), "reserved_name", f"{manifest.name!r} is reserved")
    if not manifest.version.strip(_WHITE):
        faults.add(("cassette", "version"), "missing", "must not be empty")
    if manifest.homepage and not is_web_url(manifest.homepage):
        faults.add(("cassette", "homepage"), "bad_url", "must be a full http or https URL")
    if manifest.source_digest and not _SOURCE_DIGEST.fullmatch(manifest.source_digest):
        faults.add(
            ("x-source-digest",), "bad_digest", "must be sha256: and 64 lowercase hex digits"
        )


def _check_depends(manifest: Manifest, contracts: Collection[str], faults: _Faults) -> None:
    if not _CONTRACT.fullmatch(manifest.core):
        faults.add(
            ("depends", "core"), "bad_contract", f"is {manifest.core!r}; a contract is v1, v2, …"
        )
    elif manifest.core not in contracts:
        served = ", ".join(sorted(contracts)) or "none"
        faults.add(
            ("depends", "core"),
            "unserved_contract",
            f"is {manifest.core!r}, which this host does not serve (served: {served})",
        )
    seen: dict[str, int] = {}
    for index, view in enumerate(manifest.views):
        path: Path = ("depends", "views", index)
        _check_identifier(view, path, faults)
        if view == _RAW_LOG:
            faults.add(path, "forbidden_view", "the raw log is no view of the contract")
        _check_first(view, index, seen, path, faults)


def _check_identifier(text: str, path: Path, faults: _Faults, name: str | None = None) -> None:
    if not _IDENTIFIER.fullmatch(text):
        message = (
            f"is {text!r}; it must be a lowercase identifier of letters, digits and underscores, "
            "at most 63 bytes"
        )
        faults.add(path, "bad_identifier", message, name)


def _check_first(
    text: str,
    index: int,
    seen: dict[str, int],
    path: Path,
    faults: _Faults,
    name: str | None = None,
) -> None:
    if text in seen:
        faults.add(path, "repeated", f"{text!r} stands already at index {seen[text]}", name)
    seen.setdefault(text, index)


def _check_anchor(anchor: str, name: str, faults: _Faults) -> None:
    if (
        not anchor.startswith("/")
        or anchor.startswith("//")
        or _IN_ANCHOR.search(anchor)
        or not {".", ".."}.isdisjoint(anchor.split("/"))
    ):
        faults.add(
            ("api", name),
            "bad_path",
            f"is {anchor!r}; it must be a path from the root, such as /{name}, without host, "
            "query, escapes or dot segments",
        )


def _check_prefix(prefix: str, faults: _Faults) -> None:
    inner = prefix.strip("/")
    if not all(map(_SEGMENT.fullmatch, inner.split("/"))) if inner else prefix != "/":
        faults.add(
            ("api", "prefix_path"),
            "bad_prefix",
            f"is {prefix!r}; each segment begins with a lowercase letter or digit and goes on "
            "with these, dashes and underscores; / alone means no prefix",
        )


def _check_packaging(manifest: Manifest, faults: _Faults) -> None:
    image, port = ("cassette", "image"), ("cassette", "port")
    if manifest.image != manifest.image.strip(_WHITE):
        faults.add(image, "outer_space", "must not begin or end with white space")
    if manifest.image and not manifest.port:
        faults.add(port, "missing", "is needed beside an image")
    if manifest.port and not 1 <= manifest.port <= 65535:
        faults.add(port, "bad_port", f"is {manifest.port}; a port is 1 to 65535")
    if manifest.port and not manifest.image:
        faults.add(image, "missing", "is needed beside a port")


def _check_tables(tables: Iterable[str], faults: _Faults) -> None:
    seen: dict[str, int] = {}
    for index, table in enumerate(tables):
        path: Path = ("tables", index, "name")
        name = f"table[{index}].name"  # the contract's own name for the place
        _check_identifier(table, path, faults, name)
        _check_first(table, index, seen, path, faults, name)


def _check_settings(settings: Iterable[Setting], faults: _Faults) -> None:
    keys: dict[str, int] = {}
    environment: dict[str, int] = {}
    for index, setting in enumerate(settings):
        at: Path = ("config", index)
        if not KEY.fullmatch(setting.key):
            message = (
                f"is {setting.key!r}; a key is lowercase words of letters, digits and underscores, "
                "joined by dots"
            )
            faults.add((*at, "key"), "bad_key", message)
        _check_first(setting.key, index, keys, (*at, "key"), faults)
        _check_environment(setting, index, environment, faults)
        _check_setting(setting, at, faults)


def _check_environment(setting: Setting, index: int, seen: dict[str, int], faults: _Faults) -> None:
    name = setting.environment_name
    if name in seen:
        faults.add(
            ("config", index, "key"),
            "repeated_environment_name",
            f"its environment name {name} is that of the setting at index {seen[name]}",
        )
    seen.setdefault(name, index)


def _check_setting(setting: Setting, at: Path, faults: _Faults) -> None:
    if setting.type not in list(SettingType):
        known = ", ".join(SettingType)
        faults.add((*at, "type"), "bad_type", f"is {setting.type!r}; types: {known}")
    if setting.secret and setting.has_default:
        faults.add((*at, "default"), "secret_default", "a secret setting has no default")
    if setting.enum and setting.type != SettingType.STRING:
        faults.add((*at, "enum"), "misplaced", "only a setting of type string has an enum")
    seen: dict[str, int] = {}
    for index, choice in enumerate(setting.enum):
        _check_first(choice, index, seen, (*at, "enum", index), faults)
    for name, bound in (("min", setting.min), ("max", setting.max)):
        if bound is not None and setting.type != SettingType.INT:
            faults.add((*at, name), "misplaced", f"only a setting of type int has a {name}")
    if setting.min is not None and setting.max is not None and setting.min > setting.max:
        faults.add((*at, "min"), "crossed", f"is above max, which is {setting.max}")
    fault = default_fault(setting)
    if fault is not None:
        faults.add((*at, "default"), "bad_default", fault)


def warnings(manifest: Manifest) -> tuple[Problem, ...]:
    """What a valid manifest should rather not do; nothing here refuses it."""
    faults = _Faults()
    for name in ("health", "openapi"):
        if "#" in getattr(manifest, name):
            faults.add(("api", name), "fragment", "has a #: no server ever sees a fragment")
    for index, setting in enumerate(manifest.config):
        if setting.environment_name in CONVENTIONAL_NAMES:
            faults.add(
                ("config", index, "key"),
                "conventional_name",
                f"{setting.environment_name} is what services read their own start-up from",
            )
    return faults.problems("warning", manifest.lines)
