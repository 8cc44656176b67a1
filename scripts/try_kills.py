"""Whether a command that is killed is finished by the next one: the same bytes, and nothing left beside them.

    python scripts/try_kills.py --data DIR [--kills 40] [--folder DIR]

``DIR`` holds ``dl20`` (a ``files:`` folder with runs). Each command is killed at a random moment, every second time of
its whole run, otherwise of the 100 ms from its first file on, and given again; what is there then has to be what it
makes when it is left alone. The processes are forks of one that has imported everything, so that kills meet the work
and not the imports.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import rerank.lists.add
import rerank.lists.build
import rerank.retrieval.bm25
import rerank.retrieval.tune
from rerank.cli import main as rerank

PEEK = os.WEXITED | os.WNOHANG | os.WNOWAIT


def start(words: list[str]) -> int:
    """A command in a process of its own; returns its number."""
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        logging.getLogger("rerank").setLevel(logging.ERROR)
        os._exit(rerank(words))
    return child


def ended(child: int) -> int:
    """Wait for a process; returns its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def content(folder: Path) -> dict[str, str]:
    """Hashes of all files below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def paths(folder: Path) -> set[Path]:
    """All there is below a folder."""
    return set(folder.rglob("*"))


def killed(name: str, words: list[str], place: Path, reset: Callable[[], None], kills: int, rng: random.Random) -> None:
    """Kill a command again and again, and print how often the next one did not end as one that is left alone."""
    reset()
    started = time.perf_counter()
    assert ended(start(words)) == 0
    took, alone = time.perf_counter() - started, content(place)
    counted = wrong = early = late = 0
    while counted < kills:
        reset()
        before = content(place)
        child, names = start(words), paths(place)
        if counted % 2:  # from its first file on; otherwise at any moment
            while paths(place) == names and not os.waitid(os.P_PID, child, PEEK):
                time.sleep(0.0005)
            time.sleep(rng.choice([0.001, 0.01, 0.1]) * rng.random())
        else:
            time.sleep(took * rng.random())
        os.kill(child, signal.SIGKILL)
        if ended(child) != -signal.SIGKILL:
            continue  # it was faster
        counted += 1
        left = content(place)
        early, late = early + (left == before), late + (left != before)
        code = ended(start(words))
        code = 0 if code == 2 and left == alone else code  # killed behind its last rename: it says that it is there
        wrong += code != 0 or content(place) != alone
    shown = f"{early} times before, {late} times after it wrote its first file; the next command ended it"
    print(f"| {name}, killed {kills} times | {shown} | {wrong} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    rng, dl20 = random.Random(0), options.data / "dl20"
    runs = {name: str(dl20 / "runs" / f"{name}.trec") for name in ("bm25", "rm3", "splade", "tasb")}
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        work, original = Path(temporary) / "work", Path(temporary) / "lists"
        retrieve = ["retrieve", "--collection", f"files:{dl20}", "--output"]
        assert ended(start([*retrieve, str(original), "--run", runs["bm25"]])) == 0

        def empty() -> None:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()

        def lists() -> None:
            shutil.rmtree(work, ignore_errors=True)
            shutil.copytree(original, work / "lists")

        files = [runs[name] for name in ("rm3", "splade", "tasb")]
        add = ["add", "--lists", str(work / "lists"), "--run", *files]
        union = [*retrieve, str(work / "lists"), "--run", *runs.values()]
        print("| | | went wrong |\n|---|---|---|")
        killed("`add --run` of three files", add, work, lists, options.kills, rng)
        killed("`retrieve --run` of four files", union, work, empty, options.kills, rng)


if __name__ == "__main__":
    main()
