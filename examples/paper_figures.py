"""The papers' pictures, drawn by this library's own code: ``python examples/paper_figures.py FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rerank.losses.direct import DirectMetric
from rerank.measures import parse
from rerank.relaxations import (
    Approx,
    Batch,
    FastSoftSort,
    NeuralSort,
    OptimalTransport,
    Relaxation,
    SmoothI,
    SoftRanks,
    SoftSort,
    TwinSigmoid,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NDCG = "nDCG(dcg='exp-log2')"
FIELDS: dict[str, Relaxation] = {
    "Approx(alpha=3)": Approx(alpha=3),
    "TwinSigmoid(gradient=1)": TwinSigmoid(1, alpha=1),
    "TwinSigmoid(gradient=2)": TwinSigmoid(2, alpha=1),
    "TwinSigmoid(gradient=3)": TwinSigmoid(3, alpha=1),
    "SmoothI(alpha=1)": SmoothI(),
    "SmoothI(alpha=10)": SmoothI(alpha=10),
    "NeuralSort(tau=1)": NeuralSort(),
    "NeuralSort(tau=1, sinkhorn=0)": NeuralSort(sinkhorn=0),
    "SoftSort(tau=0.5)": SoftSort(tau=0.5),
    "FastSoftSort(strength=0.5)": FastSoftSort(strength=0.5),
    "OptimalTransport(epsilon=0.1)": OptimalTransport(),
    "OptimalTransport(epsilon=0.01)": OptimalTransport(epsilon=0.01, iterations=200),
}


def indicator(relaxation: SoftRanks, differences: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the smooth indicator of "i is ahead of j", and its slope, from the rank of i in lists of two."""
    scores = torch.stack([differences, torch.zeros_like(differences)], dim=1).requires_grad_()
    labels = torch.tensor([1.0, 0.0]).expand(scores.shape)
    rows = torch.zeros(len(scores), 1, dtype=torch.int64)
    seeds = torch.arange(len(scores))
    rank = relaxation.ranks(Batch(scores, labels, torch.ones_like(scores, dtype=torch.bool), rows, seeds))
    (gradient,) = torch.autograd.grad(rank.sum(), scores)
    return 2 - rank.detach()[:, 0], -gradient[:, 0]


def comparison(figure: Figure) -> None:
    """Bruch et al. (2019), Figure 1: the sigmoid in place of the indicator."""
    differences, axes = torch.linspace(-4, 4, 801), figure.subplots()
    axes.plot(differences, indicator(TwinSigmoid(), differences)[0], color="black", linewidth=2, label="indicator")
    for alpha, style in ((1, "-"), (5, "--"), (10, ":")):
        axes.plot(differences, indicator(Approx(alpha=alpha), differences)[0], style, label=f"alpha = {alpha}")
    axes.set(xlabel="s_i − s_j", ylabel="i is ahead of j")
    axes.legend(fontsize=8)


def sigmoids(figure: Figure) -> None:
    """Yu (2020), Figure 1: the sigmoid, its derivative, and the twin-sigmoid."""
    z = torch.linspace(-2, 2, 801)
    left, middle, right = figure.subplots(1, 3)
    for alpha in (1, 3, 10, 100):
        value, slope = indicator(Approx(alpha=alpha), z)
        left.plot(z, value, label=f"alpha = {alpha}")
        middle.plot(z, slope, label=f"alpha = {alpha}")
    middle.set_ylim(0, 3)
    right.plot(z, indicator(TwinSigmoid(1, alpha=1), z)[0], color="black", label="value (exact)")
    for gradient in (1, 3):
        right.plot(z, indicator(TwinSigmoid(gradient, alpha=1), z)[1], label=f"derivative, gradient={gradient}")
    for axes, title in ((left, "(a) sigmoid"), (middle, "(b) its derivative"), (right, "(c) twin-sigmoid")):
        axes.set(title=title, xlabel="s_i − s_j")
        axes.legend(fontsize=8)


def _ndcg(axes: Axes, labels: list[float], fixed: list[float], relaxations: dict[str, Relaxation], x: Tensor) -> None:
    scores = torch.cat([torch.tensor([fixed]).expand(len(x), -1), x[:, None]], dim=1)
    grades = torch.tensor([labels]).expand(scores.shape)
    exact = parse(NDCG).exact(scores, grades)
    axes.plot(x, exact, color="black", linewidth=2, label="nDCG")
    for name, relaxation in relaxations.items():
        axes.plot(x, 1 - DirectMetric(NDCG, relaxation, reduction="none")(scores, grades), label=name)
    listed = ", ".join(f"{score:g}" for score in fixed)
    axes.set(xlabel="score x of the last document", ylabel="nDCG")
    axes.set_title(f"grades {', '.join(f'{grade:g}' for grade in labels)}; scores {listed}, x", fontsize=10)
    axes.legend(fontsize=8)


def balanced(figure: Figure) -> None:
    """NeuralNDCG (2021), Figure 1: with and without Sinkhorn scaling."""
    both: dict[str, Relaxation] = {
        "NeuralNDCG, tau = 1": NeuralSort(),
        "without Sinkhorn scaling": NeuralSort(sinkhorn=0),
    }
    _ndcg(figure.subplots(), [2, 1, 0, 0, 0], [4, 1, 0, 0], both, torch.linspace(-2, 6, 1601))


def temperatures(figure: Figure) -> None:
    """NeuralNDCG (2021), Figure 2: temperatures."""
    several: dict[str, Relaxation] = {f"tau = {tau:g}": NeuralSort(tau) for tau in (0.01, 0.1, 1, 10)}
    _ndcg(figure.subplots(), [1, 2, 3, 4, 5], [1, 2, 3, 4], several, torch.linspace(-2, 8, 1601))


def collapse(figure: Figure) -> None:
    """SmoothI: the weight that the indicators of a rank give to the document at this rank."""
    depth, axes = 20, figure.subplots()
    scores = torch.randn(200, 40, generator=torch.Generator().manual_seed(0))
    places = scores.argsort(dim=1, descending=True)[:, :depth, None]
    for alpha in (1, 10, 100, 1000):
        matrix = SmoothI(alpha).indicators(scores, torch.ones_like(scores, dtype=torch.bool), depth)
        weight = matrix.gather(2, places).mean(dim=(0, 2))
        axes.plot(range(1, depth + 1), weight, marker=".", label=f"alpha = {alpha}")
    axes.set(xlabel="rank", ylabel="weight of the right document", ylim=(0, 1.05), xticks=range(1, depth + 1, 2))
    axes.legend(fontsize=8)


def gradient_fields(figure: Figure) -> None:
    """Draw, over a grid of scores, how each relaxation of nDCG moves a relevant and another document."""
    fine, coarse = torch.linspace(-3, 3, 81), torch.linspace(-2.75, 2.75, 12)
    panels = figure.subplots(3, 4, sharex=True, sharey=True)
    for axes, (name, relaxation) in zip(panels.flat, FIELDS.items(), strict=True):
        loss = DirectMetric(NDCG, relaxation, reduction="none")
        image = axes.pcolormesh(fine, fine, 1 - _field(loss, fine)[0].detach(), cmap="viridis", vmin=0.4, vmax=1)
        value, scores = _field(loss, coarse)
        (gradient,) = torch.autograd.grad(value.sum(), scores)
        push = -gradient[:, :2].reshape(len(coarse), len(coarse), 2)
        longest = push.norm(dim=2).amax().clamp(min=1e-12)
        arrows = {"color": "white", "pivot": "mid", "scale": 14, "width": 0.006, "headwidth": 4}
        axes.quiver(coarse, coarse, push[..., 0] / longest, push[..., 1] / longest, **arrows)
        axes.set_title(f"{name}\nlongest arrow {longest:.2g}", fontsize=9)
        axes.set(aspect="equal", xticks=range(-3, 4), yticks=range(-3, 4))
    figure.supxlabel("score of the document of grade 2")
    figure.supylabel("score of a document of grade 0")
    figure.suptitle(
        "relaxed nDCG (colour) and minus the gradient of the loss; other documents at −1, 0, 1 (grades 0, 1, 0)"
    )
    figure.colorbar(image, ax=panels, shrink=0.6)


def _field(loss: DirectMetric, steps: Tensor) -> tuple[Tensor, Tensor]:
    """The loss over a grid of the scores of the first two documents, and these lists."""
    other, relevant = torch.meshgrid(steps, steps, indexing="ij")
    varied = torch.stack([relevant.flatten(), other.flatten()], dim=1) + torch.tensor([1e-3, -1e-3])  # off the ties
    scores = torch.cat([varied, torch.tensor([-1.0, 0.0, 1.0]).expand(len(varied), -1)], dim=1).requires_grad_()
    value = loss(scores, torch.tensor([2.0, 0.0, 0.0, 1.0, 0.0]).expand(scores.shape))
    return value.reshape(len(steps), len(steps)), scores


PICTURES: dict[str, tuple[Any, tuple[float, float]]] = {
    "approx-ndcg-figure-1": (comparison, (6, 3.4)),
    "twin-sigmoid-figure-1": (sigmoids, (11, 3.4)),
    "neuralndcg-figure-1": (balanced, (6, 4)),
    "neuralndcg-figure-2": (temperatures, (6, 4)),
    "smoothi-collapse": (collapse, (6, 3.6)),
    "gradient-fields": (gradient_fields, (13, 10)),
}


def draw(folder: Path) -> list[Path]:
    """Write the pictures as PNG files into a folder and return their paths."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, (picture, size) in PICTURES.items():
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        picture(figure)
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=120)
    return paths


if __name__ == "__main__":
    print(*draw(Path(sys.argv[1])), sep="\n")
