from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rerank.collections import read_qrels
from rerank.errors import UserError
from rerank.evaluation.compare import compare, compare_runs, named_forms
from rerank.evaluation.significance import cohens_d, correct, crossed_difference, p_value, paired
from rerank.retrieval.runs import read_run
from tests.evaluation.scored import evaluate
from tests.evaluation.tables import per_query

MEASURES = ["nDCG@5", "AP", "NumRet"]


def named(files: Path) -> list[str]:
    return [f"bm25={files}/bm25/run.trec", f"rm3={files}/rm3/run.trec", str(files / "model.trec")]


def test_compare_runs_agrees_with_its_parts(files: Path) -> None:
    found = compare_runs(str(files / "qrels"), named(files), MEASURES, baseline="bm25", empty="drop")
    qrels = read_qrels(files / "qrels")
    assert (found.baseline, list(found.tables)) == ("bm25", ["bm25", "rm3", "model"])
    tables = {name: evaluate(read_run(path), qrels, MEASURES, "drop") for name, path in found.paths.items()}
    for name, table in tables.items():
        np.testing.assert_array_equal(found.tables[name].values, table.values)
    # counts are not tested, nor is the baseline against itself
    assert list(found.differences) == [(name, m) for name in ("rm3", "model") for m in ("nDCG@5", "AP")]
    for (name, measure), one in found.differences.items():
        difference = paired(tables[name][measure][None], tables["bm25"][measure][None])[0][0]
        assert one.difference == pytest.approx(tables[name].mean[measure] - tables["bm25"].mean[measure])
        assert (one.cohens_d, one.interval) == (cohens_d(difference), crossed_difference(difference[None]).interval)
        assert sum(one.counts) == one.queries == len(difference)
        assert one.p == p_value("t-test", difference)
    given = [one.p for one in found.compared]
    assert [one.p_corrected for one in found.compared] == correct(given, "holm").tolist()


def test_compare_runs_finds_baseline_by_path_or_name(files: Path) -> None:
    first = files / "bm25" / "run.trec"
    for given, name in (
        (str(first), "bm25"),
        (first, "bm25"),
        (f"bm25={first}", "bm25"),
        ("bm25", "bm25"),
        (None, None),
    ):
        found = compare_runs(str(files / "qrels"), named(files), "AP", given)
        assert found.baseline == name and bool(found.differences) == (name is not None)
    added = compare_runs(str(files / "qrels"), [str(files / "model.trec")], "AP", f"first={first}")
    assert list(added.tables) == ["first", "model"]
    with pytest.raises(UserError, match="baseline: there is a run called 'model' already"):
        compare_runs(str(files / "qrels"), [str(files / "model.trec")], "AP", f"model={first}")


def test_copy_of_baseline_has_no_p_value(files: Path) -> None:
    first, _, model = named(files)
    found = compare_runs(str(files / "qrels"), [first, model, f"copy={files}/bm25/run.trec"], "AP", "bm25")
    copy = found.differences["copy", "AP"]
    assert np.isnan(copy.p_corrected) and copy.counts == (0, 30, 0) and copy.verdict == "no difference"


def test_undefined_p_value_counts_as_comparison() -> None:
    """Equal differences leave t without a variance; Holm's correction of the others is over both."""
    rng = np.random.default_rng(3)
    first = rng.uniform(0.2, 0.5, 12)
    values = {"first": first, "shifted": first + 0.25, "other": first + rng.normal(0.1, 0.1, 12)}
    found = compare({name: per_query("AP", one[None]) for name, one in values.items()}, "first")
    shifted, other = found.differences["shifted", "AP"], found.differences["other", "AP"]
    assert np.isnan(shifted.p) and shifted.interval is None
    assert other.p_corrected == pytest.approx(min(1.0, 2 * other.p))
    rows = [line.split() for line in found.text().splitlines()]
    assert ["shifted", "first", "AP", "+0.2500", "-", "-", "12/0/0", "-"] in rows
    assert "NaN" not in found.to_json()


def test_names_of_runs(files: Path) -> None:
    first, second, model = (str(files / name) for name in ("bm25/run.trec", "rm3/run.trec", "model.trec"))
    assert named_forms([first, model, f"RM3={second}"]) == {"run": first, "model": model, "RM3": second}
    (files / "a=b.trec").write_text((files / "model.trec").read_text())
    assert list(named_forms([str(files / "a=b.trec")])) == ["a=b"]
    for same in ([f"x={first}", f"x={second}"], [first, second]):
        with pytest.raises(UserError, match=r"there is a run called '(x|run)' already; write NAME="):
            named_forms(same)
    with pytest.raises(UserError, match=r"nothing\.trec: no such run file"):
        named_forms([str(files / "nothing.trec")])
    with pytest.raises(UserError, match="no run given"):
        named_forms([])


def test_compare_runs_fails_before_scoring(files: Path) -> None:
    qrels, runs = str(files / "qrels"), named(files)
    for arguments, said in [
        ({"measures": "nDGC@10"}, "unknown measure"),
        ({"baseline": "bm26"}, r"baseline: bm26: no such run file \(did you mean 'bm25'"),
        ({"baseline": f"bm25={files}/none.trec"}, "no such run file"),
        ({"empty": "2"}, "expected 'drop', '0' or '1'"),
    ]:
        with pytest.raises(UserError, match=said):
            compare_runs(qrels, runs, **{"measures": "AP", **arguments})  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no such file"):
        compare_runs(str(files / "no.qrels"), runs, "AP")
    (files / "other.trec").write_text("x1 Q0 d1 1 2.5 tag\n")
    with pytest.raises(UserError, match=r"other\.trec: none of its documents \(x1 d1"):
        compare_runs(qrels, [*runs, str(files / "other.trec")], "AP")
