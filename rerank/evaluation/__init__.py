"""Scores of runs. Import from the modules, which stay cheap that way.

- ``measures``: ``evaluate`` (a run against qrels, query by query), ``Evaluator``, ``parse_measures``,
  ``check_overlap``, ``pool`` (folds as one)
- ``compare``: ``compare_runs`` (files in, everything that a table says out), ``compare``
- ``render``, ``export``: tables for people, files for machines
- ``significance``: paired tests, corrections, effect sizes, intervals
- ``weights``: ``tune_weight`` and ``tune_weights``, of runs that are summed (see ``rerank.retrieval.fuse``)
"""

from __future__ import annotations
