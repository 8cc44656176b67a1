"""What rankers are worth by depth, and what they cost: as a table, as JSON, and in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from pandas import DataFrame

from rerank.evaluation.beside import shown_difference
from rerank.evaluation.render import WIDTH, Section, document, plain
from rerank.html import shown
from rerank.storage.files import atomic_write
from rerank.storage.hashes import write_sealed


@dataclass(frozen=True)
class Reranked:
    """One ranker at one depth.

    Attributes:
        depth: how many candidates it reorders; those below stay as they are.
        difference: from the first stage.
        low: where its 95 % interval begins; None where nothing varies.
        high: where it ends.
        milliseconds: of one query, the median; None where the scores were there before.
    """

    ranker: str
    depth: int
    value: float
    difference: float
    low: float | None
    high: float | None
    milliseconds: float | None

    @property
    def shown(self) -> str:
        return shown_difference(self.difference, (self.low, self.high))


@dataclass(frozen=True)
class Size:
    """What a ranker takes.

    Attributes:
        parameters: of its networks; None without.
        bytes: on disk; None without files here.
        peak_bytes: the most memory while it was loaded and answered one query at a time; None where nothing tells.
        trained_on: how many of the queries it was trained on; None where it does not say.
    """

    ranker: str
    kind: str
    parameters: int | None
    bytes: int | None
    peak_bytes: int | None
    trained_on: int | None


@dataclass(frozen=True)
class Compared:
    """Rankers over the same candidates.

    Attributes:
        queries: how many have judgments.
        first_stage: the column that orders the lists.
        first_value: its mean of the measure.
        machine: what answered, in words; servers have machines of their own.
        timed: how many queries the median is of.
        budget_ms: milliseconds that a query may take, if somebody said.
    """

    lists: str
    queries: int
    measure: str
    first_stage: str
    first_value: float
    rows: Sequence[Reranked]
    sizes: Sequence[Size]
    machine: str
    timed: int
    budget_ms: float | None = None

    @property
    def best(self) -> Reranked | None:
        """The best within the budget, of equal ones the fastest; None where nothing is both timed and within."""
        most = self.budget_ms or 1e99
        fast = [row for row in self.rows if row.milliseconds is not None and row.milliseconds <= most]
        return min(fast, key=lambda row: (-row.value, row.milliseconds or 0.0), default=None)

    @property
    def sentence(self) -> str:
        """What fits into the budget; empty without one."""
        if self.budget_ms is None:
            return ""
        begin = f"Within {self.budget_ms:g} ms a query:"
        if self.best is None:
            return f"{begin} the first stage alone; no ranker that was timed is as fast."
        best = self.best
        if best.difference <= 0:
            return f"{begin} the first stage alone; no ranker that was timed and is as fast is better."
        sure = "" if best.low is not None and best.low > 0 else "; no better than the first stage beyond chance"
        return (
            f"{begin} {best.ranker} at depth {best.depth} ({_milliseconds(best)} ms), {self.measure} {best.value:.4f}, "
            f"{best.shown} against the first stage{sure}."
        )

    def __str__(self) -> str:
        header = ["ranker", "depth", self.measure, "against the first stage", "ms a query"]
        shown = [["", str(row.depth), f"{row.value:.4f}", row.shown, _milliseconds(row)] for row in self.rows]
        first = [f"{self.first_stage} (first stage)", "", f"{self.first_value:.4f}", "", ""]
        others = sum(max(map(len, column)) + 2 for column in list(zip(header, *shown, first, strict=True))[1:])
        names = [_short(row.ranker, WIDTH - others) for row in self.rows]
        rows = [first] + [[name, *cells[1:]] for name, cells in zip(names, shown, strict=True)]
        sizes = [
            plain(_short(s.ranker, 36), s.kind, _count(s.parameters), _mb(s.bytes), _mb(s.peak_bytes))
            for s in self.sizes
        ]
        tables = [
            Section("Rankers", header, [plain(*cells) for cells in rows]),
            Section("Sizes", ["ranker", "what it is", "parameters", "MB on disk", "MB of memory"], sizes, names=2),
        ]
        return document(tables, self.facts(), self.sentence)

    def facts(self) -> list[str]:
        facts = [
            f"{self.lists}: {self.queries} queries; a ranker reorders the top of a list, the rest stays behind it. "
            "95 % intervals: bootstrap over queries, widened by Student's t, not corrected for their number.",
            f"Times: one query at a time, the median of {self.timed}, warm; {self.machine}. Memory: the most of the "
            "whole process meanwhile. A column's scores were there before, so it has neither.",
        ]
        facts += [
            f"{size.ranker}: was trained on {size.trained_on} of these queries, on which it is better than on others."
            for size in self.sizes
            if size.trained_on
        ]
        return facts

    def to_dataframe(self) -> DataFrame:
        frames = ((self.rows, Reranked), (self.sizes, Size))
        rows, sizes = (DataFrame(map(asdict, some), columns=[one.name for one in fields(of)]) for some, of in frames)
        return rows.merge(sizes, on="ranker")

    def _repr_html_(self) -> str:
        return shown(self.sentence or f"{self.measure}, {self.queries} queries", self.to_dataframe())

    def write(self, folder: str | Path) -> None:
        with atomic_write(Path(folder) / "compare.txt") as file:
            file.write(f"{self}\n")
        write_sealed(Path(folder) / "compare.json", asdict(self) | {"sentence": self.sentence})


def _milliseconds(row: Reranked) -> str:
    return "-" if row.milliseconds is None else f"{row.milliseconds:.{1 if row.milliseconds < 10 else 0}f}"


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number / 1e6:.1f} M" if number >= 1e5 else str(number)


def _mb(number: int | None) -> str:
    return "-" if number is None else f"{number / 1e6:.{1 if number < 1e7 else 0}f}"


def _short(name: str, width: int) -> str:
    """A name that fits; of a long one both ends.

    >>> _short("https://search.example.com/v1/rerank", 20)
    'https://se…v1/rerank'
    """
    return name if len(name) <= width else f"{name[: width // 2]}…{name[len(name) - (width - width // 2 - 1) :]}"
