"""Record model calls once, replay them for ever.

The public names are loaded when they are first used, so that `import tapes` costs nothing.
"""

TYPE_CHECKING = False  # checkers take it for True; `typing` itself costs more than all of this
if TYPE_CHECKING:
    from tapes.canonical import canonicalize, req_hash
    from tapes.cassette import Cassette
    from tapes.directory_contract import resolve
    from tapes.effects import Effects
    from tapes.errors import (
        BudgetExhausted,
        CassetteError,
        CassetteMiss,
        EffectRefused,
        LatchClosed,
        NetworkBlocked,
        TapesError,
        UnusedRecordings,
    )
    from tapes.modes import Mode
    from tapes.repeats import ordered, sample
    from tapes.tape.kinds import open_tape
    from tapes.using import use

__version__ = "0.1.0"

_HOMES = {
    "BudgetExhausted": "errors",
    "Cassette": "cassette",
    "CassetteError": "errors",
    "CassetteMiss": "errors",
    "EffectRefused": "errors",
    "Effects": "effects",
    "LatchClosed": "errors",
    "Mode": "modes",
    "NetworkBlocked": "errors",
    "TapesError": "errors",
    "UnusedRecordings": "errors",
    "canonicalize": "canonical",
    "open_tape": "tape.kinds",
    "ordered": "repeats",
    "req_hash": "canonical",
    "resolve": "directory_contract",
    "sample": "repeats",
    "use": "using",
}

__all__ = [
    "BudgetExhausted",
    "Cassette",
    "CassetteError",
    "CassetteMiss",
    "EffectRefused",
    "Effects",
    "LatchClosed",
    "Mode",
    "NetworkBlocked",
    "TapesError",
    "UnusedRecordings",
    "canonicalize",
    "open_tape",
    "ordered",
    "req_hash",
    "resolve",
    "sample",
    "use",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'tapes' has no attribute {name!r}") from None
    value = getattr(import_module(f"tapes.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
