"""A process that trains and measures cells, one after the other: importing torch costs more than a small cell.

``python -m rerank.experiments.worker`` reads jobs from its input, a line of JSON each, and answers each with a line of
JSON: ``{}``, ``{"error": "..."}`` where the job failed, or ``{"stopped": "..."}`` where a signal stopped it. The line
``stop`` is as good as a SIGTERM, but not a second one where there was one. It ends when its input does, in the middle
of a job too, so that none is left behind by an experiment that was killed.
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
from rerank.evaluation.measures import Empty, evaluate
from rerank.experiments.cells import Job
from rerank.progress import log
from rerank.settings.described import find_own_classes
from rerank.stops import Stopped
from rerank.storage.identity import id_of
from rerank.storage.locks import exclusive_lock
from rerank.training.configuration import configured
from rerank.training.ids import measured_hashes, measurement_identity
from rerank.training.measurement import write_measurement
from rerank.training.run_folder import CHECKPOINTS

STOP = "stop\n"
"""The line that asks a worker to stop at the next good point."""


def train_cell(settings: dict[str, Any], folder: Path, id: str) -> None:
    """Train a cell, or resume it; where another machine is taken for dead but still trains it, wait for that.

    What is finished has no use for its checkpoints, three times the weights each, which would fill the disk of a grid.
    """
    from rerank.training.fit import fit

    with exclusive_lock(folder, wait=True):
        fit(configured(settings), folder, expected=id)
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def measure_cell(
    settings: dict[str, Any], folder: Path, id: str, measures: str, empty: Empty, expected: str | None = None
) -> None:
    """Measure a chosen cell on its test lists, and keep the values per query."""
    from rerank.training.validate import test_run

    config = configured(settings)
    test = config.data.splits(config.seed).test
    if test is None or test.qrels is None:
        raise UserError("data: there are no test lists to measure on")
    hashes = measured_hashes(test, config.model.columns)
    identity = measurement_identity({"training": id}, hashes, measures, empty)
    if expected not in (None, id_of(identity)):
        raise UserError("data: the test lists changed since the experiment began; start again")
    with exclusive_lock(folder, wait=True):
        run = test_run(folder, id, config, test)
        write_measurement(folder, identity, evaluate(run, test.qrels, measures, empty, name=str(folder / "test.trec")))


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Do one job; whatever goes wrong is written to the cell's log and said in a line."""
    kind, folder = Job(job.pop("do")), Path(job.pop("folder"))
    try:
        if kind is Job.MEASURE:
            measure_cell(folder=folder, **job)
        else:
            train_cell(folder=folder, **job)
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
    """Add to the log of a run folder."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "log.txt").open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} ERROR {message}\n")


def warm_up() -> None:
    """Import what the first cell would import otherwise, on its time."""
    import accelerate  # noqa: F401

    import rerank.models.vectors.lightgbm
    import rerank.training.trainer  # noqa: F401

    weight = torch.nn.Parameter(torch.zeros(1))
    weight.sum().backward()
    torch.optim.AdamW([weight]).step()  # imports half of torch


def main() -> None:
    """Answer jobs until the input ends."""
    find_own_classes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the experiment decides, by ending the input
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints must not come between the replies
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
    with contextlib.suppress(Stopped), stops.listening(command=True):
        threading.Thread(target=listen, daemon=True).start()
        warm = False
        while not stops.came():
            reply: dict[str, Any] = {"stopped": "before it began"}
            try:
                job = json.loads(jobs.get())
                if not warm and job["do"] != Job.MEASURE:
                    warm_up()
                    warm = True
                reply = answer(job)
            finally:  # where nobody waits for an answer, nobody reads it
                replies.write(json.dumps(reply) + "\n")
                replies.flush()


if __name__ == "__main__":
    main()
