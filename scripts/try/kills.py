"""What killed commands leave: each is killed, given again, and what is there compared with one that nobody killed.

    python scripts/try/kills.py [--times 40] [--operations 20] [--only COMMAND]

prints the Markdown table of docs/reliability.md, on made data. The processes are forks of one that has imported
everything, so that they are killed at work and not while they import; an experiment's workers are started as always.
Each command is killed at random moments (by KILL, TERM and INT in turn; every second time of its whole run, otherwise
of the 100 ms from its first file on), and by KILL right before operations on files, spread over all that it does:
opening a file to write, renaming, deleting, making and removing folders. Then it is given again; what is there has to
be what it makes when it is left alone, but for notes with times in them, and nothing hidden may be left.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import itertools
import json
import logging
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import rerank.commands.experiment
import rerank.ladder.climb
import rerank.lists.add
import rerank.lists.build
import rerank.retrieval.bm25
import rerank.scoring.column
import rerank.training.trainer
from rerank.commands.cli import main as rerank

ROOT = Path(__file__).resolve().parent.parent.parent
PEEK = os.WEXITED | os.WNOHANG | os.WNOWAIT
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
FREE = (
    *("log.txt", "provenance.json", "README.md", "config.yaml", "metrics.jsonl", "results.json", "table.md"),
    *("ladder.txt", "ladder.html", "cells.jsonl.xz"),
)
"""Files with times and paths in them: that they are there is all that is compared."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
PATHS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
"""What Python says of operations on files, their path first; ``os.rename`` is ``os.replace`` too."""


class Case(NamedTuple):
    """A command to kill.

    Attributes:
        name: what the table calls it.
        words: the command.
        reset: makes everything as it is before the command.
    """

    name: str
    words: Sequence[str]
    reset: Callable[[], None]


def start(words: Sequence[str], place: Path, stop: int | None = None) -> int:
    """A command in a process of its own; returns its number.

    Args:
        words: the command.
        place: below it operations on files count; beside it are ``said.txt``, what the command says, and, once it is
            through, ``done.json``: how many operations there were, and what it imported.
        stop: the operation before which it is killed; None never kills it.
    """
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        code = 1
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        try:
            counted = itertools.count(1)
            seen = [0]
            within = str(place)

            def watch(event: str, arguments: tuple[Any, ...]) -> None:
                writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
                if (writes or event in PATHS) and str(arguments[0]).startswith(within):
                    seen[0] = next(counted)
                    if seen[0] == stop:
                        os.kill(os.getpid(), signal.SIGKILL)

            sys.addaudithook(watch)
            logging.getLogger("rerank").setLevel(logging.ERROR)
            with (
                (place.parent / "said.txt").open("w") as file,
                contextlib.redirect_stdout(file),
                contextlib.redirect_stderr(file),
            ):
                try:
                    code = rerank(words)
                except BaseException:
                    traceback.print_exc()
            (place.parent / "done.json").write_text(json.dumps([seen[0], list(sys.modules)]))
        finally:
            os._exit(code)
    return child


def alone(words: Sequence[str], place: Path) -> int:
    """A command that nobody kills; afterwards its modules are imported here. Returns how many operations it made."""
    code = ended(start(words, place))
    assert code == 0, f"{words}: exit code {code}\n{(place.parent / 'said.txt').read_text()}"
    count, modules = json.loads((place.parent / "done.json").read_text())
    for name in modules:
        if name not in sys.modules and name.partition(".")[0] not in ("jnius", "pyserini"):  # Java does not fork
            with contextlib.suppress(Exception):  # some are made, not imported
                importlib.import_module(name)
    return int(count)


def ended(child: int) -> int:
    """Wait for a process; returns its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def content(folder: Path) -> dict[str, str]:
    """What is below a folder: hashes of files, but for those with times in them; names alone of folders and those."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(_bytes(path)).hexdigest() if _counts(path) else ""
        for path in sorted(folder.rglob("*"))
        if not {"home", "workers", "checkpoints"} & {*path.relative_to(folder).parts}
    }


def _counts(path: Path) -> bool:
    return path.is_file() and path.name not in FREE and path.suffix not in (".parquet", ".png")


def _bytes(path: Path) -> bytes:
    """What a file holds; of a ladder's rungs all but how long they took."""
    whole = path.read_bytes()
    timed = path.name == "ladder.json" or path.parent.name == "rungs"
    return re.sub(rb'"(seconds|sha256)": [^,}\n]+', b"", whole) if timed else whole


def hidden(folder: Path) -> list[str]:
    """What writers use while they write: temporary files, folders that were replaced, locks."""
    return [str(path.relative_to(folder)) for path in folder.rglob(".*")]


def paths(folder: Path) -> set[Path]:
    """All there is below a folder."""
    return set(folder.rglob("*"))


def at_a_moment(case: Case, place: Path, took: float, number: int, rng: random.Random) -> int:
    """Start a command and send it a signal some time later; returns its exit code."""
    names, child = paths(place), start(case.words, place)
    if number % 2:  # from its first file on; otherwise at any moment
        while paths(place) == names and not os.waitid(os.P_PID, child, PEEK):
            time.sleep(0.0005)
        time.sleep(rng.choice([0.001, 0.01, 0.1]) * rng.random())
    else:
        time.sleep(took * rng.random())
    os.kill(child, signal_of(number))
    return ended(child)


def signal_of(number: int) -> signal.Signals:
    """The signal of a random moment."""
    return SIGNALS[number // 2 % len(SIGNALS)]


def killed(case: Case, place: Path, times: int, operations: int, rng: random.Random) -> None:
    """Kill a command again and again, and print how often the next one did not end as one that is left alone."""
    case.reset()
    alone(case.words, place)
    case.reset()
    started = time.perf_counter()
    count = alone(case.words, place)
    took, whole = time.perf_counter() - started, content(place)
    assert not hidden(place), f"{case.name}: leaves {hidden(place)}"
    stops = [1 + i * count // operations for i in range(operations)] if operations < count else range(1, count + 1)
    counts, signals, wrong, number, missed = Counter[str](), Counter[str](), 0, 0, 0
    ways: list[int | None] = [*[None] * times, *stops]
    while ways and missed < 5 * times + 5:
        stop = ways[-1]
        case.reset()
        before = content(place)
        code = at_a_moment(case, place, took, number, rng) if stop is None else ended(start(case.words, place, stop))
        number += stop is None
        if code == 0 and stop is None:
            missed += 1
            continue  # it was faster
        ways.pop()
        if stop is None:
            signals[signal_of(number - 1).name.removeprefix("SIG")] += 1
        left = content(place)
        counts["after its first file" if left != before else "before"] += 1
        code = ended(start(case.words, place))
        code = 0 if code == 2 and left == whole else code  # killed behind its last rename: it says that it is there
        after = content(place)
        if code or after != whole or hidden(place):
            wrong += 1
            changed = [name for name in {**after, **whole} if after.get(name) != whole.get(name)]
            how = "at a moment" if stop is None else f"before operation {stop} of {count}"
            print(f"{case.name}, {how}: exit code {code}, {changed[:5]}, {hidden(place)[:5]}", file=sys.stderr)
            print((place.parent / "said.txt").read_text(), file=sys.stderr)
    shown = ", ".join(f"{number} {when}" for when, number in sorted(counts.items()))
    how = ", ".join(f"{signals[name]} {name}" for name in ("KILL", "TERM", "INT"))
    every = "each" if len(stops) == count else f"{len(stops)} of"
    print(
        f"| {case.name} | {how} | {every} {count} | {shown} | {wrong} |" + (" gave up: too fast" if ways else ""),
        flush=True,
    )


PREPARED = """
import sys
from pathlib import Path
from rerank.retrieval.runs import write_run
from tests.builders import make_model, random_run, write_collection, write_folds
made = Path(sys.argv[1])
beir = write_collection(made / "beir", queries=24, documents=400)
write_folds(made / "letor")
make_model(made / "tiny")
for seed, name in enumerate(("bm25", "rm3", "splade", "tasb")):
    write_run(made / f"{name}.trec", random_run(beir, [30] * 24, seed))
"""
SPLITS = """
import sys
from rerank import Lists
lists = Lists.open(sys.argv[1] + "/lists").top(20)
for n, name in enumerate(("train", "validation", "test")):
    lists.select(slice(8 * n, 8 * n + 8)).save(f"{sys.argv[1]}/{name}")
"""


def elsewhere(code: str, made: Path) -> None:
    """Run code in another process: forks want no threads."""
    subprocess.run([sys.executable, "-c", code, str(made)], cwd=ROOT, check=True)


def cases(place: Path, made: Path) -> list[Case]:
    """The commands, on what is prepared in ``made``."""
    work, home = place / "work", place / "home"
    elsewhere(PREPARED, made)
    letor, collection = made / "letor", ["--collection", f"beir:{made / 'beir'}/test"]
    runs = {name: str(made / f"{name}.trec") for name in ("bm25", "rm3", "splade", "tasb")}
    model = {"class_path": "MLP", "init_args": {"hidden": [16]}}
    base = {"data": {"class_path": "LetorData", "init_args": {"path": str(letor), "fold": 1}}, "model": model}
    base |= {"batch_size": 10, "tracker": [], "measures": "nDCG@10", "epochs": 3, "checkpoint_every": 2}
    base["loss"] = "SmoothINDCG"
    (made / "train.yaml").write_text(yaml.safe_dump(base))
    methods = {"SmoothI": {"set": {"loss": "SmoothINDCG"}}, "ListNet": {"set": {"loss": "ListNet"}}}
    cells = {"base": base | {"epochs": 1}, "methods": methods, "folds": [1], "measures": "nDCG@10", "jobs": 1}
    (made / "grid.yaml").write_text(yaml.safe_dump(cells | {"test": "t-test"}))
    retrieve = ["retrieve", *collection, "--output"]
    train = ["train", "--config", str(made / "train.yaml"), "--output"]
    alone([*retrieve, str(made / "lists"), "--run", runs["bm25"]], place)
    columns = made / "columns.yaml"
    over = {"class_path": "ListsData", "init_args": {"train": str(made / "lists")}}
    reads = {"class_path": "MLP", "init_args": {"hidden": [16], "columns": ["bm25"]}}
    columns.write_text(yaml.safe_dump(base | {"data": over, "model": reads, "epochs": 1}))
    texts = {"class_path": "CrossEncoder", "init_args": {"name": str(made / "tiny"), "document_length": 48}}
    (made / "texts.yaml").write_text(yaml.safe_dump(base | {"data": over, "model": texts, "epochs": 1}))
    grid = ["experiment", "--config", str(made / "grid.yaml"), "--output"]
    for words in (
        [*train, str(made / "run")],
        ["train", "--config", str(columns), "--output", str(made / "over")],
        ["train", "--config", str(made / "texts.yaml"), "--output", str(made / "reader")],
        [*grid, str(made / "one")],
    ):
        alone(words, place)
    shutil.rmtree(made / "lists" / "tokens")  # so that reranking makes them

    def empty() -> None:
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(home, ignore_errors=True)
        work.mkdir()

    def lists() -> None:
        empty()
        shutil.copytree(made / "lists", work / "lists")

    files = [runs[name] for name in ("rm3", "splade", "tasb")]
    add = ["add", "--lists", str(work / "lists")]
    scored = ["rerank", "--model", str(made / "run" / "best"), "--lists", str(letor / "Fold1" / "test.txt")]
    search = ["retrieve", *collection, "--depth", "20", "--threads", "1", "--add-relevant"]
    reranked = ["rerank", "--model", str(made / "reader" / "best"), "--lists", str(work / "lists")]
    qrels = str(made / "beir" / "qrels" / "test.tsv")
    evaluated = ["evaluate", "--qrels", qrels, "--runs", runs["rm3"], "--baseline", runs["bm25"]]
    elsewhere(SPLITS, made)
    splits = [f"--{name}={made / name}" for name in ("train", "validation", "test")]
    climbed = ["auto", *splits, "--model", str(made / "tiny"), "--output"]
    overwritten = [*retrieve, str(work / "lists"), "--run", runs["rm3"], "--overwrite"]
    return [
        Case("`add --run` of three files", [*add, "--run", *files], lists),
        Case("`retrieve --run` of four files", [*retrieve, str(work / "lists"), "--run", *runs.values()], empty),
        Case("`retrieve --overwrite`", overwritten, lists),
        Case("`retrieve` by BM25, its index included", [*search, "--output", str(work / "lists")], empty),
        Case("`add --model`", [*add, "--model", str(made / "over" / "best"), "--name", "m", "--in-sample"], lists),
        Case("`train`", [*train, str(work / "run")], empty),
        Case("`rerank`", [*scored, "--output", str(work / "x.trec")], empty),
        Case("`experiment`", [*grid, str(work / "out")], empty),
        Case(
            "`rerank` of texts, tokens included",
            [*reranked, "--depth", "20", "--output", str(work / "x.trec")],
            lists,
        ),
        Case("`auto`, trainings included", [*climbed, str(work / "ladder")], empty),
        Case("`export`", ["export", "--lists", str(made / "lists"), "--output", str(work / "x.parquet")], empty),
        Case("`evaluate`", [*evaluated, "--html", str(work / "x.html"), "--per-query", str(work / "x.tsv")], empty),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=40, help="of each command, at random moments")
    parser.add_argument("--operations", type=int, default=20, help="of each command, spread over all it does")
    parser.add_argument("--only", action="append", help="a part of a command's name in the table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        place, made = Path(temporary).resolve() / "place", Path(temporary).resolve() / "made"
        place.mkdir()
        made.mkdir()
        os.environ["RERANK_HOME"] = str(place / "home")
        logging.getLogger("rerank").setLevel(logging.ERROR)
        print("| | killed at random moments | before operations on files | of these | went wrong |")
        print("|---|---|---|---|---|")
        for case in cases(place, made):
            if any(part in case.name for part in options.only or [""]):
                killed(case, place, options.times, options.operations, rng)


if __name__ == "__main__":
    main()
