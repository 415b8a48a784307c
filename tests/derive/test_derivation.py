"""What a deriver makes of recorded sessions changes with its number only: else old logs keep what
an older one made of them."""

import hashlib
import json
from collections.abc import Iterator
from decimal import Decimal
from itertools import count
from pathlib import Path

from tapes.derive.deriver import derive
from tapes.ingest.posting import found_in, read
from tapes.jsontext import Json
from tapes.providers.usage import Usage
from tapes.rows import DERIVATION, Projection, RawTurn, content_hash, key_of_row
from tapes.seeding import sample_turns
from tests.cases import CASES, DATA
from tests.derive.talks import conversation
from tests.derive.test_codex import recorded, turn
from tests.ingest.test_transcripts import told_of
from tests.turns import raw_turn, transcript

WRITTEN = Path(__file__).parent / "derivation.json"


def answers() -> Iterator[RawTurn]:
    """Each recorded answer, as a stream and in one piece."""
    numbers = count(1)
    for case in CASES:
        for stream in (case.stream, None):
            answered = json.loads(case.oneshot)
            yield raw_turn(next(numbers), case.path, case.request, answered, stream=stream)


def transcripts() -> Iterator[RawTurn]:
    """What agents wrote down themselves."""
    places = ("transcripts/claude", "transcripts/codex", "codex-0.171/sessions")
    numbers = count(1)
    for place in places:
        for told in told_of(*map(read, found_in([str(DATA / place)]))):
            session = told.pop("session")
            assert isinstance(session, dict)
            yield transcript(
                next(numbers),
                str(session["harness_session_id"]),
                str(session["harness_id"]),
                **told,
            )


RECORDED = {
    "samples": lambda: list(sample_turns()),
    "codex": lambda: [turn(number, call) for number, call in enumerate(recorded(), 1)],
    "answers": lambda: list(answers()),
    "transcripts": lambda: list(transcripts()),
    "conversation": conversation,
}


def a_cent(_usage: Usage, _provider: str, _at: int) -> Decimal:
    return Decimal("0.01")


def fingerprint(rows: Projection) -> str:
    """One for all rows, whatever their order."""
    kinds = (rows.sessions, rows.traces, rows.spans, rows.links)
    each = sorted(f"{key_of_row(row)} {content_hash(row)}" for kind in kinds for row in kind)
    return hashlib.sha256("\n".join(each).encode()).hexdigest()


def judged(written: dict[str, Json], made: dict[str, Json]) -> str:
    """What is to be done where what is made is not what was written down; "" where nothing."""
    if written == made:
        return ""
    down = f"write into {WRITTEN.name}:\n{json.dumps(made, indent=2)}"
    if written["number"] != made["number"]:
        return down
    changed = sorted(name for name in made if written.get(name) != made[name])
    return (
        f"the deriver makes something else of {', '.join(changed)}: raise the number"
        f" (DERIVATION in rows.py), so that what older ones made is derived anew; then {down}"
    )


def test_what_the_deriver_makes_changes_with_its_number_only() -> None:
    made: dict[str, Json] = {"number": DERIVATION}
    for name, turns in RECORDED.items():
        rows = derive(turns(), a_cent)
        assert rows.spans, name
        made[name] = fingerprint(rows)
    todo = judged(json.loads(WRITTEN.read_text()), made)
    assert not todo, todo


def test_a_change_without_the_number_is_told() -> None:
    written: dict[str, Json] = {"number": 1, "samples": "a", "codex": "b"}
    assert judged(written, written) == ""
    told = judged(written, written | {"codex": "c"})
    assert "something else of codex: raise the number" in told
    assert judged(written, written | {"codex": "c", "number": 2}).startswith("write into")
