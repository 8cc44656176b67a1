"""Forest plots: a difference per collection with its interval, and all of them pooled as a diamond."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from rerank.evaluation.render import number
from rerank.experiments.pool import Pooled, PooledExperiments

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOUR, DIAMOND, GREY = "#0072B2", "#D55E00", "0.35"
LINE = 0.24
"""Height of a line in inches."""


def forest(pool: PooledExperiments, measure: str) -> Figure:
    """The pairs of one measure, a block each: a square per collection, its size by weight, and the pooled diamond.

    A thin line through the diamond is the prediction interval: where the difference on another collection would lie.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    pairs = [one for one in pool.pairs if one.measure == measure and one.total is not None]
    lines = sum(len(one.parts) + 2.7 for one in pairs) + 0.2
    names = [*(result.name for result in pool.results), "all, random effects"]
    wide = 0.075 * max(map(len, [*names, *(_shown(one, name) for one in pairs for name in one.parts)]), default=9)
    figure = Figure(figsize=(wide + 6.2, LINE * lines + 0.95))
    FigureCanvasAgg(figure)
    width, height = figure.get_size_inches()
    bounds = (wide + 0.3) / width, 0.7 / height, (width - wide - 2.6) / width, 1 - 0.85 / height
    axes = figure.add_axes(bounds)
    axes.set_xlim(_range(pairs))
    place = 0.0
    for one in pairs:
        place = _block(axes, one, place + 0.9) + 0.6
    axes.set_ylim(max(place - 0.2, 1), 0)
    axes.axvline(0, color="0.2", linewidth=0.8, zorder=0)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.locator_params(axis="x", nbins=6)
    axes.tick_params(labelsize=8)
    axes.grid(axis="x", color="0.93", zorder=-1)
    axes.set_axisbelow(True)
    about = f"difference in {measure}, 95 % intervals; right of 0: the first is better"
    axes.set_xlabel(
        f"{about}\nthin: where it would lie on another such collection; right: share of the mean", fontsize=8
    )
    return figure


def _block(axes: Axes, one: Pooled, place: float) -> float:
    """Draw a pair from a line on; returns the line behind it."""
    assert one.total is not None
    edge, across = _edge(axes), axes.get_yaxis_transform()
    axes.text(edge, place, f"{one.row} − {one.against}", transform=across, va="center", weight="bold", fontsize=9)
    for (name, part), weight in zip(one.parts.items(), one.total.weights, strict=True):
        place += 1
        assert part.found is not None
        low, high = part.found.interval
        axes.plot([low, high], [place, place], color=COLOUR, linewidth=1.2, solid_capstyle="butt")
        axes.plot(part.found.mean, place, "s", color=COLOUR, markersize=3 + 6 * weight**0.5)
        axes.text(edge, place, _shown(one, name), transform=across, va="center", fontsize=8)
        _numbers(axes, part.found.mean, (low, high), place, f"{weight:.0%}")
    place += 1.05
    low, high = one.total.interval
    outer = one.total.prediction
    if outer[0] == outer[0]:
        axes.plot(outer, [place, place], color=DIAMOND, linewidth=0.8)
    _arrows(axes, (min(low, *outer), max(high, *outer)) if outer[0] == outer[0] else (low, high), place)
    axes.fill([low, one.total.mean, high, one.total.mean], [place, place - 0.3, place, place + 0.3], color=DIAMOND)
    axes.text(edge, place, "all, random effects", transform=across, va="center", fontsize=8)
    _numbers(axes, one.total.mean, (low, high), place, "", "bold")
    return place


def _arrows(axes: Axes, ends: tuple[float, float], place: float) -> None:
    """Arrowheads where a line extends beyond the axis."""
    limits = axes.get_xlim()
    for end, limit, marker in ((ends[0], limits[0], "<"), (-ends[1], limits[1], ">")):
        if end < (limit if marker == "<" else -limit):
            axes.plot(limit, place, marker, color=DIAMOND, markersize=5, clip_on=False)


def _edge(axes: Axes) -> float:
    box = axes.get_position()
    return (0.012 - box.x0) / box.width


def _numbers(
    axes: Axes, mean: float, interval: tuple[float, float], place: float, share: str, weight: str = "normal"
) -> None:
    low, high = interval
    text = f"{number(mean, '+', 3)} [{number(low, '+', 3)}, {number(high, '+', 3)}]".replace("-", "−")
    axes.text(1.03, place, text, transform=axes.get_yaxis_transform(), va="center", fontsize=8, weight=weight)
    edge = (0.992 - axes.get_position().x0) / axes.get_position().width
    axes.text(edge, place, share, transform=axes.get_yaxis_transform(), va="center", ha="right", fontsize=8, color=GREY)


def _shown(one: Pooled, name: str) -> str:
    """A collection, and of groups which methods were chosen on it."""
    part = one.parts[name]
    return name if part.methods == (one.row, one.against) else f"{name}: {' − '.join(part.methods)}"


def _range(pairs: Sequence[Pooled]) -> tuple[float, float]:
    """What all collections' intervals and 0 lie in, and pooled intervals as far as they are not much wider."""
    ends = [0.0]
    for one in pairs:
        ends += [end for part in one.parts.values() if part.found is not None for end in part.found.interval]
    low, high = min(ends), max(ends)
    span = high - low or 1.0
    pooled = [end for one in pairs if one.total is not None for end in one.total.interval]
    low = min(low, max(min(pooled, default=low), low - span / 2))
    high = max(high, min(max(pooled, default=high), high + span / 2))
    return low - 0.05 * span, high + 0.05 * span


def picture(figure: Figure, kind: Literal["png", "svg"]) -> bytes:
    """A figure as the bytes of a file; the same figure gives the same bytes."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "rerank"}):
        metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
        figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
    return buffer.getvalue()
