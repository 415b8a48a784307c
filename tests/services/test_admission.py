import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from openapi_spec_validator.schemas import openapi_v30_schema_validator

from tapes.errors import RefusedService
from tapes.services import manifest
from tapes.services.admission import MAX_BYTES, Service, admit
from tapes.services.compiling import SECTIONS
from tapes.services.openapi import aggregate, is_inside, leads_out
from tapes.services.problems import Stage
from tests.strategies import examples

from .making import ANSWER, SOURCE, admitted, document, manifest_tree, refused, text

Json = Any
EVERYTHING = (
    Path(__file__).parent.parent / "data" / "services" / "everything.openapi.json"
).read_text()
# What the reference admits and this host refuses on purpose, and why.
REFUSED_ON_PURPOSE = {
    "dot segments in a documented path": "its public path leads out of the service's own prefix",
}


def outcome(data: bytes, contracts: Any = ("v1",)) -> Service | RefusedService:
    try:
        return admit(data, SOURCE, contracts)
    except RefusedService as error:
        return error


# --- what a service is ------------------------------------------------------------------------


@pytest.mark.row("C3")
def test_a_service_holds_all_that_the_host_needs() -> None:
    service = admitted(json.loads(EVERYTHING), "HTTP://10.0.0.1:9999/openapi?token=x")
    assert service.name == "summary"
    assert service.origin == "http://10.0.0.1:9999"
    assert (service.local_prefix, service.public_prefix) == (
        "/api/summary",
        "/v1/cassettes/summary",
    )
    assert service.digest == manifest.digest(service.manifest)
    assert [tool.full_name for tool in service.tools] == ["summary.run"]
    assert [(o.method, o.public_path, o.operation_id) for o in service.operations] == [
        ("GET", "/v1/cassettes/summary/reports", "listReports"),
        ("POST", "/v1/cassettes/summary/reports", None),
        ("GET", "/v1/cassettes/summary/reports/{id}", None),
        ("POST", "/v1/cassettes/summary/run", "run"),
        ("GET", "/v1/cassettes/summary/shared", None),
        ("PUT", "/v1/cassettes/summary/upload", None),
    ]
    assert b"10.0.0.1" not in service.document
    validate(json.loads(aggregate([service])))


def test_a_service_lets_go_of_the_text_that_it_was_read_from() -> None:
    assert admitted(document()).manifest.lines([("cassette",)]) == {}


@pytest.mark.row("C9")
def test_a_tool_changes_the_entity_tag_and_not_the_identity_of_the_manifest() -> None:
    tree = json.loads(EVERYTHING)
    before = admitted(tree)
    del tree["paths"]["/api/summary/run"]["post"]["x-tapes-mcp"]
    after = admitted(tree)
    assert before.digest == after.digest
    assert before.etag != after.etag


# --- the steps --------------------------------------------------------------------------------


@pytest.mark.row("C3")
@pytest.mark.parametrize(
    ("data", "stage", "code"),
    [
        (b"", "document", "not_json"),
        (b"openapi: 3.1.0", "document", "not_json"),
        (b"\xef\xbb\xbf{}", "document", "not_json"),
        (b"[]", "document", "not_object"),
        (b"null", "document", "not_object"),
        (b'{"a": 1, "a": 2}', "document", "repeated_name"),
        (b'{"x":' + b"[" * 5_000 + b"]" * 5_000 + b"}", "document", "too_deep"),
        (b"{" + b" " * MAX_BYTES + b"}", "document", "too_large"),
        (b"{}", "manifest_missing", "missing"),
        (b'{"x-tapes-cassette": null}', "manifest_parse", "missing_kind"),
        (b'{"x-tapes-cassette": "x"}', "manifest_parse", "not_object"),
        (b'{"x-tapes-cassette": {"kind": "cassette/v2"}}', "manifest_parse", "unsupported_kind"),
        (b'{"x-tapes-cassette": {"kind": "cassette/v1alpha1"}}', "manifest_invalid", "bad_name"),
        (text(document([])), "paths_missing", "wrong_type"),
        (text({**document(), "paths": None}), "paths_missing", "wrong_type"),
        (text(document({"/ping": {}})), "path_outside", "outside"),
        (text(document({"/api/summary/x": 5})), "shape", "wrong_type"),
    ],
)  # fmt: skip
def test_a_document_is_refused_at_the_first_step_that_finds_something(
    data: bytes, stage: str, code: str
) -> None:
    error = refused(data)
    assert (error.stage, error.problems[0].code) == (stage, code)


@pytest.mark.row("C3")
def test_the_manifest_is_judged_against_the_contracts_of_the_host() -> None:
    data = text(document())
    assert isinstance(outcome(data, ["v1", "v2"]), Service)
    for contracts in ([], ["v2"]):
        error = outcome(data, contracts)
        assert isinstance(error, RefusedService)
        assert error.stage == "manifest_invalid"


@pytest.mark.row("C1")
def test_a_source_that_names_a_credential_is_refused_without_showing_it() -> None:
    with pytest.raises(RefusedService) as caught:
        admit(text(document()), "http://u:secret@h/x?token=secret", ["v1"])
    assert caught.value.stage == "source_url"
    assert "secret" not in str(caught.value)


@pytest.mark.row("C3")
def test_problems_carry_the_lines_of_the_document() -> None:
    tree = document(
        {"/api/summary/x": {"get": {}}},
        **{"x-tapes-cassette": manifest_tree(tables=[{"name": "1"}])},
    )
    lines = json.dumps(tree, indent=1).split("\n")
    (problem,) = refused("\n".join(lines).encode()).problems
    assert problem.field == "table[0].name"
    assert problem.line is not None
    assert '"name": "1"' in lines[problem.line - 1]

    tree["x-tapes-cassette"] = manifest_tree()
    lines = json.dumps(tree, indent=1).split("\n")
    (problem,) = refused("\n".join(lines).encode()).problems
    assert problem.line is not None
    assert '"get": {}' in lines[problem.line - 1]


def test_an_error_says_what_to_read() -> None:
    message = str(refused(document({"/ping": {}})))
    assert message.startswith(f"the document of {SOURCE} is refused: 1 problem\n")
    assert message.endswith("docs/services-manifest.md")


# --- the known cases --------------------------------------------------------------------------


def known_document(case: Json, by_name: dict[str, Json]) -> bytes:
    if "document_text" in case:
        data: str = case["document_text"]
        return data.encode()
    if "build" not in case:
        return text(case["document"])
    tree = copy.deepcopy(by_name[case["build"]["from"]]["document"])
    ((_, item),) = tree["paths"].items()
    tree["paths"] = {}
    for n in range(case["build"]["repeat_path"]):
        one = copy.deepcopy(item)
        one["post"]["operationId"] = f"o{n}"
        one["post"]["x-tapes-mcp"]["name"] = f"t{n}"
        tree["paths"][f"/api/summary/run{n}"] = one
    return text(tree)


@pytest.mark.row("C3", "C9")
def test_the_known_documents(reference_data: Path) -> None:
    cases = json.loads((reference_data / "admission-cases.json").read_text())
    by_name = {case["name"]: case for case in cases}
    for case in cases:
        found = outcome(known_document(case, by_name), case.get("contracts", ["v1"]))
        if case["name"] in REFUSED_ON_PURPOSE:
            assert isinstance(found, RefusedService), case["name"]
            continue
        assert ("admit" if isinstance(found, Service) else "refuse") == case["expect"], case["name"]
        if isinstance(found, RefusedService):
            assert found.stage == case["stage"], (case["name"], str(found))
        elif "tools" in case:
            assert [tool.full_name for tool in found.tools] == case["tools"], case["name"]


@pytest.mark.row("C4", "C6")
def test_no_known_document_breaks_the_aggregate(reference_data: Path) -> None:
    cases = json.loads((reference_data / "admission-cases.json").read_text())
    by_name = {case["name"]: case for case in cases}
    other = admitted(document(name="other"))
    for case in cases:
        found = outcome(known_document(case, by_name), case.get("contracts", ["v1"]))
        if isinstance(found, Service):
            tree = json.loads(aggregate([found, other]))
            assert "/v1/cassettes/other/reports" in tree["paths"]
            # The validator takes patterns for Python's own, which do not know this class.
            validate(json.loads(json.dumps(tree).replace("\\\\p{L}", "[a-z]")))


@pytest.mark.row("C3", "C6")
def test_the_known_documents_are_republished_byte_for_byte(reference_data: Path) -> None:
    for case in json.loads((reference_data / "cassette-republish.json").read_text()):
        data = case.get("document_text") or json.dumps(case["document"])
        service = admit(data.encode(), SOURCE, ["v1"])
        assert service.document.decode() == case["published_text"], case["name"]
        assert service.etag == case["published_etag"]
        assert service.digest == case["manifest_digest"]
        for tool, known in zip(service.tools, case["mcp_tools"], strict=True):
            form = tool.form() | {"public_path": tool.public_path}
            assert {name: form[name] for name in known} == known


# Where the known aggregates lose something, mislead or break, this one does not.
BETTER_THAN_KNOWN = {
    "/info/description": "the host's own words",
    "/components/schemas/hello_world_Cat/properties/n/default": "no digit is lost",
    "/components/schemas/hello_world_Pet/discriminator/mapping/bare": "leads to the renamed schema",
    "/paths//v1/cassettes/hello-world/ref/$ref": "a path item is what it refers to",
    "/paths//v1/cassettes/hello-world/ref/get": "a path item is what it refers to",
    "/paths//v1/cassettes/hello-world/slash/get/security": "a service's requirement is its own",
    "/paths//v1/cassettes/hello-world/x/post/security": "a service's requirement is its own",
    "/paths//v1/cassettes/hello-world/things/{id}/delete/security": "an empty list is kept",
    "/security": "a service's requirement is its own",
}


@pytest.mark.row("C4", "C6")
def test_the_known_documents_are_aggregated_as_known_but_for_the_defects(
    reference_data: Path,
) -> None:
    for case in json.loads((reference_data / "cassette-republish.json").read_text()):
        data = case.get("document_text") or json.dumps(case["document"])
        tree = json.loads(aggregate([admit(data.encode(), SOURCE, ["v1"])]))
        found = set(differences(tree, case["aggregate_of_this_cassette_alone"]))
        assert found <= BETTER_THAN_KNOWN.keys(), case["name"]


def differences(one: Json, other: Json, at: str = "") -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in one.keys() | other.keys():
            if name in one and name in other:
                yield from differences(one[name], other[name], f"{at}/{name}")
            else:
                yield f"{at}/{name}"
    elif one != other:
        yield at


# --- hostile documents ------------------------------------------------------------------------

_MEMORY = r"""
import json, sys
from tapes.errors import RefusedService
from tapes.services.admission import admit
head = json.loads(sys.argv[1])
kind, size = sys.argv[2], 8 * 1024 * 1024 - 2000
def fill(unit):
    out, length, n = [], 0, 0
    while length < size:
        out.append(unit(n)); length += len(out[-1]) + 1; n += 1
    return ",".join(out)
schema = lambda n: '"c%d":{"$ref":"#/components/schemas/c%d"}' % (n, n + 1)
body = {
    "refs": lambda: '"components":{"schemas":{%s}}' % fill(schema)[: -1].rsplit(',"', 1)[0],
    "properties": lambda: '"components":{"schemas":{"A":{"properties":{%s}}}}'
        % fill(lambda n: '"p%d":{"type":"string"}' % n),
    "objects": lambda: '"x-a":[%s]' % fill(lambda n: '{"%06x":0.5}' % n),
    "lists": lambda: '"x-a":[%s]' % fill(lambda n: "[[]]"),
    "numbers": lambda: '"x-a":[%s]' % fill(lambda n: "%d.5" % n),
    "astral": lambda: '"x-a":[%s]' % fill(lambda n: '"\U0001f600%d"' % n),
    "deep": lambda: '"x-a":' + "[" * (size // 2) + "]" * (size // 2),
    "wide": lambda: '"x-a":' + "[" * 100 + fill(lambda n: "0") + "]" * 100,
    "patterns": lambda: '"components":{"schemas":{%s}}'
        % fill(lambda n: '"c%d":{"pattern":"^[a-z]{1,%d}x%d$"}' % (n, 900 - n % 300, n)),
    "operations": lambda: '"paths":{%s}'
        % fill(lambda n: '"/api/summary/%d":{"get":{"responses":{"200":{}}}}' % n),
}[kind]()
text = json.dumps(head)[:-1] + "," + body + "}"
try:
    print(len(admit(text.encode(), "http://h/x", ["v1"]).document))
except RefusedService as error:
    print(error.stage, error.problems[0].code)
# The peak of this program alone: that of `getrusage` goes on from whoever started it.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(int(peak.split()[1]) // 1024, file=sys.stderr)
"""
_HOSTILE = [
    "refs",
    "properties",
    "objects",
    "lists",
    "numbers",
    "astral",
    "deep",
    "wide",
    "patterns",
    "operations",
]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.row("C3")
@pytest.mark.parametrize("kind", _HOSTILE)
def test_a_hostile_document_of_8_mib_stays_within_300_mib_of_memory(kind: str) -> None:
    head = document()
    if kind == "operations":
        del head["paths"]
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY, json.dumps(head), kind],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert int(done.stderr) < 300
    assert done.stdout


def places(tree: Json, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in pairs:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


# The names that documents use, and some that nothing reads.
_WORDS = sorted(
    {key for path in places(json.loads(EVERYTHING)) for key in path if isinstance(key, str)}
    | {"not", "nullable", "x-a", "$id", "$defs", "$anchor", "$dynamicRef", "/api/summary/x"}
)
_ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(["object", "string", "array", "null", "3.1.0", "path", "query", "[", "(?=a)"]),
    st.sampled_from(["Report", "Node", "No"]).map(lambda name: f"#/components/schemas/{name}"),
    st.sampled_from(["#/components/parameters/Limit", "#", "https://x/y", "#/components/x"]),
)
_TREES = st.recursive(
    _ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=4)
    ),
    max_leaves=8,
)


@st.composite
def mutated(draw: st.DrawFn) -> Json:
    """A document that holds everything, with a few things changed."""
    tree = json.loads(EVERYTHING)
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from(list(places(tree))))
        owner = tree
        for key in path[:-1]:
            owner = owner[key]
        change = draw(st.sampled_from(["replace", "delete", "add", "copy"]))
        if change == "delete":
            del owner[path[-1]]
        elif change == "replace":
            owner[path[-1]] = draw(_TREES)
        elif change == "copy":
            other = tree
            for key in draw(st.sampled_from(list(places(tree)))):
                other = other[key]
            owner[path[-1]] = copy.deepcopy(other)
        elif isinstance(owner[path[-1]], dict):
            owner[path[-1]][draw(st.sampled_from(_WORDS))] = draw(_TREES)
    return tree


def holds_all_promises(data: bytes) -> None:
    """Whatever the bytes are, they are refused with reasons or admitted without harm."""
    found = outcome(data)
    if isinstance(found, RefusedService):
        assert found.problems
        assert all(problem.stage in list(Stage) for problem in found.problems)
        return
    published = json.loads(found.document)
    for path in published["paths"]:
        assert is_inside(path, "/v1/cassettes/summary")
        assert not leads_out(path)
    other = admitted(document(name="other"))
    tree = json.loads(aggregate([found, other]))
    assert tree["paths"]["/v1/cassettes/other/reports"] == {
        "get": {"operationId": "other_read", "responses": ANSWER}
    }
    # Patterns are RE2's, which this validator's check of formats does not know.
    errors = [e for e in openapi_v30_schema_validator.iter_errors(tree) if e.validator != "format"]
    assert not errors
    for tool in found.tools:
        Draft202012Validator.check_schema(tool.input_schema, format_checker=None)


@pytest.mark.row("C3", "C4")
@settings(max_examples=examples(300), deadline=None)
@given(mutated())
def test_a_document_that_was_changed_anywhere_is_refused_or_harmless(tree: Json) -> None:
    holds_all_promises(text(tree))


@pytest.mark.row("C3")
@settings(max_examples=examples(150), deadline=None)
@given(
    item=st.dictionaries(st.sampled_from(["get", "post", "parameters", "x-a", "$ref"]), _TREES),
    components=st.dictionaries(
        st.sampled_from(SECTIONS), st.dictionaries(st.sampled_from("ab"), _TREES)
    ),
    others=st.dictionaries(
        st.sampled_from(["info", "tags", "security", "webhooks", "x-a"]), _TREES
    ),
)
def test_any_tree_around_a_manifest_is_refused_or_harmless(
    item: Json, components: Json, others: Json
) -> None:
    paths = {"/api/summary/x/{id}": item}
    holds_all_promises(text(document(paths, components=components, **others)))


@pytest.mark.row("C3")
@settings(max_examples=examples(150), deadline=None)
@given(st.binary(), st.integers(0, len(EVERYTHING)), st.integers(0, 200))
def test_any_bytes_are_refused_or_harmless(noise: bytes, at: int, gap: int) -> None:
    data = EVERYTHING.encode()
    holds_all_promises(noise)
    holds_all_promises(data[:at] + noise + data[at + gap :])
