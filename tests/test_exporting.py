import io
import json
from decimal import Decimal
from typing import Any

import pyarrow.parquet
import pytest

from tapes.derive.deriver import derive
from tapes.exporting import otlp_document, parquet_file, span_id_of, trace_id_of
from tapes.prices import Price, Prices
from tapes.rows import Projection
from tapes.seeding import sample_turns

PRICE = Prices(
    [Price(model="gpt-4o-mini", input=Decimal("0.15"), output=Decimal("0.6"))], table=False
)


@pytest.fixture(scope="module")
def rows() -> list[Projection]:
    made = derive(list(sample_turns()), PRICE)
    return [made.of_session(session.id) for session in made.sessions]


def spans_in(document: Any) -> list[Any]:
    return [s for r in document["resourceSpans"] for p in r["scopeSpans"] for s in p["spans"]]


def said(span: Any) -> dict[str, Any]:
    return {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}


def test_spans_leave_with_current_names_and_stable_ids(rows: list[Projection]) -> None:
    document = otlp_document(rows)
    assert document == otlp_document(rows)
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


def test_texts_leave_only_where_it_was_said(rows: list[Projection]) -> None:
    assert "umbrella" not in json.dumps(otlp_document(rows))
    spans = [said(s) for s in spans_in(otlp_document(rows, content=True))]
    told = [s["gen_ai.input.messages"] for s in spans if "gen_ai.input.messages" in s]
    assert any("umbrella" in text for text in told)
    assert all(json.loads(text)[0]["parts"] for text in told)


def test_what_is_unknown_is_left_out(rows: list[Projection]) -> None:
    spans = [said(s) for s in spans_in(otlp_document(rows)) if s["name"] == "chat acme-local-7b"]
    assert len(spans) == 3
    assert all("tapes.cost.total" not in s for s in spans)


def test_ids_differ_by_tenant_and_are_never_zero() -> None:
    org = "22222222-2222-4222-8222-222222222222"
    assert trace_id_of("t") != trace_id_of("t", org)
    assert span_id_of("t", "s") != span_id_of("t2", "s")


def test_a_table_of_spans_has_exact_money_and_times(rows: list[Projection]) -> None:
    out = io.BytesIO()
    parquet_file(rows, out)
    table = pyarrow.parquet.read_table(io.BytesIO(out.getvalue()))
    assert table.num_rows == sum(len(each.spans) for each in rows)
    records = table.to_pylist()
    costs = [r["cost_usd"] for r in records if r["cost_usd"]]
    assert Decimal("0.0000243") in costs
    unpriced = [r for r in records if r["model"] == "acme-local-7b"]
    assert {r["cost_usd"] for r in unpriced} == {None}
