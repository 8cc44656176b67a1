"""LambdaMART by LightGBM, or gradient-boosted trees by any loss of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rerank.errors import UserError
from rerank.lists.view import Lists
from rerank.models.vectors.boosting import Gain, Objective, Split, Trees
from rerank.settings.ranges import Count, CountOrZero, NotNegative, Portion, Positive, Several
from rerank.storage.arrow import Array

LONGEST = 10_000
"""Documents of a list that LightGBM's lambdarank takes."""


class LightGBM(Trees):
    r"""LambdaMART by LightGBM (Ke et al. 2017), or one of our losses.

    Without a ``loss`` in the configuration LightGBM's objective ``lambdarank`` is trained: every pair of documents of
    unequal grades, of which at least one is within the first ``lambdarank_truncation_level`` ranks, pulls them apart
    with the change of nDCG that swapping them would make,

    .. math:: \lambda_{ij} = \frac{|G_i - G_j|\,|D(\bar o_i) - D(\bar o_j)|}{\mathrm{IDCG}\,(0.01 + |s_i - s_j|)}
        \cdot \frac{1}{1 + e^{s_i - s_j}}

    (the division by the difference of scores and a normalisation per list are LightGBM's, Burges' report has neither).
    The gain G of a grade is the monitor's: y under ``nDCG@10``, 2^y - 1 under ``nDCG(dcg='exp-log2')@10`` and under
    measures other than nDCG. With a ``loss`` see :class:`rerank.training.trees.Objective`.

    The papers' settings are in ``configs/letor``. They are meant for the millions of documents of WEB30K: a small
    collection does not reach such a sum of Hessians in any leaf, and wants few leaves: ``num_leaves=7,
    min_data_in_leaf=50`` has a validation nDCG@10 of .5205 on MQ2008 and .4833 on OHSUMED (means of five folds,
    ``patience: 50``), the defaults .5162 and .4744. The same seed gives the same trees, whatever the number of threads.

    >>> LightGBM(trees=50, columns=["bm25"])
    LightGBM(trees=50, columns=['bm25'])
    """

    package = "lightgbm"
    file = "model.txt"
    smallest_leaf = "model.min_sum_hessian_in_leaf or model.min_data_in_leaf"

    def __init__(
        self,
        trees: Count = 1000,
        learning_rate: Positive = 0.05,
        num_leaves: Several = 31,
        min_data_in_leaf: CountOrZero = 20,
        min_sum_hessian_in_leaf: NotNegative = 1e-3,
        feature_fraction: Portion = 1.0,
        bagging_fraction: Portion = 1.0,
        threads: Count | None = None,
        columns: list[str] | None = None,
        params: dict[str, Any] | None = None,
    ) -> None:
        """Set LightGBM's parameters, under its names.

        Args:
            trees: largest number of trees; training with ``patience`` may stop earlier, and the best number is kept.
            learning_rate: factor of a tree's values.
            num_leaves: largest number of leaves of a tree.
            min_data_in_leaf: smallest number of documents in a leaf.
            min_sum_hessian_in_leaf: smallest sum of Hessians in a leaf; our losses have 1 per document.
            feature_fraction: share of the features, drawn for every tree.
            bagging_fraction: share of the documents, drawn for every tree.
            threads: number of threads; defaults to one for every 50,000 documents, up to OMP_NUM_THREADS or the number
                of cores.
            columns: names of the columns to read, or of single numbers of theirs (``features/3``); defaults to
                ``features``, the column of feature files.
            params: other parameters of LightGBM by name, such as ``lambda_l2`` or ``lambdarank_truncation_level`` (30).
        """
        super().__init__({name: value for name, value in locals().items() if name not in ("self", "__class__")})

    def begin(self, train: Lists, validation: Lists | None, seed: int, gain: Gain, own: bool) -> None:
        params = self._params("trees", "threads") | {
            "objective": "none" if own else "lambdarank",
            "metric": "None",
            "num_threads": self._threads(train.size),
            "bagging_freq": int(self.settings["bagging_fraction"] < 1),
            "seed": seed,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }
        if not own:
            if (longest := int(train.lengths.max(initial=0))) > LONGEST:
                raise UserError(
                    f"--model LightGBM: a training list has {longest:,} documents, LambdaMART takes {LONGEST:,}; "
                    "give --loss LambdaLoss, or store lists with a smaller --depth"
                )
            top = max(int(lists.grades.max(initial=0)) for lists in (train, validation) if lists is not None)
            params["label_gain"] = [2**y - 1 if gain == "exp-log2" else y for y in range(top + 1)]
        data = self._data(train, params)
        self.booster = self.module.Booster(params, data)
        if validation is not None:
            self.booster.add_valid(self._data(validation, params, data), "validation")

    def _data(self, lists: Lists, params: dict[str, Any], reference: Any = None) -> Any:
        options = {"reference": reference, "group": lists.lengths, "params": params}
        return self.module.Dataset(self.vectors(lists), lists.grades, **options).construct()

    def grow(self, objective: Objective | None) -> bool:
        if objective is None:
            return not self.booster.update()
        return not self.booster.update(fobj=lambda scores, data: objective(scores))

    def scores(self, split: Split) -> Array:
        found: list[Array] = []

        def look(scores: Array, data: Any) -> tuple[str, float, bool]:
            found.append(scores.copy())
            return "", 0.0, True

        (self.booster.eval_train if split == "train" else self.booster.eval_valid)(look)
        return found[0]

    def keep(self, trees: int) -> None:
        self.booster = self.module.Booster(model_str=self.booster.model_to_string(num_iteration=trees))

    def _predict(self, features: Array) -> Array:
        return self.booster.predict(features, raw_score=True, num_threads=self._threads(len(features)))

    def _read(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        if "\nend of trees\n" not in text:  # LightGBM would abort the process
            raise UserError(f"{path}: is cut short; copy the model again")
        self.booster = self.module.Booster(model_str=text)

    @property
    def count(self) -> int:
        return int(self.booster.num_trees())
