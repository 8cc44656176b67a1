"""Train or measure one trial of an experiment, in the process that calls it."""

from __future__ import annotations

import contextlib
import shutil
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from rerank.errors import UserError, one_line
from rerank.stops import Stopped
from rerank.storage.files import exclusive_lock
from rerank.training.configuration import configured
from rerank.training.run_folder import CHECKPOINTS, TEST_RUN

Job = dict[str, Any]
"""Settings and folder of a trial, and the fingerprint of the training; without one, its test lists are ranked."""


def train_trial(settings: dict[str, Any], folder: Path, fingerprint: str) -> None:
    """Train a trial, or resume it, and remove its checkpoints, which would fill the disk of a grid."""
    from rerank.training.fit import fit

    with exclusive_lock(folder, wait=True):
        fit(configured(settings), folder, expected=fingerprint)
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def rank_test_lists(settings: dict[str, Any], folder: Path) -> None:
    """Write the run of a chosen trial over its test lists."""
    from rerank.retrieval.runs import write_run
    from rerank.scoring.shared import score_shared

    config = configured(settings)
    lists = config.data.splits(config.seed).test
    assert lists is not None
    if not (folder / "best").is_dir():
        raise UserError(f"{folder / 'best'}: no such folder, but rankings are needed; remove {folder} to train again")
    with exclusive_lock(folder, wait=True):
        model, budget = type(config.model).load(folder / "best"), config.token_budget
        scores = score_shared(model, lists, precision=config.precision, budget=budget, progress="test lists")
        write_run(folder / TEST_RUN, lists.run(scores), tag="rerank")


def do_job(job: Job) -> str:
    """Do one job; errors are written to the trial's log and returned in a line, which is empty without one."""
    folder, settings = Path(job["folder"]), job["settings"]
    try:
        if "fingerprint" in job:
            train_trial(settings, folder, job["fingerprint"])
        else:
            rank_test_lists(settings, folder)
    except Stopped as stop:
        return f"its process was stopped ({stop})"
    except Exception as error:
        message = one_line(error if isinstance(error, UserError) else f"{type(error).__name__}: {error}")
        if not isinstance(error, UserError):
            note(folder, traceback.format_exc().rstrip())
        note(folder, message)
        return message
    finally:
        torch.cuda.empty_cache()  # for trials that share the GPU
    return ""


def note(folder: Path, message: str) -> None:
    """Append an error to the log of a run folder."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "log.txt").open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} ERROR {message}\n")
