"""The Python of the README and of the pages about it: run, and what it says of its results is so."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import ttest_rel

import rerank
from rerank.evaluation.significance import bootstrap_interval
from rerank.lists import Lists
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.retrieval.fuse import fuse
from rerank.retrieval.runs import write_run
from rerank.retrieval.table import RunTable
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
    "docs/text.md",
    "docs/decoders.md",
    "docs/export.md",
)
BLOCKS = [
    pytest.param(code, id=f"{page}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))
]


def sensible(value: Any) -> None:
    """Numbers are finite, gradients are there, tables have rows, scores of a ranking fall."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        assert value.size and np.isfinite(value).all()
    elif isinstance(value, torch.Tensor):
        sensible(value.detach().float().numpy())
        assert not value.is_leaf or value.grad is None or (value.grad.abs().sum(dim=-1) > 0).all()
    elif isinstance(value, pd.DataFrame):
        assert len(value)
    elif isinstance(value, RunTable):
        for hits in value.values():
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    elif isinstance(value, rerank.Training):
        assert np.isfinite(value.history["loss"].dropna()).all() and (value.folder / "best").is_dir()
    elif isinstance(value, list) and value and isinstance(value[0], dict) and "score" in value[0]:
        assert [hit["score"] for hit in value] == sorted((hit["score"] for hit in value), reverse=True)


def mixed(names: dict[str, Any], ranking: Any) -> None:
    lists, scores = names["lists"], names["scores"]
    text = lists.run(names["rerank"].load("ranker", mix=False).predict(lists))
    theirs = fuse([lists.run(), lists.run("splade"), text], [0.3, 0.2, 0.5])
    ours = lists.run(scores)
    assert {q: [hit.id for hit in ours[q]] for q in ours} == {q: [hit.id for hit in theirs[q]] for q in theirs}
    assert sorted(hit["corpus_id"] for hit in ranking) == [0, 1]


def first_table(names: dict[str, Any], _: Any) -> None:
    assert {*names["train"].query_ids}.isdisjoint(names["test"].query_ids) and "test" in names["run"].measures


def theirs(names: dict[str, Any], _: Any) -> None:
    """What they trained can be trained further here."""
    assert CrossEncoder("runs/theirs/final").predict([("what is a wing", "a jet engine")]).shape == (1,)


def ours(names: dict[str, Any], ranking: Any) -> None:
    from sentence_transformers import CrossEncoder as Theirs

    same = Theirs("runs/ours/best").predict(
        [("what is a wing", "a wing gives lift")], activation_fn=torch.nn.Identity()
    )
    assert next(hit["score"] for hit in ranking if hit["corpus_id"] == 1) == pytest.approx(float(same[0]), abs=0.02)


def merged(names: dict[str, Any], _: Any) -> None:
    from transformers import AutoModelForCausalLM

    pair = [("what is a wing", "a wing gives lift")]
    whole = rerank.Decoder("merged").predict(pair)
    assert whole == pytest.approx(rerank.Decoder("runs/x/best").predict(pair), abs=0.05)
    assert AutoModelForCausalLM.from_pretrained("merged").num_parameters() > 0


def as_exported(names: dict[str, Any], _: Any) -> None:
    pairs = list(zip(names["queries"], names["documents"], strict=True))
    assert names["scores"] == pytest.approx(CrossEncoder("runs/x/best").text_scores(pairs, precision="fp32"), abs=1e-4)


def an_adapter(place: Path) -> None:
    base = make_decoder(place / "base")
    (place / "runs" / "x" / "best").mkdir(parents=True)
    rerank.Decoder(str(base), template="qwen3-reranker", lora=rerank.LoRA(rank=2)).save(place / "runs" / "x" / "best")


def to_export(place: Path) -> None:
    pytest.importorskip("onnxscript")
    shutil.copytree(place / "runs" / "scifact-smoothi" / "best", place / "runs" / "x" / "best")
    shutil.copytree(place / "made" / "lists", place / "lists" / "test")


def an_export(place: Path) -> None:
    to_export(place)
    rerank.export_model(place / "runs" / "x" / "best", place / "lists" / "test", place / "exported", ["onnx"])


def runs_of_scifact(place: Path) -> None:
    lists = Lists.open(place / "lists" / "scifact-test")
    for name in ("hinge", "hinge-mixed", "smoothi", "smoothi-mixed"):
        write_run(place / "runs" / f"{name}.trec", lists.run(), name)
    lists.store.add_column("cosine", np.random.default_rng(0).random(lists.size))


PREPARED: dict[str, Callable[[Path], None]] = {
    "model.merge()": an_adapter,
    "rerank.export_model(": to_export,
    'model.onnx")': an_export,
    "hinge-mixed": runs_of_scifact,
}
"""What a block that has these words reads, besides the lists and models of all."""

CHECKS: dict[str, Callable[[dict[str, Any], Any], None]] = {
    'output="runs/first"': first_table,
    "CrossEncoderTrainer(": theirs,
    'output="runs/ours"': ours,
    "write_ranker(": mixed,
    "model.merge()": merged,
    "InferenceSession(": as_exported,
}
"""What else holds after a block that has these words, given its names and the value of its last expression."""


@pytest.mark.parametrize("code", BLOCKS)
def test_examples_do_what_they_say(
    code: str, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package, words in {"pyterrier": "pyterrier", "optimum": 'backend="onnx"'}.items():
        if words in code:
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RERANK_HOME", str(tmp_path / "home"))
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
    names, last = run(code)
    for value in (*names.values(), *(last if isinstance(last, tuple) else (last,))):
        sensible(value)
    for place in re.findall(r'(?:output=|save\()"([^"]+)"', code):
        assert Path(place).exists()
    for words, check in CHECKS.items():
        if words in code:
            check(names, last)


def run(code: str) -> tuple[dict[str, Any], Any]:
    """The names of a piece of code after it has run, and the value of the expression that it ends with."""
    tree, names = ast.parse(code), dict[str, Any]()
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "an example", "exec"), names)
    return names, eval(compile(ast.Expression(last.value), "an example", "eval"), names) if last else None


def test_scifacts_table_is_that_of_the_kept_values() -> None:
    kept = pd.read_csv(ROOT / "configs" / "scifact" / "kept" / "minilm.tsv", sep="\t", index_col="query")
    seen = kept.pop("seen") == 1
    assert len(kept) == 300 and set(scifact()) == {name.replace("fused", "fused, no training") for name in kept}
    for column in kept:
        row = scifact()[column.replace("fused", "fused, no training")]
        parts = {"nDCG@10": kept[column], "196 seen": kept[column][seen], "104 unseen": kept[column][~seen]}
        assert {key: row[key] for key in parts} == {
            key: f"{values.mean():.4f}".removeprefix("0") for key, values in parts.items()
        }
        gain = f"{kept[column].mean() - kept['BM25'].mean():+.4f}".replace("0.", ".", 1)
        assert column == "BM25" or row["nDCG@10 against BM25"].startswith(f"{gain} [")


def test_the_readme_says_how_far_training_stays_behind_on_unseen_abstracts() -> None:
    behind = [
        row["against the fusion, 104 unseen"]
        for name, row in scifact().items()
        if name not in ("BM25", "fused, no training")
    ]
    losses = [float(text.partition(" ")[0].replace("−", "-")) for text in behind]
    assert len(losses) == 4 and max(losses) < 0
    readme = (ROOT / "README.md").read_text()
    assert f"{-max(losses):.3f} to {-min(losses):.3f}".replace("0.", ".") in " ".join(readme.split())


def scifact() -> dict[str, dict[str, str]]:
    """The rows of SciFact's first table, by name; cells by column."""
    page = (ROOT / "docs" / "text.md").read_text()
    head, _, *lines = page[page.index("| run | nDCG@10 |") :].partition("\n\n")[0].replace("*", "").splitlines()
    names, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in (head, *lines))
    return {row[0]: dict(zip(names, row, strict=True)) for row in rows}


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_the_demos_table_is_that_of_the_kept_values(page: str) -> None:
    """Of a run of ``rerank demo``; p by scipy, corrected over all comparisons of its ``table.txt`` (Holm)."""
    kept = pd.read_csv(ROOT / "configs" / "demo" / "kept" / "queries.tsv", sep="\t")
    values = {name: rows.set_index("query_id") for name, rows in kept.groupby("run", sort=False)}
    first = values.pop("BM25")
    p = {(name, of): ttest_rel(rows[of], first[of]).pvalue for name, rows in values.items() for of in ("nDCG@10", "RR")}
    corrected, least = {}, 0.0
    for number, key in enumerate(sorted(p, key=lambda key: p[key])):
        least = max(least, min(1.0, p[key] * (len(p) - number)))
        corrected[key] = least
    text = (ROOT / page).read_text().replace("**", "").replace("−", "-")
    for name, rows in values.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| {name} | 0."))
        ndcg, rr, difference, shown = (cell.strip() for cell in row.strip("|").split("|")[1:])
        assert (ndcg, rr) == (f"{rows['nDCG@10'].mean():.4f}", f"{rows['RR'].mean():.4f}")
        gain = (rows["nDCG@10"] - first["nDCG@10"]).to_numpy()
        low, high = bootstrap_interval(gain)
        assert difference == f"{gain.mean():+.4f} [{low:+.4f}, {high:+.4f}]"
        chance = corrected[name, "nDCG@10"]
        assert shown == ("< 0.0001" if chance < 0.0001 else f"{chance:.4f}")
    assert len(first) == 72 and f"| BM25 | {first['nDCG@10'].mean():.4f} | {first['RR'].mean():.4f} |" in text
