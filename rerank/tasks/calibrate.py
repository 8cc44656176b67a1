"""Scores as probabilities of relevance: ``rerank.calibrate``, and the command of that name."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.errors import UserError
from rerank.progress import log
from rerank.settings.ranges import Count, check_arguments
from rerank.storage.files import atomic_folder, check_apart
from rerank.tasks.arguments import ListsLike

if TYPE_CHECKING:
    from rerank.lists.view import Lists
    from rerank.models.base import Model
    from rerank.storage.arrow import Array
    from rerank.tasks.calibrated import Calibrated, Measured


FOLDS = 5

EXPORTS = ("onnx", "openvino")
"""Folders of a model that hold its weights once more."""

WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".h5", ".msgpack")
"""How the names of files of weights end, whoever wrote them."""

OFF = 1e-3
"""How far a score by the scaled layer may be from the scaled score, in units of its logit."""


def calibrate(
    model: str,
    lists: ListsLike,
    grade: Count = 1,
    output: str | None = None,
    depth: Count | None = None,
    test: ListsLike | None = None,
) -> Calibrated:
    r"""Make probabilities of a ranker's scores, by :math:`\sigma(a s + b)` fitted to the judgments of validation lists.

    Where a score is the output of a linear last layer, a and b go into that layer: whoever applies a sigmoid to the
    scores has probabilities, and the order stays. Else they go into ``rerank.json``, and scores stay as they are.
    Either way ``rerank.load(folder).probabilities(…)`` gives probabilities.

    >>> import rerank
    >>> table = {"query": [f"query {i}" for i in range(40) for _ in range(4)], "grade": [1, 0, 0, 0, 0, 1, 0, 0] * 20}
    >>> table["bm25"] = [2.5, 1.5, 1.0, 0.5] * 40
    >>> lists = rerank.Lists.from_dataframe(table | {"text": [f"text {i}" for i in range(160)]})
    >>> from tempfile import mkdtemp
    >>> from rerank.models.mixed import write_ranker
    >>> folder = mkdtemp()
    >>> _ = write_ranker(None, {"bm25": 1.0}, text=0, output=folder + "/ranker")
    >>> _ = rerank.calibrate(folder + "/ranker", lists, output=folder + "/calibrated")
    >>> chances = rerank.load(folder + "/calibrated").probabilities(lists)
    >>> bool(0 < chances.min() <= chances.max() < 1)
    True

    Args:
        model: the ranker's folder, or its name on the hub.
        lists: judged lists that it was not trained on.
        grade: the lowest grade that counts as relevant.
        output: folder to make; None writes into the model's own.
        depth: candidates per query that take part, as many as will be reranked; None takes all.
        test: other judged lists, to measure on what was promised.

    Returns:
        The calibration; it prints, shows itself in notebooks, and has ``to_dataframe()``.

    Raises:
        UserError: no such ranker or lists, too few judgments, or scores that say nothing of relevance.
    """
    import numpy as np

    from rerank.models.contract import LAYOUT, read_contract
    from rerank.models.load import load_model
    from rerank.models.text.cross_encoder import layer_of_scores
    from rerank.scoring.in_sample import shared_queries
    from rerank.storage.locks import held

    check_arguments(calibrate, {"grade": grade, "depth": depth})
    if output is None and not Path(model).is_dir():
        raise UserError(
            f"model: no folder {model}; if it is a published model, name a folder to make with --output FOLDER"
        )
    place = output or model
    check_apart(place, lists=lists, test=test)
    layout = read_contract(Path(model)).get(LAYOUT)
    opened = _judged("lists", lists, depth, layout)
    others = None if test is None else _judged("test", test, depth, layout)
    if len(opened) < FOLDS:
        raise UserError(f"lists: {len(opened)} judged queries are too few for {FOLDS} folds; give more")
    if others is not None and not _relevant(others, grade)[1].any():
        raise UserError(f"test: {others.store} has no relevant candidate (of grade {grade} or more) to measure on")
    for name, used in {"lists": opened, "test": others}.items():
        if used is not None and (shared := shared_queries(used, model)):
            shown = f"{len(shared)} of its {len(used)} queries, such as {shared[0]!r}"
            raise UserError(f"{name}: {model} was trained on {shown}, and is too sure there; give others")
    if others is not None and (both := np.isin(others.query_keys, opened.query_keys)).any():
        raise UserError(f"test: {others.store} has {both.sum()} queries that the calibration is fitted to; give others")
    with held(place, "rerank calibrate", wait=True), atomic_folder(place, replace=output is None) as folder:
        ranker = load_model(model)
        opened = ranker.completed(opened)
        ranker.check(opened)
        exported = [path for kind in EXPORTS for path in sorted(Path(model).glob(f"{kind}/*"))]
        if layer_of_scores(ranker) is not None and exported:
            file = exported[0].relative_to(model)
            raise UserError(f"{model}: has {file}, which would keep the old scores; calibrate, then export")
        calibrated = _calibrated(ranker, opened, grade, place, others)
        _fill(folder, model, ranker, calibrated)
        if output is None:
            _bring_along(Path(model), folder)
    log.info("%s: calibrated", place)
    return calibrated


def _calibrated(ranker: Model, lists: Lists, grade: int, place: str, test: Lists | None) -> Calibrated:
    """Fit, measure, and scale the ranker's last layer where it has one."""
    from rerank.evaluation.calibration import PRECISIONS, Calibration, cross_fitted, fitted, threshold
    from rerank.lists.folds import drawn_folds
    from rerank.tasks.calibrated import Calibrated

    scores = _scores(ranker, lists, "calibration")
    counts, relevant, query, unjudged = _relevant(lists, grade)
    own, fold = scores[counts].astype(float), drawn_folds(lists, FOLDS, 0)[query]
    a, b = fitted(own, relevant)
    logits, above = cross_fitted(own, relevant, query, fold)
    least = {precision: threshold(own, relevant, query, precision) for precision in PRECISIONS}
    validation, tested = _measured(lists, query, relevant, own, logits, list(above.values())), None
    if test is not None:
        there = _scores(ranker, test, "test")
        counts, relevant, query, _ = _relevant(test, grade, unjudged)
        raw = there[counts].astype(float)
        tops = [raw >= (float("inf") if score is None else score) for score in least.values()]
        tested = _measured(test, query, relevant, raw, a * raw + b, tops)
    folded = _fold(ranker, lists, scores, a, b)
    ready = Calibration(a, b, grade, len(own))
    promised = {key: None if score is None else float(ready(score)) for key, score in least.items()}
    return Calibrated(place, a, b, grade, unjudged, folded, promised, validation, tested)


def _measured(lists: Lists, query: Array, relevant: Array, before: Array, after: Array, tops: list[Array]) -> Measured:
    """The quality of logits ``[n]`` before and after, and what is in ``tops``, candidates above thresholds."""
    from rerank.evaluation.calibration import Found, Quality, curve, sigmoid
    from rerank.tasks.calibrated import Measured

    quality = Quality.of(before, relevant), Quality.of(after, relevant)
    found = [Found.of(top, relevant, query) for top in tops]
    numbers = len(lists), len(before), int(relevant.sum())
    return Measured(Path(str(lists.store)).name, *numbers, *quality, found, curve(sigmoid(after), relevant))


def _judged(name: str, given: ListsLike, depth: int | None, layout: Mapping[str, int] | None) -> Lists:
    """The lists of judged queries, cut; those of a feature file in the layout of a model."""
    from rerank.features.letor import open_lists
    from rerank.lists.view import Lists

    lists = given if isinstance(given, Lists) else open_lists(given, layout)
    if lists.qrels is None:
        raise UserError(f"{name}: {lists.store} has no judgments; make it again with `rerank retrieve --qrels`")
    lists = lists.select(lists.judged & (lists.lengths > 0))
    return lists.cut(depth)


def _scores(ranker: Model, lists: Lists, name: str) -> Array:
    from rerank.scoring.shared import scores_by

    return scores_by(ranker, "auto", None)(lists, name)


def _relevant(lists: Lists, grade: int, unjudged: bool | None = None) -> tuple[Array, Array, Array, bool]:
    """Which candidates count, ``[T]``; of those which are relevant and the list of each, ``[n]``; whether unjudged do.

    Where judgments name relevant documents alone, as SciFact's do, unjudged ones count as not relevant.
    """
    import numpy as np

    if unjudged is None:
        unjudged = not any(value <= 0 for grades in (lists.qrels or {}).values() for value in grades.values())
    grades = lists.judged_grades()
    counts = np.array([value is not None or unjudged for value in grades], dtype=bool)
    relevant = np.array([value is not None and value >= grade for value in grades], dtype=bool)
    return counts, relevant[counts], np.repeat(np.arange(len(lists)), lists.lengths)[counts], unjudged


def _fold(ranker: Model, lists: Lists, before: Array, a: float, b: float) -> bool:
    """Write a and b into the last layer; not where there is none, or where the lists are not ranked as before.

    Products of float32 round, so that scores that were as good as equal could tie or change places: it is looked at.
    """
    import numpy as np
    import torch

    from rerank.models.text.cross_encoder import layer_of_scores

    if (layer := layer_of_scores(ranker)) is None:
        return False
    weights = {name: value.clone() for name, value in layer.state_dict().items()}
    with torch.no_grad():  # in float64, rounded to the layer's own type once
        layer.weight.copy_(a * layer.weight.double())
        layer.bias.copy_(a * layer.bias.double() + b)
    after = _scores(ranker, lists, "calibrated")
    of = np.repeat(np.arange(len(lists)), lists.lengths)
    moved = int((np.lexsort((-before, of)) != np.lexsort((-after, of))).sum())
    off = float(np.abs(after - (a * before + b)).max())
    if moved or off > OFF:
        layer.load_state_dict(weights)
        why = f"{moved} candidates would change places" if moved else f"a score would be {off:.1e} off"
        log.info("the last layer stays as it is, as %s by rounding: rerank.json holds a and b", why)
        return False
    return True


def _bring_along(model: Path, folder: Path) -> None:
    """Copy what else lies beside a model, such as a licence or a repository's ``.git``; its old weights do not come."""
    for path in model.iterdir():
        if (folder / path.name).exists() or path.name.endswith(WEIGHTS):
            continue
        if path.is_dir():
            shutil.copytree(path, folder / path.name, symlinks=True)
        else:
            shutil.copy2(path, folder, follow_symlinks=False)


def _fill(folder: Path, model: str, ranker: Model, calibrated: Calibrated) -> None:
    """Write the calibrated ranker: the model's files, the last layer's among them, and what was found."""
    from rerank.models.contract import CALIBRATION, CARD, add_to_contract, read_contract
    from rerank.models.load import copy_model

    kept = {CALIBRATION: calibrated.contract()}
    if calibrated.folded:
        ranker.save(folder)
        made, source = read_contract(folder), read_contract(Path(model))
        kept |= {key: value for key, value in source.items() if key not in (*made, *kept, "elsewhere")}
        if (Path(model) / CARD).is_file():
            shutil.copy(Path(model) / CARD, folder)
    else:
        copy_model(model, folder)
    add_to_contract(folder, kept)
    calibrated.describe(folder)
