"""How soon the page is there: a real browser, a real server in a process of its own, many rows.

Sessions, a large trace and a span of a megabyte are made anew; the million spans, which take a
minute, are kept for the next time in the folder of temporary files.

Beside each number stands what is promised for it, on one core of a laptop for the browser. Times
are told by the browser: from the step that a person takes to the picture that they wait for. What
a browser needs by itself is measured too, with a page of one line; and beside the longest frame,
how long the processor was busy in it, which does not grow when others use the machine.
"""

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.servers import closed_port

import tapes.store
from benchmarks import Measurement
from benchmarks._running import running
from benchmarks.api import CODE, multiply, rarely
from benchmarks.derive import raw_turn
from tapes.exchange import Piece, Response
from tapes.jsontext import Json
from tapes.projector import Projector
from tapes.rows import RawTurn
from tapes.seeding import seed
from tapes.store.sqlite import open_sqlite

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
TRACE = "trc_sample-coding-1"
SERVER = """
import sys, uvicorn
from tapes.api.app import Api
from tapes.api.gate import Bounds
from tapes.store.sqlite import open_sqlite
config = uvicorn.Config(Api(open_sqlite(sys.argv[1]), bounds=Bounds(rate=0)).app, port=0,
                        log_config=None, access_log=False, lifespan="off")
server = uvicorn.Server(config)
started = server.startup
async def startup(sockets=None):
    await started(sockets)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
server.startup = startup
server.run()
"""
# Tells when something is in the document and was painted: the time since `window.began`.
WATCH = """
window.began = 0;
window.until = (holds) => new Promise((done, failed) => {
  const last = performance.now() + 60_000;
  const look = () => {
    if (holds()) requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
    else if (performance.now() > last) failed(new Error(`not within a minute: ${holds}`));
    else requestAnimationFrame(look);
  };
  look();
});
// When the first row was in the document and painted, seen from within the page.
window.rowsAt = until(() => document.querySelector('[role=table] .rows > .tr'));
rowsAt.then(() => performance.mark('rows'));
"""
ONE_LINE = b"""<!doctype html><div role="table"><div class="rows" id="rows"></div></div>
<script>fetch("/rows").then((a) => a.text()).then((text) => {
rows.innerHTML = `<p class="tr">${text}</p>` })</script>"""
READY = "() => until(() => !document.querySelector('#app[aria-busy]'))"
ROWS = "() => until(() => document.querySelector('[role=table] .rows > .tr'))"
SPANS = "() => until(() => document.querySelectorAll('[role=treeitem]').length > 15)"
WHOLE = """(text) => until(() => {
  const said = document.querySelector('.totals')?.textContent ?? 'is coming';
  return said.includes(text) && !said.includes('is coming');
})"""
FILTERED = """(word) => until(() => document.querySelector('.chips')?.textContent.includes(word)
  && document.querySelector('[role=table] .rows > .tr'))"""
SORTED = """() => until(() => document.querySelector('[data-head=tokens][aria-sort=descending]')
  && document.querySelector('[role=table] .rows > .tr'))"""
THREE_FIT = """() => until(() =>
  document.querySelectorAll('[role=table] .rows > .tr').length === 3)"""
NONE_FITS = """(word) => until(() => document.querySelector('.chips')?.textContent.includes(word)
  && document.querySelector('.blank'))"""
CONTENT = """(begin) => until(() =>
  document.querySelector('[role=tabpanel]')?.textContent.includes(begin))"""
# When, by the clock on the wall, something was in the document and painted.
WAIT_FOR = """(text) => { window.came = until(() =>
  document.querySelector('[role=feed]')?.textContent.includes(text)).then(() => Date.now()) }"""
GO = "(place) => { window.began = performance.now(); location.hash = place; }"
SCROLL = """() => new Promise((done) => {
  const box = document.querySelector('[role=tree]');
  let last = performance.now(), longest = 0, frames = 0;
  const step = (now) => {
    if (frames > 2) longest = Math.max(longest, now - last);
    last = now;
    box.scrollTop += 700;
    if (frames++ < 120) requestAnimationFrame(step); else done(longest);
  };
  requestAnimationFrame(step);
})"""


def measurements(quick: bool) -> Iterator[Measurement]:
    """The first rows of a long list, a filter, a large trace, and moving through it."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("ui: playwright is not installed: pip install playwright", file=sys.stderr)
        return
    if CHROMIUM is None:
        print("ui: no Chromium here: apt-get install chromium", file=sys.stderr)
        return
    sessions, spans = (10_000, 2_000) if quick else (100_000, 20_000)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        path = Path(folder) / "tapes.db"
        fill(path, sessions, spans)
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        with _serving(path) as address:
            yield from _measured(browser, address, f"{sessions:,}", f"{spans:,}")
            yield _opened(browser, address)
        many = 100_000 if quick else 1_000_000
        with _serving(_kept(many)) as address:
            yield from _many(browser, address, f"{many:,}")
        yield _seen(browser, Path(folder) / "seen.db")
        browser.close()


def _at_rest(page: Any) -> Any:
    """A new tab, once the browser is done with making it: a second of its processors' work."""
    page.wait_for_timeout(1000)
    return page


def _page(browser: Any, address: str) -> Any:
    context = browser.new_context(viewport={"width": 1400, "height": 860})
    context.add_init_script(WATCH)
    page = context.new_page()
    page.goto(address)
    return page


def _many(browser: Any, address: str, spans: str) -> Iterator[Measurement]:
    """Another filter over a very long list: one that much fits, and one that nothing does."""
    page = _page(browser, f"{address}/#/spans")
    page.evaluate(ROWS)
    taken = []
    for word in ("tool:Bash", "status:error", "model:claude-haiku-4-5", "tool:Read"):
        page.evaluate(GO, f"/spans?q={word}")
        taken.append(page.evaluate(FILTERED, word) / 1000)
    yield _held(f"list of {spans} spans: another filter, the slowest of four", max(taken), 0.300)
    page.evaluate(GO, "/spans?q=agent:rare")
    yield _held("the same where three fit", page.evaluate(THREE_FIT) / 1000, 0.300)
    for word, what in (("model:nobody", "a model"), ("duration:>9h", "a duration")):
        page.evaluate(GO, f"/spans?q={quote(word)}")
        seconds = page.evaluate(NONE_FITS, word.partition(":")[2]) / 1000
        yield _held(f"the same where nothing fits, {what}", seconds, 0.300)
    page.context.close()


def _opened(browser: Any, address: str) -> Measurement:
    """The content of a span, from the step that chooses it in its trace, which is there by then."""
    with urllib.request.urlopen(f"{address}/v1/spans?q=model:large&limit=5") as answer:
        [found] = [each for each in json.load(answer)["items"] if each["kind"] == "llm"]
    page = _page(browser, f"{address}/#/trace/{found['trace_id']}?span=none")
    page.evaluate("until(() => document.querySelector('[role=treeitem]'))")
    _at_rest(page)
    page.evaluate(GO, f"/trace/{found['trace_id']}?span={found['span_id']}")
    seconds = page.evaluate(CONTENT, LARGE[:60]) / 1000
    page.context.close()
    return _held(f"content of a span of {len(LARGE) / 1e6:.0f} MB", seconds, 0.200)


def _seen(browser: Any, store: Path) -> Measurement:
    """A turn that comes in over the private door, until the page that shows its session has it."""
    port = closed_port()
    listen = [f"--api-listen=127.0.0.1:{port}", "--proxy-listen=127.0.0.1:0"]
    command = [sys.executable, "-c", CODE, "serve", "--json", "--ingest-listen=127.0.0.1:0"]
    said = r'"ingest": "http://127\.0\.0\.1:(\d+)"'
    with running([*command, *listen, f"--store={store}"], said) as server:
        api = f"http://127.0.0.1:{port}"
        _send(server.port, 0)
        page = _page(browser, f"{api}/#/sessions")
        page.get_by_role("row").filter(has_text="question 0").get_by_role("link").click()
        page.evaluate("until(() => document.querySelector('[role=feed]'))")
        waits = []
        for number in range(1, 6):
            page.evaluate(WAIT_FOR, f"answer {number}.")
            began = time.time()
            _send(server.port, number)
            waits.append(page.evaluate("window.came") / 1000 - began)
        page.context.close()
    return _held("a new turn until an open page shows it, the slowest of five", max(waits), 1.0)


def _send(port: int, number: int) -> None:
    said = [{"type": "text", "text": f"answer {number}."}]
    asked = [{"role": "user", "content": f"question {n}"} for n in range(number + 1)]
    turn = {
        "provider": "anthropic",
        "request": {"model": "bench-1", "max_tokens": 9, "messages": asked},
        "response": {"model": "bench-1", "done": True, "stop_reason": "end_turn",
                     "message": {"role": "assistant", "content": said}},
        "meta": {"request_id": f"seen-{number}", "elapsed_seconds": 0.1},
        "session": {"harness_id": "bench", "harness_session_id": "seen"},
    }  # fmt: skip
    headers = {"content-type": "application/json"}
    address = f"http://127.0.0.1:{port}/v1/ingest"
    request = urllib.request.Request(address, json.dumps(turn).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 202


def _measured(browser: Any, address: str, sessions: str, spans: str) -> Iterator[Measurement]:
    def shown(place: str, holds: str, where: str = address) -> tuple[float, Any]:
        context = browser.new_context(viewport={"width": 1400, "height": 860})
        context.add_init_script(WATCH)
        page = _at_rest(context.new_page())
        page.goto(f"{where}/{place}")
        return page.evaluate(holds) / 1000, page

    def quickest(place: str, where: str = address) -> tuple[float, float, float]:
        """To rows: as asked for after the page was loaded, from within it, and its own work."""
        taken = []
        for _ in range(5):
            seconds, page = shown(place, ROWS, where)
            within = page.evaluate("rowsAt") / 1000
            page.context.close()
            taken.append((seconds, within, _worked(browser, f"{where}/{place}")))
        return min(a for a, _, _ in taken), min(b for _, b, _ in taken), min(c for *_, c in taken)

    shown("#/sessions", ROWS)[1].context.close()  # the server's own first time
    first, within, work = quickest("#/sessions")
    yield _held(f"list of {sessions} sessions: from nothing to rows", first, 0.150)
    yield _held("the same, looked for from within the page", within, 0.150)
    with _one_line() as elsewhere:
        bare, bare_within, bare_work = quickest("", elsewhere)
    beside = (first, bare), (within, bare_within), (work, bare_work)
    names = "", ", from within the page", ", of the processor in the page"
    for (ours, least), how in zip(beside, names, strict=True):
        yield Measurement(f"beside a page of one line{how}", ours, least, "one line", "s")
    page = shown("#/sessions", READY)[1]
    page.evaluate(GO, "/sessions?q=model:claude-haiku-4-5&sort=total_tokens")
    yield _held("another filter and order: rows", page.evaluate(SORTED) / 1000, 0.300)
    page.evaluate(GO, f"/trace/{TRACE}")
    yield _held(f"trace of {spans} spans: usable", page.evaluate(SPANS) / 1000, 1.0)
    whole = page.evaluate(WHOLE, f"{spans} spans") / 1000
    yield Measurement(f"all {spans} spans there", whole, 1.0, "a second", "s")
    page.context.close()
    page = shown("#/sessions", READY)[1]
    with _busy(browser, page) as arriving:  # looked at by itself: to look on takes time
        page.evaluate(GO, f"/trace/{TRACE}")
        page.evaluate(WHOLE, f"{spans} spans")
    yield _held("the longest work while they come, of the processor", arriving[0], 0.050)
    mounted = page.evaluate("document.querySelectorAll('[role=treeitem]').length")
    yield Measurement("rows in the document", mounted, 100, "the promise", "rows", 1.0)
    yield _held("the longest frame while scrolling", page.evaluate(SCROLL) / 1000, 0.050)
    with _busy(browser, page) as scrolling:
        page.evaluate(SCROLL)
    yield _held("the longest work while scrolling, of the processor", scrolling[0], 0.050)


def _held(what: str, seconds: float, promise: float) -> Measurement:
    return Measurement(what, seconds, promise, "the promise", "s", 1.0)


@contextmanager
def _busy(browser: Any, page: Any) -> Iterator[list[float]]:
    """Holds, at its end, the most processor time that one piece of the page's work took."""
    longest: list[float] = []
    browser.start_tracing(page=page, categories=["toplevel"])
    try:
        yield longest
    finally:
        events = json.loads(browser.stop_tracing())["traceEvents"]
    longest.append(max(each.get("tdur", 0) for each in _of_pages(events)) / 1e6)


def _worked(browser: Any, address: str) -> float:
    """The processor time of a page's own thread until its first rows are painted."""
    context = browser.new_context(viewport={"width": 1400, "height": 860})
    context.add_init_script(WATCH)
    page = _at_rest(context.new_page())
    browser.start_tracing(page=page, categories=["toplevel", "blink.user_timing"])
    page.goto(address)
    page.wait_for_function("performance.getEntriesByName('rows').length", polling=50)
    events = json.loads(browser.stop_tracing())["traceEvents"]
    context.close()
    [rows] = [each for each in events if each["name"] == "rows"]
    mine = [each for each in events if each["pid"] == rows["pid"] and each["ts"] <= rows["ts"]]
    begun = max((each["ts"] for each in mine if each["name"] == "navigationStart"), default=0)
    tasks = [
        each.get("tdur", 0)
        for each in _of_pages(events)
        if each["pid"] == rows["pid"]
        and each["name"].endswith("RunTask")
        and begun <= each["ts"] <= rows["ts"]
    ]
    return float(sum(tasks)) / 1e6


def _of_pages(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the main threads of pages did."""
    main = {
        (each["pid"], each["tid"])
        for each in events
        if each["name"] == "thread_name" and each["args"]["name"] == "CrRendererMain"
    }
    return [each for each in events if (each["pid"], each["tid"]) in main]


class _OneLine(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b"a row" if self.path == "/rows" else ONE_LINE
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def _one_line() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _OneLine)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def _serving(path: Path) -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


# --- rows: those of the samples, many times ---------------------------------------------------


LARGE = " ".join(f"word{number}" for number in range(110_000))[:1_000_000]


def _kept(spans: int) -> Path:
    """A database with so many spans; the one of the last time where it is made alike."""
    sources = [Path(__file__), *sorted((Path(tapes.store.__file__).parent).glob("*.py"))]
    alike = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"tapes-benchmarks-{os.getuid()}"
    path = folder / f"ui-{spans}-{alike}.db"
    if path.exists():
        return path
    folder.mkdir(exist_ok=True)
    for old in folder.glob(f"ui-{spans}-*"):
        old.unlink()
    building = folder / f"ui-{spans}-{alike}.new"
    fill(building, 100, 100)
    with closing(sqlite3.connect(building)) as database:
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA cache_size = -200000")
        multiply(database, "spans", spans, {
            "trace_id": "'many-' || (n / 50)",
            "span_id": "span_id || '-' || n",
            "response_id": "''",
            "started_at": "started_at - n * 1000000000",
            "session_id": f"CAST(printf('many-%011d', n / {LONG}) AS BLOB)",
        })  # fmt: skip
        _of_sessions(database)
        rarely(database)
        database.execute("ANALYZE")
        database.commit()
    return building.rename(path)


# The spans of one session: more than are looked through one by one.
LONG = 5_000
_KEPT = (("model", "model"), ("model", "request_model"), ("agent", "agent"), ("kind", "call_kind"),
         ("error", "error_type"), ("provider", "provider"), ("outcome", "outcome"),
         ("stop", "stop_reason"))  # fmt: skip


def _of_sessions(database: sqlite3.Connection) -> None:
    """The sessions of the many spans, and what is kept of each."""
    columns = [row[1] for row in database.execute("PRAGMA table_info(sessions)")]
    made = {"id": "many.id", "started_at": "many.first", "last_seen_at": "many.last",
            "place": "2000000000 + row_number() OVER ()"}  # fmt: skip
    values = ", ".join(made.get(column, f"one.{column}") for column in columns)
    # Names of ours.
    database.execute(
        f"INSERT INTO sessions ({', '.join(columns)}) SELECT {values}"
        " FROM (SELECT * FROM sessions WHERE NOT placeholder LIMIT 1) AS one, (SELECT session_id"
        " AS id, min(started_at) AS first, max(started_at) AS last FROM spans"
        " WHERE trace_id LIKE 'many-%' GROUP BY session_id) AS many"
    )
    tools = (
        "SELECT org_id, 'tool' AS name, name AS value, session_id FROM spans WHERE kind = 'tool'"
    )
    each = " UNION ".join(
        [tools]
        + [
            f"SELECT org_id, '{name}', {column}, session_id FROM spans WHERE {column} != ''"
            + (" AND kind = 'llm'" if name == "model" else "")
            for name, column in _KEPT
        ]
    )
    database.execute(
        f"INSERT OR IGNORE INTO session_facets (org_id, name, value, session_id) {each}"
    )


def _large_turn() -> RawTurn:
    """A call whose answer is a megabyte."""
    message = {"role": "assistant", "content": LARGE}
    answer = {"id": "large-1", "model": "large", "choices": [{"message": message}]}
    body: Json = {"model": "large", "messages": [{"role": "user", "content": "All of it"}]}
    pieces = (Piece(1.0, json.dumps(answer).encode()),)
    response = Response(200, (("content-type", "application/json"),), pieces)
    return raw_turn(1, "large", body, response, "/v1/chat/completions")


def fill(path: Path, sessions: int, spans: int) -> None:
    """A database with so many sessions, and a trace of so many spans."""
    store = open_sqlite(path)
    seed(store)
    store.append([_large_turn()])
    Projector(store).drain()
    store.close()
    with closing(sqlite3.connect(path)) as database:
        _multiply_sessions(database, sessions)
        _lengthen_trace(database, spans)
        database.commit()


def _multiply_sessions(database: sqlite3.Connection, count: int) -> None:
    for table in ("sessions", "traces", "session_facets"):
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        rows = database.execute(f"SELECT * FROM {table}").fetchall()  # a name of ours
        kept = [dict(zip(columns, row, strict=True)) for row in rows]
        insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})"
        database.executemany(insert, _copies(table, columns, kept, count))


def _copies(
    table: str, columns: list[str], rows: list[dict[str, Any]], count: int
) -> Iterator[list[Any]]:
    key = "id" if table == "sessions" else "session_id"
    ids = sorted({row[key] for row in rows})
    for number in range(1, count // len(ids) + 1):
        for row in rows:
            mine = ids.index(row[key])
            made = row | {key: number.to_bytes(8, "big") + mine.to_bytes(8, "big")}
            for name in ("started_at", "last_seen_at", "ended_at"):
                if made.get(name) is not None:
                    made[name] -= number * 60_000_000_000
            if "trace_id" in row:
                made["trace_id"] = f"{row['trace_id']}-{number}"
            if "place" in row:
                made["place"] = 1_000_000_000 + number * len(ids) + mine
            yield [made[name] for name in columns]


def _lengthen_trace(database: sqlite3.Connection, count: int) -> None:
    columns = [row[1] for row in database.execute("PRAGMA table_info(spans)")]
    found = database.execute("SELECT * FROM spans WHERE trace_id = ? ORDER BY seq", (TRACE,))
    rows = [dict(zip(columns, row, strict=True)) for row in found]
    [first] = database.execute("SELECT max(place) FROM spans").fetchone()
    length = max(row["started_at"] for row in rows) - rows[0]["started_at"] + 1_000_000_000
    inside = rows[1:]

    def made() -> Iterator[list[Any]]:
        for number in range(count - len(rows)):
            row = inside[number % len(inside)]
            round_ = number // len(inside) + 1
            parent = row["parent_span_id"]
            is_top = parent == rows[0]["span_id"]
            copy = row | {
                "place": first + 1 + number,
                "span_id": f"{row['span_id']}-{round_}",
                "parent_span_id": parent if is_top else f"{parent}-{round_}",
                "thread_id": row["thread_id"] and f"{row['thread_id']}-{round_}",
                "started_at": row["started_at"] + round_ * length,
                "seq": len(rows) + number,
                "response_id": "",
            }
            yield [copy[name] for name in columns]

    insert = f"INSERT INTO spans VALUES ({', '.join('?' * len(columns))})"
    database.executemany(insert, made())
    database.execute("UPDATE traces SET span_count = ? WHERE trace_id = ?", (count, TRACE))
