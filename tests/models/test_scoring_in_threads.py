from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rerank.errors import UserError
from rerank.kernels.flat import SEQUENCES
from rerank.lists import Lists
from rerank.models.scorer import score_lists
from rerank.models.text.cross_encoder import CrossEncoder
from tests.builders import make_model, with_positions


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT whose tokenizer allows 24 positions, so that half of the documents are long."""
    return with_positions(make_model(tmp_path_factory.mktemp("model")), 24)


@pytest.fixture
def threads() -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


def pairs_of(batch: Mapping[str, Any]) -> int:
    return len(batch[SEQUENCES].lengths) if SEQUENCES in batch else len(batch["input_ids"])


class Watched(CrossEncoder):
    """Counts the pairs of each pass; may fail, once."""

    def score(self, batch: Mapping[str, Tensor]) -> Tensor:
        self.seen.append(pairs_of(batch))
        if len(self.seen) == self.fails_at:
            raise RuntimeError("an error of its own")
        if len(self.seen) > self.fails_at:
            time.sleep(0.2)  # so that the other threads notice
        return super().score(batch)

    seen: list[int]
    fails_at = 10**9


def watched(folder: Path) -> Watched:
    model = Watched(str(folder), query_length=8, document_length=12)
    model.seen = []
    return model


def threads_of_a_new_thread() -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def test_scores_are_those_of_one_thread(model_folder: Path, lists: Lists, threads: int) -> None:
    model = CrossEncoder(str(model_folder), "cls", query_length=8, document_length=40, long="cls_mean")
    inputs = model.inputs(lists)
    found = [score_lists(model, inputs, lists, budget=100, precision="fp32") for _ in range(5)]
    assert threads_of_a_new_thread() == threads
    torch.set_num_threads(1)
    expected = score_lists(model, inputs, lists, budget=100, precision="fp32")
    for scores in found:
        np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert np.ptp(expected) > 0.1


def test_error_stops_all_threads(model_folder: Path, lists: Lists, threads: int) -> None:
    model = watched(model_folder)
    inputs = model.inputs(lists)
    assert len(inputs.chunks(lists.row_numbers, lists.offsets[:-1], 24)) > 50
    model.fails_at = 4
    model.train()
    with pytest.raises(RuntimeError, match="an error of its own"):
        score_lists(model, inputs, lists, budget=24)
    assert len(model.seen) < 4 + 3 * threads, "the other threads stopped soon"
    assert model.training
    assert threads_of_a_new_thread() == threads


def test_scoring_needs_less_memory_with_one_thread_and_smaller_chunks(
    model_folder: Path, lists: Lists, threads: int, caplog: pytest.LogCaptureFixture
) -> None:
    model = watched(model_folder)
    expected = score_lists(model, model.inputs(lists), lists, precision="fp32")
    plain, lock, used = model.score, threading.Lock(), [0]

    def score(batch: Mapping[str, Tensor]) -> Tensor:
        tokens = batch["input_ids"].numel()
        with lock:
            used[0] += tokens
        try:
            time.sleep(0.01)
            if used[0] > 100:
                raise MemoryError
            return plain(batch)
        finally:
            with lock:
                used[0] -= tokens

    model.score = score
    with caplog.at_level(logging.WARNING, "rerank"):
        found = score_lists(model, model.inputs(lists), lists, precision="fp32", budget=400)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    said = [record.getMessage() for record in caplog.records if "out of memory" in record.getMessage()]
    assert said and all("continuing with one thread and a budget of" in line for line in said)
    used[0] = 1000
    with pytest.raises(UserError, match="one document at a time"):
        score_lists(model, model.inputs(lists), lists, budget=400)
    assert threads_of_a_new_thread() == threads


def test_scoring_computes_equal_pairs_once(model_folder: Path) -> None:
    model = watched(model_folder)
    texts = ["", "heat transfer", "", "a plate", "heat transfer", ""]
    ranked = model.rank("wing", texts)
    assert sum(model.seen) == 3
    scores = {entry["corpus_id"]: entry["score"] for entry in ranked}
    assert scores[0] == scores[2] == scores[5] and scores[1] == scores[4]
    ties = [entry["corpus_id"] for entry in ranked if not texts[entry["corpus_id"]]]
    assert ties == [0, 2, 5], "ties keep the order in which documents are given"
    model.seen = []
    pairs = [("wing", "heat"), ("jet", "heat"), ("wing", "heat"), ("heat", "wing")]
    found = model.predict(pairs)
    assert found[0] == found[2] and len(set(found.tolist())) == 3
    assert sum(model.seen) == 3
