"""Rerankers that sentence-transformers saved, in the commands: ``rerank``, ``serve`` and ``auto``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rerank
from rerank.lists import Lists
from rerank.storage.arrow import Array
from tests.models.text.layouts import LAYOUTS, save_layout
from tests.serving.client import process

pytestmark = pytest.mark.slow

CLOSE = 2e-6


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("layouts")
    return {name: save_layout(name, place / name.replace(", ", "-").replace(" ", "-")) for name in LAYOUTS}


@pytest.fixture(scope="module")
def theirs(lists: Lists, folders: dict[str, Path]) -> dict[str, Array]:
    """Scores of all candidates by sentence-transformers; those of two labels as the difference of their logits."""
    from sentence_transformers import CrossEncoder
    from torch.nn import Identity

    frame = lists.to_dataframe()
    pairs = list(zip(frame["query"], frame["text"], strict=True))
    found = {}
    for name, folder in folders.items():
        model = CrossEncoder(str(folder), device="cpu", local_files_only=True)
        scores = np.asarray(model.predict(pairs, activation_fn=Identity()))
        found[name] = scores if scores.ndim == 1 else scores[:, 1] - scores[:, 0]
    return found


def test_rerank_orders_as_sentence_transformers(
    lists: Lists, folders: dict[str, Path], theirs: dict[str, Array]
) -> None:
    ids = lists.to_dataframe()[["query_id", "doc_id"]].itertuples(index=False)
    places = {tuple(row): place for place, row in enumerate(ids)}
    for name, folder in folders.items():
        run = rerank.rerank_lists(str(folder), lists, precision="fp32")
        for query, ranked in run.items():
            scores = theirs[name][[places[query, document.id] for document in ranked]]
            assert (np.diff(scores) < CLOSE).all(), name


def test_serve_scores_as_sentence_transformers(
    lists: Lists, folders: dict[str, Path], theirs: dict[str, Array]
) -> None:
    frame = lists.to_dataframe()
    first = frame[frame["query_id"] == frame["query_id"][0]]
    named = [f"{folder.name}={folder}" for folder in folders.values()]
    with process(*named, "--precision=fp32") as client:
        for name, folder in folders.items():
            scores = client.scores(folder.name, first["query"].iloc[0], first["text"].tolist())
            np.testing.assert_allclose(scores, theirs[name][: len(first)], atol=CLOSE, err_msg=name)


def test_auto_measures_the_scores_of_predict(lists: Lists, folders: dict[str, Path], tmp_path: Path) -> None:
    """``auto`` and ``predict`` compute in the precision that is fast on this machine."""
    names = [str(folder) for folder in folders.values()]
    found: Any = rerank.auto(lists, models=names, output=tmp_path / "auto", epochs=0, monitor="nDCG@10")
    shown = found.table.set_index("candidate")["validation"]
    for folder in folders.values():
        scores = rerank.load(str(folder)).predict(lists)
        expected = rerank.evaluate(lists, {"ours": scores}, "nDCG@10")["ours", "nDCG@10"]
        assert shown[folder.name] == pytest.approx(expected, abs=1e-6), folder.name
