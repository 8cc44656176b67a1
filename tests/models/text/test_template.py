from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.processors import RobertaProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from rerank.kernels.packing import fill, pack
from rerank.models.text.pairs import PairTemplate
from rerank.models.weights import find_model

TOKENIZER = AutoTokenizer.from_pretrained(find_model("sentence-transformers/all-MiniLM-L6-v2"))
WORDS = st.text("abcdefgh ", max_size=30)


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


def test_roberta_style_separators() -> None:
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
