"""A column's scores as probabilities, fitted on some lists and measured on others, and whether promises are kept.

    python scripts/try/promises.py --depth 10 --lists lists/nfcorpus-train lists/nfcorpus-test

Prints Markdown: log loss, Brier score and calibration error on the second lists before and after, then for each
precision the threshold of `rerank calibrate` and, beside it, the lowest one that reaches the precision on the first
lists. Candidates without a judgment count as not relevant.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bench"))

from common import head, row

from rerank.evaluation.calibration import PRECISIONS, Found, Quality, fitted, sigmoid, threshold
from rerank.lists.view import Lists


def read(folder: str, column: str, depth: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, which are relevant, and the query of each, ``[n]``."""
    lists = Lists.open(folder)
    lists = lists.select(lists.judged & (lists.lengths > 0)).top(depth)
    relevant = np.array([(grade or 0) > 0 for grade in lists.judged_grades()])
    return lists.column(column).astype(float), relevant, np.repeat(np.arange(len(lists)), lists.lengths)


def lowest(scores: np.ndarray, relevant: np.ndarray, precision: float) -> float | None:
    """The lowest score above which so large a share happens to be relevant."""
    order = np.argsort(-scores, kind="stable")
    enough = np.flatnonzero(np.cumsum(relevant[order]) >= precision * np.arange(1, len(order) + 1))
    return float(scores[order[enough[-1]]]) if len(enough) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", nargs=2, required=True, help="lists to fit on, and others")
    parser.add_argument("--column", default="bm25")
    parser.add_argument("--depth", type=int, default=10)
    options = parser.parse_args()
    (scores, relevant, query), (there, right, of) = (
        read(folder, options.column, options.depth) for folder in options.lists
    )
    a, b = fitted(scores, relevant)
    before, after = Quality.of(there, right), Quality.of(a * there + b, right)
    assert (np.argsort(-there, kind="stable") == np.argsort(-(a * there + b), kind="stable")).all()
    head("", "log loss", "Brier score", "calibration error")
    for name, of_it in (("before", before), ("after", after)):
        row(name, *(f"{value:.4f}" for value in vars(of_it).values()))
    print()
    head("promised", "by", "from", "precision there", "candidates")
    for precision in PRECISIONS:
        for name, least in (
            ("a lower bound", threshold(scores, relevant, query, precision)),
            ("the lowest cut", lowest(scores, relevant, precision)),
        ):
            if least is None:
                row(precision, name, "none", "", "")
                continue
            found = Found.of(there >= least, right, of)
            share = "-" if found.precision is None else f"{found.precision:.3f}"
            row(precision, name, f"{sigmoid(a * least + b):.3f}", share, found.count)


if __name__ == "__main__":
    main()
