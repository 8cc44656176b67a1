"""Lists in the order of a trained model's scores, as a run file."""

from __future__ import annotations

import logging
from pathlib import Path

from rerank.evaluation.beside import beside_run
from rerank.kernels.precision import Precision
from rerank.lists.view import Lists
from rerank.models.load import load_model
from rerank.retrieval.runs import write_run
from rerank.scoring.column import model_hash
from rerank.scoring.parts import Parts, kept_in
from rerank.scoring.shared import check_scoring, placed, score_shared
from rerank.scoring.together import group, together
from rerank.storage.arrow import Array
from rerank.storage.locks import held

log = logging.getLogger("rerank")


def write_reranked(
    model: str | Path,
    lists: Lists,
    output: str | Path,
    *,
    mix: bool = True,
    precision: Precision = "auto",
    budget: int | None = None,
) -> None:
    """Score lists with a trained model and write the run; the same call resumes behind the last part of another's."""
    made = {"scorer": model_hash(model, mix)}
    place = Path(output).parent / f".{Path(output).name}.parts"
    with group() as main, kept_in(place, "reranking", main):
        with together():
            scorer = load_model(model, mix)
            check_scoring(scorer, precision, budget)
            exact = placed(scorer, precision)
            lists = scorer.completed(lists)
            parts = Parts(place, scorer, lists, made | {"precision": exact})
        scores = score_shared(scorer, lists, precision=exact, budget=budget, progress="reranking", parts=parts)
        with together():
            if main:
                _write(lists, scores, output)


def _write(lists: Lists, scores: Array, output: str | Path) -> None:
    with held(output, "rerank rerank", wait=True):  # clears away what a killed one left
        run = lists.run(scores)
        write_run(output, run, tag="rerank")
    log.info("%s: %d queries, %d documents scored", output, len(run), len(scores))
    judged = {query: grades for query, grades in (lists.qrels or {}).items() if grades}
    if lists.store.order is not None and judged:
        first = f"first stage {lists.store.order}"
        log.info("%s: %s", output, beside_run(run, lists.run(lists.store.order), judged, "nDCG@10", first))
