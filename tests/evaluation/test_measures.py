from __future__ import annotations

import logging
import math
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.collections import read_qrels
from rerank.errors import UserError
from rerank.evaluation.measures import Empty, pool
from rerank.evaluation.providers import expected_reciprocal_rank
from rerank.retrieval.runs import Scored, read_run
from tests.evaluation.random_runs import random_qrels, random_run, untied
from tests.evaluation.scored import evaluate

seeds = st.integers(0, 2**20)
few = settings(max_examples=25, deadline=None)
FEW = "nDCG@5 AP NumRet"
ALL = "nDCG@10 nDCG P@5 AP AP(rel=2)@7 RR RR(rel=2)@10 R@10 Rprec Bpref Success@3 nERR@10 nDCG(dcg='exp-log2')@10"

TREC_EVAL = {
    "nDCG": ("ndcg", 1),
    "nDCG@10": ("ndcg_cut_10", 1),
    "P@5": ("P_5", 1),
    "P(rel=2)@5": ("P_5", 2),
    "AP": ("map", 1),
    "AP(rel=2)": ("map", 2),
    "AP@7": ("map_cut_7", 1),
    "RR": ("recip_rank", 1),
    "RR(rel=2)": ("recip_rank", 2),
    "R@10": ("recall_10", 1),
    "Rprec": ("Rprec", 1),
    "Bpref": ("bpref", 1),
    "Success@3": ("success_3", 1),
    "NumRel": ("num_rel", 1),
}


def clipped(qrels: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {query: {doc: max(grade, 0) for doc, grade in grades.items()} for query, grades in qrels.items()}


@few
@given(seeds)
def test_equals_trec_eval_query_by_query(seed: int) -> None:
    run, qrels = random_run(seed), random_qrels(seed)
    table = evaluate(run, qrels, list(TREC_EVAL))
    # trec_eval crashes on queries whose grades are all below 0; they score 0.
    raw = {query: grades for query, grades in qrels.items() if any(grade >= 0 for grade in grades.values())}
    for level in (1, 2):
        names = {ours: theirs for ours, (theirs, rel) in TREC_EVAL.items() if rel == level}
        scorer = pytrec_eval.RelevanceEvaluator(raw, set(names.values()), relevance_level=level)
        theirs = scorer.evaluate(untied(run))
        for ours, name in names.items():
            expected = [theirs[query][name] if query in theirs else 0.0 for query in qrels]
            np.testing.assert_array_equal(table[ours], expected, err_msg=ours)


def test_deep_learning_track_2019(shared_data: Path) -> None:
    """BM25 and SPLADE have the published nDCG@10, and trec_eval's value on every query."""
    qrels = read_qrels(shared_data / "dl19" / "qrels")
    scorer = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut_10", "map", "P_10"}, relevance_level=2)
    for name, published in [("BM25", 0.5058), ("SPLADE", 0.7308)]:
        run = read_run(shared_data / "dl19" / f"{name}.json")
        table = evaluate(run, qrels, "nDCG@10 AP(rel=2) P(rel=2)@10")
        assert table.mean["nDCG@10"] == pytest.approx(published, abs=5e-5)
        theirs = scorer.evaluate(untied(run))
        for row, measure in zip(table.values, ("ndcg_cut_10", "map", "P_10"), strict=True):
            np.testing.assert_array_equal(row, [theirs[query][measure] for query in table.queries])


def dcg(gains: list[float]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


@few
@given(seeds, st.sampled_from([None, 1, 5, 10]))
def test_exponential_gain_is_its_formula(seed: int, cutoff: int | None) -> None:
    run, qrels = random_run(seed), random_qrels(seed)
    name = "nDCG(dcg='exp-log2')" + (f"@{cutoff}" if cutoff else "")
    table = evaluate(run, qrels, name)
    assert list(table.mean) == [name]
    for query, value in zip(table.queries, table[name], strict=True):
        grades = [qrels[query].get(document.id, 0) for document in run.get(query, [])]
        ideal = dcg([2 ** max(grade, 0) - 1 for grade in sorted(qrels[query].values(), reverse=True)[:cutoff]])
        expected = dcg([2 ** max(grade, 0) - 1 for grade in grades[:cutoff]]) / ideal if ideal else 0.0
        assert value == pytest.approx(expected, abs=1e-9)
    huge = evaluate({"q": {"b": 2.0, "a": 1.0}}, {"q": {"a": 2000, "b": 1}}, "nDCG(dcg='exp-log2')")
    assert huge.mean["nDCG(dcg='exp-log2')"] == pytest.approx(1 / math.log2(3)), "2^2000 is no float"


def test_nerr_is_yus_equation_10() -> None:
    qrels = {"q": {"a": 2, "b": 1, "c": 0}}
    run = {"q": [Scored("c", 3.0), Scored("b", 2.0), Scored("a", 1.0)]}
    best, good = 3 / 4, 1 / 4  # (2^y - 1) / 2^2
    err = good / 2 + (1 - good) * best / 3
    ideal = best + (1 - best) * good / 2
    huge = evaluate(run, {"q": {"a": 2000, "b": 1, "c": 0}}, "nERR").mean["nERR"]  # 2^2000 is no float
    assert huge == pytest.approx(1 / 3)
    table = evaluate(run, qrels, "nERR nERR@2 nERR@1 nERR(max_rel=4)@3 NERR@10")
    assert table.mean["nERR"] == pytest.approx(err / ideal)
    assert table.mean["nERR@10"] == pytest.approx(err / ideal)
    assert table.mean["nERR@2"] == pytest.approx(good / 2 / ideal)
    assert table.mean["nERR@1"] == 0
    best, good = 3 / 16, 1 / 16  # over 2^4
    expected = (good / 2 + (1 - good) * best / 3) / (best + (1 - best) * good / 2)
    assert table.mean["nERR(max_rel=4)@3"] == pytest.approx(expected)
    assert expected_reciprocal_rank([5], max_rel=4) == expected_reciprocal_rank([4], max_rel=4), "lowered to it"


def test_graded_ap_is_what_yus_map_columns_hold() -> None:
    """Grades 4, 0, 2, 1, 0 in this order: precisions 1, 2/3 and 3/4 over ideal grades 4, 2, 1."""
    qrels = {"q": dict(zip("abcde", (4, 0, 2, 1, 0), strict=True))}
    run = {"q": [Scored(name, -float(i)) for i, name in enumerate("abcde")]}
    table = evaluate(run, qrels, "GradedAP@5 GradedAP GradedAP@1 GradedAP@3")
    assert table.mean["GradedAP@5"] == table.mean["GradedAP"] == pytest.approx((1 + 2 / 3 + 3 / 4) / 7)
    assert table.mean["GradedAP@1"] == pytest.approx(1 / 4)
    assert table.mean["GradedAP@3"] == pytest.approx((1 + 2 / 3) / 7)
    binary = {"q": {name: min(grade, 1) for name, grade in qrels["q"].items()}}
    assert evaluate(run, binary, "GradedAP").mean["GradedAP"] == pytest.approx(evaluate(run, binary, "AP").mean["AP"])


@pytest.mark.parametrize("ids", [("a", "z"), ("z", "a")])
def test_ties_keep_the_given_order_whatever_the_ids(ids: tuple[str, str]) -> None:
    relevant, other = ids
    qrels = {"q": {relevant: 1}}
    assert evaluate({"q": [Scored(relevant, 1.0), Scored(other, 1.0)]}, qrels, "RR").mean["RR"] == 1
    assert evaluate({"q": [Scored(other, 1.0), Scored(relevant, 1.0)]}, qrels, "RR").mean["RR"] == 0.5
    assert evaluate({"q": {other: 1.0, relevant: 1.0}}, qrels, "RR").mean["RR"] == 0.5


@few
@given(seeds)
def test_policies_for_empty_queries_are_related_by_arithmetic(seed: int) -> None:
    run, qrels = random_run(seed), random_qrels(seed)
    zero, one, drop = evaluate(run, qrels, ALL, "0"), evaluate(run, qrels, ALL, "1"), evaluate(run, qrels, ALL, "drop")
    count = len(qrels)
    for name in zero.mean:
        empty = zero.lacking[name]
        assert one.mean[name] == pytest.approx(zero.mean[name] + empty / count)
        if empty < count:
            assert drop.mean[name] == pytest.approx(zero.mean[name] * count / (count - empty))
        else:
            assert math.isnan(drop.mean[name])
        assert np.isnan(drop[name]).sum() == empty


def test_measures_do_not_change_each_other() -> None:
    """ir-measures 0.4.3 gives one of two measures the gains of the other, in an order that the hash seed decides."""
    run, qrels = random_run(1), random_qrels(1)
    for k in range(1, 13):
        for names in ([f"nDCG@{k}", f"nDCG(gains={{1:{k + 3}}})"], ["NumRet", f"P(judged_only=True)@{k}"]):
            together = evaluate(run, qrels, names)
            for name in names:
                np.testing.assert_array_equal(together[name], evaluate(run, qrels, name)[name], err_msg=name)


def test_missing_queries_score_zero_and_are_counted_aloud(caplog: pytest.LogCaptureFixture) -> None:
    qrels = {query: {"a": 1} for query in ("1", "2", "3", "4", "5")}
    with caplog.at_level(logging.WARNING, "rerank"):
        table = evaluate({"1": {"a": 1.0}, "9": {"a": 1.0}, "2": {}}, qrels, "RR", name="half.trec")
    assert table.missing == ("2", "3", "4", "5")
    assert table["RR"].tolist() == [1, 0, 0, 0, 0]
    assert caplog.messages == ["half.trec: 4 of 5 queries have no candidates and score 0 ('2', '3', '4', ...)"]


def test_negative_grades_are_counted_aloud_and_not_for_infap(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rerank"):
        evaluate({"q": {"a": 1.0}}, {"q": {f"d{i}": -1 for i in range(4321)} | {"a": 1}}, "AP")
    assert caplog.messages == ["4321 judgments with a negative grade count as not judged"]
    with pytest.raises(UserError, match="infAP"):
        evaluate({"q": {"a": 1.0}}, {"q": {"a": -1}}, "infAP")


def test_negative_grades_are_not_judged_for_bpref_and_judged_only() -> None:
    """trec_eval takes a and d for unjudged, so c has no judged document above it, and e is not found."""
    qrels = {"q": {"a": -2, "b": 0, "c": 1, "d": -1, "e": 1}, "negative alone": {"a": -2}}
    run = {"q": {"a": 4.0, "c": 3.0, "b": 2.0}, "negative alone": {"a": 1.0}}
    found = evaluate(run, qrels, "Bpref AP AP(judged_only=True)")
    assert {name: found[name].tolist() for name in ("Bpref", "AP", "AP(judged_only=True)")} == {
        "Bpref": [0.5, 0],
        "AP": [0.25, 0],
        "AP(judged_only=True)": [0.5, 0],
    }


@pytest.mark.parametrize(
    ("ranking", "said"),
    [
        ([Scored("a", 1.0), Scored("b", 0.5), Scored("a", 0.1)], "query 'q': document 'a' appears more than once"),
        ([Scored("a", 1.0), Scored("b", float("nan"))], "query 'q': the score of 'b' is not a number"),
    ],
)
def test_bad_rankings_are_refused(ranking: list[Scored], said: str) -> None:
    with pytest.raises(UserError, match=said):
        evaluate({"q": ranking}, {"q": {"a": 1}}, "AP")


def test_evaluate_fails_without_queries_or_with_an_unknown_policy() -> None:
    with pytest.raises(UserError, match="the qrels hold no query"):
        evaluate({}, {}, "AP")
    with pytest.raises(UserError, match="empty: expected 'drop', '0' or '1', not 'dropp'"):
        evaluate({}, {"q": {"a": 1}}, "AP", empty="dropp")  # type: ignore[arg-type]


@pytest.mark.parametrize("empty", ["0", "1", "drop"])
def test_pooled_folds_are_the_whole(empty: Empty) -> None:
    run, qrels = random_run(1), random_qrels(1)
    queries = list(qrels)
    parts = [evaluate(run, {query: qrels[query] for query in queries[i::3]}, FEW, empty) for i in range(3)]
    whole, pooled = evaluate(run, qrels, FEW, empty), pool(parts)
    assert pooled.mean == pytest.approx(whole.mean)
    assert sorted(pooled.queries) == sorted(queries)
    assert sorted(pooled.missing) == sorted(whole.missing)
    assert pooled.lacking == whole.lacking
