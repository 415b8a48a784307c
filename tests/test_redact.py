"""No secret comes to rest, and nothing else changes."""

import gzip
import json
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tapes.canonical import http_identity, multipart_pieces
from tapes.errors import SecretFound
from tapes.exchange import Piece, Request, Response
from tapes.patterns import SECRET_PATTERNS, user_patterns
from tapes.redact import Redactor
from tests.planted import A20, A36, BY_PATTERN, KEY
from tests.strategies import OBJECTS, TEXT, cuts_of

JSON_TYPE = ("content-type", "application/json")
STREAM_TYPE = ("content-type", "text/event-stream")


def text_of(value: Request | Response) -> str:
    """Everything of a message that would come to rest."""
    return repr(value)


def request(body: bytes = b"", *headers: tuple[str, str], url: str = "https://h/v1") -> Request:
    return Request("POST", url, (JSON_TYPE, *headers), body)


def response(*pieces: bytes, headers: tuple[tuple[str, str], ...] = (JSON_TYPE,)) -> Response:
    return Response(200, headers, tuple(Piece(float(n), data) for n, data in enumerate(pieces)))


# --- places made for credentials


@pytest.mark.row("N13", "A12")
def test_keys_cookies_and_account_names_do_not_come_to_rest() -> None:
    redactor = Redactor()
    asked = redactor.request(
        request(
            b'{"a":1}',
            ("Authorization", "Bearer s3cret-bearer"),
            ("Cookie", "session=c00kie-value"),
            ("OpenAI-Organization", "org-of-ours"),
            ("X-Goog-Api-Key", "g00gle-key"),
            url="https://user:passw0rd@h/v1?key=q-key-1&alt=sse",
        )
    )
    answered = redactor.response(
        response(
            b'{"echo":"s3cret-bearer and c00kie-value"}',
            headers=(
                JSON_TYPE,
                ("Set-Cookie", "sid=set-c00kie; Path=/"),
                ("openai-organization", "org-of-ours"),
                ("x-request-id", "r1"),
            ),
        )
    )
    rest = text_of(asked) + text_of(answered)
    for secret in ("s3cret", "c00kie", "org-of-ours", "g00gle", "passw0rd", "q-key-1"):
        assert secret not in rest
    assert asked.url == "https://h/v1?key=REDACTED.key&alt=sse"
    assert ("x-request-id", "r1") in answered.headers


def test_request_headers_are_kept_by_a_list_of_the_harmless() -> None:
    kept = Redactor().request(
        request(
            b"{}",
            ("anthropic-version", "2023-06-01"),
            ("accept", "*/*"),
            ("x-unheard-of", "anything"),
        )
    )
    assert [name for name, _ in kept.headers] == ["content-type", "anthropic-version", "accept"]


def test_a_header_that_is_declared_to_belong_to_the_identity_is_kept() -> None:
    kept = Redactor(keep=frozenset({"x-variant"})).request(request(b"{}", ("X-Variant", "b")))
    assert ("X-Variant", "b") in kept.headers


@pytest.mark.parametrize("name", ["%6Bey", "KEY", "api%5Fkey", "X-Amz-Signature"])
def test_a_parameter_is_known_however_its_name_is_spelled(name: str) -> None:
    assert "s3cret" not in Redactor().url(f"https://h/v1?a=1&{name}=s3cret&b=2")


def test_what_needs_no_change_is_the_same_object() -> None:
    clean = Request("POST", "https://h/v1?a=1", (JSON_TYPE,), b'{"n":[1,2.50],"t":"caf\xc3\xa9"}')
    assert Redactor().request(clean) is clean
    assert Redactor().value(value := {"a": [1, "text"]}) is value
    answer = response(b'{"id":"x"}')
    assert Redactor().response(answer).pieces is answer.pieces


def upload(*parts: str) -> Request:
    body = "".join(f"--B\r\n{part}\r\n" for part in parts) + "--B--\r\n"
    return Request(
        "POST", "https://h/", (("content-type", "multipart/form-data; boundary=B"),), body.encode()
    )


def field(says: str, value: str) -> str:
    return f"Content-Disposition: form-data; {says}\r\n\r\n{value}"


@pytest.mark.row("N14")
@pytest.mark.parametrize(
    "make",
    [
        lambda key: request(b'{"a":1}', ("authorization", f"Bearer {key}")),
        lambda key: request(b'{"a":1}', url=f"https://h/v1?key={key}"),
        lambda key: request(json.dumps({"api_key": key, "a": 1}).encode()),
        lambda key: request(json.dumps({"args": json.dumps({"password": key})}).encode()),
        lambda key: Request(
            "POST",
            "https://h/token",
            (("content-type", "application/x-www-form-urlencoded"),),
            f"grant=x&client%5Fsecret={key}".encode(),
        ),
        lambda key: upload(field('name="password"', key), field('name="note"', "n")),
    ],
    ids=["header", "parameter", "member", "member in text", "form", "upload"],
)
def test_a_credential_counts_for_nothing(make: Callable[[str], Request]) -> None:
    one, other = (http_identity(Redactor().request(make(k)))[0] for k in ("AAA-1", KEY))
    assert one == other


@pytest.mark.row("N11", "N13")
@pytest.mark.parametrize(
    ("says", "is_secret"),
    [
        ('name="api_key"', True),
        ("name=accessToken", True),
        ('charset=utf-8; NAME="token"', True),
        ('name="note"', False),
        ('name="key"', False),  # of an object in a store: another name, another upload
        ('name="password"; filename="list.txt"', False),  # a file is known by all its bytes
        ('filename="name=password"; name="f"', False),
    ],
)
def test_a_field_of_an_upload_is_a_credential_by_its_name(says: str, is_secret: bool) -> None:
    value = "correct horse"
    redactor = Redactor()
    before = upload(field('name="a"', "1"), field(says, value), field('name="z"', f"of {value}."))
    kept = redactor.request(before)
    assert (value.encode() not in kept.body) is is_secret
    assert (kept is before) is not is_secret
    assert len(multipart_pieces("multipart/form-data; boundary=B", kept.body) or ()) == 3
    assert redactor.request(kept) is kept


@pytest.mark.row("N14")
def test_a_token_from_an_answer_is_known_in_the_next_request() -> None:
    redactor = Redactor()
    first = redactor.response(response(b'{"access_token":"t0ken-of-the-day","expires":1}'))
    second = redactor.request(
        request(b'{"use":"t0ken-of-the-day"}', url="https://h/files/t0ken-of-the-day")
    )
    assert first.body == b'{"access_token":"REDACTED.access_token","expires":1}'
    assert second.body == b'{"use":"REDACTED.access_token"}'
    assert second.url == "https://h/files/REDACTED.access_token"


@pytest.mark.parametrize("text", ["\\u00", "\\\\u00", "\\u00zz \\u0041", "\\", "\\u0000"])
def test_what_only_begins_like_an_escape_is_text(text: str) -> None:
    assert Redactor().text(text) == text
    assert Redactor().value({"a": text, text: 1}) == {"a": text, text: 1}
    assert Redactor().body(json.dumps(text).encode()) == json.dumps(text).encode()


def test_a_password_in_a_url_is_known_and_the_rest_of_the_url_stays() -> None:
    redactor = Redactor()
    clean = redactor.request(
        request(b'{"t":"my p@ss-w0rd"}', url="https://me:p%40ss-w0rd@h:1/a@b?c=@")
    )
    assert clean.url == "https://h:1/a@b?c=@"
    assert clean.body == b'{"t":"my REDACTED.password"}'


@pytest.mark.parametrize(
    "text",
    ["?abc=" * 60_000, "sk-" * 2_500 + ".", "-----BEGIN PRIVATE KEY-----" * 4_000, "A_" * 90_000,
     "eyJ" * 2_500 + ".", "\\" * 100_000 + "u0041", ";sig=" + "a" * 200_000],
    ids=["parameters", "markers", "beginnings", "names", "tokens", "escapes", "a value"],
)  # fmt: skip
def test_no_text_takes_for_ever(text: str) -> None:
    assert isinstance(Redactor().text(f'"password" : "{text}"' + text), str)


def test_the_user_and_password_of_basic_credentials_are_known() -> None:
    redactor = Redactor()
    redactor.request(request(b"{}", ("authorization", "Basic dXNlcjpodW50ZXItMjI=")))
    assert redactor.text("the password hunter-22") == "the password REDACTED.authorization"


@pytest.mark.parametrize("key", ["anything", "assistant", "ollama", "EMPTY", "12345678", "none"])
def test_a_key_that_is_a_word_or_a_number_is_not_replaced_in_texts(key: str) -> None:
    redactor = Redactor()
    redactor.request(request(b"{}", ("authorization", f"Bearer {key}")))
    body = json.dumps({"role": key, "n": 12345678}).encode()
    assert redactor.response(response(body)).body == body


# --- known forms of keys


@pytest.mark.parametrize("secret", BY_PATTERN.values(), ids=BY_PATTERN)
def test_a_known_form_is_replaced_by_a_word_with_a_hash(secret: str) -> None:
    body = json.dumps({"content": f"use {secret} here"}).encode()
    clean = Redactor().body(body)
    assert secret not in json.loads(clean)["content"]
    assert clean.startswith(b'{"content": "use ')
    assert clean.endswith(b' here"}')


def test_equal_secrets_stay_equal_and_different_ones_different() -> None:
    other = KEY[:-1] + "Z"
    one, same, different = (Redactor().text(f"a {k} b") for k in (KEY, KEY, other))
    assert one == same != different
    assert Redactor().value({"t": KEY}) == {"t": one[2:-2]}


def test_a_url_with_a_signature_in_a_text_loses_the_signature() -> None:
    text = f"see https://store/i.png?se=2026-01-01&sig={A20}%2B1&sv=1 now"
    clean = "see https://store/i.png?se=2026-01-01&sig=REDACTED.sig&sv=1 now"
    assert Redactor().text(text) == clean
    assert Redactor().text("call it with ?key=YOUR_API_KEY_GOES_HERE") == (
        "call it with ?key=YOUR_API_KEY_GOES_HERE"
    )


@pytest.mark.parametrize("line", [f"ACME_API_KEY={A20}", f'export DB_PASSWORD = "{A20}"'])
def test_a_file_of_settings_in_a_text_loses_its_secrets(line: str) -> None:
    assert A20 not in Redactor().text(f"$ cat .env\n{line}\nPORT=8080\n")


@pytest.mark.parametrize(
    "code",
    [
        'OPENAI_API_KEY = os.environ["OPENAI_API_KEY_2"]',
        "MY_TOKEN=get_the_token_2_from(store)",
        "MAX_TOKENS=1000",
    ],
)
def test_code_that_reads_settings_is_left_alone(code: str) -> None:
    assert Redactor().text(code) == code


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('{"api_key"\t: "a-4-long-word"}', "a-4-long-word"),
        ('{"api_key"\n: "a-4-long-word"}', "a-4-long-word"),
        (r'{"said": "Bearer ab3\/cd4\/ef5\/gh6\/ij7\/kl8"}', r"ab3\/cd4\/ef5\/gh6\/ij7\/kl8"),
        ("see https://a.test/?token=" + "a1" * 300, "a1" * 300),
        ("see https://a.test/?access_token=ab1é" + "cd2é" * 5, "cd2é" * 5),
        ("NAME_API_KEY=\nabcdefgh12345678", "abcdefgh12345678"),
        ("NAME_API_KEY\t=abcdefgh12345678", "abcdefgh12345678"),
    ],
)
def test_an_unusual_spelling_hides_nothing(text: str, secret: str, nested: bool) -> None:
    if nested:
        text, secret = json.dumps(text), json.dumps(secret)[1:-1]
    assert secret in text
    assert secret not in Redactor().text(text)
    assert secret.encode() not in Redactor().body(text.encode())


KINDS = st.sampled_from(["API_KEY", "SECRET_KEY", "ACCESS_KEY", "SECRET", "TOKEN", "PASSWORD"])


@given(st.from_regex("[A-Z][A-Z0-9_]{0,9}", fullmatch=True), KINDS, st.binary(max_size=20))
@pytest.mark.parametrize("set_to", ["=", " = ", "\t=\n", ' ="'])
def test_a_setting_is_seen_among_bytes(set_to: str, name: str, kind: str, noise: bytes) -> None:
    line = f"{name}_{kind}{set_to}{A20}".encode()
    assert A20.encode() not in Redactor().body(noise + b"\xff\n" + line + b"\n" + noise)


SPACES = st.text(st.sampled_from(" \t\n\x0c\xa0"), min_size=1, max_size=3)


NAMES = st.sampled_from(["api_key", "access-token", "ACME_API_KEY", "Password"])


@given(NAMES, SPACES, st.integers(0, 2))
def test_a_name_set_apart_is_seen_however_deep_it_lies(name: str, space: str, depth: int) -> None:
    text = f'{{"{name}"{space}: "a-4-long-word"}}'
    for _ in range(depth):
        text = json.dumps(text)
    assert "a-4-long-word" not in Redactor().text(text)


def test_a_secret_may_be_refused_instead() -> None:
    with pytest.raises(SecretFound, match="openai_key"):
        Redactor(refuse=True).request(request(json.dumps({"t": KEY}).encode()))
    Redactor(refuse=True).request(request(b"{}", ("authorization", f"Bearer {KEY}")))


# --- wherever it is planted


def in_a_header(secret: str) -> Request:
    return request(b"{}", ("anthropic-beta", f"a,{secret}"))


def in_a_query(secret: str) -> Request:
    return request(b"{}", url=f"https://h/v1?note={secret}")


def in_a_cookie(secret: str) -> Request:
    return request(b"{}", ("cookie", f"sid={secret}"))


def in_a_path(secret: str) -> Request:
    return request(b"{}", url=f"https://h/{secret}/v1")


def in_a_member(secret: str) -> Request:
    return request(json.dumps({"a": [{"b": secret}]}).encode())


def in_a_name(secret: str) -> Request:
    return request(json.dumps({secret: 1}).encode())


def on_a_new_line(secret: str) -> Request:
    return request(json.dumps({"a": f"keys:\n{secret}\n"}).encode())


def in_nested_text(secret: str) -> Request:
    return request(json.dumps({"a": json.dumps({"b": json.dumps([secret])})}).encode())


def escaped(secret: str) -> Request:
    spelled = "".join(f"\\u{ord(c):04x}" for c in secret)
    return request(b'{"a":"' + spelled.encode() + b'"}')


def escaped_in_nested_text(secret: str) -> Request:
    spelled = "".join(f"\\u{ord(c):04x}" for c in secret)
    return request(json.dumps({"a": '{"b":"' + spelled + '"}'}).encode())


def in_a_gzip_body(secret: str) -> Request:
    return request(gzip.compress(json.dumps({"a": secret}).encode()), ("content-encoding", "gzip"))


def in_a_multipart_body(secret: str) -> Request:
    return upload(field('name="f"', secret))


def beside_binary(secret: str) -> Request:
    return request(b"\xff\xfe\x00 " + secret.encode() + b" \x80")


PLACES: list[Callable[[str], Request]] = [
    in_a_header,
    in_a_query,
    in_a_cookie,
    in_a_path,
    in_a_member,
    in_a_name,
    on_a_new_line,
    in_nested_text,
    escaped,
    escaped_in_nested_text,
    in_a_gzip_body,
    in_a_multipart_body,
    beside_binary,
]
PLAIN_KEYS = {name: secret for name, secret in BY_PATTERN.items() if "\n" not in secret}


def decoded_text(message: Request) -> str:
    """All texts of a message, gzip undone and every level of escapes undone as well."""
    text = repr(message)
    body = message.body
    if ("content-encoding", "gzip") in message.headers:
        body = gzip.decompress(body)
    plain = body.decode("latin-1")
    for _ in range(4):
        text += plain
        plain = plain.encode("latin-1").decode("unicode_escape") if "\\" in plain else plain
        if not plain.isascii():
            break
    return text


@pytest.mark.row("N13")
@pytest.mark.parametrize("secret", PLAIN_KEYS.values(), ids=PLAIN_KEYS)
@pytest.mark.parametrize("plant", PLACES, ids=lambda place: place.__name__)
def test_a_planted_secret_never_comes_to_rest(plant: Callable[[str], Request], secret: str) -> None:
    planted = plant(secret)
    assert secret in decoded_text(planted)
    assert secret not in decoded_text(Redactor().request(planted))


def is_clean(value: Any) -> bool:
    """Whether chance planted nothing: hypothesis draws words from the sources as well."""
    return Redactor().value(value) is value


@given(st.sampled_from(sorted(PLAIN_KEYS.values())), OBJECTS, TEXT, st.booleans())
def test_a_secret_in_any_json_is_replaced_and_nothing_else_changes(
    secret: str, around: dict[str, Any], before: str, ascii_only: bool
) -> None:
    assume(is_clean(around) and is_clean(before))
    value = {"around": around, "text": f"{before} {secret} ", "list": [secret]}
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    clean = Redactor().body(data)
    assert secret.encode() not in clean
    expected = dict(json.loads(clean))
    word = expected["list"][0]
    assert expected == {"around": around, "text": f"{before} {word} ", "list": [word]}
    assert Redactor().value(value) == expected


@given(st.sampled_from(sorted(BY_PATTERN.values())), OBJECTS, st.booleans())
def test_redacting_twice_changes_nothing_more(
    secret: str, around: dict[str, Any], nested: bool
) -> None:
    inner: Any = {"t": secret, "password": "pass-w0rd", "u": f"http://h/?sig={A36}"}
    value = {"a": around, "b": json.dumps(inner) if nested else inner, "api_key": secret}
    once = Redactor().request(request(json.dumps(value).encode(), url=f"https://h/?key={secret}"))
    assert Redactor().request(once) == once
    assert Redactor().request(once).body == once.body
    plain = Redactor().value(value)
    assert Redactor().value(plain) is plain


# --- streams and pieces


def events(*texts: str) -> bytes:
    deltas = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    return b"".join(b"data: %s\n\n" % json.dumps(delta).encode() for delta in deltas)


def spelled(data: bytes) -> str:
    """What the events of a stream spell together."""
    deltas = [json.loads(line[6:]) for line in data.split(b"\n") if line.startswith(b"data: {")]
    return "".join(d["choices"][0]["delta"]["content"] for d in deltas)


@given(st.data(), st.sampled_from(sorted(PLAIN_KEYS.values())))
def test_a_secret_over_events_and_pieces_is_found_wherever_it_is_cut(
    data: st.DataObject, secret: str
) -> None:
    texts = [part.decode() for part in data.draw(cuts_of(f"a {secret} b".encode()))]
    body = events(*texts) + b"data: [DONE]\n\n"
    pieces = [piece for piece in data.draw(cuts_of(body)) if piece]
    clean = Redactor().response(response(*pieces, headers=(STREAM_TYPE,)))
    together = spelled(clean.body)
    assert secret not in together
    assert together.startswith("a REDACTED.")
    assert together.endswith(" b")
    assert clean.body.count(b"\n\n") == body.count(b"\n\n")


@given(st.data(), st.lists(TEXT, min_size=1, max_size=6))
def test_pieces_without_a_secret_stay_as_they_are(data: st.DataObject, texts: list[str]) -> None:
    assume(is_clean("".join(texts)))
    pieces = [piece for piece in data.draw(cuts_of(events(*texts))) if piece]
    answer = response(*pieces, headers=(STREAM_TYPE,))
    assert Redactor().response(answer).pieces is answer.pieces


def test_piece_boundaries_outside_of_a_secret_stay_where_they_are() -> None:
    pieces = (b'data: {"t":"one"}\n\n', b'data: {"t":"' + KEY.encode() + b'"}\n\n', b"data: x\n\n")
    clean = Redactor().response(response(*pieces, headers=(STREAM_TYPE,)))
    assert [p.at for p in clean.pieces] == [0.0, 1.0, 2.0]
    assert clean.pieces[0].data == pieces[0]
    assert clean.pieces[2].data == pieces[2]
    assert clean.pieces[1].data.startswith(b'data: {"t":"REDACTED.openai_key.')


def test_a_piece_that_held_nothing_but_a_secret_is_gone_with_it() -> None:
    middle = len(KEY) // 3
    parts = [KEY[:middle], KEY[middle : 2 * middle], KEY[2 * middle :]]
    clean = Redactor().response(response(*(part.encode() for part in parts)))
    assert len(clean.pieces) == 1
    assert clean.body.startswith(b"REDACTED.openai_key.")


def test_an_argument_of_a_tool_that_is_a_password_is_found_over_events() -> None:
    parts = ['{"pass', 'word": "hun', 'ter-22", "x": 1}']
    body = b"".join(
        b"event: content_block_delta\ndata: %s\n\n"
        % json.dumps({"index": 1, "delta": {"partial_json": part}}).encode()
        for part in parts
    )
    clean = Redactor().response(response(body, headers=(STREAM_TYPE,)))
    assert b"hun" not in clean.body
    assert b"ter-22" not in clean.body
    assert b'\\", \\"x\\": 1}' in clean.body


def test_two_lines_of_json_spell_a_secret_together() -> None:
    body = json.dumps({"response": KEY[:9]}) + "\n" + json.dumps({"response": KEY[9:]})
    clean = Redactor().response(
        response(body.encode(), headers=(("content-type", "application/x-ndjson"),))
    )
    assert KEY[9:].encode() not in clean.body


def test_a_coded_body_without_secrets_keeps_its_bytes() -> None:
    coded = gzip.compress(b'{"a":1}')
    answer = response(coded[:9], coded[9:], headers=(JSON_TYPE, ("content-encoding", "gzip")))
    assert Redactor().response(answer) == answer


def test_a_coded_body_with_a_secret_loses_its_coding_and_keeps_its_length_true() -> None:
    coded = gzip.compress(json.dumps({"t": KEY}).encode())
    headers = (JSON_TYPE, ("Content-Encoding", "gzip"), ("Content-Length", str(len(coded))))
    clean = Redactor().response(response(coded, headers=headers))
    assert clean.headers == (JSON_TYPE, ("Content-Length", str(len(clean.body))))
    assert json.loads(clean.body)["t"].startswith("REDACTED.openai_key.")


def test_bytes_that_nobody_can_decode_are_looked_at_as_they_are() -> None:
    answer = response(KEY.encode(), headers=(JSON_TYPE, ("content-encoding", "gzip")))
    assert KEY.encode() not in Redactor().response(answer).body


# --- what users declare


def declared(**entry: Any) -> Redactor:
    patterns = user_patterns([{"name": "customer", **entry}], "tapes.toml")
    return Redactor(patterns=(*SECRET_PATTERNS, *patterns))


def test_a_users_pattern_is_replaced_everywhere() -> None:
    redactor = declared(pattern=r"Kunde Ł\d{4}")
    assert "Ł1234" not in redactor.body('{"a":"für Kunde Ł1234"}'.encode()).decode()
    assert "Ł1234" not in str(redactor.value({"a": "für Kunde Ł1234"}))


def test_a_value_that_could_be_guessed_keeps_no_hash() -> None:
    assert declared(pattern=r"C-\d{4}", hash=False).text("C-1234") == "REDACTED.customer"
    assert declared(pattern=r"C-\d{4}").text("C-1234").startswith("REDACTED.customer.")


def test_a_secret_number_leaves_the_json_readable() -> None:
    redactor = declared(pattern=r"\b\d{6}\b", hash=False)
    clean = redactor.body(b'{"id":123456,"list":[123456, 1],"t":"123456"}')
    word = "REDACTED.customer"
    assert json.loads(clean) == {"id": word, "list": [word, 1], "t": word}
    assert redactor.value({"id": 123456, "n": 1.5, "b": True}) == {"id": word, "n": 1.5, "b": True}


def test_a_pattern_that_matches_its_own_word_changes_it_no_further() -> None:
    redactor = declared(pattern=r"[a-z_]{5,}")
    once = redactor.text("secretname")
    assert redactor.text(once) == once


# --- many threads


@pytest.fixture
def often_switched() -> Iterator[None]:
    """Threads take turns after every few instructions."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.row("N04")
def test_many_threads_may_redact_at_once(often_switched: None) -> None:
    redactor, failures = Redactor(), list[BaseException]()

    def work(number: int) -> None:
        try:
            for n in range(200):
                token = f"t0ken-{number}-{n}"
                body = json.dumps({"access_token": token, "text": f"it is {token}"}).encode()
                if token.encode() in redactor.body(body):
                    raise AssertionError(token)
        except BaseException as error:  # noqa: BLE001  # handed to the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_harmless_text_is_looked_at_again_when_a_further_secret_is_known() -> None:
    redactor = Redactor()
    assert redactor.text("trace a1b2c3d4e5f6") == "trace a1b2c3d4e5f6"
    redactor.request(Request("POST", "http://h/", (("x-api-key", "a1b2c3d4e5f6"),), b""))
    assert "a1b2c3d4e5f6" not in redactor.text("trace a1b2c3d4e5f6")


def test_a_head_that_was_seen_before_is_looked_at_again_when_a_further_secret_is_known() -> None:
    redactor = Redactor(keep=frozenset({"x-trace"}))
    asked = Request("POST", "http://h/", (("x-trace", "a1b2c3d4e5f6"),), b"")
    assert "a1b2c3d4e5f6" in text_of(redactor.request(asked))
    redactor.request(Request("POST", "http://h/", (("x-api-key", "a1b2c3d4e5f6"),), b""))
    assert "a1b2c3d4e5f6" not in text_of(redactor.request(asked))


# --- however many there are


def cookie(number: int) -> tuple[str, str]:
    return ("Set-Cookie", f"_session=c00kie-{number:08}; Path=/")


def test_of_very_many_secrets_only_those_that_were_seen_last_are_remembered() -> None:
    redactor = Redactor()
    for number in range(2000):
        redactor.response(response(b"{}", headers=(JSON_TYPE, cookie(number))))
    echoed = " ".join(f"c00kie-{number:08}" for number in range(2000))
    assert redactor.text(echoed).count("c00kie-") >= 1700
    assert "c00kie-00001999" not in redactor.text(echoed)


def test_a_key_that_is_used_again_is_remembered_beside_very_many_cookies() -> None:
    redactor = Redactor()
    asked = request(b"{}", ("Authorization", "Bearer s3cret-bearer"))
    for number in range(2000):
        redactor.request(asked)
        redactor.response(response(b"{}", headers=(JSON_TYPE, cookie(number))))
        assert redactor.text("s3cret-bearer") != "s3cret-bearer"


def test_all_secrets_of_one_text_are_replaced_in_all_of_it_however_many_they_are() -> None:
    values = [f"s3cret-{number:08}" for number in range(1000)]
    text = json.dumps([{"password": value} for value in values] + values)
    clean = Redactor().body(text.encode())
    assert b"s3cret-" not in clean


def test_very_long_secrets_are_not_remembered_by_the_hundred() -> None:
    redactor = Redactor()
    values = [f"{number:03}-" + "a1" * 50_000 for number in range(100)]
    for value in values:
        redactor.body(json.dumps({"password": value}).encode())
    assert redactor.text(values[-1]) != values[-1]
    assert sum(redactor.text(value) == value for value in values) > 80


def test_a_request_that_is_answered_late_has_its_secrets_replaced_in_the_answer() -> None:
    redactor = Redactor()
    asked = request(b"{}", ("Authorization", "Bearer s3cret-bearer"))
    redactor.request(asked)
    for number in range(2000):
        redactor.response(response(b"{}", headers=(JSON_TYPE, cookie(number))))
    redactor.remember(asked)
    assert "s3cret-bearer" not in text_of(redactor.response(response(b'"s3cret-bearer"')))


@pytest.mark.row("N13")
@pytest.mark.parametrize(
    ("url", "clean"),
    [
        ("https://me:first@second/third@h/v1", "https://second/third@h/v1"),
        ("https://me:first@second@h/v1?a=b", "https://h/v1?a=b"),
        ("https://h/v1?password=hunter2&a=b", "https://h/v1?password=REDACTED.password&a=b"),
        ("https://h/v1?refreshToken=abc", "https://h/v1?refreshToken=REDACTED.refreshtoken"),
    ],
)
def test_no_part_of_a_credential_stays_in_a_url(url: str, clean: str) -> None:
    assert Redactor().url(url) == clean
    assert Redactor().url(clean) == clean
