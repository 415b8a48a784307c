"""Every deliberate failure: its classes, its texts, and what can stop it."""

import pickle

import pytest

from tapes import errors
from tapes.errors import (
    BudgetExhausted,
    CassetteError,
    CassetteMiss,
    LatchClosed,
    TapesError,
    UnreadableTape,
)

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, CassetteError | TapesError)
]
REFUSALS = [kind for kind in CLASSES if issubclass(kind, CassetteError)]


@pytest.mark.row("A6")
@pytest.mark.parametrize("kind", REFUSALS)
def test_no_except_exception_swallows_a_refusal(kind: type[CassetteError]) -> None:
    def agent() -> None:
        try:
            raise kind("what", "remedy")
        except Exception:  # noqa: BLE001  # what an agent's retry does
            pytest.fail("swallowed")

    with pytest.raises(kind):
        agent()


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_refusal_ends_the_process_with_its_text(kind: type[CassetteError]) -> None:
    error = kind("what happened", "what to type")
    assert isinstance(error, SystemExit)
    assert error.code == "what happened\nwhat to type"
    assert error.exit_status != 0


@pytest.mark.row("B4")
def test_a_spent_budget_is_also_a_runtime_error_and_so_is_a_miss() -> None:
    with pytest.raises(RuntimeError):
        raise BudgetExhausted("spent")
    with pytest.raises(RuntimeError):
        raise CassetteMiss("missing")
    assert not issubclass(LatchClosed, RuntimeError)


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_survives_the_way_to_another_process(
    kind: type[CassetteError] | type[TapesError],
) -> None:
    copied = pickle.loads(pickle.dumps(kind("what", remedy="remedy")))
    assert type(copied) is kind
    assert (copied.message, copied.remedy) == ("what", "remedy")


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_says_its_statuses(kind: type[CassetteError] | type[TapesError]) -> None:
    assert 0 < kind.exit_status < 126
    assert 400 <= kind.http_status < 600
    assert kind.__doc__


def test_no_two_errors_share_a_slug() -> None:
    slugs = [kind.slug for kind in CLASSES]
    assert len(set(slugs)) == len(slugs)


def test_texts_have_the_remedy_on_a_line_of_its_own_where_there_is_one() -> None:
    assert str(UnreadableTape("broken", "mend it")) == "broken\nmend it"
    assert str(UnreadableTape("broken")) == "broken"
    assert CassetteMiss("gone").code == "gone"
