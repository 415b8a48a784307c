"""What is seen without opening anything: what rows tell, what is on a tape, sums and charts."""

from playwright.sync_api import expect

from .conftest import Open


def test_a_row_of_spans_says_what_was_asked_and_answered(
    everywhere: dict[str, str], open_page: Open
) -> None:
    page = open_page(everywhere["api"], "#/spans?q=tool:Edit")
    row = page.get_by_role("row").nth(1)
    expect(row).to_contain_text("shop/invoice.py")
    expect(row).to_contain_text("1 replacement")


def test_a_span_that_failed_without_an_answer_says_how(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/spans?q=error:rate_limit_exceeded")
    expect(page.get_by_role("row").nth(1)).to_contain_text("rate_limit_exceeded")


def test_what_rows_say_is_read_after_the_rows_and_for_each_page(
    addresses: dict[str, str], open_page: Open
) -> None:
    page = open_page(addresses["api"], "#/spans?sort=started_at&dir=asc")
    table = page.get_by_role("table")
    expect(page.get_by_text("60 of")).to_be_visible()
    table.evaluate("(box) => { box.scrollTop = box.scrollHeight }")
    expect(page.get_by_text("60 of")).to_have_count(0)
    table.evaluate("(box) => { box.scrollTop = box.scrollHeight }")
    expect(page.get_by_role("row").filter(has_text="No. shop/tax.py rounds")).to_be_visible()


def test_spans_of_a_trace_are_told_apart_and_found_by_what_they_did(
    everywhere: dict[str, str], open_page: Open
) -> None:
    page = open_page(everywhere["api"], "#/trace/trc_sample-coding-1")
    row = page.get_by_role("treeitem").filter(has_text="pytest -q tests/test_invoice.py")
    expect(row).to_contain_text("Bash")
    page.get_by_label("Filter spans").fill("grep round")
    expect(page.get_by_text("2 spans of 15 fit")).to_be_visible()
