"""Recompute the tables of the documentation from the values in docs/studies/results.

python -m scripts.evidence            # lists tables and numbers that differ; exits with 1 if any does
python -m scripts.evidence --write    # writes the tables into the pages
"""

from __future__ import annotations

import argparse
import sys

from scripts.evidence.pages import filled, pages, problems
from scripts.evidence.values import ROOT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the tables into the pages")
    if parser.parse_args().write:
        for page, text in pages().items():
            (ROOT / page).write_text(filled(text), encoding="utf-8")
    wrong = problems(pages())
    print(*wrong, sep="\n", end="\n" * bool(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
