"""Charts: ticks, places, precision over recall."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.report.charts import RECALLS, Chart, Series, nice_ticks, precision_recall

NUMBERS = st.floats(-1e6, 1e6)


@given(NUMBERS, st.floats(1e-6, 1e6))
def test_ticks_are_few_round_numbers_within_the_range(low: float, width: float) -> None:
    high = low + width
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        return
    ticks = nice_ticks(low, high)
    assert 2 <= len(ticks) <= 6
    step = ticks[1] - ticks[0]
    slack = 1e-6 * step + 1e-9
    assert all(low - slack <= tick <= high + slack for tick in ticks)
    digit = float(f"{step:e}".split("e")[0])
    assert min(abs(digit - round_one) for round_one in (1, 2, 5, 10)) < 1e-3


@settings(max_examples=25)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=30))
def test_lines_stay_inside_and_keep_their_order(points: list[tuple[float, float]]) -> None:
    chart = Chart("title", "x", "y", [Series("line", [x for x, _ in points], [y for _, y in points])])
    places = [tuple(map(float, place.split())) for place in re.split("[ML]", chart.path(chart.series[0]))[1:]]
    assert len(places) == len(points)
    for (x, y), (across, down) in zip(points, places, strict=True):
        assert chart.left <= across <= chart.right and chart.top <= down <= chart.bottom
        for (other_x, other_y), (other_across, other_down) in zip(points, places, strict=True):
            assert not (x < other_x and across > other_across)
            assert not (y < other_y and down < other_down)


def test_what_is_no_number_is_left_out() -> None:
    lines = [Series("a", [0, 1, 2], [1.0, math.nan, 3.0]), Series("b", [0.0], [math.inf])]
    chart = Chart("title", "x", "y", lines)
    assert [(line.name, *line.y) for line in chart.series] == [("a", 1.0, 3.0)]
    assert "a from 1.0000 to 3.0000" in chart.summary


def test_precision_at_every_recall() -> None:
    # One relevant document at rank r has precision 1/r at every recall; two, at ranks 1 and 4: 1 up to half, then 2/4.
    qrels = {"q": {"a": 1}, "r": {"a": 1, "b": 1}}
    runs = {"x": {"q": [("z", 2.0), ("a", 1.0)], "r": [("a", 4.0), ("y", 3.0), ("z", 2.0), ("b", 1.0)]}}
    (line,) = precision_recall(runs, qrels).series
    assert line.y == pytest.approx([(0.5 + (1.0 if recall <= 0.5 else 0.5)) / 2 for recall in RECALLS])


def test_precision_of_the_grades_that_are_relevant() -> None:
    """Grade 1 in front of grade 2: precision is 1 everywhere from grade 1 on, one half from grade 2 on."""
    qrels, runs = {"q": {"a": 1, "b": 2}}, {"x": {"q": [("a", 2.0), ("b", 1.0)]}}
    assert [precision_recall(runs, qrels, rel=rel).series[0].y[-1] for rel in (1, 2)] == [1.0, 0.5]
    assert precision_recall(runs, qrels, rel=2).title != precision_recall(runs, qrels).title
