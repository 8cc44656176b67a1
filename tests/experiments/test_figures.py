"""The numbers of pictures against arithmetic on cells that are made up, and the pictures as images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.image import imread
from scipy import stats

from rerank.errors import UserError
from rerank.experiments.cells import Cell, Group, Outcome
from rerank.experiments.config import ExperimentConfig, Figure, Method
from rerank.experiments.figures.data import check_figures, curves, search_lines
from rerank.experiments.figures.draw import COLOURS, data_name, write_figures
from rerank.experiments.plan import ExperimentPlan
from rerank.experiments.run import Experiment
from rerank.experiments.summary import summarise
from tests.evaluation.tables import per_query

FOLDS, SEEDS = [1, 2, 3], [5, 6]
ALPHA, RATE = "loss.relaxation.alpha", "optimization.head_lr"
ALPHAS, RATES = [1.0, 100.0, 10.0], [0.1, 0.01]
OVER_ALPHA: dict[str, Any] = {"x": ALPHA, "methods": ["A"]}


def make_plan(folder: Path, **changes: Any) -> ExperimentPlan:
    settings: dict[str, Any] = {
        "output": str(folder / "out"),
        "base": {
            "data": {"class_path": "LetorData", "init_args": {"path": "data/MQ2008"}},
            "monitor": "nDCG@5",
            "measures": "AP P@1",
        },
        "folds": FOLDS,
        "seeds": SEEDS,
        "measures": "nDCG@5 AP",
        "methods": {
            "A": Method(search={ALPHA: ALPHAS, RATE: RATES}),
            "B": Method(search={ALPHA: ALPHAS}),
            "T": Method(),
        },
    }
    return ExperimentPlan(ExperimentConfig(**settings | changes))


def make_trained(plan: ExperimentPlan) -> list[tuple[Cell, dict[str, Any]]]:
    """Every cell, with random validation measures."""
    rng = np.random.default_rng(0)
    cells = [plan.cell(group, point) for group in plan.groups for point in plan.points(group)]
    names = ("nDCG@5", "AP", "P@1")
    return [(cell, {"validation": dict(zip(names, rng.random(3).tolist(), strict=True))}) for cell in cells]


def find(trained: list[tuple[Cell, dict[str, Any]]], method: str, point: dict[str, Any], measure: str) -> np.ndarray:
    """``[folds, seeds]``."""
    values = [
        found["validation"][measure]
        for cell, found in trained
        if cell.group.method == method and point.items() <= cell.point.items()
    ]
    return np.array(values).reshape(len(FOLDS), len(SEEDS))


def test_a_line_per_value_is_the_mean_over_folds(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    trained = make_trained(plan)
    lines = search_lines(plan, Figure("search", lines=RATE, **OVER_ALPHA), trained)
    assert [line.label for line in lines] == ["0.1", "0.01"]
    for line, rate in zip(lines, RATES, strict=True):
        assert line.x == [1.0, 10.0, 100.0]
        for x, mean, width in zip(line.x, line.mean, line.width, strict=True):
            folds = find(trained, "A", {ALPHA: x, RATE: rate}, "nDCG@5").mean(axis=1)
            assert mean == pytest.approx(folds.mean())
            assert width == pytest.approx(stats.sem(folds))


def test_without_validation_lists_a_line_is_empty(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    trained = [(cell, {}) for cell, _ in make_trained(plan)]
    assert [line.x for line in search_lines(plan, Figure("search", lines=RATE, **OVER_ALPHA), trained)] == [[], []]


def test_what_is_not_shown_is_chosen_on_validation_per_fold_and_seed(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    trained = make_trained(plan)
    lines = search_lines(plan, Figure("search", lines="measures", measures="AP nDCG@5", **OVER_ALPHA), trained)
    assert [line.label for line in lines] == ["AP", "nDCG@5"]
    for i, x in enumerate(lines[0].x):
        monitor = np.stack([find(trained, "A", {ALPHA: x, RATE: rate}, "nDCG@5") for rate in RATES])
        other = np.stack([find(trained, "A", {ALPHA: x, RATE: rate}, "AP") for rate in RATES])
        assert lines[1].mean[i] == pytest.approx(monitor.max(axis=0).mean())
        chosen = np.where(monitor[0] >= monitor[1], other[0], other[1])
        assert lines[0].mean[i] == pytest.approx(chosen.mean()), "the measure of the chosen, not its own best"


def test_a_line_per_method_and_holes_where_a_cell_failed(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    trained = make_trained(plan)
    lost = next(i for i, (cell, _) in enumerate(trained) if cell.group.method == "B" and cell.point[ALPHA] == 10.0)
    left = trained[:lost] + trained[lost + 1 :]
    lines = search_lines(plan, Figure("search", x=ALPHA, methods=["B", "A"]), left)
    assert [(line.label, line.x) for line in lines] == [("B", [1.0, 100.0]), ("A", [1.0, 10.0, 100.0])]
    assert lines[0].mean[0] == pytest.approx(find(trained, "B", {ALPHA: 1.0}, "nDCG@5").mean())


def test_with_one_fold_bars_are_intervals_over_seeds(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, folds=None, seeds=[1, 2, 3, 4], spread="interval")
    trained = make_trained(plan)
    (line,) = search_lines(plan, Figure("search", x=ALPHA, methods=["B"]), trained)
    values = [f["validation"]["nDCG@5"] for c, f in trained if c.group.method == "B" and c.point[ALPHA] == 1.0]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (line.mean[0], line.width[0]) == (pytest.approx(np.mean(values)), pytest.approx((high - low) / 2))


def make_outcomes(plan: ExperimentPlan, least: int = 4) -> dict[Group, Outcome]:
    """The first cell of every group as the chosen one, with a log: A and B are networks, T is trees."""
    rng = np.random.default_rng(1)
    outcomes = {}
    for group in plan.groups:
        cell = plan.cell(group, plan.points(group)[0])
        cell.folder.mkdir(parents=True)
        epochs = least + (group.fold == 2)
        lines: list[dict[str, Any]] = []
        for epoch in range(1, epochs + 1):
            value = 0.1 * epoch + 0.01 * group.seed
            if group.method == "T":
                line = {"train": {"nDCG@5": value + 0.1}, "validation": {"nDCG@5": value}}
            else:
                lines.append({"step": epoch, "loss": 9.0})
                line = {"mean_loss": 1 / epoch, "validation": {"nDCG@5": value, "AP": 0.0}}
            lines.append({"step": epoch, "epoch": epoch} | line)
        (cell.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        values = rng.random((len(plan.config.measures.split()), 9))
        test = per_query(plan.config.measures, values, [f"{group.fold}-{i}" for i in range(9)])
        outcomes[group] = Outcome(cell, cell, 1, {}, test, 1.0)
    return outcomes


def draw_all(plan: ExperimentPlan, least: int = 4) -> list[Path]:
    done = Experiment(plan, make_outcomes(plan, least), trained=make_trained(plan))
    return write_figures(done, summarise(plan.config, done.outcomes))


def test_curves_are_what_was_logged_and_their_mean(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    found = curves(plan, Figure("curves"), make_outcomes(plan))
    assert {name: [curve.what for curve in several] for name, several in found.items()} == {
        "A": ["loss", "validation"],
        "B": ["loss", "validation"],
        "T": ["training", "validation"],
    }
    loss, validation = found["A"]
    assert [len(run) for run in loss.runs] == [4, 4, 5, 5, 4, 4]
    np.testing.assert_allclose(loss.mean, [1, 1 / 2, 1 / 3, 1 / 4])
    np.testing.assert_allclose(validation.mean, [0.155, 0.255, 0.355, 0.455])
    np.testing.assert_allclose(found["T"][0].mean, [0.255, 0.355, 0.455, 0.555])
    assert (loss.unit, found["T"][0].unit) == ("epoch", "tree")


def test_a_caption_says_over_how_many_runs_a_picture_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("matplotlib.figure.Figure.supxlabel", lambda self, text, **style: said.append(text))
    plan = make_plan(tmp_path, figures={"methods": Figure("methods", measures="AP"), "curves": Figure("curves")})
    draw_all(plan)
    methods, curve = (" ".join(caption.split()) for caption in said)
    assert f"test means over {len(FOLDS)} folds, each the mean of {len(SEEDS)} seeds" in methods
    assert f"{len(FOLDS)} folds × {len(SEEDS)} seeds" in curve and "a fold and seed each" in curve
    said.clear()
    plan = make_plan(tmp_path / "one", folds=None, figures={"curves": Figure("curves")})
    draw_all(plan)
    assert "1 fold × 2 seeds. Thin: a fold and seed each" in " ".join(said[0].split()) and "Without" not in said[0]
    plan = make_plan(tmp_path / "two", folds=None, figures={"curves": Figure("curves")})
    done = Experiment(plan, make_outcomes(plan), trained=make_trained(plan))
    for cell in (outcome.cell for group, outcome in done.outcomes.items() if group.method == "B"):
        (cell.folder / "metrics.jsonl").unlink()
    write_figures(done, summarise(plan.config, done.outcomes))
    assert "Without B: their logs are where they were trained." in " ".join(said[1].split())


def test_the_best_in_each_measure_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five measures the last has a row of panels to itself."""
    drawn: list[tuple[float, bool]] = []
    draw = Axes.errorbar

    def errorbar(axes: Axes, x: float, y: float, **style: Any) -> Any:
        drawn.append((x, style["markerfacecolor"] == COLOURS[0]))
        return draw(axes, x, y, **style)

    monkeypatch.setattr(Axes, "errorbar", errorbar)
    plan = make_plan(tmp_path, measures="nDCG@5 AP P@1 P@3 RR", figures={"methods": Figure("methods")})
    draw_all(plan)
    for start in range(0, 15, 3):
        means, filled = zip(*drawn[start : start + 3], strict=True)
        assert filled == tuple(mean == max(means) for mean in means)
    assert len(drawn) == 15


def test_pictures_are_images_of_their_size(tmp_path: Path) -> None:
    figures = {
        "per value": Figure("search", lines=RATE, **OVER_ALPHA),
        "methods": Figure("methods"),
        "curves": Figure("curves"),
    }
    plan = make_plan(tmp_path, figures=figures)
    check_figures(plan)
    paths = draw_all(plan)
    assert [path.name for path in paths] == ["per_value.png", "methods.png", "curves.png"]
    assert sorted(plan.output.glob("*")) == sorted([*paths, plan.output / "cells"]), "nothing is left beside them"
    search, methods, curve = map(imread, paths)
    assert search.shape == (660, 900, 4)
    assert curve.shape[:2] == (int(4.8 * 150), int((1 + 3 * 2.7) * 150)), "three methods side by side"
    assert methods.shape[0] < search.shape[0]
    for image, colours in ((search[:, 200:], COLOURS[:2]), (methods, COLOURS[:1]), (curve, COLOURS[:2])):
        for colour in colours:
            drawn = np.abs(image[:, :, :3] - to_rgb(colour)).max(axis=2) < 0.02
            assert drawn.sum() > 500, "more than the sample in the legend"
    assert data_name(plan.config) == "MQ2008"


def test_a_curve_of_one_epoch_is_a_dot(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, figures={"curves": Figure("curves", methods=["A"])})
    (path,) = draw_all(plan, least=1)
    blue = np.abs(imread(path)[:, :, :3] - to_rgb(COLOURS[0])).max(axis=2) < 0.02
    assert blue.sum() > 50, "the mean on validation, and nothing else is blue"


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        (Figure("search"), "figures.f.x: a search needs one"),
        (Figure("search", x="loss.relaxation.alpa", methods=["A"]), "did you mean 'loss.relaxation.alpha'"),
        (Figure("search", x=ALPHA), "figures.f.x: T does not search"),
        (Figure("search", lines="optimization.hed_lr", **OVER_ALPHA), "figures.f.lines: A does not search"),
        (Figure("search", lines="measures", x=ALPHA, methods=["A", "B"]), "figures.f.methods: one, not 2"),
        (Figure("search", lines=RATE, measures="AP P@1", **OVER_ALPHA), "figures.f.measures: one, not 2"),
        (Figure("search", measures="P@3", **OVER_ALPHA), "P@3 is not among nDCG@5, AP, P@1; add it to base.measures"),
        (Figure("methods", measures="P@1"), "P@1 is not among nDCG@5, AP"),
        (Figure("methods", x=ALPHA), "figures.f.x: only a search has one"),
        (Figure("curves", measures="AP"), "curves show the monitor, nDCG@5"),
        (Figure("curves", methods=["C"]), "figures.f.methods: no method 'C'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(figure: Figure, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        check_figures(make_plan(tmp_path, figures={"f": figure}))
    assert message in str(error.value)


def test_two_pictures_do_not_share_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="would share a file"):
        check_figures(make_plan(tmp_path, figures={"a/b": Figure("methods"), "a b": Figure("methods")}))
