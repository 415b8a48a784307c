import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.errors import BadManifest
from tapes.services import manifest
from tapes.services.manifest import Manifest, parse_json, parse_toml, validate

Json = Any
HEAD = 'kind = "cassette/v1alpha1"\n'
MINIMAL = HEAD + '[cassette]\nname = "summary"\nversion = "0.1.0"\n[depends]\ncore = "v1"\n'
FULL = (
    MINIMAL
    + 'views = ["spans", "sessions"]\n[[tables]]\nname = "b"\n[[tables]]\nname = "a"\n'
    + '[[config]]\nkey = "size"\ntype = "int"\ndefault = 5\nmin = 1\nmax = 9\n'
    + '[[config]]\nkey = "llm.key"\ntype = "string"\nrequired = true\nsecret = true\n'
)


def outcome(text: str, parse: Any) -> Manifest | BadManifest:
    try:
        declared: Manifest = parse(text)
    except BadManifest as error:
        return error
    return declared


def unreadable(text: str | bytes, parse: Any = parse_json) -> BadManifest:
    with pytest.raises(BadManifest) as caught:
        parse(text)
    return caught.value


def fields(declared: Manifest, *contracts: str) -> list[str]:
    return [problem.field for problem in validate(declared, contracts or ("v1",))]


# --- identity ---------------------------------------------------------------------------------


@pytest.mark.row("C2")
def test_the_minimal_manifest_has_its_known_identity() -> None:
    declared = parse_toml(MINIMAL)
    assert manifest.canonical_text(declared) == (
        '{"api":{"health":"/ping","openapi":"/openapi","prefix_path":"api"},'
        '"cassette":{"name":"summary","version":"0.1.0"},"depends":{"core":"v1"},'
        '"kind":"cassette/v1alpha1"}'
    )
    assert manifest.digest(declared) == (
        "sha256:64e95f7a8d5bddb9615039ebbdf0b4f7a50531a2c89f1904e8dfde7c88967c8b"
    )


@pytest.mark.row("C2")
def test_defaults_nulls_order_and_spelling_do_not_change_the_identity() -> None:
    tree = {
        "tables": [{"name": "a"}, {"name": "b"}],
        "config": [
            {"type": "string", "key": "llm.key", "secret": True, "required": True, "enum": []},
            {"type": "int", "key": "size", "default": 5, "min": 1, "max": 9, "required": False},
        ],
        "api": {"health": "", "openapi": None, "prefix_path": "api"},
        "depends": {"views": ["sessions", "spans"], "core": "v1"},
        "cassette": {"version": "0.1.0", "name": "summary", "port": 0, "image": None},
        "kind": "cassette/v1alpha1",
        "x-source-digest": None,
    }
    assert manifest.digest(parse_json(json.dumps(tree))) == manifest.digest(parse_toml(FULL))


@pytest.mark.row("C2")
@pytest.mark.parametrize(
    "change",
    ['description = "x"', 'version = "0.1.1"', 'image = "i"\nport = 1'],
    ids=["description", "version", "image"],
)
def test_whatever_is_declared_is_part_of_the_identity(change: str) -> None:
    name = change.partition(" ")[0]
    text = MINIMAL.replace(
        'version = "0.1.0"', change if name == "version" else f'version = "0.1.0"\n{change}'
    )
    assert manifest.digest(parse_toml(text)) != manifest.digest(parse_toml(MINIMAL))


def test_slashes_around_the_prefix_route_alike_and_are_hashed_as_written() -> None:
    plain, slashed = (parse_toml(MINIMAL + f'[api]\nprefix_path = "{p}"\n') for p in ("a", "/a/"))
    assert plain.local_prefix == slashed.local_prefix == "/a/summary"
    assert manifest.digest(plain) != manifest.digest(slashed)
    root = parse_toml(MINIMAL + '[api]\nprefix_path = "/"\n')
    assert (root.local_prefix, root.public_prefix) == ("/summary", "/v1/cassettes/summary")


@pytest.mark.row("C2")
def test_the_known_digests(reference_data: Path) -> None:
    groups = defaultdict(set)
    for case in json.loads((reference_data / "cassette-digests.json").read_text()):
        spellings = [parse_toml(case["toml"])] if case["toml"] else []
        if case["manifest"] is not None:
            spellings.append(parse_json(case.get("json_text") or json.dumps(case["manifest"])))
        contracts = ("v12",) if case["name"] == "version-any-text" else ("v1",)
        for declared in spellings:
            assert manifest.canonical_text(declared) == case["canonical"], case["name"]
            assert manifest.digest(declared) == case["digest"], case["name"]
            assert (not validate(declared, contracts)) is case["valid"], case["name"]
            if "derived" in case:
                derived = case["derived"]
                assert manifest.grant_plan(declared).form() == derived["grant_plan"]
                names = [setting.environment_name for setting in declared.config]
                assert names == derived["environment"]
                assert declared.normalized_prefix == derived["normalized_prefix"]
            groups[case.get("same_digest_group", case["name"])].add(case["digest"])
    assert all(len(digests) == 1 for digests in groups.values())


@pytest.mark.row("C2")
def test_the_known_manifests(reference_data: Path) -> None:
    for case in json.loads((reference_data / "cassette-manifest-cases.json").read_text()):
        text, parse = (case["json"], parse_json) if "json" in case else (case["toml"], parse_toml)
        declared = outcome(text, parse)
        if isinstance(declared, BadManifest):
            assert case["outcome"] == "unparsable", (case["name"], str(declared))
            continue
        problems = validate(declared, case.get("contracts", ["v1"]))
        assert ("invalid" if problems else "valid") == case["outcome"], case["name"]
        assert [problem.field for problem in problems] == case.get("fields", []), case["name"]
        if "normalized_prefix" in case:
            assert declared.normalized_prefix == case["normalized_prefix"], case["name"]


# --- reading ----------------------------------------------------------------------------------


@pytest.mark.row("C2")
def test_every_unknown_member_and_every_wrong_type_is_named_at_once_with_its_line() -> None:
    text = (
        HEAD + 'surprise = 1\n[cassette]\nname = 5\nNome = ""\n[[config]]\nkey = "k"\nmin = "1"\n'
    )
    error = unreadable(text, parse_toml)
    assert error.stage == "manifest_parse"
    assert [(p.field, p.code, p.line) for p in error.problems] == [
        ("surprise", "unknown_field", 2),
        ("cassette.Nome", "unknown_field", 5),
        ("cassette.name", "wrong_type", 4),
        ("config[0].min", "wrong_type", 8),
    ]


@pytest.mark.row("C2")
def test_lines_are_those_of_the_json_as_well() -> None:
    text = '{"kind": "cassette/v1alpha1",\n "depends": {\n  "views": "spans"\n }\n}'
    (problem,) = unreadable(text).problems
    assert (problem.field, problem.line) == ("depends.views", 3)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "not_json"),
        ("[]", "not_object"),
        ("null", "missing_kind"),
        ("{}", "missing_kind"),
        ('{"kind": ""}', "missing_kind"),
        ('{"kind": 5}', "wrong_type"),
        ('{"kind": "cassette/v9", "x": 1, "x": 2}', "unsupported_kind"),
        ('{"kind": "cassette/v1alpha1", "api": {"health": "/a", "health": "/b"}}', "repeated_name"),
        ('{"kind": "cassette/v1alpha1"} {}', "not_json"),
        ('{"kind": "cassette/v1alpha1", "tables": {}}', "wrong_type"),
        ('{"kind": "cassette/v1alpha1", "cassette": {"port": 80.0}}', "wrong_type"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_code(text: str, code: str) -> None:
    (problem,) = unreadable(text).problems
    assert problem.code == code


def test_toml_that_cannot_be_read_is_refused_with_its_line() -> None:
    (problem,) = unreadable(MINIMAL + "a =\n", parse_toml).problems
    assert (problem.code, problem.line) == ("not_toml", 7)


def test_null_reads_as_absent_everywhere() -> None:
    tree = dict.fromkeys(("cassette", "depends", "api", "tables", "config", "x-source-digest"))
    declared = parse_json(json.dumps({"kind": "cassette/v1alpha1", **tree}))
    assert fields(declared) == ["cassette.name", "cassette.version", "depends.core"]


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_no_text_breaks_the_readers(text: str) -> None:
    for parse in (parse_json, parse_toml):
        read = outcome(text, parse)
        assert read.problems if isinstance(read, BadManifest) else validate(read, []) is not None


_MEMBERS = sorted({name for table in manifest.FIELDS.values() for name in table} | {"other"})
_TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "cassette/v1alpha1", "v1", "summary", "int", "json", "1h"])
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_MEMBERS), inner, max_size=5)
    ),
    max_leaves=30,
)


@given(st.dictionaries(st.sampled_from(_MEMBERS), _TREES, max_size=7))
def test_no_tree_breaks_the_reader_and_whatever_is_read_has_an_identity(tree: Json) -> None:
    tree["kind"] = "cassette/v1alpha1"
    declared = outcome(json.dumps(tree), parse_json)
    if isinstance(declared, BadManifest):
        assert {problem.stage for problem in declared.problems} == {"manifest_parse"}
        return
    assert {problem.stage for problem in validate(declared, ["v1"])} <= {"manifest_invalid"}
    again = parse_json(manifest.canonical_text(declared))
    assert manifest.digest(again) == manifest.digest(declared)


# --- rules ------------------------------------------------------------------------------------


@pytest.mark.row("C2")
def test_all_rules_are_judged_at_once_in_the_order_of_the_members() -> None:
    text = (
        HEAD
        + 'x-source-digest = "md5"\n'
        + '[cassette]\nname = "public"\nversion = " "\nhomepage = "x"\nimage = " i"\n'
        + '[depends]\ncore = "v2"\nviews = ["raw_turns", "A", "A"]\n'
        + '[api]\nhealth = "ping"\nopenapi = "/a?b"\nprefix_path = "//"\n'
        + '[[tables]]\nname = "1"\n'
        + '[[config]]\nkey = "a.b"\ntype = "float"\n'
        + '[[config]]\nkey = "a_b"\ntype = "bool"\nenum = ["x", "x"]\nmin = 2\nmax = 1\n'
        + '[[config]]\nkey = "s"\ntype = "string"\nsecret = true\ndefault = ""\n'
    )
    problems = validate(parse_toml(text), ["v1"])
    assert [(p.field, p.code, p.line) for p in problems] == [
        ("cassette.name", "reserved_name", 4),
        ("cassette.version", "missing", 5),
        ("cassette.homepage", "bad_url", 6),
        ("x-source-digest", "bad_digest", 2),
        ("depends.core", "unserved_contract", 9),
        ("depends.views[0]", "forbidden_view", 10),
        ("depends.views[1]", "bad_identifier", 10),
        ("depends.views[2]", "bad_identifier", 10),
        ("depends.views[2]", "repeated", 10),
        ("api.health", "bad_path", 12),
        ("api.openapi", "bad_path", 13),
        ("api.prefix_path", "bad_prefix", 14),
        ("cassette.image", "outer_space", 7),
        ("cassette.port", "missing", 3),
        ("table[0].name", "bad_identifier", 16),
        ("config[0].type", "bad_type", 19),
        ("config[1].key", "repeated_environment_name", 21),
        ("config[1].enum", "misplaced", 23),
        ("config[1].enum[1]", "repeated", 23),
        ("config[1].min", "misplaced", 24),
        ("config[1].max", "misplaced", 25),
        ("config[1].min", "crossed", 24),
        ("config[2].default", "secret_default", 30),
    ]


def test_a_missing_member_has_the_line_of_its_table() -> None:
    (problem,) = validate(parse_toml(MINIMAL.replace('version = "0.1.0"\n', "")), ["v1"])
    assert (problem.field, problem.line) == ("cassette.version", 2)


def test_a_host_that_serves_no_contract_admits_nothing() -> None:
    assert [p.field for p in validate(parse_toml(MINIMAL), [])] == ["depends.core"]


@pytest.mark.row("C11")
def test_a_redacted_manifest_has_no_default_of_a_secret() -> None:
    text = MINIMAL + '[[config]]\nkey = "k"\ntype = "string"\nsecret = true\ndefault = "hidden"\n'
    declared = parse_toml(text)
    assert "hidden" not in manifest.canonical_text(manifest.redacted(declared))
    assert manifest.redacted(parse_toml(FULL)) == parse_toml(FULL)


@pytest.mark.row("C10")
def test_the_grant_plan_follows_from_name_contract_and_views() -> None:
    plan = manifest.grant_plan(parse_toml(FULL))
    assert (plan.role, plan.schema) == ("cassette_summary", "summary")
    assert plan.selects == ("tapes_v1.sessions", "tapes_v1.spans")
    assert plan.tables == ("a", "b")


def test_lists_and_problems_are_bounded() -> None:
    head = {"kind": "cassette/v1alpha1"}
    many = [{"key": f"k{n}", "type": "string"} for n in range(manifest.MAX_ITEMS + 1)]
    (problem,) = unreadable(json.dumps({**head, "config": many})).problems
    assert (problem.field, problem.code) == ("config", "too_many")
    problems = unreadable(json.dumps({**head, **{f"x{n}": 1 for n in range(5_000)}})).problems
    assert len(problems) == manifest.MAX_PROBLEMS + 1
    assert problems[-1].message == "and 4000 more problems"


def test_what_is_valid_and_unwise_is_warned_about() -> None:
    text = MINIMAL + '[api]\nhealth = "/a#b"\n[[config]]\nkey = "name"\ntype = "string"\n'
    declared = parse_toml(text)
    assert validate(declared, ["v1"]) == ()
    found = [(p.field, p.line) for p in manifest.warnings(declared)]
    assert found == [("api.health", 8), ("config[0].key", 10)]
    assert manifest.warnings(parse_toml(FULL)) == ()
