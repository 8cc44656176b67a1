"""Helpers of the benchmarks: timing in turns, and Markdown tables."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping


def best_of(
    contenders: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return the best time of each contender; they take turns, so a busy machine slows all alike."""
    seconds = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, work in contenders.items():
            started = clock()
            work()
            seconds[name] = min(seconds[name], clock() - started)
    return seconds


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """Make a parser whose help is a script's docstring, unchanged."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def head(*columns: str) -> None:
    """Print the first two lines of a table, names on the left and numbers on the right."""
    print(f"| {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) - 1)}", flush=True)


def row(*cells: object) -> None:
    """Print a line of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
