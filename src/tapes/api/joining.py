"""The page's modules as two scripts: a browser asks twice instead of once for each of them.

    join(files, "js/first.js", at)      # {path: text} → the texts of two modules

The first has what is needed at once, the rest all that is imported late, wherever from; it is asked
for when the first of that is. Each module becomes a function that is called when it is first
wanted, and what it exports the value of that call; so the joined scripts do what the modules do,
and a screen that is wanted late costs little before. The modules are read by the forms of `import`
and `export` that the page's files have, one statement a line; any other form is an error, never a
guess.

Pure: knows modules, and nothing of what they do.
"""

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

_FROM = r"""\s*from\s*["'](?P<where>[^"']+)["'];?"""
_IMPORT = re.compile(
    rf"^import\s*(?:\{{(?P<some>[^}}]*)\}}|\*\s*as\s+(?P<all>\w+)|(?P<one>\w+)){_FROM}",
    re.MULTILINE,
)
_PASSED_ON = re.compile(rf"^export\s*\{{(?P<some>[^}}]*)\}}{_FROM}", re.MULTILINE)
_LATE = re.compile(r"""\bimport\(\s*["'](?P<where>[^"']+)["']\s*\)""")
_DECLARED = re.compile(
    r"^export\s+(?=(?:(?:async\s+)?function\*?|class|const)\s+(?P<name>\w+))", re.MULTILINE
)
_LISTED = re.compile(r"(?:^|(?<=[;}]))export\s*\{(?P<some>[^}]*)\};?\s*$")
_DEFAULT = re.compile(r"(?:^|(?<=[;}]))export default\b", re.MULTILINE)
_LEFT = re.compile(r"(?:^|(?<=[;}]))(?:import|export)\b.*", re.MULTILINE)

_FIRST = """const $made = Object.create(null);
const $use = (name) => ($made[name] ??= $modules[name]());
let $asked;
const $rest = () => ($asked ??= import(%(rest)s).then(
  (rest) => Object.assign($modules, rest.default($use, $later)),
  (failed) => { $asked = undefined; throw failed; },
));
const $later = async (name) => { if (!(name in $modules)) await $rest(); return $use(name); };
const $modules = {
%(modules)s};
$use(%(first)s);
"""
_REST = """export default ($use, $later) => ({
%s});
"""


@dataclass(frozen=True, slots=True)
class Joined:
    """The two scripts."""

    first: str
    rest: str


class NotJoined(ValueError):
    """A module has a form that cannot be joined."""


def join(files: Mapping[str, str], first: str, at: Callable[[str], str]) -> Joined:
    """What the module `first` needs at once, and the rest; `at` says where the rest will lie.

    Raises NotJoined.
    """
    done: set[str] = set()
    at_once = _together(files, [first], done)
    late = [path for each in done for path in _needs(files[each], each, _LATE)]
    rest = _REST % _together(files, sorted(late), done, late=True)
    facts = {"rest": json.dumps(at(rest)), "modules": at_once, "first": json.dumps(first)}
    return Joined(_FIRST % facts, rest)


def _together(
    files: Mapping[str, str], wanted: list[str], done: set[str], *, late: bool = False
) -> str:
    """The functions of the modules that are wanted and of those that they need, once each."""
    parts: list[str] = []
    under_way: list[str] = []

    def add(path: str) -> None:
        if path in done:
            return
        if path in under_way:
            raise NotJoined(f"modules need each other in a ring: {' → '.join([*under_way, path])}")
        if path not in files:
            raise NotJoined(f"{under_way[-1] if under_way else 'the page'} needs {path}: not there")
        under_way.append(path)
        for needed in _needs(files[path], path, _IMPORT, _PASSED_ON):
            add(needed)
        under_way.pop()
        done.add(path)
        parts.append(f"{json.dumps(path)}() {{\n{_as_body(files[path], path)}\n}},\n")
        if late:
            wanted.extend(_needs(files[path], path, _LATE))

    while wanted:
        add(wanted.pop())
    return "".join(parts)


def _needs(text: str, path: str, *forms: re.Pattern[str]) -> Iterator[str]:
    for form in forms:
        for found in form.finditer(text):
            yield _beside(path, found["where"])


def _beside(path: str, where: str) -> str:
    if not where.startswith("."):
        raise NotJoined(f"{path} imports {where!r}: only files of the page have a place here")
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), where))


def _as_body(text: str, path: str) -> str:
    """A module as the body of a function that returns what it exports."""
    given: dict[str, str] = {}  # the exported name → what it is called inside

    def used(where: str) -> str:
        return f"$use({json.dumps(_beside(path, where))})"

    def imported(found: re.Match[str]) -> str:
        if found["all"]:
            return f"const {found['all']} = {used(found['where'])};"
        if found["one"]:
            return f"const {found['one']} = {used(found['where'])}.default;"
        names = ", ".join(f"{a}: {b}" for a, b in _names(found["some"]))
        return f"const {{ {names} }} = {used(found['where'])};"

    def passed_on(found: re.Match[str]) -> str:
        given.update({b: f"{used(found['where'])}.{a}" for a, b in _names(found["some"])})
        return ""

    def declared(found: re.Match[str]) -> str:
        given[found["name"]] = found["name"]
        return ""

    def listed(found: re.Match[str]) -> str:
        given.update({b: a for a, b in _names(found["some"])})
        return ""

    def default(_: re.Match[str]) -> str:
        given["default"] = "by_default"
        return "const by_default ="

    body = _IMPORT.sub(imported, text)
    body = _PASSED_ON.sub(passed_on, body)
    body = _LATE.sub(lambda found: f"$later({json.dumps(_beside(path, found['where']))})", body)
    body = _DECLARED.sub(declared, body)
    body = _LISTED.sub(listed, body)
    body = _DEFAULT.sub(default, body)
    left = _LEFT.search(body)
    if left is not None:
        raise NotJoined(f"{path} has a form that cannot be joined: {left[0][:80]}")
    returned = ", ".join(f"{name}: {inside}" for name, inside in given.items())
    return f"{body.rstrip()}\nreturn {{ {returned} }};"


def _names(text: str) -> Iterator[tuple[str, str]]:
    """What stands between the braces: each name, and what it is called on the other side."""
    for each in filter(None, (part.strip() for part in text.split(","))):
        name, _, other = each.partition(" as ")
        yield name.strip(), (other or name).strip()
