"""Gradient-boosted trees by LightGBM, on LambdaMART or any loss of ours, or by XGBoost; trained tree by tree."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np

from rerank.errors import UserError, needed
from rerank.lists.view import Lists
from rerank.models.base import check_added, check_lists
from rerank.models.folder import read_contract, remembered
from rerank.models.vectors.base import VectorModel, columns_of, vectors
from rerank.settings.arguments import Count, CountOrZero, NotNegative, Positive, Several
from rerank.storage.arrow import Array

Objective = Callable[["Array"], tuple["Array", "Array"]]
"""Gradient and diagonal of the Hessian, ``[T]`` each, at the scores ``[T]`` of the training documents."""

Split = Literal["train", "validation"]

Gain = Literal["log2", "exp-log2"]

LONGEST = 10_000
"""Documents of a list that LightGBM's lambdarank takes."""

OF_LIGHTGBM = {
    *("objective", "metric", "label_gain", "num_iterations", "num_threads"),
    *("seed", "deterministic", "force_row_wise", "verbosity"),
}
OF_XGBOOST = {
    *("objective", "base_score", "tree_method", "nthread", "n_jobs", "seed", "random_state", "verbosity"),
    *("eta", "eval_metric", "disable_default_eval_metric"),
}
"""Parameters that we set, or, like ``eta``, other names of arguments."""


class Trees(VectorModel):
    """An ensemble of regression trees, trained one by one: :meth:`begin`, :meth:`grow` for each tree, :meth:`keep`.

    The score of a document is the sum of its leaves' values, without any offset: before the first tree every score is
    0. Features are taken as they are, since trees only compare them. Scores are float32.
    """

    package: ClassVar[str]
    takes_losses: ClassVar[bool] = True
    file: ClassVar[str]
    smallest_leaf: ClassVar[str]
    """Keys of the configuration that limit the size of a leaf."""

    def __init__(self) -> None:
        super().__init__()
        self.trees: int = self.settings["trees"]
        self.booster: Any = None
        self.module: Any = needed(f"model: {type(self).__name__}", self.package, "ltr")
        if taken := sorted({*(self.settings["params"] or {})} & self.taken()):
            raise UserError(f"model.params: {taken[0]} is an argument of the model, or fixed; leave it out")

    def prepare(self, train: Lists) -> None:
        self.names = columns_of(train, self.columns)
        check_added(train, self.names)

    @abstractmethod
    def begin(self, train: Lists, validation: Lists | None, seed: int, gain: Gain, own: bool) -> None:
        """Bin the features and start without a tree; ``own`` if the loss is one of ours."""

    @abstractmethod
    def taken(self) -> set[str]:
        """Return the library's parameters, by all their names, that arguments or :meth:`begin` set."""

    @abstractmethod
    def grow(self, objective: Objective | None) -> bool:
        """Add a tree; return False if there was nothing to split."""

    @abstractmethod
    def scores(self, split: Split) -> Array:
        """Return the scores of a split's documents with all trees so far, ``[T]``."""

    @abstractmethod
    def keep(self, trees: int) -> None:
        """Drop the trees after the first ``trees``, and the training data."""

    @abstractmethod
    def _predict(self, features: Array) -> Array:
        """Score feature vectors ``[n, F]``."""

    @abstractmethod
    def _read(self, path: Path) -> None:
        """Read trees in the library's own format."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of trees."""

    def predict(self, lists: Lists) -> Array:
        """Score every candidate: ``[n]`` float32, in their order.

        Raises:
            UserError: the model is not trained, or lists lack what it reads.
        """
        check_lists(lists)
        self.check_trained()
        check_added(lists, self.names)
        return np.asarray(self._predict(vectors(lists, self.names)), dtype=np.float32)

    def contract(self) -> dict[str, Any]:
        return super().contract() | {"trees": self.count}

    def write(self, folder: Path) -> None:
        self.booster.save_model(folder / self.file)

    @classmethod
    def load(cls, folder: Path) -> Self:
        contract = read_contract(folder)
        model = cls(**contract["settings"] | {"columns": contract["columns"]})
        model.names, model.remembered = contract["columns"], remembered(contract)
        model._read(folder / cls.file)
        return model

    def _params(self, *others: str) -> dict[str, Any]:
        """Select the settings that go to the library under their own names: all but the others."""
        own = {name: value for name, value in self.settings.items() if name not in ("params", *others)}
        return own | (self.settings["params"] or {})

    def _threads(self, rows: int) -> int:
        """Choose the number of threads for a number of documents.

        Without a setting it is one for every 50,000: with fewer documents threads wait for each other longer than they
        work, and if other programs keep the cores busy they wait a hundred times longer than one thread takes.
        """
        if self.settings["threads"] is not None:
            return int(self.settings["threads"])
        cores = int(os.environ.get("OMP_NUM_THREADS", "").split(",")[0] or os.cpu_count() or 1)
        return max(1, min(cores, rows // 50_000))


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
            threads: number of threads; defaults to one for every 50,000 documents, up to OMP_NUM_THREADS or the number
                of cores.
            columns: names of the columns to read, or of single numbers of theirs (``features/3``); defaults to
                ``features``, the column of feature files.
            params: other parameters of LightGBM by name, such as ``lambda_l2``, ``feature_fraction`` or
                ``lambdarank_truncation_level`` (30).
        """
        super().__init__()

    def begin(self, train: Lists, validation: Lists | None, seed: int, gain: Gain, own: bool) -> None:
        params = self._params("trees", "threads") | {
            "objective": "none" if own else "lambdarank",
            "metric": "None",
            "num_threads": self._threads(train.size),
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

    def taken(self) -> set[str]:
        names: set[str] = self.module.basic._ConfigAliases.get(*self.settings, *OF_LIGHTGBM)
        return names

    def _data(self, lists: Lists, params: dict[str, Any], reference: Any = None) -> Any:
        options = {"reference": reference, "group": lists.lengths, "params": params}
        return self.module.Dataset(vectors(lists, self.names), lists.grades, **options).construct()

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


class XGBoost(Trees):
    """Pairwise boosting by XGBoost (Chen and Guestrin 2016), the baseline of NeuralNDCG's paper.

    Its objective is ``rank:pairwise``, RankNet's logistic loss over pairs; :class:`LightGBM` has LambdaMART and takes
    other losses. The same seed gives the same trees with the same number of threads.

    >>> XGBoost(trees=50, columns=["bm25"])
    XGBoost(trees=50, columns=['bm25'])
    """

    package = "xgboost"
    takes_losses = False
    file = "model.json"
    smallest_leaf = "model.min_child_weight"

    def __init__(
        self,
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
            trees: largest number of trees; training with ``patience`` may stop earlier, and the best number is kept.
            learning_rate: factor of a tree's values.
            max_depth: largest depth of a tree; 0 for no limit.
            min_child_weight: smallest sum of Hessians in a leaf.
            threads: number of threads; defaults to one for every 50,000 documents, up to OMP_NUM_THREADS or the number
                of cores.
            columns: names of the columns to read, or of single numbers of theirs (``features/3``); defaults to
                ``features``, the column of feature files.
            params: other parameters of XGBoost by name, such as ``reg_lambda`` or ``colsample_bytree``.
        """
        super().__init__()

    def begin(self, train: Lists, validation: Lists | None, seed: int, gain: Gain, own: bool) -> None:
        params = self._params("trees", "threads") | {
            "objective": "rank:pairwise",
            "base_score": 0.0,
            "tree_method": "hist",
            "disable_default_eval_metric": True,
            "nthread": self._threads(train.size),
            "seed": seed,
            "verbosity": 0,
        }
        data = self._data(train)
        self._sets = {"train": data}
        if validation is not None:
            self._sets["validation"] = self._data(validation, data)
        self.booster = self.module.Booster(params, list(self._sets.values()))

    def taken(self) -> set[str]:
        return {*self.settings, *OF_XGBOOST}

    def _data(self, lists: Lists, reference: Any = None) -> Any:
        return self.module.QuantileDMatrix(
            vectors(lists, self.names),
            lists.grades,
            group=lists.lengths,
            max_bin=(self.settings["params"] or {}).get("max_bin", 256),
            ref=reference,
            nthread=self._threads(lists.size),
        )

    def grow(self, objective: Objective | None) -> bool:
        """Add a tree; returns True: XGBoost does not say whether there was something to split."""
        self.booster.update(self._sets["train"], self.count)
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
