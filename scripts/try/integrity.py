"""Whether folders survive company and damage: two commands on one folder at once, and flipped bits.

    python scripts/try/integrity.py --data DIR [--pairs 20] [--flips 240] [--folder DIR]

``DIR`` holds ``scifact`` (BEIR) and ``MQ2008`` (LETOR). First every command is given twice at the same moment, on one
folder, again and again; what is there afterwards has to be what one command alone makes. Then one bit at a time is
flipped, somewhere in a file of a checkpoint, a trained model, lists, their columns or an experiment's cells, and the
folder is used: resumed, loaded, opened, or read for the table. The line for a kind of folder counts those uses that
were refused with the damaged file's name, and those that went through.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import yaml

FREE = ("log.txt", "provenance.json", "README.md", "config.yaml", "metrics.jsonl", "run.trec", "table.md")
"""Files that decide nothing: notes and tables for people (with times), and the ranking for other tools."""


def command(*words: str) -> list[str]:
    """A command of ours as the words of a process."""
    return [sys.executable, "-m", "rerank.commands.cli", *words]


def content(folder: Path) -> dict[str, str]:
    """Hashes of a folder's files, but for times and hosts."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (*FREE, "results.json") and path.suffix != ".parquet"
        if "checkpoints" not in path.parts and "workers" not in path.parts and path.suffix != ".log"
    }


def twice(name: str, words: Callable[[Path], list[str]], times: int, place: Path) -> None:
    """Give a command twice at once, again and again, and print what became of it."""
    alone = place / f"{name}-alone"
    subprocess.run(words(alone), check=True, capture_output=True)
    expected, outcomes, mixed = content(alone), Counter[str](), 0
    for number in range(times):
        folder = place / f"{name}-{number}"
        both = [subprocess.Popen(words(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
        said = [(process.communicate()[1].decode(), process.returncode) for process in both]
        codes = sorted(code for _, code in said)
        refused = [text.strip().splitlines()[-1] for text, code in said if code == 2]
        named = all("in use by process" in line or "exists already" in line for line in refused)
        outcomes["one left with a line" if codes == [0, 2] and named else f"exit codes {codes}"] += 1
        mixed += content(folder) != expected
        mixed += bool([path for path in folder.parent.iterdir() if path.name.startswith(f".{folder.name}.")])
        shutil.rmtree(folder)
    shown = ", ".join(f"{count} times {what}" for what, count in outcomes.items())
    print(f"| two of `{name}` at once, {times} times | {shown} | {mixed} |", flush=True)


def flipped(name: str, files: list[Path], use: Callable[[], list[str]], times: int, rng: random.Random) -> None:
    """Flip a bit, use the folder, put the bit back; print how often that was refused."""
    refused = through = 0
    for _ in range(times):
        path = rng.choice(files)
        whole, stat = path.read_bytes(), path.stat()
        damaged = bytearray(whole)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        done = subprocess.run(use(), capture_output=True, text=True)
        good = done.returncode == 2 and path.name in done.stderr and "Traceback" not in done.stderr
        refused, through = refused + good, through + (not good)
        if not good:
            print(f"  {path}: exit code {done.returncode}: {done.stderr[-300:]}", file=sys.stderr)
        path.write_bytes(whole)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    print(f"| a flipped bit in {name}, {times} times | {refused} refused, the file named | {through} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--flips", type=int, default=240)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    rng = random.Random(0)
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        place = Path(temporary)
        os.environ["RERANK_HOME"] = str(place / "home")
        letor = {"class_path": "LetorData", "init_args": {"path": str(options.data / "MQ2008"), "fold": 1}}
        base = {"data": letor, "model": {"class_path": "MLP"}, "loss": "SmoothINDCG", "batch_size": 128, "tracker": []}
        train = base | {"epochs": 2, "checkpoint_every": 2}
        (place / "train.yaml").write_text(yaml.safe_dump(train))
        methods = {"SmoothI": {"set": {"loss": "SmoothINDCG"}}, "ListNet": {"set": {"loss": "ListNet"}}}
        grid = {"base": base | {"epochs": 1}, "methods": methods, "folds": [1, 2], "measures": "nDCG@10", "jobs": 2}
        (place / "grid.yaml").write_text(yaml.safe_dump(grid))

        def retrieve(folder: Path) -> list[str]:
            scifact = f"beir:{options.data / 'scifact'}/test"
            return command("retrieve", "--collection", scifact, "--depth", "20", "--output", str(folder))

        def trained(folder: Path) -> list[str]:
            return command("train", "--config", str(place / "train.yaml"), "--output", str(folder))

        def experiment(folder: Path) -> list[str]:
            return command("experiment", "--config", str(place / "grid.yaml"), "--output", str(folder))

        print("| | | went wrong |\n|---|---|---|")
        for name, words in (("retrieve", retrieve), ("train", trained), ("experiment", experiment)):
            twice(name, words, options.pairs, place)

        def files(folder: Path, pattern: str) -> list[Path]:
            found = [path for path in folder.rglob(pattern) if path.is_file() and path.name not in FREE]
            return [path for path in found if "tokens" not in path.parts and "workers" not in path.parts]

        lists, run, cells = place / "retrieve-alone", place / "train-alone", place / "experiment-alone"
        (run / "measures.json").rename(place / "measures.json")  # as if it had been killed before its end
        newest = sorted((run / "checkpoints").iterdir())[-1]
        share = options.flips // 6
        flipped("a checkpoint", files(newest, "*"), lambda: trained(run), share, rng)
        (place / "measures.json").rename(run / "measures.json")
        score = command("rerank", "--model", str(run / "best"), "--output", str(place / "x.trec"), "--lists")
        test = str(options.data / "MQ2008" / "Fold1" / "test.txt")
        flipped("`best/`", files(run / "best", "*"), lambda: [*score, test], share, rng)
        verify = command("verify", str(lists))
        flipped("lists", files(lists, "*.[aj]*"), lambda: verify, share, rng)
        flipped("columns", files(lists / "columns", "*"), lambda: verify, share, rng)
        table = [*files(cells / "cells", "measures.json"), *files(cells / "cells", "test-*.json")]
        flipped("what an experiment's table is made of", table, lambda: experiment(cells), share, rng)
        whole = command("verify", str(cells))
        flipped("an experiment's cells", files(cells / "cells", "*"), lambda: whole, share, rng)


if __name__ == "__main__":
    main()
