"""Which places are made for credentials."""

import tracemalloc

import pytest

from tapes.credentials import (
    WORD,
    is_account_header,
    is_credential_field,
    is_credential_header,
    is_credential_parameter,
    placeholder,
)


def words(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize(
    "name",
    words(
        "access_token accessToken access-token ACCESS_TOKEN client_secret apiKey api_key x-api-key"
        " password Password passphrase private_key privateKey SecretAccessKey refresh_token"
        " id_token Authorization DB_PASSWORD OPENAI_API_KEY GITHUB_TOKEN aws_session_token"
    ),
)
def test_a_member_with_such_a_name_holds_a_credential(name: str) -> None:
    assert is_credential_field(name)


@pytest.mark.parametrize(
    "name",
    words(
        "token tokens max_tokens key keys secret_name password_hint content author authors"
        " next_page_token prompt_tokens tokenizer api_keys MAX_TOKENS idTokens user"
    ),
)
def test_a_member_with_another_name_holds_none(name: str) -> None:
    assert not is_credential_field(name)


@pytest.mark.parametrize("name", ["key", "API_KEY", "sig", "X-Amz-Signature", "access_token"])
def test_a_parameter_with_such_a_name_is_a_credential_whatever_its_value(name: str) -> None:
    assert is_credential_parameter(name, "x")


def test_a_code_is_a_credential_only_where_it_looks_like_one() -> None:
    assert not is_credential_parameter("code", "AAPL")
    assert is_credential_parameter("code", "Ab3dEf6hIj9lMn2pQr5tUv8x")
    assert is_credential_parameter("code", placeholder("code"))


@pytest.mark.parametrize("name", ["q", "alt", "keyword", "page_token", "tokens"])
def test_other_parameters_are_none(name: str) -> None:
    assert not is_credential_parameter(name, "Ab3dEf6hIj9lMn2pQr5tUv8x")


@pytest.mark.parametrize(
    "name",
    words(
        "Authorization Proxy-Authorization Cookie X-Api-Key api-key x-goog-api-key X-Auth-Token"
        " x-amz-security-token Set-Cookie x-client-secret"
    ),
)
def test_a_header_with_such_a_name_holds_a_credential(name: str) -> None:
    assert is_credential_header(name)


@pytest.mark.parametrize(
    "name",
    words(
        "openai-organization openai-project anthropic-organization-id x-account-id x-tenant"
        " www-authenticate x-session-id x-user-id x-csrf-token"
    ),
)
def test_a_header_may_name_an_account(name: str) -> None:
    assert is_account_header(name)


@pytest.mark.parametrize(
    "name",
    words(
        "content-type x-request-id x-ratelimit-remaining-tokens openai-processing-ms date etag"
        " access-control-allow-headers anthropic-ratelimit-input-tokens-limit retry-after"
    ),
)
def test_harmless_headers_are_none(name: str) -> None:
    assert not is_credential_header(name)
    assert not is_account_header(name)


def test_words_are_made_of_characters_that_need_no_escape() -> None:
    assert placeholder("X-Api-Key") == "REDACTED.x_api_key"
    assert placeholder("jwt", "0a1b2c3d") == "REDACTED.jwt.0a1b2c3d"
    assert placeholder("§") == "REDACTED.secret"
    assert WORD.fullmatch(placeholder("X-Api-Key"))
    assert WORD.fullmatch(placeholder("jwt", "0a1b2c3d"))


def test_of_long_texts_that_might_be_names_nothing_is_remembered() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(1000):
            assert not is_credential_field(f"{number}" + "x" * 10_000)
        assert tracemalloc.get_traced_memory()[0] - before < 1_000_000
    finally:
        tracemalloc.stop()
