"""Provider for measures that ir-measures lacks, and for exponential gain.

ir-measures leaves that to gdeval, a Perl script that refuses query ids that are not numbers and rounds to five digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import ir_measures
import numpy as np
from ir_measures import measures as names
from ir_measures.providers.base import NOT_PROVIDED, Choices, Evaluator, Provider
from ir_measures.providers.base import Any as Anything


class _NERR(names.Measure):
    """Normalised Expected Reciprocal Rank: ERR@k over ERR@k of the ideal order (Yu 2020, Eq 10)."""

    __name__ = "nERR"
    NAME = __name__
    SUPPORTED_PARAMS = dict.fromkeys(("cutoff", "max_rel"), names.ParamInfo(dtype=int))


class _GradedAP(names.Measure):
    r"""AP over the sum of ideal *grades*, as in the MAP columns of Yu 2020 (by its code).

    :math:`\sum_{r \le k} b_r P@r / \sum_{r \le k} y^*_r` with b 1 for grades above 0 and y* the grades in the ideal
    order.
    """

    __name__ = "GradedAP"
    NAME = __name__
    SUPPORTED_PARAMS = dict.fromkeys(("cutoff",), names.ParamInfo(dtype=int))


nERR, GradedAP = _NERR(), _GradedAP()
if "nERR" not in names.registry:
    names.register(nERR, aliases=["NERR"])
    names.register(GradedAP)


def expected_reciprocal_rank(grades: Sequence[int], max_rel: int) -> float:
    r"""Compute ERR of grades in ranked order (Chapelle et al. 2009).

    :math:`\sum_r \frac{1}{r} p_r \prod_{l < r} (1 - p_l)` with :math:`p_r = (2^{y_r} - 1) / 2^{y_{max}}`, grades above
    :math:`y_{max}` lowered to it.
    """
    total, unsatisfied = 0.0, 1.0
    for rank, grade in enumerate(grades, start=1):
        if grade > 0:
            satisfied = 2.0 ** (min(grade, max_rel) - max_rel) - 2.0**-max_rel
            total += unsatisfied * satisfied / rank
            unsatisfied *= 1 - satisfied
    return total


def exponential_dcg(grades: Sequence[int], highest: int) -> float:
    r"""Compute :math:`\sum_r (2^{y_r} - 1) / \log_2(r + 1)` over :math:`2^{y_{max}}`, which keeps it finite."""
    gains = np.exp2(np.maximum(grades, 0) - float(highest)) - np.exp2(-float(highest))
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())


GRADED = [
    _NERR(cutoff=Anything(), max_rel=Anything()),
    _GradedAP(cutoff=Anything()),
    names._nDCG(cutoff=Anything(), dcg=Choices("exp-log2"), gains=Choices(NOT_PROVIDED), judged_only=Anything()),
]


class Graded(Provider):
    """``nERR@k``, ``GradedAP@k`` and ``nDCG(dcg='exp-log2')@k``."""

    NAME = "rerank"
    SUPPORTED_MEASURES = GRADED

    def _evaluator(self, measures: Iterable[names.Measure], qrels: Any) -> Evaluator:
        return _GradedEvaluator(measures, ir_measures.util.QrelsConverter(qrels).as_dict_of_dict())


class _GradedEvaluator(Evaluator):
    def __init__(self, measures: Iterable[names.Measure], qrels: Mapping[str, Mapping[str, int]]) -> None:
        super().__init__(list(measures), set(qrels))
        self.qrels = qrels
        self.ideal = {query: sorted(grades.values(), reverse=True) for query, grades in qrels.items()}

    def _iter_calc(self, run: Any) -> Iterator[ir_measures.Metric]:
        for query, documents in ir_measures.util.RunConverter(run).as_dict_of_dict().items():
            if not (ideal := self.ideal.get(query)):
                continue
            grade_of = self.qrels[query]
            ranked = sorted(documents, key=documents.get, reverse=True)
            for measure in self.measures:
                judged_only = measure.params.get("judged_only", False)
                grades = [grade_of.get(document, 0) for document in ranked if not judged_only or document in grade_of]
                yield ir_measures.Metric(query, measure, self._value(measure, grades, ideal))

    def _value(self, measure: names.Measure, grades: list[int], ideal: list[int]) -> float:
        cutoff, highest = measure.params.get("cutoff"), ideal[0]
        grades, ideal = grades[:cutoff], ideal[:cutoff]
        if highest <= 0:
            return 0.0
        if measure.NAME == "GradedAP":
            hits = [rank for rank, grade in enumerate(grades, start=1) if grade > 0]
            precisions = sum(count / rank for count, rank in enumerate(hits, start=1))
            return precisions / sum(max(0, grade) for grade in ideal)
        if measure.NAME == "nDCG":
            return exponential_dcg(grades, highest) / exponential_dcg(ideal, highest)
        max_rel = measure.params.get("max_rel", highest)
        return expected_reciprocal_rank(grades, max_rel) / expected_reciprocal_rank(ideal, max_rel)


PIPELINE = ir_measures.providers.FallbackProvider(
    [
        Graded(),
        ir_measures.runtime,
        ir_measures.pytrec_eval,
        ir_measures.cwl_eval,
        ir_measures.compat,
        ir_measures.judged,
        ir_measures.msmarco,
        ir_measures.ranx,
    ]
)
