"""Pairs laid end to end at once, next to padded ones that lose their padding afterwards."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rerank.kernels.flat import SEQUENCES
from rerank.lists.tokens import Tokens
from rerank.models.text.pairs import PairInputs, PairTemplate
from rerank.storage.arrow import Ragged
from tests.kernels.flat import flatten, network_of

SPECIAL = np.array([2]), np.array([3, 3]), np.array([3])
TEXTS = st.lists(st.lists(st.integers(1, 9), max_size=9), min_size=1, max_size=7)  # 1 is the padding's, in a text, too


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("kind", ["bert", "roberta"])
@given(queries=TEXTS, documents=TEXTS, data=st.data())
def test_flat_pairs_are_padded_ones_without_padding(
    kind: str, device: str, queries: list[list[int]], documents: list[list[int]], data: st.DataObject
) -> None:
    """Texts may lie in several chunks of an Arrow file."""
    template = PairTemplate(*SPECIAL, types=(0, 0, 0, 1, 1) if kind == "bert" else None, pad=1)
    sides = [[np.array(ids, dtype=np.int32) for ids in texts] for texts in (queries, documents)]
    listed = pa.list_(pa.int32())
    chunks = ([pa.array(part, listed) for part in (side[:2], side[2:])] for side in sides)
    tokens = Tokens(*(Ragged(pa.chunked_array(parts)) for parts in chunks))
    pairs = st.tuples(st.integers(0, len(queries) - 1), st.integers(0, len(documents) - 1))
    query, document = np.array(data.draw(st.lists(pairs, min_size=1, max_size=9))).T
    inputs = PairInputs(tokens, query, document, template)
    rows, network = np.arange(len(query))[::-1], network_of(kind).to(device)
    found = PairInputs(tokens, query, document, template, network=network).collate(rows, np.array([0]))
    expected = flatten(inputs.collate(rows, np.array([0])), network)
    assert found.keys() == expected.keys()
    assert found[SEQUENCES].lengths == expected[SEQUENCES].lengths
    for name in found.keys() - {SEQUENCES}:
        assert torch.equal(found[name], expected[name]), name
    ids = [[2, *queries[q], 3, 3, *documents[d], 3] for q, d in zip(query[rows], document[rows], strict=True)]
    for row, start in zip(ids, found[SEQUENCES].first.tolist(), strict=True):
        assert found["input_ids"][0, start : start + len(row)].tolist() == row
