"""What the benchmarks share: what code costs in a process of its own, turns that contenders take, Markdown tables."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

PROGRAM = """
import json, re, sys, threading, time
arguments = sys.argv[1:]
def memory():
    status = open("/proc/self/status").read()
    return [int(re.search(name + r":\\s+(\\d+)", status)[1]) << 10 for name in ("RssAnon", "RssFile")]
{setup}
own, mapped = memory()
most, done = own, threading.Event()
def watch():
    global most
    while not done.wait(0.01):
        most = max(most, memory()[0])
watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
start, busy = time.perf_counter(), time.process_time()
{code}
seconds, busy = time.perf_counter() - start, time.process_time() - busy
done.set()
watcher.join()
held, files = memory()
print("\\n" + json.dumps([seconds, busy, held - own, max(most, held) - own, files - mapped]))
"""


class Cost(NamedTuple):
    """What code took.

    Attributes:
        seconds: by the clock.
        busy: of all processors (user and system): the two differ where something else is running.
        held: bytes that belong to the process alone (anonymous pages) afterwards, less those before.
        most: the same at its highest, looked at a hundred times a second.
        mapped: bytes of mapped files that it touched.
    """

    seconds: float
    busy: float
    held: int
    most: int
    mapped: int


def cost(code: str, *arguments: str | Path, setup: str = "", python: str = sys.executable) -> Cost:
    """Run code in a fresh process, where it finds ``arguments``; what ``setup`` does is not counted."""
    command = [python, "-c", PROGRAM.format(setup=setup, code=code), *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"failed: {code}")
    return Cost(*json.loads(done.stdout.splitlines()[-1]))


def least(costs: Iterable[Cost]) -> Cost:
    """The quickest, with the most memory that one of them took: whatever else the machine does only adds seconds."""
    costs = list(costs)
    return min(costs)._replace(most=max(one.most for one in costs))


def best_of(
    contenders: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """The least seconds of each, in turns, so that a busy machine slows all of them alike."""
    seconds = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, work in contenders.items():
            started = clock()
            work()
            seconds[name] = min(seconds[name], clock() - started)
    return seconds


def rerank_command(*words: str | Path) -> list[str]:
    """``rerank WORDS``, for a process of its own."""
    return [sys.executable, "-m", "rerank.commands.cli", *map(str, words)]


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is a script's docstring, as it stands."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def head(*columns: str) -> None:
    """Print the first two lines of a table, names on the left and numbers on the right."""
    print(f"| {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) - 1)}", flush=True)


def row(*cells: object) -> None:
    """Print a line of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
