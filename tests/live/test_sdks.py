"""The real SDKs, recorded once against a real provider and replayed without one."""

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tapes
from tapes import CassetteMiss
from tapes.errors import IncompleteRecording
from tests.live.conftest import Provider
from tests.live.sdks import KEY, SDKS, Ask, forget_clients, import_all, openai, openai_client, said
from tests.servers import closed_port

# What the SDKs do with their own dependencies and connections is not ours to mend.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::UserWarning"
)


@pytest.fixture(params=list(SDKS.values()), ids=list(SDKS))
def ask(request: pytest.FixtureRequest) -> Ask:
    chosen: Ask = request.param
    return chosen


@pytest.fixture(scope="module", autouse=True)
def _forget_clients() -> Iterator[None]:
    """Collect what an SDK left open here, where nobody minds, and not in somebody else's test."""
    import_all()
    yield
    forget_clients()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    return tmp_path / "tape.jsonl"


PROMPT = "What is the capital of Norway?"


@pytest.mark.row("N13")
def test_recorded_once_it_answers_without_a_provider(
    provider: Provider, ask: Ask, tape: Path
) -> None:
    with tapes.use(tape, "record", latch=True):
        live = ask(provider.url, PROMPT)
    asked = provider.requests
    with tapes.use(tape, unused="fail"):
        assert ask(f"http://127.0.0.1:{closed_port()}", PROMPT) == live
        assert ask(provider.url, PROMPT) == live
    assert provider.requests == asked
    kept = b"".join(path.read_bytes() for path in tape.parent.rglob("*") if path.is_file())
    assert KEY.encode() not in kept


@pytest.mark.row("N01")
def test_a_changed_prompt_is_a_miss_that_the_sdk_neither_retries_nor_hides(
    provider: Provider, ask: Ask, tape: Path
) -> None:
    with tapes.use(tape, "record", latch=True):
        ask(provider.url, PROMPT)
    asked = provider.requests
    with tapes.use(tape) as cassette, pytest.raises(CassetteMiss, match=r"nearest: .* differs at"):
        ask(provider.url, f"{PROMPT} And of Sweden?")
    assert cassette.report.as_dict()["refused"] == 1
    assert provider.requests == asked


def test_a_changed_word_is_named_by_its_place(provider: Provider, tape: Path) -> None:
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, *said(PROMPT)]
    with openai_client(provider.url) as client:
        with tapes.use(tape, "record", latch=True):
            client.chat.completions.create(model="gpt-4o", messages=messages)
        messages[1]["content"] = PROMPT.replace("Norway", "Sweden")
        with (
            tapes.use(tape),
            pytest.raises(CassetteMiss, match=r"differs at messages\[1\]\.content\n"),
        ):
            client.chat.completions.create(model="gpt-4o", messages=messages)


def test_sync_and_async_share_a_tape(provider: Provider, tape: Path) -> None:
    with tapes.use(tape, "record", latch=True):
        live = SDKS["openai stream"](provider.url, PROMPT)
    with tapes.use(tape):
        assert SDKS["openai async stream"]("http://127.0.0.1:9", PROMPT) == live


@pytest.mark.row("N08")
def test_a_stream_that_the_program_left_is_no_answer(provider: Provider, tape: Path) -> None:
    def first_chunk(url: str) -> Any:
        with openai_client(url) as client:
            stream = client.chat.completions.create(
                model="gpt-4o", messages=said(PROMPT), stream=True
            )
            with stream:
                return next(iter(stream))

    with tapes.use(tape, "record", latch=True):
        first_chunk(provider.url)
    with tapes.use(tape), pytest.raises(IncompleteRecording):
        first_chunk(provider.url)


def test_too_many_requests_is_shown_and_not_stored(provider: Provider, tape: Path) -> None:
    with (
        openai_client(provider.url) as client,
        tapes.use(tape, "record", latch=True) as cassette,
        pytest.raises(openai.RateLimitError, match="Too many requests"),
    ):
        client.with_options(max_retries=0).chat.completions.create(
            model="gpt-4o", messages=said("too much")
        )
    assert cassette.report.as_dict()["not_stored"] == 1
    with tapes.use(tape), pytest.raises(CassetteMiss):
        SDKS["openai"](provider.url, "too much")


@pytest.mark.row("N03")
def test_an_sdk_asks_for_a_sample_by_a_header(provider: Provider, tape: Path) -> None:
    def ids(url: str) -> list[str]:
        with openai_client(url) as client:
            return [
                client.chat.completions.create(
                    model="gpt-4o",
                    messages=said(PROMPT),
                    extra_headers={"x-tapes-sample": str(number)},
                ).id
                for number in (0, 1, 0)
            ]

    with tapes.use(tape, "record", latch=True):
        live = ids(provider.url)
    assert live[0] == live[2] != live[1]
    with tapes.use(tape):
        assert ids("http://127.0.0.1:9") == live
