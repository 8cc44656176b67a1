"""The configuration of a training run; each field is a key of the YAML file and an option."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from rerank.errors import UserError
from rerank.evaluation.measure_names import parse_measure, parse_measures
from rerank.evaluation.measures import COUNTS
from rerank.lists.data import Data
from rerank.lists.sampling import Full, Sampler
from rerank.losses.base import Criterion, Loss
from rerank.models.base import Model
from rerank.settings.arguments import Count, NotNegative, Positive, Seed, check_arguments


@dataclass
class Optimization:
    """Optimizer settings.

    >>> Optimization(encoder_lr=5e-6, warmup=0.2).schedule
    'linear'

    Attributes:
        encoder_lr: learning rate of the encoder.
        head_lr: learning rate of the head (all parameters outside the encoder).
        weight_decay: decay of the weights (not of biases and norms).
        decay: decoupled from the gradient (AdamW), or an L2 penalty in it (Adam).
        schedule: rates fall to 0 over the run, linearly or along a cosine; stay constant; or drop to a tenth in the
            second half.
        warmup: steps over which the rates rise linearly from 0: below 1 a share of all steps, else their number. The
            schedule ``half`` has no warm-up.
        max_grad_norm: longer gradients are scaled down to this norm; None (null in YAML) never scales.
    """

    encoder_lr: NotNegative = 2e-5
    head_lr: NotNegative = 1e-3
    weight_decay: NotNegative = 0.0
    decay: Literal["decoupled", "l2"] = "decoupled"
    schedule: Literal["linear", "cosine", "constant", "half"] = "linear"
    warmup: NotNegative = 0.1
    max_grad_norm: Positive | None = 1.0


@dataclass
class TrainConfig:
    """A training run.

    >>> import rerank
    >>> config = TrainConfig(
    ...     data=rerank.ListsData("lists/train"), model=rerank.MLP(columns=["bm25"]), loss=rerank.ListNet()
    ... )
    >>> config.epochs, config.batch_size, config.monitor
    (1, 16, 'nDCG@10')

    Attributes:
        data: source of the lists.
        model: model to train.
        loss: objective: one loss on the relevance labels, or Terms, a sum of losses with targets and weights. Networks
            need one; with None, trees use their own objective.
        sampler: choice of a list's candidates for each step.
        optimization: optimizer settings.
        epochs: passes over the training lists (or rounds of ``steps_per_epoch``) at most.
        steps_per_epoch: optimizer steps between validations; defaults to one pass over the training lists.
        batch_size: lists per optimizer step, over all processes and accumulation steps together.
        micro_batch_size: lists for which a process computes the loss at once; it accumulates its share of a batch in
            pieces of this size, and the gradient does not depend on it, unless the model has batch norm, which
            normalises over the documents of a piece. By default as many as fit ``token_budget`` if their graph is kept,
            else the whole share. ``accelerate launch --gradient_accumulation_steps`` sets the number of pieces instead.
        token_budget: padded tokens (documents, for feature vectors) per forward pass; defaults to the model's own, or
            to what fits in memory if that is less. Halved, with a warning, if memory runs out.
        gradient: full keeps the graph of a micro-batch, with whole lists, in memory. cached scores without a graph,
            takes the loss's gradient on the scores and goes through the model again, which needs the memory of one
            forward pass however long a list is. auto is full if a micro-batch takes at most half of the free memory,
            else cached. The gradient is the same.
        precision: floating-point format of the encoder; auto uses bf16 if the hardware is fast at it. Head and loss are
            always float32. fp16, on a GPU only, scales the loss, and skips a step whose gradient overflows.
        seed: decides every random choice.
        monitor: measure (as ir-measures writes it) that decides which epoch is best.
        select_epoch_by: ``loss`` selects the epoch with the lowest mean loss over the validation lists, ``last`` the
            last one; by default the monitor selects. The monitor is measured in any case.
        measures: measures reported for validation and test, separated by spaces.
        test: whether to measure the test lists at the end; turn it off while you are still choosing anything,
            and measure the chosen model with ``rerank rerank`` and ``rerank evaluate``.
        patience: epochs (trees, for trees) without a better monitor, or a better loss if it selects, before training
            stops; by default all are trained.
        checkpoint_every: optimizer steps between checkpoints. Ctrl-C and SIGTERM write one as well.
        tracker: trackers of Accelerate to log to, next to ``metrics.jsonl``, such as [tensorboard] or [wandb, mlflow].
    """

    data: Data
    model: Model
    loss: Criterion | None = None
    sampler: Sampler = field(default_factory=Full)
    optimization: Optimization = field(default_factory=Optimization)
    epochs: Count = 1
    steps_per_epoch: Count | None = None
    batch_size: Count = 16
    micro_batch_size: Count | None = None
    token_budget: Count | None = None
    gradient: Literal["auto", "full", "cached"] = "auto"
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "auto"
    seed: Seed = 42
    monitor: str = "nDCG@10"
    select_epoch_by: Literal["loss", "last"] | None = None
    measures: str = "nDCG@10 nDCG AP RR P@10"
    test: bool = True
    patience: Count | None = None
    checkpoint_every: Count = 200
    tracker: list[str] = field(default_factory=list)


def check_values(options: Any, loss: object, *, trees: bool = False) -> None:
    """Refuse settings that no run can use, before anything is read."""
    check_arguments(TrainConfig, vars(options))
    check_arguments(Optimization, vars(options.optimization), "optimization")
    parse_measures(options.measures)
    if (monitor := parse_measure(options.monitor, "monitor")).NAME in COUNTS:
        raise UserError(f"monitor: {monitor} only counts; choose a measure of quality, such as nDCG@10")
    if loss is None and not trees:
        raise UserError("loss: a network needs one, such as SmoothINDCG; `rerank show losses` lists them")
    if options.select_epoch_by is not None and trees:
        raise UserError("select_epoch_by: is for networks; trees are stopped by the monitor")
    if options.select_epoch_by == "last" and options.patience is not None:
        raise UserError("patience: has no effect with select_epoch_by: last; leave one of them out")
    several = isinstance(loss, type) and not issubclass(loss, Loss)
    if options.select_epoch_by == "loss" and several:
        raise UserError("select_epoch_by: loss needs a single loss of the grades, not a sum of several")
    if trees and several:
        raise UserError("loss: trees take a single loss of the grades, not a sum of several")
