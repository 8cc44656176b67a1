"""Scores that depend on the document and its query, or its list, and on nothing else."""

from __future__ import annotations

import numpy as np

from rerank.lists import Lists
from rerank.models.scorer import Scorer, score_lists
from rerank.storage.arrow import Array


def check_independent(model: Scorer, lists: Lists, *budgets: int) -> Array:
    """Fail where scores in float32 follow the order of lists, or how they are cut; returns them."""
    inputs = model.inputs(lists)
    whole = score_lists(model, inputs, lists, precision="fp32")
    for budget in budgets:
        np.testing.assert_allclose(score_lists(model, inputs, lists, precision="fp32", budget=budget), whole, atol=1e-5)
    order = np.random.default_rng(0).permutation(len(lists))
    turned = lists.select(order)
    rows = np.concatenate([np.arange(lists.offsets[i], lists.offsets[i + 1]) for i in order])
    found = score_lists(model, model.inputs(turned), turned, precision="fp32")
    np.testing.assert_allclose(found, whole[rows], atol=1e-5)
    return whole
