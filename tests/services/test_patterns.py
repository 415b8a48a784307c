import pytest

from tapes.services.patterns import MAX_LENGTH, Patterns, program_of


@pytest.mark.parametrize("pattern", [r"\p{L}+", "(?<n>a)", "^a$", r"[[:alpha:]]", r"\z", "a{1000}"])
def test_patterns_of_re2_compile(pattern: str) -> None:
    assert Patterns().fault(pattern) is None


@pytest.mark.parametrize(
    "pattern", ["[", "(?=a)", "(?!a)", r"(a)\1", r"\u0041", r"\cA", "a{2000}", "(a{500}){3}"]
)
def test_what_re2_lacks_is_refused(pattern: str) -> None:
    assert Patterns().fault(pattern) is not None


def test_a_pattern_that_is_run_here_must_be_small_as_well() -> None:
    large = r"[\p{L}\p{N} ]{0,1000}"
    assert Patterns().fault(large) is None
    assert "too large" in str(Patterns().fault(large, runs=True))


@pytest.mark.parametrize("pattern", ["a" * (MAX_LENGTH + 1), r"\pL" * 5_000])
def test_patterns_that_would_take_the_compiler_long_are_refused_before_it(pattern: str) -> None:
    assert "too long" in str(Patterns().fault(pattern))


def test_the_patterns_of_a_document_share_one_allowance() -> None:
    patterns = Patterns(work=1_000)
    assert patterns.fault("a") is None
    assert any("too long to compile" in str(patterns.fault(f"^[a-z]{{1,{n}}}$")) for n in range(99))
    assert patterns.fault("a") is None


def test_a_match_is_found_anywhere_and_never_backtracks() -> None:
    assert program_of("b").is_found_in("abc")
    assert not program_of("^b").is_found_in("abc")
    assert not program_of("^a$").is_found_in("a\n")
    assert not program_of("(a+)+$").is_found_in("a" * 100_000 + "b")
