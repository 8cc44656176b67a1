"""Pairs are joined as the tokenizer joins them; laid end to end, they are the padded ones without padding."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.processors import RobertaProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from rerank.kernels.flat import SEQUENCES
from rerank.kernels.packing import fill, pack
from rerank.lists.tokens import Tokens
from rerank.models.folder import find_model
from rerank.models.text.pairs import PairInputs, PairTemplate
from rerank.storage.arrow import Ragged
from tests.kernels.flat import flatten, network_of

SPECIAL = np.array([2]), np.array([3, 3]), np.array([3])
TEXTS = st.lists(st.lists(st.integers(1, 9), max_size=9), min_size=1, max_size=7)  # 1 is the padding's, in a text, too
TOKENIZER = AutoTokenizer.from_pretrained(find_model("sentence-transformers/all-MiniLM-L6-v2"))
WORDS = st.text("abcdefgh ", max_size=30)


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


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=5))
def test_pairs_are_joined_as_the_tokenizer_does(pairs: list[tuple[str, str]]) -> None:
    sides = [
        [np.asarray(TOKENIZER(text, add_special_tokens=False)["input_ids"], dtype=np.int64) for text in texts]
        for texts in zip(*pairs, strict=True)
    ]
    ours = PairTemplate.of(TOKENIZER).join(*sides)
    theirs = TOKENIZER([q for q, _ in pairs], [d for _, d in pairs], padding=True, return_tensors="np")
    assert set(ours) == set(theirs)
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name])


def test_pairs_of_roberta_have_two_separators_between_them() -> None:
    backend = Tokenizer(WordLevel({"<s>": 0, "<pad>": 1, "</s>": 2, "a": 3, "b": 4}))
    backend.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = ["input_ids", "attention_mask"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", model_input_names=names)
    template = PairTemplate.of(tokenizer)
    assert template.types is None
    joined = template.join([np.array([3])], [np.array([4, 4])])
    assert joined["input_ids"].tolist() == [[0, 3, 2, 2, 4, 4, 2]]


@given(st.lists(st.integers(1, 200), max_size=60), st.integers(1, 2000))
def test_packing_takes_everything_once_within_the_budget(lengths: list[int], budget: int) -> None:
    array = np.asarray(lengths, dtype=np.int64)
    chunks = pack(array, budget)
    assert sorted(int(i) for chunk in chunks for i in chunk) == list(range(len(lengths)))
    for chunk in chunks:
        assert len(chunk) == 1 or len(chunk) * array[chunk].max() <= budget
    heads = [int(array[chunk].max()) for chunk in chunks]
    assert heads == sorted(heads, reverse=True)


@given(st.lists(st.integers(1, 200), max_size=60), st.integers(1, 2000))
def test_chunks_without_padding_are_as_few_as_can_be(lengths: list[int], budget: int) -> None:
    array = np.asarray(lengths, dtype=np.int64)
    chunks = fill(array, budget)
    assert sorted(int(i) for chunk in chunks for i in chunk) == list(range(len(lengths)))
    sums = [int(array[chunk].sum()) for chunk in chunks]
    assert all(total <= budget or len(chunk) == 1 for total, chunk in zip(sums, chunks, strict=True))
    for one, other, total in zip(chunks, chunks[1:], sums, strict=False):
        assert total + array[other[0]] > budget and array[one].min() >= array[other].max()
