"""What a person sees where a link is dead, a server is gone for a while, or a token is wrong."""

from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from tapes.access import token_hash
from tapes.api.app import Api
from tapes.api.keys import Keys
from tapes.store.sqlite import open_sqlite
from tests.api.serving import got, seeded, serving
from tests.commands import command, typed
from tests.servers import closed_port

from .conftest import Open, faults
from .test_first_minute import serving as in_a_process
from .test_journeys import INVOICE


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_link_to_an_erased_session_says_when_by_whom_and_why(
    from_nothing: dict[str, str], open_page: Open, scheme: str
) -> None:
    with httpx.Client(base_url=from_nothing["api"], timeout=30) as client:
        client.post("/v1/admin/seed/demo").raise_for_status()
        (found,) = got(client, "/v1/find", id="llm_sample-coding-1")["items"]
        # An entry of the audit that names the session and is no erasure.
        client.patch(f"/v1/sessions/{found['session_id']}", json={"pinned": True})
        client.patch(f"/v1/sessions/{found['session_id']}", json={"pinned": False})
        gone = client.delete(f"/v1/sessions/{found['session_id']}", params={"reason": "asked to"})
        assert gone.status_code == 204
    place = f"#/session/{found['session_id']}"
    page = open_page(from_nothing["api"], place, color_scheme=scheme)
    expect(page.get_by_role("heading", name="This session was erased")).to_be_visible()
    expect(page.get_by_text("when this machine erased it for good: “asked to”")).to_be_visible()
    page.goto(f"{from_nothing['api']}/#/trace/{found['trace_id']}")
    expect(page.get_by_text("It may have been erased with its session")).to_be_visible()
    assert faults(page) == []


@pytest.mark.parametrize(
    ("place", "says", "leads"),
    [
        ("#/session/00000000-0000-4000-8000-000000000000", "There is no such session", "sessions"),
        ("#/session/nonsense", "There is no such session", "sessions"),
        ("#/trace/trc_nowhere", "There is no such trace", "sessions"),
        ("#/tape/none.jsonl", "There is no such tape", "tapes"),
        ("#/miss/99999", "There is no such call", "tapes"),
    ],
)
def test_a_dead_link_says_what_may_be_and_leads_on(
    addresses: dict[str, str], open_page: Open, place: str, says: str, leads: str
) -> None:
    page = open_page(addresses["api"], place)
    expect(page.get_by_role("heading", name=says)).to_be_visible()
    page.get_by_role("link", name=f"To the {leads}").click()
    expect(page).to_have_url(f"{addresses['api']}/#/{leads}")


def test_a_link_to_a_span_that_is_not_there_says_so(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/trace/trc_sample-coding-1?span=llm_gone")
    expect(page.get_by_text("The link names the span llm_gone, which is not in")).to_be_visible()
    page.get_by_role("treeitem").nth(2).click()
    expect(page.get_by_text("The link names the span")).to_have_count(0)


def test_an_id_that_nothing_has_is_said_to_be_none(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/find?q=toolu_99999999")
    expect(page.get_by_text("No session, trace, span or call has it as its id")).to_be_visible()


def test_a_server_that_was_stopped_and_started_again_is_asked_again(
    open_page: Open, tmp_path: Path
) -> None:
    assert typed("seed", cwd=tmp_path).status == 0
    fixed = {"TAPES_API_LISTEN": f"127.0.0.1:{closed_port()}"}
    with in_a_process(tmp_path, command("serve"), fixed) as address:
        page = open_page(address)
        expect(page.get_by_role("row").filter(has_text=INVOICE)).to_be_visible()
        page.get_by_role("link", name="Tapes", exact=True).last.click()
        expect(page.get_by_role("heading", name="No tape here yet")).to_be_visible()
    expect(page.get_by_text("no server: reconnecting")).to_be_visible()
    page.get_by_role("link", name="Sessions", exact=True).click()
    row = page.get_by_role("row").filter(has_text=INVOICE)
    expect(row.or_(page.get_by_text("The server does not answer.")).first).to_be_visible()
    page.goto(f"{address}/#/session/00000000-0000-4000-8000-000000000000")
    expect(page.get_by_text("The server does not answer.").first).to_be_visible()
    with in_a_process(tmp_path, command("serve"), fixed) as again:
        assert again == address
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        expect(page.get_by_role("heading", name="There is no such session")).to_be_visible()
        expect(page.get_by_text("The server does not answer.")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_question_for_a_token_says_where_it_comes_from(
    tmp_path: Path, open_page: Open, scheme: str
) -> None:
    store = seeded(open_sqlite(tmp_path / "tapes.db"))
    with serving(Api(store, Keys(read=token_hash("right")))) as client:
        page = open_page(str(client.base_url).rstrip("/"), color_scheme=scheme)
        dialog = page.get_by_role("dialog", name="This server asks for a token")
        expect(dialog).to_contain_text("with a token only. It is the token for reading")
        expect(dialog).to_contain_text("TAPES_API_TOKEN")
        assert faults(page) == []
    store.close()


def test_who_closes_the_question_for_a_token_is_not_asked_again_until_trying_again(
    tmp_path: Path, open_page: Open
) -> None:
    store = seeded(open_sqlite(tmp_path / "tapes.db"))
    with serving(Api(store, Keys(read=token_hash("right")))) as client:
        page = open_page(str(client.base_url).rstrip("/"))
        dialog = page.get_by_role("dialog", name="This server asks for a token")
        expect(dialog).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("alert")).to_contain_text("This server needs a token")
        # The stream of changes tries again by itself, and asks nobody.
        with page.expect_response(lambda answer: "changes" in answer.url and answer.status == 401):
            pass
        expect(dialog).to_have_count(0)
        page.get_by_role("button", name="Try again").click()
        dialog.get_by_label("Token").fill("right")
        dialog.get_by_role("button", name="Go on").click()
        expect(page.get_by_role("row").filter(has_text=INVOICE)).to_be_visible()
    store.close()


def test_what_is_typed_as_a_name_stays_while_the_session_changes(
    from_nothing: dict[str, str], open_page: Open
) -> None:
    with httpx.Client(base_url=from_nothing["api"], timeout=30) as client:
        client.post("/v1/admin/seed/demo").raise_for_status()
        page = open_page(from_nothing["api"])
        page.get_by_role("row").filter(has_text=INVOICE).get_by_role("link").click()
        page.get_by_role("button", name="Rename, tag").click()
        page.get_by_label("Name", exact=True).fill("Half a cent")
        (found,) = got(client, "/v1/find", id="llm_sample-coding-1")["items"]
        place = f"/v1/sessions/{found['session_id']}"
        client.patch(place, json={"add_tags": ["meanwhile"]}).raise_for_status()
        expect(page.locator(".totals").get_by_text("meanwhile")).to_be_attached()
        expect(page.get_by_label("Name", exact=True)).to_have_value("Half a cent")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("heading", name="Half a cent")).to_be_visible()
        expect(page.locator(".totals").get_by_text("meanwhile")).to_be_visible()
