import asyncio
from collections.abc import Sequence

import pytest

from tapes.errors import BadSetting
from tapes.services.trust import Addresses, Trust


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.9.8.7", "::1", "[::1]", "localhost", "LOCALHOST.", "a.localhost"]
)
def test_this_machine_is_trusted(host: str) -> None:
    assert Trust().fault(host) is None


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "169.254.169.254", "example.org", "0.0.0.0", "localhost.example.org", "::"]
)
def test_any_other_host_has_to_be_named(host: str) -> None:
    assert "not among the hosts that are trusted" in (Trust().fault(host) or "")
    assert Trust([host]).fault(host) is None
    assert Trust([host]).fault("other.example") is not None


def test_a_network_trusts_its_addresses() -> None:
    trust = Trust(["10.1.0.0/16", "fd00::/8"])
    assert trust.fault("10.1.2.3") is None
    assert trust.fault("10.2.0.1") is not None
    assert trust.fault("[fd00::5]") is None


@pytest.mark.parametrize("text", ["", "http://x", "a b", "*", "host:80", "x?y"])
def test_what_is_no_host_is_a_bad_setting(text: str) -> None:
    with pytest.raises(BadSetting, match="neither the name"):
        Trust([text])


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("93.184.216.34", True),
        ("10.0.0.7", True),
        ("127.0.0.1", False),
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("169.254.169.254", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("fe80::1", False),
        ("nonsense", False),
    ],
)
def test_a_named_host_leads_nowhere_that_only_this_machine_means(
    address: str, allowed: bool
) -> None:
    trust = Trust(["summary.internal"])
    assert trust.allows("summary.internal", address) is allowed
    assert Trust(["summary.internal", "127.0.0.0/8"]).allows("summary.internal", "127.0.0.1")


def test_localhost_leads_to_this_machine_alone() -> None:
    assert Trust().allows("localhost", "::1")
    assert not Trust().allows("localhost", "10.0.0.1")
    assert not Trust().allows("127.0.0.1", "10.0.0.1")


def find(addresses: Addresses, host: str) -> str | None:
    return asyncio.run(addresses.find(host))


def test_addresses_are_found_once_and_those_that_are_not_allowed_are_left_out() -> None:
    asked: list[str] = []

    async def lookup(host: str) -> Sequence[str]:
        asked.append(host)
        return ["10.0.0.7", "127.0.0.1"]

    addresses = Addresses(Trust(["summary.internal"]), lookup)
    assert not addresses.knows("summary.internal")
    assert find(addresses, "Summary.Internal") is None
    assert list(addresses.addresses("summary.internal")) == ["10.0.0.7"]
    assert addresses.allows("10.0.0.7")
    assert not addresses.allows("127.0.0.1")
    assert asked == ["summary.internal"]


def test_a_name_that_means_this_machine_later_is_not_followed() -> None:
    answers = [["10.0.0.7"], ["127.0.0.1"]]

    async def lookup(_: str) -> Sequence[str]:
        return answers.pop(0)

    addresses = Addresses(Trust(["summary.internal"]), lookup)
    assert find(addresses, "summary.internal") is None
    assert "may not be connected to" in (find(addresses, "summary.internal") or "")
    assert not addresses.knows("summary.internal")
    assert not addresses.allows("10.0.0.7")


def test_an_address_stays_allowed_while_another_host_leads_there() -> None:
    async def lookup(_: str) -> Sequence[str]:
        return ["10.0.0.7"]

    addresses = Addresses(Trust(["a.internal", "b.internal"]), lookup)
    find(addresses, "a.internal")
    find(addresses, "b.internal")
    addresses.forget("a.internal")
    assert addresses.allows("10.0.0.7")
    addresses.forget("b.internal")
    assert not addresses.allows("10.0.0.7")


def test_what_is_trusted_later_judges_what_was_found_before() -> None:
    async def lookup(_: str) -> Sequence[str]:
        return ["10.0.0.7"]

    addresses = Addresses(Trust(["a.internal", "b.internal"]), lookup)
    find(addresses, "a.internal")
    addresses.judge_by(Trust(["a.internal"]))
    assert addresses.allows("10.0.0.7")
    addresses.judge_by(Trust(["b.internal", "10.0.0.0/8"]))
    assert not addresses.knows("a.internal")
    assert not addresses.allows("10.0.0.7")


def test_a_host_without_an_address_says_so() -> None:
    async def lookup(_: str) -> Sequence[str]:
        raise OSError("no such host")

    assert "no such host" in (find(Addresses(Trust(["x.internal"]), lookup), "x.internal") or "")
