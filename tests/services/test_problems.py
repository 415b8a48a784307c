import pickle

from tapes.errors import BadManifest, Problem
from tapes.services.problems import PER_STAGE, Findings, Stage, path_of


def test_problems_come_in_the_order_of_the_stages_and_then_of_the_places() -> None:
    findings = Findings()
    findings.add(Stage.LINT, "c", (None, "a"), "late")
    findings.add(Stage.SHAPE, "c", (None, "b"), "second")
    findings.add(Stage.SHAPE, "c", ((None, "a"), 0), "first")
    findings.add(Stage.SHAPE, "c", ((None, "a"), 0), "first")
    problems = findings.problems(lambda _: {("b",): 7})
    assert [(p.stage, p.field, p.line) for p in problems] == [
        ("shape", "#/a/0", None),
        ("shape", "#/b", 7),
        ("lint", "#/a", None),
    ]


def test_what_is_too_much_to_name_is_counted() -> None:
    findings = Findings()
    for n in range(50_000):
        findings.add(Stage.LINT, "c", (None, n), "m")
    problems = findings.problems(lambda _: {})
    assert len(problems) == PER_STAGE + 1
    assert problems[-1].message == "and 49900 more problems"


def test_the_text_of_a_hostile_document_is_cut() -> None:
    findings = Findings()
    findings.add(Stage.LINT, "c", (None, "x" * 10_000), "y" * 10_000)
    (problem,) = findings.problems(lambda _: {})
    assert len(str(problem)) < 1_000


def test_findings_know_whether_a_stage_found_something() -> None:
    findings = Findings()
    assert not findings.any()
    findings.add(Stage.LINT, "c", None, "m")
    assert findings.any()
    assert findings.any(Stage.SHAPE, Stage.LINT)
    assert not findings.any(Stage.SHAPE)


def test_a_place_is_the_chain_of_its_keys() -> None:
    assert path_of((((None, "a"), 1), "b")) == ("a", 1, "b")
    assert path_of(None) == ()


def test_an_error_names_every_problem_and_what_to_type() -> None:
    problems = (Problem("s", "c", "a.b", "is wrong", 3), Problem("s", "c", "", "and more"))
    error = BadManifest("2 problems", "see the docs", problems)
    assert str(error) == "2 problems\n  line 3: a.b: is wrong\n  and more\nsee the docs"
    assert error.stage == "s"
    assert pickle.loads(pickle.dumps(error)).problems == problems
