from __future__ import annotations

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.errors import UserError
from rerank.measures import AP, RR, P, nDCG, nERR, parse


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("MAP", AP()),
        ("MRR@10", RR(10)),
        ("NDCG@5", nDCG(5)),
        ("Precision(rel=2)@5", P(5, rel=2)),
        ("map@100", AP(100)),
        (" nDCG@10 ", nDCG(10)),
        ("nDCG(cutoff=10, dcg='log2')", nDCG(10)),
        ("nERR(max_rel=4)@20", nERR(20, max_rel=4)),
    ],
)
def test_parse_knows_other_spellings(name: str, meant: object) -> None:
    assert parse(name) == meant


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nDGC@10", "'nDCG'"),
        ("nope", "known: P, AP, nDCG"),
        ("recall@100", "cannot train on 'R'"),
        ("P@0", "cutoff must be a whole number from 1, not 0"),
        ("P@2.5", "2.5"),
        ("AP(re=2)", "did you mean 'rel'?"),
        ("AP(rel='high')", "'high'"),
        ("nDCG(dcg='exp')@10", "'exp-log2'"),
        ("nDCG(judged_only=True)@10", "judged_only"),
        ("nDCG(dcg=__import__('os'))", "of the form"),
    ],
)
def test_parse_refuses_other_measures(name: str, says: str) -> None:
    with pytest.raises(UserError) as error:
        parse(name)
    assert says in str(error.value)
    assert repr(name.strip()) in str(error.value)
    assert "\n" not in str(error.value)


@given(
    cutoff=st.none() | st.integers(1, 10_000),
    rel=st.integers(1, 30),
    gain=st.sampled_from(["log2", "exp-log2"]),
    max_rel=st.none() | st.integers(1, 30),
)
def test_names_round_trip_and_are_those_of_ir_measures(
    cutoff: int | None, rel: int, gain: str, max_rel: int | None
) -> None:
    for measure in (
        P(cutoff, rel),
        AP(cutoff, rel),
        RR(cutoff, rel),
        nDCG(cutoff, gain),
        nERR(cutoff, max_rel),
    ):
        assert parse(str(measure)) == measure
        assert hash(parse(str(measure))) == hash(measure)
        if not isinstance(measure, nERR):
            theirs = ir_measures.parse_measure(str(measure))
            assert str(theirs) == str(measure) and parse(theirs) == measure
