"""Recompute the golden digits: small trainings and tables on real collections that must not move.

``RERANK_DATA=DIR python -m tests.golden`` records them in ``golden.json``; ``test_golden.py`` compares. DIR holds
``MQ2008/`` (LETOR 4.0), ``scifact/`` (BEIR) and ``ir_datasets/`` (a home of ir_datasets with Cranfield).
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("golden.json")

LOSSES = ("SmoothINDCG", "NeuralNDCG", "TwinSigmoidNDCG", "ApproxNDCG", "SoftmaxCE")

MEASURES = "nDCG@10 AP"


def processor() -> str:
    """Name the processor, with the vector instructions that PyTorch uses."""
    import torch

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {torch.backends.cpu.get_cpu_capability()}"


def feature_rankers(data: Path, work: Path) -> dict[str, list[float]]:
    """Measure an MLP with five losses, and LightGBM with two, on every test query of MQ2008's first fold."""
    import rerank
    from rerank.features.letor import letor_lists

    fold = data / "MQ2008/Fold1"
    train, test = (letor_lists(fold / f"{name}.txt") for name in ("train", "test"))
    optimization = rerank.Optimization(head_lr=1e-3, schedule="constant", warmup=0.0, max_grad_norm=None)
    models: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        f"MLP {name}": (
            rerank.MLP(hidden=[32]),
            getattr(rerank, name)(),
            {"epochs": 3, "batch_size": 32, "optimization": optimization},
        )
        for name in LOSSES
    }
    for name, loss in (("LambdaMART", None), ("SmoothINDCG", rerank.SmoothINDCG())):
        trees = rerank.LightGBM(trees=30, num_leaves=7, min_data_in_leaf=50, threads=1)
        models[f"LightGBM {name}"] = trees, loss, {}
    found = {}
    for name, (model, loss, settings) in models.items():
        run = rerank.train(model, train, loss, validation=None, output=work / name, tracker=[], **settings)
        found |= {
            f"{name}: {measure}": values
            for measure, values in _per_query(test.qrels, test.run(run.model.predict(test))).items()
        }
    return found


def cross_encoder(data: Path, work: Path) -> dict[str, list[float]]:
    """Give the loss and gradient norm of 20 steps of MiniLM on SciFact's lists, and the scores of what it became."""
    import rerank

    lists = rerank.retrieve(f"beir:{data}/scifact/train", depth=50, add_relevant=True, output=work / "train")
    lists = lists.select(range(40))
    optimization = rerank.Optimization(schedule="constant", warmup=0.0, max_grad_norm=None)
    found = {}
    for name in ("SmoothINDCG", "SoftmaxCE"):
        for gradient in ("full", "cached"):
            model = rerank.CrossEncoder(
                "sentence-transformers/all-MiniLM-L6-v2", query_length=32, document_length=96, dropout=0.0
            )
            with _gradient_norms() as norms:
                run = rerank.train(
                    model,
                    lists,
                    getattr(rerank, name)(),
                    validation=None,
                    output=work / f"{name}-{gradient}",
                    sampler=rerank.PositivesNegatives(positives=1, negatives=3),
                    optimization=optimization,
                    batch_size=2,
                    gradient=gradient,
                    precision="fp32",
                    tracker=[],
                )
            key = f"MiniLM {name} {gradient}"
            found[f"{key}: loss"] = run.history["loss"].dropna().tolist()
            found[f"{key}: gradient norm"] = norms
            found[f"{key}: scores"] = _centred(run.model, lists.select(range(1)))
    return found


def _centred(model: Any, lists: Any) -> list[float]:
    """Score a list in float32, less the mean: a common shift is noise, as both losses ignore it."""
    import rerank

    (ranking,) = rerank.rerank_lists(model, lists, precision="fp32").values()
    scores = [document.score for document in sorted(ranking, key=lambda document: document.id)]
    return [score - sum(scores) / len(scores) for score in scores]


@contextmanager
def _gradient_norms() -> Iterator[list[float]]:
    """Collect the norm of the gradient at every step of an optimizer."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    norms: list[float] = []

    def measure(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        norms.append(torch.nn.utils.get_total_norm(gradients).item())

    handle = register_optimizer_step_pre_hook(measure)
    try:
        yield norms
    finally:
        handle.remove()


def first_stages(data: Path, work: Path) -> dict[str, list[float]]:
    """Measure BM25 on every query of Cranfield and of SciFact's test claims."""
    import rerank

    found = {}
    for name, collection in (("Cranfield", "cranfield"), ("SciFact", f"beir:{data}/scifact/test")):
        lists = rerank.retrieve(collection, output=work / name)
        found |= {f"BM25 {name}: {measure}": values for measure, values in _per_query(lists.qrels, lists.run()).items()}
    return found


def _per_query(qrels: Any, run: Any) -> dict[str, list[float]]:
    """Give ir-measures' values of a run by measure, in the order of query ids."""
    import ir_measures

    judged = {query: {doc: int(grade) for doc, grade in grades.items()} for query, grades in qrels.items()}
    ranked = {query: {document.id: document.score for document in ranking} for query, ranking in run.items()}
    found: dict[str, list[float]] = {}
    for measure in MEASURES.split():
        values = ir_measures.iter_calc([ir_measures.parse_measure(measure)], judged, ranked)
        by_query = {value.query_id: value.value for value in values}
        found[measure] = [by_query[query] for query in sorted(by_query)]
    return found


GROUPS = {"feature_rankers": feature_rankers, "cross_encoder": cross_encoder, "first_stages": first_stages}


def record() -> None:
    """Write golden digits of all groups, and the processor that they are from."""
    import torch

    torch.set_num_threads(1)
    values: dict[str, Any] = {"processor": processor(), "torch": torch.__version__}
    with tempfile.TemporaryDirectory() as work:
        os.environ["RERANK_HOME"] = f"{work}/home"
        os.environ["IR_DATASETS_HOME"] = f"{os.environ['RERANK_DATA']}/ir_datasets"  # before ir_datasets is imported
        for name, compute in GROUPS.items():
            (Path(work) / name).mkdir()
            values[name] = compute(Path(os.environ["RERANK_DATA"]), Path(work) / name)
    FILE.write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    record()
