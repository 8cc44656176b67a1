"""Whether damaged files are refused in one line: every reader, thousands of small files (docs/reliability.md).

    python scripts/try/readers.py [--files 50000] [--first 0] [--only READER] [--keep DIR]

Valid files of all kinds are made (``tests/fuzz/readers.py``), then damaged one at a time (``tests/fuzz/mutations.py``):
flipped bits, blocks of zeros, truncation, lines twice or gone, bytes that mean something, huge numbers. File N is
damaged the same way every time, so ``--first N --files 1`` repeats one, and a run that was stopped goes on with
``--first``. Each is read in a forked process that may take 10 seconds of processor time and 2 GiB more than it has.
Wrong is: an error that is not the library's own, or has more than one line; a process that dies or hangs; another
result than the whole file's where a hash covers the file.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import pickle
import resource
import select
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))  # for the tests

from rerank.errors import UserError
from tests.fuzz.mutations import mutated_file
from tests.fuzz.readers import READERS, Reader, write_files

SECONDS, MEMORY = 10, 2 << 30
WAIT = 120
"""Seconds by the clock after which a process is taken for stuck, though it uses no processor."""
AT_ONCE = 500
"""Files that a process reads before another one takes over."""
WRONG = ("traceback", "several lines", "differs", "died")


def damaged(folder: Path, reader: Reader, name: str, number: int) -> bytes:
    """What becomes of a reader's file."""
    random, whole = Random(f"{name} {number}"), (folder / reader.file).read_bytes()
    for _ in range(100):
        if (data := mutated_file(folder / reader.file, whole, random)) != whole:
            break
    return data


def outcome(folder: Path, reader: Reader, expected: Any) -> tuple[str, str]:
    """What a reader makes of its file as it is now: one word, and what there is to say."""
    try:
        result = reader.read(folder / reader.file)
    except UserError as error:
        return ("several lines" if "\n" in str(error) or not str(error) else "refused"), str(error)
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return "traceback", f"{type(error).__name__}: {str(error)[:200]} ({Path(last.filename).name}:{last.lineno})"
    if result == expected:
        return "same", ""
    return ("differs" if reader.hashed else "otherwise"), ""


def work(folder: Path, names: list[str], expected: dict[str, Any], numbers: range, pipe: int) -> None:
    """Read damaged files, and write the outcome of each into a pipe."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for number in numbers:
        name = names[number % len(names)]
        path = folder / READERS[name].file
        whole = path.read_bytes()
        path.write_bytes(damaged(folder, READERS[name], name, number))
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # unhandled: the process dies, wherever it hangs
        read = outcome(folder, READERS[name], expected[name])
        signal.setitimer(signal.ITIMER_PROF, 0)
        path.write_bytes(whole)
        message = pickle.dumps(read)
        os.write(pipe, struct.pack("<I", len(message)) + message)


def outcomes(folder: Path, names: list[str], expected: dict[str, Any], numbers: range) -> Iterator[tuple[str, str]]:
    """The outcome of each file, in order, from process after process."""
    start = numbers.start
    whole = {READERS[name].file: (folder / READERS[name].file).read_bytes() for name in names}
    while start < numbers.stop:
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            code = 1
            try:
                os.close(reading)
                work(folder, names, expected, range(start, min(numbers.stop, start + AT_ONCE)), writing)
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        last = min(numbers.stop, start + AT_ONCE)
        with os.fdopen(reading, "rb") as pipe:
            while start < last:
                if not select.select([pipe], [], [], WAIT)[0]:
                    os.kill(child, signal.SIGKILL)
                head = pipe.read(4)
                if len(head) < 4:
                    break
                yield pickle.loads(pipe.read(struct.unpack("<I", head)[0]))
                start += 1
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if start < last:
            for file, content in whole.items():
                (folder / file).write_bytes(content)
            said = {-signal.SIGPROF: f"over {SECONDS} s", -signal.SIGKILL: "stuck, or out of memory"}
            yield "died", said.get(code, f"exit code {code}")
            start += 1


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=READERS)
    parser.add_argument("--folder", type=Path, help="where files lie that are read; best in memory, such as /dev/shm")
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the files that something went wrong with")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary) / "files"
        folder.mkdir()
        os.environ["RERANK_HOME"] = str(Path(temporary) / "home")
        logging.disable(logging.WARNING)
        with open(os.devnull, "w") as quiet, contextlib.redirect_stderr(quiet):
            write_files(folder)
        names = options.only or list(READERS)
        started = time.perf_counter()
        expected = {name: READERS[name].read(folder / READERS[name].file) for name in names}
        counts = {name: Counter[str]() for name in names}
        numbers = range(options.first, options.first + options.files)
        for number, (word, said) in zip(numbers, outcomes(folder, names, expected, numbers), strict=True):
            name = names[number % len(names)]
            counts[name][word] += 1
            if word in WRONG:
                print(f"{number} {name}: {word}: {said}", file=sys.stderr, flush=True)
                if options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    kept = options.keep / f"{number}-{Path(READERS[name].file).name}"
                    kept.write_bytes(damaged(folder, READERS[name], name, number))
            if (number + 1 - numbers.start) % 1000 == 0:
                wrong = sum(count[word] for count in counts.values() for word in WRONG)
                print(f"{number + 1} read, {wrong} wrong, {time.perf_counter() - started:.0f} s", file=sys.stderr)
        print("| reader | files | refused | the same | another result | went wrong |\n|---|---|---|---|---|---|")
        for name, count in [*counts.items(), ("all", sum(counts.values(), Counter[str]()))]:
            wrong = sum(count[word] for word in WRONG)
            print(
                f"| {name} | {count.total()} | {count['refused']} | {count['same']} | {count['otherwise']} | {wrong} |"
            )


if __name__ == "__main__":
    main()
