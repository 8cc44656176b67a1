"""z of a column: the same number for a candidate, however the lists are cut, sampled or added to."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rerank.lists import Lists
from rerank.lists import store as store_module
from rerank.lists.columns import LARGEST, z_scores
from tests.builders import make_lists, make_lists_with_added

NUMBERS = st.floats(-1e3, 1e3, width=32) | st.just(float("nan")) | st.sampled_from([0.0, 0.1, 7.0])


def one_by_one(values: np.ndarray, added: np.ndarray, depth: int) -> np.ndarray:
    """The definition, for one list."""
    there = [float(x) for x, extra in zip(values, added, strict=True) if not np.isnan(x) and not extra]
    first = there[:depth]
    if len(set(first)) < 2:
        return np.zeros(len(values))
    mean, deviation = np.mean(first), np.std(first)
    lowest = (min(there) - mean) / deviation
    return np.array([lowest if np.isnan(x) else max(lowest, (float(x) - mean) / deviation) for x in values])


@given(st.data())
def test_z_scores_equal_the_definition(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 9), max_size=5))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values = data.draw(arrays(np.float32, int(offsets[-1]), elements=NUMBERS))
    added = data.draw(arrays(bool, len(values)))
    depth = data.draw(st.integers(1, 10))
    z = z_scores(values, offsets, added, depth)
    assert z.dtype == np.float32 and np.isfinite(z).all()
    for start, end in pairwise(offsets.tolist()):
        own = np.clip(one_by_one(values[start:end], added[start:end], depth), -LARGEST, LARGEST)
        np.testing.assert_allclose(z[start:end], own, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("values", [[4.2], [0.1] * 7, [np.nan, np.nan], [np.nan, 3.0]])
def test_z_scores_are_zero_if_nothing_varies(values: list[float]) -> None:
    """Lists of one candidate, of equal numbers (whose deviation rounding makes more than 0), of none."""
    z = z_scores(np.array(values, np.float32), np.array([0, len(values)]), np.zeros(len(values), bool), 100)
    assert (z == 0).all()


def test_scaled_column_ignores_blocks_depth_and_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = make_lists(tmp_path)
    whole = lists.store.scaled("bm25", 10)
    lists = Lists.open(tmp_path / "lists")
    monkeypatch.setattr(store_module, "Z_ROWS", 15)
    turned = np.random.default_rng(0).permutation(lists.size)
    for rows in (np.arange(lists.size), turned, lists.top(3).row_numbers):
        np.testing.assert_array_equal(lists.store.scaled("bm25", 10, rows), whole[rows])


@pytest.mark.parametrize("value", [-50.0, 5e5, np.nan])
def test_added_documents_do_not_move_z(tmp_path: Path, value: float) -> None:
    store = make_lists_with_added(tmp_path).store
    assert store.added_rows.any()
    values = np.where(store.added_rows, value, np.arange(len(store.document)) ** 2).astype(np.float32)
    store.add_column("x", values)
    offsets = np.concatenate([[0], store.ends])
    np.testing.assert_array_equal(store.scaled("x", 100), z_scores(values, offsets, store.added_rows, 100))
