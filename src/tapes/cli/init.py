"""`tapes init`, `tapes config` and `tapes status`: the settings in force, and what is running.

Knows nothing of what settings are used for.
"""

import http.client
import json
import os
import re
import tomllib
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from tapes.cli.opened import age_of, opened, place_of, store_options, tenant_of
from tapes.cli.output import count, facts, json_option, write, write_json
from tapes.config import (
    FILE,
    FOLDER,
    SETTINGS,
    Setting,
    Settings,
    folder_of,
    is_secret,
    read_setting,
    read_settings,
)
from tapes.errors import BadSetting, TapesError, as_typed
from tapes.listening import Listen
from tapes.rows import DERIVATION
from tapes.tape.beside import make_local

PRESETS = {
    "openai": "https://api.openai.com",
    "anthropic": "https://api.anthropic.com",
    "ollama": "http://127.0.0.1:11434",
}
_PATIENCE_S = 2.0


@click.command()
@click.option("--preset", type=click.Choice(list(PRESETS)), help="The default upstream.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@json_option
def init(*, preset: str | None, force: bool, as_json: bool) -> None:
    """Make `.tapes/config.toml` here, with every setting and what holds if it is not said.

    \b
    Example:
      tapes init --preset anthropic
    """
    file = Path(FOLDER) / FILE
    if os.path.lexists(file) and not force:
        raise BadSetting(f"{file} is there already", "to write over it: --force")
    _write(file, _page(preset))
    if as_json:
        write_json({"file": str(file)})
        return
    write(f"{file}")
    write("next: tapes serve")


def _page(preset: str | None) -> str:
    lines = ["# Settings of Tapes. What is commented out is what holds if nothing is said.", ""]
    section = ""
    for setting in SETTINGS:
        own, _, name = setting.key.partition(".")
        if own != section:
            section = own
            lines += ["", f"[{section}]"]
        value = setting.default
        said = False
        if setting.key == "proxy.upstream" and preset is not None:
            value, said = PRESETS[preset], True
        shown = "" if value is None else _toml(value)
        lines.append(f"{'' if said else '# '}{name} = {shown}  # {setting.about}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False)


# --- config -----------------------------------------------------------------------------------


@click.group()
def config() -> None:
    """Read and write settings. Flags hold over variables, variables over the file."""


def _settings(config_dir: str | None) -> Settings:
    return read_settings(SETTINGS, {}, config_dir=config_dir)


def _shown(setting: Setting, value: Any) -> Any:
    return "…" if value and is_secret(setting.key) else value


def _known(key: str) -> Setting:
    found = next((setting for setting in SETTINGS if setting.key == key), None)
    if found is None:
        raise BadSetting(f"there is no setting {key}", "see them all: tapes config list")
    return found


_dir_option = click.option("--config-dir", help="The folder of config.toml; ./.tapes or ~/.tapes.")


@config.command("list")
@_dir_option
@json_option
def list_(*, config_dir: str | None, as_json: bool) -> None:
    """All settings, each with its value and where it comes from.

    \b
    Example:
      tapes config list
    """
    settings = _settings(config_dir)
    if as_json:
        rows = [
            {"key": s.key, "value": _shown(s, settings[s.key]), "origin": settings.origin(s.key),
             "variable": s.variable, "about": s.about}
            for s in SETTINGS
        ]  # fmt: skip
        write_json({"settings": rows})
        return
    wide = max(len(setting.key) for setting in SETTINGS)
    for setting in SETTINGS:
        value = _shown(setting, settings[setting.key])
        text = "-" if value is None else _toml(value)
        origin = click.style(settings.origin(setting.key), dim=True)
        write(f"{setting.key.ljust(wide)}  {text}  ({origin})")


@config.command("get")
@click.argument("key")
@_dir_option
@json_option
def get(key: str, *, config_dir: str | None, as_json: bool) -> None:
    """One setting, as it holds now.

    \b
    Example:
      tapes config get api.listen
    """
    setting = _known(key)
    settings = _settings(config_dir)
    value = _shown(setting, settings[key])
    if as_json:
        write_json({"key": key, "value": value, "origin": settings.origin(key)})
    else:
        write("" if value is None else value if isinstance(value, str) else _toml(value))


@config.command("set")
@click.argument("key")
@click.argument("value")
@_dir_option
@json_option
def set_(key: str, value: str, *, config_dir: str | None, as_json: bool) -> None:
    """Write one setting into the file; other lines stay as they are.

    \b
    Example:
      tapes config set proxy.upstream https://api.openai.com
    """
    setting = _known(key)
    read = read_setting(setting, value, "config set").value
    folder = folder_of(config_dir) or Path(FOLDER)
    file = folder / FILE
    text = _text(file)
    changed = with_setting(text, key, _toml(read))
    if not _says(changed, setting, read):
        raise BadSetting(
            f"{file}: {key} stands there in a form that only a person can change",
            f"change it there: ${{EDITOR:-vi}} {as_typed(file)}",
        )
    _write(file, changed)
    settings = _settings(config_dir)
    if as_json:
        write_json({"file": str(file), "key": key, "holds_now": settings.origin(key)})
    elif settings.origin(key) == setting.variable:
        write(f"{file}: {key} is set, and {setting.variable} holds over it now")
    else:
        write(f"{file}: {key} is set")


def _text(file: Path) -> str:
    """What the file says; "" where it is not there. Raises BadSetting."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadSetting(
            f"{file} cannot be read: {why}", f"look at it: ls -l {as_typed(file)}"
        ) from error


def _says(text: str, setting: Setting, value: Any) -> bool:
    """Whether a file with this text sets this value."""
    section, _, name = setting.key.partition(".")
    try:
        return bool(setting.read(tomllib.loads(text)[section][name]) == value)
    except (ValueError, LookupError, TypeError):
        return False


def _write(file: Path, text: str) -> None:
    """Write the file whole or not at all, for its owner alone. Raises BadSetting."""
    place = Path(os.path.realpath(file))
    temporary = place.with_name(f"{place.name}.{os.getpid()}.tmp")
    try:
        make_local(file.parent)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(fd)
        temporary.replace(place)
    except OSError as error:
        raise BadSetting(
            f"{file} cannot be written: {error.strerror}",
            f"see who may: ls -ld {as_typed(file.parent)}",
        ) from error
    finally:
        with suppress(OSError):  # where it could not be made, it is not there
            temporary.unlink(missing_ok=True)


def with_setting(text: str, key: str, value: str) -> str:
    """The text of a file with one setting in it; other lines stay as they are."""
    section, _, name = key.partition(".")
    lines = text.removesuffix("\n").split("\n") if text else []
    line = f"{name} = {value}"
    head = re.compile(rf"\[\s*{re.escape(section)}\s*\]")
    starts = [n for n, each in enumerate(lines) if head.match(each.strip())]
    if not starts:
        return "\n".join([*lines, *([""] if lines else []), f"[{section}]", line]) + "\n"
    at = starts[0] + 1
    end = next((n for n in range(at, len(lines)) if lines[n].lstrip().startswith("[")), len(lines))
    own = re.compile(rf"#?\s*{re.escape(name)}\s*=")
    mine = [n for n in range(at, end) if own.match(lines[n].strip())]
    live = [n for n in mine if not lines[n].lstrip().startswith("#")]
    if live or mine:
        lines[(live or mine)[0]] = line
    else:
        lines.insert(at, line)
    return "\n".join(lines) + "\n"


# --- status -----------------------------------------------------------------------------------


@click.command()
@click.option("--api", "target", metavar="URL", help="Where the read API should answer.")
@store_options
@json_option
def status(
    *, target: str | None, store: str | None, org: str, config_dir: str | None, as_json: bool
) -> None:
    """The folder, the log and what it holds, and whether the servers answer.

    \b
    Example:
      tapes status
    """
    settings, tenant = _settings(config_dir), tenant_of(org)
    where = place_of(store, config_dir)
    base = target or f"http://{Listen.of(settings['api.listen'])}"
    told: dict[str, Any] = {
        "folder": None if settings.folder is None else str(settings.folder),
        "store": str(where),
        "api": base,
        "api_answers": _answers(f"{base}/ping"),
        "proxy": f"http://{Listen.of(settings['proxy.listen'])}",
    }
    told["proxy_answers"], age = _answers(f"{told['proxy']}/_tapes/ping"), ""
    if where.dsn is None and not os.path.exists(where.path):
        told["log"] = None
    else:
        try:
            with opened(store, config_dir) as log:
                stats, known = log.project(tenant).stats(), log.derivation()
                told["log"] = {
                    "sessions": stats.sessions,
                    "traces": stats.traces,
                    "input_tokens": stats.input_tokens,
                    "output_tokens": stats.output_tokens,
                    "cost_usd": stats.cost_usd,
                    "counts": {what: dict(n) for what, n in log.counts().items()},
                    "derived_by": known.version,
                    "deriver": DERIVATION,
                    "done": known.done(DERIVATION),
                }
                age = age_of(known)
        except TapesError as error:
            told["log"], told["error"] = None, error.message
    if as_json:
        write_json(told)
        return
    _tell(told, age)


def _answers(url: str) -> bool:
    """Whether somebody answers there. A proxy of the environment is none of this machine's."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_PATIENCE_S) as answer:
            return bool(answer.status < 500)
    except urllib.error.HTTPError as error:
        return error.code < 500
    except (OSError, ValueError, http.client.HTTPException):  # nobody, or somebody else
        return False


def _tell(told: dict[str, Any], age: str) -> None:
    log = told["log"]
    facts(
        ("settings", told["folder"] or "none: the defaults hold (tapes init makes a file)"),
        ("log", told["store"] if log else told.get("error", f"{told['store']}: not there")),
        ("api", f"{told['api']} {'answers' if told['api_answers'] else 'does not answer'}"),
        ("proxy", f"{told['proxy']} {'answers' if told['proxy_answers'] else 'does not answer'}"),
    )
    if log:
        facts(
            ("sessions", log["sessions"]),
            ("traces", log["traces"]),
            ("tokens", _tokens(log["input_tokens"], log["output_tokens"])),
            ("waiting", _waiting(log["counts"].get("waiting", {}))),
            ("derived", age or None),
        )


def _tokens(read: int | None, written: int | None) -> str:
    """Sums for people; what is unknown is not zero."""
    return f"{'-' if read is None else read} in, {'-' if written is None else written} out"


_WAITING = {"sessions": "session", "failed": "failed session", "unplaced": "unplaced turn"}


def _waiting(waiting: dict[str, int]) -> str:
    """What is still to be derived, for people."""
    parts = [count(n, _WAITING.get(what, what)) for what, n in waiting.items() if n]
    return f"{', '.join(parts)} to derive: tapes derive" if parts else "nothing"
