"""What the benchmarks share: what a piece of code costs in a process of its own, made passages, Markdown tables."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

WORDS, COMMON = 200_000, 60
"""Size of the made vocabulary, and what flattens the top of Zipf's law: stop words are not indexed."""

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


def head(*columns: str) -> None:
    """Print the first two lines of a table, names on the left and numbers on the right."""
    print(f"| {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) - 1)}", flush=True)


def row(*cells: object) -> None:
    """Print a line of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def make_passages(folder: Path, passages: int, queries: int) -> None:
    """``docs.tsv``, ``queries.tsv`` and ``qrels``: some 55 words a passage, as MS MARCO's have, and 6 of one a query.

    The relevant passages are among the first eighth, so that the first part of the passages is a collection, too.
    """
    rng = np.random.default_rng(0)
    shares = 1 / (COMMON + np.arange(WORDS))
    borders = np.cumsum(shares) / shares.sum()
    names = np.array([f"w{number}" for number in range(WORDS)])
    sources: list[list[str]] = []
    folder.mkdir(parents=True)
    with (folder / "docs.tsv").open("w") as file:
        for start in range(0, passages, 10_000):
            lengths = np.maximum(rng.poisson(55, size=min(10_000, passages - start)), 6)
            words = names[np.searchsorted(borders, rng.random(lengths.sum())).clip(max=WORDS - 1)]
            for i, passage in enumerate(np.split(words, np.cumsum(lengths)[:-1]), start):
                file.write(f"{i}\t{' '.join(passage)}\n")
                if i < passages // 8:
                    sources.append(rng.permutation(passage)[:6].tolist())
    relevant = rng.integers(0, len(sources), queries)
    with (folder / "queries.tsv").open("w") as file:
        file.writelines(f"{q}\t{' '.join(rng.permutation(sources[i]))}\n" for q, i in enumerate(relevant))
    (folder / "qrels").write_text("".join(f"{q} 0 {i} 1\n" for q, i in enumerate(relevant)))
