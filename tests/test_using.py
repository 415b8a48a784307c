"""Record and replay a whole process, without a change to its code."""

import asyncio
import gc
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import httpx2
import openai
import pytest
import requests
import urllib3
import uvloop

import tapes
from tapes import Cassette, CassetteMiss, UnusedRecordings
from tapes.errors import BadSetting, TapeFailed
from tapes.tape.base import MemoryTape
from tests.commands import typed
from tests.running import run
from tests.servers import Received, Server, Wire, answer, serving

URL = "http://provider.test/v1"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(*(answer(b"%d" % number) for number in range(1, 9))) as one:
        yield one


def recorded(server: Server, *paths: str) -> MemoryTape:
    """A tape on which each path has an answer of its own."""
    tape = MemoryTape()
    with tapes.use(tape, "record", latch=True):
        for path in paths:
            httpx.get(server.url + path)
    return tape


def ask(path: str = "/a") -> str:
    return httpx.get("http://provider.test" + path).text


# --- opening and closing ----------------------------------------------------------------------


def test_it_gives_the_cassette_with_its_report(server: Server) -> None:
    tape = recorded(server, "/a")
    with tapes.use(tape) as cassette:
        assert (ask(), ask()) == ("1", "1")
    assert isinstance(cassette, Cassette)
    assert (cassette.report.as_dict()["served"], cassette.report.as_dict()["reused"]) == (2, 1)


EVENT = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":"%d"},"finish_reason":null}]}\n\n'
)


def streaming(_: Received, wire: Wire) -> None:
    """A stream that goes on until somebody leaves it."""
    wire.head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
    for number in range(2):
        wire.chunk(EVENT % number)
    wire.until_left()


@pytest.mark.row("N08", "B8")
def test_a_stream_that_a_program_dropped_is_evidence_when_the_block_ends(tmp_path: Path) -> None:
    def first_word(client: openai.OpenAI) -> Any:
        for chunk in client.chat.completions.create(model="m", messages=[], stream=True):
            return chunk.choices[0].delta.content  # the stream is a cycle: nobody closes it yet
        return None

    path = tmp_path / "t.jsonl"
    gc.disable()
    try:
        with (
            serving(streaming) as server,
            openai.OpenAI(base_url=server.url, api_key="k") as client,
        ):
            with tapes.use(path, "record", latch=True) as cassette:
                assert first_word(client) == "0"
            assert cassette.report.as_dict()["incomplete"] == 1
            gc.collect()  # and what is collected now complains of nothing
            with tapes.use(path), pytest.raises(CassetteMiss, match="left incomplete"):
                first_word(client)
    finally:
        gc.enable()


def test_a_stream_that_is_read_on_behind_the_block_is_refused_at_its_end(tmp_path: Path) -> None:
    with serving(answer(b"1")) as server, httpx.Client() as client:
        with tapes.use(tmp_path / "t.jsonl", "record", latch=True):
            response = client.send(client.build_request("GET", server.url), stream=True)
        with pytest.raises(TapeFailed, match="closed before the answer was whole"):
            response.read()


def by_aiohttp(url: str) -> str:
    async def main() -> str:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return await response.text()

    return asyncio.run(main())


@pytest.mark.row("N09")
@pytest.mark.parametrize("said", ["a longer answer than before", "x"])
@pytest.mark.parametrize(
    "get",
    [
        lambda url: httpx.get(url).text,
        lambda url: httpx2.get(url).text,
        lambda url: requests.get(url).text,
        lambda url: urllib3.PoolManager().request("GET", url).data.decode(),
        by_aiohttp,
    ],
    ids=["httpx", "httpx2", "requests", "urllib3", "aiohttp"],
)
def test_an_answer_that_was_edited_by_hand_is_given_whole(
    get: Callable[[str], str], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    with serving(answer(b'{"text":"recorded"}')) as server:
        with tapes.use(path, "record", latch=True):
            httpx.get(server.url)
        path.write_text(path.read_text().replace('"recorded"', f'"{said}"'))
        with tapes.use(path):
            assert get(server.url) == f'{{"text":"{said}"}}'


def test_async_with_is_the_same(server: Server) -> None:
    async def main() -> str:
        async with tapes.use(recorded(server, "/a")), httpx.AsyncClient() as client:
            return (await client.get("http://provider.test/a")).text

    assert asyncio.run(main()) == "1"


def test_a_function_is_covered_by_a_decorator(server: Server) -> None:
    @tapes.use(recorded(server, "/a"))
    def covered(path: str, *, times: int) -> list[str]:
        """What it does."""
        return [ask(path) for _ in range(times)]

    assert covered("/a", times=2) == ["1", "1"]
    assert (covered.__name__, covered.__doc__) == ("covered", "What it does.")


def test_an_async_function_is_covered_by_a_decorator(server: Server) -> None:
    @tapes.use(recorded(server, "/a"))
    async def covered() -> str:
        async with aiohttp.ClientSession() as session, session.get(URL[:-3] + "/a") as response:
            return await response.text()

    assert asyncio.iscoroutinefunction(covered)
    assert asyncio.run(covered()) == "1"


def test_a_class_is_refused_because_its_methods_would_not_be_covered() -> None:
    with pytest.raises(BadSetting, match="the class Agent") as refused:

        @tapes.use(MemoryTape())
        class Agent:
            pass

    assert "decorate its methods" in refused.value.remedy


def plainly(function: Any) -> Any:
    """As many a decorator does, which makes a plain function of an async one."""
    return lambda *args: function(*args)


@pytest.mark.row("N16")
def test_what_another_decorator_made_of_an_async_function_is_covered(server: Server) -> None:
    @tapes.use(recorded(server, "/a"), unused="fail")
    @plainly
    async def covered() -> str:
        async with httpx.AsyncClient() as client:
            return (await client.get("http://provider.test/a")).text

    assert asyncio.run(covered()) == "1"


def test_what_gives_an_async_generator_is_refused() -> None:
    @tapes.use(MemoryTape())
    @plainly
    async def covered() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(BadSetting, match="async generator"):
        covered()


def test_a_generator_is_covered_for_its_life(server: Server) -> None:
    @tapes.use(recorded(server, "/a"))
    def covered() -> Iterator[str]:
        yield ask()
        yield ask()

    assert list(covered()) == ["1", "1"]
    assert not_covered()


def test_an_async_generator_is_not_taken_for_a_function() -> None:
    async def generator() -> Any:
        yield 1

    with pytest.raises(BadSetting, match="async with"):
        tapes.use(MemoryTape())(generator)


def test_every_call_of_a_decorated_function_opens_anew(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"

    @tapes.use(path, "record", latch=True, repeated="ordered")
    def covered() -> str:
        return httpx.get(server.url).text

    assert [covered(), covered()] == ["1", "1"]


def test_a_path_is_closed_and_an_open_cassette_is_not(tmp_path: Path) -> None:
    with tapes.use(tmp_path / "a.jsonl") as own:
        pass
    with pytest.raises(tapes.TapesError, match="closed"):
        own.tape.find("0" * 64)
    with Cassette(tmp_path / "b.jsonl") as mine:
        with tapes.use(mine) as same:
            assert same is mine
        assert mine.tape.find("0" * 64) is None


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"unused": "shout"}, "unused='shout'"),
        ({"pace": "slowly"}, "pace='slowly'"),
        ({"pace": -1}, "pace=-1"),
        ({"pace": float("nan")}, "pace=nan"),
        ({"allow": ["https://provider.test/"]}, "is not a host"),
        ({"mode": "play"}, "not a mode"),
    ],
)
def test_a_setting_that_cannot_be_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(BadSetting, match=named), tapes.use(MemoryTape(), **options):
        pass


def test_an_open_cassette_takes_no_further_options() -> None:
    with pytest.raises(BadSetting, match="already"):
        tapes.use(Cassette(MemoryTape()), "record")


# --- whose turn it is -------------------------------------------------------------------------


def not_covered() -> bool:
    """Whether a call goes its own way: there is no such host, and nobody says why."""
    try:
        httpx.get("http://127.0.0.1:9/")
    except httpx.ConnectError:
        return True
    return False


def test_the_inner_one_answers_and_then_the_outer_one_again(server: Server) -> None:
    outer, inner = recorded(server, "/a"), recorded(server, "/a")
    with tapes.use(outer):
        with tapes.use(inner):
            assert ask() == "2"
        assert ask() == "1"
    assert not_covered()


def test_one_object_can_be_entered_again(server: Server) -> None:
    use = tapes.use(recorded(server, "/a"))
    with use as one:
        with use as other:
            assert ask() == "1"
        assert ask() == "1"
    assert one is not other
    assert not_covered()


def test_tasks_at_once_have_their_own_tapes(server: Server) -> None:
    async def one(tape: MemoryTape, turn: asyncio.Barrier) -> list[str]:
        async with tapes.use(tape), httpx.AsyncClient() as client:
            got = []
            for _ in range(3):
                await turn.wait()
                got.append((await client.get("http://provider.test/a")).text)
            await turn.wait()
            return got

    async def main() -> list[list[str]]:
        turn = asyncio.Barrier(3)
        tapes_at_hand = [recorded(server, "/a") for _ in range(3)]
        return list(await asyncio.gather(*(one(tape, turn) for tape in tapes_at_hand)))

    assert asyncio.run(main()) == [["1"] * 3, ["2"] * 3, ["3"] * 3]


def test_tasks_at_once_may_enter_one_object(server: Server, tmp_path: Path) -> None:
    use = tapes.use(tmp_path / "tape.jsonl", "record", latch=True)

    async def one(path: str, first: asyncio.Event, then: asyncio.Event) -> str:
        async with use, httpx.AsyncClient() as client:
            first.set()
            await then.wait()
            return (await client.get(server.url + path)).text

    async def main() -> list[str]:
        events = asyncio.Event(), asyncio.Event()
        calls = one("/a", *events), one("/b", *reversed(events))
        return list(await asyncio.gather(*calls))

    assert sorted(asyncio.run(main())) == ["1", "2"]
    assert not_covered()


@pytest.mark.row("N04")
def test_a_thread_without_any_context_is_covered(server: Server) -> None:
    got: list[str] = []
    with tapes.use(recorded(server, "/a")):
        thread = threading.Thread(target=lambda: got.append(ask()))
        thread.start()
        thread.join(10)
    assert got == ["1"]


@pytest.mark.row("N04")
def test_a_task_that_was_there_before_is_covered(server: Server) -> None:
    async def main() -> str:
        is_open = asyncio.Event()

        async def early() -> str:
            await is_open.wait()
            async with httpx2.AsyncClient() as client:
                return (await client.get("http://provider.test/a")).text

        task = asyncio.create_task(early())
        await asyncio.sleep(0)
        async with tapes.use(recorded(server, "/a")):
            is_open.set()
            return await task

    assert asyncio.run(main()) == "1"


def test_a_task_that_outlives_it_is_left_alone(server: Server) -> None:
    async def main() -> bool:
        is_closed = asyncio.Event()

        async def late() -> bool:
            await is_closed.wait()
            return not_covered()

        async with tapes.use(MemoryTape()):
            task = asyncio.create_task(late())
            await asyncio.sleep(0)
        is_closed.set()
        return await task

    assert asyncio.run(main())


def test_it_may_be_closed_in_another_context_than_it_was_opened_in(server: Server) -> None:
    tape = recorded(server, "/a")

    async def fixture() -> Any:
        async with tapes.use(tape):
            yield ask()

    async def main() -> bool:
        generator = fixture()
        assert await asyncio.create_task(anext(generator)) == "1"
        await asyncio.create_task(generator.aclose())
        return not_covered()

    assert asyncio.run(main())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_is_covered(server: Server) -> None:
    with tapes.use(recorded(server, "/a")):
        pid = os.fork()
        if not pid:
            os._exit(42 if ask() == "1" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42


# --- what is covered when ---------------------------------------------------------------------


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    return done.stdout


LIBRARIES = ("httpx", "httpx2", "urllib3", "requests", "aiohttp", "anyio", "uvloop")


def test_no_client_library_is_imported_for_it() -> None:
    assert (
        python(
            "import sys, tapes\n"
            "from tapes.tape.base import MemoryTape\n"
            "with tapes.use(MemoryTape()): pass\n"
            f"print([name for name in {LIBRARIES} if name in sys.modules])"
        )
        == "[]\n"
    )


@pytest.mark.parametrize(
    "call",
    [
        "import httpx; httpx.get('http://provider.test')",
        "import httpx2; httpx2.get('http://provider.test')",
        "import requests; requests.get('http://provider.test')",
        "from urllib3 import request; request('GET', 'http://provider.test')",
        "import asyncio, aiohttp\n"
        "async def main():\n"
        "  async with aiohttp.ClientSession() as s: await s.get('http://provider.test')\n"
        "asyncio.run(main())",
    ],
    ids=["httpx", "httpx2", "requests", "urllib3", "aiohttp"],
)
def test_a_library_that_is_imported_later_is_covered(call: str) -> None:
    body = "\n".join(f"    {line}" for line in call.splitlines())
    said = python(
        "import tapes\n"
        "from tapes.tape.base import MemoryTape\n"
        f"with tapes.use(MemoryTape(), guard=False):\n  try:\n{body}\n"
        "  except tapes.CassetteMiss: print('a miss')"
    )
    assert said == "a miss\n"


def test_httpx_by_the_name_of_httpx2_is_covered_once() -> None:
    assert (
        python(
            "import httpx2; httpx2.alias_httpx()\n"
            "import httpx, tapes\n"
            "from tapes.tape.base import MemoryTape\n"
            "with tapes.use(MemoryTape()) as cassette:\n"
            "  try: httpx.get('http://provider.test')\n"
            "  except tapes.CassetteMiss: print(cassette.report.as_dict()['refused'])"
        )
        == "1\n"
    )


PLACES: tuple[tuple[Any, str], ...] = (
    (httpx.HTTPTransport, "handle_request"),
    (httpx.AsyncHTTPTransport, "handle_async_request"),
    (httpx2.HTTPTransport, "handle_request"),
    (httpx2.AsyncHTTPTransport, "handle_async_request"),
    (urllib3.HTTPConnectionPool, "_make_request"),
    (urllib3.HTTPSConnectionPool, "_prepare_proxy"),
    (aiohttp.ClientSession, "_request"),
    (aiohttp.client_proto.ResponseHandler, "set_response_params"),
    (asyncio.BaseEventLoop, "getaddrinfo"),
    (uvloop.Loop, "create_connection"),
)


def there() -> list[object]:
    return [vars(owner).get(name) for owner, name in PLACES]


def test_the_last_one_leaves_everything_as_it_was() -> None:
    gc.collect()  # explicit adapters and middlewares of others hold on until they are collected
    before, finders, environ = there(), list(sys.meta_path), dict(os.environ)
    with tapes.use(MemoryTape()):
        within = there()
        with tapes.use(MemoryTape()):
            pass
        assert there() == within
    assert all(now is not then for now, then in zip(within, before, strict=True))
    assert (there(), list(sys.meta_path), dict(os.environ)) == (before, finders, environ)


def test_what_somebody_else_put_on_top_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with tapes.use(MemoryTape()):
        ours = httpx.HTTPTransport.handle_request

        def theirs(transport: Any, request: Any) -> Any:
            return ours(transport, request)

        monkeypatch.setattr(httpx.HTTPTransport, "handle_request", theirs)
    assert httpx.HTTPTransport.handle_request is theirs
    assert not_covered()


def test_two_of_ours_on_top_of_each_other_ask_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tapes.use(MemoryTape()):
        stale = httpx.HTTPTransport.handle_request
    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", stale)
    with tapes.use(MemoryTape(), "record", latch=True) as cassette:
        httpx.get(server.url)
    assert cassette.report.as_dict()["recorded"] == 1


# --- at the end -------------------------------------------------------------------------------


@pytest.mark.row("N18")
def test_unused_recordings_are_named(server: Server) -> None:
    tape = recorded(server, *(f"/{number}" for number in range(7)))
    with pytest.raises(UnusedRecordings, match=r"6 of the recordings .* and 1 more") as unused:
        with_one_asked_for(tape)
    assert "tapes tape prune" in str(unused.value)


@pytest.mark.row("N18")
def test_what_is_told_of_unused_recordings_takes_them_away(server: Server, tmp_path: Path) -> None:
    with tapes.use(tmp_path / "t.jsonl", "record", latch=True):
        for number in range(3):
            httpx.get(f"{server.url}/{number}")
    code = """
        import httpx, tapes
        with tapes.use("t.jsonl", unused="fail"):
            [httpx.get(f"http://provider.test/{number}") for number in (0, 2)]
    """
    done = run(code, tmp_path)
    told = done.stderr.strip().rpartition("to take them away: tapes ")[2]
    assert typed(*shlex.split(told), cwd=tmp_path).status == 0
    rows = (tmp_path / "t.jsonl").read_text().splitlines()
    assert [json.loads(row)["request"]["url"][-2:] for row in rows] == ["/0", "/2"]


def test_one_host_may_be_allowed_without_a_list(server: Server) -> None:
    with tapes.use(MemoryTape(), allow=f"127.0.0.1:{server.port}"):
        assert httpx.get(server.url).text == "1"


@pytest.mark.parametrize("tape", [None, b"t.jsonl"])
def test_what_is_no_tape_is_refused(tape: Any) -> None:
    with pytest.raises(BadSetting, match="neither a path nor a tape"), tapes.use(tape):
        pass


def with_one_asked_for(tape: MemoryTape) -> None:
    with tapes.use(tape, unused="fail"):
        ask("/3")


def test_unused_recordings_are_no_matter_where_something_else_went_wrong(server: Server) -> None:
    tape = recorded(server, "/a", "/b")
    with pytest.raises(CassetteMiss), tapes.use(tape, unused="fail"):
        ask("/c")
    with pytest.raises(KeyError), tapes.use(tape, unused="fail"):
        raise KeyError


def test_what_was_recorded_in_the_run_is_not_unused(server: Server) -> None:
    with tapes.use(MemoryTape(), "record", latch=True, unused="fail"):
        httpx.get(server.url)


# --- what a project declares ------------------------------------------------------------------


def test_a_host_that_the_project_allows_passes_by(server: Server, tmp_path: Path) -> None:
    (tmp_path / "tapes.toml").write_text(f'allow = ["127.0.0.1:{server.port}"]\n')
    with tapes.use(tmp_path / "tape.jsonl"):
        assert [httpx.get(server.url).text, requests.get(server.url, timeout=5).text] == ["1", "2"]
        with pytest.raises(CassetteMiss):
            ask()
