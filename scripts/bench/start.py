"""How long it takes until something is there: ``import rerank``, ``--help`` of every command, an answer of the demo.

    python scripts/bench/start.py                # wants a machine that does nothing else
    python scripts/bench/start.py --demo demo    # with ``rerank demo --ask``, where the demo has been run

Prints a Markdown table: the median and the range of the wall time of fresh processes, after one that warms the disk.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from rerank.commands.cli import COMMANDS

QUESTION = "run a command and get its output"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--demo", help="folder of a demo, to time an answer")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    commands = {"python -c pass": ["-c", "pass"], "import rerank": ["-c", "import rerank"]}
    commands |= {
        f"rerank {' '.join(words)}": ["-m", "rerank.commands.cli", *words]
        for words in [["--help"], *([name, "--help"] for name in COMMANDS)]
    }
    if options.demo:
        commands["rerank demo --ask"] = [
            "-m",
            "rerank.commands.cli",
            "demo",
            "--output",
            options.demo,
            "--ask",
            QUESTION,
        ]
    print("| | median, s | least | most |\n|---|---:|---:|---:|")
    for name, words in commands.items():
        times = [seconds(words) for _ in range(options.repeats + 1)][1:]
        print(f"| `{name}` | {statistics.median(times):.2f} | {min(times):.2f} | {max(times):.2f} |", flush=True)


def seconds(words: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
