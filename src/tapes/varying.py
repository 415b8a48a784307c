"""What users declare to vary between runs: by place in the JSON, by pattern in text, by header.

A rule takes something out of a request's identity, and nothing else ever does. Rules live in a
`tapes.toml` that reviewers see, and each row of a tape names the rules that changed its key.

    [[vary]]
    at = "/messages/*/content"          # a JSON pointer; * is any one name or number, ** any depth
    pattern = "\\d{4}-\\d\\d-\\d\\d"    # just this text; without it the whole value
    as = "DATE"                         # what stands in its place; VARIES if not said

    [[vary]]
    header = "anthropic-beta"           # a header that usually counts

    [[vary]]
    query = "session"                   # a query parameter

Knows nothing of files or keys.  Pure.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tapes.errors import BadRule
from tapes.jsontext import Json

DEFAULT_WORD = "VARIES"
_KNOWN = {"at", "pattern", "as", "header", "query", "about"}


@dataclass(frozen=True, slots=True)
class Rule:
    """One declaration. Exactly one of `at` or `pattern` (or both), `header`, `query` is set."""

    at: str | None = None
    pattern: str | None = None
    word: str = DEFAULT_WORD
    header: str | None = None
    query: str | None = None
    _regex: re.Pattern[str] | None = field(default=None, compare=False, repr=False)
    _path: tuple[str, ...] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, declared: Mapping[str, object], where: str = "the rules") -> "Rule":
        """A rule from its declaration. Raises BadRule naming `where`."""
        unknown = set(declared) - _KNOWN
        if unknown:
            raise BadRule(f"{where}: unknown {', '.join(sorted(unknown))}", _KNOWN_HINT)
        texts = {name: value for name, value in declared.items() if isinstance(value, str)}
        if len(texts) != len(declared):
            raise BadRule(f"{where}: every value of a vary rule is a text", _KNOWN_HINT)
        kinds = [name for name in ("header", "query") if name in texts]
        in_body = "at" in texts or "pattern" in texts
        if len(kinds) + in_body != 1:
            raise BadRule(
                f"{where}: a rule says one of at (with or without pattern), pattern, header, query",
                _KNOWN_HINT,
            )
        at = texts.get("at")
        if at is not None and not at.startswith("/"):
            raise BadRule(f"{where}: at = {at!r} does not begin with /", _KNOWN_HINT)
        if at is not None and at.endswith("/**") and "pattern" not in texts:
            raise BadRule(f"{where}: at = {at!r} would take out everything", _KNOWN_HINT)
        return cls(
            at=at,
            pattern=texts.get("pattern"),
            word=texts.get("as", DEFAULT_WORD),
            header=texts["header"].lower() if "header" in texts else None,
            query=texts.get("query"),
            _regex=_compiled(texts["pattern"], where) if "pattern" in texts else None,
            _path=None if at is None else _steps(at),
        )

    def declaration(self) -> dict[str, str]:
        """The rule as it is written in a file."""
        parts = {
            "at": self.at,
            "pattern": self.pattern,
            "header": self.header,
            "query": self.query,
            "as": None if self.word == DEFAULT_WORD else self.word,
        }
        return {name: value for name, value in parts.items() if value is not None}

    def in_json(self, value: Json) -> Json:
        """The value with what varies replaced; the same object where nothing does."""
        if self.header or self.query:
            return value
        return _rewrite(value, self._path or (), self._replace)

    def in_text(self, text: str) -> str:
        """The text with what varies replaced, for bodies that are not JSON."""
        if self._regex is None or self._path is not None:
            return text
        return self._regex.sub(lambda _: self.word, text)

    def _replace(self, value: Json) -> Json:
        """What stands for a value that a path leads to."""
        if self._regex is None:
            return self.word
        if isinstance(value, str):
            return self._regex.sub(lambda _: self.word, value)
        return _each(value, _any, self._replace)


_KNOWN_HINT = "a rule looks like: [[vary]] at = \"/messages/*/content\" pattern = '[0-9:]{8}'"


def _compiled(pattern: str, where: str) -> re.Pattern[str]:
    if not pattern:
        raise BadRule(f"{where}: pattern is empty", "leave it out for the whole value")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise BadRule(
            f"{where}: pattern {pattern!r}: {error}",
            "write patterns in single quotes, so that TOML keeps their backslashes",
        ) from error


def _steps(pointer: str) -> tuple[str, ...]:
    """The steps of a JSON pointer (RFC 6901 escapes), * and ** kept as they are."""
    return tuple(
        step if step in ("*", "**") else step.replace("~1", "/").replace("~0", "~")
        for step in pointer[1:].split("/")
    )


def _rewrite(value: Json, path: tuple[str, ...], replace: Callable[[Json], Json]) -> Json:
    if not path:
        return replace(value)
    step, rest = path[0], path[1:]
    if step == "**" and not rest:
        return replace(value)  # which goes to any depth itself
    if step == "**":
        here = _rewrite(value, rest, replace)
        return _each(here, _any, lambda child: _rewrite(child, path, replace))
    wanted = _any if step == "*" else step.__eq__
    return _each(value, wanted, lambda child: _rewrite(child, rest, replace))


def _any(_name: str) -> bool:
    return True


def _each(value: Json, wanted: Callable[[str], bool], change: Callable[[Json], Json]) -> Json:
    """The container with the wanted children changed; itself where no child changed."""
    if isinstance(value, dict):
        changed = {k: change(v) if wanted(k) else v for k, v in value.items()}
        return changed if any(changed[k] is not v for k, v in value.items()) else value
    if isinstance(value, list):
        items = [change(v) if wanted(str(n)) else v for n, v in enumerate(value)]
        return (
            items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        )
    return value


def vary_json(value: Json, rules: Iterable[Rule]) -> tuple[Json, tuple[Rule, ...]]:
    """The value with all rules applied in order, and the rules that changed something."""
    used = []
    for rule in rules:
        varied = rule.in_json(value)
        if varied is not value and varied != value:
            used.append(rule)
            value = varied
    return value, tuple(used)


def vary_text(text: str, rules: Iterable[Rule]) -> tuple[str, tuple[Rule, ...]]:
    """The text with all pattern rules applied in order, and the rules that changed something."""
    used = []
    for rule in rules:
        varied = rule.in_text(text)
        if varied != text:
            used.append(rule)
            text = varied
    return text, tuple(used)
