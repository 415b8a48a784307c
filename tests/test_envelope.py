"""Whose turn it is, read from headers and written into them."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.envelope import (
    HEADERS_LIMIT,
    Envelope,
    cut,
    from_headers,
    from_json,
    identified,
    problems,
    thread_of,
    to_headers,
    to_json,
)
from tapes.errors import BadEnvelope
from tapes.exchange import Headers
from tapes.jsontext import Json


def pairs(headers: dict[str, str]) -> Headers:
    return tuple(headers.items())


def cases(folder: Path, family: str) -> list[dict[str, Json]]:
    found = sorted((folder / "tapes-fixtures" / family / "cases").glob("*.json"))
    return [json.loads(file.read_text()) for file in found]


def envelope_of(form: dict[str, Json]) -> Envelope:
    return Envelope(**form)


def test_the_contracts_envelopes_are_read_and_written_alike(reference_data: Path) -> None:
    told = cases(reference_data, "envelope")
    assert len(told) == 23
    for one in told:
        assert to_json(from_headers(pairs(one["headers"]))) == one["envelope"], one["name"]
        if one["direction"] != "decode":
            source = one["encode_from"] if "encode_from" in one else one["envelope"]
            assert to_headers(envelope_of(source)) == one["headers"], one["name"]
        refused = one.get("error", {}).get("disposition") == "reject-400"
        assert bool(problems(from_headers(pairs(one["headers"])))) == refused, one["name"]


def test_the_contracts_threads_are_read_alike(reference_data: Path) -> None:
    told = cases(reference_data, "thread")
    assert len(told) == 8
    for one in told:
        assert thread_of(pairs(one["headers"])) == one["thread_id"], one["name"]


def test_an_envelope_comes_back_from_its_headers_whatever_the_case_of_their_names() -> None:
    envelope = Envelope(
        harness_id="bench",
        harness_session_id="s-1",
        cwd="/home/ü/a+b c%",
        name='a "quoted" name',
        parent_harness_session_id="s-0",
        harness_metadata={"kind": "test", "n": 1},
    )
    headers = tuple((name.title(), value) for name, value in to_headers(envelope).items())
    assert from_headers(headers) == envelope


def test_what_cannot_be_read_costs_that_field_only() -> None:
    headers = {"x-tapes-cwd": "/a/%zz", "x-tapes-session-name": "a%0Ab"}
    headers |= {"x-tapes-harness-metadata": "not base64!", "x-tapes-harness-session-id": "s"}
    assert from_headers(pairs(headers)) == Envelope(harness_session_id="s", cwd="/a/%zz")


def test_no_header_carries_a_line_end() -> None:
    envelope = Envelope(harness_id="a\r\nx-evil: 1", cwd="/a\nb", harness_session_id="s")
    headers = to_headers(envelope)
    assert headers == {"x-tapes-harness-session-id": "s", "x-tapes-cwd": "/a%0Ab"}


def test_all_headers_fit_and_ids_are_the_last_to_go() -> None:
    envelope = Envelope(
        harness_session_id="s",
        cwd="/" + "ü" * 2000,
        name="n" * 300,
        harness_metadata={"k": "v" * 4000},
    )
    headers = to_headers(envelope)
    assert sum(len(name) + len(value) for name, value in headers.items()) <= HEADERS_LIMIT
    assert headers["x-tapes-harness-session-id"] == "s"
    assert "x-tapes-harness-metadata" not in headers


@given(st.text(max_size=60), st.integers(0, 80))
def test_a_text_is_cut_between_characters(text: str, limit: int) -> None:
    short = cut(text, limit)
    assert text.encode("utf-8", "replace").decode().startswith(short) or text == short
    assert len(short.encode("utf-8", "replace")) <= max(limit, 0) or short == text


def test_a_json_envelope_is_read_or_refused_with_every_problem() -> None:
    form = {"harness_id": "bench", "harness_session_id": "s", "unknown": 1}
    assert from_json(form) == Envelope(harness_id="bench", harness_session_id="s")
    assert from_json({"harness_id": ""}).harness_id == "unknown"
    with pytest.raises(BadEnvelope, match=r"org_id.*harness_metadata.*parent_harness_session_id"):
        from_json({"org_id": "x", "harness_metadata": [], "parent_harness_session_id": ""})
    with pytest.raises(BadEnvelope, match="cwd: text, not int"):
        from_json({"cwd": 1})
    with pytest.raises(BadEnvelope):
        from_json([])


# --- agents that say nothing of us ------------------------------------------------------------

SESSION = "11111111-1111-4111-8111-111111111111"


@pytest.mark.parametrize(
    ("headers", "body", "harness", "session", "by"),
    [
        ({"x-tapes-harness-session-id": "s"}, None, "unknown", "s", "header"),
        ({"x-claude-code-session-id": SESSION}, None, "claude", SESSION, "agent"),
        ({"session-id": SESSION, "thread-id": SESSION}, None, "codex", SESSION, "agent"),
        ({"x-session-id": "mine"}, None, "unknown", "mine", "agent"),
        ({"session_id": "s", "user-agent": "codex_cli_rs/0.40.0"}, None, "codex", "s", "agent"),
        ({"session_id": "s", "user-agent": "opencode/1.18.33 x"}, None, "opencode", "s", "agent"),
        ({"session_id": "s", "user-agent": "OpenAI/JS 6.26.0"}, None, "unknown", "s", "agent"),
        ({"user-agent": "GeminiCLI-tui/0.61.0/m (linux)"}, None, "gemini-cli", "", ""),
        ({"user-agent": "QwenCode/0.15.10 (linux)"}, None, "qwen-code", "", ""),
        ({}, {"metadata": {"user_id": f"u_session_{SESSION}"}}, "claude", SESSION, "body"),
        ({}, {"metadata": {"user_id": json.dumps({"session_id": "s"})}}, "claude", "s", "body"),
        ({}, {"metadata": {"session_id": "s"}}, "unknown", "s", "body"),
        ({}, {"metadata": {"user_id": "{broken"}}, "unknown", "", ""),
        ({}, {"metadata": None}, "unknown", "", ""),
        ({}, None, "unknown", "", ""),
    ],
)  # fmt: skip
def test_a_session_is_known_by_the_agents_own_ids(
    headers: dict[str, str], body: Json, harness: str, session: str, by: str
) -> None:
    envelope, how = identified(pairs(headers), body)
    assert (envelope.harness_id, envelope.harness_session_id, how) == (harness, session, by)


def test_a_sub_agent_of_opencode_is_a_thread_of_the_session_that_it_works_for() -> None:
    headers = {"x-session-id": "sub", "x-parent-session-id": "main", "user-agent": "opencode/1"}
    envelope, _ = identified(pairs(headers))
    assert (envelope.harness_session_id, thread_of(pairs(headers))) == ("main", "sub")


def test_our_own_header_wins_over_the_agents() -> None:
    headers = {"x-tapes-harness-session-id": "ours", "x-claude-code-session-id": SESSION}
    assert identified(pairs(headers))[0].harness_session_id == "ours"


@pytest.mark.parametrize(
    ("headers", "thread"),
    [
        ({"X-Claude-Code-Agent-Id": "a1"}, "a1"),
        ({"x-claude-code-agent-id": ""}, ""),
        ({"thread-id": "t", "session-id": "s"}, "t"),
        ({"thread-id": "s", "session-id": "s"}, ""),
        ({"thread-id": "t"}, ""),
    ],
)
def test_a_thread_is_known_by_its_headers(headers: dict[str, str], thread: str) -> None:
    assert thread_of(pairs(headers)) == thread
