"""What is kept of test lists: values per query, found by what was measured, and rankings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rerank.errors import UserError
from rerank.evaluation.measures import PerQuery, parse_measures
from rerank.retrieval.runs import Scored
from rerank.training.ids import measurement_identity, run_identity
from rerank.training.measurement import kept_test_run, read_measurement, write_measurement, write_test_run

TEST = {"texts": "a", "candidates": "b", "labels": "c"}


def table() -> PerQuery:
    values = np.array([[0.1, np.nan, 1 / 3], [0.0, 1.0, 0.5]])
    without = np.array([[False, True, False], [False, False, False]])
    return PerQuery(tuple(parse_measures("nDCG@10 AP")), ("q1", "q2", "q3"), values, ("q3",), without, "drop")


def test_values_per_query_come_back_to_the_last_bit(tmp_path: Path) -> None:
    subject = {"training": "t"}
    identity = measurement_identity(subject, TEST, "nDCG@10 AP", "drop")
    write_measurement(tmp_path, identity, table(), {"with_first_stage": {"AP": 0.25}})
    found = read_measurement(tmp_path, identity)
    assert found is not None
    read, others = found
    np.testing.assert_array_equal(read.values, table().values)
    np.testing.assert_array_equal(read.without_relevant, table().without_relevant)
    assert (read.measures, read.queries) == (table().measures, table().queries)
    assert (read.missing, read.empty) == (("q3",), "drop")
    assert others == {"with_first_stage": {"AP": 0.25}}
    for other in (
        measurement_identity(subject, TEST, "AP", "drop"),
        measurement_identity(subject, TEST, "nDCG@10 AP", "0"),
        measurement_identity({"training": "u"}, TEST, "nDCG@10 AP", "drop"),
        measurement_identity(subject, TEST | {"labels": "e"}, "nDCG@10 AP", "drop"),
    ):
        assert read_measurement(tmp_path, other) is None


def test_a_file_under_the_name_of_another_measurement_is_refused(tmp_path: Path) -> None:
    one, other = (measurement_identity({"training": name}, TEST, "nDCG@10 AP", "drop") for name in "tu")
    write_measurement(tmp_path, one, table())
    (first,) = tmp_path.iterdir()
    write_measurement(tmp_path, other, table())
    (second,) = {*tmp_path.iterdir()} - {first}
    second.write_bytes(first.read_bytes())
    with pytest.raises(UserError, match=f"{second.name}: holds another measurement"):
        read_measurement(tmp_path, other)


def test_rankings_are_kept_for_the_lists_that_they_are_of(tmp_path: Path) -> None:
    run = {"q1": [Scored("d2", 2.0), Scored("d1", 1.0)]}
    identity = run_identity({"training": "t"}, TEST)
    assert kept_test_run(tmp_path, identity) is None
    write_test_run(tmp_path, identity, run, tag="fused")
    assert (tmp_path / "test.trec").read_text().splitlines()[0] == "q1 Q0 d2 1 2 fused"
    assert kept_test_run(tmp_path, identity) == run
    assert kept_test_run(tmp_path, run_identity({"training": "t"}, TEST | {"labels": "e"})) == run, "judged otherwise"
    assert kept_test_run(tmp_path, run_identity({"training": "t"}, TEST | {"texts": "e"})) is None
    path = tmp_path / "test.trec"
    path.write_bytes(path.read_bytes().replace(b"d2", b"d3"))
    assert kept_test_run(tmp_path, identity) is None, "it can be made again"
