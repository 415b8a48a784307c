"""Clients that reach the network without Python's `socket` noticing, by name.

Each function is given a module that was imported, and has `check` called with the destination
before the client goes there. What is not in the table is not seen: that is said in the docs.

Knows nothing of cassettes.  Stand-alone: see the folder's docstring.
"""

from __future__ import annotations

import contextvars
import functools
import re
import socket
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from .replacing import Function, Replacements
from .rules import Destination, destination, is_address

Check = Callable[[Destination], None]
_CURLOPT_URL = 10002
_TARGET = re.compile(r"^(?P<scheme>[a-z0-9-]+):(?://[^/]*/)?(?P<rest>.*)$")


def _asyncio(module: ModuleType, replacements: Replacements, _check: Check) -> None:
    """Look names up where the caller's context is known, not in a thread that has none."""

    def make(_original: Function) -> Function:
        async def getaddrinfo(self: Any, host: Any, port: Any, **options: int) -> Any:
            look_up = functools.partial(socket.getaddrinfo, host, port, **options)
            return await self.run_in_executor(None, contextvars.copy_context().run, look_up)

        return getaddrinfo

    replacements.replace(module.BaseEventLoop, "getaddrinfo", make)


def _uvloop(module: ModuleType, replacements: Replacements, check: Check) -> None:
    def connects(original: Function) -> Function:
        async def create_connection(
            self: Any, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
        ) -> Any:
            if host is not None:
                check(destination(host, port))
            return await original(self, protocol_factory, host, port, **options)

        return create_connection

    def sends(original: Function) -> Function:
        async def create_datagram_endpoint(
            self: Any,
            protocol_factory: Any,
            local_addr: Any = None,
            remote_addr: Any = None,
            **options: Any,
        ) -> Any:
            if isinstance(remote_addr, tuple):
                check(destination(*remote_addr[:2]))
            return await original(self, protocol_factory, local_addr, remote_addr, **options)

        return create_datagram_endpoint

    def looks_up(original: Function) -> Function:
        async def getaddrinfo(self: Any, host: Any, port: Any, **options: Any) -> Any:
            wanted = destination(host, port)
            if not is_address(wanted.host):
                check(wanted)
            return await original(self, host, port, **options)

        return getaddrinfo

    replacements.replace(module.Loop, "create_connection", connects)
    replacements.replace(module.Loop, "create_datagram_endpoint", sends)
    replacements.replace(module.Loop, "getaddrinfo", looks_up)


def _grpc(module: ModuleType, replacements: Replacements, check: Check) -> None:
    def make(original: Function) -> Function:
        def __init__(self: Any, target: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807
            found = _of_target(target)
            if found is not None:
                check(found)
            original(self, target, *arguments, **options)

        return __init__

    replacements.replace(module.Channel, "__init__", make)


def _of_target(target: Any) -> Destination | None:
    text = target.decode() if isinstance(target, bytes) else str(target)
    match = _TARGET.match(text)
    # "host:443" looks like a scheme and a rest, too.
    if match and not match["rest"].isdigit():
        if match["scheme"] in ("unix", "unix-abstract", "vsock"):
            return None
        text = match["rest"]
    host, colon, port = text.rpartition(":")
    return destination(host, port) if colon and port.isdigit() else destination(text)


def _curl_cffi(module: ModuleType, replacements: Replacements, check: Check) -> None:
    def make(original: Function) -> Function:
        def setopt(self: Any, option: Any, value: Any) -> Any:
            if int(option) == _CURLOPT_URL:
                check(_of_url(value))
            return original(self, option, value)

        return setopt

    replacements.replace(module.Curl, "setopt", make)


def _pycurl(module: ModuleType, replacements: Replacements, check: Check) -> None:
    def make(original: Function) -> Function:
        class Curl(original):  # type: ignore[misc, valid-type]  # the class is known at run time
            def setopt(self, option: int, *value: Any) -> Any:
                if option == _CURLOPT_URL and value:
                    check(_of_url(value[0]))
                return super().setopt(option, *value)

        return Curl

    replacements.replace(module, "Curl", make)


def _of_url(url: Any) -> Destination:
    text = url.decode("latin-1") if isinstance(url, bytes) else str(url)
    parts = urlsplit(text if "://" in text else f"http://{text}")
    return destination(parts.hostname, parts.port)


COMPILED: Mapping[str, Callable[[ModuleType, Replacements, Check], None]] = {
    "asyncio.base_events": _asyncio,
    "uvloop": _uvloop,
    "grpc._channel": _grpc,
    "grpc.aio._channel": _grpc,
    "curl_cffi.curl": _curl_cffi,
    "pycurl": _pycurl,
}
