"""A permitted request sent as it is, its answer fed to its permit piece by piece.

The standard library's client is enough here and the better one: it keeps header order and body
bytes, undoes no content coding, follows nothing, tries nothing twice, needs no extra, and is not
among the clients that record.

Rule 1: who sends takes a permit.  Rule 2: a body that ends before its length is no answer.
Rule 3: what was redacted is never sent.  Rule 4: no error shows the value of a header, nor a URL
        beyond its host: a credential is in there.

Knows nothing of tapes or credentials.
"""

import http.client
import ssl
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from tapes.credentials import fits_a_header
from tapes.errors import NotAnswered, NotSendable
from tapes.exchange import Request, State
from tapes.host_keys import require_no_placeholder
from tapes.permit import Permit

# A model may think for minutes before its first byte.
TIMEOUT_S = 600.0
_READ = 64 * 1024
# The connection's own headers; they are made anew.
_HOP_BY_HOP = frozenset(
    {
        "connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te",
        "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


def send(permit: Permit, timeout: float = TIMEOUT_S) -> None:
    """Send a permit's request and feed its whole answer to the permit.

    Raises NotSendable and NotAnswered, with the permit ended; else the caller ends it.
    """
    request = permit.request
    try:
        if not isinstance(request, Request):
            raise NotSendable("a call with a dict has no address")
        require_no_placeholder(request)
        connection, target = _connection(urlsplit(request.url), timeout)
    except NotSendable:
        permit.failed(we_left=False)
        raise
    try:
        _exchange(connection, target, request, permit)
    except http.client.InvalidURL:
        permit.failed(we_left=False)
        raise NotSendable(
            "the request is not HTTP: no address can have what is in its own"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        has_begun = permit.has_begun
        if has_begun:
            permit.abandon(State.UPSTREAM_ERROR)
        else:
            permit.failed(we_left=isinstance(error, TimeoutError))
        what = "broke off its answer" if has_begun else "gave no answer"
        raise NotAnswered(
            f"{_host(urlsplit(request.url))} {what}: {str(error) or type(error).__name__}"
        ) from error
    except ValueError as error:  # a header or a path that HTTP cannot say
        permit.failed(we_left=False)
        raise NotSendable(f"the request is not HTTP: {error}") from error
    finally:
        connection.close()


def _connection(parts: SplitResult, timeout: float) -> tuple[http.client.HTTPConnection, str]:
    """A connection for a URL, through the proxy that the environment names, and what to ask for."""
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme not in ("http", "https") or not host:
        raise NotSendable(f"{parts.scheme}://{_host(parts)} is no address of HTTP")
    target = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
    proxy = None if proxy_bypass(host) else getproxies().get(parts.scheme)
    if proxy is None:
        if parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=context), target
        return http.client.HTTPConnection(host, port, timeout=timeout), target
    through = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme == "http":
        whole = parts._replace(fragment="").geturl()
        return http.client.HTTPConnection(
            through.hostname or "", through.port, timeout=timeout
        ), whole
    secure = http.client.HTTPSConnection(
        through.hostname or "", through.port, timeout=timeout, context=ssl.create_default_context()
    )
    secure.set_tunnel(host, port)
    return secure, target


def _host(parts: SplitResult) -> str:
    """Host and port, without a user and a password."""
    return parts.netloc.rpartition("@")[2]


def _exchange(
    connection: http.client.HTTPConnection, target: str, request: Request, permit: Permit
) -> None:
    connection.putrequest(request.method, target, skip_host=True, skip_accept_encoding=True)
    connection.putheader("Host", _host(urlsplit(request.url)))
    for name, value in request.headers:
        if name.lower() not in _HOP_BY_HOP:
            if not fits_a_header(value):
                raise ValueError(f"its header {name} has a character that none can have")
            connection.putheader(name.encode("latin-1"), value.encode("latin-1"))
    if request.body or request.method.upper() in _WITH_BODY:
        connection.putheader("Content-Length", str(len(request.body)))
    connection.endheaders(request.body or None)
    response = connection.getresponse()
    if response.status < 200:  # the client passes over 100 alone
        raise http.client.HTTPException(f"an interim answer ({response.status}) before it")
    permit.answered(response.status, tuple(response.getheaders()), response.reason)
    while piece := response.read1(_READ):
        permit.feed(piece)
    if response.length:  # what is still to come, where the length was said
        raise http.client.IncompleteRead(b"", response.length)
