import pytest

from tapes.doors import Door, door_of, misdirected


@pytest.mark.parametrize(
    ("method", "path", "door"),
    [
        ("POST", "/v1/ingest", Door.INGEST), ("POST", "/v1/ingest/transcript", Door.INGEST),
        ("POST", "/v1/traces", Door.INGEST), ("POST", "/v1/metrics", Door.INGEST),
        ("GET", "/v1/traces", Door.API), ("GET", "/v1/sessions/x/traces", Door.API),
        ("POST", "/v1/mcp", Door.API), ("DELETE", "/v1/sessions/x", Door.API),
        ("POST", "/v1/messages", Door.PROXY), ("POST", "/openai/v1/responses", Door.PROXY),
        ("POST", "/v1beta/models/gemini-3:generateContent", Door.PROXY),
        ("GET", "/ollama/api/tags", Door.PROXY), ("GET", "/", None), ("GET", "/v1", None),
        ("GET", "/v1/sessionsx", None),
    ],
)  # fmt: skip
def test_a_path_says_which_server_it_is_for(method: str, path: str, door: Door | None) -> None:
    assert door_of(method, path) is door


def test_whoever_is_at_the_wrong_door_is_told_the_right_address() -> None:
    told = misdirected(Door.API, "POST", "/v1/ingest", {Door.INGEST: "http://127.0.0.1:9"})
    assert told is not None
    assert "http://127.0.0.1:9/v1/ingest" in told


def test_whoever_is_right_or_unknown_is_told_nothing() -> None:
    assert misdirected(Door.API, "GET", "/v1/sessions") is None
    assert misdirected(Door.API, "GET", "/nothing") is None
