"""What an experiment will do: a training configuration for each method, fold, seed and point of a search."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

from rerank.evaluation.measures import parse_measures
from rerank.experiments.cells import Cell, Group
from rerank.experiments.checks import check_config
from rerank.experiments.config import ExperimentConfig, folds_of
from rerank.experiments.search import Point, file_name, grid
from rerank.settings.configs import Settings, assign, merged
from rerank.training.config import TrainConfig


class ExperimentPlan:
    """What an experiment will do."""

    def __init__(self, config: ExperimentConfig) -> None:
        self.config = config
        self.output = Path(config.output)
        self._defaults = {field.name: field.default for field in fields(TrainConfig)}
        check_config(config, self._defaults)
        self.folds = folds_of(config)
        self.groups = [
            Group(method, fold, seed) for method in config.methods for fold in self.folds for seed in config.seeds
        ]

    def cell(self, group: Group, point: Point) -> Cell:
        settings = merged(self.config.base, self.config.methods[group.method].set)
        for key, value in point.items():
            assign(settings, key, value)
        if group.fold is not None:
            assign(settings, "data.fold", group.fold)
        settings |= {"seed": group.seed, "test": False}
        return Cell(group, point, self.folder(group), settings, self.validated(settings)[0])

    def points(self, group: Group) -> list[Point]:
        return grid(self.config.methods[group.method].search)

    def refitted(self, chosen: Cell, trees: int | None = None) -> Cell:
        """The second training of a cell that validation chose; the cell itself where there is none.

        ``trees`` is how many validation found best, of a model that has any.
        """
        if not self.config.refit:
            return chosen
        settings = merged(chosen.settings, {})
        for key, value in self.config.refit.items():
            assign(settings, key, value)
        settings["patience"] = None
        if trees is not None:
            assign(settings, "model.trees", trees)
        return replace(chosen, settings=settings, again=True, id="")

    def validated(self, settings: Settings) -> list[str]:
        """What a training configuration measures on validation lists, the monitor first."""
        given = self._defaults | settings
        return [str(measure) for measure in parse_measures(f"{given['monitor']} {given['measures']}")]

    def folder(self, group: Group) -> Path:
        fold = "all" if group.fold is None else f"fold-{file_name(str(group.fold))}"
        return self.output / "cells" / file_name(group.method) / fold / f"seed-{group.seed}"
