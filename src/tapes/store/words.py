"""Text → the terms under which it is found, the same in both databases; and where they stand in it.

Rule 1: case, accents and ways of composing a character make no difference: `café` is `CAFE`.
Rule 2: a word is a run of letters and digits. Scripts that put no space between words (Chinese,
        Japanese, Korean) are found by every character and every pair of neighbours.
Rule 3: what is asked for is found by its terms, and then looked for in the text itself: a phrase,
        a name with dots or a run of characters is found only where it stands as it was asked for.

Knows nothing of databases or queries.  Pure.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator

# Goes up with every change of what terms a text has: an index of another version is made anew.
VERSION = 2

# Of longer words the beginning is a term: nobody types a whole base64 text.
WORD_LIMIT = 48
# A row has at most so many different terms, and so many bytes of them; what is beyond is not found.
TERM_LIMIT = 20_000
BYTES_LIMIT = 400_000
# A long text is read in pieces of this size, until it has more terms than a row may have.
_PIECE = 64 * 1024

# Marks that tell letters apart, rather than stress them: voiced and half-voiced kana.
_LETTERS_OWN = "\u3099\u309a"
# Scripts without spaces between words.
_RUNS = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u3040-\u30ff\u31f0-\u31ff\u3005-\u3007"  # kana, iteration marks
    "\uac00-\ud7af"  # Hangul
    "\u0e00-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f"  # Thai, Lao, Khmer, Myanmar
)
_RUN = re.compile(f"[{_RUNS}]+")
_ASCII = "".join(chr(c).lower() if chr(c).isalnum() else " " for c in range(128))
_WORD = re.compile(rf"[{_RUNS}]+|[^\W_{_RUNS}]+")
_GAP = re.compile(r"[\x00-/:-@\[-`{-\x7f]")  # what is of no word, in any script


def folded(text: str) -> str:
    """The text as it is compared: without case, accents and differences of composition."""
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text)
    plain = "".join(c for c in apart if unicodedata.category(c) != "Mn" or c in _LETTERS_OWN)
    return unicodedata.normalize("NFKC", plain).casefold()


def terms_of(text: str) -> set[str]:
    """The terms under which a text is found: all, or somewhat more than a row may have."""
    found = set[str]()
    for piece in _pieces_of(text):
        found |= _terms_of_piece(piece)
        if len(found) > TERM_LIMIT:
            break
    return found


def _pieces_of(text: str) -> Iterator[str]:
    """A long text cut between words, where it has any."""
    at = 0
    while at < len(text):
        gap = _GAP.search(text, at + _PIECE, at + 2 * _PIECE)
        end = at + 2 * _PIECE if gap is None else gap.end()
        yield text[at:end]
        at = end


def _terms_of_piece(text: str) -> set[str]:
    if text.isascii():
        found = set(text.translate(_ASCII).split())
        return {word[:WORD_LIMIT] for word in found} if len(text) > WORD_LIMIT else found
    found = set[str]()
    for word in _WORD.findall(folded(text)):
        if _RUN.match(word):
            found.update(word)
            found.update(word[i : i + 2] for i in range(len(word) - 1))
        else:
            found.add(word[:WORD_LIMIT])
    return found


def terms_of_all(texts: Iterable[str]) -> set[str]:
    """The terms of several texts, as many as a row may have."""
    found = set[str]()
    for text in texts:
        found |= terms_of(text)
        if len(found) > TERM_LIMIT:
            break
    if len(found) <= TERM_LIMIT:
        return found
    kept, size = set[str](), 0
    for term in sorted(found)[:TERM_LIMIT]:
        size += len(term.encode("utf-8", "replace"))
        if size > BYTES_LIMIT:
            break
        kept.add(term)
    return kept


def asked_terms(text: str) -> list[str]:
    """The terms that every text with these words has; pairs stand for runs of characters."""
    asked: list[str] = []
    for word in _WORD.findall(folded(text)):
        if not _RUN.match(word):
            asked.append(word[:WORD_LIMIT])
        elif len(word) == 1:
            asked.append(word)
        else:
            asked += [word[i : i + 2] for i in range(len(word) - 1)]
    return list(dict.fromkeys(asked))


def is_simple(text: str) -> bool:
    """Whether one term alone decides: one plain word, or at most two characters of a run."""
    plain = folded(text)
    words = _WORD.findall(plain)
    if words != [plain]:
        return False
    return len(plain) <= 2 if _RUN.match(plain) else len(plain) <= WORD_LIMIT


# --- where words stand ------------------------------------------------------------------------


def places_of(asked: str, text: str, *, as_prefix: bool = False) -> Iterator[tuple[int, int]]:
    """Where the asked text stands in a text: begin and end of each place, in order.

    A plain word stands only where a word begins and ends; as a prefix, where one begins.
    """
    wanted = even(folded(asked))
    if not wanted:
        return
    plain, origins, ends = _with_origins(text)
    at = plain.find(wanted)
    while at >= 0:
        end = at + len(wanted)
        if _begins(plain, at) and (as_prefix or _ends(plain, end)):
            yield origins[at], ends[end - 1]
            at = plain.find(wanted, end)
        else:
            at = plain.find(wanted, at + 1)


def stands_in(asked: str, text: str, *, as_prefix: bool = False) -> bool:
    """Whether the asked text stands in a text."""
    wanted = even(folded(asked))
    if not wanted:
        return False
    plain = even(folded(text))
    at = plain.find(wanted)
    while at >= 0:
        if _begins(plain, at) and (as_prefix or _ends(plain, at + len(wanted))):
            return True
        at = plain.find(wanted, at + 1)
    return False


def even(text: str) -> str:
    """The text with one blank for every run of white space."""
    return " ".join(text.split())


def _is_of_word(char: str) -> bool:
    return char.isalnum() and not _RUN.match(char)


def _begins(text: str, at: int) -> bool:
    return at == 0 or not (_is_of_word(text[at]) and _is_of_word(text[at - 1]))


def _ends(text: str, end: int) -> bool:
    return end == len(text) or not (_is_of_word(text[end - 1]) and _is_of_word(text[end]))


def _with_origins(text: str) -> tuple[str, list[int], list[int]]:
    """The text as it is compared, and for every place in it where that begins and ends in the
    original. One character may be several, and some are a blank with a mark on it.
    """
    out, origins, ends = list[str](), list[int](), list[int]()
    for start, cluster in _clusters(text):
        for char in folded(cluster):
            plain = " " if char.isspace() else char
            if plain != " " or (out and out[-1] != " "):
                out.append(plain)
                origins.append(start)
                ends.append(start + len(cluster))
    return "".join(out), origins, ends


def _clusters(text: str) -> Iterator[tuple[int, str]]:
    """Each character with the marks that follow it."""
    if text.isascii():
        yield from enumerate(text)
        return
    start = 0
    for at in range(1, len(text) + 1):
        if at == len(text) or not unicodedata.combining(text[at]):
            yield start, text[start:at]
            start = at


# --- what is shown ----------------------------------------------------------------------------

_BEFORE, _AFTER = 60, 140


def excerpt(
    text: str, places: Iterable[tuple[int, int]]
) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Some text around the first place, and the places in it. The text itself is not changed."""
    known = sorted(places)
    if not known:
        return text[: _BEFORE + _AFTER], ()
    start = max(known[0][0] - _BEFORE, 0)
    end = min(max(known[0][1] + _AFTER, start + _BEFORE + _AFTER), len(text))
    inside = tuple((low - start, high - start) for low, high in known if high <= end)
    return text[start:end], inside
