"""The spans of all sessions with their vectors, in SQLite; sqlite-vec compares them if it is there.

Rule 1: what the read API no longer has is no longer found, and gone from the file.
Rule 2: vectors of another embedder are thrown away: they mean nothing to this one.
"""

import hashlib
import json
import operator
import sqlite3
import threading
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from embedders import Embedder

from tapes.services.kit.reading import ReadApi

MAX_TEXT = 4_000
BATCH = 64
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, seen TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS spans (
  trace_id TEXT, span_id TEXT, session_id TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
  started_at TEXT NOT NULL, text TEXT NOT NULL, hash TEXT NOT NULL, vector BLOB NOT NULL,
  PRIMARY KEY (trace_id, span_id));
CREATE INDEX IF NOT EXISTS spans_of_session ON spans (session_id);
CREATE INDEX IF NOT EXISTS spans_of_hash ON spans (hash);
"""


@dataclass(frozen=True)
class Hit:
    session_id: str
    trace_id: str
    span_id: str
    kind: str
    name: str
    started_at: str
    score: float
    excerpt: str


class Index:
    """An index. Used by several threads, one after the other."""

    def __init__(self, path: str, embedder: Embedder) -> None:
        self._embedder = embedder
        self._lock = threading.RLock()
        self._db = sqlite3.connect(path or ":memory:", check_same_thread=False)
        self.compares_with = _vectors(self._db)
        self._db.execute("PRAGMA secure_delete = ON")  # rule 1
        with self._lock, self._db:
            self._db.executescript(_TABLES)
            row = self._db.execute("SELECT value FROM facts WHERE name = 'embedder'").fetchone()
            if row != (embedder.name,):
                self._db.execute("DELETE FROM spans")
                self._db.execute("DELETE FROM sessions")
                self._db.execute("REPLACE INTO facts VALUES ('embedder', ?)", (embedder.name,))

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def counts(self) -> tuple[int, int]:
        """Sessions and spans."""
        with self._lock:
            (sessions,) = self._db.execute("SELECT count(*) FROM sessions").fetchone()
            (spans,) = self._db.execute("SELECT count(*) FROM spans").fetchone()
        return sessions, spans

    # --- keeping up

    def follow(self, tapes: ReadApi) -> int:
        """Take in what is new or changed, let go what is gone; how many sessions were read."""
        with self._lock:
            known = dict(self._db.execute("SELECT id, seen FROM sessions"))
        listed = {item["id"]: _seen(item) for item in tapes.sessions()}
        for session_id in known.keys() - listed.keys():
            self._forget(session_id)
        changed = [one for one, seen in listed.items() if known.get(one) != seen]
        for session_id in changed:
            whole = tapes.whole_session(session_id)
            if whole is None:
                self._forget(session_id)
            else:
                self._take(session_id, listed[session_id], whole)
        return len(changed)

    def _forget(self, session_id: str) -> None:
        with self._lock, self._db:
            self._db.execute("DELETE FROM spans WHERE session_id = ?", (session_id,))
            self._db.execute("DELETE FROM sessions WHERE id = ?", (session_id,))

    def _take(self, session_id: str, seen: str, whole: dict[str, Any]) -> None:
        with self._lock:
            found = self._db.execute(
                "SELECT trace_id, span_id, hash FROM spans WHERE session_id = ?", (session_id,)
            )
            known = {(trace, span): digest for trace, span, digest in found}
        spans = [(span, text) for span in _spans(whole) if (text := text_of(span))]
        new = [(span, text) for span, text in spans if known.get(_key(span)) != _hash(text)]
        vectors = self._vectors_of({text for _, text in new})
        gone = known.keys() - {_key(span) for span, _ in spans}
        with self._lock, self._db:
            self._db.executemany("DELETE FROM spans WHERE trace_id = ? AND span_id = ?", gone)
            self._db.executemany(
                "REPLACE INTO spans VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        *_key(span), session_id, span["kind"], span["name"], span["started_at"],
                        text, _hash(text), vectors[text],
                    )
                    for span, text in new
                ],
            )  # fmt: skip
            self._db.execute("REPLACE INTO sessions VALUES (?, ?)", (session_id, seen))

    def _vectors_of(self, texts: set[str]) -> dict[str, bytes]:
        """Their vectors. An embedding may cost money: no text is embedded twice."""
        found: dict[str, bytes] = {}
        asked = "SELECT vector FROM spans WHERE hash = ? LIMIT 1"
        with self._lock:
            for text in texts:
                row = self._db.execute(asked, (_hash(text),)).fetchone()
                if row is not None:
                    found[text] = row[0]
        missing = sorted(texts - found.keys())
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            made = map(_blob, self._embedder.embed(batch))
            found.update(zip(batch, made, strict=True))
        return found

    # --- finding

    def find(
        self, query: str, limit: int, *, session_id: str | None = None, kind: str | None = None
    ) -> list[Hit]:
        """The spans that are most like a query, the likest first."""
        (vector,) = self._embedder.embed([query])
        with self._lock:
            rows = self._db.execute(
                "SELECT session_id, trace_id, span_id, kind, name, started_at,"
                " 1 - vec_distance_cosine(vector, ?1) AS score, text FROM spans"
                " WHERE (?2 IS NULL OR session_id = ?2) AND (?3 IS NULL OR kind = ?3)"
                " ORDER BY score DESC, started_at DESC, span_id LIMIT ?4",
                (_blob(vector), session_id, kind, limit),
            ).fetchall()
        return [Hit(*row[:6], round(row[6], 4), excerpt(row[7], query)) for row in rows]


def _seen(item: dict[str, Any]) -> str:
    """What changes when a session does."""
    return f"{item.get('seq', '')} {item['last_seen_at']} {item['rollup']['turn_count']}"


def _spans(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for part in whole["traces"]:
        yield from (span for span in part["spans"] if span["kind"] in ("llm", "tool"))


def _key(span: dict[str, Any]) -> tuple[str, str]:
    return span["trace_id"], span["span_id"]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def text_of(span: dict[str, Any]) -> str:
    """What a span says, as far as it is text."""
    said = [span["name"] if span["kind"] == "tool" else ""]
    for block in [*span["input"], *span["output"]]:
        for member in ("text", "thinking", "tool_output"):
            if isinstance(block.get(member), str):
                said.append(block[member])
        if block.get("tool_input"):
            said.append(json.dumps(block["tool_input"], ensure_ascii=False))
    return "\n".join(filter(None, said))[:MAX_TEXT]


def excerpt(text: str, query: str, size: int = 200) -> str:
    """The place of a text that has a word of the query, or its beginning."""
    places = [text.lower().find(word) for word in query.lower().split() if len(word) > 3]
    start = max(0, min((at for at in places if at >= 0), default=0) - size // 4)
    return " ".join(text[start : start + size].split())


# --- vectors ----------------------------------------------------------------------------------


def _blob(vector: Iterable[float]) -> bytes:
    return array("f", vector).tobytes()


def _vectors(db: sqlite3.Connection) -> str:
    """Let the database compare vectors; with what it does."""
    try:
        import sqlite_vec

        db.enable_load_extension(True)
        sqlite_vec.load(db)
        db.enable_load_extension(False)
        return "sqlite-vec"
    except (ImportError, AttributeError, sqlite3.Error):
        # Not installed, or a Python whose SQLite loads no extensions.
        db.create_function("vec_distance_cosine", 2, _distance, deterministic=True)
        return "python"


def _distance(one: bytes, other: bytes) -> float:
    a, b = array("f", one), array("f", other)
    return 1.0 - sum(map(operator.mul, a, b))
