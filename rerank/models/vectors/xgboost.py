"""LambdaMART and pairwise boosting by XGBoost, or gradient-boosted trees by any loss of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from rerank.errors import UserError
from rerank.lists.view import Lists
from rerank.models.vectors.boosting import Gain, Objective, Split, Trees
from rerank.settings.ranges import Count, CountOrZero, NotNegative, Positive
from rerank.storage.arrow import Array

HIGHEST = 31
"""Highest grade that XGBoost's exponential gain takes."""


class XGBoost(Trees):
    """LambdaMART or pairwise boosting by XGBoost (Chen and Guestrin 2016), or one of our losses.

    Without a ``loss`` in the configuration one of XGBoost's objectives is trained: ``rank:ndcg`` weights pairs by the
    change of nDCG, with the monitor's gain as for LightGBM; ``rank:pairwise`` is RankNet's logistic loss over
    pairs. With a ``loss`` see :class:`rerank.training.trees.Objective`. The same seed gives the same trees
    with the same number of threads.

    >>> XGBoost(trees=50, columns=["bm25"])
    XGBoost(trees=50, columns=['bm25'])
    """

    package = "xgboost"
    file = "model.json"
    smallest_leaf = "model.min_child_weight"

    def __init__(
        self,
        objective: Literal["rank:ndcg", "rank:pairwise"] = "rank:ndcg",
        trees: Count = 1000,
        learning_rate: Positive = 0.05,
        max_depth: CountOrZero = 6,
        min_child_weight: NotNegative = 1.0,
        threads: Count | None = None,
        columns: list[str] | None = None,
        params: dict[str, Any] | None = None,
    ) -> None:
        """Set XGBoost's parameters, under its names.

        Args:
            objective: objective without a loss of ours.
            trees: largest number of trees; training with ``patience`` may stop earlier, and the best number is kept.
            learning_rate: factor of a tree's values.
            max_depth: largest depth of a tree; 0 for no limit.
            min_child_weight: smallest sum of Hessians in a leaf; our losses have 1 per document.
            threads: number of threads; defaults to one for every 50,000 documents, up to OMP_NUM_THREADS or the number
                of cores.
            columns: names of the columns to read, or of single numbers of theirs (``features/3``); defaults to
                ``features``, the column of feature files.
            params: other parameters of XGBoost by name, such as ``reg_lambda`` or ``colsample_bytree``.
        """
        super().__init__({name: value for name, value in locals().items() if name not in ("self", "__class__")})

    def begin(self, train: Lists, validation: Lists | None, seed: int, gain: Gain, own: bool) -> None:
        params = self._params("trees", "threads", "objective") | {
            "objective": "reg:squarederror" if own else self.settings["objective"],
            "base_score": 0.0,
            "tree_method": "hist",
            "disable_default_eval_metric": True,
            "nthread": self._threads(train.size),
            "seed": seed,
            "verbosity": 0,
        }
        if not own and self.settings["objective"] == "rank:ndcg":
            params["ndcg_exp_gain"] = gain == "exp-log2"
            top = max(int(lists.grades.max(initial=0)) for lists in (train, validation) if lists is not None)
            if gain == "exp-log2" and top > HIGHEST:
                raise UserError(
                    f"--model XGBoost: grade {top} is above {HIGHEST}, the highest under the exponential gain; "
                    "give --monitor nDCG@10, whose gain is linear, or --model.objective rank:pairwise"
                )
        data = self._data(train)
        self._sets = {"train": data}
        if validation is not None:
            self._sets["validation"] = self._data(validation, data)
        self.booster = self.module.Booster(params, list(self._sets.values()))

    def _data(self, lists: Lists, reference: Any = None) -> Any:
        return self.module.QuantileDMatrix(
            self.vectors(lists),
            lists.grades,
            group=lists.lengths,
            max_bin=(self.settings["params"] or {}).get("max_bin", 256),
            ref=reference,
            nthread=self._threads(lists.size),
        )

    def grow(self, objective: Objective | None) -> bool:
        """Add a tree; returns True: XGBoost does not say whether there was something to split."""
        data, number = self._sets["train"], self.count
        if objective is None:
            self.booster.update(data, number)
        else:
            gradient, hessian = objective(self.scores("train"))
            self.booster.boost(data, number, grad=gradient, hess=hessian)
        return True

    def scores(self, split: Split) -> Array:
        return self.booster.predict(self._sets[split], output_margin=True)

    def keep(self, trees: int) -> None:
        self.booster, self._sets = self.booster[:trees], {}

    def _predict(self, features: Array) -> Array:
        self.booster.set_param({"nthread": self._threads(len(features))})
        return self.booster.inplace_predict(features, predict_type="margin")

    def _read(self, path: Path) -> None:
        self.booster = self.module.Booster(model_file=path)

    @property
    def count(self) -> int:
        return int(self.booster.num_boosted_rounds())
