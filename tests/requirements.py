"""What the project owes its users, as data: each row with what it asks for.

A row is proved by tests that carry `@pytest.mark.row("A6")`. `later` rows wait for something that
is not there yet; the moment a test proves one, its mark has to go.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requirement:
    """One row; `waits_for` says why nothing can prove it yet."""

    row: str
    what: str
    waits_for: str = ""

    @property
    def later(self) -> bool:
        """Whether nothing proves it yet, and nothing has to."""
        return bool(self.waits_for)


CAPTURE = "the capture log and what is derived from it"

REQUIREMENTS = (
    # A. The JSONL tape
    Requirement("A1", "A tape only grows, line by line; the later line with a key answers."),
    Requirement("A2", "The key is the hash of the canonical request, and both are public."),
    Requirement("A3", "The order of names does not change a key; the order of lists does."),
    Requirement("A4", "A dict goes in and a dict comes out, through a plain or async callable."),
    Requirement("A5", "Replay never calls, record reuses and captures, live always captures."),
    Requirement("A6", "A refusal ends the process, non-zero, with one line that names the key."),
    Requirement("A7", "An absent tape is empty, its folder is made, blank lines are nothing."),
    Requirement("A8", "An answer that JSON cannot say is refused before a byte is written."),
    Requirement("A9", "The document's own tests pass with only the import changed."),
    Requirement("A10", "The demo replays what it captured, and misses one changed character."),
    Requirement("A11", "The document's sketch reads our tapes, and we read its tapes."),
    Requirement("A12", "Secrets replaced, writers locked, a schema version in every row."),
    Requirement("A12-http", "A whole conversation is captured over HTTP."),
    Requirement("A12-refresh", "A scheduled refresh stays behind the latch."),
    # B. The directory of answers and the live budget
    Requirement("B1", "One readable JSON file an answer, named by its key."),
    Requirement("B2", "The directory's own keys; existing directories replay unchanged."),
    Requirement("B3", "An answer is written whole or not at all, whenever its writer dies."),
    Requirement("B4", "A budget bounds live calls, and says which call was one too many."),
    Requirement("B5", "The budget holds over threads, tasks and processes, to the call."),
    Requirement("B6", "A loop recorded once replays without a call; one change adds one answer."),
    Requirement("B7", "Separate writers are safe in one place, or merge."),
    Requirement("B8", "A stream that did not end never replays as an answer."),
    Requirement("B9", "Under replay an effect runs against a named double or not at all."),
    Requirement("B10", "One store serves several machines, and a doctor checks its host."),
    Requirement("B11", "Recording at a temperature without a seed is warned of."),
    Requirement("B12", "Deleting the directory leaves plain calls and nothing else."),
    Requirement("B13", "Tapes of every kind turn into each other without changing a key."),
    Requirement("B14", "What replay saved is shown in calls, bytes, tokens and money."),
    Requirement("B15", "`resolve` runs the document's loop with only the import changed."),
    # C. The host of cassette services
    Requirement("C1", "Sources are configured as full URLs, and fetched exactly."),
    Requirement("C2", "A manifest is parsed strictly and has the reference's digest."),
    Requirement("C3", "A service is admitted in seven steps."),
    Requirement("C4", "Operations and components have names of their own."),
    Requirement("C5", "Discovery lists what is admitted and what is wrong."),
    Requirement("C6", "Documents are cached, with conditional requests."),
    Requirement("C7", "Requests are proxied to the service under its pinned name."),
    Requirement("C8", "Documents are refreshed; stale ones go on serving."),
    Requirement("C9", "Operations become tools of an MCP endpoint."),
    Requirement("C10", "The plan of grants is printed as SQL."),
    Requirement("C11", "Settings have types, and secrets no values."),
    Requirement("C12", "Two examples run."),
    Requirement("C13", "The builder's checklist is one command."),
    Requirement("C14", "Streams pass, health is shown, a kit writes services."),
    # D. The host itself
    Requirement("D1", "A proxy records five providers and passes streams on."),
    Requirement("D2", "The log only grows, and knows a repeated delivery."),
    Requirement("D3", "The same turns always give the same sessions and spans."),
    Requirement("D4", "The read API of the reference."),
    Requirement("D5", "The private ingest API."),
    Requirement("D6", "Views for services, under published names and columns."),
    Requirement("D7", "SQLite embedded, PostgreSQL shared, the same tests on both."),
    Requirement("D8", "A page to look at sessions, traces and spans.", CAPTURE),
    # N. What users of recorders ask for
    Requirement("N01", "A changed prompt does not get the old answer."),
    Requirement("N02", "Everything that can change the answer belongs to the identity."),
    Requirement("N03", "One request may have several answers; reuse is reported."),
    Requirement("N04", "Threads and tasks record and replay without loss."),
    Requirement("N05", "Several processes record into one place."),
    Requirement("N06", "Streams stay streams, piece by piece."),
    Requirement("N07", "The framing of streams is left alone."),
    Requirement("N08", "A stream that was left early is no answer."),
    Requirement("N09", "Compressed answers replay cleanly."),
    Requirement("N10", "The bytes are the provider's bytes."),
    Requirement("N11", "Uploads match whatever their boundary."),
    Requirement("N12", "The same meaning is the same request; what varies is declared."),
    Requirement("N13", "Tapes are safe to commit without configuration."),
    Requirement("N14", "Taking secrets out breaks nothing."),
    Requirement("N15", "A miss explains itself, once."),
    Requirement("N16", "What is not covered does not slip through."),
    Requirement("N17", "The budget holds exactly, and only real spend uses it up."),
    Requirement("N18", "Recordings that nobody uses show up."),
    # F. Features with a test of their own
    Requirement("F02", "Going live needs the latch or a budget, and the state is told."),
    Requirement("F05", "While recording, status, lines and bytes reach the client as sent."),
    Requirement("F07", "Objects that are handed out are independent of each other."),
    Requirement("F09", "The current SDKs of the providers work."),
    Requirement("F10", "A proxy serves any language: several tapes and upstreams at once."),
    Requirement("F11", "One tape serves the proxy and every client in process."),
    Requirement("F12", "Any API is recorded without special casing."),
    Requirement("F15", "Every home behaves the same, a server's too."),
    Requirement("F16", "A large body that repeats is stored once."),
    Requirement("F20", "The pytest plugin: one tape a test, shared tapes, workers, a summary."),
    Requirement("F21", "Suites that are written for the vcr marker run as they are."),
    Requirement("F22", "Recordings that expire warn, fail, or are made again."),
    Requirement("F28", "A run's report says what was served, live, refused and unused."),
    Requirement("F30", "A run that uses no tape pays less than 50 ms for the plugin."),
)
