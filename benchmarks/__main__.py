"""`python -m benchmarks [--quick] [--json] [NAME …]`: all benchmarks, or those that are named."""

import argparse
import dataclasses
import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType

from rich.console import Console
from rich.table import Table

import benchmarks
from benchmarks import Measurement


def modules(names: list[str]) -> Iterator[ModuleType]:
    """The benchmark modules of these names, or all of them."""
    # Found, not listed: a benchmark is added by adding its file.
    found = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name[0] != "_")
    for name in names or found:
        if name not in found:
            sys.exit(f"no benchmark is named {name}; there are: {', '.join(found)}")
        module = importlib.import_module(f"benchmarks.{name}")
        if hasattr(module, "measurements"):
            yield module


def shown(value: float, unit: str) -> str:
    """A number as people read it."""
    if unit == "s":
        for scale, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if value >= scale:
                return f"{value / scale:.3g} {name}"
        return f"{value * 1e9:.3g} ns"
    return f"{value:,.4g} {unit}".rstrip()


def row_of(measurement: Measurement) -> tuple[str, ...]:
    """A line of the table."""
    goal = "" if measurement.goal is None else f"≤ {measurement.goal:g}"
    met = {True: "[green]met[/]", False: "[bold red]missed[/]", None: ""}[measurement.met]
    return (
        measurement.what,
        shown(measurement.ours, measurement.unit),
        shown(measurement.peer, measurement.unit),
        measurement.peer_is,
        f"{measurement.ratio:.2f}",
        goal,
        met,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=benchmarks.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="smaller, in seconds")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    chosen = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 150)
    for module in modules(chosen.names):
        name = module.__name__.removeprefix("benchmarks.")
        measured: list[Measurement] = []
        for measurement in module.measurements(chosen.quick):
            measured.append(measurement)
            if chosen.json:
                figures = {"ratio": measurement.ratio, "met": measurement.met}
                told = {"benchmark": name, **dataclasses.asdict(measurement), **figures}
                print(json.dumps(told), flush=True)
            else:
                print(f"… {measurement.what}", file=sys.stderr, flush=True)
        if not chosen.json:
            table = Table(
                "what", "ours", "peer or limit", "namely", "ratio", "goal", "", title=name
            )
            for measurement in measured:
                table.add_row(*row_of(measurement))
            console.print(table)


if __name__ == "__main__":
    main()
