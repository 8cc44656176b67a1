"""The monitor's value over and over again on lists that do not change: what trees are stopped by."""

from __future__ import annotations

import numpy as np
import torch

from rerank.errors import UserError
from rerank.evaluation.measures import Evaluator
from rerank.lists.view import Lists
from rerank.measures.names import parse
from rerank.storage.arrow import Array
from rerank.training.padded import Padded


class Monitor:
    """The mean of a measure over lists; a list without a relevant document counts as 0.

    The value is that of ir-measures (scores compared as float32, ties in the order of the lists), computed on padded
    tensors where the measure is one of ours and every relevant document is a candidate; elsewhere by ir-measures.
    """

    def __init__(self, lists: Lists, measure: str) -> None:
        self.lists, self.measure = lists, measure
        self._evaluator: Evaluator | None = None
        try:
            self._exact = parse(measure)
            known = lists.store.judged_by_grades or lists.qrels is None or _all_are_candidates(lists)
        except UserError:
            known = False
        if known:
            self._padded = Padded(lists)
        elif lists.qrels is None:
            raise UserError(f"{lists.store}: has no qrels to compute {measure} from")
        else:
            self._evaluator = Evaluator(lists.qrels, measure)

    def __call__(self, scores: Array) -> float:
        """The mean for these scores, ``[T]``."""
        if self._evaluator is not None:
            return next(iter(self._evaluator(self.lists.run(scores), str(self.lists)).mean.values()))
        flat = torch.from_numpy(np.asarray(scores, dtype=np.float32)).double()
        total = sum(
            float(self._exact.exact(flat[batch.rows], batch.labels, batch.mask).sum()) for batch in self._padded
        )
        return total / max(1, len(self.lists))


def _all_are_candidates(lists: Lists) -> bool:
    """Whether the lists' labels hold all that their qrels judge relevant, and the qrels all of the lists."""
    assert lists.qrels is not None
    for i, query in enumerate(lists.query_ids):
        labels = lists.grades[lists.offsets[i] : lists.offsets[i + 1]]
        grades = [grade for grade in lists.qrels.get(query, {}).values() if grade > 0]
        if query not in lists.qrels or sorted(grades) != sorted(labels[labels > 0].tolist()):
            return False
    return True
