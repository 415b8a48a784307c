"""Who may use the proxy: this machine, or whoever has the token."""

import pytest

from tapes.access import Access, name_of, new_token, token_hash


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST:1"])
def test_names_of_this_machine_are_listened_to(host: str) -> None:
    assert Access().why_not(host, None, None) is None


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", ""]
)
def test_another_name_that_leads_here_is_not(host: str) -> None:
    """A web page can make a name of its own lead to this machine (DNS rebinding)."""
    refused = Access().why_not(host, None, None)
    assert refused is not None
    assert refused.status == 421


def test_a_web_page_is_not_answered() -> None:
    refused = Access().why_not("localhost:8080", None, "https://evil.example")
    assert refused is not None
    assert refused.status == 403


@pytest.mark.parametrize(("given", "status"), [(None, 401), ("wrong", 401), ("", 401), ("é", 401)])
def test_with_a_token_nobody_is_answered_without_it(given: str | None, status: int) -> None:
    access = Access(token_hash(new_token()))
    refused = access.why_not("localhost", given, None)
    assert refused is not None
    assert refused.status == status


def test_with_the_token_any_name_may_be_used() -> None:
    token = new_token()
    assert Access(token_hash(token)).why_not("proxy.example", token, "https://app.example") is None


def test_tokens_are_long_differ_and_need_no_escape_in_a_url() -> None:
    one, two = new_token(), new_token()
    assert one != two
    assert len(one) >= 32
    assert all(c.isalnum() or c in "-_" for c in one)


@pytest.mark.parametrize(
    ("host", "name"),
    [("A:1", "a"), ("[::1]", "[::1]"), ("[::1]:1", "[::1]"), ("h", "h"), ("h:x", "h:x")],
)
def test_the_name_in_a_host_line(host: str, name: str) -> None:
    assert name_of(host) == name
