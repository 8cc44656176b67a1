"""Recompute the tables and sentences of the evidence from values kept per query, without the package.

python -m scripts.evidence            # lists what differs from the kept values; exits with 1 if anything does
python -m scripts.evidence --write    # writes the tables and the list of claims into the pages, and the picture
"""

from __future__ import annotations

import argparse
import sys

from scripts.evidence.effects import picture
from scripts.evidence.kept import ROOT
from scripts.evidence.pages import filled, pages, problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the tables into the pages, and the picture")
    if parser.parse_args().write:
        for page, text in pages().items():
            (ROOT / page).write_text(filled(text))
        picture(ROOT / "docs" / "figures" / "evidence.png")
    wrong = problems(pages())
    print(*wrong, sep="\n", end="\n" * bool(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
