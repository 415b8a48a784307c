"""What a project declares in its `tapes.toml`, for all tapes or for some.

    secrets = "replace"              # or "refuse": a key pattern in a body is then an error
    errors = "skip"                  # or "store": answers such as 429 and 500 are kept too
    retry_after = "now"              # or "recorded": how long a kept error makes clients wait
    max_age = "90d"                  # recordings that are older have expired
    expired = "warn"                 # or "fail", or "record"
    headers = ["x-variant"]          # further headers that belong to a request's identity
    allow = ["db.internal:5432"]     # hosts that are neither recorded nor refused

    [[vary]]                         # see docs/matching.md
    at = "/metadata/run_id"

    [[credential]]                   # what a host asks for, see docs/refreshing.md
    host = "llm.internal"
    header = "authorization"
    value = "Bearer $LLM_KEY"

    [[secret]]                       # a further pattern that must not come to rest
    name = "acme_key"
    pattern = 'acme_[a-z0-9]{20}'    # with a group, the group alone is the secret
    hash = true                      # false for values that could be guessed from a hash

    [upstreams]                      # further upstreams of the proxy; see docs/proxy.md
    vllm = "http://10.0.0.7:8000"

    [[tape]]                         # the same again, for the tapes that a path names
    path = "tests/tapes/weather*.jsonl"
    [[tape.vary]]
    pattern = '\\d{4}-\\d{2}-\\d{2}'

The file is looked for from the tape's folder upwards, to the root of the repository.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tapes.errors import BadRule, BadSetting
from tapes.expiry import OnExpiry, age_of
from tapes.host_keys import Credential
from tapes.patterns import SecretPattern, user_patterns
from tapes.varying import Rule

FILE = "tapes.toml"
_CHOICES = {
    "secrets": ("replace", "refuse"),
    "errors": ("skip", "store"),
    "retry_after": ("now", "recorded"),
    "expired": tuple(OnExpiry),
}
_TEXTS = ("max_age",)
_LISTS = ("headers", "allow")
_TABLES = ("vary", "secret", "credential")


@dataclass(frozen=True, slots=True)
class Declared:
    """What is declared for one tape."""

    rules: tuple[Rule, ...] = ()
    headers: frozenset[str] = frozenset()
    allow: tuple[str, ...] = ()
    secrets: str = "replace"
    errors: str = "skip"
    retry_after: str = "now"
    max_age: timedelta | None = None
    expired: OnExpiry = OnExpiry.WARN
    credentials: tuple[Credential, ...] = ()
    patterns: tuple[SecretPattern, ...] = ()
    source: str | None = None


def declared_for(tape_path: str | os.PathLike[str]) -> Declared:
    """What the nearest `tapes.toml` declares for a tape. Raises BadRule naming file and key."""
    path = Path(os.path.abspath(tape_path))
    file = _nearest_file(path)
    if (
        file is None
    ):  # a link into another project, where the tape lies: its secrets are known there
        path = Path(os.path.realpath(path))
        file = _nearest_file(path)
    if file is None:
        return Declared()
    content = _content(file)
    sections = content.pop("tape", [])
    content.pop("upstreams", None)  # for the proxy alone
    declared = _with(Declared(source=str(file)), content, str(file))
    if not isinstance(sections, list):
        raise BadRule(f"{file}: tape is a list: write [[tape]]")
    for number, section in enumerate(sections, 1):
        where = f"{file}: [[tape]] {number}"
        pattern = section.pop("path", None) if isinstance(section, dict) else None
        if not isinstance(pattern, str):
            raise BadRule(f"{where} has no path", 'path = "tests/tapes/*.jsonl"')
        here = str(path) if os.path.isabs(pattern) else os.path.relpath(path, file.parent)
        if fnmatch(here, os.path.normpath(pattern)):
            declared = _with(declared, section, where)
    return declared


def declared_upstreams(folder: str | os.PathLike[str]) -> tuple[dict[str, str], str]:
    """The upstreams that the nearest `tapes.toml` declares, and its name. Raises BadRule."""
    file = _nearest_file(Path(os.path.abspath(folder)) / "a tape")
    if file is None:
        return {}, ""
    upstreams = _content(file).get("upstreams", {})
    if not isinstance(upstreams, dict) or not _is_texts(list(upstreams.values())):
        raise BadRule(f"{file}: upstreams is a table of URLs", '[upstreams] vllm = "http://…"')
    return upstreams, str(file)


def declared_secrets(folder: str | os.PathLike[str]) -> tuple[SecretPattern, ...]:
    """Every pattern of secrets in the nearest `tapes.toml`, whichever tapes it stands for.

    For what keeps the calls of all of them. Raises BadRule.
    """
    file = _nearest_file(Path(os.path.abspath(folder)) / "a tape")
    if file is None:
        return ()
    declared_for(file)  # what is wrong anywhere in it is an error here too
    content = _content(file)
    sections = [(content, str(file))]
    tapes = content.get("tape", [])
    sections += [(each, f"{file}: [[tape]] {number}") for number, each in enumerate(tapes, 1)]
    return tuple(
        pattern
        for section, where in sections
        for pattern in _with(Declared(), {"secret": section.get("secret", [])}, where).patterns
    )


def _content(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadRule(f"{file}: {error}", "docs/matching.md shows all that it can hold") from error


def _nearest_file(tape: Path) -> Path | None:
    for folder in tape.parents:
        file = folder / FILE
        if file.is_file():
            return file
        if (folder / ".git").exists():
            return None
    return None


def _with(declared: Declared, content: Mapping[str, Any], where: str) -> Declared:
    for name, value in content.items():
        if name in _CHOICES and value not in _CHOICES[name]:
            options = " or ".join(f'"{choice}"' for choice in _CHOICES[name])
            raise BadRule(f"{where}: {name} = {value!r} is not {options}")
        if name in _TEXTS and not isinstance(value, str):
            raise BadRule(f"{where}: {name} is a text", f'{name} = "…"')
        if name in _LISTS and not _is_texts(value):
            raise BadRule(f"{where}: {name} is a list of texts", f'{name} = ["…"]')
        if name in _TABLES and not (isinstance(value, list) and all(map(_is_table, value))):
            raise BadRule(f"{where}: {name} is a list of tables: write [[{name}]]")
        if name not in (*_CHOICES, *_TEXTS, *_LISTS, *_TABLES):
            known = ", ".join((*_CHOICES, *_TEXTS, *_LISTS, *_TABLES, "tape"))
            raise BadRule(f"{where}: unknown {name}", f"known: {known}")
    return replace(
        declared,
        rules=declared.rules
        + tuple(
            Rule.of(table, f"{where}: [[vary]] {n}")
            for n, table in enumerate(content.get("vary", ()), 1)
        ),
        headers=declared.headers | {name.lower() for name in content.get("headers", ())},
        allow=declared.allow + tuple(content.get("allow", ())),
        secrets=content.get("secrets", declared.secrets),
        errors=content.get("errors", declared.errors),
        retry_after=content.get("retry_after", declared.retry_after),
        max_age=_age(content["max_age"], where) if "max_age" in content else declared.max_age,
        expired=OnExpiry(content.get("expired", declared.expired)),
        credentials=declared.credentials
        + tuple(
            Credential.of(table, f"{where}: [[credential]] {n}")
            for n, table in enumerate(content.get("credential", ()), 1)
        ),
        patterns=declared.patterns + tuple(user_patterns(content.get("secret", ()), where)),
    )


def _age(text: str, where: str) -> timedelta:
    try:
        return age_of(text)
    except BadSetting as error:
        raise BadRule(f"{where}: max_age: {error.message}", error.remedy) from error


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_table(value: object) -> bool:
    return isinstance(value, dict)
