"""Unjudged documents and differences in every format, against counting and ir-measures' own ``Judged``."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from rerank.collections import read_qrels
from rerank.evaluation import export, render
from rerank.evaluation.compare import compare_runs
from rerank.retrieval.runs import read_run


def test_unjudged_documents_are_in_every_table(files: Path, tmp_path: Path) -> None:
    names = ["bm25/run.trec", "rm3/run.trec", "model.trec"]
    found = compare_runs(str(files / "qrels"), [str(files / name) for name in names], "nDCG@5 P@3 AP", names[0][:-5])
    qrels = read_qrels(files / "qrels")
    for suffix in export.TABLE_SUFFIXES:
        export.write_table(found, tmp_path / f"table{suffix}")
    rows = list(csv.DictReader((tmp_path / "table.csv").open()))
    for (name, path), depth in [(run, depth) for run in found.paths.items() for depth in (3, 5)]:
        run = read_run(path)
        top = [document.id in qrels[query] for query in run if query in qrels for document in run[query][:depth]]
        share = top.count(False) / len(top)
        (row,) = [row for row in rows if (row["run"], row["measure"]) == (name, f"unjudged@{depth}")]
        assert float(row["mean"]) == share
        assert row["difference"] == row["p_t-test"] == ""
        for suffix in (".md", ".tex", ".txt"):
            lines = (tmp_path / f"table{suffix}").read_text().splitlines()
            wanted = f"{share:.1%}".replace("%", r"\%" if suffix == ".tex" else "%")
            assert any(line.lstrip("| ").startswith(name) and wanted in line for line in lines)


def test_judged_of_ir_measures_is_the_rest(files: Path) -> None:
    run = str(files / "bm25/run.trec")
    found = compare_runs(str(files / "qrels"), [run], "Judged@5")
    (table,) = found.tables.values()
    (top,) = found.unjudged.values()
    ranked = read_run(files / "bm25/run.trec")
    judged = sum(
        value * min(5, len(ranked.get(query, ())))
        for query, value in zip(table.queries, table["Judged@5"].tolist(), strict=True)
    )
    assert judged == pytest.approx(top[5].retrieved - top[5].count)


def test_latex_has_the_differences_too(files: Path) -> None:
    runs = [str(files / name) for name in ("bm25/run.trec", "model.trec")]
    shown = render.latex(compare_runs(str(files / "qrels"), runs, "nDCG@5 AP", "bm25/run"))
    means, differences = shown.split(r"\end{table}")[:2]
    assert "Cohen's d" in differences and "wins/ties/losses" in differences and "Cohen's d" not in means
    for markdown_line in render.markdown(
        compare_runs(str(files / "qrels"), runs, "nDCG@5 AP", "bm25/run")
    ).splitlines():
        cells = [cell.strip() for cell in markdown_line.split("|")[1:-1]]
        if len(cells) == 9 and cells[0] == "model":
            assert " & ".join(cells).replace("<", "$<$") in differences
