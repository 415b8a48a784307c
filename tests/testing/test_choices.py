"""What is chosen for a tape, by whom."""

import pytest

from tapes.errors import BadSetting
from tapes.modes import Mode
from tapes.testing.choices import MODES, choices, mode_of


def test_the_first_who_says_something_is_right_and_hosts_add_up() -> None:
    chosen = choices(
        ("the command line", {"mode": None}),
        ("the tape marker", {"mode": "record", "allow": ["a"]}),
        ("the ini file", {"mode": "live", "expired": "fail", "allow": ["b", "a"]}),
        allow=["c"],
    )
    assert (chosen.mode, chosen.expired, chosen.allow) == ("record", "fail", ("c", "a", "b"))


def test_nobody_saying_anything_means_replay() -> None:
    assert choices().mode == "replay"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"moed": "live"}, "here: unknown option 'moed'"),
        ({"mode": "rec"}, "here: 'rec' is no mode"),
        ({"refused": "no"}, "here: refused='no' is not one of: fail, allow"),
        ({"allow": "host"}, "here: allow is a list of hosts"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_what_cannot_be_is_an_error_that_names_the_place(
    options: dict[str, object], said: str
) -> None:
    with pytest.raises(BadSetting) as caught:
        choices(("here", options))
    assert caught.value.message == said


@pytest.mark.parametrize("word", MODES)
@pytest.mark.parametrize("is_recorded", [True, False])
def test_every_word_for_a_mode_is_one_of_the_three(word: str, is_recorded: bool) -> None:
    expected = {
        "none": Mode.REPLAY,
        "once": Mode.REPLAY if is_recorded else Mode.RECORD,
        "new_episodes": Mode.RECORD,
        "all": Mode.LIVE,
        "rewrite": Mode.LIVE,
        **{str(mode): mode for mode in Mode},
    }
    assert mode_of(word, is_recorded=is_recorded) is expected[word]
