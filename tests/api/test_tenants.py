"""Two tenants in one log whose rows have the same ids: neither learns anything of the other."""

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest

from tapes.access import token_hash
from tapes.api.app import Api
from tapes.api.keys import Keys
from tapes.rows import Outcome, RawTurn
from tapes.store.base import Policy
from tapes.store.sql import SqlStore
from tests.api.serving import UNBOUNDED, serving
from tests.contracts.test_store import fill
from tests.turns import call, messages, result, said

OURS = "22222222-2222-4222-8222-222222222222"
THEIRS = "33333333-3333-4333-8333-333333333333"
KEYS = Keys(token_hash("read"), token_hash("admin"), {token_hash(o): o for o in (OURS, THEIRS)})
# Each tenant's word stands in all that there is of it, and in nothing of the other's.
WORD = {OURS: "quartz", THEIRS: "canary"}


def told_by(org: str) -> list[RawTurn]:
    """The turns of a tenant. They have the ids that the other's have, and other words."""
    word = WORD[org]
    asked = [said("user", f"{word} please")]
    used = {"content": [call("toolu_1", f"{word}_tool", path=word)]}
    ends = {"content": [{"type": "text", "text": f"{word} it is"}]}
    history = [*asked, said("assistant", used["content"]), said("user", [result("toolu_1", word)])]  # type: ignore[arg-type]
    about: Any = {"model": f"{word}-model", "name": word, "cwd": f"/{word}", "auth_subject": word}
    turns = [
        messages(1, asked, used, session="same", **about),
        messages(2, history, ends, session="same", **about),
        messages(3, asked, ends, session="other", outcome=Outcome.REFUSED, **about),
        messages(4, asked, ends, session="gone", **about),
    ]
    named = (replace(turn.envelope, org_id=org) for turn in turns)
    return [
        replace(turn, envelope=envelope, agent_name=word, meta={"key": word, "refused": "miss"})
        for turn, envelope in zip(turns, named, strict=True)
    ]


def lived_in(store: SqlStore, org: str) -> None:
    """A tenant does all that leaves something behind."""
    word, project = WORD[org], store.project(org)
    fill(store, told_by(org))
    for harness_id in ("same", "other", "gone"):
        (listed,) = project.sessions_of_harness(harness_id)
        session_id = listed.session.id
        project.rename(session_id, f"{word} renamed", by=word)
        project.tag(session_id, add=[word], by=word)
        project.note_tape(session_id, f"{word}.jsonl")
    project.erase([session_id], reason=word, by=word)
    project.set_policy(Policy(max_sessions=len(word) * 1000), by=word)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


# What every route is asked for; {word} is a tenant's own, the ids are of what it has.
ASKED: dict[str, tuple[str, ...]] = {
    "/v1/sessions": (
        "", "?q={word}", "?auth_subject={word}", "?harness_session_id=same", "?q=tag:{word}",
        "?placeholders=true&count=exact", "?since=2000-01-01T00:00:00Z", "?q=tool:{word}_tool",
        "?sort=total_tokens&direction=asc", "?q=-nothing&limit=1",
    ),
    "/v1/sessions/{session_id}": ("",),
    "/v1/sessions/{session_id}/traces": ("", "?payload=preview", "?payload=none"),
    "/v1/sessions/{session_id}/raw_turns": ("",),
    "/v1/sessions/{session_id}/tape": ("",),
    "/v1/sessions/{session_id}/tape/plan": ("", "?until={turn_id}"),
    "/v1/traces": ("", "?session_id={session_id}", "?q={word}", "?q=-nothing&count=exact"),
    "/v1/traces/{trace_id}": ("", "?payload=preview"),
    "/v1/traces/{trace_id}/spans/{span_id}": ("",),
    "/v1/spans": ("", "?session_id={session_id}", "?trace_id=trc_r1&payload=full", "?q={word}"),
    "/v1/turns": ("", "?q={word}", "?q=-nothing&count=exact"),
    "/v1/turns/{turn_id}": ("",),
    "/v1/turns/{turn_id}/{side}/body": ("", "?decoded=true"),
    "/v1/tapes": ("",),
    "/v1/tapes/contents": ("?tape={word}.jsonl",),
    "/v1/tapes/recording": ("?tape={word}.jsonl&key=0123456789",),
    "/v1/misses": ("", "?limit=1"),
    "/v1/misses/{turn_id}": ("",),
    "/v1/export": (
        "?format=jsonl&content=full", "?format=jsonl&q={word}", "?format=otlp&content=full",
        "?format=jsonl&harness_session_id=same", "?format=jsonl&auth_subject={word}",
    ),
    "/v1/search": ("?q={word}", "?q=please&payload=full", "?q={word}_tool"),
    "/v1/find": ("?id={session_id}", "?id=trc_r1", "?id=r1", "?id=msg_1", "?id=toolu_1"),
    "/v1/facets/{field}": ("",),
    "/v1/fields": ("",),
    "/v1/histogram/{noun}": ("",),
    "/v1/stats": ("", "?auth_subject={word}"),
    "/v1/changes": ("", "?after=1"),
    "/v1/erasures": ("?session_id={gone}",),
    "/v1/erasures/{erasure_id}": ("",),
    "/v1/retention": ("",),
    "/v1/audit": ("", "?before=1000"),
    "/v1/status": ("",),
    "/metrics": ("",),
}  # fmt: skip
# They say nothing of any log; the stream has a test of its own.
OF_NO_LOG = {
    "/ping", "/readyz", "/healthz", "/openapi", "/openapi.json", "/swagger", "/v1/changes/stream",
}  # fmt: skip


def ids_of(store: SqlStore, org: str) -> dict[str, list[str]]:
    """What a tenant has, by the names that stand in braces."""
    project = store.project(org)
    entries = project.audit()
    (erased,) = (entry.details["erasure"] for entry in entries if entry.action == "erase")
    sessions = [listed.session.id for listed in project.sessions().items]
    touched = [str(entry.details["session"]) for entry in entries if "session" in entry.details]
    return {
        "word": [WORD[org]],
        "session_id": sessions[-1:],
        "gone": sorted(set(touched) - set(sessions)),
        "turn_id": [str(head.id) for head in project.turns().items[1:]],
        "erasure_id": [str(erased)],
        "trace_id": ["trc_r1"],
        "span_id": ["toolu_1", "llm_r1"],
        "side": ["request"],
        "field": ["model", "tool", "tag"],
        "noun": ["sessions", "traces", "spans"],
    }


def addresses(ids: dict[str, list[str]]) -> list[str]:
    """All that is asked for of a tenant who has this."""
    found = []
    for path, queries in ASKED.items():
        for query in queries:
            named = sorted(set(re.findall(r"{(\w+)}", path + query)))
            for values in itertools.product(*(ids[name] for name in named)):
                found.append((path + query).format(**dict(zip(named, values, strict=True))))
    return found


@pytest.mark.row("D4")
def test_no_route_tells_a_tenant_anything_of_another(store: SqlStore) -> None:
    lived_in(store, OURS)
    api = Api(store, KEYS, bounds=UNBOUNDED)
    documented = {path for path, item in api.document()["paths"].items() if "get" in item}
    assert documented == set(ASKED) | OF_NO_LOG
    mine = ids_of(store, OURS)
    with serving(api) as client:
        client.headers.update(bearer(OURS))
        before = {path: client.get(path) for path in addresses(mine)}
        lived_in(store, THEIRS)
        theirs = ids_of(store, THEIRS)
        for path, answer in before.items():
            again = client.get(path).text
            assert not told_in(again, path, theirs), path
            if not path.startswith("/v1/audit"):  # which tells of the questions themselves
                assert of_the_log(again) == of_the_log(answer.text), path
        for path in set(addresses(theirs)) - set(before):
            assert not told_in(client.get(path).text, path, theirs), path


# Clocks of the server, and how far its numbers of changes have come.
_MOVING = re.compile(r'"(seq|now|uptime_s|started_at)":[^,}]*|tapes_(?!log)\S* \S+')


def of_the_log(text: str) -> str:
    """An answer without what changes by itself."""
    return _MOVING.sub("", text)


def told_in(text: str, path: str, theirs: dict[str, list[str]]) -> list[str]:
    """What an answer tells of another tenant, beside what its own question said."""
    for quoted in sorted(re.findall(r"[\w.-]{4,}", path), key=len, reverse=True):
        text = text.replace(quoted, "")
    secrets = (*theirs["word"], *theirs["session_id"], *theirs["gone"])
    return [one for one in secrets if one in text]
