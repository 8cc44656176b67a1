"""Line charts as numbers in an SVG's coordinates; the page's template draws them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rerank.evaluation.measures import Empty, Evaluator, Qrels
from rerank.retrieval.runs import Run

WIDTH, HEIGHT = 440, 270
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 40
RECALLS = [i / 10 for i in range(11)]
DOTS = 25
"""A line with more points than this is drawn without dots."""


@dataclass(frozen=True)
class Series:
    """A line: its name, and where it goes through."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Dot:
    """A point of a line in the SVG's coordinates, and what it says."""

    x: float
    y: float
    says: str


@dataclass(frozen=True)
class Tick:
    """A mark on an axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Bar:
    """A bar: its name, its length, where its interval begins and ends, whether it stands out, what it says."""

    name: str
    value: float
    low: float | None
    high: float | None
    strong: bool
    says: str


class Bars:
    """Bars to both sides of 0, one below the other, each with its interval."""

    width, left, right, row = 640, 120, 628, 30

    def __init__(self, title: str, bars: Sequence[Bar]) -> None:
        self.title, self.bars = title, bars
        ends = [end for bar in bars for end in (bar.value, bar.low, bar.high) if end is not None]
        self._range = _wide(min([0.0, *ends]), max([0.0, *ends]))
        self.bottom = self.row * len(bars) + 8
        self.height = self.bottom + 28

    def at(self, value: float) -> float:
        low, high = self._range
        return round(self.left + (value - low) / (high - low) * (self.right - self.left), 1)

    @property
    def ticks(self) -> list[Tick]:
        return [Tick(self.at(value), f"{value:g}") for value in nice_ticks(*self._range)]

    @property
    def summary(self) -> str:
        return f"{self.title}. {'; '.join(f'{bar.name} {bar.says}'.strip() for bar in self.bars)}."


class Chart:
    """A line chart.

    Args:
        y_range: lowest and highest value of the vertical axis; None takes those of the lines.
    """

    width, height = WIDTH, HEIGHT
    left, right, top, bottom = LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM

    def __init__(
        self,
        title: str,
        x_label: str,
        y_label: str,
        series: Sequence[Series],
        y_range: tuple[float, float] | None = None,
    ) -> None:
        self.title, self.x_label, self.y_label = title, x_label, y_label
        self.series = [cleaned for line in series if (cleaned := _finite(line)).x]
        xs = [x for line in self.series for x in line.x] or [0.0, 1.0]
        ys = [y for line in self.series for y in line.y] or [0.0, 1.0]
        self._x = _wide(min(xs), max(xs))
        self._y = y_range or _wide(min(ys), max(ys))
        if y_range is None:
            ticks = nice_ticks(*self._y)
            step = ticks[1] - ticks[0]
            self._y = math.floor(self._y[0] / step) * step, math.ceil(self._y[1] / step) * step

    def _place(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self._x[0]) / (self._x[1] - self._x[0])
        up = (y - self._y[0]) / (self._y[1] - self._y[0])
        return (
            round(self.left + across * (self.right - self.left), 1),
            round(self.bottom - up * (self.bottom - self.top), 1),
        )

    @property
    def x_ticks(self) -> list[Tick]:
        return [Tick(self._place(x, self._y[0])[0], f"{x:g}") for x in nice_ticks(*self._x)]

    @property
    def y_ticks(self) -> list[Tick]:
        return [Tick(self._place(self._x[0], y)[1], f"{y:g}") for y in nice_ticks(*self._y)]

    def path(self, line: Series) -> str:
        places = (self._place(x, y) for x, y in zip(line.x, line.y, strict=True))
        return "M" + "L".join(f"{x:g} {y:g}" for x, y in places)

    def dots(self, line: Series) -> list[Dot]:
        """The points of a line; none where there are too many to tell apart."""
        if len(line.x) > DOTS:
            return []
        return [
            Dot(*self._place(x, y), f"{line.name}, {self.x_label} {x:g}: {y:.4f}")
            for x, y in zip(line.x, line.y, strict=True)
        ]

    @property
    def summary(self) -> str:
        lines = [f"{line.name} from {line.y[0]:.4f} to {line.y[-1]:.4f}" for line in self.series]
        return f"{self.title}. {self.y_label} over {self.x_label}: {'; '.join(lines)}."


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About ``count`` round numbers from ``low`` to ``high``: multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _finite(line: Series) -> Series:
    kept = [(x, y) for x, y in zip(line.x, line.y, strict=True) if math.isfinite(x) and math.isfinite(y)]
    return Series(line.name, [x for x, _ in kept], [y for _, y in kept])


def _wide(low: float, high: float) -> tuple[float, float]:
    """A range that is not empty."""
    if high - low > 1e-9 * max(1.0, abs(high)):
        return low, high
    return low - 0.5, high + 0.5


def precision_recall(runs: Mapping[str, Run], qrels: Qrels, empty: Empty = "0", rel: int = 1) -> Chart:
    """Interpolated precision at eleven recalls (ir-measures' ``IPrec@R``), the mean over queries, a line per run."""
    relevant = "" if rel == 1 else f"(rel={rel})"
    evaluator = Evaluator(qrels, [f"IPrec{relevant}@{recall}" for recall in RECALLS], empty)
    lines = [Series(name, RECALLS, list(evaluator(run, name).mean.values())) for name, run in runs.items()]
    title = "Precision over recall" + (f", relevant from grade {rel}" if relevant else "")
    return Chart(title, "recall", "interpolated precision", lines, (0.0, 1.0))
