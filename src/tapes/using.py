"""Record and replay a whole process, without a change to its code.

    with tapes.use("tests/tapes/weather.jsonl"):
        OpenAI().responses.create(…)

    @tapes.use("tests/tapes/weather.jsonl")
    async def test_weather(): ...

Rule 1: what is covered is covered in every thread and task; see lanes for whose turn it is.
Rule 2: entering again opens again, and leaving the last one leaves everything as it was.
Rule 3: what happens at the end is reported only where nothing else went wrong.

The file is not named `use`, so that the package can hold the function under that name.
"""

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from tapes import guard, lanes
from tapes.cassette import Cassette
from tapes.errors import BadSetting, UnusedRecordings, as_typed
from tapes.guarding.rules import Allowed
from tapes.lanes import Lane, allowed_of, pace_of
from tapes.opening import Where, asked_for
from tapes.report import unused as unused_of
from tapes.tape.base import Tape
from tapes.transports import installing

Function = TypeVar("Function", bound=Callable[..., Any])
_UNUSED = ("ignore", "warn", "fail")
_SHOWN_UNUSED = 5


class use:  # noqa: N801  # a verb that is called: it reads as the function it stands for
    """Record and replay every covered client in this process while it is open.

    `tape` is a path, a Tape, or an open Cassette, which stays open. `mode` and the options are
    those of Cassette. `pace` is "at once", "as recorded" or a factor on the recorded times.
    `allow` names hosts, as `host` or `host:port`, that are neither recorded nor refused, besides
    those that `tapes.toml` allows. `guard` refuses what is not recorded while no live call is
    permitted. `unused` says what becomes of recordings that nobody asked for: "ignore", "warn",
    or "fail", which raises UnusedRecordings. `log` writes every call to the log as well: True, or
    the place of one; if not said, the variable TAPES_LOG decides.

    A context manager, plain and async, that gives the Cassette; and a decorator. Raises
    BadSetting.
    """

    def __init__(
        self,
        tape: str | os.PathLike[str] | Tape | Cassette,
        mode: str | None = None,
        *,
        pace: str | float = "at once",
        allow: Iterable[str] = (),
        guard: bool = True,
        unused: str = "ignore",
        log: bool | str | None = None,
        **options: Any,
    ) -> None:
        if unused not in _UNUSED:
            raise BadSetting(f"unused={unused!r} is not one of: {', '.join(_UNUSED)}")
        if isinstance(tape, Cassette) and (mode is not None or options):
            raise BadSetting(
                "an open Cassette has its mode and options already",
                "use(cassette), or use(path, mode, …)",
            )
        self._tape = tape
        self._mode = mode
        self._options = options
        self._pace = pace_of(pace)
        self._allow = tuple(allowed_of(allow).entries)
        self._guarded = guard
        self._unused = unused
        self._log = log
        self._entered: list[Lane] = []
        self._logs: dict[Lane, Where] = {}

    def __enter__(self) -> Cassette:
        tape = self._tape
        log = None if isinstance(tape, Cassette) else asked_for(self._log)
        own = tape if isinstance(tape, Cassette) else self._opened(tape, log)
        try:
            lane = Lane(own, self._pace, self._allowed_with(own), self._guarded)
        except BadSetting:
            _end_log(log)
            raise
        if log is not None:
            self._logs[lane] = log
        installing.hold()
        lanes.enter(lane)
        guard.follow()
        self._entered.append(lane)
        return own

    def _opened(self, tape: str | os.PathLike[str] | Tape, log: Where | None) -> Cassette:
        if log is None:
            return Cassette(tape, self._mode, **self._options)
        # The database's parts are imported where a log is asked for.
        from tapes import keeping

        witness = keeping.hold(log)
        try:
            return Cassette(tape, self._mode, witness=witness, **self._options)
        except BaseException:
            _end_log(log)
            raise

    def _allowed_with(self, cassette: Cassette) -> Allowed:
        try:
            return allowed_of((*self._allow, *cassette.declared.allow))
        except BadSetting:
            if cassette is not self._tape:
                cassette.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        lane = self._lane_to_leave()
        lanes.leave(lane)
        guard.follow()
        installing.let_go()
        try:
            if kind is None:
                self._tell_unused(lane.cassette)
        finally:
            if lane.cassette is not self._tape:
                lane.cassette.close()
            _end_log(self._logs.pop(lane, None))

    def _lane_to_leave(self) -> Lane:
        """The one that this context is in: another task may have entered the same object since."""
        lane = lanes.current()
        if lane is None or lane not in self._entered:
            lane = self._entered[-1]
        self._entered.remove(lane)
        return lane

    async def __aenter__(self) -> Cassette:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.__exit__(kind, *rest)

    def _tell_unused(self, cassette: Cassette) -> None:
        if self._unused == "ignore":
            return
        left = unused_of(cassette.tape, cassette.report.used)
        if not left:
            return
        keys = ", ".join(exchange.key[:12] for exchange in left[:_SHOWN_UNUSED])
        more = f" and {len(left) - _SHOWN_UNUSED} more" if len(left) > _SHOWN_UNUSED else ""
        error = UnusedRecordings(
            f"nobody asked for {len(left)} of the recordings on {cassette.tape.path}: {keys}{more}",
            f"to take them away: tapes tape prune --unused {as_typed(cassette.tape.path)}",
        )
        if self._unused == "fail":
            raise error
        warnings.warn(str(error), stacklevel=3)

    def __call__(self, function: Function) -> Function:
        """The function with a cassette open around every call; a generator, around its life.

        Raises BadSetting where that would cover nothing: a class, an async generator.
        """
        if inspect.isclass(function):
            raise BadSetting(
                f"the class {function.__name__} has no one call to cover",
                "decorate its methods, or use: with",
            )
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run_async(*args: Any, **kwargs: Any) -> Any:
                async with self._anew():
                    return await function(*args, **kwargs)

            return run_async  # type: ignore[return-value]  # it has the function's own signature
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generate(*args: Any, **kwargs: Any) -> Any:
                with self._anew():
                    return (yield from function(*args, **kwargs))

            return generate  # type: ignore[return-value]
        if inspect.isasyncgenfunction(function):
            raise _no_task()

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self._anew("ignore") as cassette:
                result = function(*args, **kwargs)
                if inspect.isasyncgen(result):
                    raise _no_task()
                if not inspect.iscoroutine(result):
                    self._tell_unused(cassette)
                    return result
            # Nothing in its looks said that it is async: another decorator, say, made it.
            return self._awaited(result)

        return run  # type: ignore[return-value]

    async def _awaited(self, made: Coroutine[Any, Any, Any]) -> Any:
        async with self._anew():
            return await made

    def _anew(self, unused: str | None = None) -> "use":
        return use(
            self._tape,
            self._mode,
            pace=self._pace,
            allow=self._allow,
            guard=self._guarded,
            unused=self._unused if unused is None else unused,
            log=self._log,
            **self._options,
        )


def _no_task() -> BadSetting:
    return BadSetting("an async generator has no one task to cover", "use: async with")


def _end_log(log: Where | None) -> None:
    """Everything that was seen is kept before the program goes on."""
    if log is not None:
        from tapes import keeping

        keeping.let_go(log)
