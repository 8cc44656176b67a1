"""One model out of several: ``rerank.average``, and the command of that name."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.errors import UserError
from rerank.progress import log
from rerank.tasks.arguments import ListsLike

if TYPE_CHECKING:
    from rerank.models.base import Model


SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the second of two models that are tried."""


def average(
    models: list[str],
    output: str,
    weights: list[float] | None = None,
    lists: ListsLike | None = None,
    measure: str = "nDCG@10",
) -> Model:
    """Average the weights of models, such as those of several seeds.

    The average is one model, as fast as each. With ``lists`` the weights are chosen on them: of two models the best of
    five shares; of more a mean of some, added one by one, the best first, as long as that helps (a greedy soup).

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2], "doc_id": [1, 2, 1, 2], "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> from tempfile import mkdtemp
    >>> model = rerank.MLP(hidden=[4], columns=["bm25"])
    >>> run = rerank.train(model, lists, rerank.LambdaLoss(), validation=None, output=mkdtemp() + "/x")
    >>> best = str(run.folder / "best")
    >>> mean = rerank.average([best, best], output=mkdtemp() + "/mean")
    >>> bool((mean.predict(lists) == run.model.predict(lists)).all())
    True

    Args:
        models: folders of models that differ in nothing but their weights.
        output: the folder to make.
        weights: of the models, at least 0, in sum 1; None takes equal ones, or those that are best on ``lists``.
        lists: judged lists to choose the weights on: of validation, never of test.
        measure: the measure that the choice maximises.

    Returns:
        The average.

    Raises:
        UserError: models that cannot be averaged, or both weights and lists.
    """
    from rerank.models.average import average_models
    from rerank.models.contract import MIX, read_contract
    from rerank.models.load import load_model
    from rerank.scoring.in_sample import remember_all

    if lists is not None:
        if weights is not None:
            raise UserError("weights: --lists chooses them; give only one of the two")
        weights = chosen(models, lists, measure)
    average_models(models, weights, output, remember_all(models))
    log.info("%s: the average of %d models", output, len(models))
    if mixed := [model for model in models if MIX in read_contract(Path(model))]:
        log.warning("%s mixes in columns, which the average does not; `write_ranker` mixes again", mixed[0])
    return load_model(output)


def chosen(models: Sequence[str], lists: ListsLike, measure: str) -> list[float]:
    """The weights whose average is best on some lists; of equal ones those that were tried first."""
    from rerank.evaluation.measures import Evaluator
    from rerank.features.letor import open_lists
    from rerank.lists.view import Lists
    from rerank.models.average import average_models
    from rerank.models.contract import LAYOUT, read_contract
    from rerank.models.load import load_model

    if len(models) < 2:
        raise UserError("models: expected two or more")
    layout = read_contract(Path(models[0])).get(LAYOUT)
    opened = lists if isinstance(lists, Lists) else open_lists(lists, layout)
    if opened.qrels is None:
        raise UserError(f"lists: {opened.store} has no judgments to choose weights by")
    evaluator = Evaluator(opened.qrels, measure)

    def value(weights: list[float]) -> float:
        with tempfile.TemporaryDirectory(prefix="rerank-") as folder:
            place = Path(folder) / "average"
            average_models(models, weights, place)
            run = opened.run(load_model(place).predict(opened))
        (found,) = evaluator(run, "the average").mean.values()
        log.info("weights %s: %s %.4f", " ".join(f"{weight:.3g}" for weight in weights), measure, found)
        return float(found)

    if len(models) == 2:
        return max(([1 - share, share] for share in SHARES), key=value)

    def mean_of(some: Sequence[int]) -> list[float]:
        return [float(j in some) / len(some) for j in range(len(models))]

    alone = [value(mean_of([i])) for i in range(len(models))]
    best, *others = sorted(range(len(models)), key=lambda i: -alone[i])
    taken, best_value = [best], alone[best]
    for i in others:
        if (found := value(mean_of([*taken, i]))) > best_value:
            taken, best_value = [*taken, i], found
    return mean_of(taken)
