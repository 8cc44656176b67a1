"""The Python of the README and of the pages about it: run, and what it says of its results is so."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rerank
from rerank.lists import Lists
from rerank.models.text.cross_encoder import CrossEncoder
from tests.builders import make_decoder, make_lists
from tests.conftest import ROOT

PAGES = (
    "README.md",
    "docs/start.md",
    "docs/from-sentence-transformers.md",
    "docs/python.md",
    "docs/lists.md",
    "docs/training.md",
    "docs/losses.md",
    "docs/calibration.md",
    "docs/integrations.md",
    "docs/decoders.md",
)
DEFAULT_PAGES = ("README.md", "docs/start.md")
BLOCKS = [
    pytest.param(code, id=f"{page}-{number}", marks=() if page in DEFAULT_PAGES else pytest.mark.slow)
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))
]


def an_adapter(place: Path) -> None:
    base = make_decoder(place / "base")
    (place / "runs" / "x" / "best").mkdir(parents=True)
    rerank.Decoder(str(base), template="qwen3-reranker", lora=rerank.LoRA(rank=2)).save(place / "runs" / "x" / "best")


PREPARED: dict[str, Callable[[Path], None]] = {
    "model.merge()": an_adapter,
}
"""What a block that has these words reads, besides the lists and models of all."""

CHECKS = {
    'output="runs/first"': '"test" in run.measures and Path("runs/first/best").is_dir()',
    "CrossEncoderTrainer(": 'rerank.CrossEncoder("runs/theirs/final").predict([("heat", "a jet")]).shape == (1,)',
    'output="runs/ours"': "same_in_sentence_transformers(last)",
    'lists.save("lists/mine")': 'Lists.open("lists/mine").grades.tolist() == frame["grade"].tolist()',
    "run.model.predict(lists)": "(scores.dtype, len(scores)) == (np.float32, lists.size)",
    "run.history": 'all(word in str(last) for word in ("ours", "bm25", "nDCG@10", "AP"))',
    "\nmodel.rank(": 'last is None or last[0]["score"] >= last[1]["score"]',
    "loss(scores, labels, mask).backward()": "(scores.grad.abs().sum(dim=1) > 0).all()",
    "dl20.parquet": 'Path("dl20.parquet").is_file() and Path("splade.trec").is_file()',
    "\nlists.to_dataframe()": 'last["text"].tolist() == frame.filter(["passage", "text"]).iloc[:, 0].tolist()',
    "pt.Experiment": '[*last["name"]] == ["first", "reranked"]',
    "lists.matrix": 'last[1].shape == (lists.size, 2) and (last[1][:, 0] == lists.column("bm25")).all()',
    "fuse(runs": "last.keys() == {*lists.query_ids}",
    "loss(scores, labels, mask=None": "0 < float(last) < 1",
    ".probabilities(lists)": "last.shape == (lists.size,) and 0 < last.min() <= last.max() < 1",
    "write_ranker(": 'last[0]["score"] >= last[1]["score"] and scores.size == lists.size',
    "model.merge()": 'rerank.Decoder("merged").predict([("what is a wing", "a wing gives lift")]).shape == (1,)',
}
"""What holds after a block that has these words, by its names and ``last``, the value of its last expression."""


def same_in_sentence_transformers(ranking: Any) -> bool:
    from sentence_transformers import CrossEncoder as Theirs

    pair = ("what is a wing", "a wing gives lift")
    (same,) = Theirs("runs/ours/best").predict([pair], activation_fn=torch.nn.Identity())
    (ours,) = (hit["score"] for hit in ranking if hit["corpus_id"] == 1)
    return bool(ours == pytest.approx(float(same), abs=0.02))


@pytest.mark.parametrize("code", BLOCKS)
def test_examples_do_what_they_say(
    code: str, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    for package, words in {"pyterrier": "pyterrier", "optimum": 'backend="onnx"'}.items():
        if words in code:
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    model = CrossEncoder(str(tiny_model), query_length=8, document_length=24)
    model.save(tmp_path / "runs" / "scifact-smoothi" / "best")
    start = CrossEncoder(str(tiny_model), query_length=8, document_length=24, start="bm25")
    start.save(tmp_path / "runs" / "scifact-start" / "best")
    shutil.copytree(tiny_model, tmp_path / "encoder")
    made = make_lists(tmp_path / "made")
    made.to_dataframe()[["query", "text", "grade", "bm25"]].to_csv(tmp_path / "candidates.csv", index=False)
    for name in ("train", "test"):
        shutil.copytree(tmp_path / "made" / "lists", tmp_path / "lists" / f"scifact-{name}")
    for name in ("new", "validation"):
        shutil.copytree(tmp_path / "made" / "lists", tmp_path / "lists" / name)
    if 'output="runs/mine"' not in code:  # it is trained elsewhere on the page
        model.save(tmp_path / "runs" / "mine" / "best")
    dl20 = Lists.open(shutil.copytree(tmp_path / "made" / "lists", tmp_path / "lists" / "dl20"))
    for seed, name in enumerate(("splade", "tasb")):
        dl20.store.add_column(name, np.random.default_rng(seed).random(dl20.size))
    for words, prepare in PREPARED.items():
        if words in code:
            prepare(tmp_path)
    tree, names = ast.parse(code), dict[str, Any]()
    end = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "an example", "exec"), names)
    names["last"] = eval(compile(ast.Expression(end.value), "an example", "eval"), names) if end else None
    checks = [check for words, check in CHECKS.items() if words in code]
    assert checks, "nothing is known of what this example gives"
    for check in checks:
        assert eval(check, globals() | names), check
