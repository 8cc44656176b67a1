"""Lists in the order of a trained model's scores, as a run file."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from rerank.evaluation.beside import beside_run
from rerank.kernels.precision import Precision
from rerank.lists.view import Lists
from rerank.retrieval.fuse import interpolate
from rerank.retrieval.runs import Run, write_run
from rerank.scoring.column import model_hash
from rerank.scoring.parts import Scoring, Share
from rerank.storage.locks import held

log = logging.getLogger("rerank")


def write_reranked(
    model: str | Path,
    lists: Lists,
    output: str | Path,
    weight: float = 0.0,
    *,
    precision: Precision = "auto",
    budget: int | None = None,
) -> None:
    """Score lists with a trained model and write the run; the same call resumes behind the last part of another's.

    Args:
        model: the model's folder.
        lists: the lists.
        output: the run file; the parts lie beside it until it is whole.
        weight: the first stage's share of the scores.
        precision: arithmetic of the encoder.
        budget: padded tokens (documents, for feature vectors) per forward pass; None takes the model's own.

    Raises:
        UserError: lists that lack what the model reads.
    """
    scoring = Scoring([Share(Path(model), lists)], precision, budget)
    made = {"scorer": model_hash(model), "precision": scoring.exact}
    place = Path(output).parent / f".{Path(output).name}.parts"
    with scoring.parts(place, "reranking", [made]) as (parts,), ExitStack() as stack:
        if scoring.main:
            stack.enter_context(held(output, "rerank rerank", wait=True))  # clears away what a killed one left
            scores = np.concatenate([np.zeros(0, np.float32), *parts.scores()])
            run: Run = lists.run(scores)
            if weight:
                run = interpolate(run, lists.run(), weight)
            write_run(output, run, tag="rerank")
            log.info("%s: %d queries, %d documents scored", output, len(run), len(scores))
            judged = {query: grades for query, grades in (lists.qrels or {}).items() if grades}
            if lists.store.order is not None and judged:
                first = f"first stage {lists.store.order}"
                log.info("%s: %s", output, beside_run(run, lists.run(), judged, "nDCG@10", first))
    scoring.end()
