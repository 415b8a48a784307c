"""What a miss comes from, as far as there is evidence; and what would make it match.

    diagnosis = diagnose(near, request, declared)
    diagnosis.lines()      for people
    diagnosis.as_dict()    for programs: JSON can say all of it

Rule 1: a cause is named only with what shows it: the two texts that stand at the same place.
Rule 2: a rule is proposed only after it was tried: with it, both requests have one key.
Rule 3: a changed wording has no rule. A changed prompt must not get the old answer.

Knows nothing of tapes or modes.
"""

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

from tapes.canonical import key_of_exchange_request
from tapes.errors import TapesError
from tapes.exchange import Request
from tapes.explain import Near, common_start
from tapes.jsontext import Json
from tapes.places import FIELD, WHOLE, Difference, pointer_of
from tapes.summary import request_json, said_in
from tapes.varying import Rule

_SHOWN_PLACES = 3
_SHOWN_TEXT = 400
_AROUND = 32
_MOST_WORDS = 1_500
# What differs in one text and is longer is shown by its beginning, and nothing moving looked for:
# a refusal must not hold up whoever waits for it, nor a server's other clients.
_MOST_TEXT = 100_000
_LONGEST_WORD = 100
_CONTEXT = 200


@dataclass(frozen=True, slots=True)
class Cause:
    """A likely cause, and what shows it."""

    kind: str
    place: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Place:
    """A place that differs; `diff` shows a text word by word, recorded [-so-] and asked {+so+}."""

    place: str
    asked: Json
    recorded: Json
    diff: str | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a request has no answer. `rules` is text for a tapes.toml that was tried, or None."""

    nearest: str
    said: str
    recorded_at: str | None
    places: tuple[Place, ...]
    causes: tuple[Cause, ...]
    rules: str | None
    looked_at: int | None
    headline: str

    def as_dict(self) -> dict[str, object]:
        """The diagnosis for people's programs."""
        told = asdict(self)
        del told["headline"]
        return {name: list(v) if isinstance(v, tuple) else v for name, v in told.items()}

    def lines(self) -> Iterator[str]:
        """The diagnosis for people."""
        yield self.headline
        for place in self.places[:_SHOWN_PLACES]:
            yield f"  {place.place}: {place.diff or _two_sides(place)}"
        yield from self.advice()

    def advice(self) -> Iterator[str]:
        """What it likely comes from, and what would make it match."""
        for cause in self.causes:
            yield f"likely: {cause.evidence}"
        if self.looked_at is not None:
            yield (
                f"(for want of time only {self.looked_at:,} recordings were looked at;"
                " tapes tape explain looks at all)"
            )
        if self.rules:
            yield "to let it vary, put this into tapes.toml (tried: it matches then):"
            yield from (f"  {line}" for line in self.rules.splitlines())


def diagnose(
    near: Near,
    request: Request | Json,
    rules: tuple[Rule, ...],
    headers: frozenset[str],
    canonicalizer: str,
) -> Diagnosis:
    """What the differences from the nearest recording come from."""
    found = [_Difference(difference) for difference in near.differences]
    causes = [*_in_all(request, near.exchange.request, found)]
    seen = {cause.place for cause in causes}
    for one in found:
        cause = one.cause()
        if cause is not None and not cause.place.startswith(tuple(seen)):
            causes.append(cause)
    wanted = [rule for one in found if (rule := one.rule()) is not None]
    # Every place has to be covered, or the rules would not do.
    tried = None
    if found and len(wanted) == len(found):
        wanted = list(dict.fromkeys(wanted))
        pair = (request, near.exchange.request)
        if _match((*rules, *wanted), pair, headers, canonicalizer):
            tried = "\n".join(map(_toml, wanted))
    return Diagnosis(
        nearest=near.exchange.key,
        said=said_in(request_json(near.exchange.request)),
        recorded_at=near.exchange.recorded_at,
        places=tuple(one.shown() for one in found),
        causes=tuple(causes),
        rules=tried,
        looked_at=near.looked_at,
        headline=near.line(),
    )


def _match(
    rules: tuple[Rule, ...],
    pair: tuple[Request | Json, Request | Json],
    headers: frozenset[str],
    canonicalizer: str,
) -> bool:
    """Whether both requests have one key under these rules."""
    try:
        keys = {key_of_exchange_request(canonicalizer, each, rules, headers) for each in pair}
    except (TapesError, RecursionError):
        return False
    return len(keys) == 1


def _toml(rule: Rule) -> str:
    lines = ["[[vary]]"]
    for name, value in rule.declaration().items():
        quoted = f"'{value}'" if name == "pattern" else json.dumps(value, ensure_ascii=False)
        lines.append(f"{name} = {quoted}")
    return "\n".join(lines)


# --- one place --------------------------------------------------------------------------------

_MONTH = (
    "(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    "|Sep(?:t(?:ember)?)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_DAY = "(?:(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day,? )?"
_CLOCK = r"\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?"
# What changes by itself: what it is, the word that stands for it, how it looks; the longer first.
_MOVING = (
    ("a date and time", "TIME", rf"\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?"),
    ("a date", "DATE", r"\d{4}-\d\d-\d\d"),
    ("a date", "DATE", rf"{_DAY}{_MONTH} \d{{1,2}},? \d{{4}}"),
    ("a date", "DATE", rf"{_DAY}\d{{1,2}}\.? {_MONTH} \d{{4}}"),
    ("a date", "DATE", r"\d{1,2}/\d{1,2}/\d{4}"),
    ("a month", "MONTH", rf"\b{_MONTH} \d{{4}}\b"),
    ("a time", "TIME", rf"{_CLOCK}(?: ?[AaPp][Mm])?"),
    ("a random id", "ID", r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"),
    ("a random id", "ID", r"[a-z]{2,12}[_-](?=[A-Za-z]*\d)[A-Za-z0-9]{6,}"),
    ("a time in seconds", "TIME", r"\b1[0-9]{9}(?:\d{3})?(?:\.\d+)?\b"),
    ("a random id", "ID", r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b"),
    ("a temporary path", "PATH", r"/(?:private/)?(?:tmp|var/folders)/[\w./+-]+"),
)
_DIGEST = re.compile(r"^multipart\[\d+\]\.sha256$")
_NAMES_OF_MOVING = re.compile(
    r"(?:^|[._\]])(?:\w*_)?(?:id|uuid|timestamp|time|date|created|created_at|nonce|trace)$", re.I
)


class _Difference:
    """One place, looked at for what it may come from."""

    def __init__(self, difference: Difference) -> None:
        self.place, self.asked, self.recorded = (
            difference.place, difference.asked, difference.recorded
        )  # fmt: skip

    @property
    def _are_texts(self) -> bool:
        return isinstance(self.asked, str) and isinstance(self.recorded, str)

    @property
    def _are_digests(self) -> bool:
        """Whether they stand for bytes that differ: no id, though they look like one."""
        return self.place == "sha256" or bool(_DIGEST.search(self.place))

    def shown(self) -> Place:
        diff = word_diff(self.recorded, self.asked) if self._are_texts else None
        return Place(self.place, self.asked, self.recorded, diff)

    def cause(self) -> Cause | None:
        if not self._are_texts:
            return None
        if self.place == "model":
            return Cause(
                "model", self.place, f"another model: recorded {self.recorded}, asked {self.asked}"
            )
        if " ".join(self.asked.split()) == " ".join(self.recorded.split()):
            return Cause("whitespace", self.place, f"{self.place} differs in white space alone")
        if _same_json(self.asked, self.recorded):
            return Cause(
                "order",
                self.place,
                f"{self.place} is the same JSON, written in another order or with other spaces",
            )
        moving = self._moving
        if moving is None:
            return None
        what, _, pattern = moving
        asked, recorded = self._around
        old, new = _first_other(pattern, recorded, asked)
        kind = {"a random id": "random id", "a temporary path": "path"}.get(what, "time")
        return Cause(kind, self.place, f"{self.place} holds {what}: recorded {old}, asked {new}")

    @property
    def moves(self) -> bool:
        """Whether only what changes by itself differs, such as a date."""
        return self._moving is not None

    @cached_property
    def _moving(self) -> tuple[str, str, str] | None:
        """The one form whose texts are all that differs."""
        if not self._are_texts or self._are_digests:
            return None
        asked, recorded = self._around
        if max(len(asked), len(recorded)) > _MOST_TEXT:
            return None
        for what, word, pattern in _MOVING:
            if re.sub(pattern, word, asked) == re.sub(pattern, word, recorded):
                return what, word, pattern
        return None

    @cached_property
    def _around(self) -> tuple[str, str]:
        """What differs of two texts, with some of what is the same before and behind it."""
        head, tail = _common_ends(self.recorded, self.asked)
        head, tail = max(0, head - _CONTEXT), max(0, tail - _CONTEXT)
        return self.asked[head : len(self.asked) - tail], self.recorded[
            head : len(self.recorded) - tail
        ]

    def rule(self) -> Rule | None:
        """The rule that would let this place vary, where it may be thought to."""
        moving = self._moving
        if self.place.startswith("query["):
            name = str(self.asked).partition("=")[0]
            same = str(self.recorded).partition("=")[0] == name
            return Rule.of({"query": name}) if same and moving else None
        if self.place.startswith(("headers.", "method")):
            return None
        if self.place in ("path", WHOLE) or self.place.startswith((FIELD, "multipart[")):
            return Rule.of({"pattern": moving[2], "as": moving[1]}) if moving else None
        at = re.sub(r"/\d+(?=/|$)", "/*", pointer_of(self.place))
        if moving is not None:
            whole = re.fullmatch(moving[2], self.asked) and re.fullmatch(moving[2], self.recorded)
            declared = {"at": at, "as": moving[1]}
            return Rule.of(declared if whole else {**declared, "pattern": moving[2]})
        both = (self.asked, self.recorded)
        is_number = all(isinstance(v, int | float) and not isinstance(v, bool) for v in both)
        if _NAMES_OF_MOVING.search(self.place) and (self._are_texts or is_number):
            return Rule.of({"at": at})
        return None


def _first_other(pattern: str, recorded: str, asked: str) -> tuple[str, str]:
    pairs = zip(re.finditer(pattern, recorded), re.finditer(pattern, asked), strict=False)
    return next(((old[0], new[0]) for old, new in pairs if old[0] != new[0]), ("…", "…"))


def _same_json(one: str, other: str) -> bool:
    if one[:1] not in "{[" or other[:1] not in "{[" or not one or not other:
        return False
    try:
        return bool(json.loads(one) == json.loads(other))
    except (ValueError, RecursionError):
        return False


# --- the whole request ------------------------------------------------------------------------


def _in_all(
    request: Request | Json, recorded: Request | Json, found: Sequence[_Difference]
) -> Iterator[Cause]:
    """Causes that several places show together: the tools, the order, the length of a talk."""
    asked, before = request_json(request), request_json(recorded)
    if not isinstance(asked, dict) or not isinstance(before, dict):
        return
    below: dict[str, list[_Difference]] = {}
    for one in found:
        below.setdefault(re.split(r"[.\[]", one.place)[0], []).append(one)
    for name, differences in below.items():
        new, old = asked.get(name), before.get(name)
        if not isinstance(new, list) or not isinstance(old, list) or new == old:
            continue
        if sorted(map(_dumped, new)) == sorted(map(_dumped, old)):
            yield Cause("order", name, f"{name} has the same {len(new)} parts in another order")
        elif name in ("tools", "functions"):
            if not all(one.moves for one in differences):
                yield _of_tools(name, new, old)
        elif len(new) != len(old) and new[: len(old)] == old[: len(new)]:
            more, what = len(new) - len(old), "more" if len(new) > len(old) else "fewer"
            yield Cause("length", name, f"{name} has {abs(more)} {what} than the recording")


def _of_tools(place: str, new: list[Json], old: list[Json]) -> Cause:
    now, then = ({_tool_name(tool): tool for tool in tools} for tools in (new, old))
    parts = [
        ("added", [n for n in now if n not in then]),
        ("gone", [n for n in then if n not in now]),
        ("changed", [n for n in now if n in then and now[n] != then[n]]),
    ]
    said = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts if names)
    return Cause("tools", place, f"another list of tools ({said or 'one of them twice'})")


def _tool_name(tool: Json) -> str:
    if not isinstance(tool, dict):
        return _dumped(tool)[:40]
    inner = tool.get("function")
    named = inner if isinstance(inner, dict) else tool
    return str(named.get("name") or tool.get("type") or "a tool without a name")


def _dumped(value: Json) -> str:
    return json.dumps(value, sort_keys=True)


# --- texts ------------------------------------------------------------------------------------

# Dates, times, paths and ids are one word.
_TOKENS = re.compile(r"[\w:/-]+|\s+|[^\w\s]")
_OF_A_WORD = re.compile(r"[\w:/-]")


def word_diff(recorded: str, asked: str) -> str:
    """How one text became another, word by word: `of [-Norway-]{+Sweden+}?`."""
    head, tail = _common_ends(recorded, asked)
    least = max(0, head - _LONGEST_WORD), max(0, tail - _LONGEST_WORD)
    while head > least[0] and _OF_A_WORD.match(recorded[head - 1]):
        head -= 1
    while tail > least[1] and _OF_A_WORD.match(recorded[-tail]):
        tail -= 1
    before, behind = recorded[:head], recorded[len(recorded) - tail :]
    was, now = recorded[head : len(recorded) - tail], asked[head : len(asked) - tail]
    is_long = max(len(was), len(now)) > _MOST_TEXT
    old, new = ([], []) if is_long else (_TOKENS.findall(was), _TOKENS.findall(now))
    parts = [before if len(before) <= _AROUND else f"…{before[-_AROUND:]}"]
    if is_long or max(len(old), len(new)) > _MOST_WORDS:
        parts += _changed(was, now)
    else:
        parts += _diffed(old, new)
    parts.append(behind if len(behind) <= _AROUND else f"{behind[:_AROUND]}…")
    text = "".join(parts).replace("\n", "\\n")
    return text if len(text) <= 2 * _SHOWN_TEXT else f"{text[: 2 * _SHOWN_TEXT]}…"


def _common_ends(one: str, other: str) -> tuple[int, int]:
    """How many characters two texts begin with alike, and how many of the rest end alike."""
    head = common_start(one, other)
    return head, common_start(one[: head - len(one) - 1 : -1], other[: head - len(other) - 1 : -1])


def _beginning(text: str) -> str:
    return text if len(text) < _SHOWN_TEXT else f"{text[: _SHOWN_TEXT - 20]}…"


def _diffed(old: list[str], new: list[str]) -> Iterator[str]:
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        same = "".join(old[a:b])
        if kind != "equal":
            yield from _changed(same, "".join(new[c:d]))
        elif len(same) <= 3 * _AROUND:
            yield same
        else:
            yield f"{same[:_AROUND]} … {same[-_AROUND:]}"


def _changed(old: str, new: str) -> Iterator[str]:
    old, new = _beginning(old), _beginning(new)  # so that both sides are seen
    if old:
        yield f"[-{old}-]"
    if new:
        yield f"{{+{new}+}}"


def _two_sides(place: Place) -> str:
    return f"recorded {_short(place.recorded)}, asked {_short(place.asked)}"


def _short(value: Json) -> str:
    if value is None:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_TEXT // 4 else f"{text[: _SHOWN_TEXT // 4]}…"
