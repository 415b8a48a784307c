"""The document of all services as tools of others read it: what it promises is what is answered."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from openapi_spec_validator import validate
from schemathesis import checks as known

from tapes.services.host import Setup
from tapes.services.mounting import in_front_of
from tapes.services.sources import Listed
from tests.services.hosting import ask, until
from tests.services.test_examples import RUNS, example
from tests.services.test_mounting import application, served
from tests.strategies import examples

# A service may have routes that its document does not name, so what is not documented is its own.
CHECKS = [
    known.not_a_server_error,
    known.status_code_conformance,
    known.content_type_conformance,
    known.response_schema_conformance,
]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with (
        example("hello-world/service.py", RUNS) as (hello, _),
        example("mcp-tool/service.py", RUNS) as (tool, _),
    ):
        own = application([])
        app = in_front_of(own, own.openapi, Setup(sources=Listed((hello, tool), "test")))
        with served(app) as port:
            until(lambda: len(app.host.registry.snapshot.services) == 2)
            yield f"http://127.0.0.1:{port}"


@pytest.mark.row("C4", "C6")
def test_an_independent_validator_accepts_it(address: str) -> None:
    port = int(address.rpartition(":")[2])
    merged = json.loads(ask(port, "GET", "/openapi").body)
    validate(merged)
    assert {
        "/v1/sessions", "/v1/mcp", "/v1/cassettes/hello-world/hello",
        "/v1/cassettes/mcp-tool/ping",
    } <= set(merged["paths"])  # fmt: skip


@pytest.mark.row("C6", "C7")
def test_every_documented_operation_answers_as_it_is_documented(address: str) -> None:
    schema = schemathesis.openapi.from_url(f"{address}/openapi")
    tried = set()
    for found in schema.get_all_operations():
        operation = found.ok()  # an error raises here, and fails
        tried.add(operation.label)

        @settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def answers(case: schemathesis.Case) -> None:
            case.call_and_validate(base_url=address, checks=CHECKS)

        answers()
    assert len(tried) >= 10, tried


def test_the_pages_document_is_read_as_a_file_too(address: str, tmp_path: Path) -> None:
    file = tmp_path / "openapi.json"
    port = int(address.rpartition(":")[2])
    file.write_bytes(ask(port, "GET", "/v1/cassettes/hello-world/openapi.json").body)
    operations = schemathesis.openapi.from_path(file).get_all_operations()
    labels = {found.ok().label for found in operations}  # as above
    assert labels == {
        "GET /v1/cassettes/hello-world/hello", "POST /v1/cassettes/hello-world/hello",
    }  # fmt: skip
