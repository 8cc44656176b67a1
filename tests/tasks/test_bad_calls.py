"""Calls from Python that cannot work: each raises one line, and a kind that people catch."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import rerank
from rerank.collections.judgments import as_qrels

FRAME = pd.DataFrame(
    {
        "query_id": ["1", "1", "2"],
        "doc_id": ["a", "b", "a"],
        "query": ["x", "x", "y"],
        "text": ["s", "t", "s"],
        "grade": [1, 0, 1],
        "bm25": [2.0, 1.0, 3.0],
    }
)


class Things:
    """What the cases use."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder = folder
        self.lists = rerank.Lists.from_dataframe(FRAME)
        self.unjudged = rerank.Lists.from_dataframe(FRAME.drop(columns="grade"))
        self.model = rerank.CrossEncoder(str(model), query_length=8, document_length=24)
        self.start = rerank.CrossEncoder(str(model), query_length=8, document_length=24, start="bm25")
        self.loss = rerank.SmoothINDCG()
        self.mlp = rerank.MLP(hidden=[4], columns=["bm25"])

    def train(self, model: Any = None, lists: Any = None, loss: Any = None, **settings: Any) -> Any:
        model, lists = model or self.model, self.lists if lists is None else lists
        return rerank.train(model, lists, loss or self.loss, output=self.folder / "run", **settings)


CASES: dict[str, tuple[Callable[[Things], Any], str]] = {
    # lists
    "a frame without ids": (lambda t: rerank.Lists.from_dataframe(FRAME[["text"]]), r"no column query_id"),
    "a column that is not there": (
        lambda t: rerank.Lists.from_dataframe(FRAME, columns={"text": "txt"}),
        r"no column 'txt' \(did you mean 'text'",
    ),
    "a field that there is not": (
        lambda t: rerank.Lists.from_dataframe(FRAME, columns={"grades": "grade"}),
        r"no field 'grades' \(did you mean 'grade'",
    ),
    "columns of two lengths": (
        lambda t: rerank.Lists.from_dataframe({"query_id": ["1"], "doc_id": ["a", "b"]}),
        r"is not a table",
    ),
    "a number for lists": (lambda t: rerank.Lists.from_dataframe(5), r"int is not a table"),
    "a file that is not there": (
        lambda t: rerank.Lists.from_dataframe("nowhere.parquet"),
        r"nowhere\.parquet: no such",
    ),
    "a file of no kind": (lambda t: rerank.Lists.from_dataframe(__file__), r"must end in \.parquet"),
    "a folder that is not there": (lambda t: rerank.Lists.open("nowhere"), r"not a lists folder"),
    "a column that the lists lack": (lambda t: t.lists.column("splade"), r"has no column 'splade'; there are bm25"),
    "scores of other lists": (lambda t: t.lists.run(np.zeros(2)), r"the shape \[2\]; .* has 3 candidates"),
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
    "texts without ids": (lambda t: rerank.Texts(["a", "b"], {"1": "x"}), r"documents: expected texts by id"),
    # evaluate
    "no judgments": (lambda t: rerank.evaluate(t.unjudged, {"ours": np.zeros(3)}), r"has no judgments"),
    "an unknown measure": (
        lambda t: rerank.evaluate(t.lists, {"ours": np.zeros(3)}, measures="nDGC@10"),
        r"unknown measure 'nDGC' \(did you mean 'nDCG'",
    ),
    "a baseline that there is not": (
        lambda t: rerank.evaluate(t.lists, {"ours": np.zeros(3)}, baseline="bm52"),
        r"baseline 'bm52': .* \(did you mean 'bm25'",
    ),
    "runs without names": (lambda t: rerank.evaluate(t.lists, np.zeros(3)), r"expected runs by name"),
    "a run file that is not there": (lambda t: rerank.evaluate(t.lists, ["x.trec"]), r"x\.trec: no such run file"),
    "a column or run file that is not there": (
        lambda t: rerank.evaluate(t.lists, ["bm26"]),
        r"bm26: no such run file, nor a column \(did you mean 'bm25'\?\); there are bm25",
    ),
    # train
    "the second lists are not judged": (
        lambda t: t.train(lists=[t.lists, t.unjudged]),
        r"lists, number 2 of 2: .* has no judgments",
    ),
    "two monitors": (lambda t: t.train(monitor="nDCG@10 AP"), r"monitor: takes one measure, not nDCG@10 AP"),
    "a name for a model": (lambda t: t.train("MiniLM"), r"model: expected a model .* not 'MiniLM'"),
    "a name for a loss": (lambda t: t.train(loss="SmoothINDCG"), r"loss: expected a loss .* not 'SmoothINDCG'"),
    "a frame for lists": (lambda t: t.train(lists=FRAME), r"lists: expected lists, .* not a DataFrame"),
    "an unknown setting": (lambda t: t.train(batchsize=4), r"no setting 'batchsize' \(did you mean 'batch_size'"),
    "a word for a number": (lambda t: t.train(batch_size="many"), r"batch_size.*many"),
    "a share of 2": (lambda t: t.train(validation=2), r"a share must be above 0 and below 1, not 2"),
    "a sampler of no kind": (
        lambda t: t.train(sampler="Full"),
        r"sampler: expected a Sampler.* not 'Full'",
    ),
    "weights of other lists": (lambda t: t.train(weights=[1, 2]), r"a number above 0 for each of 1 training lists"),
    "nothing to learn": (lambda t: t.train(lists=t.unjudged), r"has no judgments"),
    # models in use
    "a model that is not there": (lambda t: rerank.CrossEncoder("./nowhere"), r"nowhere: no such model folder"),
    "one text for pairs": (lambda t: t.model.predict("a wing"), r"expected \(query, document\) pairs"),
    "texts for pairs": (lambda t: t.model.predict(["a wing"]), r"pair 0: expected \(query, document\)"),
    "pairs for columns": (lambda t: t.start.predict([("a", "b")]), r"starts from bm25, which pairs do not have"),
    "one text for documents": (lambda t: t.model.rank("a", "b"), r"expected documents, a list of texts"),
    "ranking without columns": (lambda t: t.start.rank("a", ["b"]), r"columns: the model starts from column bm25"),
    "an array of one dimension": (lambda t: t.mlp.predict(np.zeros(3)), r"the shape \[n, features\], not \[3\]"),
    "groups that do not add up": (
        lambda t: t.mlp.predict(np.zeros((3, 1)), groups=[1, 1]),
        r"the groups add up to 2 rows, the array has 3",
    ),
    "features of another number": (lambda t: t.mlp.predict(np.zeros((3, 2))), r"reads 1 features, the array has 2"),
    "words for features": (lambda t: t.mlp.predict([["a"]]), r"expected lists, or numbers"),
}
"""What is wrong, the call, and what its line has to say."""

FILES = (
    "a file that is not there",
    "a folder that is not there",
    "a run file that is not there",
    "a column or run file that is not there",
)


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Things:
    return Things(tmp_path_factory.mktemp("calls"), tiny_model)


@pytest.mark.parametrize("what", CASES)
def test_one_line_says_what_is_wrong(what: str, things: Things) -> None:
    call, message = CASES[what]
    with pytest.raises(ValueError) as caught:
        call(things)
    text = str(caught.value)
    assert isinstance(caught.value, rerank.UserError) and "\n" not in text
    assert re.search(message, text), text
    assert isinstance(caught.value, FileNotFoundError) == (what in (*FILES, "a model that is not there"))
    assert not any(path for path in things.folder.rglob("best")), "nothing was trained"
