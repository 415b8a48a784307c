"""Put other functions in the place of a library's own, and put those back."""

from typing import Any

from tapes.guarding.replacing import Replacements


class Base:
    def say(self) -> str:
        return "base"


class Child(Base):
    pass


def louder(original: Any) -> Any:
    def say(self: Base) -> str:
        return f"{original(self)}!"

    return say


def test_what_is_replaced_is_put_back() -> None:
    before, replacements = Base.say, Replacements()
    replacements.replace(Base, "say", louder)
    assert (Base().say(), Child().say(), Base.say.__name__) == ("base!", "base!", "say")
    replacements.undo()
    assert Base.say is before


def test_an_inherited_function_is_replaced_in_its_heir_alone() -> None:
    replacements = Replacements()
    replacements.replace(Child, "say", louder)
    assert (Base().say(), Child().say()) == ("base", "base!")
    replacements.undo()
    assert "say" not in vars(Child)


def test_nothing_is_replaced_twice() -> None:
    replacements = Replacements()
    replacements.replace(Base, "say", louder)
    replacements.replace(Base, "say", louder)
    assert Base().say() == "base!"
    replacements.undo()
    assert Base().say() == "base"
