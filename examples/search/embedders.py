"""What makes vectors of texts. Each gives vectors of length 1, so that a product is a likeness.

Another one is a class with `name` and `embed`, and a line in `embedder_of`.
"""

import json
import math
import re
import urllib.request
import zlib
from collections import Counter
from pathlib import Path
from typing import Protocol

from tapes.errors import BadSetting
from tapes.services.kit.settings import Secret

Vector = list[float]


class Embedder(Protocol):
    """Makes vectors. Vectors of one name can be compared with each other and with no others."""

    name: str

    def embed(self, texts: list[str]) -> list[Vector]: ...


class Words:
    """No model: words and their parts, hashed. Finds other forms of a word, no other words."""

    name = "words-512"
    _size = 512

    def embed(self, texts: list[str]) -> list[Vector]:
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> Vector:
        counts: Counter[str] = Counter()
        for word in re.findall(r"\w+", text.lower()):
            counts[word] += 2
            marked = f"<{word}>"
            for at in range(len(marked) - 2):
                counts[marked[at : at + 3]] += 1
        vector = [0.0] * self._size
        for part, number in counts.items():
            found = zlib.crc32(part.encode())
            vector[found % self._size] += (1 if found & 0x10000 else -1) * math.log1p(number)
        return normal(vector)


class Local:
    """A small model that comes with its package: 16 MB, and no network."""

    name = "wordllama-l2-supercat-256"

    def __init__(self) -> None:
        try:
            import wordllama
        except ImportError:
            raise BadSetting(
                "the local embedder is not installed", "pip install 'tapes-py[search]'"
            ) from None
        home = Path(wordllama.__file__).parent
        self._model = wordllama.WordLlama.load(cache_dir=home, disable_download=True)

    def embed(self, texts: list[str]) -> list[Vector]:
        return [normal(list(map(float, vector))) for vector in self._model.embed(texts)]


class Remote:
    """Whatever answers as OpenAI's /v1/embeddings does."""

    def __init__(self, url: str, key: Secret | None) -> None:
        self._url, _, self._model = url.partition("#")
        self._key = key
        self.name = url

    def embed(self, texts: list[str]) -> list[Vector]:
        body = json.dumps({"model": self._model, "input": texts}).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        if self._key is not None:
            request.add_header("Authorization", f"Bearer {self._key.reveal()}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            rows = sorted(json.load(answer)["data"], key=lambda row: row["index"])
        return [normal(row["embedding"]) for row in rows]


def normal(vector: Vector) -> Vector:
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector] if length else vector


def embedder_of(setting: str, key: Secret | None) -> Embedder:
    """The embedder that a setting names."""
    if setting.startswith(("http://", "https://")):
        return Remote(setting, key)
    if setting == "local":
        return Local()
    if setting == "words":
        return Words()
    raise BadSetting(f"no embedder is called {setting!r}", "words, local, or a URL with #MODEL")
