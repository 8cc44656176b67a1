"""Arguments of a wrong type, out of range or unknown are named in one line, before any work."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rerank
from rerank.collections import as_qrels
from tests.builders import make_lists

NAN, INF = float("nan"), float("inf")


class Things:
    """Holds lists and models for the cases."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder = folder
        self.frame = make_lists(folder / "made", [4] * 6).to_dataframe()
        self.lists = rerank.Lists.from_dataframe(self.frame)
        self.unjudged = rerank.Lists.from_dataframe(self.frame.drop(columns="grade"))
        self.model = rerank.CrossEncoder(str(model), query_length=8, document_length=24)
        self.vectors, self.network = (rerank.MLP(hidden=[4], columns=["bm25"]) for _ in range(2))
        self.network.prepare(self.lists, 42)
        (folder / "full").mkdir()
        (folder / "full" / "letter.txt").write_text("dear")

    def train(self, model: Any = None, lists: Any = None, loss: Any = "usual", **settings: Any) -> Any:
        loss = rerank.SmoothINDCG() if isinstance(loss, str) and loss == "usual" else loss
        lists = self.lists if lists is None else lists
        return rerank.train(model or self.model, lists, loss, **{"output": self.folder / "run"} | settings)

    def evaluate(self, run: Any = "bm25", **settings: Any) -> Any:
        return rerank.evaluate(self.lists, {"x": run}, **settings)

    def rerank(self, lists: Any = None, **settings: Any) -> Any:
        return rerank.rerank_lists(self.model, self.lists if lists is None else lists, **settings)


CASES: dict[str, tuple[Callable[[Things], Any], str]] = {
    "a dictionary of rates": (lambda t: t.train(optimization={"head_lr": 1e-3}), r"expected an Optimization"),
    "no training lists": (lambda t: t.train(lists=t.lists.select([])), r"lists: .* has no lists"),
    "validation lists without judgments": (lambda t: t.train(validation=t.unjudged), r"validation: .* no judgments"),
    "the training lists to validate on": (lambda t: t.train(validation=t.lists, output=t.folder / "same"), r"6 of 6"),
    "no output": (lambda t: t.train(output=None), r"output: expected text or a Path, not None"),
    "no loss": (lambda t: t.train(loss=None, output=t.folder / "none"), r"loss: a network needs one"),
    "the last of trees": (lambda t: t.train(rerank.LightGBM(), select_epoch_by="last"), "by: is for networks"),
    "patience": (lambda t: t.train(select_epoch_by="last", patience=2), "patience: has no effect"),
    "a target that is not there": (
        lambda t: t.train(loss=rerank.Term(rerank.MSE(), target="teacher"), output=t.folder / "target"),
        r"has no column 'teacher'; there are bm25",
    ),
    "a name that nobody has": (lambda t: rerank.CrossEncoder("nobody/such-model"), r"such-model: neither a folder"),
    "a folder without a model": (lambda t: rerank.CrossEncoder(str(t.folder / "full")), r"not a model folder"),
    "an untrained network": (lambda t: rerank.rerank_lists(t.vectors, t.lists), r"MLP is not trained; train it first"),
    "columns that are not read": (lambda t: t.model.rank("a", ["b"], columns={"bm25": [1.0]}), r"columns: .*none"),
    "a folder that is not there": (lambda t: rerank.Lists.open("nowhere"), r"not a lists folder"),
    "scores of other lists": (lambda t: t.lists.run(np.zeros(2)), r"the shape \[2\]; .* has 24 candidates"),
    "no judgments": (lambda t: rerank.evaluate(t.unjudged, {"ours": np.zeros(24)}), r"has no judgments"),
    "a baseline that there is not": (lambda t: t.evaluate(baseline="bm52"), r"bm52: .* \(did you mean 'bm25'"),
    "a column or run file that is not there": (
        lambda t: rerank.evaluate(t.lists, ["bm26"]),
        r"bm26: no such run file, nor a column \(did you mean 'bm25'\?\); there are bm25",
    ),
    "a name for a model": (lambda t: t.train("MiniLM"), r"model: expected a model .* not 'MiniLM'"),
    "an experiment that is not there": (lambda t: rerank.experiment("x.yaml"), r"x\.yaml: no such file"),
    "an unknown setting": (lambda t: t.train(batchsize=4), r"no setting 'batchsize' \(did you mean 'batch_size'"),
    "a rate": (lambda t: t.train(lr=0.1), r"'lr'.* optimization=rerank\.Optimization\(encoder_lr=…\)"),
    "features without lists": (lambda t: t.network.predict([[0.5, 1.0]]), r"expected lists, not \[\[0\.5, 1\.0\]\]"),
    "a precision": (lambda t: t.model.predict(t.lists, precision="half"), "precision: expected 'auto'"),
    "one text for pairs": (lambda t: t.model.predict("a wing"), r"expected \(query, document\) pairs"),
    "no documents": (lambda t: t.model.rank("a", None), r"rank: expected documents, a list of texts, not None"),
    "scores in words": (lambda t: t.evaluate(["a"] * 24), r"x: expected numbers, or the name of a column"),
    "a frame to rerank": (lambda t: t.rerank(t.frame), r"lists: expected a rerank\.Lists or its folder"),
    "two monitors": (lambda t: t.train(monitor="nDCG@10 AP"), r"monitor: takes one measure, not nDCG@10 AP"),
    "judgments that are a list": (
        lambda t: as_qrels({"1": ["a"] * 1000}),
        r"^[^\n]{,60}expected a dictionary from document ids[^\n]{,80}$",  # the list itself is not in it
    ),
}
"""Each fault has a call, and a pattern of its line."""

FILES = (
    "a folder that is not there",
    "a column or run file that is not there",
    "a folder without a model",
    "an experiment that is not there",
)


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Things:
    return Things(tmp_path_factory.mktemp("arguments"), tiny_model)


@pytest.mark.parametrize("what", CASES)
def test_invalid_arguments_are_named_in_one_line(what: str, things: Things) -> None:
    call, message = CASES[what]
    with pytest.raises(rerank.UserError) as caught:
        call(things)
    text = str(caught.value)
    assert "\n" not in text and re.search(message, text), text
    assert isinstance(caught.value, FileNotFoundError) == (what in FILES)
    assert not any(things.folder.rglob("best")), "nothing was trained"
