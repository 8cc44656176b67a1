"""Lists of a large collection: `rerank retrieve` on made passages and queries of growing number.

    python scripts/bench_scale.py [--passages 1000000] [--queries 50000] [--depth 150] [--heap 1g] [--folder DIR]

prints a Markdown table: first an eighth, a quarter, a half and all of the queries over all passages, then an eighth of
the queries over an eighth, a quarter and a half of the passages. Passages have about 55 words of a Zipf vocabulary, as
MS MARCO's have; a query has 6 words of one passage, which is judged relevant.

Each row is one process, of which Linux is asked five times a second. *Own* is the memory that belongs to it alone
(anonymous pages), at most, while it indexes, searches and builds the lists. Java's heap is in it: `--heap` is its
limit, and Java sees no reason to stay far below. *Outside the heap* is the most that there was beside it at any time.
*Mapped* are pages of files, of the index above all, which the system keeps as long as nobody else wants the memory.
*Search MB* is what the search stores beside the lists until they are complete. The store is opened by a process of its
own, the best of three. An index that is there already is not built again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

WORDS = 200_000
COMMON = 60
"""Flattens the top of Zipf's law: the most frequent words of a language are stop words, which are not indexed."""
OPEN = """
import sys, time
from rerank.lists import Lists
started = time.perf_counter()
Lists.open(sys.argv[1])
print(time.perf_counter() - started)
"""
PHASES = ("indexing", "searching", "lists")


def make_data(folder: Path, passages: int, queries: int, seed: int) -> None:
    """``docs.tsv``, ``queries.tsv`` and ``qrels``; the relevant passages are among the first eighth."""
    rng = np.random.default_rng(seed)
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
    with (folder / "qrels").open("w") as file:
        file.writelines(f"{q} 0 {i} 1\n" for q, i in enumerate(relevant))


def part_of(whole: Path, folder: Path, passages: int, queries: int) -> None:
    """The first so many passages, queries and judgments."""
    folder.mkdir()
    for name, lines in (("docs.tsv", passages), ("queries.tsv", queries), ("qrels", queries)):
        with (whole / name).open() as source, (folder / name).open("w") as target:
            target.writelines(line for _, line in zip(range(lines), source, strict=False))


class Memory(NamedTuple):
    """Bytes of a process: its own, of mapped files, and its own beside Java's heap."""

    own: int
    mapped: int
    outside: int


def memory(process: int, log: Path) -> Memory:
    """What Linux gives a process now.

    Args:
        process: its id.
        log: where Java has written at what addresses its heap is; not there before it starts.
    """
    told = re.search(r"Heap address: (0x[0-9a-f]+), size: (\d+) MB", log.read_text() if log.exists() else "")
    begin = int(told[1], 16) if told else 0
    end = begin + (int(told[2]) << 20) if told else 0
    resident = own = heap = start = 0
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        if area := re.match(r"([0-9a-f]+)-[0-9a-f]+ ", line):
            start = int(area[1], 16)
        elif size := re.match(r"(Rss|Anonymous): +(\d+) kB", line):
            kilobytes = int(size[2])
            if size[1] == "Rss":
                resident += kilobytes
            else:
                own += kilobytes
                heap += kilobytes if begin <= start < end else 0
    return Memory(own << 10, (resident - own) << 10, (own - heap) << 10)


class Measured(NamedTuple):
    """Of one process: seconds and the most bytes of its own by phase, other bytes at most, bytes of the search."""

    seconds: dict[str, float]
    busy: float
    own: dict[str, int]
    mapped: int
    outside: int
    parts: int


def retrieve(data: Path, home: Path, output: Path, options: argparse.Namespace) -> Measured:
    """Run the command and watch it from outside: its phases are known by the folders that it makes."""
    command = [sys.executable, "-m", "rerank.cli", "retrieve", "--collection", f"files:{data}"]
    command += ["--output", str(output), "--depth", str(options.depth), "--threads", str(options.threads)]
    log = output.parent / "java.log"
    log.unlink(missing_ok=True)
    environment = os.environ | {"RERANK_HOME": str(home), "RERANK_JVM_HEAP": options.heap}
    environment["JAVA_TOOL_OPTIONS"] = f"-Xlog:gc+heap+coops=debug:file={log}"
    ended, own = dict.fromkeys(PHASES, 0.0), dict.fromkeys(PHASES, 0)
    mapped = outside = parts = 0
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    while process.poll() is None:
        building = output.exists() or any(output.parent.glob(f".{output.name}.*.tmp"))
        phase = PHASES[2] if building else PHASES[any((home / "indexes").glob("[!.]*"))]
        try:
            now = memory(process.pid, log)
        except OSError:
            break  # it has just ended
        ended[phase] = time.perf_counter() - started
        own[phase] = max(own[phase], now.own)
        mapped, outside = max(mapped, now.mapped), max(outside, now.outside)
        if building and not parts:
            parts = size_of(output.parent / f".{output.name}.search")
        time.sleep(0.2)
    errors = process.communicate()[1]
    if process.returncode:
        raise RuntimeError(errors)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    ended["lists"] = time.perf_counter() - started
    begins = [0.0, ended["indexing"], max(ended["indexing"], ended["searching"])]
    seconds = {phase: max(0.0, ended[phase] - begin) for phase, begin in zip(PHASES, begins, strict=True)}
    return Measured(seconds, busy, own, mapped, outside, parts)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def seconds_to_open(lists: Path) -> float:
    """The best of three, each in a process of its own."""
    command = [sys.executable, "-c", OPEN, str(lists)]
    return min(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(3))


def measured_row(data: Path, home: Path, work: Path, options: argparse.Namespace) -> str:
    """Measure once, and clear away what was made but the index."""
    output = work / "lists"
    found = retrieve(data, home, output, options)
    opened, disk = seconds_to_open(output), size_of(output)
    counts = json.loads((output / "manifest.json").read_text())["counts"]
    shutil.rmtree(output)
    passages = sum(1 for _ in (data / "docs.tsv").open("rb"))
    indexing, searching, lists = (found.seconds[phase] for phase in PHASES)
    cells = [
        *(f"{passages:,}", f"{counts['queries']:,}", f"{counts['pairs']:,}", f"{counts['documents']:,}"),
        f"{indexing:.0f}" if indexing else "-",
        *(f"{searching:.0f}", f"{counts['queries'] / searching:.0f}"),
        *(f"{lists:.1f}", f"{counts['pairs'] / lists:,.0f}", f"{found.busy:.0f}"),
        *(f"{found.own[phase] >> 20:,}" if found.own[phase] else "-" for phase in PHASES),
        *(f"{found.outside >> 20:,}", f"{found.mapped >> 20:,}"),
        *(f"{size / 1e6:,.0f}" for size in (size_of(home), found.parts, disk)),
        f"{opened:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def shares(whole: int) -> Iterator[int]:
    return (whole // part for part in (8, 4, 2, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=50_000)
    parser.add_argument("--depth", type=int, default=150)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--heap", default="1g", help="limit of Java's heap, such as 512m or 4g")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="where to work; by default the folder for temporary files")
    options = parser.parse_args()
    if not re.fullmatch(r"[1-9]\d*[mg]", options.heap):
        parser.error(f"--heap {options.heap}: expected a size such as 512m or 4g")

    columns = ["passages", "queries", "pairs", "documents kept", "indexing s", "searching s", "queries/s", "lists s"]
    columns += [
        "pairs/s",
        "processors' s",
        *(f"own MiB, {phase}" for phase in PHASES),
        "outside the heap MiB",
        "mapped MiB",
    ]
    columns += ["index MB", "search MB", "lists MB", "to open s"]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        work = Path(folder)
        make_data(work / "whole", options.passages, options.queries, options.seed)
        print(f"depth {options.depth}, {options.threads} threads, Java's heap up to {options.heap}\n")
        print(f"| {' | '.join(columns)} |\n|{'---:|' * len(columns)}", flush=True)
        sizes = [(options.passages, queries) for queries in shares(options.queries)]
        sizes += [(passages, options.queries // 8) for passages in list(shares(options.passages))[:-1]]
        for passages, queries in sizes:
            data, home = work / f"{passages}-{queries}", work / f"home{passages}"
            part_of(work / "whole", data, passages, queries)
            print(measured_row(data, home, work, options), flush=True)
            shutil.rmtree(data)


if __name__ == "__main__":
    main()
