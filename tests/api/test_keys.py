import pytest

from tapes.access import NotAllowed, token_hash
from tapes.api.keys import Caller, Keys
from tapes.rows import NO_ORG

ORG = "22222222-2222-4222-8222-222222222222"
KEYS = Keys(token_hash("r"), token_hash("a"), {token_hash("t"): ORG})


def asked(keys: Keys, token: str | None, org: str | None = None) -> Caller | NotAllowed:
    return keys.caller(host="127.0.0.1", origin=None, token=token, org=org)


@pytest.mark.parametrize(
    ("token", "org_id", "may_change"),
    [("r", NO_ORG, False), ("a", NO_ORG, True), ("t", ORG, False)],
)
def test_each_token_has_its_right_and_its_tenant(token: str, org_id: str, may_change: bool) -> None:
    caller = asked(KEYS, token)
    assert isinstance(caller, Caller)
    assert (caller.org_id, caller.may_change) == (org_id, may_change)


@pytest.mark.parametrize("token", [None, "", "x", token_hash("a")])
def test_nobody_else_is_let_in(token: str | None) -> None:
    why = asked(KEYS, token)
    assert isinstance(why, NotAllowed)
    assert why.status == 401


def test_an_unset_token_opens_nothing() -> None:
    only_admin = Keys(admin=token_hash("a"))
    assert isinstance(asked(only_admin, None), NotAllowed)
    assert isinstance(asked(only_admin, ""), NotAllowed)


def test_only_who_may_do_everything_chooses_a_tenant() -> None:
    chosen = asked(KEYS, "a", ORG.upper())
    assert isinstance(chosen, Caller)
    assert chosen.org_id == ORG
    for token in ("r", "t"):
        why = asked(KEYS, token, "33333333-3333-4333-8333-333333333333")
        assert isinstance(why, NotAllowed)
        assert why.status == 403
    own = asked(KEYS, "t", ORG)
    assert isinstance(own, Caller)
