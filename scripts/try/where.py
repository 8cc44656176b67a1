"""Where a metric as an objective can pay: losses on feature vectors, tuned equally, under one changed condition each.

    python scripts/try/where.py --data DIR/MQ2008 --conditions linear centre

The design, with its hypotheses, is where.yaml next to this file. All networks of a loss are trained at once: their
weights are stacked, so that a step is one product for all folds, seeds and settings. A network's lists, weights and
noise depend on its fold and seed alone. Test values per query are added to configs/evidence/kept/where.tsv.xz as losses
finish; what is there is not computed again.
"""

from __future__ import annotations

import argparse
import itertools
import lzma
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rerank.features.letor import LetorData
from rerank.losses import BCE, MSE, DirectMetric, LambdaLoss, ListNet, RankNet, SoftmaxCE
from rerank.losses.base import Loss
from rerank.losses.pointwise import EachDocument
from rerank.relaxations import Approx, NeuralSort, SmoothI, TwinSigmoid
from rerank.storage.files import atomic_file

ROOT = Path(__file__).parents[2]
DESIGN: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
KEPT = ROOT / "configs" / "evidence" / "kept" / "where.tsv.xz"
K, BM25 = 10, 24
MADE = (500, 250, 1000)
"""Made lists of a fold: for training, validation and testing."""
MEASURE = f"nDCG@{K}"
LOSSES: dict[str, Loss] = {
    "TwinSigmoid": DirectMetric(MEASURE, TwinSigmoid(alpha=1.0), reduction="sum"),
    "SmoothI": DirectMetric(MEASURE, SmoothI(alpha=1.0), reduction="sum"),
    "Approx": DirectMetric(MEASURE, Approx(alpha=1.0), reduction="sum"),
    "NeuralSort": DirectMetric(MEASURE, NeuralSort(tau=1.0, sinkhorn=0), reduction="sum"),
    "SoftmaxCE": SoftmaxCE(reduction="sum"),
    "ListNet": ListNet(reduction="sum"),
    "RankNet": RankNet(reduction="sum"),
    "LambdaLoss": LambdaLoss(reduction="sum"),
    "TwinSigmoid spread": DirectMetric("nDCG(dcg='exp-log2')", TwinSigmoid(alpha="spread"), reduction="sum"),
    "BCE": BCE(reduction="sum"),
    "MSE": MSE(reduction="sum"),
}
KINDS = {loss: kind for kind, losses in DESIGN["losses"].items() for loss in losses}


@dataclass(frozen=True)
class Queries:
    """All lists of a data set, padded to ``[Q, N]``, features to ``[Q, N, F]``; the queries of each fold's splits."""

    ids: list[str]
    features: Tensor
    grades: Tensor
    mask: Tensor
    folds: list[dict[str, Tensor]]

    @classmethod
    def read(cls, path: str) -> Queries:
        rows: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        folds: list[dict[str, list[str]]] = []
        for fold in range(1, 6):
            splits = LetorData(path, fold=fold).splits(0)
            folds.append({})
            for name in ("train", "validation", "test"):
                lists = getattr(splits, name)
                matrix = lists.matrix(["features"])
                folds[-1][name] = list(lists.query_ids)
                for query, (start, end) in zip(lists.query_ids, itertools.pairwise(lists.offsets), strict=True):
                    rows[query] = matrix[start:end], lists.grades[start:end]

        def padded(arrays: Iterable[np.ndarray]) -> Tensor:
            kind = torch.get_default_dtype()
            return pad_sequence([torch.tensor(array, dtype=kind) for array in arrays], batch_first=True)

        ids, features, grades = list(rows), *map(padded, zip(*rows.values(), strict=True))
        mask = padded(np.ones(len(labels)) for _, labels in rows.values()).bool()
        place = {query: number for number, query in enumerate(ids)}
        indexed = [{name: torch.tensor([place[q] for q in of]) for name, of in fold.items()} for fold in folds]
        return cls(ids, features, grades, mask, indexed)

    def made(self) -> Queries:
        """Lists of 100 documents drawn across queries, densely graded by a forest that learned the grades.

        Half of all documents have grade 0, a quarter 1, then .13, .08 and .04.
        """
        import lightgbm

        rows, grades = self.features[self.mask].numpy(), self.grades[self.mask].numpy()
        options = {"seed": 0, "num_threads": 1, "deterministic": True, "verbose": -1}
        forest = lightgbm.train(options, lightgbm.Dataset(rows, grades), 100)
        values = np.asarray(forest.predict(rows))
        dense = np.searchsorted(np.quantile(values, [0.5, 0.75, 0.88, 0.96]), values, side="left")
        owner = self.mask.nonzero()[:, 0]
        rng = torch.Generator().manual_seed(0)
        drawn: list[Tensor] = []
        folds: list[dict[str, Tensor]] = []
        for fold in self.folds:
            folds.append({})
            for (name, queries), count in zip(fold.items(), MADE, strict=True):
                documents = torch.isin(owner, queries).nonzero()[:, 0]
                start = sum(len(some) for some in drawn)
                folds[-1][name] = torch.arange(start, start + count)
                drawn.append(
                    torch.stack([documents[torch.randperm(len(documents), generator=rng)[:100]] for _ in range(count)])
                )
        which = torch.cat(drawn)
        features, labels = torch.from_numpy(rows)[which], torch.from_numpy(dense).float()[which]
        ids = [str(number) for number in range(len(which))]
        return Queries(ids, features, labels, torch.ones(which.shape, dtype=torch.bool), folds)

    def labels(self, kind: str | None, rng: torch.Generator) -> Tensor:
        """What training and validation see of the grades, ``[Q, N]``."""
        if kind == "binary":
            return (self.grades > 0).to(self.grades.dtype)
        if kind == "noise":
            pool = self.grades[self.mask]
            drawn = pool[torch.randint(len(pool), self.grades.shape, generator=rng)]
            return torch.where(torch.rand(self.grades.shape, generator=rng) < 0.3, drawn, self.grades) * self.mask
        if kind == "clicks":
            shown = self.features[..., BM25].masked_fill(~self.mask, -torch.inf).argsort(1, descending=True).argsort(1)
            relevant = (2**self.grades - 1) / (2 ** self.grades.max() - 1)
            chance = (0.1 + 0.9 * relevant) / (1 + shown) * self.mask
            return torch.bernoulli(chance.expand(5, -1, -1), generator=rng).sum(dim=0)
        return self.grades


def ndcg(scores: Tensor, labels: Tensor) -> Tensor:
    """trec_eval's nDCG@10 ``[..., Q]`` of scores ``[..., Q, N]``, -inf for padding; 0 without relevant documents."""
    discount = 1 / torch.log2(torch.arange(2, K + 2))
    best = labels.topk(K, dim=-1).values @ discount
    order = scores.topk(K, dim=-1).indices
    return torch.gather(labels.expand(scores.shape), -1, order) @ discount / best.clamp(min=1e-9)


class Networks:
    """Scorers with stacked weights."""

    def __init__(self, model: str, width: int, rngs: Sequence[torch.Generator], bias: bool = False) -> None:
        def drawn(*shape: int) -> Tensor:
            found = [torch.randn(shape, generator=rng) for rng in rngs]
            return (torch.stack(found) / shape[0] ** 0.5).requires_grad_()

        hidden = DESIGN["hidden"]
        if model == "linear":
            self.weights = [drawn(width, 1)]
        else:
            inner = torch.zeros(len(rngs), 1, hidden, requires_grad=True)
            self.weights = [drawn(width, hidden), inner, drawn(hidden, 1)]
        self.bias = torch.zeros(len(rngs), 1, 1, requires_grad=bias)
        self._trained = [*self.weights, *[self.bias] * bias]
        self._moments = [(torch.zeros_like(weight), torch.zeros_like(weight)) for weight in self._trained]
        self._steps = 0

    def __call__(self, features: Tensor, some: slice = slice(None)) -> Tensor:
        """Scores ``[S, D]`` of features ``[S, D, F]``, or ``[D, F]`` for all."""
        first, *rest = (weight[some] for weight in self.weights)
        found = features @ first
        found = (found + rest[0]).relu() @ rest[1] if rest else found
        return (found + self.bias[some]).squeeze(-1)

    @torch.no_grad()
    def step(self, rates: Tensor) -> None:
        """Adam, each network with a rate of its own."""
        self._steps += 1
        for weight, (mean, square) in zip(self._trained, self._moments, strict=True):
            assert weight.grad is not None
            mean.lerp_(weight.grad, 0.1)
            square.lerp_(weight.grad**2, 0.001)
            root = (square / (1 - 0.999**self._steps)).sqrt_().add_(1e-8)
            weight -= rates[:, None, None] * (mean / (1 - 0.9**self._steps)) / root
            weight.grad = None


@dataclass(frozen=True)
class Setting:
    """One network: where it is trained, and how."""

    fold: int
    seed: int
    rate: float
    scale: float


def trained(
    data: Queries, condition: Mapping[str, Any], loss: Loss, settings: Sequence[Setting]
) -> tuple[Tensor, list[Tensor]]:
    """Validation nDCG@10 of each network at its best epoch, ``[S]``, and its scores of the test lists, ``[Q, N]``.

    Each fold has as many networks.
    """
    order = sorted(range(len(settings)), key=lambda i: settings[i].fold)
    settings = [settings[i] for i in order]
    rngs = [torch.Generator().manual_seed(1000 * one.seed + one.fold) for one in settings]
    kind, share = condition.get("labels"), condition.get("queries", 1)
    labels = {seed: data.labels(kind, torch.Generator().manual_seed(seed)) for seed in {one.seed for one in settings}}
    seen = torch.stack([labels[one.seed] for one in settings])
    lengths = data.mask.sum(dim=1).float()
    training: list[Tensor] = []
    for one, rng, own in zip(settings, rngs, seen, strict=True):
        queries = data.folds[one.fold]["train"]
        queries = queries[(own[queries] > 0).any(dim=1)]
        training.append(queries[torch.randperm(len(queries), generator=rng)[: int(len(queries) * share)]])
    size = DESIGN["batch_size"]
    clean = (data.grades > 0).any(dim=1)  # an epoch has as many steps whatever the labels are
    steps = min(int(int(clean[fold["train"]].sum()) * share) for fold in data.folds) // size
    networks = Networks(condition["model"], data.features.shape[-1], rngs, isinstance(loss, EachDocument))
    rates, scales = torch.tensor([one.rate for one in settings]), torch.tensor([one.scale for one in settings])
    each = len(settings) // len(data.folds)
    best = torch.full((len(settings),), -1.0)
    tests = [torch.zeros(each, *data.mask[fold["test"]].shape) for fold in data.folds]
    networks_index = torch.arange(len(settings))[:, None]
    for epoch in range(condition.get("epochs", DESIGN["epochs"])):
        rows = []
        for queries, rng in zip(training, rngs, strict=True):  # lists of like length share a step
            again = range(-(-steps * size // len(queries)))
            drawn = queries[torch.cat([torch.randperm(len(queries), generator=rng) for _ in again])[: steps * size]]
            near = (lengths[drawn] * (0.5 * torch.randn(len(drawn), generator=rng)).exp()).argsort()
            rows.append(drawn[near].view(steps, size))
        batches = torch.stack(rows)[:, np.random.default_rng(epoch).permutation(steps)]
        for step in range(steps):
            which = batches[:, step]  # [S, B]
            longest = int(lengths[which].max())
            mask = data.mask[which][..., :longest]
            given = seen[networks_index, which][..., :longest]
            features = data.features[which, :longest]
            if (cut := condition.get("documents")) and longest > cut:  # a network draws as much whoever its mates are
                keys = torch.stack([torch.rand((size, data.mask.shape[1]), generator=rng) for rng in rngs])
                chosen = keys[..., :longest].masked_fill(~mask, -1).topk(cut, dim=-1).indices
                mask, given = mask.gather(-1, chosen), given.gather(-1, chosen)
                features = features.gather(2, chosen[..., None].expand(-1, -1, -1, features.shape[-1]))
            flat = features.flatten(1, 2)
            scores = networks(flat).view(mask.shape) * scales[:, None, None]
            total = loss(scores.flatten(0, 1), given.flatten(0, 1), mask.flatten(0, 1)) / size
            total.backward()
            networks.step(rates)
        for i, fold in enumerate(data.folds):
            part = slice(i * each, (i + 1) * each)
            validation, test = fold["validation"], fold["test"]
            with torch.no_grad():
                found = ndcg(scored(data, networks, part, validation), seen[part, validation]).mean(dim=1)
                better = found > best[part]
                if better.any():
                    tests[i][better] = scored(data, networks, part, test)[better]
                best[part] = torch.maximum(best[part], found)
    flat_tests = [of for fold in tests for of in fold]
    back = sorted(range(len(order)), key=order.__getitem__)
    return best[back], [flat_tests[i] for i in back]


def scored(data: Queries, networks: Networks, part: slice, queries: Tensor) -> Tensor:
    """Scores ``[S, Q, N]`` of whole lists, -inf for padding."""
    mask = data.mask[queries]
    found = torch.full((part.stop - part.start, *mask.shape), -torch.inf)
    found[:, mask] = networks(data.features[queries][mask], part)
    return found


def measured(data: Queries, fold: int, scores: Tensor) -> pd.Series:
    """nDCG@10 of the test lists of a fold, ``[Q, N]``."""
    test = data.folds[fold]["test"]
    index = pd.MultiIndex.from_product([[fold + 1], [data.ids[query] for query in test]], names=["fold", "query"])
    return pd.Series([round(value, 5) for value in ndcg(scores, data.grades[test]).tolist()], index)


def run(data: Queries, name: str, loss: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The loss under a condition: nine settings compared on validation, then the seeds of the best."""
    condition, began = DESIGN["conditions"][name], time.process_time()
    points = list(itertools.product(DESIGN["rates"][condition["model"]], DESIGN["scales"][KINDS[loss]]))
    tuning = [Setting(f, s, *point) for point in points for s in DESIGN["tuning_seeds"] for f in range(5)]
    found = trained(data, condition, LOSSES[loss], tuning)[0].view(len(points), -1).mean(dim=1)
    rate, scale = points[int(found.argmax())]
    settings = [Setting(f, s, rate, scale) for s in DESIGN["seeds"] for f in range(5)]
    scores = trained(data, condition, LOSSES[loss], settings)[1]
    columns: dict[str, list[pd.Series]] = {}
    for one, of in zip(settings, scores, strict=True):
        columns.setdefault(str(one.seed), []).append(measured(data, one.fold, of))
    frame = pd.DataFrame({seed: pd.concat(parts) for seed, parts in columns.items()}).reset_index()
    about = {"condition": name, "loss": loss, "rate": rate, "scale": scale, "validation": round(float(found.max()), 5)}
    about["seconds"] = round(time.process_time() - began, 1)
    return frame.assign(**about), about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, help="folder MQ2008 or OHSUMED, with Fold1 to Fold5")
    parser.add_argument("--conditions", nargs="+", choices=DESIGN["conditions"], help="default: all of these data")
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES))
    parser.add_argument("--output", type=Path, default=KEPT, help="values per query (.tsv.xz)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    kept = pd.read_csv(args.output, sep="\t", dtype={"query": str}) if args.output.exists() else pd.DataFrame()
    there = set(zip(kept["condition"], kept["loss"], strict=True)) if len(kept) else set()
    own = [name for name, of in DESIGN["conditions"].items() if of.get("data", "MQ2008") == args.data.name]
    if other := sorted({*(args.conditions or [])} - {*own}):
        parser.error(f"--conditions: {', '.join(other)} is not of {args.data.name}")
    data = Queries.read(str(args.data))
    for name in args.conditions or own:
        queries = data.made() if DESIGN["conditions"][name].get("lists") == "made" else data
        for loss in args.losses:
            if (name, loss) in there:
                continue
            frame, about = run(queries, name, loss)
            kept = pd.concat([kept, frame])
            with atomic_file(args.output) as path:
                path.write_bytes(lzma.compress(kept.to_csv(sep="\t", index=False).encode(), preset=9))
            print(about, flush=True)


if __name__ == "__main__":
    main()
