"""Tiny experiments run from the configuration to the tables: choice, measures, failures, reuse and resuming."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from rerank.commands.cli import main
from rerank.commands.experiment import experiment
from rerank.lists.view import Lists
from rerank.retrieval.runs import read_run
from tests.builders import make_lists, make_model
from tests.evaluation.scored import evaluate
from tests.experiments.settings import short_texts, write_experiment
from tests.forked import wait_for

MEASURES = ["nDCG@5", "AP", "P@1"]
PUBLISHED = {"source": "Nobody, 2020", "rows": {"SmoothI": [0.5, None, 0.25]}}


def write_config(folder: Path, **changes: Any) -> Path:
    """Configure two methods that search two points each, and one whose loss becomes infinite, over three folds."""
    smoothi = {"class_path": "DirectMetric", "init_args": {"measure": "nDCG", "relaxation": "SmoothI"}}
    base = short_texts(folder) | {"monitor": "nDCG@5", "measures": "AP"}
    methods = {
        "SmoothI": {
            "set": {"loss": smoothi, "optimization.encoder_lr": 0.001},
            "search": {"loss.relaxation.alpha": [0.1, 1000.0]},
        },
        "Tuned | 50%": {"set": {"loss": "ListNet"}, "search": {"optimization.encoder_lr": [1e-5, 1e-2]}},
        "Broken": {"set": {"loss": "ListNet", "batch_size": 1, "optimization": {"encoder_lr": 1e30}}},
    }
    settings = {"methods": methods, "first_stage": "hide", "jobs": 2, "test": "t-test", "baseline": "SmoothI"}
    write_experiment(folder, **{"base": base, "measures": " ".join(MEASURES)} | settings | changes)
    return folder / "experiment.yaml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished experiment."""
    folder = tmp_path_factory.mktemp("experiment")
    make_lists(folder)
    make_model(folder / "model")
    config = write_config(folder, published=PUBLISHED)
    assert experiment([f"--config={config}"]) == 3, "the broken method fails on each fold"
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "out" / "results.json").read_text())


def validation(trial: Path) -> dict[str, float]:
    return json.loads((trial / "results.json").read_text())["validation"]["model"]["mean"]


def runs(output: Path) -> list[Path]:
    return sorted(path.parent for path in output.glob("trials/*/*/*/*/results.json"))


def test_experiment_measures_test_for_runs_chosen_on_validation(folder: Path, results: dict[str, Any]) -> None:
    chosen = {folder / "out" / trial["folder"] for trial in results["trials"]}
    assert len(chosen) == 6
    assert {trial["method"] for trial in results["trials"]} == {"SmoothI", "Tuned | 50%"}
    trained = runs(folder / "out")
    assert len(trained) == 12
    for trial in trained:
        value = validation(trial)["nDCG@5"]
        best = max(validation(other)["nDCG@5"] for other in trained if other.parent == trial.parent)
        if trial in chosen:
            assert value == best
        assert (trial in chosen) == (trial / "test.trec").exists()
        assert not (trial / "checkpoints").exists(), "a finished run needs none"
    assert len({trial.parent for trial in chosen}) == 6


def test_failed_run_leaves_a_hole_and_its_message(folder: Path, results: dict[str, Any]) -> None:
    assert [(failed["method"], failed["fold"]) for failed in results["failed"]] == [("Broken", f) for f in (1, 2, 3)]
    for failed in results["failed"]:
        assert "is not finite at step 2" in failed["message"]
        assert (folder / "out" / failed["log"]).read_text().splitlines()[-1].endswith(failed["message"])
    rows = [
        line for line in (folder / "out" / "table.md").read_text().splitlines() if line.startswith("| Broken (0 of")
    ]
    assert [text.strip() for text in rows[0].split("|")[2:-1]] == ["-"] * len(MEASURES)


def test_table_has_measures_of_chosen_runs(folder: Path, results: dict[str, Any]) -> None:
    names, lists = ["SmoothI", "Tuned | 50%"], Lists.open(folder / "lists")
    for measure in MEASURES:
        for name in names:
            means = []
            for trial in (trial for trial in results["trials"] if trial["method"] == name):
                run = read_run(folder / "out" / trial["folder"] / "test.trec")
                qrels = {query: judged for query, judged in (lists.qrels or {}).items() if query in run}
                means.append(evaluate(run, qrels, measure).mean[measure])
                assert trial["test"][measure] == pytest.approx(means[-1])
            assert results["table"][name]["means"][measure] == pytest.approx(np.mean(means))
    assert len(results["differences"]) == 2 * len(MEASURES), "the broken method's too"
    queries = pq.read_table(folder / "out" / "queries.parquet").to_pandas()
    assert queries.groupby("method").size().to_dict() == dict.fromkeys(names, 12)


def test_tables_have_names_as_text_and_a_caption(folder: Path, results: dict[str, Any]) -> None:
    assert r"| Tuned \| 50% |" in (folder / "out" / "table.md").read_text()
    assert r"50\% & " in (folder / "out" / "table.tex").read_text()
    for said in ("12 queries", "linear gain", "3 folds", "Seed 42", "t-test", "Holm", "standard error"):
        assert said in results["caption"]


@pytest.mark.slow
def test_killed_experiment_resumes_to_the_same_results(folder: Path, results: dict[str, Any]) -> None:
    output = folder / "killed"
    command = [sys.executable, "-m", "rerank.commands.cli", "experiment", f"--config={folder / 'experiment.yaml'}"]
    command += [f"--output={output}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(runs(output)) > 2 or process.poll() is not None, 300)
    workers, started = (psutil.Process(process.pid).children(recursive=deep) for deep in (False, True))
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert len(workers) == 3, "two workers, and Python's resource tracker"
    _, alive = psutil.wait_procs(started, timeout=30)  # a worker may have asked git for the commit
    assert alive == [], "no worker outlives its experiment"
    assert not (output / "results.json").exists()
    trained = {path: path.stat().st_mtime_ns for path in output.glob("trials/**/metrics.jsonl")}
    complete = {path for path in trained if (path.parent / "results.json").exists()}

    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, "the broken runs still fail"
    assert all(path.stat().st_mtime_ns == trained[path] for path in complete)
    found = json.loads((output / "results.json").read_text())
    assert found["table"] == results["table"]
    assert [trial["point"] for trial in found["trials"]] == [trial["point"] for trial in results["trials"]]
    assert "Broken" in done.stdout


def test_dry_run_counts_runs_and_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["experiment", "--config", str(folder / "experiment.yaml"), "--output", str(folder / "dry"), "--dry-run"]
    assert main(words) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "SmoothI, fold 1, seed 42: 2 runs"
    assert shown[-1].startswith("15 runs, 9 of them measured on test")
    parts = []
    for part in range(2):
        assert main([*words, "--share", f"{part}/2"]) == 0
        parts += capsys.readouterr().out.splitlines()[:-1]
    assert sorted(parts) == sorted(shown[:-1]), "each of them in one of the shares"
    assert not (folder / "dry").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"baseline": "SmothI"}, "did you mean 'SmoothI'"),
        ({"measures": "nDCG@5 AP", "published": PUBLISHED}, "published.rows.SmoothI: has 3 numbers, the table 2"),
        ({"folds": [1, 1]}, "folds"),
        ({"level": 1.0}, "level: must be in (0, 1)"),
        ({"test": "wilcoxon", "pairs": "baseline"}, "test, correction, level: nothing is compared"),
        ({"methods": {"A": {"set": {"lose": "ListNet"}}}}, "did you mean 'loss'"),
        ({"methods": {"A": {"search": {"loss.alpha": 3}}}}, "must be a list of values, such as"),
        ({"methods": {"A": {"search": {"batch_size": [4, "many"]}, "set": {"loss": "ListNet"}}}}, "(batch_size: many)"),
        ({"methods": {"A": {"set": {"loss": "ListNet", "monitor": "nDCG@0"}}}}, "cutoff must be from 1"),
        ({"methods": {"A": {"search": {"data.fold": [1, 2]}}}}, "data.fold is set by the experiment"),
        ({"base": {"seed": 3}}, "base.seed: is set by the experiment, see seeds"),
        (
            {"methods": {"A": {}, "A + first stage": {}}, "first_stage": "interpolate"},
            "rename it, or set first_stage: hide",
        ),
    ],
)
def test_bad_configurations_are_refused_in_one_line(
    changes: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["experiment", "--config", str(write_config(tmp_path, **{"baseline": None, "pairs": "all"} | changes))])
        == 2
    )
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("rerank: error: ")
    assert message in error
    assert not (tmp_path / "out").exists()


def test_base_options_apply_to_all_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = f"--config={folder / 'experiment.yaml'}"
    assert main(["experiment", config, "--dry-run", "--base.batch_size", "3", "--base.epochs=2"]) == 0
    for words, message in (
        (["--base.data.lists=nowhere"], "nowhere"),
        (["--base.epochs=two"], "epochs"),
        (["--folds=[1, 7]"], "data.fold: 7 of 3"),
        (["--folds=null"], "FoldsData needs fold; give --data.fold; see rerank train --help; or name all folds"),
    ):
        assert main(["experiment", config, "--dry-run", *words]) == 2
        assert message in capsys.readouterr().err
