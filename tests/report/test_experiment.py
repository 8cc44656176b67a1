"""The report of an experiment: its tables, its rankings over all folds, its first stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from rerank.commands.experiment import experiment
from rerank.errors import UserError
from rerank.retrieval.runs import read_run
from tests.builders import make_lists, make_model
from tests.experiments.grid import write_config
from tests.report.parsed import data_of, parsed


@pytest.mark.slow
@pytest.mark.slow
def test_experiments_have_a_report(tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    make_model(tmp_path / "model")
    methods = {"ListNet": {"set": {"loss": "ListNet"}}, "SmoothI": {"set": {"loss": "SmoothINDCG"}}}
    changes = {"methods": methods, "first_stage": "show", "folds": [1, 2], "figures": {}, "baseline": "ListNet"}
    config = write_config(tmp_path, **changes)
    assert experiment([f"--config={config}", f"--html={tmp_path / 'report.html'}"]) == 0
    tree = parsed((tmp_path / "report.html").read_text())
    heads = [head.text for head in tree.iter("h2")]
    assert heads == ["Test", "Differences from ListNet", "Choices", "Query by query", "Precision and recall"]
    data = data_of(tree)
    assert data["runs"] == ["first stage", "ListNet", "SmoothI"] and data["runs"][data["baseline"]] == "ListNet"
    assert data["texts"] and len(data["queries"]) == 8  # two folds of three of twelve queries
    runs = [lists.run()]
    for method in ("ListNet", "SmoothI"):
        runs.append({})
        for path in sorted((tmp_path / "out" / "cells" / method).rglob("test.trec")):
            runs[-1] |= read_run(path)
    for i, query in enumerate(data["queries"]):
        for doc, _, ranks in data["shown"][str(i)]["entries"]:
            id = data["documents"][doc][0]
            orders = [[document.id for document in run[query]] for run in runs]
            assert ranks == [order.index(id) + 1 if id in order else None for order in orders]


def test_a_report_needs_a_pages_name() -> None:
    with pytest.raises(UserError, match=r"must end in \.html"):
        experiment(["--output=x", "--base={}", "--methods={}", "--html=report.txt"])
