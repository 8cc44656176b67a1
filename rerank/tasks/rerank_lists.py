"""Scoring lists with a trained model: ``rerank.rerank_lists``, and ``rerank rerank``."""

from __future__ import annotations

import reprlib
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rerank.errors import UserError
from rerank.progress import log
from rerank.settings.arguments import Count, check_arguments
from rerank.tasks.arguments import ListsLike, ModelLike

if TYPE_CHECKING:
    from rerank.lists.view import Lists
    from rerank.retrieval.runs import RunTable


def rerank_lists(
    model: ModelLike,
    lists: ListsLike,
    depth: Count | None = None,
    no_interpolation: bool = False,
    precision: Literal["auto", "bf16", "fp32"] = "auto",
    token_budget: Count | None = None,
    instruction: str | None = None,
) -> RunTable:
    """Score ranked lists with a trained model, and rank them by it.

    Processes of ``torchrun`` or ``accelerate launch``, on one machine or many, share the lists.

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
        depth: candidates reranked per query; defaults to the whole list. Deeper ones are left out.
        no_interpolation: rank by the model alone, if its folder interpolates it with columns.
        precision: floating-point format of the encoder; auto takes bf16 if the hardware is fast at it.
        token_budget: padded tokens (documents, for feature vectors) per forward pass; defaults to the model's own.
        instruction: instruction for queries without one, if the model's prompt has a place for it.

    Returns:
        The run, in each of the processes that ``torchrun`` started.

    Raises:
        UserError: no such model or lists, or lists that lack what the model reads.
    """
    from rerank.evaluation.compare import compare_runs
    from rerank.features.letor import open_lists
    from rerank.lists.view import Lists
    from rerank.models.base import Model
    from rerank.models.folder import read_contract
    from rerank.models.load import load_model
    from rerank.retrieval.runs import as_run
    from rerank.scoring.in_sample import shared_queries
    from rerank.scoring.shared import check_scoring, join, score_shared, together

    given = {"depth": depth, "precision": precision, "token_budget": token_budget}
    check_arguments(rerank_lists, given)
    for name, value, kind in (("model", model, Model), ("lists", lists, Lists)):
        if not isinstance(value, kind | str | Path):
            raise UserError(f"{name}: expected a rerank.{kind.__name__} or its folder, not {reprlib.repr(value)}")
    if (instruction or no_interpolation) and isinstance(model, Model):
        raise UserError("instruction, no_interpolation: are for a model's folder; give them to rerank.load")
    columns = () if isinstance(model, Model) else read_contract(Path(model)).get("columns", ())
    opened: Lists = lists if isinstance(lists, Lists) else open_lists(lists, columns)
    chosen = opened.to_rerank(depth)
    trained_on = shared_queries(chosen, model)
    state = join()
    with together():
        scorer = model if isinstance(model, Model) else load_model(model, not no_interpolation, instruction)
        scorer.check_trained()
        check_scoring(scorer, precision, token_budget)
    scores = score_shared(scorer, chosen, precision=precision, budget=token_budget, progress="reranked lists")
    run = chosen.run(scores)
    judged = any((chosen.qrels or {}).values())
    if state.is_main_process and judged and (order := chosen.store.order) is not None:
        first = f"first stage {order}"
        log.info("%s", *compare_runs(chosen, {"the ranking": scores, first: order}, "nDCG@10", first).compared)
    if trained_on:
        said = "%s was trained on %d of these %d queries, so its measures are optimistic"
        log.warning(said, model, len(trained_on), len(chosen))
    return as_run(run)
