"""What users of the `vcr` marker say to vcrpy, in the words of this project.

Rule 1: what has no counterpart and only says how a cassette is written is passed over.
Rule 2: what would keep something from coming to rest, or choose another recording, is never
        passed over while something may be recorded: it is an error with what to write instead.
Rule 3: matching by less than the whole request is no option here (a changed prompt must not get
        the old answer): it is noted, and the whole request counts.

Knows nothing of pytest.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tapes.canonical import IDENTITY_HEADERS
from tapes.credentials import is_credential_field, is_credential_parameter
from tapes.errors import BadSetting
from tapes.varying import Rule

_MATCHERS = {
    "method", "scheme", "host", "port", "path", "query", "uri", "body", "raw_body", "headers",
}  # fmt: skip
# They say how cassettes are written, or what this project does anyway.
_PASSED_OVER = {
    "allow_playback_repeats", "cassette_library_dir", "custom_patches", "inject_cassette",
    "decode_compressed_response", "drop_unused_requests", "match_on", "record_on_exceptions",
    "serializer",
}  # fmt: skip
_CALLBACKS = {
    "before_record", "before_record_request", "before_record_response", "before_playback",
    "func_path_generator", "path_transformer", "persister",
}  # fmt: skip
_LOCAL = ("localhost", "127.0.0.1", "[::1]", "0.0.0.0")
_HOST = re.compile(r"[A-Za-z0-9_.:\[\]-]+")


class Translated:
    """The options of this project, the rules that go with them, and what is to be said."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {"repeated": "ordered"}
        self.rules: list[Rule] = []
        self.notes: list[str] = []


def translated(config: Mapping[str, Any], *, may_record: bool) -> Translated:
    """What the options of vcrpy mean here. Raises BadSetting with what to write instead."""
    result = Translated()
    if config.get("allow_playback_repeats"):
        result.options["repeated"] = "reuse"
    if config.get("record_mode") is not None:
        mode = config["record_mode"]
        result.options["mode"] = str(getattr(mode, "value", mode)).lower()
    hosts = [*_list(config, "ignore_hosts"), *hosts_of(config.get("allowed_hosts") or ())]
    if config.get("ignore_localhost"):
        hosts += _LOCAL
    result.options["allow"] = hosts
    _match(result, config)
    for name in ("filter_headers", "filter_query_parameters", "filter_post_data_parameters"):
        for entry in _list(config, name):
            _filter(result, name, entry if isinstance(entry, str) else entry[0], may_record)
    known = {
        "record_mode", "ignore_hosts", "ignore_localhost", "allowed_hosts", "filter_headers",
        "filter_query_parameters", "filter_post_data_parameters",
    }  # fmt: skip
    for name in config:
        if name in _CALLBACKS:
            _callback(result, name, may_record)
        elif name not in known | _PASSED_OVER:
            raise BadSetting(
                f"vcr_config: {name} has no counterpart here",
                "options of this project stand in tape_config, or on the tape marker",
            )
    return result


def _list(config: Mapping[str, Any], name: str) -> list[Any]:
    value = config.get(name) or ()
    if isinstance(value, str):
        raise BadSetting(f"vcr_config: {name} is a list", f'"{name}": ["{value}"]')
    return list(value)


def hosts_of(entries: str | Iterable[str]) -> list[str]:
    """Hosts from the regular expressions in which --allowed-hosts is written elsewhere.

    Raises BadSetting for one that does not name a host.
    """
    found = list[str]()
    for entry in entries.split(",") if isinstance(entries, str) else entries:
        host = entry.strip().removeprefix("^").removesuffix("$").replace("\\.", ".")
        if not host:
            continue
        if not _HOST.fullmatch(host):
            raise BadSetting(
                f"allowed hosts: {entry!r} does not name a host",
                "name each host, as host or host:port",
            )
        found.append(host)
    return found


def _match(result: Translated, config: Mapping[str, Any]) -> None:
    wanted = _list(config, "match_on")
    custom = [name for name in wanted if name not in _MATCHERS]
    if custom:
        raise BadSetting(
            f"vcr_config: match_on names {', '.join(custom)}, which is a function of yours",
            "say what may vary in tapes.toml: see docs/matching.md",
        )
    if wanted and not {"body", "raw_body"}.intersection(wanted):
        result.notes.append(
            "match_on leaves out the body: here the whole request counts; what varies is declared"
            " in tapes.toml (docs/matching.md)"
        )


def _filter(result: Translated, option: str, name: str, may_record: bool) -> None:
    """Take out of the identity what a filter names, where that alone keeps it off the tape."""
    lower = name.lower()
    if option == "filter_headers":
        if lower in IDENTITY_HEADERS:
            result.rules.append(Rule.of({"header": lower}))
        return  # all others neither count nor come to rest
    is_query = option == "filter_query_parameters"
    if is_query and is_credential_parameter(name, "x" * 20):
        return
    rule = {"query": name} if is_query else {"at": f"/{name.replace('~', '~0').replace('/', '~1')}"}
    result.rules.append(Rule.of(rule))
    if may_record and not is_credential_field(name):
        raise BadSetting(
            f"vcr_config: {option} names {name!r}, whose value would come to rest",
            f"declare its form as a [[secret]] in tapes.toml (docs/secrets.md), and take {name!r}"
            f" out of {option}; to let it vary: [[vary]]",
        )


def _callback(result: Translated, name: str, may_record: bool) -> None:
    if may_record and name.startswith("before_record"):
        raise BadSetting(
            f"vcr_config: {name} is a function that would change what comes to rest",
            "secrets are taken out without it; declare further ones as [[secret]] in tapes.toml"
            " (docs/secrets.md), and leave the function out",
        )
    result.notes.append(f"{name} is not called: recordings are kept and answered as they are")
