"""Places and leaves, and where two requests differ."""

from tapes.places import differences, leaves, leaves_of, pointer_of


def test_a_place_becomes_the_pointer_that_rules_have() -> None:
    assert pointer_of("messages[2].content") == "/messages/2/content"
    assert pointer_of("a/b.c") == "/a~1b/c"


def test_empty_containers_are_leaves() -> None:
    assert dict(leaves({"a": [], "b": {"c": {}}})) == {"a": [], "b.c": {}}


def test_what_holds_others_is_no_difference_of_its_own() -> None:
    found = differences(leaves_of({"a": [], "ab": 1}), leaves_of({"a": [1], "ab": 1}))
    assert [one.place for one in found] == ["a[0]"]
