"""Decisions are recorded, effects never: a boundary for tools that change the world.

Rule 1: under replay an effect runs only against a double that was named for it.
Rule 2: while recording, an effect runs for real only where its decision can only be a live one
        (see `origin`). A decision that came from the tape is no permit to act again.
Rule 3: in `live` mode effects run for real.

    effects = Effects(cassette)

    @effects.effect
    def issue_refund(order: str, cents: int) -> str: ...

    effects.double("issue_refund", lambda order, cents: "refund-1")
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from tapes.cassette import Cassette
from tapes.errors import EffectRefused
from tapes.halt import raise_refusal
from tapes.modes import Mode

Function = TypeVar("Function", bound=Callable[..., Any])


class Effects:
    """The effects of one cassette's agent, and the doubles that stand for them."""

    def __init__(self, cassette: Cassette) -> None:
        self._cassette = cassette
        self._doubles: dict[str, Callable[..., Any]] = {}

    def double(self, name: str, stand_in: Callable[..., Any]) -> None:
        """Name the double that runs in place of an effect whenever its decision was recorded."""
        self._doubles[name] = stand_in

    def effect(self, function: Function) -> Function:
        """Mark a function, plain or async, as an effect; its name is the effect's name."""
        name = function.__name__

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            return self._runner(name, function)(*args, **kwargs)

        @functools.wraps(function)
        async def async_guarded(*args: Any, **kwargs: Any) -> Any:
            result = self._runner(name, function)(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        return async_guarded if inspect.iscoroutinefunction(function) else guarded  # type: ignore[return-value]  # the wrapper has the function's own signature

    def _runner(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        runner = function if self._runs_for_real() else self._doubles.get(name)
        if runner is not None:
            return runner
        raise_refusal(
            EffectRefused(
                f"effect refused: {name} would act on a decision from {self._cassette.tape.path}",
                f'name a double: effects.double("{name}", …); or run live: CASSETTE_MODE=live …',
            )
        )

    def _runs_for_real(self) -> bool:
        match self._cassette.mode:
            case Mode.REPLAY:
                return False
            case Mode.RECORD:
                return self._cassette.origins.decision_is_live
            case Mode.LIVE:
                return True
