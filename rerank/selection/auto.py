"""Choose a ranker on held-out queries: ``rerank.auto``, and the command of that name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rerank.settings.arguments import Count, CountOrZero, Seed, check_arguments
from rerank.tasks.arguments import Folder, ListsLike, Names

if TYPE_CHECKING:
    from rerank.selection.table import Selection


def auto(
    train: ListsLike,
    validation: ListsLike | None = None,
    test: ListsLike | None = None,
    models: Names | None = None,
    *,
    output: Folder,
    epochs: CountOrZero | None = None,
    depth: Count = 150,
    monitor: str = "nDCG@10",
    seed: Seed = 42,
) -> Selection:
    """Compare rankers on held-out queries, and save the best.

    Candidates are every column of scores (the first stage among them), cosine similarities of embedding models, the
    fusion of these, and each model as published, fine-tuned, and interpolated with the fusion. The choice is the best
    of the columns and their fusion on the validation queries, unless a model is significantly better (paired t-test,
    p < .05 with Holm's correction over all models' candidates). Tuned weights are measured out of fold. The same call
    continues a run that was killed; completed steps are reused.

    Args:
        train: judged lists to train on.
        validation: judged lists to choose on; by default a tenth of the training queries is held out, at least 50, at
            most half. If nothing is trained, all training queries are used to choose.
        test: judged lists on which every candidate is measured, after the choice.
        models: folders or hub names of rerankers and embedding models; by default columns are compared alone.
        output: folder for ``best/``, ``report.json``, ``report.txt`` and intermediate results.
        epochs: passes over the training lists; 0 compares without training, the default makes 300 steps in 2 to 10
            passes.
        depth: candidates reranked per validation and test query.
        monitor: the measure to choose by.
        seed: random seed of the held-out queries, folds and training.

    Returns:
        The comparison: it prints as a table, and ``output/best`` is what :func:`rerank.load_model` loads.

    Raises:
        UserError: options or lists that do not fit together, before anything is computed.
    """
    from rerank.evaluation.measure_names import parse_measure
    from rerank.selection.comparison import select

    check_arguments(auto, {"output": output, "epochs": epochs, "depth": depth, "seed": seed})
    given = {"train": train} | {k: v for k, v in (("validation", validation), ("test", test)) if v is not None}
    names = [models] if isinstance(models, str) else list(models or [])
    return select(given, names, Path(output), epochs, depth, str(parse_measure(monitor, "monitor")), seed)
