"""What is said of tapes at the end of a test run.

Knows nothing of pytest or terminals.
"""

import shlex
from collections.abc import Iterator

from tapes.budget import LATCH
from tapes.errors import as_typed
from tapes.testing.gathered import Gathered
from tapes.testing.opening import shown

_SHOWN = 10


def summary_lines(gathered: Gathered) -> list[str]:
    """What was served, live and refused; what it saved; and what is to be noted."""
    return list(_summary(gathered))


def _summary(gathered: Gathered) -> Iterator[str]:
    total = gathered.totals
    modes = sorted({mode for runs in gathered.tapes.values() for mode in runs.modes})
    count = len(gathered.tapes)
    what = "tape" if count == 1 else "tapes"
    yield (
        f"{count} {what} ({', '.join(modes)}): {total['served']} served ({total['reused']} reused),"
        f" {total['live']} live, {total['refused']} refused"
    )
    saved = gathered.saved() if total["served"] else None
    if saved is not None and saved.bytes:
        parts = [f"{saved.bytes:,} bytes"]
        parts += [f"{saved.tokens:,} tokens"] if saved.tokens else []
        parts += [f"{saved.usd:.4f} USD"] if saved.usd else []
        more = f"; no price is known of {saved.unpriced}" if saved.usd and saved.unpriced else ""
        yield f"not spent: {', '.join(parts)}{more}"
    for path, runs in sorted(gathered.tapes.items()):
        if runs.expired:
            yield f"expired, and served all the same: {len(runs.expired)} on {shown(path)}"
            refresh = f"tapes tape refresh --expired {as_typed(shown(path))}"
            yield f"  to record them again: {LATCH}=1 {refresh}"
    yield from gathered.notes


def unused_lines(gathered: Gathered, *, prunes: bool) -> list[str]:
    """What nobody asked for; with `prunes`, recordings are taken off their tapes."""
    recordings, tapes = gathered.unused_recordings(), gathered.unused_tapes()
    if prunes:
        gathered.prune(recordings)
    what = "taken away, as nobody asked for it" if prunes else "nobody asked for"
    lines = [
        f"{what}: {', '.join(key[:12] for key in keys[:5])}"
        + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
        + f" on {shown(path)}"
        for path, keys in list(recordings.items())[:_SHOWN]
    ]
    if len(recordings) > _SHOWN:
        lines.append(f"  … and on {len(recordings) - _SHOWN} more tapes")
    if recordings and not prunes:
        lines.append("  to take these recordings away: pytest --tape-unused=prune")
    if tapes:
        some = [shown(path) for path in tapes[:_SHOWN]]
        more = f" and {len(tapes) - _SHOWN} more" if len(tapes) > _SHOWN else ""
        lines.append(f"no test uses: {' '.join(some)}{more}")
        lines.append(f"  to take these tapes away: {shlex.join(['rm', '-r', *some])}")
    return lines
