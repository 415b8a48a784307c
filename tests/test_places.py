"""Places and leaves, and where two requests differ."""

from tapes.exchange import Request
from tapes.places import differences, leaves, leaves_of, pointer_of


def test_a_place_becomes_the_pointer_that_rules_have() -> None:
    assert pointer_of("messages[2].content") == "/messages/2/content"
    assert pointer_of("a/b.c") == "/a~1b/c"


def test_a_name_that_could_be_misread_keeps_its_place_and_its_pointer() -> None:
    value = {"a.b": {"c[0]": 1}, "a": {"b": {"c": [2]}, 'say "x"': 3, "": 4}}
    found = dict(leaves(value))
    assert [pointer_of(place) for place in found] == [
        "/a.b/c[0]", "/a/b/c/0", '/a/say "x"', "/a/",
    ]  # fmt: skip
    assert list(found.values()) == [1, 2, 3, 4]
    differing = differences(leaves_of({"a.b": 1, "a": {"b": 2}}), leaves_of({"a": {"b": 2}}))
    assert [one.place for one in differing] == ['["a.b"]']


def test_empty_containers_are_leaves() -> None:
    assert dict(leaves({"a": [], "b": {"c": {}}})) == {"a": [], "b.c": {}}


def test_what_holds_others_is_no_difference_of_its_own() -> None:
    found = differences(leaves_of({"a": [], "ab": 1}), leaves_of({"a": [1], "ab": 1}))
    assert [one.place for one in found] == ["a[0]"]


def test_a_request_without_a_body_has_no_place_for_one() -> None:
    url, media = "https://a.test/v1/chat", (("content-type", "application/json"),)
    asked, recorded = Request("GET", url, (), b""), Request("POST", url, media, b'{"model":"m"}')
    found = differences(leaves_of(asked), leaves_of(recorded))
    assert {one.place for one in found} == {"method", "headers.content-type", "model"}
