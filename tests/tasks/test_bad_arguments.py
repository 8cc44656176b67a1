"""Arguments of a wrong type, beyond what they may be, or unknown: each is one line that names it, before any work."""

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
    """What the cases use."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.name = folder, str(model)
        self.frame = make_lists(folder / "made", [4] * 6).to_dataframe()
        self.lists = rerank.Lists.from_dataframe(self.frame)
        self.unjudged = rerank.Lists.from_dataframe(self.frame.drop(columns="grade"))
        self.model, self.start = self.text(), self.text(start="bm25")
        self.vectors, self.network = (rerank.MLP(hidden=[4], columns=["bm25"]) for _ in range(2))
        self.network.prepare(self.lists, 42)
        (folder / "full").mkdir()
        (folder / "full" / "letter.txt").write_text("dear")

    def text(self, **settings: Any) -> rerank.CrossEncoder:
        return rerank.CrossEncoder(self.name, **{"query_length": 8, "document_length": 24} | settings)

    def train(self, model: Any = None, lists: Any = None, loss: Any = "usual", **settings: Any) -> Any:
        loss = rerank.SmoothINDCG() if isinstance(loss, str) and loss == "usual" else loss
        lists = self.lists if lists is None else lists
        return rerank.train(model or self.model, lists, loss, **{"output": self.folder / "run"} | settings)

    def evaluate(self, run: Any = "bm25", **settings: Any) -> Any:
        return rerank.evaluate(self.lists, {"x": run}, **settings)

    def rerank(self, lists: Any = None, **settings: Any) -> Any:
        return rerank.rerank_lists(self.model, self.lists if lists is None else lists, **settings)


CASES: dict[str, tuple[Callable[[Things], Any], str]] = {
    # train
    "a dictionary of rates": (lambda t: t.train(optimization={"head_lr": 1e-3}), r"expected an Optimization"),
    "a monitor that is a list": (lambda t: t.train(monitor=["nDCG@10"]), r"monitor: expected text"),
    "no training lists": (lambda t: t.train(lists=t.lists.select([])), r"lists: .* has no lists"),
    "validation lists without judgments": (lambda t: t.train(validation=t.unjudged), r"validation: .* no judgments"),
    "the training lists to validate on": (lambda t: t.train(validation=t.lists, output=t.folder / "same"), r"6 of 6"),
    "no output": (lambda t: t.train(output=None), r"output: expected text or a Path, not None"),
    "no loss": (lambda t: t.train(loss=None, output=t.folder / "none"), r"loss: a network needs one"),
    "the last epoch of trees": (
        lambda t: t.train(rerank.LightGBM(columns=["bm25"]), select_epoch_by="last"),
        r"select_epoch_by: is for networks",
    ),
    "a term of a name": (lambda t: rerank.Term("MSE"), r"Term\.loss: expected a Loss, not 'MSE'"),  # type: ignore[arg-type]
    "a target that is not there": (
        lambda t: t.train(loss=rerank.Term(rerank.MSE(), target="teacher"), output=t.folder / "target"),
        r"has no column 'teacher'; there are bm25",
    ),
    # models
    "a name that nobody has": (lambda t: rerank.CrossEncoder("nobody/such-model"), r"such-model: neither a folder"),
    "a folder without a model": (lambda t: rerank.CrossEncoder(str(t.folder / "full")), r"not a model folder"),
    # evaluate
    "scores in words": (lambda t: t.evaluate(["a"] * 24), r"x: expected numbers, or the name of a column"),
    "scores that are NaN": (lambda t: t.evaluate(np.full(24, NAN)), r"not a number"),
    # models in use
    "a frame to rerank": (lambda t: t.rerank(t.frame), r"lists: expected a rerank\.Lists or its folder"),
    "an untrained network": (
        lambda t: rerank.rerank_lists(t.vectors, t.lists),
        r"model: MLP is not trained; train it first",
    ),
    "no documents": (lambda t: t.model.rank("a", None), r"rank: expected documents, a list of texts, not None"),
    "columns that are not read": (lambda t: t.model.rank("a", ["b"], columns={"bm25": [1.0]}), r"columns: .*none"),
    # lists
    "a folder that is not there": (lambda t: rerank.Lists.open("nowhere"), r"not a lists folder"),
    "a column that the lists lack": (lambda t: t.lists.column("splade"), r"has no column 'splade'; there are bm25"),
    "scores of other lists": (lambda t: t.lists.run(np.zeros(2)), r"the shape \[2\]; .* has 24 candidates"),
    # judgments and runs
    "judgments that are a list": (
        lambda t: as_qrels({"1": ["a"] * 1000}),
        r"^[^\n]{,60}expected a dictionary from document ids[^\n]{,80}$",  # the list itself is not in it
    ),
    "a run with a document twice": (lambda t: rerank.as_run({"1": [("a", 2), ("a", 1)]}), r"document 'a' twice"),
    # retrieve
    "an unknown collection": (lambda t: rerank.retrieve("beir/scifcat/train"), r"did you mean 'beir/scifact/train'"),
    # evaluate
    "no judgments": (lambda t: rerank.evaluate(t.unjudged, {"ours": np.zeros(24)}), r"has no judgments"),
    "a baseline that there is not": (lambda t: t.evaluate(baseline="bm52"), r"bm52: .* \(did you mean 'bm25'"),
    "a column or run file that is not there": (
        lambda t: rerank.evaluate(t.lists, ["bm26"]),
        r"bm26: no such run file, nor a column \(did you mean 'bm25'\?\); there are bm25",
    ),
    "two monitors": (lambda t: t.train(monitor="nDCG@10 AP"), r"monitor: takes one measure, not nDCG@10 AP"),
    "a name for a model": (lambda t: t.train("MiniLM"), r"model: expected a model .* not 'MiniLM'"),
    "an experiment that is not there": (lambda t: rerank.experiment("x.yaml"), r"x\.yaml: no such file"),
    "an unknown setting": (lambda t: t.train(batchsize=4), r"no setting 'batchsize' \(did you mean 'batch_size'"),
    # what other libraries call it
    "a rate": (lambda t: t.train(lr=0.1), r"'lr'.* optimization=rerank\.Optimization\(encoder_lr=…\)"),
    # models in use
    "one text for pairs": (lambda t: t.model.predict("a wing"), r"expected \(query, document\) pairs"),
    "features without lists": (lambda t: t.network.predict([[0.5, 1.0]]), r"expected lists, not \[\[0\.5, 1\.0\]\]"),
}
"""What is wrong, the call, and what its line has to say."""

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
