"""``rerank.calibrate``: probabilities of relevance from scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rerank.errors import UserError
from rerank.progress import log
from rerank.settings.arguments import Count, check_arguments
from rerank.tasks.arguments import Folder, ListsLike

if TYPE_CHECKING:
    from rerank.evaluation.calibration import Calibration

FOLDS = 5


def calibrate(
    model: Folder, lists: ListsLike, grade: Count = 1, output: Folder | None = None, depth: Count | None = None
) -> Calibration:
    r"""Fit probabilities of relevance to validation lists.

    The calibration :math:`\sigma(a s + b)` is saved in ``rerank.json``; scores do not change. Afterwards ``rank`` and
    ``rerank serve`` return a ``probability``, and ``rerank.load(folder).probabilities(lists)`` computes them for lists.
    If the judgments name only relevant documents, unjudged candidates count as not relevant; otherwise they are left
    out. The printed log loss and calibration error are cross-validated over queries.

    >>> import rerank
    >>> table = {"query": [f"query {i}" for i in range(40) for _ in range(4)], "grade": [1, 0, 0, 0, 0, 1, 0, 0] * 20}
    >>> table["bm25"] = [2.5, 1.5, 1.0, 0.5] * 40
    >>> lists = rerank.Lists.from_dataframe(table | {"text": [f"text {i}" for i in range(160)]})
    >>> from tempfile import mkdtemp
    >>> folder = mkdtemp() + "/ranker"
    >>> rerank.Interpolated(None, {"bm25": 1.0}).save(folder)
    >>> calibration = rerank.calibrate(folder, lists)
    >>> chances = rerank.load(folder).probabilities(lists)
    >>> bool(0 < chances.min() <= chances.max() < 1)
    True

    Args:
        model: folder of a trained model, or its name on the hub.
        lists: judged validation lists that the model was not trained on.
        grade: lowest relevance label that counts as relevant.
        output: folder to make; defaults to changing the model's own.
        depth: candidates per query; use the depth that you rerank. Defaults to all.

    Returns:
        The calibration, which maps scores to probabilities.

    Raises:
        UserError: no such model or lists, too few judgments, or scores that do not predict relevance.
    """
    import numpy as np
    from sklearn.metrics import log_loss

    from rerank.evaluation.calibration import calibration_error, fit
    from rerank.features.letor import open_lists
    from rerank.lists.data import drawn_folds
    from rerank.lists.view import Lists
    from rerank.models.card import copy_card
    from rerank.models.folder import CALIBRATION, CONTRACT, add_to_contract, read_contract
    from rerank.models.load import load_model
    from rerank.scoring.in_sample import shared_queries
    from rerank.scoring.shared import score_shared
    from rerank.storage.files import atomic_folder

    check_arguments(calibrate, {"grade": grade, "depth": depth})
    if output is None and not (Path(model) / CONTRACT).is_file():
        raise UserError(f"--model: {model} has no {CONTRACT}; name a folder to make with --output FOLDER")
    opened = lists if isinstance(lists, Lists) else open_lists(lists, read_contract(Path(model)).get("columns", ()))
    if opened.qrels is None:
        raise UserError(f"--lists: {opened.store} has no judgments; make them with `rerank retrieve --qrels`")
    opened = opened.select(opened.judged & (opened.lengths > 0)).to_rerank(depth)
    if len(opened) < FOLDS:
        raise UserError(f"--lists: {len(opened)} judged queries are too few for {FOLDS} folds; give more")
    if shared := shared_queries(opened, model):
        seen = f"{len(shared)} of its {len(opened)} queries, such as {shared[0]!r}"
        raise UserError(f"--lists: {model} was trained on {seen}, so its scores are overfitted; give other lists")
    ranker = load_model(model)
    opened = ranker.completed(opened)
    ranker.check(opened)

    scores = score_shared(ranker, opened, progress="calibration").astype(float)
    labels = opened.judged_grades()
    complete = any(label <= 0 for labels in opened.qrels.values() for label in labels.values())
    counted = np.array([label is not None or not complete for label in labels])
    relevant = np.array([label is not None and label >= grade for label in labels])[counted]
    scores, query = scores[counted], np.repeat(np.arange(len(opened)), opened.lengths)[counted]
    calibration = fit(scores, relevant, grade)
    p, folds = np.empty(len(scores)), drawn_folds(opened, FOLDS, 0)[query]
    for fold in np.unique(folds):
        held_out = folds == fold
        p[held_out] = fit(scores[~held_out], relevant[~held_out], grade)(scores[held_out])
    if output is None:
        add_to_contract(Path(model), {CALIBRATION: vars(calibration)})
    else:
        with atomic_folder(output) as folder:
            ranker.save(folder)
            copy_card(Path(model), folder)
            add_to_contract(folder, {CALIBRATION: vars(calibration)})
    log.info(
        "%s: probability = sigmoid(%.4g score %+.4g), from %d candidates of %d queries, %d of them relevant; "
        "cross-validated log loss %.4f, calibration error %.4f",
        *(output or model, calibration.a, calibration.b, len(scores), len(opened), relevant.sum()),
        *(log_loss(relevant, p), calibration_error(p, relevant)),
    )
    return calibration
