"""Texts that are secrets wherever they stand: known forms of keys, and what users declare.

Rule 1: a key is a run of at least RUN_LENGTH characters without a space or a quote, and begins
        with its marker. Most texts have no such run, and are passed over at one look.
Rule 2: where a regular expression has a group, the group alone is the secret.
Rule 3: a match is replaced by a word with a short hash, so that different secrets stay
        different; these forms have enough entropy for the hash to give nothing away. A user's
        pattern whose matches could be guessed says `hash = false`.
Rule 4: a run longer than any key is data (an image, an encrypted thought): what looks like a key
        in the middle of it is chance. A signed token has dots, and may be longer.

Knows nothing of where the texts come from.  Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tapes.errors import BadRule

RUN_LENGTH = 16
_LONGEST_KEY = 512
_LONGEST_TOKEN = 8 * 1024  # signed tokens have dots, and hold claims
_IN_A_RUN = re.compile(rb"[A-Za-z0-9_.~+/%-]")
_SHAPES = bytes(ord("a") if _IN_A_RUN.match(bytes((n,))) else ord(" ") for n in range(256))
_RUN = b"a" * RUN_LENGTH

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SecretPattern:
    """A form of secrets. `marker` begins every match; "" where nothing is known to."""

    name: str
    marker: str
    expression: str
    hashed: bool = True

    @property
    def regex(self) -> re.Pattern[str]:
        """The compiled expression, made when it is first needed: most runs need none."""
        return re.compile(self.expression, re.DOTALL)

    def find(self, text: str, suspects: Iterable[Span]) -> Iterator[Span]:
        """Where the secrets of this form begin and end; `suspects` are runs to look at."""
        if not self.marker:
            regex = self.regex
            spans = (match.span(1 if regex.groups else 0) for match in regex.finditer(text))
            yield from (span for span in spans if 0 <= span[0] < span[1])
            return
        # A marker that holds a space lies before its run.
        before = len(self.marker) if " " in self.marker else 0
        for start, end in suspects:
            at = text.find(self.marker, max(0, start - before), end)
            while at >= 0:
                found = self.regex.match(text, at)
                if found:
                    yield found.span(1 if found.re.groups else 0)
                at = text.find(self.marker, found.end() if found else at + 1, end)


def runs_of(text: str) -> list[Span]:
    """Where the text has characters enough in a row to be a key."""
    shape = text.encode("latin-1", "replace").translate(_SHAPES)
    runs, start = list[Span](), shape.find(_RUN)
    while start >= 0:
        end = shape.find(b" ", start + RUN_LENGTH)
        end = len(shape) if end < 0 else end
        longest = _LONGEST_TOKEN if "." in text[start : start + _LONGEST_TOKEN] else _LONGEST_KEY
        if end - start <= longest:
            runs.append((start, end))
        start = shape.find(_RUN, end)
    return runs


def suspects_in(text: str) -> list[Span]:
    """The runs that have something of a secret: a marker in them, or an assignment before."""
    return [
        (start, end)
        for start, end in runs_of(text)
        if _MARKERS.search(text, start, end) or _BEFORE.search(text, max(0, start - _WINDOW), start)
    ]


_WINDOW = 32
_BEFORE = re.compile(
    r"(?:[Bb]earer |[?&;][A-Za-z_-]{3,24}=|_(?:KEY|SECRET|TOKEN|PASSWORD) ?= ?[\\\"']{0,4})$"
)


def _pattern(name: str, marker: str, rest: str) -> SecretPattern:
    """A marker that does not go on a word, and what follows it."""
    begin = r"(?<![A-Za-z0-9])" if marker[0].isalnum() else ""
    return SecretPattern(name, marker, begin + re.escape(marker) + rest)


SECRET_PATTERNS = (
    _pattern("openai_key", "sk-", r"(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}"),
    _pattern("openai_key", "ek_", r"[A-Za-z0-9]{24,}"),
    _pattern("openai_organization", "org-", r"(?=[A-Za-z]*\d)[A-Za-z0-9]{20,}"),
    _pattern("openai_project", "proj_", r"(?=[A-Za-z]*\d)[A-Za-z0-9]{20,}"),
    _pattern("google_key", "AIza", r"[0-9A-Za-z_-]{35}"),
    _pattern("google_token", "ya29.", r"[0-9A-Za-z_-]{20,}"),
    *(_pattern("github_token", f"gh{kind}_", r"[A-Za-z0-9]{36,}") for kind in "pousr"),
    _pattern("github_token", "github_pat_", r"[A-Za-z0-9_]{22,}"),
    _pattern("gitlab_token", "glpat-", r"[A-Za-z0-9_-]{20,}"),
    _pattern("aws_key", "AKIA", r"[0-9A-Z]{16}(?![A-Za-z0-9])"),
    _pattern("aws_key", "ASIA", r"[0-9A-Z]{16}(?![A-Za-z0-9])"),
    *(_pattern("slack_token", f"xox{kind}-", r"[A-Za-z0-9-]{11,}") for kind in "abeoprs"),
    _pattern("huggingface_token", "hf_", r"[A-Za-z0-9]{30,}"),
    _pattern("groq_key", "gsk_", r"[A-Za-z0-9]{20,}"),
    _pattern("xai_key", "xai-", r"[A-Za-z0-9]{20,}"),
    _pattern("perplexity_key", "pplx-", r"[A-Za-z0-9]{20,}"),
    _pattern("replicate_key", "r8_", r"[A-Za-z0-9]{20,}"),
    _pattern("nvidia_key", "nvapi-", r"[A-Za-z0-9_-]{20,}"),
    _pattern("cerebras_key", "csk-", r"[A-Za-z0-9]{20,}"),
    _pattern("elevenlabs_key", "sk_", r"[0-9a-f]{40,}"),
    _pattern("tavily_key", "tvly-", r"(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}"),
    _pattern("pinecone_key", "pcsk_", r"[A-Za-z0-9_]{20,}"),
    _pattern("langsmith_key", "lsv2_", r"[a-z]{2}_[0-9a-f]{20,}[0-9a-f_]*"),
    _pattern("databricks_token", "dapi", r"[0-9a-f]{32}"),
    *(_pattern("stripe_key", f"{kind}k_live_", r"[A-Za-z0-9]{16,}") for kind in "rsp"),
    _pattern("sendgrid_key", "SG.", r"[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    _pattern("npm_token", "npm_", r"[A-Za-z0-9]{36}"),
    _pattern("pypi_token", "pypi-AgE", r"[A-Za-z0-9_-]{30,}"),
    _pattern("jwt", "eyJ", r"[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}"),
    _pattern("bearer_token", "Bearer ", r"([A-Za-z0-9._~+/-]{20,}=*)"),
    _pattern("bearer_token", "bearer ", r"([A-Za-z0-9._~+/-]{20,}=*)"),
)  # fmt: skip
_MARKERS = re.compile(
    "|".join(sorted({re.escape(p.marker) for p in SECRET_PATTERNS if " " not in p.marker}))
)
PRIVATE_KEY_MARKER = "PRIVATE KEY-----"
PRIVATE_KEY = SecretPattern(
    "private_key",
    "",
    r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----.{0,20000}?-----END (?:[A-Z]+ )*PRIVATE KEY-----",
)


def user_patterns(declared: Iterable[Mapping[str, object]], where: str) -> list[SecretPattern]:
    """Patterns of a `tapes.toml`: [[secret]] name = "…", pattern = '…'. Raises BadRule."""
    return [_user_pattern(entry, f"{where}: [[secret]] {n}") for n, entry in enumerate(declared, 1)]


def _user_pattern(entry: Mapping[str, object], where: str) -> SecretPattern:
    name, regex, hashed = entry.get("name"), entry.get("pattern"), entry.get("hash", True)
    unknown = set(entry) - {"name", "pattern", "hash"}
    if unknown or not isinstance(name, str) or not isinstance(regex, str):
        raise BadRule(
            f"{where}: a secret has a name and a pattern, both text",
            "[[secret]] name = \"acme_key\" pattern = 'acme_[a-z0-9]{20}'",
        )
    if not isinstance(hashed, bool):
        raise BadRule(f"{where}: hash = {hashed!r} is not true or false")
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise BadRule(f"{where}: the name {name!r} is not made of a-z, 0-9 and _")
    try:
        re.compile(regex)
    except re.error as error:
        raise BadRule(
            f"{where}: pattern {regex!r}: {error}",
            "write patterns in single quotes, so that TOML keeps their backslashes",
        ) from error
    return SecretPattern(name, "", regex, hashed)
