"""Configuration of an experiment; each field is a key of its YAML file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from rerank.evaluation.measures import Empty
from rerank.evaluation.significance import Correction, Test
from rerank.settings.arguments import Count, NotNegative, Range

FIRST_STAGE = "first stage"
"""The row of the first stage."""


@dataclass
class Method:
    """A row of the table.

    Attributes:
        set: keys of a training configuration that differ from the base. Mappings are merged key by key, but one with
            ``class_path`` replaces what was there. Keys may be dotted, ``init_args`` left out: ``loss.alpha: 10``.
        search: dotted keys, each with a list of values to choose from by the monitor on validation lists.
    """

    set: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)


@dataclass
class Published:
    """Numbers to print beside ours.

    Attributes:
        source: where they come from, for the caption.
        rows: numbers by method, one per measure of the table, None if there is none.
    """

    source: str
    rows: dict[str, list[float | None]]


@dataclass
class ExperimentConfig:
    """An experiment: methods x folds x seeds, each searched over its own points.

    >>> base = {"data": "ListsData", "data.train": "lists/train", "model": "MLP"}
    >>> config = ExperimentConfig("experiments/losses", base, {"ListNet": Method({"loss": "ListNet"})}, seeds=[1, 2])
    >>> config.seeds, list(config.methods)
    ([1, 2], ['ListNet'])

    Attributes:
        output: folder to make; an interrupted experiment resumes in it.
        base: keys of a training configuration (see ``rerank train --help``) that all runs share.
        methods: the rows of the table, by name.
        first_stage: for lists of texts, ``show`` adds the first stage as a row, ``interpolate`` also adds each
            method interpolated with it, with the weight that validation chose; ``hide`` leaves both out.
        folds: values of ``data.fold``; none if the data has no folds.
        seeds: values of ``seed``; the table has their mean.
        measures: measures of the table, on test lists, separated by spaces.
        empty: what a query without relevant documents scores on test: 0 as in trec_eval, 1, or drop to leave it out.
        baseline: the method to test the others against, or ``first stage``; by default nothing is tested.
        pairs: compare every row with the ``baseline``, or ``all`` rows with each other.
        test: ``bootstrap`` over seeds and queries, or a paired test over queries of the means over seeds, which treats
            the seeds as fixed. Folds are pooled.
        correction: how p-values are corrected for all planned comparisons, in all measures.
        level: p-values below it are marked.
        published: numbers to print beside ours.
        jobs: runs trained side by side; defaults to one per core, or one per GPU if there are any. They share the
            cores as threads, unless OMP_NUM_THREADS says how many each has. On a cluster this is the maximum; by
            default as many as fit, as machines join and leave.
        engine: ``local`` trains in processes on this machine; ``ray`` on a Ray cluster (that of RAY_ADDRESS, if set),
            whose machines see the same disk.
        num_cpus: with ``ray``, the CPUs of a run, and so its threads.
        num_gpus: with ``ray``, the GPUs of a run; 0.5 lets two runs share one.
    """

    output: str
    base: dict[str, Any]
    methods: dict[str, Method]
    first_stage: Literal["hide", "show", "interpolate"] = "show"
    folds: list[int | str] | None = None
    seeds: list[int] = field(default_factory=lambda: [42])
    measures: str = "nDCG@10 nDCG AP RR P@10"
    empty: Empty = "0"
    baseline: str | None = None
    pairs: Literal["baseline", "all"] = "baseline"
    test: Test = "bootstrap"
    correction: Correction = "holm"
    level: Annotated[float, Range(0, 1, without_low=True, without_high=True)] = 0.05
    published: Published | None = None
    jobs: Count | None = None
    engine: Literal["local", "ray"] = "local"
    num_cpus: Count = 1
    num_gpus: NotNegative = 0


def folds_of(config: ExperimentConfig) -> list[int | str | None]:
    """List the folds; None stands for data without folds."""
    return [*config.folds] if config.folds else [None]


def interpolated_name(method: str) -> str:
    """Name the row of a method that is interpolated with the first stage."""
    return f"{method} + {FIRST_STAGE}"


def first_stage_names(config: ExperimentConfig) -> list[str]:
    """Name the rows that the first stage adds to the table."""
    alone = [] if config.first_stage == "hide" else [FIRST_STAGE]
    return alone + (list(map(interpolated_name, config.methods)) if config.first_stage == "interpolate" else [])
