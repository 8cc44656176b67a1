"""Charts as numbers in an SVG's coordinates; the page's template draws them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rerank.evaluation.measures import Empty, Evaluator, Qrels
from rerank.retrieval.runs import Run

RECALLS = [i / 10 for i in range(11)]


class Tick(NamedTuple):
    """A mark on an axis."""

    at: float
    text: str


class Series(NamedTuple):
    """A run's precision at each of `RECALLS`."""

    name: str
    y: Sequence[float]


class Dot(NamedTuple):
    """A point of a line in the SVG's coordinates, and what it says."""

    x: float
    y: float
    says: str


class Curves:
    """Precision over recall, a line per run."""

    width, height = 440, 270
    left, right, top, bottom = 52, 428, 12, 230
    x_label, y_label = "recall", "interpolated precision"

    def __init__(self, title: str, series: Sequence[Series]) -> None:
        self.title, self.series = title, series
        places = [(share, *self._place(share, share)) for share in (0, 0.2, 0.4, 0.6, 0.8, 1)]
        self.x_ticks = [Tick(x, f"{share:g}") for share, x, _ in places]
        self.y_ticks = [Tick(y, f"{share:g}") for share, _, y in places]

    def _place(self, x: float, y: float) -> tuple[float, float]:
        across, up = x * (self.right - self.left), y * (self.bottom - self.top)
        return round(self.left + across, 1), round(self.bottom - up, 1)

    def path(self, line: Series) -> str:
        places = (self._place(x, y) for x, y in zip(RECALLS, line.y, strict=True))
        return "M" + "L".join(f"{x:g} {y:g}" for x, y in places)

    def dots(self, line: Series) -> list[Dot]:
        points = zip(RECALLS, line.y, strict=True)
        return [Dot(*self._place(x, y), f"{line.name}, {self.x_label} {x:g}: {y:.4f}") for x, y in points]

    @property
    def summary(self) -> str:
        lines = [f"{line.name} from {line.y[0]:.4f} to {line.y[-1]:.4f}" for line in self.series]
        return f"{self.title}. {self.y_label} over {self.x_label}: {'; '.join(lines)}."


def precision_recall(runs: Mapping[str, Run], qrels: Qrels, empty: Empty = "0", rel: int = 1) -> Curves:
    """Interpolated precision at eleven recalls (ir-measures' ``IPrec@R``), the mean over queries, a line per run."""
    relevant = "" if rel == 1 else f"(rel={rel})"
    evaluator = Evaluator(qrels, [f"IPrec{relevant}@{recall}" for recall in RECALLS], empty)
    lines = [Series(name, list(evaluator(run, name).mean.values())) for name, run in runs.items()]
    title = "Precision over recall" + (f", relevant from grade {rel}" if relevant else "")
    return Curves(title, [line for line in lines if math.isfinite(line.y[0])])  # no query may be left to average
