"""Arguments of a wrong type, beyond what they may be, or unknown: each is one line that names it, before any work."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
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
    "a monitor that counts": (lambda t: t.train(monitor="NumRel"), r"monitor: NumRel only counts"),
    "no measures": (lambda t: t.train(measures=""), r"no measure given"),
    "no training lists": (lambda t: t.train(lists=t.lists.select([])), r"lists: .* has no lists"),
    "an empty list of lists": (lambda t: t.train(lists=[]), r"lists: expected one or more lists"),
    "validation lists without judgments": (lambda t: t.train(validation=t.unjudged), r"validation: .* no judgments"),
    "the training lists to validate on": (lambda t: t.train(validation=t.lists, output=t.folder / "same"), r"6 of 6"),
    "a share below 0": (lambda t: t.train(validation=-0.1), r"validation: a share must be above 0 .*, not -0\.1"),
    "no output": (lambda t: t.train(output=None), r"output: expected text or a Path, not None"),
    "no loss": (lambda t: t.train(loss=None, output=t.folder / "none"), r"loss: a network needs one"),
    "a class of losses": (lambda t: t.train(loss=rerank.ListNet), r"loss: .* not the class ListNet itself"),
    "the last epoch of trees": (
        lambda t: t.train(rerank.LightGBM(columns=["bm25"]), epoch_by="last"),
        r"epoch_by: is for networks",
    ),
    "losses without terms": (lambda t: t.train(loss=[rerank.ListNet(), rerank.MSE()]), r"loss: expected a loss"),
    "no terms": (lambda t: t.train(loss=[]), r"loss\.terms: name one term"),
    "a term of a name": (lambda t: rerank.Term("MSE"), r"Term\.loss: expected a Loss, not 'MSE'"),  # type: ignore[arg-type]
    "a target that is not there": (
        lambda t: t.train(loss=rerank.Term(rerank.MSE(), target="teacher"), output=t.folder / "target"),
        r"has no column 'teacher'; there are bm25",
    ),
    # models
    "a name that nobody has": (lambda t: rerank.CrossEncoder("nobody/such-model"), r"such-model: neither a folder"),
    "a folder without a model": (lambda t: rerank.CrossEncoder(str(t.folder / "full")), r"not a model folder"),
    "a start from nothing": (lambda t: t.train(t.text(start="splade"), output=t.folder / "s"), r"no column 'splade'"),
    # evaluate
    "scores in words": (lambda t: t.evaluate(["a"] * 24), r"x: expected numbers, or the name of a column"),
    "scores that are NaN": (lambda t: t.evaluate(np.full(24, NAN)), r"not a number"),
    "an unknown correction": (lambda t: t.evaluate(correction="bonf"), r"correction: expected 'none', 'bonferroni' or"),
    "a measure that is a number": (lambda t: t.evaluate(measures=5), r"measures: expected names .* not 5"),
    # models in use
    "a frame to rerank": (lambda t: t.rerank(t.frame), r"lists: expected a rerank\.Lists or its folder"),
    "no model": (lambda t: rerank.rerank_lists(None, t.lists), r"model: expected a rerank\.Model .*, not None"),
    "an untrained network": (
        lambda t: rerank.rerank_lists(t.vectors, t.lists),
        r"model: MLP is not trained; train it first",
    ),
    "a budget of 0": (lambda t: t.model.predict([("a", "b")], budget=0), r"budget: must be at least 1, not 0"),
    "a document that is NaN": (lambda t: t.model.rank("a", ["b", NAN]), r"pair 1: expected \(query, document\)"),
    "no documents": (lambda t: t.model.rank("a", None), r"rank: expected documents, a list of texts, not None"),
    "columns that are not read": (lambda t: t.model.rank("a", ["b"], columns={"bm25": [1.0]}), r"columns: .*none"),
    "columns in words": (lambda t: t.start.rank("a", ["b"], columns={"bm25": ["x"]}), r"columns: bm25 .*than numbers"),
    "columns without an end": (lambda t: t.start.rank("a", ["b"], columns={"bm25": [INF]}), r"columns: bm25 has inf"),
    # lists
    "a folder that is not there": (lambda t: rerank.Lists.open("nowhere"), r"not a lists folder"),
    "a column that the lists lack": (lambda t: t.lists.column("splade"), r"has no column 'splade'; there are bm25"),
    "scores of other lists": (lambda t: t.lists.run(np.zeros(2)), r"the shape \[2\]; .* has 24 candidates"),
    # judgments and runs
    "a half grade": (lambda t: as_qrels({"1": {"a": 0.5}}), r"grade 0\.5; expected a whole number"),
    "judgments that are a list": (
        lambda t: as_qrels({"1": ["a"] * 1000}),
        r"^[^\n]{,60}expected a dictionary from document ids[^\n]{,80}$",  # the list itself is not in it
    ),
    "judgments of no form": (lambda t: as_qrels(5), r"int holds no judgments"),
    "a run of words": (lambda t: rerank.as_run({"1": {"a": "high"}}), r"score 'high'; expected a finite number"),
    "a run of documents alone": (lambda t: rerank.as_run({"1": ["abc"]}), r"expected documents with their scores"),
    "a run with a document twice": (lambda t: rerank.as_run({"1": [("a", 2), ("a", 1)]}), r"document 'a' twice"),
    "a run of no form": (lambda t: rerank.as_run(5), r"int is not a run"),
    # retrieve
    "an unknown collection": (lambda t: rerank.retrieve("beir/scifcat/train"), r"did you mean 'beir/scifact/train'"),
    "a collection of no form": (lambda t: rerank.retrieve(5), r"int has no name"),  # type: ignore[arg-type]
    "a class that is not there": (lambda t: rerank.retrieve("json.Decoder"), r"unknown collection 'json\.Decoder'"),
    "titles of no number": (
        lambda t: rerank.retrieve(rerank.Texts({"a": "A\nb"}, {"q": "x"}), queries="titles:some"),
        r"titles:2000",
    ),
    "texts without ids": (lambda t: rerank.Texts(["a", "b"], {"1": "x"}), r"documents: expected texts by id"),
    # evaluate
    "no judgments": (lambda t: rerank.evaluate(t.unjudged, {"ours": np.zeros(24)}), r"has no judgments"),
    "an unknown measure": (lambda t: t.evaluate(measures="nDGC@10"), r"'nDGC' \(did you mean 'nDCG'"),
    "a baseline that there is not": (lambda t: t.evaluate(baseline="bm52"), r"'bm52': .* \(did you mean 'bm25'"),
    "a run file that is not there": (lambda t: rerank.evaluate(t.lists, ["x.trec"]), r"x\.trec: no such run file"),
    "a column or run file that is not there": (
        lambda t: rerank.evaluate(t.lists, ["bm26"]),
        r"bm26: no such run file, nor a column \(did you mean 'bm25'\?\); there are bm25",
    ),
    "the second lists are not judged": (
        lambda t: t.train(lists=[t.lists, t.unjudged]),
        r"lists, number 2 of 2: .* has no judgments",
    ),
    "two monitors": (lambda t: t.train(monitor="nDCG@10 AP"), r"monitor: takes one measure, not nDCG@10 AP"),
    "a name for a model": (lambda t: t.train("MiniLM"), r"model: expected a model .* not 'MiniLM'"),
    "a frame for lists": (lambda t: t.train(lists=t.frame), r"lists: expected lists, .* not a DataFrame"),
    "an experiment that is not there": (lambda t: rerank.experiment("x.yaml"), r"x\.yaml: no such file"),
    "an unknown setting": (lambda t: t.train(batchsize=4), r"no setting 'batchsize' \(did you mean 'batch_size'"),
    # what other libraries call it
    "a rate": (lambda t: t.train(lr=0.1), r"'lr'.* optimization=rerank\.Optimization\(encoder_lr=…, head_lr=…\)"),
    "a rate in full": (lambda t: t.train(learning_rate=0.1), r"'learning_rate'.*Optimization\(encoder_lr=…, head_lr"),
    "a warm-up": (lambda t: t.train(warmup_ratio=0.1), r"no setting 'warmup_ratio'.*Optimization\(warmup=…\)"),
    "epochs": (lambda t: t.train(num_train_epochs=1), r"no setting 'num_train_epochs' \(did you mean 'epochs'"),
    # models in use
    "one text for pairs": (lambda t: t.model.predict("a wing"), r"expected \(query, document\) pairs"),
    "one text for documents": (lambda t: t.model.rank("a", "b"), r"expected documents, a list of texts"),
    "an array of one dimension": (lambda t: t.network.predict(np.zeros(3)), r"the shape \[3, 1\], .*, not \[3\]"),
    "groups that do not add up": (
        lambda t: t.network.predict(np.zeros((3, 1)), groups=[1, 1]),
        r"the shape \[2, 1\], .*, not \[3, 1\]",
    ),
    "features of another number": (
        lambda t: t.network.predict(np.zeros((3, 2))),
        r"the shape \[3, 1\], .*, not \[3, 2\]",
    ),
}
"""What is wrong, the call, and what its line has to say."""

FILES = (
    "a folder that is not there",
    "a run file that is not there",
    "a column or run file that is not there",
    "a folder without a model",
    "an experiment that is not there",
)


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Things:
    return Things(tmp_path_factory.mktemp("arguments"), tiny_model)


@pytest.mark.parametrize("what", CASES)
def test_one_line_names_the_argument(what: str, things: Things) -> None:
    call, message = CASES[what]
    with pytest.raises(rerank.UserError) as caught:
        call(things)
    text = str(caught.value)
    assert "\n" not in text and re.search(message, text), text
    assert isinstance(caught.value, FileNotFoundError) == (what in FILES)
    assert not any(things.folder.rglob("best")), "nothing was trained"


def test_what_is_as_good_as_the_type_is_taken(things: Things, tmp_path: Path) -> None:
    """NumPy's numbers, tuples, a path."""
    model = rerank.MLP(hidden=(4,), columns=("bm25",))  # type: ignore[arg-type]
    steps = {"batch_size": np.int64(3), "epochs": np.int32(1)}
    run = rerank.train(model, (things.lists,), rerank.ListNet(), output=str(tmp_path / "run"), **steps)
    assert run.settings.batch_size == 3 and isinstance(run.settings.batch_size, int)
    assert len(pd.read_json(tmp_path / "run" / "metrics.jsonl", lines=True)) == 3
