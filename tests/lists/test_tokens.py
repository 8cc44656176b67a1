"""Tokens: those of the tokenizer, kept once."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from rerank.lists import Lists
from rerank.lists.tokens import Side, encode, tokenise
from rerank.models.folder import find_model
from tests.builders import make_lists

TOKENIZER = AutoTokenizer.from_pretrained(find_model("sentence-transformers/all-MiniLM-L6-v2"))


def test_tokenise_cuts_and_counts_long_texts(tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    found = tokenise(lists.store, TOKENIZER, query_length=2, document_length=15)
    texts = lists.store.documents.column("text").to_pylist()
    full = [TOKENIZER(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert [found.documents[i].tolist() for i in range(len(texts))] == [ids[:15] for ids in full]
    assert found.document_lengths.tolist() == [min(15, len(ids)) for ids in full]
    assert found.truncated == sum(len(ids) > 15 for ids in full) > 0
    assert set(found.query_lengths.tolist()) == {2}


def test_tokenise_caches_by_tokenizer_and_lengths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = make_lists(tmp_path)
    tokenise(lists.store, TOKENIZER, 8, 32)
    tokenise(lists.store, TOKENIZER, 8, 16)
    assert len(list((lists.store.folder / "tokens").iterdir())) == 2

    def fail(*_: object) -> None:
        raise AssertionError("tokenised again")

    monkeypatch.setattr("rerank.lists.tokens.encode", fail)
    lists = Lists.open(lists.store.folder)  # what the first store remembers is gone
    TOKENIZER(["called"], truncation=True, max_length=3, padding="max_length")  # leaves its settings behind
    tokenise(lists.store, TOKENIZER, 8, 32)
    with pytest.raises(AssertionError, match="again"):
        tokenise(lists.store, TOKENIZER, 8, 24)


def test_encode_keeps_a_tail_whole_and_counts_what_was_cut() -> None:
    side = Side(2, " ", " .")
    found, cut = encode(TOKENIZER, side, ["wing", "wing flow", "wing flow heat", ""])
    read = [TOKENIZER.decode(ids) for ids in found]
    assert read == ["wing.", "wing flow.", "wing flow.", "."] and cut == 1
