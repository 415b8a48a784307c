"""Whether this machine can do what is asked of it: each check with what was found and what to do.

Rule 1: a check says what it saw. What could not be seen is a warning, never a pass.
Rule 2: no check makes a model call. An upstream is reached when it answers anything at all.
"""

import os
import platform
import re
import resource
import shutil
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from tapes.capture.routes import KNOWN_UPSTREAMS, Upstream, shown
from tapes.config import FOLDER, Settings
from tapes.errors import TapesError, as_typed
from tapes.listening import Listen
from tapes.lives import BEAT_S, lives_in, machine_start
from tapes.pointing import upstreams_set_in
from tapes.tape.base import MemoryTape, Tape
from tapes.tape.kinds import is_on_server, kind_of, open_tape

_REACH_S = 5.0
_SKEW_S = 30.0
_LOW_BYTES, _FULL_BYTES = 1 << 30, 100 << 20
_OLD_PRICES_DAYS = 90
_LONG_S = 3600.0
_LOST_WITH_MEMORY = ("tmpfs", "ramfs")
# What tells that processes are stopped, or slowed, between requests.
_SHORT_LIVED = {
    "AWS_LAMBDA_FUNCTION_NAME": "AWS Lambda stops processes between calls",
    "K_SERVICE": "Cloud Run slows processes down between requests, unless CPU is always allocated",
    "FUNCTION_TARGET": "a cloud function stops between calls",
    "VERCEL": "Vercel functions stop between requests",
    "NETLIFY": "Netlify functions stop between requests",
    "WEBSITE_SITE_NAME": "Azure App Service stops idle sites, unless they are always on",
}
# An upstream is of interest where its key is set.
_KEYS = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "groq": "GROQ_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
}


class Level(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found; `remedy` says what to do where it is not well."""

    check: str
    level: Level
    what: str
    remedy: str = ""


def findings(
    settings: Settings, environ: Mapping[str, str], only: tuple[str, ...] = ()
) -> Iterator[Finding]:
    """Every check, one after the other. `only` names the upstreams to look at."""
    folder = settings.folder or Path(FOLDER)
    answers = [_reached(each, needed) for each, needed in _upstreams(settings, environ, only)]
    yield from (finding for finding, _ in answers)
    yield _clock([skew for _, skew in answers if skew is not None])
    yield from _store(settings["proxy.tape"], folder)
    yield _space(_folder_of(settings["proxy.tape"]))
    yield from _long_running(folder, environ)
    yield _prices(datetime.now(UTC).date())
    yield _token(settings, folder)
    yield _speed()


def of_log(
    name: str, waiting: Mapping[str, int], spool: Mapping[str, int], folder: Path
) -> Finding:
    """What waits, or was set aside, on the way into a log that can be opened."""
    failed, aside = waiting.get("failed", 0), spool["refused"] + spool["damaged"]
    if aside:
        what = f"{name}: {_many(aside, 'file')} of turns set aside in {folder}"
        remedy = (
            f"the log refused them, or they are damaged; look at them: ls -l {as_typed(folder)}"
        )
        return Finding("log", Level.WARNING, what, remedy)
    if failed:
        what = f"{name}: {_many(failed, 'session')} could not be derived"
        return Finding("log", Level.WARNING, what, "try again, and see why: tapes derive")
    if spool["turns"]:
        what = f"{name}: {_many(spool['turns'], 'turn')} on disk in {folder}, not in it yet"
        remedy = "whatever next serves with this log takes them in: tapes serve"
        return Finding("log", Level.WARNING, what, remedy)
    return Finding("log", Level.OK, f"{name} can be read, and nothing waits to come into it")


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# --- upstreams and the clock ------------------------------------------------------------------


def _upstreams(
    settings: Settings, environ: Mapping[str, str], only: tuple[str, ...]
) -> Iterator[tuple[Upstream, bool]]:
    """The upstreams to reach, and whether somebody asked for each by name."""
    declared: dict[str, str] = dict(settings["proxy.upstreams"])
    declared |= upstreams_set_in(environ, declared, Listen.of(settings["proxy.listen"]))
    default = settings["proxy.upstream"]
    if default is not None:
        declared["default"] = KNOWN_UPSTREAMS.get(default, declared.get(default, default))
    known = {**KNOWN_UPSTREAMS, **declared}
    if only:
        for name in only:
            # A URL is its own name, without what may be secret in it.
            yield Upstream.of(shown(name), known.get(name, name)), True
        return
    for name, url in declared.items():
        yield Upstream.of(name, url), True
    used = [name for name, key in _KEYS.items() if environ.get(key) and name not in declared]
    for name in used or ([] if declared else ["openai", "anthropic"]):
        yield Upstream.of(name, known[name]), bool(used)


def _reached(upstream: Upstream, needed: bool) -> tuple[Finding, float | None]:
    """Whether an upstream answers, and how far its clock is ahead of ours."""
    check = f"upstream {upstream.name}"
    begun = time.monotonic()
    try:
        status, their_date = _asked(upstream)
    except (OSError, ValueError) as error:
        level = Level.FAILURE if needed else Level.WARNING
        remedy = (
            "let this machine reach it: name service, firewall and the proxy of your network;"
            f" try: curl -sI {'https' if upstream.tls else 'http'}://{upstream.host}:{upstream.port}/"
        )
        why = str(error) or type(error).__name__
        what = f"{upstream.host}:{upstream.port} does not answer: {why}"
        return Finding(check, level, what, remedy), None
    took = (time.monotonic() - begun) * 1000
    what = f"{upstream.host}:{upstream.port} answers ({status}) in {took:.0f} ms"
    skew = None if their_date is None else their_date.timestamp() - time.time()
    return Finding(check, Level.OK, what), skew


def _asked(upstream: Upstream) -> tuple[int, datetime | None]:
    """The status and the date of whatever an upstream says to a request for its root."""
    with _connected(upstream) as connection:
        connection.sendall(
            f"HEAD / HTTP/1.1\r\nHost: {upstream.host}\r\nConnection: close\r\n\r\n".encode()
        )
        head = b""
        while b"\r\n\r\n" not in head and len(head) < 64 * 1024:
            data = connection.recv(8192)
            if not data:
                break
            head += data
    status = re.match(rb"HTTP/1\.[01] (\d{3})", head)
    if status is None:
        raise ValueError("what it says is no HTTP")
    found = re.search(rb"(?im)^date:[ \t]*([^\r\n]+)", head)
    try:
        their_date = None if found is None else parsedate_to_datetime(found[1].decode("latin-1"))
    except (ValueError, OverflowError):
        their_date = None
    return int(status[1]), their_date


def _connected(upstream: Upstream) -> socket.socket:
    plain = socket.create_connection((upstream.host, upstream.port), _REACH_S)
    if not upstream.tls:
        return plain
    with plain:  # which is the other's, once that is there
        context = ssl.create_default_context()
        return context.wrap_socket(plain, server_hostname=upstream.host)


def _clock(skews: list[float]) -> Finding:
    if not skews:
        return Finding(
            "clock", Level.WARNING, "nothing that was reached tells the time",
            "compare it yourself: date -u",
        )  # fmt: skip
    skew = min(skews, key=abs)
    if abs(skew) > _SKEW_S:
        way = "behind" if skew > 0 else "ahead"
        return Finding(
            "clock", Level.FAILURE, f"this machine's clock is {abs(skew):.0f} s {way}",
            "signed requests and certificates need the right time: timedatectl set-ntp true",
        )  # fmt: skip
    return Finding("clock", Level.OK, f"within {max(1, round(abs(skew)))} s of the upstream's")


# --- the store --------------------------------------------------------------------------------


def _folder_of(tape: str) -> Path:
    """The nearest folder that is there already."""
    path = Path("." if is_on_server(tape) else os.path.abspath(tape))
    while not os.path.isdir(path):
        path = path.parent
    return path


def _store(tape: str, folder: Path) -> Iterator[Finding]:
    try:
        kind = kind_of(tape)
        is_new = kind != "postgres" and not os.path.lexists(tape)
        opened: Tape = MemoryTape() if is_new else open_tape(tape)
    except TapesError as error:
        yield Finding("store", Level.FAILURE, error.message, error.remedy)
        return
    try:
        if is_new:
            yield Finding("store", Level.OK, f"{tape} ({kind}) is made with the first recording")
        else:
            yield Finding(
                "store", Level.OK, f"{opened.path} ({kind}) has {len(opened.keys())} answers"
            )
    except TapesError as error:
        yield Finding("store", Level.FAILURE, error.message, error.remedy)
    finally:
        opened.close()
    if kind == "postgres":
        yield Finding("disk", Level.OK, "the server's; it promised to keep what it acknowledged")
        return
    yield writable(_folder_of(tape))
    yield _survives(_folder_of(tape), folder)


def writable(folder: Path) -> Finding:
    """Whether a folder keeps a file durably."""
    probe = folder / f".tapes-probe.{os.getpid()}"
    begun = time.monotonic()
    try:
        with probe.open("xb") as file:
            file.write(b"probe")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return Finding(
            "disk", Level.FAILURE, f"{folder} cannot be written: {error.strerror}",
            f"check who may write there: ls -ld {as_typed(folder)}",
        )  # fmt: skip
    finally:
        with suppress(OSError):  # why it could not be made is told
            probe.unlink(missing_ok=True)
    took = (time.monotonic() - begun) * 1000
    return Finding("disk", Level.OK, f"{folder} keeps a file durably in {took:.1f} ms")


def _survives(store: Path, folder: Path) -> Finding:
    check = "restart"
    kind, point = file_system_of(store)
    if kind in _LOST_WITH_MEMORY:
        return Finding(
            check, Level.FAILURE, f"{store} lies in memory ({kind} at {point})",
            "keep the tape on a disk: --tape /path/on/a/disk.db",
        )  # fmt: skip
    before = [life for life in lives_in(folder) if life.machine != machine_start()]
    if before:
        day = datetime.fromtimestamp(before[-1].seen, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return Finding(
            check, Level.OK, f"{folder} still has what was kept before a restart ({day})"
        )
    what = f"no restart has been seen yet since {folder} is in use"
    if kind == "overlay":
        what += f", and {store} belongs to the container, which is deleted with it"
    return Finding(
        check, Level.WARNING, what,
        "mount a volume there" if kind == "overlay" else
        "run tapes serve proxy once, restart the machine, and ask again: tapes doctor",
    )  # fmt: skip


def file_system_of(path: Path) -> tuple[str, str]:
    """The kind of the file system that a path lies in, and where it is mounted."""
    best = ("unknown", "/")
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return best
    real, length = os.path.realpath(path), -1
    for line in lines:
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        point = fields[4].replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= length:
            best, length = (right.split()[0], point), len(point)
    return best


def _space(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    what = f"{free / (1 << 30):.1f} GiB free at {folder}"
    if free < _FULL_BYTES:
        return Finding("space", Level.FAILURE, what, "free some: recording stops on a full disk")
    if free < _LOW_BYTES:
        return Finding("space", Level.WARNING, what, "free some before you record much")
    return Finding("space", Level.OK, what)


# --- the process ------------------------------------------------------------------------------


def _long_running(folder: Path, environ: Mapping[str, str]) -> Iterator[Finding]:
    check = "long-running process"
    for name, why in _SHORT_LIVED.items():
        if environ.get(name):
            yield Finding(
                check, Level.FAILURE, f"{why} ({name} is set)",
                "run the proxy where a process may stay: a small machine or a container",
            )  # fmt: skip
            return
    limit, _ = resource.getrlimit(resource.RLIMIT_CPU)
    if limit != resource.RLIM_INFINITY:
        yield Finding(
            check, Level.FAILURE, f"a process may use {limit} s of CPU here, then it is killed",
            "lift the limit: ulimit -t unlimited",
        )  # fmt: skip
        return
    yield _lived(folder)


def _lived(folder: Path) -> Finding:
    check = "long-running process"
    lives = lives_in(folder)
    longest = max((life.seconds for life in lives), default=0.0)
    killed = [life for life in lives if life.is_over and life.ended is None]
    if killed and killed[-1] is lives[-1]:
        # It gave its last sign of life at most one beat before its end.
        lived = killed[-1].seconds
        return Finding(
            check, Level.WARNING,
            f"the last proxy lived {_span(lived)} (and at most {BEAT_S:.0f} s more) and did not end"
            " in order: it was killed, or the machine stopped",
            "look for who killed it: journalctl, dmesg, the host's log",
        )  # fmt: skip
    if longest >= _LONG_S:
        return Finding(check, Level.OK, f"a proxy has lived here for {_span(longest)}")
    what = f"the longest life of a proxy here is {_span(longest)}" if lives else "none was run here"
    return Finding(
        check, Level.WARNING, what, "let tapes serve proxy run for an hour, and ask again"
    )


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# --- what else --------------------------------------------------------------------------------


def _prices(today: date) -> Finding:
    spec = find_spec("genai_prices")
    if spec is None or spec.origin is None:
        return Finding(
            "prices", Level.WARNING, "no table of prices is installed",
            "pip install 'tapes-py[prices]'",
        )  # fmt: skip
    newest = newest_date_in(Path(spec.origin).parent / "data.py", today)
    if newest is None:
        return Finding(
            "prices", Level.WARNING, "the table of prices names no date", _UPGRADE_PRICES
        )
    age = (today - newest).days
    what = f"the newest price in the table is of {newest.isoformat()}"
    if age > _OLD_PRICES_DAYS:
        return Finding("prices", Level.WARNING, f"{what}, {age} days ago", _UPGRADE_PRICES)
    return Finding("prices", Level.OK, what)


_UPGRADE_PRICES = "pip install --upgrade genai-prices"
_DATES = re.compile(
    r"(?:datetime\.)?date\((\d{4}), (\d{1,2}), (\d{1,2})\)|\b(20\d\d)-(\d\d)-(\d\d)\b"
)


def newest_date_in(file: Path, today: date) -> date | None:
    """The newest date in a table of prices that is not in the future."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        return None
    newest = None
    for match in _DATES.finditer(text):
        try:
            found = date(*(int(part) for part in match.groups() if part is not None))
        except ValueError:
            continue
        if found <= today and (newest is None or found > newest):
            newest = found
    return newest


def _token(settings: Settings, folder: Path) -> Finding:
    listen = settings["proxy.listen"]
    if Listen.of(listen).is_loopback:
        return Finding("access", Level.OK, f"{listen} is open to this machine alone")
    given = settings["proxy.token"] or settings["proxy.token_sha256"]
    if given or (folder / "proxy-token").is_file():
        return Finding("access", Level.OK, f"{listen} is open to whoever has the token")
    return Finding(
        "access", Level.WARNING, f"{listen} is open to strangers, and no token is set yet",
        "tapes serve proxy makes one when it starts, and shows it once",
    )  # fmt: skip


def _speed() -> Finding:
    what = f"Python {platform.python_version()}"
    missing = [name for name in ("uvloop", "orjson") if find_spec(name) is None]
    if missing:
        return Finding(
            "speed", Level.WARNING, f"{what} without {' and '.join(missing)}",
            "pip install 'tapes-py[proxy]'",
        )  # fmt: skip
    return Finding("speed", Level.OK, f"{what} with uvloop and orjson")
