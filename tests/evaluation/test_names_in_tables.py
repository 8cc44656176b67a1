"""Names of runs in tables of other programs: text, never HTML, links or formulas."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from rerank.evaluation.compare import compare_runs
from rerank.evaluation.export import write_per_query, write_table
from rerank.evaluation.render import Section, TableCell


@pytest.mark.parametrize("name", ["1+1", "HYPERLINK(0)"])
@pytest.mark.parametrize("sign", "=+-@")
def test_no_formula_in_csv(files: Path, tmp_path: Path, sign: str, name: str) -> None:
    found = compare_runs(str(files / "qrels"), [str(files / "model.trec")], "AP")
    found = replace(found, tables={sign + name: found.first}, unjudged={}, ties={})
    write_table(found, tmp_path / "t.csv")
    write_per_query(found, tmp_path / "q.tsv")
    for path, delimiter in ((tmp_path / "t.csv", ","), (tmp_path / "q.tsv", "\t")):
        rows = list(csv.reader(path.read_text().splitlines(), delimiter=delimiter))
        assert rows[1][0] == f"'{sign}{name}"


def test_no_html_in_markdown() -> None:
    rows = [
        [TableCell("<img src=x>")],
        [TableCell("&lt;b&gt;", best=True)],
        [TableCell("[a](b)|c")],
        [TableCell("<0.0001 [-0.1, 0.2] a_b")],
    ]
    shown = Section("", ["<b>"], rows).markdown()
    assert shown[0] == "| &lt;b> |"
    assert shown[2:] == [
        "| &lt;img src=x> |",
        "| **&amp;lt;b&amp;gt;** |",
        r"| [a]\(b)\|c |",
        "| <0.0001 [-0.1, 0.2] a_b |",
    ]
