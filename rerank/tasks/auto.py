"""From the first stage to a ranker that earns its place: ``rerank.auto``, and the command of that name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rerank.settings.ranges import Count, NotNegative, Seed, check_arguments
from rerank.tasks.arguments import Folder, ListsLike, Names

if TYPE_CHECKING:
    from rerank.ladder.result import Ladder


def auto(
    train: ListsLike,
    validation: ListsLike | None = None,
    test: ListsLike | None = None,
    model: Names | None = None,
    hours: NotNegative | None = None,
    *,
    output: Folder,
    depth: Count = 150,
    monitor: str = "nDCG@10",
    seed: Seed = 42,
) -> Ladder:
    """Climb a ladder of rankers over the same candidates, and keep the highest that earns its place on validation.

    The rungs are the first stage; other evidence; both fused; a text model as published, trained on documents alone,
    fine-tuned, averaged; and its mix with the fused first stage. A rung stays if the validation queries tell, at one in
    two hundred, that it is better than the highest below it that stays, see :mod:`rerank.ladder.split`. The test lists
    are looked at once, at the end. The same call resumes where another was killed, and a finished ladder is only read.

    Args:
        train: lists folder to train on, or a file of feature vectors (LETOR, svmlight).
        validation: lists to choose on; None keeps a share of the training queries back. What no judgment trains is
            judged on training queries, too, where these are fewer than 500.
        test: lists that every rung is measured on, once, at the end.
        model: text models, by folder or name, or LightGBM, XGBoost, MLP, SelfAttention for feature vectors. One that
            embeds texts also gives a column of cosines. None takes MiniLM, or LightGBM.
        hours: how long it may take, which decides how many seeds and passes there are; None takes all.
        output: folder for the ladder: ladder.txt, ladder.json, ladder.html, and the ranker.
        depth: candidates of a validation or test query that take part.
        monitor: the measure that decides.
        seed: decides which queries are kept back for validation.

    Returns:
        The ladder; ``output/ranker`` is the ranker, as :func:`rerank.load_model` takes it.

    Raises:
        UserError: what cannot work, before any work is done; a folder that holds something else.
    """
    from rerank.ladder.climb import climbed

    check_arguments(auto, {"hours": hours, "output": output, "depth": depth, "seed": seed})
    given = {"train": train, "validation": validation, "test": test}
    return climbed(given, model, hours, Path(output), depth, monitor, seed)
