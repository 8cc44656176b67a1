"""Scoring lists with a trained model: ``rerank.rerank_lists``, and ``rerank rerank``."""

from __future__ import annotations

import reprlib
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rerank.errors import UserError
from rerank.settings.ranges import Count, check_arguments
from rerank.tasks.arguments import ListsLike, ModelLike

if TYPE_CHECKING:
    from rerank.lists.view import Lists
    from rerank.retrieval.runs import RunTable


def rerank_lists(
    model: ModelLike,
    lists: ListsLike,
    depth: Count | None = None,
    precision: Literal["auto", "bf16", "fp32"] = "auto",
    token_budget: Count | None = None,
    instruction: str | None = None,
) -> RunTable:
    """Score ranked lists with a trained model, and rank them by it.

    A model that was saved with a mix mixes; ``rerank.load(model, mix=False)`` ranks by the model alone.

    >>> import rerank
    >>> texts = ["a wing gives lift", "a jet engine", "heat is energy", "a jet engine"]
    >>> table = {"query": ["wing", "wing", "heat", "heat"], "text": texts, "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> from tempfile import mkdtemp
    >>> model = rerank.MLP(hidden=[4], columns=["bm25"])
    >>> run = rerank.train(model, lists, rerank.LambdaLoss(), validation=None, output=mkdtemp() + "/x")
    >>> ranked = rerank.rerank_lists(run.model, lists)
    >>> {query: len(hits) for query, hits in zip(lists.query_texts, ranked.values())}
    {'wing': 2, 'heat': 2}

    Args:
        model: folder of a trained model, such as runs/x/best.
        lists: lists folder made by ``rerank retrieve``, or a file of feature vectors (LETOR, svmlight).
        depth: candidates reranked per query; None takes all of the list. Deeper ones are left out.
        precision: arithmetic of the encoder; auto takes bf16 where the hardware is fast at it.
        token_budget: padded tokens (documents, for feature vectors) per forward pass; None takes the model's own.
        instruction: instruction for queries without one, in place of the model's default; with a folder as model.

    Returns:
        The run, in each of the processes that ``torchrun`` started.

    Raises:
        UserError: no such model or lists, or lists that lack what the model reads.
    """
    from rerank.models.base import Model
    from rerank.models.load import load_model
    from rerank.models.mixed import unmixed
    from rerank.models.vectors.network import FeatureNetwork
    from rerank.retrieval.runs import as_run
    from rerank.scoring.shared import check_scoring, score_shared

    check_arguments(rerank_lists, {"precision": precision})
    chosen = lists_to_score(model, lists, depth, token_budget)
    if instruction and isinstance(model, Model):
        raise UserError("instruction: is for a model's folder; make the model with instruction=…")
    scorer = model if isinstance(model, Model) else load_model(model, instruction=instruction)
    network = unmixed(scorer)
    if isinstance(network, FeatureNetwork) and not network.names:
        raise UserError(f"model: {network.untrained()}; train it first")
    scorer.warn_if_untrained()
    check_scoring(scorer, precision, token_budget)
    scores = score_shared(scorer, chosen, precision=precision, budget=token_budget, progress="reranked lists")
    return as_run(chosen.run(scores))


def lists_to_score(model: ModelLike, lists: ListsLike, depth: int | None, token_budget: int | None) -> Lists:
    """Open the lists that a model scores, cut to a depth; see :func:`rerank_lists`."""
    from rerank.features.letor import open_lists
    from rerank.lists.view import Lists
    from rerank.models.base import Model
    from rerank.models.contract import read_contract

    check_arguments(rerank_lists, {"depth": depth, "token_budget": token_budget})
    for name, value, kind in (("model", model, Model), ("lists", lists, Lists)):
        if not isinstance(value, kind | str | Path):
            raise UserError(f"{name}: expected a rerank.{kind.__name__} or its folder, not {reprlib.repr(value)}")
    contract = read_contract(Path(model)) if not isinstance(model, Model) else {}
    opened: Lists = lists if isinstance(lists, Lists) else open_lists(lists, contract.get("columns", ()))
    return opened.to_rerank(depth)
