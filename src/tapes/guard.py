"""Nothing below the recorder leaves this machine while its cassette permits no live call.

Rule 1: the guard asks the lane of the moment; it holds while that lane is guarded and its
        cassette permits no live call, and lets pass loopback, what is no internet address, and
        allowed hosts with the addresses that they resolve to.
Rule 2: a refusal names the destination, stands in the run's report, and cannot be swallowed.
Rule 3: child Python processes inherit the guard through the environment, as it is while a
        guarded lane is open.

It cannot hold what does not ask Python: programs in other languages, `python -I` or `-E`, a
child that is given an environment without PYTHONPATH, a fork server that was started before or
outlives the lane, and compiled clients that are not in `guarding.compiled`.
"""

import json
import os
import threading
from collections.abc import Mapping

from tapes import lanes
from tapes.errors import NetworkBlocked
from tapes.guarding import sitecustomize as child
from tapes.guarding.rules import Allowed, Destination, destination, is_here
from tapes.guarding.watching import CompiledWatch, watch
from tapes.halt import raise_refusal
from tapes.lanes import Lane

_lock = threading.Lock()


def _in_child() -> None:
    """After a fork: whoever held it is the parent's."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_in_child)
_is_watching = False


def follow() -> None:
    """Hold while any guarded lane is open; to be called whenever a lane was opened or closed."""
    global _is_watching
    with _lock:
        if not any(lane.guarded for lane in lanes.opened()):
            _compiled.stop()
        else:
            if not _is_watching:
                watch(_refuse, _allowed_now)
                _is_watching = True
            _compiled.start()
        _tell_children()


def _allowed_now() -> Allowed | None:
    lane = lanes.current()
    if lane is None or not lane.guarded or lanes.is_own_work() or lane.cassette.live_is_permitted:
        return None
    return lane.allowed


def _refuse(wanted: Destination) -> None:
    lane = lanes.current()
    if lane is not None:
        refuse(lane, wanted)


def refuse(lane: Lane, wanted: Destination) -> None:
    """Refuse a destination. Raises NetworkBlocked as a refusal."""
    error = NetworkBlocked(
        f"network blocked: something that is not recorded tried to reach {wanted}, and"
        f" {_reason(lane)}",
        f'to let it through: allow=["{wanted}"]; recorded are httpx, httpx2, requests/urllib3 and'
        " aiohttp",
    )
    lane.cassette.report.refused(error)
    raise_refusal(error)


def passes_by(
    lane: Lane, host: object, port: object, *, upgrades: bool, is_telemetry: bool = False
) -> bool:
    """Whether a request goes on without being recorded: to an allowed host, or as an upgrade.

    Telemetry goes on to this machine, and elsewhere where a live call is permitted.

    What follows an upgrade is no exchange. Where no live call is permitted it stays on this
    machine; raises NetworkBlocked as a refusal.
    """
    if not (lane.allowed or upgrades or is_telemetry):
        return False
    wanted = destination(host, port)
    if lane.allowed.covers(wanted):
        return True
    if is_telemetry:
        return lane.cassette.live_is_permitted or is_here(wanted.host)
    if upgrades and not (lane.cassette.live_is_permitted or is_here(wanted.host)):
        refuse(lane, wanted)
    return upgrades


def _reason(lane: Lane) -> str:
    return f"the mode {lane.cassette.mode} on {lane.cassette.tape.path} permits no live call"


_compiled = CompiledWatch(_refuse, _allowed_now)


# --- child processes --------------------------------------------------------------------------


def _tell_children() -> None:
    """Set the environment as the innermost lane wants it, or take everything out of it."""
    lane = next(reversed(lanes.opened()), None)
    if lane is not None and lane.guarded and not lane.cassette.live_is_permitted:
        os.environ.update(guarded(os.environ, lane.allowed, _reason(lane)))
    elif os.environ.pop(child.VARIABLE, None) is not None:
        path = _path_without_guard(os.environ)
        if path:
            os.environ["PYTHONPATH"] = path
        else:
            del os.environ["PYTHONPATH"]


def guarded(
    environ: Mapping[str, str],
    allowed: Allowed,
    reason: str,
    remedy: str = "allow=['HOST']",
) -> dict[str, str]:
    """What is to be set in an environment so that the Python programs in it are guarded.

    `remedy` is what lets a HOST through.
    """
    path = _path_without_guard(environ)
    told = {"reason": reason, "remedy": remedy, "allow": allowed.entries}
    return {
        child.VARIABLE: json.dumps(told),
        "PYTHONPATH": child.FOLDER + (os.pathsep + path if path else ""),
    }


def _path_without_guard(environ: Mapping[str, str]) -> str:
    path = environ.get("PYTHONPATH", "")
    if path == child.FOLDER or path.startswith(child.FOLDER + os.pathsep):
        return path[len(child.FOLDER) + 1 :]
    return path
