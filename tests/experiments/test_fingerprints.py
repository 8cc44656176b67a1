"""After a change, an experiment trains exactly the runs that it affects."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rerank.commands.experiment import experiment
from rerank.lists import Lists
from rerank.lists.data import FoldsData
from rerank.storage.files import exclusive_lock
from tests.builders import make_lists, make_model, write_folds
from tests.experiments.settings import short_texts, write_experiment
from tests.forked import Command

LENGTHS = [20, 1, 7, 13, 20, 2, 16, 5, 20, 11, 3, 18]


def write_config(folder: Path, **changes: Any) -> str:
    base = short_texts(folder) | changes.pop("base", {})
    return write_experiment(folder, base=base, **{"first_stage": "interpolate"} | changes)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished experiment."""
    folder = tmp_path_factory.mktemp("made")
    make_lists(folder, LENGTHS)
    make_model(folder / "model")
    assert experiment([write_config(folder)]) == 0
    return folder


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    """A copy of it that tests may change, over the same lists."""
    shutil.copytree(made / "out", tmp_path / "out")
    return tmp_path


def again(made: Path, copied: Path, *words: str) -> int:
    """Repeat the experiment in the copy of its folder."""
    return experiment([f"--config={made / 'experiment.yaml'}", f"--output={copied / 'out'}", *words])


def trained(output: Path) -> dict[Path, int]:
    """Read the times at which trainings were finished, by folder."""
    found = output.glob("trials/*/*/*/*/results.json")
    return {path.parent.relative_to(output): path.stat().st_mtime_ns for path in found}


def table(output: Path) -> Any:
    return json.loads((output / "results.json").read_text())["table"]


def test_changed_grade_trains_the_runs_that_read_it(tmp_path: Path) -> None:
    frame = make_lists(tmp_path / "made", LENGTHS).to_dataframe()
    make_model(tmp_path / "model")
    Lists.from_dataframe(frame).save(tmp_path / "lists")
    assert experiment([write_config(tmp_path)]) == 0
    before, runs = table(tmp_path / "out"), trained(tmp_path / "out")
    assert len(runs) == 3
    folds = {fold: FoldsData(str(tmp_path / "lists"), fold, 3).splits(42).test for fold in (1, 2, 3)}
    (tested,) = (fold for fold, test in folds.items() if test is not None and "q4" in test.query_ids)

    frame.loc[frame.index[frame["query_id"] == "q4"][0], "grade"] += 1
    shutil.rmtree(tmp_path / "lists")
    Lists.from_dataframe(frame).save(tmp_path / "lists")
    assert experiment([write_config(tmp_path)]) == 0
    after = trained(tmp_path / "out")
    assert all(after[folder] == time for folder, time in runs.items()), "nothing is overwritten"
    new = {folder.parts[2] for folder in after.keys() - runs.keys()}
    assert new == {f"fold-{fold}" for fold in (1, 2, 3) if fold != tested}
    assert table(tmp_path / "out") != before


def test_changed_setting_trains_a_run_beside_the_old_one(made: Path, copied: Path) -> None:
    before = trained(copied / "out")
    assert again(made, copied, "--base.batch_size=3") == 0
    after = trained(copied / "out")
    assert before.items() <= after.items() and len(after) == 6
    assert again(made, copied, "--base.tracker=[]", "--base.checkpoint_every=7") == 0, "which changes no result"
    assert trained(copied / "out") == after
    assert table(copied / "out") == table(made / "out")
    assert again(made, copied, "--measures=RR P@1", "--empty=drop") == 0, "which measures again"
    assert trained(copied / "out") == after and table(copied / "out")["ListNet"]["means"].keys() == {"RR", "P@1"}


@pytest.mark.slow
def test_two_experiments_do_not_share_a_folder(made: Path, copied: Path) -> None:
    with exclusive_lock(copied / "out"):
        other = Command(["experiment", f"--config={made / 'experiment.yaml'}", f"--output={copied / 'out'}"])
        assert "in use by another process" in other.communicate(300).splitlines()[-1]
    assert other.returncode == 2


def test_workers_import_only_the_named_classes_of_a_user(
    fresh_workers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    """Files of the working directory never replace a library's modules of the same name."""
    monkeypatch.chdir(tmp_path)
    write_folds(tmp_path / "made")
    (tmp_path / "tqdm.py").write_text("raise SystemExit('the working directory was imported from')\n")
    (tmp_path / "mine.py").write_text("from rerank.losses import ListNet\n\n\nclass Mine(ListNet):\n    pass\n")
    base = {"data": {"class_path": "LetorData", "init_args": {"path": str(tmp_path / "made")}}, "model": "MLP"}
    config = {"folds": [1], "base": base, "first_stage": "hide"}
    plain = write_config(tmp_path, **config)
    assert experiment([plain]) == 0
    (tmp_path / "tqdm.py").unlink()
    monkeypatch.syspath_prepend(str(tmp_path))
    own = write_config(tmp_path, **config, methods={"Mine": {"set": {"loss": "mine.Mine"}}})
    assert experiment([own]) == 0
    before = trained(tmp_path / "out")
    assert experiment([own]) == 0 and trained(tmp_path / "out") == before
    (resolved,) = (tmp_path / "out" / "trials" / "Mine").rglob("fingerprint.json")
    assert json.loads(resolved.read_text())["loss"]["class"] == "mine.Mine"
