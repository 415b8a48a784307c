import io
import json
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from tapes.cli.exporting import brought
from tapes.errors import BadQuery
from tapes.exporting import Export, Form, sessions_found, span_id_of, trace_id_of
from tapes.jsontext import Json
from tapes.prices import Price, Prices
from tapes.projector import Projector
from tapes.rows import NO_ORG, Span, SpanKind
from tapes.seeding import seed
from tapes.store.base import Project
from tapes.store.filters import EVERYTHING
from tapes.store.sql import SqlStore
from tapes.store.sqlite import open_sqlite
from tests.contracts.test_store import fill
from tests.turns import chat, raw_turn
from tests.turns import said as message

PRICE = Prices(
    [Price(model="gpt-4o-mini", input=Decimal("0.15"), output=Decimal("0.6"))], table=False
)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The sample sessions, changed by no test."""
    store = open_sqlite(tmp_path_factory.mktemp("log") / "tapes.db")
    seed(store)
    Projector(store, price=PRICE).drain()
    yield store.project()
    store.close()


def exported(log: Project, form: Form, *, content: bool = False) -> bytes:
    export = Export(log, form, content=content)
    return b"".join(export.pieces(sessions_found(log, EVERYTHING)))


def document_of(log: Project, *, content: bool = False) -> Any:
    return json.loads(exported(log, Form.OTLP, content=content))


def spans_in(document: Any) -> list[Any]:
    return [s for r in document["resourceSpans"] for p in r["scopeSpans"] for s in p["spans"]]


def said(span: Any) -> dict[str, Any]:
    return {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}


def test_spans_leave_with_current_names_and_stable_ids(log: Project) -> None:
    document = document_of(log)
    assert document == document_of(log)
    spans = spans_in(document)
    ids = [(s["traceId"], s["spanId"]) for s in spans]
    assert len(set(ids)) == len(ids)
    by_id = dict(zip(ids, spans, strict=True))
    for span in spans:
        assert (len(span["traceId"]), len(span["spanId"])) == (32, 16)
        assert int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"])
        if "parentSpanId" in span:
            assert (span["traceId"], span["parentSpanId"]) in by_id
    chat = next(said(s) for s in spans if s["name"] == "chat gpt-4o-mini")
    assert chat["gen_ai.operation.name"] == "chat"
    assert chat["gen_ai.usage.input_tokens"] == "86"
    assert chat["tapes.cost.total"] == "0.0000243"


def test_texts_leave_only_where_it_was_said(log: Project) -> None:
    assert "umbrella" not in json.dumps(document_of(log))
    spans = [said(s) for s in spans_in(document_of(log, content=True))]
    told = [s["gen_ai.input.messages"] for s in spans if "gen_ai.input.messages" in s]
    assert any("umbrella" in text for text in told)
    assert all(json.loads(text)[0]["parts"] for text in told)


def test_what_is_unknown_is_left_out(log: Project) -> None:
    spans = [said(s) for s in spans_in(document_of(log)) if s["name"] == "chat acme-local-7b"]
    assert len(spans) == 3
    assert all("tapes.cost.total" not in s for s in spans)


def test_ids_differ_by_tenant_and_are_never_zero() -> None:
    org = "22222222-2222-4222-8222-222222222222"
    assert trace_id_of("t") != trace_id_of("t", org)
    assert span_id_of("t", "s") != span_id_of("t2", "s")


def test_a_table_of_spans_has_exact_money_and_times(log: Project) -> None:
    table = pyarrow.parquet.read_table(io.BytesIO(exported(log, Form.PARQUET)))
    sessions = sessions_found(log, EVERYTHING)
    assert table.num_rows == sum(len(log.rows_of_session(each.id).spans) for each in sessions)
    records = table.select(["cost_usd", "model"]).to_pylist()
    costs = [r["cost_usd"] for r in records if r["cost_usd"]]
    assert Decimal("0.0000243") in costs
    unpriced = [r for r in records if r["model"] == "acme-local-7b"]
    assert {r["cost_usd"] for r in unpriced} == {None}


@pytest.mark.parametrize("form", Form)
def test_what_went_is_given_on_before_the_rest_is_read(tmp_path: Path, form: Form) -> None:
    store = open_sqlite(tmp_path / "tapes.db")
    long = "word " * 300_000
    fill(store, [chat(n, [message("user", long)], long, session=f"s{n}") for n in range(1, 13)])
    project = store.project()
    export = Export(project, form, content=True)
    pieces = export.pieces(sessions_found(project, EVERYTHING))
    begin = next(pieces)
    assert export.sessions < 7
    rest = list(pieces)
    assert (export.sessions, rest != []) == (12, True)
    assert max(map(len, [begin, *rest])) < 10_000_000
    store.close()


@pytest.mark.parametrize("form", Form)
def test_nothing_is_a_file_too(tmp_path: Path, form: Form) -> None:
    store = open_sqlite(tmp_path / "tapes.db")
    written = exported(store.project(), form)
    match form:
        case Form.JSONL:
            assert written == b""
        case Form.OTLP:
            assert json.loads(written) == {"resourceSpans": []}
        case Form.PARQUET:
            assert pyarrow.parquet.read_table(io.BytesIO(written)).num_rows == 0
    store.close()


def test_a_form_that_is_none_names_those_that_there_are() -> None:
    with pytest.raises(BadQuery) as refused:
        Form.named("csv")
    assert "jsonl, otlp, parquet" in refused.value.remedy


def test_what_a_request_and_a_session_say_travels_too(tmp_path: Path) -> None:
    asks: dict[str, Json] = {"temperature": 0.5, "max_tokens": 7, "stop": ["END"]}
    about: dict[str, Json] = {"name": "a talk", "cwd": "/there", "auth_subject": "me"}
    about |= {"harness_version": "9", "harness_metadata": {"tags": ["own"]}}
    one, two = (open_sqlite(tmp_path / name) for name in ("a.db", "b.db"))
    with closing(one), closing(two):
        fill(one, [chat(1, [message("user", "hi")], "yes", asks=asks, **about)])
        bare, whole = (exported(one.project(), Form.OTLP, content=c) for c in (False, True))
        (told,) = (t for t in map(said, spans_in(json.loads(whole))) if "gen_ai.request.model" in t)
        assert told["gen_ai.request.temperature"] == 0.5
        assert told["gen_ai.request.max_tokens"] == "7"
        assert "temperature" not in bare.decode()
        assert not [word for word in ("END", "a talk", "/there", "own") if word in bare.decode()]
        (tmp_path / "a.json").write_bytes(whole)
        brought(two, (str(tmp_path / "a.json"),), NO_ORG)
        Projector(two).drain()
        (here,), (there,) = (store.project().sessions().items for store in (one, two))
    for name in about:
        assert getattr(there.session, name) == getattr(here.session, name), name


def test_every_choice_of_an_answer_leaves_and_comes_back(tmp_path: Path) -> None:
    choices: list[Json] = [
        {"index": n, "message": message("assistant", text), "finish_reason": reason}
        for n, (text, reason) in enumerate([("A", "stop"), ("B", "length")])
    ]
    asked: Json = {"model": "m", "n": 2, "messages": [message("user", "hi")]}
    one, two = (open_sqlite(tmp_path / name) for name in ("a.db", "b.db"))
    with closing(one), closing(two):
        turn = raw_turn(1, "/v1/chat/completions", asked, {"id": "c", "choices": choices})
        fill(one, [turn])
        whole = exported(one.project(), Form.OTLP, content=True)
        (told,) = (t for t in map(said, spans_in(json.loads(whole))) if "gen_ai.request.model" in t)
        assert [m["parts"][0]["content"] for m in json.loads(told["gen_ai.output.messages"])] == [
            "A",
            "B",
        ]
        (tmp_path / "a.json").write_bytes(whole)
        brought(two, (str(tmp_path / "a.json"),), NO_ORG)
        Projector(two).drain()
        (here,), (there,) = (llm_spans(store) for store in (one, two))
    assert (
        here.output
        == there.output
        == (
            {"type": "text", "text": "A"},
            {"type": "text", "text": "B", "choice": 1, "stop_reason": "length"},
        )
    )


def test_names_and_tool_calls_that_left_come_back_and_leave_again_unchanged(
    log: Project, tmp_path: Path
) -> None:
    whole = exported(log, Form.OTLP, content=True)
    (tmp_path / "a.json").write_bytes(whole)
    with closing(open_sqlite(tmp_path / "b.db")) as store:
        brought(store, (str(tmp_path / "a.json"),), NO_ORG)
        Projector(store).drain()
        again = exported(store.project(), Form.OTLP, content=True)
    assert named(json.loads(again)) == named(json.loads(whole))


def named(document: Any) -> dict[str, tuple[Any, ...]]:
    """What each span is called, and the call that a tool answered, by the span's id."""
    return {
        span["spanId"]: (
            span["name"],
            said(span).get("gen_ai.tool.call.id"),
            said(span).get("gen_ai.agent.name"),
        )
        for span in spans_in(document)
    }


def llm_spans(store: SqlStore) -> list[Span]:
    (session,) = store.project().sessions().items
    rows = store.project().rows_of_session(session.session.id)
    return [span for span in rows.spans if span.kind is SpanKind.LLM]
