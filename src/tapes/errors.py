"""Every deliberate failure: what happened, on what, and what to type next.

    SystemExit
      CassetteError          ends the run; no `except Exception` can swallow it
        BudgetExhausted      also a RuntimeError: the limit of live calls is spent
          CassetteMiss       replay has no answer to this request
            IncompleteRecording   the only recording was cut off
            WrongCanonicalizer    the recording was keyed by another rule
            ExpiredRecording      the recording is older than it may be
          UnboundedCall      a limit of tokens or money cannot be kept for this call
        LatchClosed          a live call was needed and nobody permitted it
        NetworkBlocked       a client below the recorder tried to leave this machine
        EffectRefused        a tool effect without a named double
        TapeFailed           the tape could not be read or written in the middle of a run
        LedgerFailed         live calls could not be counted, so none is permitted
    Exception
      TapesError             all others: bad input, bad settings, damage found by a tool
        UnreadableTape, DamagedTape, NewerTape, UnwritableTape, ClosedTape, UnknownKind, UnknownKey
        NotCanonical, UnknownCanonicalizer, NotAnAnswer, MissingLive, AsyncLive
        SecretFound, UndecodableBody, UnsupportedCoding, OversizeBody
        BadSetting, BadRule, BadEnvelope, MergeConflict, MissingExtra, UnusedRecordings
        ForeignFile, NotCarried, NotSendable, NotAnswered
        UnreadableStore, DamagedStore, NewerStore, UnavailableStore, StoreBusy
        BadQuery, BadCursor, UnknownId
        Unacceptable         refused with every problem at once
          BadManifest, RefusedService
        BadArguments
        Unreachable, TooSlow, BrokenAnswer, Busy

Each class says its slug (the name in the docs), the exit status of the command line and the
HTTP status of the proxy. Knows nothing of tapes, clients or terminals.  Pure.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


def as_typed(path: object) -> str:
    """A path in a command that is to be typed: with blanks and brackets it stands in quotes.

    One that begins with a dash is no option.
    """
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


class _WithoutException(type):
    """Leaves `Exception` out of a class's bases while keeping what lies below it.

    `BudgetExhausted` must be a `RuntimeError` (code that follows the directory contract catches
    it as one) and must pass through `except Exception: retry` (no refusal may be swallowed).
    An except clause compares along the method resolution order, so leaving one class out of it
    keeps both promises.
    """

    def mro(cls) -> list[type]:
        return [base for base in super().mro() if base is not Exception]


class CassetteError(SystemExit):
    """A refusal: it ends the process with a non-zero status and its text on standard error."""

    slug: ClassVar[str] = "refused"
    exit_status: ClassVar[int] = 1
    # A status that no SDK retries, and whose message no agent hides behind a text of its own, as
    # they do with 404 ("no such model") and with 401 and 403 ("log in").
    http_status: ClassVar[int] = 400

    def __init__(self, message: str = "", remedy: str = "") -> None:
        # SystemExit prints its argument on standard error and ends with status 1.
        super().__init__(f"{message}\n{remedy}" if remedy else message)
        self.message = message
        self.remedy = remedy
        # Why, as data that JSON can say: see explain. None where there is no more to say.
        self.diagnosis: dict[str, object] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.remedy), {"diagnosis": self.diagnosis}


class BudgetExhausted(CassetteError, RuntimeError, metaclass=_WithoutException):
    """The limit of live calls, tokens or money leaves no room for this call."""

    slug = "budget-exhausted"


class CassetteMiss(BudgetExhausted):
    """Replay has no answer to this request, and replay never asks."""

    slug = "miss"


class IncompleteRecording(CassetteMiss):
    """The only recording of this request is a stream that did not end."""

    slug = "incomplete"


class WrongCanonicalizer(CassetteMiss):
    """The tape answers this request under the key of another canonicalizer."""

    slug = "wrong-canonicalizer"


class ExpiredRecording(CassetteMiss):
    """The only recording is older than the project permits."""

    slug = "expired"


class UnboundedCall(BudgetExhausted):
    """A limit of tokens or money is set, and nothing bounds what this call may cost."""

    slug = "unbounded-call"


class LatchClosed(CassetteError):
    """A live call was needed, and neither the latch nor a budget permits one."""

    slug = "latch-closed"


class NetworkBlocked(CassetteError):
    """Something below the recorder tried to reach a host that is not allowed."""

    slug = "network-blocked"


class EffectRefused(CassetteError):
    """A tool effect was about to run on a decision that came from a tape."""

    slug = "effect-refused"


class TapeFailed(CassetteError):
    """The tape could not be read or written in the middle of a run."""

    slug = "tape-failed"


class LedgerFailed(CassetteError):
    """The count of live calls could not be read or written, so no call is permitted."""

    slug = "ledger-failed"


class TapesError(Exception):
    """Base of every failure that a program may catch and handle."""

    slug: ClassVar[str] = "error"
    exit_status: ClassVar[int] = 2
    http_status: ClassVar[int] = 400

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.remedy)


class UnreadableTape(TapesError):
    """The path is there and cannot be read as a tape of any kind."""

    slug = "unreadable-tape"
    exit_status = 3
    http_status = 500


class DamagedTape(UnreadableTape):
    """A place on the tape is broken; the rest is untouched."""

    slug = "damaged-tape"


class NewerTape(UnreadableTape):
    """The tape was written by a newer version of this project."""

    slug = "newer-tape"


class UnwritableTape(TapesError):
    """The tape cannot be written: a full disk, a read-only folder, a wrong owner."""

    slug = "unwritable-tape"
    exit_status = 4
    http_status = 507


class ClosedTape(TapesError):
    """The tape was closed before this call."""

    slug = "closed-tape"
    exit_status = 3
    http_status = 500


class UnknownKind(TapesError):
    """The name does not say which kind of tape it is."""

    slug = "unknown-kind"


class UnknownKey(TapesError):
    """No recording, or more than one, has a key that begins like this."""

    slug = "unknown-key"


class NotCanonical(TapesError):
    """The request has no canonical form: NaN, a non-string key, a lone surrogate, an object."""

    slug = "not-canonical"


class UnknownCanonicalizer(TapesError):
    """No canonicalizer has this name."""

    slug = "unknown-canonicalizer"


class NotAnAnswer(TapesError):
    """The response cannot be kept as JSON without changing it."""

    slug = "not-an-answer"


class MissingLive(TapesError):
    """A live call is permitted and the cassette was given nothing to call."""

    slug = "missing-live"


class AsyncLive(TapesError):
    """An async callable was given to the synchronous call."""

    slug = "async-live"


class SecretFound(TapesError):
    """A known key pattern is in a body, and secrets are to be refused."""

    slug = "secret-found"


class UnsupportedCoding(TapesError):
    """The content coding is not known here, or its decoder is not installed."""

    slug = "unsupported-coding"
    http_status = 415


class OversizeBody(TapesError):
    """The body is larger than the limit, once decoded."""

    slug = "oversize-body"
    http_status = 413


class UndecodableBody(TapesError):
    """The body is not what its content coding says."""

    slug = "undecodable-body"
    http_status = 422


class BadSetting(TapesError):
    """A setting has a value that it cannot have."""

    slug = "bad-setting"


class BadRule(BadSetting):
    """A rule of a `tapes.toml` cannot be read."""

    slug = "bad-rule"


class BadEnvelope(TapesError):
    """What a caller says about its session cannot be true: each problem is named."""

    slug = "bad-envelope"


class MergeConflict(TapesError):
    """Two tapes answer the same request differently."""

    slug = "merge-conflict"
    exit_status = 5
    http_status = 409


class MissingExtra(TapesError):
    """A part of the project that is an extra is not installed."""

    slug = "missing-extra"


class UnusedRecordings(TapesError):
    """The run did not ask for everything that is on the tape, and was told to fail then."""

    slug = "unused-recordings"


class ForeignFile(TapesError):
    """A file of another tool is not what it should be."""

    slug = "foreign-file"
    exit_status = 3


class NotCarried(TapesError):
    """An exchange cannot be carried from or to another tool's file."""

    slug = "not-carried"
    exit_status = 5
    http_status = 409


class NotSendable(TapesError):
    """A recorded request cannot be sent again as it was."""

    slug = "not-sendable"


class NotAnswered(TapesError):
    """A request was sent, and no whole answer came."""

    slug = "not-answered"
    http_status = 502


class UnreadableStore(TapesError):
    """The database of the log is there and cannot be read, or is none of ours."""

    slug = "unreadable-store"
    exit_status = 3
    http_status = 500


class DamagedStore(UnreadableStore):
    """A row of the log is not what was kept; the others are untouched."""

    slug = "damaged-store"


class NewerStore(UnreadableStore):
    """The database was made by a newer version of this project."""

    slug = "newer-store"


class UnavailableStore(TapesError):
    """The database cannot be reached or written just now: gone, locked, or its disk is full."""

    slug = "unavailable-store"
    exit_status = 4
    http_status = 503


class StoreBusy(TapesError):
    """More is being sent than can be kept at once."""

    slug = "store-busy"
    exit_status = 4
    http_status = 503


class BadQuery(TapesError):
    """What is asked for cannot be read. `position` is the place in the query, from zero."""

    slug = "bad-query"

    def __init__(self, message: str, position: int = 0, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.position = position

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.position, self.remedy)


class BadCursor(TapesError):
    """The cursor is not from a page of this list."""

    slug = "bad-cursor"


class UnknownId(TapesError):
    """Nothing here has this id."""

    slug = "unknown-id"
    exit_status = 5
    http_status = 404


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a manifest or a document, and where.

    `stage` is the step of admission that found it, `code` what kind of thing it is (both for
    programs), `field` the place in the author's terms, `line` the line of the author's text.
    """

    stage: str
    code: str
    field: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line is not None else ""
        return f"{place}{self.field}: {self.message}" if self.field else f"{place}{self.message}"


class Unacceptable(TapesError):
    """Base of refusals that name every problem at once, in `problems`."""

    slug = "unacceptable"
    http_status = 422

    def __init__(self, message: str, remedy: str = "", problems: Sequence[Problem] = ()) -> None:
        super().__init__(message, remedy)
        self.problems = tuple(problems)

    @property
    def stage(self) -> str:
        """The step of admission at which it was decided."""
        return self.problems[0].stage if self.problems else ""

    def __str__(self) -> str:
        lines = [self.message, *(f"  {problem}" for problem in self.problems), self.remedy]
        return "\n".join(line for line in lines if line)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.remedy, self.problems)


class BadManifest(Unacceptable):
    """The manifest of a cassette service cannot be read, or breaks a rule."""

    slug = "bad-manifest"


class RefusedService(Unacceptable):
    """The document of a cassette service is not admitted; nothing of it is used."""

    slug = "refused-service"


class BadArguments(TapesError):
    """The arguments of a tool call do not fit its input schema; the service was not asked."""

    slug = "bad-arguments"


class Unreachable(TapesError):
    """No connection to a service could be made, or it was dropped before an answer began."""

    slug = "unreachable"
    http_status = 502


class TooSlow(TapesError):
    """A service did not answer, or stopped in the middle of an answer, for too long."""

    slug = "too-slow"
    http_status = 504


class BrokenAnswer(TapesError):
    """A service's answer broke off before its end."""

    slug = "broken-answer"
    http_status = 502


class Busy(TapesError):
    """A service has as many requests as it may have, or rests after failures; try again later."""

    slug = "busy"
    http_status = 503

    def __init__(self, message: str, remedy: str = "", retry_after_s: float = 1.0) -> None:
        super().__init__(message, remedy)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.remedy, self.retry_after_s)
