"""What is kept of an experiment resumes it where nothing else of it is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rerank.commands.experiment import experiment
from rerank.errors import UserError
from rerank.experiments.keep import KeptFile, read_kept, restore, update_kept, write_kept
from rerank.experiments.run import remove_restored
from rerank.storage.files import write_json
from tests.builders import make_lists
from tests.experiments.settings import write_experiment
from tests.forked import fork


def write_config(folder: Path, **changes: Any) -> str:
    """Networks over a random column: what is saved of them is what is saved of cross-encoders."""
    methods = {
        "ListNet: plain": {"set": {"loss": "ListNet"}},
        "hinge": {"set": {"loss": "PairwiseHinge"}, "search": {"optimization.head_lr": [1e-3, 1e-2]}},
    }
    network = {"class_path": "MLP", "init_args": {"hidden": [4], "columns": ["noise"]}}
    settings = {"folds": [1, 2], "methods": methods, "first_stage": "mix", "keep": f"{folder}/kept/small.jsonl.xz"}
    return write_experiment(folder, base={"monitor": "nDCG", "model": network}, **settings | changes)


def contents(folder: Path) -> dict[str, bytes]:
    """The files of an experiment's cells that are kept."""
    paths = [*folder.rglob("measures.json"), *folder.rglob("test-*.json")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    lists = make_lists(folder)
    lists.store.add_column("noise", np.random.default_rng(0).normal(size=lists.size).astype(np.float32))
    assert experiment([write_config(folder)]) == 0
    return folder


def test_kept_cells_resume_an_experiment_byte_by_byte(folder: Path, tmp_path: Path) -> None:
    """On another machine nothing is trained, and tables and kept files come out as they were."""
    output, kept = folder / "out", folder / "kept" / "small.jsonl.xz"
    assert kept.read_bytes() == (output / "cells.jsonl.xz").read_bytes()
    before = contents(output)
    assert sum(name.endswith("measures.json") for name in before) == 2 * (1 + 2)
    other = tmp_path / "elsewhere"
    config = write_config(folder, output=str(other))
    assert experiment([config, f"--html={tmp_path / 'page.html'}"]) == 0
    assert contents(other) == before
    assert not [*other.rglob("best"), *other.rglob("metrics.jsonl")], "nothing was trained"
    assert (other / "table.md").read_text() == (output / "table.md").read_text()
    assert (other / "cells.jsonl.xz").read_bytes() == kept.read_bytes()
    compared = json.loads((other / "results.json").read_text())["comparisons"]
    assert compared == (5 - 1) * 2, "the first stage, two methods, two mixed: all but the best, in two measures"


def test_what_is_measured_anew_is_trained_again(folder: Path, tmp_path: Path) -> None:
    """Values per query in a new measure need a model, which is not kept."""
    other = tmp_path / "elsewhere"
    assert experiment([write_config(folder, output=str(other), measures="RR", first_stage="hide", keep=None)]) == 0
    mine, kept = json.loads((other / "results.json").read_text()), tmp_path / "kept.jsonl.xz"
    shutil.copy(folder / "out" / "cells.jsonl.xz", kept)
    restored = tmp_path / "restored"
    changes = {"output": str(restored), "measures": "RR", "first_stage": "hide", "keep": str(kept)}
    assert experiment([write_config(folder, **changes)]) == 0
    assert len([*restored.rglob("best")]) == 4, "chosen cells only"
    theirs = json.loads((restored / "results.json").read_text())
    assert mine["table"] == theirs["table"]


def test_an_experiment_that_was_cut_short_before_it_mixed_is_gone_on_with(folder: Path, tmp_path: Path) -> None:
    """A mixture needs rankings, which are not kept: those cells are trained again, and the table is the same."""
    output, kept = folder / "out", tmp_path / "kept.jsonl.xz"
    files = read_kept(folder / "kept" / "small.jsonl.xz")
    write_kept(kept, [file for file in files if not (file.method == "hinge + first stage" and file.fold == "1")])
    other = tmp_path / "elsewhere"
    assert experiment([write_config(folder, output=str(other), keep=str(kept))]) == 0
    assert len([*other.rglob("best")]) == 1, "one cell lacked its mixture"
    assert contents(other) == contents(output)
    assert {file.path for file in read_kept(kept)} == {file.path for file in files}


def test_what_is_finished_is_kept_with_its_mixture_before_the_end(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def stopped(*_: object) -> None:
        seen.extend(read_kept(tmp_path / "kept.jsonl.xz"))
        raise KeyboardInterrupt

    monkeypatch.setattr("rerank.experiments.rows.UntrainedRows.first_stage", stopped)  # what comes after the trainings
    with pytest.raises(KeyboardInterrupt):
        experiment([write_config(folder, output=str(tmp_path / "out"), keep=str(tmp_path / "kept.jsonl.xz"))])
    assert any(file.method.endswith("+ first stage") for file in seen)


def test_a_part_of_an_experiment_leaves_the_other_parts(folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl.xz"
    shutil.copy(folder / "kept" / "small.jsonl.xz", kept)
    before = {file.path for file in read_kept(kept)}
    changes = {"output": str(tmp_path / "out"), "folds": [2], "keep": str(kept), "first_stage": "hide"}
    assert experiment([write_config(folder, **changes)]) == 0
    assert {file.path for file in read_kept(kept)} == before


def made_up(values: list[list[float | None]], path: str = "cells/a/all/seed-1/point-1/test-2.json") -> KeptFile:
    return KeptFile("a", None, 1, path, {"id": "2", "queries": ["q0", "q1"], "empty": "drop", "values": values})


def test_bytes_do_not_depend_on_the_order_and_come_back(tmp_path: Path) -> None:
    files = [
        made_up([[0.1 + 0.2, None], [1 / 3, 1e-17]]),
        made_up([[1.0], [0.0], [0.5]], "cells/b/fold-1/seed-2/point-3/test-4.json"),
        KeptFile("b", "1", 2, "cells/b/fold-1/seed-2/point-3/measures.json", {"id": "3", "validation": {"AP": 0.2}}),
        KeptFile("b", "1", 2, "cells/b/fold-1/seed-2/point-3/provenance.json", [{"seconds": 1.5}]),
    ]
    write_kept(tmp_path / "one.jsonl.xz", files)
    write_kept(tmp_path / "two.jsonl.xz", reversed(files))
    assert (tmp_path / "one.jsonl.xz").read_bytes() == (tmp_path / "two.jsonl.xz").read_bytes()
    assert {file.path: file for file in read_kept(tmp_path / "one.jsonl.xz")} == {file.path: file for file in files}
    assert restore(tmp_path / "one.jsonl.xz", tmp_path / "out") == 4
    for file in files[:3]:
        write_json(tmp_path / "expected.json", file.content)
        assert (tmp_path / "out" / file.path).read_bytes() == (tmp_path / "expected.json").read_bytes()
    assert restore(tmp_path / "one.jsonl.xz", tmp_path / "out") == 0, "what is there stays"
    write_kept(tmp_path / "none.jsonl.xz", [])
    assert restore(tmp_path / "none.jsonl.xz", tmp_path / "nothing") == 0, "stopped before its first cell"


def _killed(path: str, output: str, number: int) -> None:
    """Restore what is kept, up to the operation on files of this number."""
    before = count(1)

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (
            (writes or event in ("os.rename", "os.remove", "os.mkdir"))
            and str(arguments[0]).startswith(output)
            and next(before) == number
        ):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    restore(path, Path(output))


@pytest.mark.slow
def test_a_killed_restoring_leaves_nothing_behind_and_is_ended_by_the_next(tmp_path: Path) -> None:
    """Whatever operation on files it is killed before."""
    kept, place = tmp_path / "kept.jsonl.xz", "cells/a/all/seed-1/point-1"
    measures = KeptFile("a", None, 1, f"{place}/measures.json", {"id": "3"})
    write_kept(kept, [measures, KeptFile("a", None, 1, f"{place}/provenance.json", [{}]), made_up([[0.5]])])
    for number in count(1):
        output = tmp_path / str(number)
        process = fork(_killed, str(kept), str(output), number)
        process.join(60)
        before = sum(path.name.endswith(".json") and path.name[0] != "." for path in output.rglob("*"))
        assert restore(kept, output) == 3 - before
        names = sorted(path.name for path in output.rglob("*") if path.is_file())
        assert names == ["measures.json", "provenance.json", "test-2.json"]
        assert [path.name for path in (output / place).parent.iterdir()] == ["point-1"]
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert number > 12, "a lock, and three files: each is made, written, renamed"


def test_a_cell_that_is_half_trained_here_resumes(tmp_path: Path) -> None:
    """Its best model so far must not stand beside the measures of the finished training."""
    folders = ["cells/a/all/seed-1/point-1", "cells/a/all/seed-2/point-1"]
    kept = [KeptFile("a", None, 1 + i, f"{folder}/measures.json", {"id": "3"}) for i, folder in enumerate(folders)]
    write_kept(tmp_path / "kept.jsonl.xz", [*kept, made_up([[0.5]], f"{folders[0]}/test-2.json")])
    half = tmp_path / "out" / folders[0]
    half.mkdir(parents=True)
    (half / "identity.json").write_text("{}")
    assert restore(tmp_path / "kept.jsonl.xz", tmp_path / "out") == 1
    assert [path.name for path in half.iterdir()] == ["identity.json"]
    assert (tmp_path / "out" / folders[1] / "measures.json").is_file()


def test_damage_and_strange_files_are_refused(tmp_path: Path) -> None:
    """A bit that flips in the middle, too: what is compressed has a checksum."""
    path = tmp_path / "kept.jsonl.xz"
    write_kept(path, [made_up([[0.25, 0.5]])])
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(UserError, match="not the kept cells of an experiment, or damaged"):
            read_kept(path)
    path.write_bytes(whole[:-20])
    with pytest.raises(UserError, match="damaged"):
        read_kept(path)
    write_kept(path, [made_up([[0.5]], "cells/../../test-2.json")])
    with pytest.raises(UserError, match="outside an experiment's cells"):
        restore(path, tmp_path / "out")


def test_what_the_file_has_of_groups_still_to_come_stays_until_the_experiment_is_through(tmp_path: Path) -> None:
    path, key = tmp_path / "kept.jsonl.xz", ("a", None, 1)
    other = replace(made_up([[0.5]], "cells/b/all/seed-1/point-1/test-2.json"), method="b")
    first = made_up([[0.5, 0.25]])
    update_kept(path, [first, other], [key], through=True)
    update_kept(path, [], [key], through=False)
    assert read_kept(path) == [first, other]
    update_kept(path, [], [key], through=True)
    assert read_kept(path) == [other], "of the other part, which has plans of its own"


def test_what_another_part_has_trained_meanwhile_is_not_removed(tmp_path: Path) -> None:
    for restored in (True, False):
        (tmp_path / "cell").mkdir(exist_ok=True)
        cell: Any = SimpleNamespace(folder=tmp_path / "cell", restored=restored)
        remove_restored(cell)
        assert (tmp_path / "cell").exists() != restored
