"""Charts: precision over recall."""

from __future__ import annotations

import pytest

from rerank.report.charts import RECALLS, precision_recall


def test_precision_at_every_recall() -> None:
    # One relevant document at rank r has precision 1/r at every recall; two, at ranks 1 and 4: 1 up to half, then 2/4.
    qrels = {"q": {"a": 1}, "r": {"a": 1, "b": 1}}
    runs = {"x": {"q": [("z", 2.0), ("a", 1.0)], "r": [("a", 4.0), ("y", 3.0), ("z", 2.0), ("b", 1.0)]}}
    (line,) = precision_recall(runs, qrels).series
    assert line.y == pytest.approx([(0.5 + (1.0 if recall <= 0.5 else 0.5)) / 2 for recall in RECALLS])


def test_lines_are_drawn_between_their_axes_where_there_is_something_to_average() -> None:
    qrels = {"q": {"a": 1, "b": 0}}
    chart = precision_recall({"x": {"q": [("a", 1.0)]}, "y": {"q": [("b", 2.0)]}}, qrels)
    right, wrong = (chart.path(line) for line in chart.series)
    assert right.startswith(f"M{chart.left} {chart.top}L") and right.endswith(f"L{chart.right} {chart.top}")
    assert wrong.startswith(f"M{chart.left} {chart.bottom}L") and len(chart.dots(chart.series[1])) == len(RECALLS)
    assert "x from 1.0000 to 1.0000; y from 0.0000 to 0.0000" in chart.summary
    assert not precision_recall({"x": {"q": [("b", 1.0)]}}, {"q": {"b": 0}}, "drop").series


def test_precision_of_the_grades_that_are_relevant() -> None:
    """Grade 1 in front of grade 2: precision is 1 everywhere from grade 1 on, one half from grade 2 on."""
    qrels, runs = {"q": {"a": 1, "b": 2}}, {"x": {"q": [("a", 2.0), ("b", 1.0)]}}
    assert [precision_recall(runs, qrels, rel=rel).series[0].y[-1] for rel in (1, 2)] == [1.0, 0.5]
    assert precision_recall(runs, qrels, rel=2).title != precision_recall(runs, qrels).title
