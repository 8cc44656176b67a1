"""Names of measures are parsed, or refused in one line."""

from __future__ import annotations

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_measures import AP, RR, P, nDCG

from rerank.errors import UserError
from rerank.evaluation.measures import nERR, parse_measures
from tests.evaluation.scored import evaluate


def test_parse_measures_reads_separators_and_parameters() -> None:
    text = "nDCG@10 P@20,AP(rel=2), nDCG(dcg='exp-log2')@10  nDCG(gains={1: 0, 2: 3})@5 nERR(max_rel=4)@10"
    text += " AP(rel=2, cutoff=5)"
    assert parse_measures(text) == [
        nDCG @ 10,
        P @ 20,
        AP(rel=2),
        nDCG(dcg="exp-log2") @ 10,
        nDCG(gains={1: 0, 2: 3}) @ 5,
        nERR(max_rel=4) @ 10,
        AP(rel=2) @ 5,
    ]


@pytest.mark.parametrize("name", ["ndcg@10", "mrr@10", "map", "map@100", "recall@100", "hit@10", "precision@5"])
def test_parse_measures_takes_names_that_people_type(name: str) -> None:
    names = {"ndcg": "nDCG", "mrr": "RR", "map": "AP", "recall": "R", "hit": "Success", "precision": "P"}
    kind, at, cutoff = name.partition("@")
    assert parse_measures(name) == [ir_measures.parse_measure(names[kind] + at + cutoff)]


OTHERS = [
    ir_measures.parse_measure(word)
    for word in ("Success@1", "Judged@10", "SetF(beta=2.0)", "NumRet(rel=1)", "Compat(p=0.8)")
]


@given(
    st.lists(
        st.sampled_from([AP, RR, nDCG, nERR, P @ 3, AP(rel=2), nDCG(dcg="exp-log2"), ir_measures.IPrec @ 0.25, *OTHERS])
        | st.builds(
            lambda measure, k: measure @ k,
            st.sampled_from([AP, RR, nDCG, P, nERR, nDCG(dcg="exp-log2")]),
            st.integers(1, 999),
        ),
        min_size=1,
        unique=True,
    ),
    st.sampled_from([" ", ",", ", ", "\n"]),
)
def test_parse_measures_reads_printed_names(measures: list[ir_measures.Measure], separator: str) -> None:
    assert parse_measures(separator.join(map(str, measures))) == measures


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ndgc@10", "unknown measure 'ndgc' (did you mean 'nDCG'?)"),
        ("ndcg_cut_10", "(did you mean 'nDCG@10'?)"),
        ("recip_rank", "(did you mean 'RR'?)"),
        ("zzzzzz", "unknown measure 'zzzzzz'"),
        ("P", "needs cutoff; write for example P@10"),
        ("INST", "needs max_rel"),
        ("AP(rell=2)", "no parameter 'rell' (did you mean 'rel'?)"),
        ("AP(rel='2')", "invalid param rel='2'"),
        ("nDCG(dcg='exp')@10", "invalid param dcg='exp'"),
        ("nDCG@0", "cutoff must be from 1"),
        ("nDCG@k", "not of the form"),
        ("AP(2)", "not of the form"),
        ("nDCG(dcg='exp-log2)@10", "not of the form"),
        ("NumRel(rel=2)", "nothing installed computes it"),
        ("", "no measure given"),
    ],
)
def test_parse_measures_fails_in_one_line(text: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        parse_measures(text)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@given(st.text(alphabet="nDCGAP@()=',.{}10 rel\"é", max_size=30))
def test_parse_measures_raises_only_user_errors(text: str) -> None:
    try:
        assert parse_measures(text)
    except UserError as error:
        assert str(error)


@pytest.mark.parametrize(
    "text",
    [
        *(
            f"nDCG(gains={{{gains}}})@5"
            for gains in ("0: 'x'", "'a': 1", "0: 1e400", "1: 2.5", "[]: 1", "True: 1", "1: 32768", f"{'9' * 200}: 1")
        ),
        *(f"{name}{'9' * 400})" for name in ("AP(rel=", "RBP(p=", "SetF(beta=", "INST(T=", "nDCG(cutoff=")),
        *("AP(rel=32768)", "nERR(max_rel=99999)@5", f"AP(rel={'-' * 5000}1)", f"nDCG@{'9' * 5000}"),
    ],
)
def test_parse_measures_fails_beyond_numbers_of_evaluators(text: str) -> None:
    """trec_eval has an array as long as the largest gain, so some of these would never return."""
    with pytest.raises(UserError) as caught:
        parse_measures(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize("grade", [2**15, -(2**15), 2**63, 10**400])
def test_evaluate_fails_beyond_grades_of_evaluators(grade: int) -> None:
    with pytest.raises(UserError, match="the qrels hold a grade beyond 32767"):
        evaluate({"q": {"a": 1.0}}, {"q": {"a": grade}}, "nDCG AP")
