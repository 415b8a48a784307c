"""Which places are made for credentials, and the word that stands for what lay there.

Rule 1: a name says it: a header, a query parameter or a JSON member with such a name holds a
        credential, whatever its value looks like. Values there count for nothing.
Rule 2: the word is made of characters that need no escape in JSON, URLs or headers, and says
        nothing but the name of the place (for patterns, also a short hash of what it was).

Knows nothing of requests or tapes.  Pure.
"""

import re
from functools import lru_cache

MARK = "REDACTED."
# A word as it stands in a text; what lies inside one was redacted before.
WORD = re.compile(r"REDACTED\.[a-z0-9_]+(?:\.[0-9a-f]{8})?")

# What HTTP takes as the value of a header.
_IN_A_HEADER = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_CREDENTIAL_HEADERS = re.compile(
    r"^(proxy-)?authorization$|cookie|api-?key|auth-token|access-token|security-token|secret"
)
# Headers that name an account, or hold something of its.
_ACCOUNT_HEADERS = re.compile(
    r"^(?!access-control-|x-ratelimit-).*"
    r"(authorization|authenticate|cookie|token(?!s)|secret|password|api-?key|credential|signature"
    r"|organi[sz]ation|project|account|tenant|workspace|session|user|customer)"
)
_CREDENTIAL_PARAMETERS = frozenset(
    {
        "key", "api_key", "apikey", "api-key", "access_token", "token", "auth", "sig", "signature",
        "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires", "x-amz-signature",
        "x-amz-signedheaders", "x-amz-security-token", "x-goog-algorithm", "x-goog-credential",
        "x-goog-date", "x-goog-expires", "x-goog-signature", "x-goog-signedheaders",
        "subscription-key", "client_secret",
    }
)  # fmt: skip
# A credential in some APIs and a plain word in others; the length of the value decides.
_PERHAPS_PARAMETERS = frozenset({"code"})
_CREDENTIAL_LENGTH = 20

# The words of a name, however they are put together: access_token, access-token, accessToken.
_FIELDS = (
    "access token", "refresh token", "id token", "auth token", "session token", "security token",
    "aws session token", "client secret", "secret key", "secret access key",
    "aws secret access key", "api key", "x api key", "api secret", "password", "passwd",
    "passphrase", "private key", "authorization",
)  # fmt: skip
_ENVIRONMENT_NAME = r"[A-Z][A-Z0-9_]*_(?:API_KEY|SECRET|SECRET_KEY|TOKEN|PASSWORD)"
FIELD_NAME = (
    "(?i:" + "|".join(words.replace(" ", "[_-]?") for words in _FIELDS) + f")|{_ENVIRONMENT_NAME}"
)
_FIELD_NAME = re.compile(FIELD_NAME)


def fits_a_header(value: str) -> bool:
    """Whether a header can have this value. The standard library's error about it shows it."""
    return _IN_A_HEADER.fullmatch(value) is not None


def is_credential_parameter(name: str, value: str) -> bool:
    """Whether a query parameter holds a credential."""
    name = name.lower()
    if name in _PERHAPS_PARAMETERS:
        return len(value) >= _CREDENTIAL_LENGTH or value.startswith(MARK)
    return name in _CREDENTIAL_PARAMETERS


@lru_cache(1024)
def is_credential_header(name: str) -> bool:
    """Whether a header holds a credential."""
    return _CREDENTIAL_HEADERS.search(name.lower()) is not None


@lru_cache(1024)
def is_account_header(name: str) -> bool:
    """Whether a header says whose account it is, or holds a credential."""
    return _ACCOUNT_HEADERS.search(name.lower()) is not None


def is_credential_field(name: str) -> bool:
    """Whether a JSON member or a form field holds a credential."""
    if len(name) > _LONG_NAME:  # whoever looks at a text takes much of it for a name
        return _FIELD_NAME.fullmatch(name) is not None
    return _is_credential_field(name)


# What is longer is not remembered.
_LONG_NAME = 100


@lru_cache(4096)
def _is_credential_field(name: str) -> bool:
    return _FIELD_NAME.fullmatch(name) is not None


def placeholder(name: str, digest: str = "") -> str:
    """The word for a value that lay under this name."""
    word = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "secret"
    return f"{MARK}{word}.{digest}" if digest else f"{MARK}{word}"
