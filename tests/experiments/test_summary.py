"""The numbers of a table equal those of numpy and scipy, on made-up values per query."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rerank.errors import UserError
from rerank.evaluation.render import Best
from rerank.experiments import table
from rerank.experiments.config import FIRST_STAGE, ExperimentConfig, Method, Published
from rerank.experiments.summary import Summary, summarise
from rerank.experiments.trials import Group, Outcome, Trial
from tests.evaluation.tables import per_query

MEASURES = "nDCG@10 AP"
FOLDS, SEEDS, QUERIES = [1, 2, 3], [5, 6], 20


def make_config(**changes: Any) -> ExperimentConfig:
    settings: dict[str, Any] = {"output": "o", "base": {}, "measures": MEASURES, "folds": FOLDS, "seeds": SEEDS}
    settings["methods"] = {name: Method() for name in ("bad", "middle", "good")}
    return ExperimentConfig(**settings | changes)


def make_outcomes(config: ExperimentConfig, nan: bool = False) -> dict[Group, Outcome]:
    """Make outcomes in which later methods are better, with noise."""
    rng = np.random.default_rng(0)
    outcomes = {}
    for quality, method in enumerate(config.methods):
        for fold in config.folds or [None]:
            for seed in config.seeds:
                values = rng.beta(2 + quality, 3, (2, QUERIES))
                if nan:
                    values[:, 0] = np.nan
                test = per_query(MEASURES, values, [f"{fold}-{i}" for i in range(QUERIES)])
                group = Group(method, fold, seed)
                trial = Trial(group, {"alpha": quality}, Path("o") / method, {}, "AP")
                outcomes[group] = Outcome(trial, 4, {"AP": 0.5}, test, 2.0)
    return outcomes


def made(nan: bool = False, **changes: Any) -> tuple[dict[Group, Outcome], Summary]:
    """Make the outcomes and the summary of a configuration."""
    config = make_config(**changes)
    outcomes = make_outcomes(config, nan)
    return outcomes, summarise(config, outcomes)


def values(outcomes: dict[Group, Outcome], method: str, measure: int) -> np.ndarray:
    """Stack the values of a method, ``[folds, seeds, queries]``."""
    found = [[outcomes[Group(method, fold, seed)].test.values[measure] for seed in SEEDS] for fold in FOLDS]
    return np.array(found)


@pytest.mark.parametrize("test", ["t-test", "wilcoxon"])
def test_means_errors_and_tests_over_folds_and_seeds(test: Any) -> None:
    outcomes, summary = made(test=test, correction="bonferroni", baseline="good")
    assert len(summary.compared) == 4
    for i, measure in enumerate(summary.measures):
        good = values(outcomes, "good", i).mean(axis=1).ravel()
        for method, row in summary.rows.items():
            cells = values(outcomes, method, i)
            folds = cells.mean(axis=(1, 2))
            assert row.means[measure] == pytest.approx(folds.mean())
            assert row.errors[measure] == pytest.approx(stats.sem(folds))
            if method == "good":
                continue
            (one,) = (one for one in summary.compared if (one.run, one.measure) == (method, measure))
            mine = cells.mean(axis=1).ravel()
            expected = (stats.ttest_rel if test == "t-test" else stats.wilcoxon)(mine, good).pvalue
            assert one.p == pytest.approx(expected)
            assert one.p_corrected == pytest.approx(min(1, 4 * expected))


def test_differences_from_the_baseline_are_marked_in_both_directions() -> None:
    _, summary = made(baseline="middle", test="t-test")
    rows = table.means(summary).rows
    assert [row[0] for row in rows] == ["bad", "middle (baseline)", "good"]
    assert not any("†" in cell for cell in rows[1])
    assert all("†" in cell and isinstance(cell, Best) for cell in rows[2][1:])
    assert "differs from middle" in " ".join(table.caption(summary))


def test_dropped_queries_are_in_no_mean_and_no_test() -> None:
    outcomes, summary = made(nan=True, empty="drop", test="t-test", baseline="good")
    cells = values(outcomes, "bad", 1)[:, :, 1:]
    assert summary.rows["bad"].means["AP"] == pytest.approx(cells.mean())
    good = values(outcomes, "good", 1)[:, :, 1:]
    expected = stats.ttest_rel(cells.mean(axis=1).ravel(), good.mean(axis=1).ravel()).pvalue
    (p,) = (one.p for one in summary.compared if (one.run, one.measure) == ("bad", "AP"))
    assert p == pytest.approx(expected)
    assert f"without relevant documents ({len(FOLDS)}) are left out" in " ".join(table.caption(summary))


def test_incomplete_row_is_shown_but_not_compared() -> None:
    config = make_config(baseline="middle")
    outcomes = make_outcomes(config)
    del outcomes[Group("good", 2, 5)], outcomes[Group("good", 2, 6)]
    summary = summarise(config, outcomes)
    rows = table.means(summary).rows
    assert rows[2][0] == "good (4 of 6 runs)"
    assert not any("†" in cell or isinstance(cell, Best) for cell in rows[2])
    assert all(isinstance(cell, Best) for cell in rows[1][1:])
    assert rows[2][1] != "-"


def test_published_numbers_are_shown_with_their_distance() -> None:
    _, summary = made(published=Published("them, 2020 & later", {"good": [0.5, None]}))
    good, given = summary.rows["good"], summary.config.published
    distance = (good.means["nDCG@10"] - 0.5) / good.errors["nDCG@10"]
    assert given is not None
    (row,) = table.published(summary, given).rows
    assert row == ["good", f"0.5 ({distance:+.1f})", "-"]
    assert r"them, 2020 \& later" in table.latex(summary)
    assert "them, 2020 & later" in table.text(summary)


def test_methods_measured_on_other_queries_are_not_compared() -> None:
    config = make_config()
    outcomes = make_outcomes(config)
    group = Group("bad", 1, 5)
    other = replace(outcomes[group].test, queries=tuple(f"x{i}" for i in range(QUERIES)))
    with pytest.raises(UserError, match="depend on the seed"):
        summarise(config, outcomes | {group: replace(outcomes[group], test=other)})
    both = {Group("bad", 1, seed): replace(outcomes[Group("bad", 1, seed)], test=other) for seed in SEEDS}
    with pytest.raises(UserError, match="measured on other queries"):
        summarise(config, outcomes | both)


def test_failed_rows_count_in_correction() -> None:
    config = make_config(baseline="bad", test="t-test")
    outcomes = {group: one for group, one in make_outcomes(config).items() if group.method != "good"}
    summary = summarise(config, outcomes)
    assert len(summary.compared) == 4
    (first, second) = [one for one in summary.compared if one.run == "middle"]
    assert min(first.p_corrected, second.p_corrected) == pytest.approx(min(1.0, 4 * min(first.p, second.p)))
    assert all(np.isnan(one.difference) for one in summary.compared if one.run == "good")
    assert "| good | bad | AP | - | - | - | 0/0/0 | - |" in table.markdown(summary, [])
    mixed = {replace(group, method=f"{group.method} + {FIRST_STAGE}"): one for group, one in outcomes.items()}
    assert len(summarise(config, outcomes | mixed).compared) == 10


def test_table_and_differences_weigh_queries_alike_if_folds_differ_in_size() -> None:
    config = make_config(folds=[1, 2], baseline="bad")
    outcomes = make_outcomes(config)
    for group, one in outcomes.items():
        if group.fold == 2:
            test = one.test
            kept = {"queries": test.queries[: QUERIES // 2], "values": test.values[:, : QUERIES // 2] / 2}
            outcomes[group] = replace(one, test=replace(test, **kept))
    for fold in (1, 2):  # the first stage is as good as a method
        one, first = outcomes[Group("middle", fold, SEEDS[0])], Group(FIRST_STAGE, fold, SEEDS[0])
        outcomes[first] = replace(one, trial=replace(one.trial, group=first))
    summary = summarise(config, outcomes)
    value = {name: row.means["nDCG@10"] for name, row in summary.rows.items()}
    for name in ("bad", "good"):
        every = [outcomes[Group(name, fold, seed)].test.values[0] for seed in SEEDS for fold in (1, 2)]
        assert value[name] == pytest.approx(np.concatenate(every).mean())
    (one,) = (one for one in summary.compared if (one.run, one.measure) == ("good", "nDCG@10"))
    assert one.difference == pytest.approx(value["good"] - value["bad"])
    said = list(table.first_stage_differences(summary))
    assert [line.partition(":")[0] for line in said] == list(config.methods), "every method is beside the first stage"
    (line,) = (line for line in said if line.startswith("good: "))
    assert f"nDCG@10 {value['good']:.4f}, first stage {value[FIRST_STAGE]:.4f}" in line
    assert f"{value['good']:.4f} ±" in table.text(summary)
