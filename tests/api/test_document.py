"""The document says what the routes do: a fuzzer made from it finds nothing else."""

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tapes.store.sql import SqlStore
from tests.api.serving import got, seeded, served
from tests.strategies import examples

SEED = settings(
    max_examples=examples(40),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# Endless, or a change to what the other requests look at.
LEFT_OUT = ("/v1/changes/stream",)


def schema_of(document: Any, path: str, status: str = "200") -> Any:
    operation = document["paths"][path]["get"]
    content = operation["responses"][status]["content"]["application/json"]["schema"]
    return {**content, "components": document["components"]}


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("/v1/sessions", "/v1/sessions?count=yes"), ("/v1/traces", "/v1/traces"),
        ("/v1/spans", "/v1/spans?payload=full"), ("/v1/turns", "/v1/turns"),
        ("/v1/search", "/v1/search?q=umbrella"), ("/v1/find", "/v1/find?id=toolu_03"),
        ("/v1/fields", "/v1/fields"), ("/v1/stats", "/v1/stats"), ("/v1/status", "/v1/status"),
        ("/v1/changes", "/v1/changes"), ("/v1/audit", "/v1/audit"),
        ("/v1/retention", "/v1/retention"), ("/v1/facets/{field}", "/v1/facets/tool"),
        ("/v1/traces/{trace_id}", "/v1/traces/trc_sample-coding-1"),
        ("/v1/traces/{trace_id}/spans/{span_id}",
         "/v1/traces/trc_sample-coding-1/spans/toolu_01"),
        ("/v1/turns/{turn_id}", "/v1/turns/1"), ("/healthz", "/healthz"), ("/readyz", "/readyz"),
        ("/ping", "/ping"),
    ],
)  # fmt: skip
@pytest.mark.row("D4")
def test_answers_are_what_the_document_says(client: httpx.Client, path: str, url: str) -> None:
    schema = schema_of(got(client, "/openapi"), path)
    Draft202012Validator(closed(schema)).validate(got(client, url))


def closed(schema: Any) -> Any:
    """The schema, which then takes no member that it does not name."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: closed(value) for name, value in schema.items()}
    if "properties" in inner and "additionalProperties" not in inner:
        inner["additionalProperties"] = False
    return inner


def test_a_session_is_what_the_document_says(client: httpx.Client) -> None:
    document = got(client, "/openapi")
    for item in got(client, "/v1/sessions")["items"]:
        path = f"/v1/sessions/{item['id']}"
        for below in ("", "/traces", "/raw_turns"):
            schema = schema_of(document, "/v1/sessions/{session_id}" + below)
            Draft202012Validator(closed(schema)).validate(got(client, path + below))


def test_no_request_that_the_document_allows_breaks_its_word(store: SqlStore) -> None:
    with served(seeded(store)) as client:
        document = got(client, "/openapi")
        schema = schemathesis.openapi.from_dict(document)
        for result in schema.get_all_operations():
            operation: Any = result.ok()  # ours can be read
            if operation.path in LEFT_OUT:
                continue
            fuzz(client, operation)


# A language, and fields that need each other, say more than a schema can: they refuse some words.
def fuzz(client: httpx.Client, operation: Any) -> None:
    @SEED
    @given(st.data())
    def once(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy())
        answer = case.call(base_url=str(client.base_url).rstrip("/"))
        case.validate_response(answer, excluded_checks=[positive_data_acceptance])

    once()
