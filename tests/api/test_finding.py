import httpx
import pytest

from tapes.store.base import Noun
from tapes.store.fields import FIELDS
from tapes.store.sql import SqlStore
from tests.api.serving import got, refused, served
from tests.contracts.test_store import fill
from tests.turns import chat, said


@pytest.mark.parametrize(
    ("asked", "answer"),
    [("بالعالم", "مرحبا بالعالم"), ("天気", "今日は天気がいい"), ("cafe", "naïve café"),
     ("café", "naïve café"), ("cafe\u0301", "naïve café")],
)  # fmt: skip
def test_words_are_found_in_every_script(store: SqlStore, asked: str, answer: str) -> None:
    texts = ("مرحبا بالعالم", "今日は天気がいい", "naïve café")
    turns = [chat(n, [said("user", "say it")], t, session=f"s{n}") for n, t in enumerate(texts, 1)]
    fill(store, turns)
    with served(store) as client:
        (hit,) = got(client, "/v1/search", q=asked)["items"]
        (excerpt,) = hit["excerpts"]
        assert excerpt["text"] == answer
        ((begin, end),) = excerpt["places"]
        assert answer[begin:end]


def test_prompts_come_first_and_pages_go_on(store: SqlStore) -> None:
    turns = [chat(n, [said("user", "ask")], "widget", session=f"a{n}") for n in range(1, 5)]
    turns += [chat(n, [said("user", "widget")], "no", session=f"b{n}") for n in range(5, 9)]
    fill(store, turns)
    with served(store) as client:
        first = got(client, "/v1/search", q="widget", limit=5)
        rest = got(client, "/v1/search", q="widget", limit=5, cursor=first["next_cursor"])
        in_prompt = [hit["in_prompt"] for hit in first["items"] + rest["items"]]
        assert in_prompt == [True] * 4 + [False] * 4


def test_digits_that_are_no_numbers_are_texts(store: SqlStore) -> None:
    with served(store) as client:
        assert got(client, "/v1/find", id="\u00b2")["items"] == []
        assert refused(client, "/v1/search", 400, q="x", cursor="0.\u00b2")["code"] == "bad-cursor"


@pytest.mark.parametrize("q", ["", "   ", "(", '"open', "!!!", "colour:red"])
def test_a_search_that_cannot_be_read_is_an_error(client: httpx.Client, q: str) -> None:
    assert refused(client, "/v1/search", 400, q=q)["code"] == "bad-query"


def test_a_search_with_nothing_said_is_an_error(client: httpx.Client) -> None:
    assert refused(client, "/v1/search", 400)["code"] == "bad-request"


@pytest.mark.parametrize(
    ("text", "noun"),
    [("toolu_03", "spans"), ("sample-weather-live-1", "turns"), ("trc_sample-coding-1", "traces"),
     ("5a3c9f1e-7d42", "sessions"), ("chatcmpl-n1", "spans")],
)  # fmt: skip
def test_any_id_finds_its_thing(client: httpx.Client, text: str, noun: str) -> None:
    found = got(client, "/v1/find", id=f" {text} ")["items"]
    assert noun in {item["noun"] for item in found}


def test_a_session_is_found_by_the_first_digits_of_its_id(client: httpx.Client) -> None:
    session = got(client, "/v1/sessions")["items"][0]["id"]
    (found,) = got(client, "/v1/find", id=session[:8])["items"]
    assert (found["id"], found["whole"]) == (session, False)


def test_facets_complete_what_is_typed(client: httpx.Client) -> None:
    models = got(client, "/v1/facets/model", begins="gpt")
    assert [(m["value"], m["sessions"]) for m in models["items"]] == [
        ("gpt-4o-mini", 2),
        ("gpt-4o", 1),
    ]
    assert "tag" in refused(client, "/v1/facets/colour", 400)["remedy"]
    for name in got(client, "/v1/fields")["facets"]:
        got(client, f"/v1/facets/{name}")


def test_fields_are_those_of_the_store(client: httpx.Client) -> None:
    fields = got(client, "/v1/fields")
    for noun in Noun:
        assert set(fields[noun.value]["fields"]) == {*FIELDS[noun], "meta."}


@pytest.mark.row("D4")
def test_stats_add_up_what_the_lists_show(client: httpx.Client) -> None:
    stats = got(client, "/v1/stats")
    traces = got(client, "/v1/traces", limit=200)["items"]
    assert (stats["session_count"], stats["turn_count"]) == (6, len(traces))
    known = [t["usage"]["input_tokens"] for t in traces if t["usage"]["input_tokens"] is not None]
    assert stats["input_tokens"] == sum(known)
    costs = [t["usage"]["cost_usd"] for t in traces if t["usage"]["cost_usd"] is not None]
    assert costs == [0.0]  # of what a tape answered; no other has a price
    assert stats["total_cost"] == sum(costs)
    assert stats["unpriced_calls"] == sum(t["unpriced_calls"] for t in traces)
    assert got(client, "/v1/stats", since="2099-01-01T00:00:00Z")["turn_count"] == 0
    refused(client, "/v1/stats", 400, until="soon")


def test_a_histogram_counts_every_row_once(client: httpx.Client) -> None:
    for noun in ("sessions", "traces", "spans"):
        found = got(client, f"/v1/histogram/{noun}", parts=7)
        counted = got(client, f"/v1/{noun}", count="exact")["count"]["value"]
        assert sum(bar["rows"] for bar in found["bars"]) == counted
        assert len(found["bars"]) <= 7


def test_a_histogram_of_spans_does_not_count_as_spent_what_a_tape_answered(
    client: httpx.Client,
) -> None:
    [bar] = got(client, "/v1/histogram/spans", q="outcome:replayed", parts=1)["bars"]
    assert bar["cost_usd"] == 0


def test_a_histogram_follows_the_filter(client: httpx.Client) -> None:
    found = got(client, "/v1/histogram/sessions", q="has:tool_error")
    assert [(bar["rows"], bar["failed"]) for bar in found["bars"]] == [(1, 1)]
    nothing = got(client, "/v1/histogram/sessions", q="tag:none-of-them")
    assert (nothing["since"], nothing["bars"]) == (None, [])
    refused(client, "/v1/histogram/turns", 400)
