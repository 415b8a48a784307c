"""What a refusal says last: the page that shows it, or what to type where none does."""

import contextlib
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.commands import PATIENCE_S, serving_proxy, started, typed
from tests.proxies import Raw, chat

TOO_LARGE = b'{"model":"m","messages":[]}' + b" " * 5000


@contextlib.contextmanager
def serving(folder: Path, *words: str, **env: str) -> Iterator[dict[str, str]]:
    """`tapes serve`, everything in one process: the addresses that it says."""
    ports = {f"TAPES_{door}_LISTEN": "127.0.0.1:0" for door in ("API", "PROXY", "INGEST")}
    with started(
        "serve",
        *words,
        cwd=folder,
        env=ports | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        found = dict[str, str]()
        try:
            for line in process.stdout:
                said = re.match(r"tapes (api|proxy|ingest): (http://[\w.:]+)", line)
                if said:
                    found[said[1]] = said[2]
                if "the log:" in line:
                    break
            yield found
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def asked(port: int, body: bytes, *lines: str) -> str:
    """The message of a refusal."""
    with Raw(port) as raw:
        answer = raw.ask(body, "/v1/chat/completions", *lines)
    assert 400 <= answer.status < 500
    return str(answer.json()["error"]["message"])


def shown(line: str, slug: str) -> None:
    """The command at the end of a refusal shows what was refused."""
    words = shlex.split(line.partition(": ")[2])
    assert words[0] == "curl"
    token = dict([words[3].split(": ", 1)]) if len(words) > 2 else {}
    told = httpx.get(words[1], headers=token, timeout=PATIENCE_S).json()
    assert told["misses"][-1]["slug"] == slug


@pytest.mark.parametrize(
    ("body", "line", "slug"),
    [
        (TOO_LARGE, "", "error"),
        (chat("x"), "x-tapes-tape: nowhere", "bad-setting"),
        (chat("x"), "x-tapes-sample: many", "bad-setting"),
    ],
    ids=["too large", "unknown tape", "no number"],
)
def test_what_never_comes_into_the_log_says_what_shows_it(
    body: bytes, line: str, slug: str, tmp_path: Path
) -> None:
    limit = {"TAPES_PROXY_BODY_LIMIT": "4KiB"}
    with serving(tmp_path, "--mode", "replay", **limit) as addresses:
        port = int(addresses["proxy"].rpartition(":")[2])
        last = asked(port, body, *filter(None, [line])).splitlines()[-1]
        assert last == f"what was refused here: curl {addresses['proxy']}/_tapes/misses"
        shown(last, slug)


def test_a_body_that_is_too_large_names_a_limit_that_can_be_raised(tmp_path: Path) -> None:
    with serving(tmp_path, "--mode", "replay", TAPES_PROXY_BODY_LIMIT="4KiB") as addresses:
        port = int(addresses["proxy"].rpartition(":")[2])
        remedy = re.search(r"raise it: (\w+)=(\w+)", asked(port, TOO_LARGE))
    assert remedy is not None
    with serving(tmp_path, "--mode", "replay", **{remedy[1]: remedy[2]}) as addresses:
        port = int(addresses["proxy"].rpartition(":")[2])
        assert "cassette miss" in asked(port, TOO_LARGE)


def test_a_miss_of_a_proxy_without_a_log_says_what_shows_it(tmp_path: Path) -> None:
    with serving_proxy("--tape", "t.jsonl", cwd=tmp_path) as proxy:
        last = asked(proxy.port, chat("x")).splitlines()[-1]
        assert last == f"what was refused here: curl {proxy.address}/_tapes/misses"
        shown(last, "miss")


def test_a_miss_of_a_proxy_that_keeps_a_log_is_on_the_page_that_it_names(tmp_path: Path) -> None:
    with serving_proxy("--tape", "t.jsonl", "--log", cwd=tmp_path) as proxy:
        last = asked(proxy.port, chat("x")).splitlines()[-1]
        found = re.fullmatch(
            r"to see it side by side: tapes serve api, and there /#/miss/([0-9a-f-]{36})", last
        )
        assert found is not None, last
    told = json.loads(typed("search", "--id", found[1], "--json", cwd=tmp_path).out)
    assert "turns" in [each["noun"] for each in told["items"]]


def test_a_proxy_with_a_token_says_that_it_asks_for_it_and_never_which(tmp_path: Path) -> None:
    token = "only-for-friends-0123456789"
    with serving_proxy("--tape", "t.jsonl", cwd=tmp_path, env={"TAPES_PROXY_TOKEN": token}) as p:
        last = asked(p.port, chat("x"), f"x-tapes-token: {token}").splitlines()[-1]
        assert token not in last
        assert "-H 'x-tapes-token: …'" in last
        shown(last.replace("…", token), "miss")


def test_a_proxy_of_one_run_names_no_address_that_is_gone_when_it_is_read(tmp_path: Path) -> None:
    program = 'curl -s $OPENAI_BASE_URL/chat/completions -d \'{"model":"m","messages":[]}\''
    ended = typed("run", "--", "bash", "-c", program, cwd=tmp_path)
    assert "cassette miss" in ended.out
    assert "_tapes" not in ended.out
