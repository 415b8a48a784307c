"""One ticket, one request, one printed line: recorded once, replayed for ever.

CASSETTE_MODE=record DEMO_LIVE=1 python demo.py     # once, with the latch open
python demo.py                                      # from then on: no key, no network
TICKET="another one" python demo.py                 # a miss: says why, and exits non-zero
"""

import os

from upstream import summarize

from tapes import Cassette

TICKET = os.environ.get("TICKET", "summarize the failing test: test_invoice_total")


def request_for(ticket: str) -> dict[str, object]:
    """All that the model is to know."""
    return {"task": "ticket-summary", "prompt": ticket, "max_output_chars": 400}


if __name__ == "__main__":
    with Cassette(".cassettes/agent-demo.jsonl", live=summarize) as cassette:
        print(cassette.call(request_for(TICKET))["text"])
