"""Charts: ticks, places, and what training logged."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.errors import UserError
from rerank.report.charts import Chart, Series, nice_ticks
from rerank.report.curves import RECALLS, precision_recall, training_charts

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


def test_a_direct_metric_has_relaxed_and_exact_values_in_one_chart(folder: Path) -> None:
    first, error, fidelity = training_charts(folder / "training")
    relaxed, exact = first.series
    assert (relaxed.name, exact.name) == ("relaxed nDCG@5, training lists as sampled", "nDCG@5, validation lists")
    assert list(exact.x) == [1, 2] and list(exact.y) == [0.2, 0.4]
    # 80 steps in 40 means of two: step s has loss 1 - s/100, and 40 steps are an epoch.
    assert relaxed.y == pytest.approx([(2 * i + 1.5) / 100 for i in range(40)])
    assert relaxed.x == pytest.approx([(2 * i + 1.5) / 40 for i in range(40)], abs=1e-4)
    assert [(line.name, *line.y) for line in error.series] == [("rank error", 3.0, 1.5)]
    assert [line.name for line in fidelity.series] == ["gap", "sharpness"]


@pytest.mark.parametrize("measure", ["nDCG@10", "nDCG(dcg='exp-log2')@5", "P@5"])
def test_another_gain_or_cut_off_is_not_drawn_as_a_gap(folder: Path, tmp_path: Path, measure: str) -> None:
    """The run logged nDCG@5 of linear gain: what relaxes something else has a chart of its own."""
    (tmp_path / "metrics.jsonl").write_bytes((folder / "training" / "metrics.jsonl").read_bytes())
    loss = f'{{class_path: rerank.losses.DirectMetric, init_args: {{measure: "{measure}"}}}}'
    (tmp_path / "config.yaml").write_text(f"loss: {loss}\nmonitor: nDCG@5\n")
    relaxed, exact, *_ = training_charts(tmp_path)
    assert [len(chart.series) for chart in (relaxed, exact)] == [1, 1]
    assert measure in relaxed.title
    assert exact.title == "Exact nDCG@5"


def test_other_losses_have_a_chart_of_their_own_and_the_monitor(folder: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (folder / "training" / "metrics.jsonl").open()]
    for line in lines:
        line.pop("fidelity", None)
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "config.yaml").write_text("loss: {class_path: rerank.losses.ListNet}\nmonitor: AP\n")
    loss, measure = training_charts(tmp_path)
    assert loss.series[0].y[0] == pytest.approx(0.985)
    assert [(line.name, *line.y) for line in measure.series] == [("AP, validation lists", 0.1, 0.2)]
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\nno\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl:2: not JSON"):
        training_charts(tmp_path)
    with pytest.raises(UserError, match="not a run folder"):
        training_charts(folder)
