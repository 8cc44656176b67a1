"""A process that trains and measures cells, one after the other: importing torch costs more than a small cell.

``python -m rerank.experiments.worker`` reads jobs from its input, a line of JSON each, and answers each with a line of
JSON: ``{}``, or ``{"error": "..."}`` where the job failed. It ends when its input does, in the middle of a job too, so
that none is left behind by an experiment that was killed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.errors import UserError
from rerank.experiments.cells import CELL
from rerank.experiments.outcome import QUERIES, read_queries, write_queries
from rerank.files import atomic_write

if TYPE_CHECKING:
    from rerank.lists.data import Splits

log = logging.getLogger("rerank")


def train_cell(settings: dict[str, Any]) -> None:
    """Train a cell, or go on with it; its configuration lies beside its folder, for ``rerank train --config``."""
    import yaml

    from rerank.training.command import train

    folder = Path(settings["output"])
    config = folder.with_name(f"{folder.name}.yaml")
    with atomic_write(config) as file:
        yaml.safe_dump(settings, file, sort_keys=False)
    started = time.perf_counter()
    train([f"--config={config}"])
    with atomic_write(folder / CELL) as file:
        json.dump({"settings": settings, "seconds": time.perf_counter() - started}, file, indent=2)


def measure_cell(output: str, measures: str, empty: Any) -> None:
    """Measure a chosen cell on its test lists, and keep the values per query."""
    from rerank.evaluation.measures import evaluate
    from rerank.retrieval.runs import read_run
    from rerank.training.command import measure_test

    folder = Path(output)
    if "test" not in json.loads((folder / "measures.json").read_text()):
        measure_test(folder)
    if read_queries(folder / QUERIES, measures, empty) is None:
        test = load_splits(folder).test
        assert test is not None and test.qrels is not None
        table = evaluate(read_run(folder / "test.trec"), test.qrels, measures, empty, name=str(folder / "test.trec"))
        write_queries(folder / QUERIES, table)


def load_splits(folder: Path) -> Splits:
    """The lists of a run, as its resolved configuration says."""
    import yaml
    from jsonargparse import ArgumentParser

    from rerank.lists.data import Data

    config = yaml.safe_load((folder / "config.yaml").read_text())
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(Data, "data")
    data: Data = parser.instantiate(parser.parse_object({"data": config["data"]})).data
    return data.splits(config["seed"])


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Do one job; whatever goes wrong is written to the cell's log and said in a line."""
    work: Callable[..., None] = train_cell if job.pop("do") == "train" else measure_cell
    folder = Path(job["output"] if "output" in job else job["settings"]["output"])
    try:
        work(**job)
    except Exception as error:
        message = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        message = " ".join(message.split())
        if not isinstance(error, UserError):
            note(folder, traceback.format_exc().rstrip())
        note(folder, message)
        return {"error": message}
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
    import torch

    import rerank.models.vectors.lightgbm
    import rerank.training.trainer  # noqa: F401

    weight = torch.nn.Parameter(torch.zeros(1))
    weight.sum().backward()
    torch.optim.AdamW([weight]).step()  # imports half of torch


def main() -> None:
    """Answer jobs until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the experiment decides, by ending the input
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints must not come between the replies
    jobs: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            jobs.put(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    log.setLevel(logging.INFO)
    warm = False
    while True:
        job = json.loads(jobs.get())
        if not warm and job["do"] == "train":
            warm_up()
            warm = True
        reply = answer(job)
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
