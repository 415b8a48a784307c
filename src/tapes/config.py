"""Settings of the servers: defaults < file < environment < flags; each value knows its origin.

Tables (upstreams, named tapes) are put together name by name; all else is replaced.

The file is `config.toml` in `--config-dir`, else in `./.tapes`, else in `~/.tapes`. Upstreams that
belong to a project may stand in its `tapes.toml`, under `[upstreams]`.

    [proxy]
    listen = "127.0.0.1:8080"
    mode = "replay"
    tape = ".cassettes/agent.jsonl"
    [proxy.upstreams]
    vllm = "http://10.0.0.7:8000"

Knows nothing of what the settings are used for.
"""

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from uuid import UUID

from tapes.errors import BadSetting, as_typed
from tapes.listening import Listen
from tapes.modes import MODE, Mode
from tapes.project import declared_upstreams
from tapes.rows import NO_ORG
from tapes.tape.beside import folder_at_home

FOLDER = ".tapes"
FILE = "config.toml"
DEFAULT_TAPE = ".cassettes/agent.jsonl"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its key, the variable that sets it, its default, and how its text is read."""

    key: str
    variable: str
    default: Any
    read: Callable[[Any], Any]
    about: str


@dataclass(frozen=True, slots=True)
class Value:
    """A value and where it comes from: `default`, a file, a variable, or a flag."""

    value: Any
    origin: str


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text is needed")
    return value


def _address(value: Any) -> str:
    """An address to listen on, as `Listen` reads it; a port may be a number."""
    text = str(value) if type(value) is int else _text(value)
    try:
        Listen.of(text)
    except BadSetting:
        raise ValueError("address:port is needed, as in 127.0.0.1:8080") from None
    return text


_MODES = ("pass", *Mode)


def _mode(value: Any) -> str:
    if value not in _MODES:
        raise ValueError(f"modes: {', '.join(_MODES)}")
    return str(value)


def _tenant(value: Any) -> str:
    try:
        return str(UUID(_text(value)))
    except ValueError:
        raise ValueError("a tenant is a UUID") from None


def _hash(value: Any) -> str:
    text = _text(value).lower()
    if len(text) != 64 or set(text) - set("0123456789abcdef"):
        raise ValueError("a SHA-256 has 64 hex digits")
    return text


def _tenants(value: Any) -> dict[str, str]:
    return {_tenant(org): _hash(hashed) for org, hashed in _pairs(value).items()}


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("a number is needed")
    try:
        number = float(value)
    except ValueError:
        raise ValueError("a number is needed") from None
    if not 0 <= number < float("inf"):
        raise ValueError("a number from 0 up is needed")
    return number


_UNITS = {
    "": 1,
    "kb": 1000,
    "kib": 1024,
    "mb": 1000**2,
    "mib": 1024**2,
    "gb": 1000**3,
    "gib": 1024**3,
}


def _size(value: Any) -> int:
    """Bytes: a number, or a number with a unit, as in `256MiB`."""
    text = str(value).strip().lower()
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(digits) :].strip()
    if isinstance(value, bool) or not digits.isdecimal() or unit not in _UNITS:
        raise ValueError("a number of bytes is needed, as in 256MiB")
    return int(digits) * _UNITS[unit]


def _pairs(value: Any) -> dict[str, str]:
    """Names and texts: a table, or `name=text,name=text`."""
    if isinstance(value, str):
        parts = [part.partition("=") for part in value.split(",") if part.strip()]
        if not all(eq for _, eq, _ in parts):
            raise ValueError("name=value,name=value is needed")
        return {name.strip(): text.strip() for name, _, text in parts}
    if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
        return dict(value)
    raise ValueError("a table of texts is needed")


_SAID = {"1": True, "true": True, "yes": True, "on": True} | {
    "0": False, "false": False, "no": False, "off": False,
}  # fmt: skip


def _flag(value: Any) -> bool:
    said = _SAID.get(str(value).lower())
    if said is None:
        raise ValueError("yes or no is needed")
    return said


def _list(value: Any) -> list[str]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return list(value)
    raise ValueError("a list of texts is needed")


PROXY = (
    Setting("proxy.listen", "TAPES_PROXY_LISTEN", "127.0.0.1:8080", _address, "address and port"),
    Setting("proxy.mode", MODE, "replay", _mode, "replay, record, live or pass"),
    Setting("proxy.tape", "TAPES_PROXY_TAPE", DEFAULT_TAPE, _text, "the default tape"),
    Setting("proxy.named", "TAPES_PROXY_NAMED", {}, _pairs, "further tapes by name"),
    Setting("proxy.folder", "TAPES_PROXY_FOLDER", None, _text, "a folder of tapes, by file name"),
    Setting("proxy.upstream", "TAPES_PROXY_UPSTREAM", None, _text, "the default upstream"),
    Setting("proxy.upstreams", "TAPES_PROXY_UPSTREAMS", {}, _pairs, "further upstreams by name"),
    Setting("proxy.pace", "TAPES_PROXY_PACE", 0.0, _number, "a factor on recorded times"),
    Setting("proxy.body_limit", "TAPES_PROXY_BODY_LIMIT", "256MiB", _size, "the largest body"),
    Setting("proxy.token", "TAPES_PROXY_TOKEN", None, _text, "what every client has to send"),
    Setting("proxy.token_sha256", "TAPES_PROXY_TOKEN_SHA256", None, _hash, "its SHA-256 instead"),
    Setting("proxy.log", "TAPES_PROXY_LOG", None, _flag, "whether turns are kept in the log"),
    Setting("proxy.hosts", "TAPES_PROXY_HOSTS", [], _list, "further names of this host"),
)  # fmt: skip
INGEST = (
    Setting("ingest.listen", "TAPES_INGEST_LISTEN", "127.0.0.1:8082", _address, "address and port"),
    Setting("ingest.body_limit", "TAPES_INGEST_BODY_LIMIT", 48_933_546, _size, "the largest body"),
    Setting("ingest.token", "TAPES_INGEST_TOKEN", None, _text, "what every sender has to send"),
    Setting("ingest.token_sha256", "TAPES_INGEST_TOKEN_SHA256", None, _hash, "its SHA-256 instead"),
    Setting("ingest.tenants", "TAPES_INGEST_TENANTS", {}, _tenants, "tenant = its token's SHA-256"),
    Setting("ingest.org", "TAPES_INGEST_ORG", NO_ORG, _tenant, "the tenant of who names none"),
    Setting("ingest.hosts", "TAPES_INGEST_HOSTS", [], _list, "further names of this host"),
)  # fmt: skip
STORAGE = (
    Setting("storage.path", "TAPES_STORAGE_PATH", ".tapes/tapes.db", _text, "the log's file"),
    Setting("storage.postgres_dsn", "TAPES_STORAGE_POSTGRES_DSN", None, _text, "or PostgreSQL"),
)  # fmt: skip
API = (
    Setting("api.listen", "TAPES_API_LISTEN", "127.0.0.1:8081", _address, "address and port"),
    Setting("api.token", "TAPES_API_TOKEN", None, _text, "what readers have to send"),
    Setting("api.token_sha256", "TAPES_API_TOKEN_SHA256", None, _hash, "its SHA-256 instead"),
    Setting("api.admin_token", "TAPES_API_ADMIN_TOKEN", None, _text, "what changes need"),
    Setting(
        "api.admin_token_sha256", "TAPES_API_ADMIN_TOKEN_SHA256", None, _hash,
        "its SHA-256 instead",
    ),
    Setting("api.tenants", "TAPES_API_TENANTS", {}, _tenants, "tenant = its token's SHA-256"),
    Setting("api.org", "TAPES_API_ORG", NO_ORG, _tenant, "the tenant of who names none"),
    Setting("api.hosts", "TAPES_API_HOSTS", [], _list, "further names of this host"),
    Setting("api.body_limit", "TAPES_API_BODY_LIMIT", "1MiB", _size, "the largest request"),
    Setting("api.rate", "TAPES_API_RATE", 1000.0, _number, "requests a second of one address"),
)  # fmt: skip
# Every setting of the servers, in the order in which people look for them.
SETTINGS = (*PROXY, *API, *INGEST, *STORAGE)
# What other programs that read the same file keep there.
_PASSED_OVER = ("provider", "project")


class Settings:
    """The values of some settings, each with its origin."""

    def __init__(self, values: Mapping[str, Value], folder: Path | None) -> None:
        self._values = dict(values)
        self.folder = folder

    def __getitem__(self, key: str) -> Any:
        return self._values[key].value

    def origin(self, key: str) -> str:
        """Where a value comes from."""
        return self._values[key].origin

    def items(self) -> list[tuple[str, Value]]:
        """All keys with their values, in the order of their declaration."""
        return list(self._values.items())

    def with_values(self, values: Mapping[str, Any], origin: str) -> "Settings":
        """The same settings with other values for some keys."""
        others = {key: Value(value, origin) for key, value in values.items()}
        return Settings({**self._values, **others}, self.folder)

    def wrong(self, key: str, why: str) -> BadSetting:
        """The error for a value that cannot be used, naming where it comes from."""
        shown = "…" if is_secret(key) else repr(self[key])
        return BadSetting(f"{key} = {shown} ({self.origin(key)}): {why}")


def is_secret(key: str) -> bool:
    """Whether a value is not to be shown: where a hash belongs, too, somebody may put a token."""
    return key.endswith(("token", "token_sha256", "tenants", "dsn"))


def folder_of(config_dir: str | None = None) -> Path | None:
    """The folder of configuration that is in force, if there is one. Raises BadSetting."""
    if config_dir is not None:
        if not Path(config_dir).is_dir():
            raise BadSetting(f"--config-dir {config_dir}: there is no such folder")
        return Path(config_dir)
    folders = (Path(FOLDER), folder_at_home())
    return next((f for f in folders if f is not None and (f / FILE).is_file()), None)


def read_settings(
    settings: tuple[Setting, ...],
    flags: Mapping[str, Any],
    *,
    environ: Mapping[str, str] = os.environ,
    config_dir: str | None = None,
) -> Settings:
    """The settings in force. `flags` are by key; None is not given. Raises BadSetting."""
    folder = folder_of(config_dir)
    content = {} if folder is None else _content(folder / FILE)
    sections = {setting.key.partition(".")[0] for setting in settings}
    _require_no_slip(content, folder)
    for section in sections:
        _require_known(content.get(section, {}), section, settings, folder)
    values = {
        s.key: _value(s, (flags.get(s.key), _flag_of(s, settings)), environ, content, folder)
        for s in settings
    }
    if "proxy.upstreams" in values:
        values["proxy.upstreams"] = _with_project(values["proxy.upstreams"])
    return Settings(values, folder)


def _content(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise BadSetting(
            f"there is no {FILE} in {file.parent}",
            "name a folder that has one; to make one: tapes init",
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSetting(
            f"{file}: {error}", f"mend it there: ${{EDITOR:-vi}} {as_typed(file)}"
        ) from error


def _require_no_slip(content: Mapping[str, Any], folder: Path | None) -> None:
    """Raises BadSetting where a section is nearly one of ours; others are of other programs."""
    ours = sorted({setting.key.partition(".")[0] for setting in SETTINGS})
    for name in content:
        close = [] if name in ours else get_close_matches(name, ours, n=1, cutoff=0.8)
        if close:
            raise BadSetting(f"{folder}/{FILE}: unknown [{name}]", f"is it [{close[0]}]?")


def _require_known(
    table: Any, section: str, settings: tuple[Setting, ...], folder: Path | None
) -> None:
    if not isinstance(table, dict):
        raise BadSetting(f"{folder}/{FILE}: {section} is a table: write [{section}]")
    known = [s.key.partition(".")[2] for s in settings if s.key.startswith(f"{section}.")]
    unknown = sorted(set(table) - set(known) - set(_PASSED_OVER))
    if unknown:
        raise BadSetting(
            f"{folder}/{FILE}: unknown {section}.{unknown[0]}", f"known: {', '.join(known)}"
        )


def _flag_of(setting: Setting, settings: tuple[Setting, ...]) -> str:
    """What sets it on the command line: of several that have a name, each with its section."""
    section, _, name = setting.key.partition(".")
    is_shared = sum(other.key.partition(".")[2] == name for other in settings) > 1
    return f"--{section}-{name}" if is_shared else f"--{name.replace('_', '-')}"


def _value(
    setting: Setting,
    flag: tuple[Any, str],
    environ: Mapping[str, str],
    content: dict[str, Any],
    folder: Path | None,
) -> Value:
    section, _, name = setting.key.partition(".")
    sources = (
        (content.get(section, {}).get(name), f"{folder}/{FILE}"),
        (environ.get(setting.variable) or None, setting.variable),
        flag,
    )
    default = setting.default
    value = Value(None if default is None else setting.read(default), "default")
    for given, origin in sources:
        if given is not None:
            value = _over(value, read_setting(setting, given, origin))
    return value


def _over(earlier: Value, later: Value) -> Value:
    if not isinstance(later.value, dict) or not earlier.value:
        return later
    return Value({**earlier.value, **later.value}, f"{later.origin}, {earlier.origin}")


def read_setting(setting: Setting, given: Any, origin: str) -> Value:
    """What is given for a setting, from a file, a variable or a flag. Raises BadSetting."""
    try:
        return Value(setting.read(given), origin)
    except ValueError as error:
        shown = "…" if is_secret(setting.key) else repr(given)
        raise BadSetting(f"{origin}: {setting.key} = {shown}: {error}") from None


def _with_project(upstreams: Value) -> Value:
    """The upstreams together with those of the project's `tapes.toml`, which give way."""
    declared, file = declared_upstreams(os.getcwd())
    if not declared:
        return upstreams
    return _over(Value(declared, file), upstreams) if upstreams.value else Value(declared, file)
