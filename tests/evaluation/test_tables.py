"""Comparisons are written as tables and files, in which every program reads names as text."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pandas as pd
import pytest
from ir_measures import ScoredDoc

from rerank.errors import UserError
from rerank.evaluation.compare import compare, compare_runs
from rerank.evaluation.measures import Evaluator
from rerank.evaluation.table import QUERY_FORMATS, TABLE_FORMATS, Table, format_of
from rerank.retrieval.runs import Scored, read_run
from rerank.tasks.evaluate import evaluate


@pytest.fixture(scope="module")
def found(files: Path) -> Table:
    runs = {name: files / path for name, path in (("bm25", "bm25/run.trec"), ("rm3", "rm3/run.trec"))}
    runs["model"] = files / "model.trec"
    measures = "nDCG@5 nDCG(dcg='exp-log2') AP(rel=2) NumRet"
    return compare_runs(str(files / "qrels"), runs, measures, "bm25", empty="drop")


def clear(name: str = "model", first: str = "base") -> Table:
    """Compare a model that ranks the relevant document first in 30 of 40 queries, the baseline second."""
    qrels = {str(i): {"a": 1} for i in range(40)}
    evaluator = Evaluator(qrels, "RR nDCG")
    base = {query: [Scored("b", 2.0), Scored("a", 1.0)] for query in qrels}
    model = {query: [Scored("a", 2.0), Scored("b", 1.0)] if int(query) % 4 else base[query] for query in qrels}
    return compare({first: evaluator(base), name: evaluator(model)}, first)


def test_json_holds_everything_at_full_precision(found: Table) -> None:
    read = json.loads(found.to_json())
    assert read["baseline"] == "bm25"
    assert read["empty"] == "drop"
    assert read["queries"] == 30
    assert read["paths"] == found.paths
    assert read["missing_queries"] == {name: list(table.missing) for name, table in found.tables.items()}
    assert [(row["run"], row["measure"]) for row in read["rows"]] == [
        (n, m) for n in found.tables for m in found.measures
    ]
    for row in read["rows"]:
        assert row["mean"] == found.tables[row["run"]].mean[row["measure"]]
        difference = found.differences.get((row["run"], row["measure"]))
        assert row["p_corrected"] == (difference and difference.p_corrected)
        assert (row["low"], row["high"]) == (difference.interval if difference else (None, None))


def test_csv_files_round_trip(found: Table) -> None:
    whole = found.per_query().reset_index(drop=True)
    assert len(whole) == 3 * 30 and list(whole) == ["run", "query_id", *found.measures]
    for suffix, formats, expected in (
        (".csv", TABLE_FORMATS, found.to_dataframe()),
        (".csv", QUERY_FORMATS, whole),
        (".tsv", QUERY_FORMATS, whole),
    ):
        text = io.StringIO(formats[suffix](found))
        read = pd.read_csv(text, sep="\t" if suffix == ".tsv" else ",", float_precision="round_trip")
        pd.testing.assert_frame_equal(read, expected, check_exact=True)


def test_table_formats_follow_the_suffix(found: Table) -> None:
    shown = {suffix: format_of(f"table{suffix}", TABLE_FORMATS)(found) for suffix in (".md", ".tex", ".txt")}
    assert shown[".txt"] == found.text() and "| --- |" in shown[".md"] and r"\toprule" in shown[".tex"]


def test_format_of_refuses_other_suffixes() -> None:
    for formats, name in [(TABLE_FORMATS, "table.doc"), (QUERY_FORMATS, "queries.json")]:
        with pytest.raises(UserError, match="the name must end in"):
            format_of(name, formats)


def test_text_marks_what_is_significant() -> None:
    shown = clear().text()
    model = next(line for line in shown.splitlines() if line.startswith("model"))
    assert model.count("†") == 2
    assert "0.8750" in model  # three quarters at 1, one at ½
    assert "+0.3750" in shown
    assert "30/10/0" in shown


def test_caption_states_queries_policy_gain_tests_and_correction(found: Table) -> None:
    caption = " ".join(found.caption())
    empty = found.first.lacking
    assert f"30 queries; those without relevant documents ({empty['nDCG@5']} for nDCG@5," in caption
    assert f"{empty['AP(rel=2)']} for AP(rel=2)) are left out." in caption
    assert "nDCG has linear gain, as trec_eval." in caption
    assert "nDCG(dcg='exp-log2') has gain 2^y - 1." in caption
    assert "†: differs from bm25, p < 0.05 by the paired t-test (Holm-corrected for 6 comparisons)." in caption
    assert "95% intervals: bootstrap over queries, not corrected for their number; p is corrected." in found.text()
    assert not any(" gain" in line for line in clear().caption() if "nDCG" not in line)
    missing = len(found.tables["model"].missing)
    assert missing
    assert f"model: {missing} queries without candidates score 0 where they have relevant documents." in caption


def test_markdown_is_a_table(found: Table) -> None:
    blocks = found.markdown().split("\n\n")
    for block in (blocks[0], blocks[2]):
        rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()]
        assert {len(row) for row in rows} == {len(rows[0])}
        assert set("".join(rows[1])) <= set("-: ")
    assert "**0.8750†**" in clear().markdown()
    assert r"a\|b" in clear(name="a|b").markdown()
    evil = clear("<b>x", "<b>y")
    assert "<b>" not in evil.markdown() + evil.latex(), "nor in the sentences below"


def test_latex_is_a_booktabs_table() -> None:
    shown = clear(name="50%_of & a|b").latex()
    assert r"50\%\_of \& a$|$b & \textbf{0.8750$^\dagger$} & " in shown
    body = shown[shown.index(r"\toprule") : shown.index(r"\bottomrule")]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 3
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {2}
    means, differences = shown.split(r"\end{table}")[:2]
    assert "Cohen's d" in differences and "wins/ties/losses" in differences and "Cohen's d" not in means
    assert "& RR & +0.3750 & " in differences and "30/10/0" in differences
    for opened in ("table", "tabular"):
        assert shown.count(rf"\begin{{{opened}}}") == shown.count(rf"\end{{{opened}}}") == 2
    assert shown.count("{") - shown.count(r"\{") == shown.count("}") - shown.count(r"\}")


def test_table_gives_the_mean_of_a_run_and_measure(found: Table) -> None:
    table = found
    assert table["model", "nDCG@5"] == found.tables["model"].mean["nDCG@5"]
    with pytest.raises(KeyError, match="no run 'modle'"):
        table["modle", "nDCG@5"]


def test_evaluate_gives_a_float_for_one_run_and_measure(files: Path) -> None:
    run = read_run(files / "model.trec")
    expected = compare_runs(str(files / "qrels"), [str(files / "model.trec")], "nDCG@10").first.mean["nDCG@10"]
    forms = [run, {query: dict(run[query]) for query in run}, {query: list(run[query]) for query in run}]
    for form in [*forms, files / "model.trec", pd.DataFrame(ScoredDoc(q, *one) for q in run for one in run[q])]:
        assert evaluate(files / "qrels", form, "nDCG@10") == pytest.approx(expected, abs=1e-12)
    assert isinstance(evaluate(files / "qrels", run, "nDCG@10 AP"), Table)
    assert isinstance(evaluate(files / "qrels", {"ours": run}, "nDCG@10"), Table)
    assert isinstance(evaluate(files / "qrels", [str(files / "model.trec")], "nDCG@10"), Table)
