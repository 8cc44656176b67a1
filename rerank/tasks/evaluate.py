"""Scoring runs against judgments: ``rerank.evaluate``, and the command of that name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rerank.settings.arguments import check_arguments, check_unused
from rerank.tasks.arguments import Judgments, Runs, Trained

if TYPE_CHECKING:
    from rerank.evaluation.table import Table


def evaluate(
    qrels: Judgments,
    runs: Runs,
    measures: str = "nDCG@10 AP RR P@10",
    baseline: str | None = None,
    test: Literal["t-test", "wilcoxon", "randomisation", "bootstrap"] = "t-test",
    correction: Literal["none", "bonferroni", "holm"] = "holm",
    empty: Literal["0", "1", "drop"] = "0",
    trained_on: Trained = None,
) -> Table | float:
    """Score runs against judgments; with a baseline, test the differences.

    From Python ``qrels`` may also be lists or judgments in any form (:func:`rerank.collections.as_qrels`),
    ``trained_on`` one of these or a list of them, ``runs`` a dictionary of runs in any form
    (:func:`rerank.retrieval.runs.as_run`); with lists also arrays of a score per candidate, and names of columns.

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2], "doc_id": [1, 2, 1, 2], "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> table = rerank.evaluate(lists, {"ours": [0.9, 0.1, 0.2, 0.8]}, measures="RR", baseline="bm25")
    >>> table["bm25", "RR"], table["ours", "RR"]
    (0.75, 1.0)

    A single run, not in a dictionary or list, in one measure and without a baseline gives its mean:

    >>> rerank.evaluate({"q": {"a": 1}}, {"q": {"b": 2.0, "a": 1.0}}, "RR")
    0.5

    Args:
        qrels: judgments: a TREC file, a BEIR TSV, a collection, or a lists folder.
        runs: run files (TREC, MS MARCO, JSONL or Parquet; compressed or not), or NAME=FILE; with a lists folder also
            names of its columns.
        measures: measures in the notation of ir-measures, separated by spaces.
        baseline: the run to test the others against, by its file or its name.
        test: significance test on the values per query.
        correction: how p-values are corrected for the number of comparisons in the table.
        empty: what a query without relevant documents scores: 0 as in trec_eval, 1, or drop to leave it out.
        trained_on: lists folders or judgments that the models were trained on; queries that have a relevant document in
            common with these are left out.

    Returns:
        The table, or the mean.

    Raises:
        UserError: invalid files or arguments.
    """
    from rerank.evaluation.compare import compare_runs, is_one_run
    from rerank.lists.store import is_lists_folder
    from rerank.lists.view import Lists

    options = {"baseline": baseline, "test": test, "correction": correction, "empty": empty}
    check_arguments(evaluate, options)
    if baseline is None:
        check_unused(
            "has no effect without a baseline; give --baseline RUN", evaluate, test=test, correction=correction
        )

    def opened(given: Any) -> Any:
        return Lists.open(given) if isinstance(given, str | Path) and is_lists_folder(Path(given)) else given

    several = trained_on if isinstance(trained_on, list | tuple) else [] if trained_on is None else [trained_on]
    alone = is_one_run(runs)
    named = {"run": runs} if alone and not isinstance(runs, str | Path) else runs
    trained = list(map(opened, several))
    table = compare_runs(opened(qrels), named, measures, baseline, test, correction, empty, trained)
    return table[next(iter(table.tables)), measures] if alone and not baseline and len(table.measures) == 1 else table
