"""Providers for measures that ir-measures lacks or leaves to gdeval.

gdeval is a Perl script that refuses query ids that are not numbers and rounds to five digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import ir_measures
from ir_measures import measures as names
from ir_measures.providers.base import NOT_PROVIDED, Choices, Evaluator, Provider
from ir_measures.providers.base import Any as Anything

from rerank.errors import UserError

# trec_eval's tables grow with the square of the largest gain: grade 12 takes milliseconds a query, grade 16 a second.
LARGEST_EXPONENTIAL_GRADE = 12


class _NERR(names.Measure):
    """Normalised Expected Reciprocal Rank: ERR@k over ERR@k of the ideal order (Yu 2020, Eq 10)."""

    __name__ = "nERR"
    NAME = __name__
    SUPPORTED_PARAMS = dict.fromkeys(("cutoff", "max_rel"), names.ParamInfo(dtype=int))


nERR = _NERR()
if "nERR" not in names.registry:
    names.register(nERR, aliases=["NERR"])


class _GradedAP(names.Measure):
    r"""AP over the sum of ideal *grades*, as in the MAP columns of Yu 2020 (by its code).

    :math:`\sum_{r \le k} b_r P@r / \sum_{r \le k} y^*_r` with b 1 for grades above 0 and y* the grades in the ideal
    order.
    """

    __name__ = "GradedAP"
    NAME = __name__
    SUPPORTED_PARAMS = {"cutoff": names.ParamInfo(dtype=int)}  # noqa: RUF012


GradedAP = _GradedAP()
if "GradedAP" not in names.registry:
    names.register(GradedAP)


def expected_reciprocal_rank(grades: Sequence[int], max_rel: int, cutoff: int | None = None) -> float:
    r"""Compute ERR of grades in ranked order (Chapelle et al. 2009).

    :math:`\sum_{r \le k} \frac{1}{r} p_r \prod_{l < r} (1 - p_l)` with :math:`p_r = (2^{y_r} - 1) / 2^{y_{max}}`,
    grades above :math:`y_{max}` lowered to it.
    """
    total, unsatisfied = 0.0, 1.0
    for rank, grade in enumerate(grades[:cutoff], start=1):
        if grade > 0:
            satisfied = 2.0 ** (min(grade, max_rel) - max_rel) - 2.0**-max_rel
            total += unsatisfied * satisfied / rank
            unsatisfied *= 1 - satisfied
    return total


class ERRProvider(Provider):
    """``nERR@k``, ``GradedAP@k``, and ``ERR@k`` as gdeval has it (largest grade 4) without its Perl."""

    NAME = "rerank_err"
    SUPPORTED_MEASURES = [  # noqa: RUF012
        _NERR(cutoff=Anything(), max_rel=Anything()),
        _GradedAP(cutoff=Anything()),
        names._ERR(cutoff=Anything()),
    ]

    def _evaluator(self, measures: Iterable[names.Measure], qrels: Any) -> Evaluator:
        return _ERREvaluator(measures, ir_measures.util.QrelsConverter(qrels).as_dict_of_dict())


class _ERREvaluator(Evaluator):
    GDEVAL_MAX_REL = 4

    def __init__(self, measures: Iterable[names.Measure], qrels: Mapping[str, Mapping[str, int]]) -> None:
        super().__init__(list(measures), set(qrels))
        self.qrels = qrels
        self.ideal = {query: sorted(grades.values(), reverse=True) for query, grades in qrels.items()}

    def _iter_calc(self, run: Any) -> Iterator[ir_measures.Metric]:
        for query, documents in ir_measures.util.RunConverter(run).as_dict_of_dict().items():
            if not (ideal := self.ideal.get(query)):
                continue
            grade_of = self.qrels[query]
            grades = [grade_of.get(document, 0) for document in sorted(documents, key=documents.get, reverse=True)]
            for measure in self.measures:
                yield ir_measures.Metric(query, measure, self._value(measure, grades, ideal))

    def _value(self, measure: names.Measure, grades: list[int], ideal: list[int]) -> float:
        cutoff = measure.params.get("cutoff")
        if measure.NAME == "GradedAP":
            hits = [rank for rank, grade in enumerate(grades[:cutoff], start=1) if grade > 0]
            precisions = sum(count / rank for count, rank in enumerate(hits, start=1))
            return precisions / max(1, sum(max(0, grade) for grade in ideal[:cutoff]))
        max_rel = self.GDEVAL_MAX_REL if measure.NAME == "ERR" else measure.params.get("max_rel", ideal[0])
        value = expected_reciprocal_rank(grades, max_rel, cutoff)
        if measure.NAME == "ERR" or ideal[0] <= 0:
            return value
        return value / expected_reciprocal_rank(ideal, max_rel, cutoff)


class ExponentialGain(Provider):
    """``nDCG(dcg='exp-log2')``, with or without a cut-off: trec_eval's nDCG on gains ``2^y - 1``."""

    NAME = "rerank_exponential_gain"
    SUPPORTED_MEASURES = [  # noqa: RUF012
        names._nDCG(cutoff=Anything(), dcg=Choices("exp-log2"), gains=Choices(NOT_PROVIDED), judged_only=Anything())
    ]

    def _evaluator(self, measures: Iterable[names.Measure], qrels: Any) -> Evaluator:
        return _ExponentialEvaluator(list(measures), ir_measures.util.QrelsConverter(qrels).as_dict_of_dict())


class _ExponentialEvaluator(Evaluator):
    def __init__(self, measures: list[names.Measure], qrels: Mapping[str, Mapping[str, int]]) -> None:
        super().__init__(measures, set(qrels))
        grades = {grade for documents in qrels.values() for grade in documents.values()}
        if max(grades, default=0) > LARGEST_EXPONENTIAL_GRADE:
            raise UserError(
                f"measure {measures[0]}: grade {max(grades)} has gain 2^{max(grades)} - 1, which trec_eval cannot "
                f"handle; grades up to {LARGEST_EXPONENTIAL_GRADE} can be scored so, or use nDCG (linear gain)"
            )
        gains = {grade: 2**grade - 1 for grade in grades if grade > 0}
        self.own_name = {measure(dcg="log2", gains=gains): measure for measure in measures}
        self.linear = ir_measures.pytrec_eval.evaluator(self.own_name, qrels)

    def _iter_calc(self, run: Any) -> Iterator[ir_measures.Metric]:
        for metric in self.linear.iter_calc(run):
            yield metric._replace(measure=self.own_name[metric.measure])


PIPELINE = ir_measures.providers.FallbackProvider(
    [
        ERRProvider(),
        ExponentialGain(),
        ir_measures.runtime,
        ir_measures.pytrec_eval,
        ir_measures.cwl_eval,
        ir_measures.compat,
        ir_measures.judged,
        ir_measures.msmarco,
        ir_measures.ranx,
    ]
)
