"""The pytest plugin: a marker, a fixture and options; a refusal is a failed test that says why.

    @pytest.mark.tape                    # one tape for this test
    @pytest.mark.tape("weather")         # a tape that tests share
    def test_rain(tape): ...             # `tape` is the open Cassette

Rule 1: a run that opens no tape pays for nothing: whatever costs time is imported when the first
        tape is opened. That is why imports stand inside functions here.
Rule 2: a refusal fails its test, also where the program swallowed it.
Rule 3: what another plugin has taken (the `vcr` marker, --record-mode) is left to it, and said.

What a tape is and how it is opened, `tapes.testing` knows.
"""

import importlib.util
import os
import shlex
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tapes.cassette import Cassette
    from tapes.report import Refused, Report
    from tapes.testing.choices import Choices
    from tapes.testing.gathered import Gathered

# Other plugins with the same words: the module, the name that `-p no:` takes, what people call it.
_OTHERS = (
    ("pytest_recording", "recording", "pytest-recording"),
    ("pytest_vcr", "vcr", "pytest-vcr"),
)
_VCR_MODES = ("none", "once", "new_episodes", "all", "rewrite")
_MODES = ("replay", "record", "live", *_VCR_MODES)
_UNUSED = ("ignore", "warn", "fail", "prune")
_FIXTURE = "_tape_of_marker"
_PARTIAL = ("lf", "collectonly", "setuponly", "setupplan")  # options that leave tests out
_NOT_WHOLE = "what nobody asked for was not looked for: not every test ran"


@dataclass(slots=True)
class _Watched:
    """A report, and how many of its refusals were told already."""

    report: "Report"
    fails: bool = True
    told: int = 0
    is_of_all_tests: bool = False


@dataclass(slots=True)
class _Run:
    """What this process does in one run of pytest."""

    other: str | None
    gathered: "Gathered | None" = None
    watched: list[_Watched] = field(default_factory=list)
    left_out: int = 0
    folders: set[str] = field(default_factory=set)
    spared: set[str] = field(default_factory=set)
    ending: list[str] = field(default_factory=list)

    def gather(self) -> "Gathered":
        if self.gathered is None:
            from tapes.testing.gathered import Gathered

            self.gathered = Gathered()
        return self.gathered


_RUN = pytest.StashKey[_Run]()
_OPENED = pytest.StashKey["Cassette"]()


# --- options ----------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """The options, and the familiar ones where nobody else has them."""
    group = parser.getgroup("tapes", "record model calls once, replay them for ever")
    group.addoption(
        "--tape-mode", choices=_MODES, help="replay (default), record or live; vcrpy's words too"
    )
    group.addoption(
        "--tape-unused", choices=_UNUSED,
        help="recordings that a full run did not ask for: ignore, warn (default), fail or prune",
    )  # fmt: skip
    parser.addini("tape_mode", "the mode where nothing else says one", default="")
    parser.addini("tape_dir", "one folder for all tapes, from the root of the project", default="")
    parser.addini("tape_unused", "as --tape-unused", default="warn")
    parser.addini("tape_max_age", "recordings that are older have expired: 90d", default="")
    parser.addini("tape_expired", "what becomes of them: warn, fail or record", default="")
    parser.addini("tape_allow", "hosts that are neither recorded nor refused", type="linelist")
    parser.addini("tape_block_network", "block the network in all tests", type="bool")
    if _other_plugin(pluginmanager) is None:
        _add_familiar(group)


def _add_familiar(group: Any) -> None:
    group.addoption(
        "--record-mode", "--vcr-record", dest="tape_record_mode", choices=_VCR_MODES,
        help="as --tape-mode, in vcrpy's words; no mode goes live unless the latch is open",
    )  # fmt: skip
    group.addoption(
        "--block-network", dest="tape_block_network", action="store_true",
        help="refuse whatever leaves this machine, also in tests without a tape",
    )  # fmt: skip
    group.addoption(
        "--allowed-hosts", dest="tape_allowed_hosts", metavar="HOSTS",
        help="hosts that are neither recorded nor refused, separated by commas",
    )  # fmt: skip


def _other_plugin(pluginmanager: pytest.PytestPluginManager) -> str | None:
    """The plugin that has the `vcr` marker and its options, by what people call it."""
    autoload = not os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    for module, name, shown in _OTHERS:
        if pluginmanager.has_plugin(name):
            return shown
        if autoload and not pluginmanager.is_blocked(name) and importlib.util.find_spec(module):
            return shown
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known, and begin to count."""
    other = _other_plugin(config.pluginmanager)
    config.stash[_RUN] = _Run(other)
    _declare(config, "tape(name=None, **options): the test's calls are answered from a tape")
    if other is None:
        _declare(config, "vcr(*cassettes, **options): as tape, for users of vcrpy's plugins")
        _declare(config, "default_cassette(name): the name of a test's cassette under vcr")
        _declare(config, "block_network(allowed_hosts=None): refuse what leaves this machine")
        _declare(config, "allowed_hosts(hosts): hosts that are neither recorded nor refused")


def _declare(config: pytest.Config, marker: str) -> None:
    config.addinivalue_line("markers", marker)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say what was left to another plugin."""
    run = config.stash[_RUN]
    if run.other is None:
        return None
    name = next(name for _, name, shown in _OTHERS if shown == run.other)
    return (
        f"tapes: the vcr marker and its options are {run.other}'s; for tapes: -p no:{name},"
        " and mark with tape what both should not answer"
    )


# --- which tests ------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, object, object]:
    """Let the tape of a marked test be open before any other of its fixtures.

    Tests that a hook takes out are counted, whether or not it says so.
    """
    run = config.stash[_RUN]
    before = len(items)
    result = yield
    run.left_out += max(0, before - len(items))
    names = _marker_names(run)
    for item in items:
        run.folders.add(os.path.dirname(item.path))
        if any(item.get_closest_marker(name) for name in names):
            fixtures = getattr(item, "fixturenames", None)
            if fixtures is not None and _FIXTURE not in fixtures:
                fixtures.insert(0, _FIXTURE)
    return result


def _marker_names(run: _Run) -> tuple[str, ...]:
    return ("tape",) if run.other else ("tape", "vcr", "block_network")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Count modules that were skipped: nobody knows which tapes their tests use."""
    report = yield
    collector.config.stash[_RUN].left_out += report.skipped
    return report


# --- fixtures ---------------------------------------------------------------------------------


@pytest.fixture
def _tape_of_marker(request: pytest.FixtureRequest) -> "Iterator[Cassette | None]":
    run = request.config.stash[_RUN]
    node = request.node
    with ExitStack() as stack:
        if run.other is None and node.get_closest_marker("block_network"):
            stack.enter_context(_blocked(run, _allowed(request)))
        is_marked = node.get_closest_marker("tape") or _is_vcr(node)
        yield stack.enter_context(_Opened(request)) if is_marked else None


def _is_vcr(node: Any) -> bool:
    """Whether a test is marked in the familiar words, and nobody else takes them."""
    is_ours = node.config.stash[_RUN].other is None
    return bool(is_ours and node.get_closest_marker("vcr") and not node.get_closest_marker("tape"))


@pytest.fixture
def tape(request: pytest.FixtureRequest) -> "Iterator[Cassette]":
    """The test's tape, an open Cassette; opened here unless a marker opened it before."""
    opened = request.node.stash.get(_OPENED, None)
    if opened is not None:
        yield opened
        return
    with _Opened(request) as cassette:
        yield cassette


class _Opened:
    """A test's tape while it is open."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        from tapes.errors import BadSetting
        from tapes.testing.opening import opening

        self._node = request.node
        self._run = request.config.stash[_RUN]
        try:
            path, chosen, vcr = _chosen(request)
            self._opening = opening(path, chosen, cassettes=vcr.cassettes, rules=vcr.rules)
        except BadSetting as error:
            raise pytest.UsageError(str(error)) from error
        self._fails = chosen.refused == "fail"
        for note in (*vcr.notes, *self._opening.notes):
            self._run.gather().note(note)

    def __enter__(self) -> "Cassette":
        self._cassette = self._opening.context.__enter__()
        self._run.watched.append(_Watched(self._cassette.report, self._fails))
        self._node.stash[_OPENED] = self._cassette
        return self._cassette

    def __exit__(self, *raised: Any) -> None:
        from tapes.tape.base import MemoryTape

        del self._node.stash[_OPENED]
        self._opening.context.__exit__(*raised)
        is_file = not isinstance(self._cassette.tape, MemoryTape)
        self._run.gather().took(self._cassette.report, self._opening.path, is_file=is_file)


# --- what is chosen for a test ----------------------------------------------------------------


@dataclass(slots=True)
class _Vcr:
    """What a `vcr` marker adds."""

    cassettes: list[str] = field(default_factory=list)
    rules: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _chosen(request: pytest.FixtureRequest) -> "tuple[str, Choices, _Vcr]":
    """The path of the test's tape, its options, and what a `vcr` marker adds."""
    from tapes.errors import BadSetting
    from tapes.testing.choices import choices

    config, node = request.config, request.node
    marker = node.get_closest_marker("tape")
    options = dict(marker.kwargs) if marker else {}
    args = marker.args if marker else ()
    if len(args) > 1 or not all(isinstance(arg, str) for arg in args):
        said = ", ".join(map(repr, args))
        raise BadSetting(
            f"the tape marker: ({said}) is no name", 'one test, one tape: tape("weather")'
        )
    name = options.pop("name", None) or next(iter(args), None)
    vcr = _Vcr()
    path = _vcr_path(request, vcr) if _is_vcr(node) else _path_of(node, name)
    sources = [
        ("the command line", {"mode": _mode_option(config)}),
        ("CASSETTE_MODE", {"mode": os.environ.get("CASSETTE_MODE") or None}),
        ("the tape marker", options),
        ("tape_config", _value(request, "tape_config", {})),
    ]
    if _is_vcr(node):
        mode = _mode_option(config) or os.environ.get("CASSETTE_MODE")
        sources.append(("vcr_config", dict(_vcr_options(request, vcr, mode))))
    sources.append(("the ini file", _ini_options(config)))
    return path, choices(*sources, allow=_allowed(request)), vcr


def _mode_option(config: pytest.Config) -> str | None:
    own: str | None = config.getoption("tape_mode")
    return own or config.getoption("tape_record_mode", None)


def _ini_options(config: pytest.Config) -> dict[str, Any]:
    return {
        name: config.getini(f"tape_{name}") or None
        for name in ("mode", "max_age", "expired", "allow")
    }


def _value(request: pytest.FixtureRequest, name: str, default: Any) -> Any:
    """The value of a fixture that the tests may define."""
    try:
        return request.getfixturevalue(name)
    except pytest.FixtureLookupError as error:
        if error.argname != name:
            raise
        return default


def _path_of(node: Any, name: str | None = None) -> str:
    from tapes.testing.naming import named_tape, own_tape

    folder = node.config.getini("tape_dir")
    folder = str(node.config.rootpath / folder) if folder else None
    if name is not None:
        return named_tape(str(node.path), str(name), folder)
    if folder:  # files of one name in several folders
        folder = os.path.join(folder, os.path.relpath(node.path.parent, node.config.rootpath))
    return own_tape(str(node.path), _classes(node), node.name, folder)


def _classes(node: Any) -> tuple[str, ...]:
    return tuple(one.name for one in node.listchain() if isinstance(one, pytest.Class))


def _allowed(request: pytest.FixtureRequest) -> list[str]:
    from tapes.testing.vcr_words import hosts_of

    hosts = hosts_of(request.config.getoption("tape_allowed_hosts", None) or ())
    for name in ("allowed_hosts", "block_network"):
        marker = request.node.get_closest_marker(name)
        if marker is not None and request.config.stash[_RUN].other is None:
            hosts += hosts_of(marker.kwargs.get(name, marker.kwargs.get("allowed_hosts")) or ())
            for argument in marker.args:
                hosts += hosts_of(argument)
    return hosts


def _vcr_path(request: pytest.FixtureRequest, vcr: _Vcr) -> str:
    from tapes.testing.naming import vcr_folder
    from tapes.testing.opening import VCR_ENDINGS

    node = request.node
    folder = str(_value(request, "vcr_cassette_dir", vcr_folder(str(node.path))))
    name = _vcr_name(node)
    if not node.get_closest_marker("default_cassette"):
        name = _value(request, "default_cassette_name", name)
    base = _vcr_base(str(_value(request, "vcr_cassette_name", name)))
    folders = (folder, os.path.dirname(folder))  # with a folder for each file, and without
    candidates = [os.path.join(f, base + ending) for f in folders for ending in VCR_ENDINGS]
    found = next((file for file in candidates if os.path.isfile(file)), None)
    vcr.cassettes += [found] if found else []
    for marker in node.iter_markers("vcr"):
        for extra in marker.args:
            vcr.cassettes.append(os.path.join(folder, str(extra)))
    return _vcr_tape(folder, base)


def _vcr_name(node: Any) -> str:
    """The name of a test's cassette, as far as the test alone says it."""
    from tapes.testing.naming import vcr_name

    default = node.get_closest_marker("default_cassette")
    return str(default.args[0]) if default else vcr_name(_classes(node), node.name)


def _vcr_base(name: str) -> str:
    from tapes.testing.opening import VCR_ENDINGS

    return next((name.removesuffix(e) for e in VCR_ENDINGS if name.endswith(e)), name)


def _vcr_tape(folder: str, base: str) -> str:
    from tapes.testing.naming import safe

    where, own = os.path.split(base)
    return os.path.join(folder, where, f"{safe(own)}.jsonl")


def _vcr_options(request: pytest.FixtureRequest, vcr: _Vcr, mode: str | None) -> Mapping[str, Any]:
    from tapes.testing.vcr_words import translated

    config = dict(_value(request, "vcr_config", {}))
    for marker in reversed(list(request.node.iter_markers("vcr"))):
        config |= marker.kwargs
    chosen = str(mode or config.get("record_mode") or "none")
    said = translated(config, may_record=chosen not in ("none", "replay") and _latch_is_open())
    vcr.rules += said.rules
    vcr.notes += said.notes
    return said.options


def _latch_is_open() -> bool:
    from tapes.budget import Limits, latch_is_on
    from tapes.modes import Mode, live_is_permitted

    return live_is_permitted(Mode.RECORD, latch_is_on(os.environ), Limits.of(os.environ))


# --- the network ------------------------------------------------------------------------------


class _blocked:  # noqa: N801  # a context that reads as what it makes of the network
    def __init__(self, run: _Run, allow: list[str]) -> None:
        from tapes.testing.opening import Blocked

        self._run = run
        self._blocked = Blocked(allow)

    def __enter__(self) -> _Watched:
        self._blocked.open()
        watched = _Watched(self._blocked.cassette.report)
        self._run.watched.append(watched)
        return watched

    def __exit__(self, *_: object) -> None:
        self._blocked.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Block the network around all tests where that was asked for."""
    config = session.config
    wanted = config.getoption("tape_block_network", False) or config.getini("tape_block_network")
    if not wanted or _is_controller(config):
        return (yield)
    from tapes.errors import BadSetting
    from tapes.testing.vcr_words import hosts_of

    try:
        hosts = hosts_of(config.getoption("tape_allowed_hosts", None) or ())
        blocked = _blocked(config.stash[_RUN], [*hosts, *config.getini("tape_allow")])
    except BadSetting as error:
        raise pytest.UsageError(str(error)) from error
    with blocked as watched:
        watched.is_of_all_tests = True
        return (yield)


def _is_controller(config: pytest.Config) -> bool:
    """Whether the tests run in workers of this process."""
    return config.pluginmanager.has_plugin("dsession")


# --- refusals ---------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_fixture_setup(fixturedef: Any) -> Generator[None, object, object]:
    """Let a refusal in another thread break off a fixture, but none of ours or of pytest itself."""
    with nullcontext() if fixturedef.func.__module__ == __name__ else _hearing():
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """The same for the test. What ends fixtures is not broken off: pytest could not go on."""
    with _hearing():
        return (yield)


@contextmanager
def _hearing() -> Iterator[None]:
    before = sys.modules.get("tapes.halt")  # nothing is refused before it is there
    try:
        with nullcontext() if before is None else before.hearing():
            yield
    finally:
        halt = sys.modules.get("tapes.halt")
        if before is None and halt is not None:
            with halt.hearing():
                pass  # from its end on nothing is heard until the test goes on


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that was refused something, also where the program swallowed it."""
    run = item.config.stash[_RUN]
    refused = _new_refusals(run) if run.watched else []
    explained = bool(refused) and _replaces(call)
    said = [_text(one, item) for one in refused]
    if explained:
        call.excinfo = _failure(said, call.excinfo, item)
    report = yield
    if refused and not explained:
        report.sections.append(("refused by the tape", "\n\n".join(said)))
    if report.when == "teardown":
        _forget(run)
    if report.skipped:
        _spare(run, item)
    return report


def _new_refusals(run: _Run) -> "list[Refused]":
    found: list[Refused] = []
    for watched in run.watched:
        report, told = watched.report, watched.told
        watched.told = report.counts["refused"]
        found += report.refused_since(told) if watched.fails else []
    return found


def _forget(run: _Run) -> None:
    """The test is over; the network may stay blocked."""
    if run.watched:
        run.watched[:] = [watched for watched in run.watched if watched.is_of_all_tests]


def _replaces(call: pytest.CallInfo[None]) -> bool:
    """Whether the refusal is the whole story: nothing else was raised than it, or a skip.

    A program that skips where its model does not answer must not be green on an empty tape.
    """
    if call.excinfo is None:
        return True
    from unittest import SkipTest

    from tapes.errors import CassetteError

    raised = call.excinfo.value
    is_skip = isinstance(raised, pytest.skip.Exception | SkipTest)
    return is_skip or _is_refusal(raised, CassetteError)


def _is_refusal(error: BaseException, kind: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_refusal(inner, kind) for inner in error.exceptions)
    return isinstance(error, kind)


def _text(refused: "Refused", item: pytest.Item) -> str:
    """What a refusal said, with the command that records just this test."""
    from tapes.refusals import RECORD

    command = f"pytest --tape-mode=record {shlex.quote(item.nodeid)}"
    return str(refused).replace(RECORD, command)


def _failure(
    said: list[str], raised: pytest.ExceptionInfo[BaseException] | None, item: pytest.Item
) -> pytest.ExceptionInfo[BaseException]:
    parts = [*said]
    if raised is None:
        parts.append("The program swallowed this refusal and went on.")
    else:
        parts += _places(raised, item)
    try:
        raise pytest.fail.Exception("\n".join(parts), pytrace=False)
    except pytest.fail.Exception as error:
        return pytest.ExceptionInfo.from_exception(error)


def _places(raised: pytest.ExceptionInfo[BaseException], item: pytest.Item) -> list[str]:
    """Where in the project's own files the call was made, the innermost last."""
    root = f"{item.config.rootpath}{os.sep}"
    lines = []
    for entry in raised.traceback:
        path = str(entry.path)
        if path.startswith(root) and "site-packages" not in path:
            where = f"{os.path.relpath(path, item.config.invocation_params.dir)}:{entry.lineno + 1}"
            lines.append(f"  {where}: {str(entry.statement).strip()}")
    return ["asked for at:", *lines] if lines else []


def _spare(run: _Run, item: pytest.Item) -> None:
    """A test that was skipped, or failed as was expected, would have used its tape."""
    opened = item.stash.get(_OPENED, None)
    if opened is not None:
        run.spared.add(os.path.abspath(opened.tape.path))
    marker = item.get_closest_marker("tape")
    is_vcr = _is_vcr(item)
    if marker is None and not is_vcr and "tape" not in getattr(item, "fixturenames", ()):
        return
    name = marker and (marker.kwargs.get("name") or next(iter(marker.args), None))
    run.spared.add(_path_of(item, name))
    if is_vcr:
        from tapes.testing.naming import vcr_folder

        run.spared.add(_vcr_tape(vcr_folder(str(item.path)), _vcr_base(_vcr_name(item))))


# --- the end ----------------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:  # noqa: ARG001  # xdist's own names
    """A worker is through: take in what it tells."""
    told = getattr(node, "workeroutput", {}).get("tapes")
    if told is not None:
        node.config.stash[_RUN].gather().add_plain(told)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Tell the controller; or see what nobody used, and say so."""
    config = session.config
    run = config.stash[_RUN]
    if run.gathered is None and not (run.spared and hasattr(config, "workeroutput")):
        return
    gathered = run.gather()
    gathered.folders |= _tape_folders(config, run)
    gathered.spared |= run.spared
    gathered.left_out = max(gathered.left_out, run.left_out)
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output["tapes"] = gathered.as_plain()
        return
    from tapes.testing.ending import unused_lines

    unused = config.getoption("tape_unused") or config.getini("tape_unused")
    if unused not in _UNUSED:
        raise pytest.UsageError(f"tape_unused = {unused!r} is not one of: {', '.join(_UNUSED)}")
    if unused == "ignore" or exitstatus != 0:
        return
    if not _is_whole(config, gathered):
        if config.getoption("tape_unused"):
            run.ending.append(_NOT_WHOLE)
        return
    gathered.within = _folders_that_ran(config)
    run.ending = unused_lines(gathered, prunes=unused == "prune")
    if run.ending and unused == "fail":
        run.ending.append("the run fails for that: tape_unused is fail")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _tape_folders(config: pytest.Config, run: _Run) -> set[str]:
    from tapes.testing.naming import FOLDER, VCR_FOLDER

    own = config.getini("tape_dir")
    if own:
        return {str(config.rootpath / own)}
    names = (FOLDER,) if run.other else (FOLDER, VCR_FOLDER)
    return {os.path.join(folder, name) for folder in run.folders for name in names}


def _is_whole(config: pytest.Config, gathered: "Gathered") -> bool:
    """Whether every test of the folders that were named ran."""
    if gathered.left_out or any(config.getoption(name, False) for name in _PARTIAL):
        return False
    typed = (*config.invocation_params.args, *os.environ.get("PYTEST_ADDOPTS", "").split())
    if any(str(one).startswith("--ignore") for one in typed):  # in the ini file: never a test
        return False
    return not any("::" in arg or os.path.isfile(arg) for arg in config.args)


def _folders_that_ran(config: pytest.Config) -> list[str] | None:
    """Where the tests of this run are; none where they are the project's own choice."""
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        return None
    return [os.path.join(config.invocation_params.dir, arg) for arg in config.args]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What the run did with its tapes."""
    run = config.stash[_RUN]
    if run.gathered is None or not (run.gathered.tapes or run.gathered.notes):
        return
    from tapes.testing.ending import summary_lines

    terminalreporter.section("tapes")
    for line in [*summary_lines(run.gathered), *run.ending]:
        terminalreporter.write_line(line)
