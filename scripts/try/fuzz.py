"""Readers against a fuzzer that watches which branches of ours its bytes take, and goes on from what takes new ones.

    pip install atheris
    python scripts/try/fuzz.py [--runs 5000] [--only READER] [--corpus DIR]

Each reader of ``tests/fuzz/readers.py`` begins with its valid file, and with what earlier runs kept in ``--corpus``.
Wrong is what `scripts/try/readers.py` calls wrong: an error that is not the library's own or has more than one line, a
process that dies, or hangs for five minutes, another result where a hash covers the file. The bytes stay in the corpus.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import re
import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

with atheris.instrument_imports(include=["rerank"]):
    from readers import WRONG, outcome

    from tests.fuzz.readers import READERS, write_files


def fuzz(name: str, folder: Path, corpus: Path, runs: int) -> None:
    """Read what the fuzzer makes up, until something is wrong; ends the process."""
    reader = READERS[name]
    path = folder / reader.file
    whole = path.read_bytes()
    expected = reader.read(path)
    corpus.mkdir(parents=True, exist_ok=True)
    (corpus / "valid").write_bytes(whole)

    def read(data: bytes) -> None:
        path.write_bytes(data)
        word, said = outcome(folder, reader, expected)
        if word in WRONG:
            raise RuntimeError(f"{word}: {said}")

    limits = [f"-runs={runs}", f"-max_len={4 * len(whole) + 64}", "-timeout=300", "-rss_limit_mb=8192", "-seed=1"]
    atheris.Setup(["fuzz", *limits, f"-artifact_prefix={corpus}/wrong-", str(corpus)], read)
    atheris.Fuzz()


def reaped(name: str, folder: Path, corpus: Path, runs: int) -> tuple[int, str]:
    """The exit code of a fuzzer in a process of its own, and what it printed."""
    log = corpus.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    if (child := os.fork()) == 0:
        os.dup2(os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), 1)
        os.dup2(1, 2)
        code = 1
        try:
            fuzz(name, folder, corpus, runs)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            sys.stdout.flush()
            os._exit(code)  # what would clean up at the end, such as the folder of files, is the parent's
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), log.read_text(errors="replace")


def main() -> None:
    """Print a line for each reader."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--only", action="append", choices=READERS)
    parser.add_argument("--corpus", type=Path, default=Path("build/corpus"))
    parser.add_argument("--folder", type=Path, help="where files lie that are read; best in memory, such as /dev/shm")
    options = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        os.environ["RERANK_HOME"] = str(Path(temporary) / "home")
        logging.disable(logging.WARNING)
        folder = Path(temporary) / "files"
        folder.mkdir()
        with open(os.devnull, "w") as quiet, contextlib.redirect_stderr(quiet):
            write_files(folder)
        for name in options.only or READERS:
            path = folder / READERS[name].file
            whole = path.read_bytes()
            place = options.corpus.resolve() / re.sub(r"\W+", "-", name)
            code, said = reaped(name, folder, place, options.runs)
            path.write_bytes(whole)
            taken: list[str] = re.findall(r"cov: (\d+)", said)
            about = f"branches from {taken[0]} to {taken[-1]}" if taken else "no branch"
            ends = "" if code == 0 else f", WRONG (exit code {code}): {said.splitlines()[-1][:200]}"
            print(f"{name}: {about}{ends}", flush=True)
            wrong += code != 0
    print(f"{wrong} readers went wrong")


if __name__ == "__main__":
    main()
