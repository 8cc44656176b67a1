r"""Load a trained model of any kind, alone or interpolated with columns: scores summed with saved weights.

No file decides what is imported: classes are found in a table of our own. The interpolated score is

.. math:: s(d) = \sum_c w_c \, z_c(d) + w_\text{text} \, z_\text{model}(d)

with z over the candidates of a list, as :func:`rerank.retrieval.fuse.fuse` makes them, so that lists are ranked as by
the fused run of the same parts; ties keep the order of the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rerank.errors import UserError
from rerank.evaluation.calibration import Calibration
from rerank.lists.view import Lists
from rerank.models.base import Model, check_added, check_column, check_lists, given_column
from rerank.models.folder import CALIBRATION, CONTRACT, FUSION, INTERPOLATION, contract_of
from rerank.retrieval.fuse import z_of_candidates
from rerank.settings.arguments import NotNegative
from rerank.storage.arrow import Array

if TYPE_CHECKING:
    from rerank.models.text.cosines import Embedder

MODELS: dict[str, str] = {
    "CrossEncoder": "rerank.models.text.cross_encoder",
    "Decoder": "rerank.models.text.decoder",
    "MLP": "rerank.models.vectors.networks",
    "ListMLP": "rerank.models.vectors.networks",
    "SelfAttention": "rerank.models.vectors.networks",
    "LightGBM": "rerank.models.vectors.trees",
    "XGBoost": "rerank.models.vectors.trees",
}
"""Module of each model; imported at its first use."""


class Interpolated(Model):
    """A model interpolated with columns of the lists, or a fusion of columns alone.

    Candidates that a system did not return get the lowest z of the others. Ties keep the order of the list. Relevant
    documents that were added for training do not change the scores of the others.

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2], "doc_id": [1, 2, 1, 2], "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> Interpolated(None, {"bm25": 1.0}).predict(lists).round(1).tolist()  # z of each list's scores
    [1.0, -1.0, 1.0, -1.0]

    Args:
        model: the model; None for a fusion of columns alone.
        columns: the weight of each column, at least 0.
        text: the weight of the model's scores.
        cosines: ``model`` and ``sha256`` of the embedding model of each column of cosines, as in the column's
            ``made``; these columns are computed if lists lack them.

    Raises:
        UserError: no columns, or invalid weights.
    """

    def __init__(
        self,
        model: Model | None,
        columns: Mapping[str, NotNegative],
        text: NotNegative = 0.0,
        cosines: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        if not columns or not any([*columns.values(), text]):
            raise UserError("interpolation: all weights are 0; give a column some weight")
        if model is None and text:
            raise UserError(f"interpolation: text: {text} is the weight of a model, and there is none; set 0")
        self.model, self.remembered = model, {} if model is None else model.remembered
        self.weights, self.text = {name: float(weight) for name, weight in columns.items()}, float(text)
        made = {name: cosines[name] for name in columns if name in cosines} if cosines else {}
        self.cosines = {name: {key: of[key] for key in ("model", "sha256")} for name, of in made.items()}
        self._encoders: dict[str, Embedder] = {}
        own: Sequence[str] = () if model is None else getattr(model, "names", ()) or model.columns  # as it was trained
        self.columns = list(dict.fromkeys([*own, *self.weights]))
        given = [name for name in self.weights if name not in self.cosines]
        self.given = list(dict.fromkeys([*getattr(model, "given", ()), *given]))

    def _encoder(self, name: str) -> Embedder:
        if name not in self._encoders:
            from rerank.models.text.cosines import Embedder

            self._encoders[name] = Embedder.of(name, self.cosines[name])
        return self._encoders[name]

    def completed(self, lists: Lists) -> Lists:
        """Add the cosines that lists lack, in memory; those of other lists of the store are missing.

        Raises:
            UserError: there is no embedding model of that name, or the lists have no texts.
        """
        lacking = [name for name in self.cosines if name not in lists.store.column_names]
        if not (lacking and lists.store.has_text):
            return lists
        columns = {name: np.full(len(lists.store.document), np.nan, dtype=np.float32) for name in lacking}
        for name, values in columns.items():
            values[lists.row_numbers] = self._encoder(name).cosines(lists)
        return replace(lists, store=lists.store.beside(columns))

    def check_trained(self) -> None:
        if self.model is not None:
            self.model.check_trained()

    def check(self, lists: Lists) -> None:
        for name in self.weights:
            check_column(lists, name, "the ranker interpolates with", self._or_alone())
            self._check_cosines(name, lists)
        check_added(lists, list(self.weights))

    def _check_cosines(self, name: str, lists: Lists) -> None:
        """Refuse a column of cosines by another embedding model than the one that it was interpolated with."""
        if name not in self.cosines or name not in lists.store.column_names:
            return
        ours, theirs = self.cosines[name], lists.store.entry(name).made
        if theirs.get("number") == "cosine" and _files(theirs) != _files(ours):
            raise UserError(
                f"the ranker interpolates with column {name}, cosines by {ours['model']}, and {lists.store} has those "
                f"of {theirs['model']}; remove them with `rerank add --drop {name}`{self._or_alone()}"
            )

    def predict(self, lists: Lists) -> Array:
        """Score every candidate of lists, ``[T]`` float32, in their order."""
        check_lists(lists)
        lists = self.completed(lists)
        self.check(lists)
        return self.interpolate(lists, None if self.model is None else self.model.predict(lists))

    def interpolate(self, lists: Lists, scores: Array | None) -> Array:
        """Interpolate the model's scores of lists: ``[T]`` float32."""
        self.check(lists)
        columns = [lists.column(name) for name in self.weights]
        parts = columns if scores is None else [*columns, scores]
        added, found = lists.store.added_rows[lists.row_numbers], np.empty(lists.size, dtype=np.float32)
        for start, end in zip(lists.offsets[:-1].tolist(), lists.offsets[1:].tolist(), strict=True):
            own, visible = [part[start:end] for part in parts], ~added[start:end]
            found[start:end] = self._sum(own)
            if not visible.all():
                found[start:end][visible] = self._sum([part[visible] for part in own])
        return found

    def _or_alone(self) -> str:
        way = "; or rank by the model alone: --no-interpolation, rerank.load(…, interpolate=False)"
        return "" if self.model is None else way

    def _sum(self, parts: Sequence[Array]) -> Array:
        """Sum the columns of a list in their order, then the model's scores, as in a fused run: ``[n]`` float32."""
        weights = [*self.weights.values(), *([] if self.model is None else [self.text])]
        terms = [weight * z_of_candidates(part) for weight, part in zip(weights, parts, strict=True)]
        return sum(terms, start=np.zeros(len(parts[0]))).astype(np.float32)

    def scores_of(
        self,
        query: str,
        documents: Sequence[str],
        columns: Mapping[str, Sequence[float] | Array] | None = None,
        instruction: str | None = None,
        **options: Any,
    ) -> Array:
        """Score all documents that the first stage found for a query, ``[n]`` float32: z is over them."""
        found = dict(columns or {})
        for name in self.cosines:
            if name not in found:
                found[name] = self._encoder(name).cosines_of(query, documents)
        reader, instead = "the ranker interpolates with", self._or_alone()
        parts = [given_column(found, name, len(documents), reader, instead) for name in self.weights]
        if self.model is not None:
            own = {name: found[name] for name in self.model.given if name in found}
            parts.append(self.model.scores_of(query, documents, own, instruction, **options))
        return self._sum(parts)

    @property
    def interpolation(self) -> dict[str, Any]:
        """The weights, as in ``rerank.json``."""
        return {"columns": self.weights, "text": self.text} | ({"cosines": self.cosines} if self.cosines else {})

    def contract(self) -> dict[str, Any]:
        own = {"class": FUSION} if self.model is None else self.model.contract()
        return own | {INTERPOLATION: self.interpolation}

    def write(self, folder: Path) -> None:
        """Write the model, which loads as it would alone; the weights are in ``rerank.json``."""
        if self.model is not None:
            self.model.write(folder)


def _files(made: Mapping[str, str]) -> str:
    """Return the hash of an embedding model's files, whatever its precision."""
    return made["sha256"].partition("-")[0]


def inner_model(model: Model | None) -> Model | None:
    """Return the model alone; None for a fusion of columns."""
    return model.model if isinstance(model, Interpolated) else model


def load_model(folder: str | Path, interpolate: bool = True, instruction: str | None = None) -> Model:
    """Load a trained model of any kind.

    A folder without ``rerank.json``, or a name on the hub, is a reranker as sentence-transformers or Transformers saves
    it: a :class:`rerank.Decoder` if its architecture is one or it is an adapter, else a :class:`rerank.CrossEncoder`.

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2], "doc_id": [1, 2, 1, 2], "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> from tempfile import mkdtemp
    >>> model = rerank.MLP(hidden=[4], columns=["bm25"])
    >>> run = rerank.train(model, lists, rerank.LambdaLoss(), validation=None, output=mkdtemp() + "/x")
    >>> rerank.load_model(run.folder / "best").predict(lists).shape
    (4,)

    Args:
        folder: folder of a trained model, such as ``runs/x/best``, or of a ranker; or a name on the hub.
        interpolate: score with the interpolation that the ranker was measured with
            (:class:`rerank.models.load.Interpolated`); False loads its model alone.
        instruction: instruction for queries without one of their own, in place of the model's default.

    Raises:
        UserError: no such model, one that is damaged or of an unknown class, or an instruction without a place.
    """
    contract = contract_of(folder)
    interpolates = interpolate and INTERPOLATION in contract
    if interpolates:
        fusion = contract.get("class") == FUSION and not instruction
        model: Model = Interpolated(
            None if fusion else _alone(folder, contract, instruction), **contract[INTERPOLATION]
        )
    else:
        model = _alone(folder, contract, instruction)
    if CALIBRATION in contract and interpolates == (INTERPOLATION in contract):  # of what it was fitted on
        model.calibration = Calibration(**contract[CALIBRATION])
    return model


load = load_model
"""Its name in :mod:`rerank`."""


def _alone(folder: str | Path, contract: Mapping[str, Any], instruction: str | None = None) -> Model:
    if contract.get("class") == FUSION:
        raise UserError(f"{folder}: is a fusion of columns without a model")
    if not (name := contract.get("class")):
        name = "Decoder" if import_module(MODELS["Decoder"]).Decoder.knows(str(folder)) else "CrossEncoder"
    if name not in MODELS:
        raise UserError(
            f"{folder}/{CONTRACT}: class: {name} is not one of ours, and code named by a file is never imported; "
            f"import it yourself, then call {name.rpartition('.')[2]}.load({str(folder)!r})"
        )
    options = {"instruction": instruction} if instruction and name == "Decoder" else {}
    model: Model = getattr(import_module(MODELS[name]), name).load(Path(folder), **options)
    if instruction and getattr(model, "prompt", None) is None:
        raise UserError(f"instruction: {folder} has no place for one, since it reads no template; leave it out")
    return model
