import pytest

from tapes.services.urls import (
    is_web_url,
    origin_of,
    source_fault,
    source_problems,
    subject_of,
    url_of,
)


@pytest.mark.parametrize(
    "text",
    [
        "http://x",
        "HTTPS://x/y?z#w",
        "http://[::1]:80/",
        "http://[fe80::1%25en0]/",
        "http://u:p@h/",
        "http://a_b/",
        "http://x/a b",
        "http://1.2.3.4:99999",
        "http://é",
        "http://h:",
        "http://h/%C3%A9",
        "http://%C3%A9/",
    ],
)
def test_web_urls(text: str) -> None:
    assert is_web_url(text)


@pytest.mark.parametrize(
    "text",
    [
        "http://",
        "http:///x",
        "http://:80",
        "ftp://x",
        "x",
        "//x",
        "http:x",
        "http://[::1",
        "http://[::g]",
        "http://[::1]x",
        "http://h:abc",
        "http://h:8:9",
        "http://h:٨",
        "http://h/%zz",
        "http://h/#%z",
        " http://x",
        "http://x y/",
        "http://%41/",
        "http://a\\b/",
        "http://u se@h/",
        "http://h/\n",
        "",
    ],
)
def test_what_is_no_web_url(text: str) -> None:
    assert not is_web_url(text)


@pytest.mark.row("C1")
@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("http://[::1", "not a full URL"),
        ("tcp://h/x", "scheme"),
        ("h/openapi", "not a full URL"),
        ("http://:8080/openapi", "no host"),
        ("http://u:p@h/x", "user name"),
        ("http://@h/x", "user name"),
        ("http://h/x#f", "fragment"),
    ],
)
def test_a_source_that_cannot_be_fetched_is_said_why(source: str, part: str) -> None:
    assert part in str(source_fault(source))


@pytest.mark.row("C1")
def test_all_problems_of_a_list_of_sources_are_named_with_their_places() -> None:
    sources = ["http://a/x", "ftp://b", "http://a/x", "http://h/x#", "http://h/x?q=1"]
    found = [(problem.field, problem.code) for problem in source_problems(sources)]
    assert found == [("cassettes[1]", "bad_url"), ("cassettes[2]", "repeated_url")]


@pytest.mark.row("C1")
@pytest.mark.parametrize(
    ("source", "origin"),
    [
        ("HTTP://127.0.0.1:9999/openapi?token=x", "http://127.0.0.1:9999"),
        ("https://Host.example", "https://Host.example"),
        ("http://[::1]:80/a/b", "http://[::1]:80"),
    ],
)
def test_the_origin_is_scheme_host_and_port_as_written(source: str, origin: str) -> None:
    assert origin_of(source) == origin


def test_there_is_no_origin_without_a_source() -> None:
    with pytest.raises(ValueError, match="not the URL"):
        origin_of("http://u:p@h/x")


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("http://h:1/openapi", "http://h:1/openapi"),
        ("http://u:secret@h/x?token=secret", "http://redacted@h/x?redacted"),
        ("http://h/x#f", "http://h/x#f"),
        ("http://[::1?secret", "<invalid URL>"),
    ],
)
def test_a_source_is_shown_without_credentials(source: str, shown: str) -> None:
    assert subject_of(source) == shown


def test_the_parts_of_a_url_are_as_they_were_written() -> None:
    url = url_of("HTTP://u@H:8/p/a?q#f")
    assert url is not None
    assert (url.scheme, url.userinfo, url.host, url.port) == ("http", "u", "H", "8")
    assert (url.path, url.query, url.fragment, url.hostname) == ("/p/a", "q", "f", "H")
