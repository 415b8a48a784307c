"""Modules joined to two scripts do what they did apart."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tapes.api.joining import NotJoined, join
from tests.parts import absent

FILES = {
    "js/main.js": (
        "import { add as plus, ONE } from './parts/sums.js';\n"
        "import * as words from './parts/words.js';\n"
        "import twice from '../vendor/twice.js';\n"
        "import { Counter } from './parts/passed.js';\n"
        "const made = new Counter();\n"
        "made.up();\n"
        "console.log(plus(ONE, 1), words.said('a'), twice(4), made.n);\n"
        "import('./late.js').then(({ Screen }) => console.log(Screen()));\n"
    ),
    "js/parts/sums.js": "export const ONE = 1;\nexport function add(a, b) { return a + b; }\n",
    "js/parts/words.js": "export const said = (word) => `${word}: import { x } from './y.js'`;\n",
    "js/parts/passed.js": "export { Counting as Counter } from '../../vendor/counting.js';\n",
    "js/late.js": (
        "import { add } from './parts/sums.js';\nexport const Screen = () => add(20, 1);\n"
    ),
    "vendor/twice.js": "var n=2;export default function(x){return n*x}",
    "vendor/counting.js": "class C{constructor(){this.n=0}up(){this.n++}}export{C as Counting};\n",
}


@pytest.fixture(scope="module")
def node() -> str:
    found = shutil.which("node")
    if found is None:
        absent("no Node.js is installed")
    return found


def said(node: str, script: Path) -> list[str]:
    done = subprocess.run([node, str(script)], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_joined_script_says_what_its_modules_say(node: str, tmp_path: Path) -> None:
    for name, text in FILES.items():
        file = tmp_path / "apart" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (tmp_path / "apart" / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    joined = join(FILES, "js/main.js", lambda rest: "./rest.mjs")
    (tmp_path / "joined.mjs").write_text(joined.first, encoding="utf-8")
    (tmp_path / "rest.mjs").write_text(joined.rest, encoding="utf-8")
    apart = said(node, tmp_path / "apart" / "js" / "main.js")
    assert apart == ["2 a: import { x } from './y.js' 8 1", "21"]
    assert said(node, tmp_path / "joined.mjs") == apart


def test_a_module_is_there_once_and_after_those_it_needs() -> None:
    joined = join(FILES, "js/main.js", lambda rest: "./rest.mjs")
    both = joined.first + joined.rest
    assert both.count('"js/parts/sums.js"() {') == 1
    assert both.index('"js/parts/sums.js"() {') < both.index('"js/main.js"() {')


def test_what_is_imported_late_comes_apart_and_is_known_by_its_text() -> None:
    joined = join(FILES, "js/main.js", lambda rest: f"./rest.mjs?{len(rest)}")
    assert '"js/late.js"() {' not in joined.first
    assert '"js/late.js"() {' in joined.rest
    assert f'"./rest.mjs?{len(joined.rest)}"' in joined.first


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import './effects.js';\n", "cannot be joined"),
        ("export let now = 1;\n", "cannot be joined"),
        ("export const { a } = { a: 1 };\n", "cannot be joined"),
        ("import { h } from 'preact';\n", "only files of the page"),
        ("import { h } from './gone.js';\n", "not there"),
        ("import { h } from './main.js';\n", "in a ring"),
    ],
    ids=["effects", "let", "pattern", "package", "gone", "ring"],
)
def test_a_form_that_is_not_known_is_an_error_and_no_guess(text: str, why: str) -> None:
    with pytest.raises(NotJoined, match=why):
        join({"js/main.js": text}, "js/main.js", lambda rest: "./rest.mjs")
