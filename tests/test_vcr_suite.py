"""A suite that was written for the `vcr` marker runs unchanged, on the cassettes that it has."""

import shutil
from pathlib import Path

import pytest

from tests.servers import closed_port
from tests.suites import RECORDING, Suite

pytestmark = pytest.mark.timeout(400)  # each test runs several suites of its own

SUITE = Path(__file__).parent / "data" / "vcr_suite" / "tests"
TESTS = 9
NEEDS = ("-p", "anyio")


@pytest.fixture
def vcr_suite(suite: Suite) -> Suite:
    shutil.copytree(SUITE, suite.path / "tests")
    return suite


@pytest.mark.row("F21")
def test_it_replays_from_its_cassettes_and_writes_nothing(vcr_suite: Suite) -> None:
    files = sorted(path for path in vcr_suite.path.rglob("*.*") if path.is_file())
    result = vcr_suite.run(
        *NEEDS, "-p", "no:cacheprovider", "--record-mode=none", "--block-network"
    )
    result.assert_outcomes(passed=TESTS)
    result.stdout.fnmatch_lines(["9 tapes (replay): 9 served (*), 0 live, 0 refused"])
    left = sorted(path for path in vcr_suite.path.rglob("*.*") if path.is_file())
    assert [path for path in left if path.suffix != ".pyc"] == files


@pytest.mark.row("N01", "N15")
def test_a_changed_prompt_fails_although_vcrpy_was_told_less(vcr_suite: Suite) -> None:
    for name, old, new in (
        ("test_agent.py", "Be brief.", "Be brief and kind."),
        ("conftest.py", '"query", "body"]', '"query"]'),
    ):
        file = vcr_suite.path / "tests" / name
        file.write_text(file.read_text().replace(old, new))
    result = vcr_suite.run(*NEEDS, "-k", "test_chat")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "cassette miss: * on tests/cassettes/test_agent/test_chat.yaml",
            "*messages[[]0[]].content*",
            "match_on leaves out the body: here the whole request counts*",
        ]
    )


@pytest.mark.long
def test_the_first_recording_run_puts_the_cassettes_onto_tapes(vcr_suite: Suite) -> None:
    modes = ("--record-mode=new_episodes",)
    address = {"MODEL_URL": f"http://127.0.0.1:{closed_port()}"}
    vcr_suite.run(*NEEDS, *modes, **RECORDING, **address).assert_outcomes(passed=TESTS)
    assert "tests/cassettes/test_agent/test_chat.jsonl" in vcr_suite.tapes()
    shutil.rmtree(vcr_suite.path / "elsewhere", ignore_errors=True)
    for file in vcr_suite.path.rglob("*.yaml"):
        file.unlink()
    vcr_suite.run(*NEEDS).assert_outcomes(passed=TESTS)


@pytest.mark.long
def test_a_callback_that_would_scrub_is_refused_while_recording_alone(vcr_suite: Suite) -> None:
    file = vcr_suite.path / "tests" / "conftest.py"
    option = '"before_record_response": lambda response: response, "filter_headers"'
    file.write_text(file.read_text().replace('"filter_headers"', option))
    vcr_suite.run(*NEEDS, "-k", "test_chat").assert_outcomes(passed=1)
    result = vcr_suite.run(*NEEDS, "-k", "test_chat", "--record-mode=new_episodes", **RECORDING)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*vcr_config: before_record_response is a function*"])


def test_a_matcher_of_ones_own_is_an_error_that_names_what_to_write(vcr_suite: Suite) -> None:
    file = vcr_suite.path / "tests" / "conftest.py"
    file.write_text(file.read_text().replace('"path"', '"my_matcher"'))
    result = vcr_suite.run(*NEEDS, "-k", "test_chat")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*match_on names my_matcher*", "*tapes.toml*"])


@pytest.mark.long
def test_with_pytest_recording_installed_its_words_stay_its_own(vcr_suite: Suite) -> None:
    vcr_suite.write(
        "tests/test_ours.py",
        "import pytest\n@pytest.mark.tape\ndef test_a(tape): assert tape.mode == 'replay'\n",
    )
    for arguments in ([], ["--block-network"]):
        result = vcr_suite.run_with_others(*arguments, "--record-mode=none")
        result.assert_outcomes(passed=TESTS + 1)
        result.stdout.fnmatch_lines(
            ["tapes: the vcr marker and its options are pytest-recording's; *-p no:recording*"]
        )
    result = vcr_suite.run_with_others("-p", "no:recording")
    result.assert_outcomes(passed=TESTS + 1)
    result.stdout.fnmatch_lines(["10 tapes (replay): 9 served*"])
