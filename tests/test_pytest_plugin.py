"""The pytest plugin, in suites that a pytest of their own runs against a real server."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.servers import Server, answer, serving
from tests.suites import RECORDING, Suite

pytestmark = pytest.mark.timeout(400)  # each test runs several suites of its own

ASK = """
import os, pytest, httpx

def ask(text, client=httpx):
    return client.post(os.environ["SERVER"] + "/v1/chat", json={"prompt": text}).json()
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving(answer(b'{"said":"hello"}')) as served:
        monkeypatch.setenv("SERVER", served.url)
        yield served


def test_a_marked_test_is_recorded_once_and_replayed_without_a_server(
    suite: Suite, server: Server
) -> None:
    suite.write("test_it.py", ASK + "@pytest.mark.tape\ndef test_a(): assert ask('x')['said']")
    suite.run("--tape-mode=record", **RECORDING).assert_outcomes(passed=1)
    assert suite.tapes() == ["tapes/test_it/test_a.jsonl"]
    assert len(server.requests) == 1
    result = suite.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*= tapes =*", "1 tape (replay): 1 served (0 reused), 0 live, 0 refused", "not spent: 16*"]
    )
    assert len(server.requests) == 1


def test_the_fixture_is_the_open_cassette_with_and_without_the_marker(
    suite: Suite, server: Server
) -> None:
    suite.write(
        "test_it.py",
        ASK
        + """
@pytest.mark.tape
def test_a(tape): ask("x"); assert tape.report.as_dict()["live"] == 1

def test_b(tape): ask("x"); assert tape.report.as_dict()["live"] == 1
""",
    )
    suite.run("--tape-mode=record", **RECORDING).assert_outcomes(passed=2)
    assert suite.tapes() == ["tapes/test_it/test_a.jsonl", "tapes/test_it/test_b.jsonl"]


@pytest.mark.row("N15")
def test_a_miss_fails_the_test_with_its_diagnosis_and_the_line_that_asked(
    suite: Suite, server: Server
) -> None:
    test = "@pytest.mark.tape\ndef test_a():\n    ask({!r})"
    suite.write("test_it.py", ASK + test.format("a hot day"))
    suite.run("--tape-mode=record", **RECORDING).assert_outcomes(passed=1)
    suite.write("test_it.py", ASK + test.format("a cold day"))
    result = suite.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "cassette miss: * on tapes/test_it/test_a.jsonl",
            "nearest: *, differs at prompt*",
            "*DEMO_LIVE=1 pytest --tape-mode=record test_it.py::test_a*",
            "  test_it.py:*: ask('a cold day')",
        ]
    )
    assert len(server.requests) == 1


@pytest.mark.row("N15")
@pytest.mark.parametrize("where", ["test", "fixture"])
def test_a_swallowed_miss_fails_all_the_same(suite: Suite, server: Server, where: str) -> None:
    swallow = "    try: ask('x')\n    except BaseException: pass\n"
    suite.write(
        "test_it.py",
        ASK
        + (
            f"@pytest.mark.tape\ndef test_a():\n{swallow}"
            if where == "test"
            else f"@pytest.fixture\ndef it():\n{swallow}\n@pytest.mark.tape\ndef test_a(it): pass\n"
        ),
    )
    result = suite.run()
    result.assert_outcomes(**{"failed" if where == "test" else "errors": 1})
    result.stdout.fnmatch_lines(["cassette miss: *", "*swallowed this refusal*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.row("N15", "N04")
def test_a_miss_in_a_thread_fails_the_test_that_started_it(suite: Suite, server: Server) -> None:
    suite.write(
        "test_it.py",
        ASK
        + """
import threading

@pytest.mark.tape
def test_a():
    thread = threading.Thread(target=ask, args=("x",))
    thread.start()
    thread.join()

def test_b(): pass
""",
    )
    result = suite.run()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["cassette miss: *test_a.jsonl"])


@pytest.mark.row("N15", "N04")
def test_a_miss_in_a_thread_does_not_break_into_pytest_itself(suite: Suite, server: Server) -> None:
    """It falls while pytest reports what the test did, and is its teardown's."""
    suite.write(
        "conftest.py",
        """
import threading

goes_on, threads = threading.Event(), []

def pytest_runtest_logreport(report):
    if report.when == "call":
        goes_on.set()
        for thread in threads:
            thread.join()
""",
    )
    suite.write(
        "test_it.py",
        ASK
        + """
import threading
from conftest import goes_on, threads

def late(): goes_on.wait(60); ask("x")

@pytest.mark.tape
def test_a():
    threads.append(threading.Thread(target=late))
    threads[0].start()

def test_b(): pass
""",
    )
    result = suite.run()
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_a*", "cassette miss: *test_a.jsonl"])


@pytest.mark.row("N15", "N04")
def test_misses_in_many_threads_at_once_fail_their_test_alone(suite: Suite, server: Server) -> None:
    suite.write(
        "test_it.py",
        ASK
        + """
from concurrent.futures import ThreadPoolExecutor

@pytest.mark.tape
@pytest.mark.parametrize("n", range(10))
def test_a(n):
    with ThreadPoolExecutor(4) as pool:
        for text in "abcd":
            pool.submit(ask, text)

def test_b(): pass
""",
    )
    run = suite.run("-rfE")
    assert run.parseoutcomes()["passed"] == 1
    # A thread that outlives its test may be refused while the next one begins, which is an error.
    said = "\n".join(run.outlines)
    wrong = set(re.findall(r"^(?:FAILED|ERROR) test_it\.py::test_a\[(\d)\]", said, re.MULTILINE))
    assert len(wrong) == 10
    assert "INTERNALERROR" not in said
    assert "AssertionError" not in said


def test_another_failure_keeps_its_own_report_and_shows_the_refusal_beside(
    suite: Suite, server: Server
) -> None:
    suite.write(
        "test_it.py",
        ASK
        + """
@pytest.mark.tape
def test_a():
    try: ask("x")
    except BaseException: answer = None
    assert answer == "yes"
""",
    )
    result = suite.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*assert None == 'yes'*", "*refused by the tape*", "cassette miss*"]
    )


def test_a_test_about_refusals_may_expect_them(suite: Suite, server: Server) -> None:
    suite.write(
        "test_it.py",
        ASK
        + """
import tapes

@pytest.mark.tape(refused="allow")
def test_a():
    with pytest.raises(tapes.CassetteMiss): ask("x")

@pytest.mark.xfail(strict=True)
@pytest.mark.tape
def test_b(): ask("x")
""",
    )
    suite.run().assert_outcomes(passed=1, xfailed=1)


@pytest.mark.long
def test_recording_needs_the_latch_whatever_the_mode_says(suite: Suite, server: Server) -> None:
    suite.write("test_it.py", ASK + "@pytest.mark.tape(mode='live')\ndef test_a(): ask('x')")
    suite.write("pytest.ini", "[pytest]\ntape_mode = record")
    for arguments in ([], ["--record-mode=all"], ["--record-mode=rewrite"], ["--tape-mode=record"]):
        arguments += [] if arguments else ["--tape-mode=record"]
        result = suite.run(*arguments, CASSETTE_LIVE_BUDGET="0")
        result.assert_outcomes(failed=1)
    assert not server.requests


def test_who_runs_the_tests_has_the_last_word(suite: Suite, server: Server) -> None:
    suite.write(
        "test_it.py",
        """
import pytest

@pytest.fixture
def tape_config(): return {"mode": "once", "pace": 0.5}

@pytest.mark.tape(mode="live")
def test_a(tape): print("is", tape.mode)
""",
    )
    for arguments, settings, expected in (
        (["--tape-mode=replay"], {"CASSETTE_MODE": "record"}, "replay"),
        ([], {"CASSETTE_MODE": "record"}, "record"),
        ([], {}, "live"),
    ):
        suite.run("-s", *arguments, **settings).stdout.fnmatch_lines([f"*is {expected}*"])


def test_names_stay_distinct(suite: Suite, server: Server) -> None:
    test = """
@pytest.mark.tape
@pytest.mark.parametrize("what", ["a/b", "a:b", "ä", "x" * 200, "x" * 200 + "y", "plain"])
def test_it(what): ask(what)

class TestOne:
    pytestmark = pytest.mark.tape
    def test_it(self): ask("one")
    class TestTwo:
        def test_it(self): ask("two")
"""
    suite.write("a/test_it.py", ASK + test)
    suite.write("b/test_it.py", ASK + test)
    suite.run("--tape-mode=record", "--import-mode=importlib", **RECORDING).assert_outcomes(
        passed=16
    )
    assert len(suite.tapes()) == 16
    assert {
        "a/tapes/test_it/test_it[plain].jsonl",
        "b/tapes/test_it/TestOne.TestTwo.test_it.jsonl",
    } < set(suite.tapes())
    assert max(len(name.rpartition("/")[2]) for name in suite.tapes()) < 140


def test_a_named_tape_is_shared(suite: Suite, server: Server) -> None:
    for name in ("one", "two"):
        suite.write(
            f"test_{name}.py", ASK + "@pytest.mark.tape('shared')\ndef test_a(): ask('x')\n"
        )
    result = suite.run("--tape-mode=record", **RECORDING)
    result.assert_outcomes(passed=2)
    assert suite.tapes() == ["tapes/shared.jsonl"]
    assert len(server.requests) == 1


@pytest.mark.long
@pytest.mark.row("N05", "N04")
def test_workers_share_a_tape_and_the_controller_reports_for_all(
    suite: Suite, server: Server
) -> None:
    test = """
@pytest.mark.tape("shared")
@pytest.mark.parametrize("n", range({}))
def test_a(n): ask(str(n))
"""
    suite.write("test_it.py", ASK + test.format(12))
    workers = ["-p", "xdist.plugin", "-n", "3"]
    suite.run(*workers, "--tape-mode=record", **RECORDING).assert_outcomes(passed=12)
    assert len(set((suite.path / "tapes/shared.jsonl").read_text().splitlines())) == 12
    suite.write("test_it.py", ASK + test.format(11))
    result = suite.run(*workers)
    result.assert_outcomes(passed=11)
    result.stdout.fnmatch_lines(
        ["1 tape (replay): 11 served*", "nobody asked for: * on tapes/shared.jsonl"]
    )
    assert len(server.requests) == 12


@pytest.mark.long
@pytest.mark.row("N18")
def test_what_a_full_run_did_not_use_is_said_and_can_fail_or_go(
    suite: Suite, server: Server
) -> None:
    test = "@pytest.mark.tape\ndef test_a():\n    for n in {}: ask(n)\n"
    other = "\n@pytest.mark.tape\ndef test_b(): ask('b')\n"
    suite.write("test_it.py", ASK + test.format(["1", "2", "3"]) + other)
    suite.run("--tape-mode=record", **RECORDING).assert_outcomes(passed=2)
    suite.write("test_it.py", ASK + test.format(["1", "2"]) + "\ndef test_c(): pass\n")
    said = [
        "nobody asked for: * on tapes/test_it/test_a.jsonl",
        "no test uses: tapes/test_it/test_b.jsonl",
        "  to take these tapes away: rm -r tapes/test_it/test_b.jsonl",
    ]
    result = suite.run()
    result.stdout.fnmatch_lines(said)
    assert result.ret == 0
    for partial in (["-k", "test_a"], ["test_it.py"], ["test_it.py::test_a"], ["--lf"]):
        assert "nobody asked" not in suite.run(*partial).stdout.str()
    failed = suite.run("--tape-unused=fail")
    assert failed.ret == pytest.ExitCode.TESTS_FAILED
    failed.stdout.fnmatch_lines(["the run fails for that: tape_unused is fail"])
    suite.run("--tape-unused=prune").stdout.fnmatch_lines(["taken away, as nobody asked for it: *"])
    assert len((suite.path / "tapes/test_it/test_a.jsonl").read_bytes().splitlines()) == 2
    assert "nobody asked" not in suite.run().stdout.str()


def test_a_failed_or_skipped_test_leaves_no_guess_about_what_is_unused(
    suite: Suite, server: Server
) -> None:
    test = "@pytest.mark.tape\ndef test_a(): ask('x'); ask('y')\n\n"
    test += "@pytest.mark.tape\ndef test_b(): ask('b')\n"
    suite.write("test_it.py", ASK + test)
    suite.run("--tape-mode=record", **RECORDING).assert_outcomes(passed=2)
    suite.write("test_it.py", ASK + test.replace("ask('y')", "assert 0"))
    assert "nobody asked" not in suite.run().stdout.str()
    suite.write("test_it.py", ASK + test.replace("\n\n@", "\n\n@pytest.mark.skip\n@"))
    assert "no test uses" not in suite.run().stdout.str()


PARTS = {
    "a skip within the test": "    pytest.skip('x')\n    ask('b')",
    "a mark, and the fixture": "",
    "an expected failure": "    assert 0\n    ask('b')",
    "an expected failure that is not run": "    ask('b')",
}
MARKS = {
    "a mark, and the fixture": "@pytest.mark.skip\ndef test_b(tape): ask('b')",
    "an expected failure": "@pytest.mark.xfail\n",
    "an expected failure that is not run": "@pytest.mark.xfail(run=False)\n",
}


@pytest.mark.row("N18")
@pytest.mark.parametrize("how", PARTS)
def test_a_test_that_did_not_run_whole_has_its_tape_all_the_same(
    suite: Suite, server: Server, how: str
) -> None:
    first = "@pytest.mark.tape\ndef test_a(): ask('a')\n\n"
    test = "@pytest.mark.tape\ndef test_b():\n"
    suite.write("test_it.py", f"{ASK}{first}{test}    ask('b')")
    suite.run("--tape-mode=record", **RECORDING).assert_outcomes(passed=2)
    mark, body = MARKS.get(how, ""), PARTS[how]
    suite.write("test_it.py", ASK + first + mark + (test + body if body else ""))
    result = suite.run("--tape-unused=fail")
    assert result.ret == 0
    result.stdout.no_fnmatch_line("no*body asked for: *")
    result.stdout.no_fnmatch_line("no test uses: *")


@pytest.mark.row("N18")
def test_a_skipped_test_for_vcr_keeps_the_cassette_that_it_names(
    suite: Suite, server: Server
) -> None:
    marks = "@pytest.mark.vcr\n@pytest.mark.default_cassette('mine.yaml')\n"
    other = "@pytest.mark.tape\ndef test_b(): ask('b')\n\n"
    suite.write("test_it.py", f"{ASK}{other}{marks}def test_a(): ask('x')")
    suite.run("--tape-mode=record", **RECORDING).assert_outcomes(passed=2)
    assert "cassettes/test_it/mine.jsonl" in suite.tapes()
    suite.write("test_it.py", f"{ASK}{other}{marks}@pytest.mark.skip\ndef test_a(): ask('x')")
    result = suite.run("--tape-unused=warn")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.no_fnmatch_line("no test uses: *")


SHARING = "@pytest.mark.tape('{}shared')\ndef test_{}(): ask('{}')\n"
LEFT_OUT = "what nobody asked for was not looked for: not every test ran"


@pytest.mark.row("N18")
@pytest.mark.parametrize(
    "part", ["--ignore=tests/sub", "--setup-only", "tests/sub", "a hook", "a module that skips"]
)
def test_a_run_of_a_part_takes_nothing_away_that_another_part_uses(
    suite: Suite, server: Server, part: str
) -> None:
    suite.write("tests/test_one.py", ASK + SHARING.format("", "a", "a"))
    suite.write("tests/sub/test_two.py", ASK + SHARING.format("../tapes/", "b", "b"))
    suite.run("--tape-mode=record", **RECORDING).assert_outcomes(passed=2)
    options = [part] if " " not in part else []
    if part == "a hook":
        dropping = "items[:] = [one for one in items if one.name != 'test_b']"
        suite.write("conftest.py", f"def pytest_collection_modifyitems(items): {dropping}")
    if part == "a module that skips":
        skips = "pytest.importorskip('not_there_at_all')\n"
        suite.write("tests/sub/test_two.py", ASK + skips + SHARING.format("../tapes/", "b", "b"))
    before = (suite.path / "tests/tapes/shared.jsonl").read_bytes()
    result = suite.run("--tape-unused=prune", *options)
    assert (suite.path / "tests/tapes/shared.jsonl").read_bytes() == before
    if part != "tests/sub":  # all of it ran: its own tapes are looked at
        result.stdout.fnmatch_lines([LEFT_OUT])
    result.stdout.no_fnmatch_line("taken away*")


@pytest.mark.row("N18")
def test_a_run_in_a_folder_judges_the_tapes_of_that_folder(suite: Suite, server: Server) -> None:
    suite.write("tests/test_one.py", ASK + SHARING.format("", "a", "a"))
    suite.write("tests/sub/test_two.py", ASK + SHARING.format("", "b", "b"))
    suite.run("--tape-mode=record", **RECORDING).assert_outcomes(passed=2)
    suite.write("tests/sub/test_two.py", ASK + SHARING.format("", "b", "c"))
    suite.run("--tape-mode=record", **RECORDING)
    suite.write("tests/sub/test_two.py", ASK + SHARING.format("", "b", "b"))
    result = suite.run("tests/sub")
    result.stdout.fnmatch_lines(["nobody asked for: * on tests/sub/tapes/shared.jsonl"])


@pytest.mark.parametrize("skip", ["pytest.skip('x')", "raise unittest.SkipTest('x')"])
def test_a_skip_does_not_hide_a_miss_that_was_swallowed(
    suite: Suite, server: Server, skip: str
) -> None:
    """A program that skips where its model does not answer would be green on an empty tape."""
    begin = f"import unittest\n{ASK}@pytest.mark.tape\ndef test_a():\n"
    suite.write("test_it.py", f"{begin}    try: ask('x')\n    except BaseException: {skip}")
    result = suite.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["cassette miss: *"])
    suite.write("test_it.py", f"{begin}    {skip}")
    suite.run().assert_outcomes(skipped=1)


@pytest.mark.row("N16")
def test_what_no_client_covers_is_refused_by_name_and_fails_the_test(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
import socket, pytest

@pytest.mark.tape
def test_a():
    try: socket.create_connection(("model.example", 443), timeout=5)
    except BaseException: pass
""",
    )
    result = suite.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["network blocked: *model.example*"])


def test_the_network_can_be_blocked_in_tests_without_a_tape(suite: Suite, server: Server) -> None:
    suite.write(
        "test_it.py",
        ASK
        + """
import socket

def test_here(): assert ask("x")["said"] == "hello"
def test_away(): socket.create_connection(("model.example", 443), timeout=5)

@pytest.mark.block_network
def test_marked(): socket.create_connection(("other.example", 443), timeout=5)
""",
    )
    result = suite.run("--block-network")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["network blocked: *model.example*"])
    suite.run("-k", "test_marked").stdout.fnmatch_lines(["network blocked: *other.example*"])
    result = suite.run("--block-network", "--allowed-hosts=.*")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*allowed hosts: * does not name a host*"])


def test_allowed_hosts_pass_by(suite: Suite, server: Server) -> None:
    suite.write("test_it.py", ASK + "@pytest.mark.tape\ndef test_a(): ask('x')")
    suite.run("--allowed-hosts=127.0.0.1").assert_outcomes(passed=1)
    assert len(server.requests) == 1
    assert suite.tapes() == []


@pytest.mark.parametrize("runner", ["asyncio", "anyio"])
def test_async_tests_have_their_tapes(suite: Suite, server: Server, runner: str) -> None:
    suite.write(
        "test_it.py",
        ASK
        + f"""
@pytest.mark.tape
@pytest.mark.{runner}
async def test_a(tape):
    async with httpx.AsyncClient() as client:
        body = {{"prompt": "x"}}
        assert (await client.post(os.environ["SERVER"], json=body)).json()["said"] == "hello"

@pytest.mark.tape
@pytest.mark.{runner}
async def test_b():
    async with httpx.AsyncClient() as client:
        try: await client.post(os.environ["SERVER"], json={{"prompt": "new"}})
        except Exception: pass
""",
    )
    plugin = ["-p", "anyio" if runner == "anyio" else "pytest_asyncio.plugin"]
    suite.run(*plugin, "-k", "test_a", "--tape-mode=record", **RECORDING)
    result = suite.run(*plugin)
    result.stdout.fnmatch_lines(["*cassette miss: *test_b*.jsonl"])
    result.assert_outcomes(passed=1, failed=1)
    assert len(server.requests) == 1


@pytest.mark.row("F22")
def test_what_has_expired_warns_fails_or_is_recorded_again(suite: Suite, server: Server) -> None:
    suite.write("test_it.py", ASK + "@pytest.mark.tape\ndef test_a(): ask('x')")
    suite.run("--tape-mode=record", **RECORDING).assert_outcomes(passed=1)
    tape = suite.path / "tapes/test_it/test_a.jsonl"
    row = json.loads(tape.read_text())
    tape.write_text(tape.read_text().replace(row["recorded_at"], "2020-01-01T00:00:00.000+00:00"))
    suite.write("pytest.ini", "[pytest]\ntape_max_age = 90d")
    result = suite.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["expired, and served all the same: 1 on *", "*tapes tape refresh*"]
    )
    suite.write("pytest.ini", "[pytest]\ntape_max_age = 90d\ntape_expired = fail")
    suite.run().stdout.fnmatch_lines(["expired: * on tapes/*"])
    suite.write("pytest.ini", "[pytest]\ntape_max_age = 90d\ntape_expired = record")
    suite.run("--tape-mode=record", **RECORDING).assert_outcomes(passed=1)
    assert len(server.requests) == 2


@pytest.mark.row("F30")
def test_a_run_without_tapes_says_nothing_and_imports_nothing(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
import sys

def test_a():
    ours = {name for name in sys.modules if name.startswith("tapes")}
    assert ours == {"tapes", "tapes.pytest_plugin"}
""",
    )
    result = suite.run()
    result.assert_outcomes(passed=1)
    assert "= tapes =" not in result.stdout.str()


@pytest.mark.parametrize("marker", ["tape(modus='x')", "tape(mode='x')", "tape(expired='x')"])
def test_an_option_that_is_none_is_an_error_that_names_it(suite: Suite, marker: str) -> None:
    suite.write("test_it.py", f"import pytest\n@pytest.mark.{marker}\ndef test_a(): pass")
    result = suite.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the tape marker: *"])


def test_a_marker_with_two_names_is_an_error_that_says_so(suite: Suite) -> None:
    suite.write("test_it.py", 'import pytest\n@pytest.mark.tape("a", "b")\ndef test_a(): pass')
    result = suite.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the tape marker: ('a', 'b') is no name*"])


@pytest.mark.parametrize(
    ("begin", "skip"),
    [
        ("@pytest.mark.tape\n", "pytest.skip('not here')"),
        ("@pytest.mark.xfail\n@pytest.mark.tape\n", "assert 0"),
        ("@pytest.mark.xfail(run=False)\n@pytest.mark.tape\n", "pass"),
    ],
    ids=["skips itself", "fails as expected", "is not run"],
)
def test_what_a_test_would_have_asked_that_did_not_come_so_far_is_not_pruned(
    suite: Suite, server: Server, begin: str, skip: str
) -> None:
    suite.write("test_it.py", f"{ASK}@pytest.mark.tape\ndef test_a():\n    ask('x')\n")
    suite.run("--tape-mode=record", **RECORDING).assert_outcomes(passed=1)
    before = (suite.path / "tapes/test_it/test_a.jsonl").read_bytes()
    suite.write("test_it.py", f"{ASK}{begin}def test_a():\n    {skip}\n    ask('x')\n")
    result = suite.run("--tape-unused=prune")
    assert "nobody asked" not in result.stdout.str()
    assert "no test uses" not in result.stdout.str()
    assert (suite.path / "tapes/test_it/test_a.jsonl").read_bytes() == before


def test_a_run_that_passes_over_files_leaves_no_guess_about_what_is_unused(
    suite: Suite, server: Server
) -> None:
    for name in ("a", "b"):
        test = f"@pytest.mark.tape('shared')\ndef test_{name}(): ask('{name}')\n"
        suite.write(f"test_{name}.py", ASK + test)
    suite.run("--tape-mode=record", **RECORDING).assert_outcomes(passed=2)
    before = (suite.path / "tapes/shared.jsonl").read_bytes()
    for option in ("--ignore=test_b.py", "--ignore-glob=*_b.py"):
        suite.run("--tape-unused=prune", option).assert_outcomes(passed=1)
        assert (suite.path / "tapes/shared.jsonl").read_bytes() == before
