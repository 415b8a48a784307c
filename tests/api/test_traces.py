from urllib.parse import quote

import httpx
import pytest

from tapes.store.sql import SqlStore
from tests.api.serving import got, refused, served
from tests.contracts.test_store import fill, many
from tests.derive.talks import ASK, DONE, with_thread
from tests.turns import assistant, call, chat, messages, result, said, user


@pytest.mark.row("D4")
def test_traces_of_a_session_come_by_their_start(client: httpx.Client) -> None:
    (item,) = got(client, "/v1/sessions", q="harness:claude")["items"]
    page = got(client, "/v1/traces", session_id=item["id"])
    starts = [trace["started_at"] for trace in page["items"]]
    assert (page["schema"], starts) == ("2026-06-15", sorted(starts))
    assert len(starts) == 2
    assert page["items"][0]["usage"]["cache_read_tokens"] > 0


def test_traces_of_nobody_are_404_and_of_no_uuid_400(client: httpx.Client) -> None:
    refused(client, "/v1/traces", 404, session_id="11111111-1111-4111-8111-111111111111")
    refused(client, "/v1/traces", 400, session_id="7")


def test_all_traces_come_in_pages(client: httpx.Client) -> None:
    first = got(client, "/v1/traces", limit=10, count="exact")
    rest = got(client, "/v1/traces", limit=10, cursor=first["next_cursor"])
    assert len(first["items"]) + len(rest["items"]) == first["count"]["value"] == 15


def test_traces_are_filtered(client: httpx.Client) -> None:
    found = got(client, "/v1/traces", q="status:aborted")["items"]
    assert [trace["trace_id"] for trace in found] == ["trc_sample-trouble-3"]


@pytest.mark.row("D4")
def test_a_trace_comes_with_its_spans_and_links(client: httpx.Client) -> None:
    whole = got(client, "/v1/traces/trc_sample-coding-1")
    assert len(whole["spans"]) == whole["trace"]["span_count"]
    assert [span["seq"] for span in whole["spans"]] == sorted(s["seq"] for s in whole["spans"])
    assert {link["kind"] for link in whole["links"]} >= {"emits", "feeds"}
    refused(client, "/v1/traces/trc_nobody", 404)


@pytest.mark.row("D4")
def test_a_span_comes_with_all_it_holds(client: httpx.Client) -> None:
    span = got(client, "/v1/traces/trc_sample-coding-1/spans/toolu_03")
    assert span["name"] == "Agent"
    assert span["input"][0]["tool_input"]["description"] == "Find roundings"
    assert span["output"][0]["tool_output"].startswith("Two places")
    refused(client, "/v1/traces/trc_sample-coding-1/spans/nobody", 404)


@pytest.mark.parametrize("payload", ["full", "preview", "none"])
def test_a_trace_tells_its_spans_as_a_list_of_them_does(client: httpx.Client, payload: str) -> None:
    for trace in got(client, "/v1/traces", limit=200)["items"]:
        asked = {"payload": payload}
        whole = got(client, f"/v1/traces/{trace['trace_id']}", **asked)
        listed = got(client, "/v1/spans", trace_id=trace["trace_id"], sort="seq", direction="asc",
                     limit=200, **asked)  # fmt: skip
        assert whole["trace"] == trace
        assert whole["spans"] == listed["items"]
        of_session = got(client, f"/v1/sessions/{trace['session_id']}/traces", **asked)
        mine = [each for each in of_session["traces"] if each["trace"] == trace]
        assert mine == [{"trace": trace, "spans": whole["spans"]}]


def test_a_long_trace_is_sent_while_it_is_made_and_not_again(store: SqlStore) -> None:
    asks = assistant(*(call(f"t{number}", "Bash", command="ls") for number in range(700)))
    fill(store, [messages(1, [ASK], asks)])
    with served(store) as client:
        (trace,) = got(client, "/v1/traces")["items"]
        path = f"/v1/traces/{trace['trace_id']}"
        whole = client.get(path)
        assert whole.headers["transfer-encoding"] == "chunked"
        assert len(whole.json()["spans"]) == trace["span_count"] > 700
        known = {"if-none-match": whole.headers["etag"]}
        assert client.get(path, headers=known).status_code == 304
        assert client.get(path, params={"payload": "none"}, headers=known).status_code == 200
        fill(store, [messages(2, [ASK, asks, user(result("t0", "a.txt"))], DONE)])
        again = client.get(path, headers=known)
        assert again.status_code == 200
        assert len(again.json()["spans"]) > len(whole.json()["spans"])


def test_ids_with_slashes_and_other_characters_are_found(store: SqlStore) -> None:
    odd = "a/b?c#d é"
    fill(store, [chat(1, [said("user", "hi")], "hello", request_id=odd)])
    with served(store) as client:
        trace = quote(f"trc_{odd}", safe="")
        whole = got(client, f"/v1/traces/{trace}")
        span = whole["spans"][-1]["span_id"]
        assert got(client, f"/v1/traces/{trace}/spans/{quote(span, safe='')}")["span_id"] == span


def test_spans_come_in_pages_that_stay_good(store: SqlStore) -> None:
    fill(store, many(3, 4))
    with served(store) as client:
        whole = got(client, "/v1/spans", limit=200)["items"]
        ids, cursor = [], ""
        while True:
            page = got(client, "/v1/spans", limit=7, cursor=cursor)
            ids += [(span["trace_id"], span["span_id"]) for span in page["items"]]
            cursor = page.get("next_cursor", "")
            if not cursor:
                break
        assert ids == [(span["trace_id"], span["span_id"]) for span in whole]


def test_spans_are_filtered_and_come_with_payloads_where_asked(client: httpx.Client) -> None:
    page = got(client, "/v1/spans", q="tool:Bash", payload="full", count="yes")
    assert page["count"]["value"] == len(page["items"]) == 3
    assert all(span["input"][0]["tool_input"]["command"] for span in page["items"])
    of_trace = got(client, "/v1/spans", trace_id="trc_sample-coding-1", q="type:agent")
    assert {span["kind"] for span in of_trace["items"]} == {"agent"}
    assert "input" not in of_trace["items"][0]


@pytest.mark.row("D4")
def test_a_sub_agent_is_below_the_call_that_spawned_it(store: SqlStore) -> None:
    fill(store, with_thread())
    with served(store) as client:
        (trace,) = got(client, "/v1/traces")["items"]
        spans = got(client, f"/v1/traces/{trace['trace_id']}")["spans"]
        parents = {span["span_id"]: span.get("parent_span_id") for span in spans}
        assert parents["agent_a"] == "t9"
        assert parents["llm_r2"] == "agent_a"
