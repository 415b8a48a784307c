import json
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapes.api.sessions import Told
from tapes.projector import Projector
from tapes.rows import Session, time_text
from tapes.store.base import Listed
from tapes.store.sql import SqlStore
from tests.api.serving import got, refused, seeded, served
from tests.contracts.test_store import fill, many
from tests.strategies import examples
from tests.turns import Message, assistant, at, call, chat, messages, result, said, user


def titles(page: Any) -> list[str]:
    return [item["display_title"] for item in page["items"]]


def session_of(client: httpx.Client, harness: str) -> Any:
    (item,) = got(client, "/v1/sessions", q=f"harness:{harness}")["items"]
    return item


@pytest.mark.row("D4")
def test_the_list_has_the_shape_that_clients_know(client: httpx.Client) -> None:
    page = got(client, "/v1/sessions")
    assert len(page["items"]) == 6
    item = session_of(client, "claude")
    assert item["harness_session_id"] == "5a3c9f1e-7d42-4c08-9b6a-2f8e1d0c7b35"
    assert item["cwd"] == "/home/ada/shop"
    assert item["display_title"].startswith("The invoice test fails")
    rollup = item["rollup"]
    assert rollup["turn_count"] == 2
    assert rollup["kind_counts"]["main"] == 8
    assert rollup["tool_error_count"] == 1
    assert rollup["has_git_activity"] is True
    assert [usage["model"] for usage in rollup["model_usage"]]


def test_what_is_unknown_is_null_and_what_is_nothing_is_left_out(client: httpx.Client) -> None:
    item = session_of(client, "translator")
    assert item["rollup"]["usage"]["cost_usd"] is None
    assert item["rollup"]["unpriced_calls"] == 3
    assert "cwd" not in item
    assert "parent_session_id" not in item


@pytest.mark.parametrize(
    ("sort", "first"),
    [("last_active", "claude"), ("turn_count", "demo"), ("started_at", "claude")],
)
def test_sessions_are_sorted_as_asked(client: httpx.Client, sort: str, first: str) -> None:
    down = got(client, "/v1/sessions", sort=sort)["items"]
    up = got(client, "/v1/sessions", sort=sort, direction="asc")["items"]
    assert down[0]["harness_id"] == first
    assert [item["id"] for item in up][-1] == down[0]["id"]


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"}, {"limit": "-1"}, {"limit": "ten"}, {"sort": "colour"},
        {"direction": "up"}, {"cursor": "nonsense"}, {"since": "yesterday"}, {"count": "maybe"},
        {"harness_id": "claude"}, {"harness_session_id": "x", "sort": "started_at"},
        {"q": "("}, {"q": "colour:red"}, {"q": "tokens:many"}, {"q": '"open'}, {"q": "\x00"},
        {"q": "x" * 5000},
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_read_is_a_400(client: httpx.Client, query: dict[str, str]) -> None:
    refused(client, "/v1/sessions", 400, **query)


@pytest.mark.row("D4")
def test_a_bad_query_says_where(client: httpx.Client) -> None:
    problem = refused(client, "/v1/sessions", 400, q="umbrella colour:red")
    assert (problem["code"], problem["position"]) == ("bad-query", 9)
    assert "harness" in problem["remedy"]


def test_a_limit_above_the_most_is_the_most(client: httpx.Client) -> None:
    assert len(got(client, "/v1/sessions", limit=10**30)["items"]) == 6


def test_filters_and_words_narrow_the_list(client: httpx.Client) -> None:
    assert len(got(client, "/v1/sessions", q="has:error")["items"]) == 1
    assert len(got(client, "/v1/sessions", q="model:gpt-4o-mini umbrella")["items"]) == 2
    assert len(got(client, "/v1/sessions", q="meta.team:checkout")["items"]) == 1
    assert got(client, "/v1/sessions", q="replayed:>0", count="yes")["count"] == {
        "value": 1,
        "exact": True,
    }


@pytest.mark.parametrize("limit", [1, 50])
def test_a_number_is_that_of_the_list_that_was_asked_for(client: httpx.Client, limit: int) -> None:
    every = got(client, "/v1/sessions", count="yes")
    starts = sorted(item["started_at"] for item in every["items"])
    since = got(client, "/v1/sessions", since=starts[-2], count="exact", limit=limit)
    assert since["count"] == {"value": 2, "exact": True}
    until = got(client, "/v1/sessions", until=starts[2], count="yes", limit=limit)
    assert until["count"] == {"value": 2, "exact": True}
    assert every["count"]["value"] == 6


def test_a_session_is_found_by_what_its_harness_calls_it(client: httpx.Client) -> None:
    found = got(client, "/v1/sessions", harness_session_id="phrasebook")["items"]
    assert [item["harness_id"] for item in found] == ["translator"]
    asked = {"harness_id": "other", "harness_session_id": "phrasebook"}
    assert got(client, "/v1/sessions", **asked)["items"] == []


def test_since_and_until_ask_for_a_trace_that_began_then(store: SqlStore) -> None:
    fill(store, [chat(1, [said("user", "one")], "x"), chat(2, [said("user", "two")], "y")])
    with served(store) as client:
        window = {"since": time_text(at(15)), "until": time_text(at(25))}
        assert len(got(client, "/v1/sessions", **window)["items"]) == 1
        window = {"since": time_text(at(25))}
        assert got(client, "/v1/sessions", **window)["items"] == []
        far = {"since": "2262-01-01T00:00:00Z", "until": "1970-01-01T00:00:00Z"}
        assert got(client, "/v1/sessions", **far)["items"] == []


def pages(client: httpx.Client, **query: Any) -> list[str]:
    ids, cursor = [], ""
    while True:
        page = got(client, "/v1/sessions", cursor=cursor, **query)
        ids += [item["id"] for item in page["items"]]
        cursor = page.get("next_cursor", "")
        if not cursor:
            return ids


@pytest.mark.row("D4")
def test_pages_together_are_the_list(store: SqlStore) -> None:
    fill(store, many(11, 1))
    with served(store) as client:
        whole = pages(client)
        assert len(whole) == len(set(whole)) == 11
        for sort in ("total_tokens", "derived_status", "total_cost_usd"):
            assert sorted(pages(client, limit=3, sort=sort)) == sorted(whole)
        assert pages(client, limit=4) == whole


@pytest.mark.row("D4")
def test_pages_stay_good_while_rows_arrive(store: SqlStore) -> None:
    fill(store, many(9, 1))
    with served(store) as client:
        before = pages(client)
        first = got(client, "/v1/sessions", limit=4)
        fill(store, [chat(99, [said("user", "new")], "x", session="new", begins=5000)])
        rest = pages(client, limit=4)[4:]
        after = got(client, "/v1/sessions", limit=200, cursor=first["next_cursor"])
        assert [item["id"] for item in after["items"]] == before[4:]
        assert set(rest) <= set(before)
        changed = got(client, "/v1/changes", after=first["seq"])["items"]
        assert len(changed) == 1


# --- one --------------------------------------------------------------------------------------


def test_an_unknown_session_is_404_and_no_uuid_is_400(client: httpx.Client) -> None:
    nobody = "11111111-1111-4111-8111-111111111111"
    for below in ("", "/traces", "/raw_turns"):
        refused(client, f"/v1/sessions/{nobody}{below}", 404)
        refused(client, f"/v1/sessions/17{below}", 400)


def test_people_name_tag_and_pin_sessions(store: SqlStore) -> None:
    fill(store, many(1, 1))
    with served(store) as client:
        (item,) = got(client, "/v1/sessions")["items"]
        path = f"/v1/sessions/{item['id']}"
        patch = {"display_name": "  Ada's  ", "add_tags": ["b", "a"], "pinned": True}
        named = client.patch(path, json=patch).json()["session"]
        assert named["display_name"] == named["display_title"] == "Ada's"
        assert (named["tags"], named["pinned"]) == (["a", "b"], True)
        assert got(client, "/v1/sessions", q="tag:a pinned:yes")["items"][0]["id"] == item["id"]
        patch = {"display_name": None, "remove_tags": ["a"], "pinned": False}
        after = client.patch(path, json=patch).json()["session"]
        assert "display_name" not in after
        assert (after["tags"], after["pinned"]) == (["b"], False)
        acted = [entry["action"] for entry in got(client, "/v1/audit")["items"]]
        assert len(acted) >= 4


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b"{", b'{"display_name": 1}', b'{"colour": "red"}',
             b'{"display_name": "' + b"x" * 201 + b'"}', b'{"add_tags": [""]}'],
)  # fmt: skip
def test_a_patch_that_cannot_be_read_changes_nothing(client: httpx.Client, body: bytes) -> None:
    item = session_of(client, "demo")
    headers = {"content-type": "application/json"}
    answer = client.patch(f"/v1/sessions/{item['id']}", content=body, headers=headers)
    assert answer.status_code == 400
    assert session_of(client, "demo") == item


def test_deleting_erases_and_says_where_to_read_what_went(store: SqlStore) -> None:
    seeded(store)
    with served(store) as client:
        item = session_of(client, "translator")
        path = f"/v1/sessions/{item['id']}"
        planned = client.delete(path, params={"dry_run": True}).json()
        assert (planned["state"], planned["turns"]) == ("planned", 3)
        assert got(client, path)
        answer = client.delete(path, params={"reason": "asked for"})
        assert (answer.status_code, answer.content) == (204, b"")
        went = got(client, answer.headers["location"])
        assert (went["turns"], went["reason"]) == (3, "asked for")
        refused(client, path, 404)
        assert client.delete(path).status_code == 404
        assert got(client, "/v1/search", q="天気")["items"] == []
        Projector(store).drain()
        assert got(client, "/v1/sessions", q="harness:translator")["items"] == []


def test_deleting_says_what_was_erased_to_who_prefers_that(store: SqlStore) -> None:
    seeded(store)
    with served(store) as client:
        item = session_of(client, "translator")
        prefer = {"prefer": "return=representation"}
        answer = client.delete(f"/v1/sessions/{item['id']}", headers=prefer)
        assert (answer.status_code, answer.json()["sessions"]) == (200, 1)


# --- below ------------------------------------------------------------------------------------


@pytest.mark.row("D4")
def test_a_session_comes_with_its_traces_spans_and_links(client: httpx.Client) -> None:
    item = session_of(client, "claude")
    whole = got(client, f"/v1/sessions/{item['id']}/traces")
    assert whole["schema"] == "2026-06-15"
    assert whole["session"]["id"] == item["id"]
    first, second = whole["traces"]
    assert first["trace"]["started_at"] < second["trace"]["started_at"]
    assert len(first["spans"]) == first["trace"]["span_count"]
    by_id = {span["span_id"]: span for span in first["spans"]}
    helper = next(s for s in first["spans"] if s["kind"] == "agent" and s["thread_id"])
    assert helper["parent_span_id"] == "toolu_03"
    assert by_id["toolu_01"]["status"] == "error"
    assert whole["links"]


def test_previews_cut_long_texts_and_none_leaves_them_out(store: SqlStore) -> None:
    long = "word " * 500
    fill(store, [chat(1, [said("user", long)], long)])
    with served(store) as client:
        (item,) = got(client, "/v1/sessions")["items"]
        path = f"/v1/sessions/{item['id']}/traces"
        full, preview, none = (
            next(
                span
                for span in got(client, path, payload=payload)["traces"][0]["spans"]
                if span["kind"] == "llm"
            )
            for payload in ("whatever", "preview", "none")
        )
        assert full["input"][0]["text"] == long
        assert "payload" not in full
        assert preview["input"][0]["text"] == long[:512] + "…"
        assert preview["payload"] == "preview"
        assert "input" not in none
        assert none["payload"] == "none"


def test_previews_say_of_pictures_what_they_are_and_leave_them_out(store: SqlStore) -> None:
    held = "aGVsbG8=" * 500
    shown: Message = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{held}"}}
    seen = result("toolu_1", "")
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": held}}
    seen["content"] = [{"type": "text", "text": "word " * 500}, image]
    called = assistant("I look", call("toolu_1", "Look"))
    turns = [
        chat(1, [{"role": "user", "content": [shown]}], "red"),
        messages(2, [user("look")], called, session="other"),
        messages(3, [user("look"), called, user(seen)], assistant("red"), session="other"),
    ]
    fill(store, turns)
    with served(store) as client:
        paths = [
            f"/v1/sessions/{item['id']}/traces" for item in got(client, "/v1/sessions")["items"]
        ]
        spans = [
            span
            for path in paths
            for trace in got(client, path, payload="preview")["traces"]
            for span in trace["spans"]
        ]
    assert held not in json.dumps(spans)
    [asked] = [block for span in spans for block in span["input"] if block["type"] == "image"]
    assert asked == {"type": "image", "media_type": "image/png"}
    [tool] = [span for span in spans if span["kind"] == "tool"]
    assert tool["output"][0]["content"][1]["source"]["media_type"] == "image/png"


@pytest.mark.row("D4")
def test_raw_turns_of_a_session_come_in_the_order_of_arrival(store: SqlStore) -> None:
    fill(store, many(1, 7))
    with served(store) as client:
        (item,) = got(client, "/v1/sessions")["items"]
        path = f"/v1/sessions/{item['id']}/raw_turns"
        turns = got(client, path)["items"]
        assert [turn["request_id"] for turn in turns] == [f"0-{n}" for n in range(7)]
        first = got(client, path, limit=3)
        rest = got(client, path, limit=5, cursor=first["next_cursor"])
        assert first["items"] + rest["items"] == turns
        assert "next_cursor" not in rest


# --- hostile queries --------------------------------------------------------------------------

NAMES = ("q", "limit", "sort", "direction", "since", "until", "cursor", "count", "auth_subject")
PARTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["tokens:>", "cost:", "duration:", "since:", "id:", "-", "(", ")", "OR", '"', "has:error",
         "9" * 40, "1e999", "NaN", "-1", "9999-12-31", "24h", "99999999999d", "%", "_", "'", ";--",
         "meta.a.b:", "tag:", "..", "*", "\ud7ff", "\u202e"]
    ),
)  # fmt: skip


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.dictionaries(st.sampled_from(NAMES), st.lists(PARTS, max_size=5).map("".join)))
def test_no_query_makes_the_server_fail(client: httpx.Client, query: dict[str, str]) -> None:
    for path in ("/v1/sessions", "/v1/traces", "/v1/spans", "/v1/turns"):
        answer = client.get(path, params=query)
        assert answer.status_code in (200, 400), answer.text


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(PARTS, min_size=1, max_size=5).map("".join))
def test_no_search_makes_the_server_fail(client: httpx.Client, text: str) -> None:
    for path, name in (("/v1/search", "q"), ("/v1/find", "id"), ("/v1/facets/model", "begins")):
        answer = client.get(path, params={name: text})
        assert answer.status_code in (200, 400), answer.text


def test_an_item_says_whether_its_session_lives_as_of_each_answer() -> None:
    told = Told(2)
    ids = [f"{n:08d}-0000-4000-8000-000000000000" for n in range(5)]
    lists = [Listed(Session(id=each, last_seen_at=1_000)) for each in ids]
    for moment, lives in ((2_000, True), (10**15, False), (-(10**15), False), (2_000, True)):
        items = orjson.loads(orjson.dumps(told.items_of(lists, moment)))
        assert [item["id"] for item in items] == ids
        assert {item["live"] for item in items} == {lives}


def test_a_body_that_does_not_say_that_it_is_json_is_told_to(client: httpx.Client) -> None:
    path = f"/v1/sessions/{session_of(client, 'claude')['id']}"
    as_curl_does = {"content-type": "application/x-www-form-urlencoded"}
    answer = client.patch(path, content=b'{"pinned": true}', headers=as_curl_does)
    assert answer.status_code == 400
    assert answer.json()["remedy"].endswith("content-type: application/json")
    wrong = client.patch(path, json={"tags": ["x"]}).json()
    assert "remedy" not in wrong or "content-type" not in wrong["remedy"]


@pytest.mark.parametrize("path", ["sessions", "traces", "spans", "turns", "search"])
def test_a_list_says_which_parameter_it_ignored(client: httpx.Client, path: str) -> None:
    page = got(client, f"/v1/{path}", q="umbrella" if path == "search" else "", model="gpt-4o")
    (remark,) = page["remarks"]
    assert "'model' is no parameter" in remark
    assert "remarks" not in got(client, f"/v1/{path}", q="umbrella", limit="3")
