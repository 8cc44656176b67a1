"""Public functions behind the commands; each returns an object."""

from __future__ import annotations

from rerank.tasks.calibrate import calibrate
from rerank.tasks.evaluate import evaluate
from rerank.tasks.rerank_lists import rerank_lists
from rerank.tasks.retrieve import retrieve

__all__ = ["calibrate", "evaluate", "rerank_lists", "retrieve"]
