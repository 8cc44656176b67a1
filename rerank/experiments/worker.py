"""A process that trains and measures cells, one after the other: importing torch costs more than a small cell.

``python -m rerank.experiments.worker`` reads a JSON job per line from its input, and answers each with a line of JSON:
``{}``, ``{"error": "..."}``, or ``{"stopped": "..."}`` after a signal. The line ``stop`` acts like a first SIGTERM. The
process ends with its input, so that none outlives a killed experiment.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import shutil
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from rerank import stops
from rerank.errors import UserError, one_line
from rerank.progress import log
from rerank.settings.described import find_own_classes
from rerank.stops import Stopped
from rerank.storage.locks import exclusive_lock
from rerank.training.configuration import configured
from rerank.training.run_folder import CHECKPOINTS, TEST_RUN

STOP = "stop\n"
"""The line that asks a worker to stop at the next good point."""


def train_cell(settings: dict[str, Any], folder: Path, fingerprint: str) -> None:
    """Train a cell, or resume it, and remove its checkpoints, which would fill the disk of a grid."""
    from rerank.training.fit import fit

    with exclusive_lock(folder, wait=True):
        fit(configured(settings), folder, expected=fingerprint)
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def rank_test_lists(settings: dict[str, Any], folder: Path) -> None:
    """Write the run of a chosen cell over its test lists."""
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


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Do one job; errors are written to the cell's log and returned in a line."""
    folder, settings = Path(job["folder"]), job["settings"]
    try:
        if "fingerprint" in job:
            train_cell(settings, folder, job["fingerprint"])
        else:
            rank_test_lists(settings, folder)
    except Stopped as stop:
        return {"stopped": str(stop)}
    except Exception as error:
        message = one_line(error if isinstance(error, UserError) else f"{type(error).__name__}: {error}")
        if not isinstance(error, UserError):
            note(folder, traceback.format_exc().rstrip())
        note(folder, message)
        return {"error": message}
    finally:
        torch.cuda.empty_cache()  # for cells that share the GPU
    return {}


def note(folder: Path, message: str) -> None:
    """Append an error to the log of a run folder."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "log.txt").open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} ERROR {message}\n")


def main() -> None:
    """Answer jobs until the input ends."""
    find_own_classes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the experiment decides, by ending the input
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # prints must not come between the replies
    jobs: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            if line == STOP:
                if not stops.came():
                    os.kill(os.getpid(), signal.SIGTERM)
            else:
                jobs.put(line)
        os._exit(0)

    log.setLevel(logging.INFO)
    with contextlib.suppress(Stopped), stops.listening():
        threading.Thread(target=listen, daemon=True).start()
        while not stops.came():
            reply: dict[str, Any] = {"stopped": "before it began"}
            try:
                reply = answer(json.loads(jobs.get()))
            finally:
                replies.write(json.dumps(reply) + "\n")
                replies.flush()


if __name__ == "__main__":
    main()
