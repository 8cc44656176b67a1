"""``rerank rerank``: score ranked lists with a trained model, and write the run."""

from __future__ import annotations

from typing import Any

from rerank.commands.options import check_output
from rerank.progress import is_main, log
from rerank.storage.files import check_apart
from rerank.tasks.rerank_lists import rerank_lists


def rerank(output: str, **asked: Any) -> None:
    """Score ranked lists with a trained model and write the run.

    Several processes (``torchrun``), on one machine or many, share the lists.

    Args:
        output: run file to write (TREC).
        asked: the arguments of :func:`rerank.rerank_lists`.
    """
    from rerank.retrieval.runs import check_run_file, write_run

    check_apart(output, lists=asked["lists"], model=asked["model"])
    check_output(output)
    check_run_file(output)
    run = rerank_lists(**asked)
    if is_main():
        write_run(output, run, tag="rerank")
        log.info("%s: %d queries", output, len(run))
