"""Base of networks over feature vectors: fitting to the training lists, saving, loading."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import nn

from rerank.errors import UserError
from rerank.features.normalise import Normaliser, find_normaliser
from rerank.features.svmlight import FEATURES
from rerank.lists.view import Lists
from rerank.models.base import drawn_from
from rerank.models.contract import class_name, read_contract, write_contract
from rerank.models.scorer import Scorer
from rerank.models.vectors.inputs import FeatureInputs, check_columns, check_known, columns_of, vectors
from rerank.models.weights import write_weights


class FeatureNetwork(Scorer):
    """A network over feature vectors, as wide as the lists; subclasses build its layers and score."""

    bf16: ClassVar[bool] = False
    reads: ClassVar[type[FeatureInputs]] = FeatureInputs

    def __init__(
        self, settings: dict[str, Any], normalisers: Sequence[Normaliser] | None, columns: Sequence[str] | None
    ) -> None:
        super().__init__()
        self.settings = settings
        self.normalisers = list(normalisers or [])
        self.columns = [FEATURES] if columns is None else list(columns)
        self.names: list[str] = []

    @abstractmethod
    def build(self, features: int) -> None:
        """Make the layers for vectors with this many features."""

    @property
    def budget(self) -> int:
        """Default number of documents per forward pass; covers nearly any batch."""
        return 131_072

    def prepare(self, train: Lists, seed: int) -> None:
        self.names = columns_of(train, self.columns)
        if self.normalisers:
            values, offsets = vectors(train, self.names), train.offsets
            check_known(train, self.names, values)
            for number, normaliser in enumerate(self.normalisers):
                normaliser.fit(values, offsets)
                if number + 1 < len(self.normalisers):
                    values = normaliser.apply(values, offsets)
        with drawn_from(seed):
            self.build(len(self.names))

    def check(self, lists: Lists) -> None:
        check_columns(lists, self.names, self.columns)

    def inputs(self, lists: Lists) -> FeatureInputs:
        return self.reads(lists, self.normalisers, self.names, next(self.parameters()).device)

    def untrained(self) -> str:
        return "" if self.names else f"{type(self).__name__} is not trained"

    def check_trained(self) -> None:
        if self.untrained():
            raise UserError(f"predict: {self.untrained()}; train it first")

    def head_parameters(self) -> set[str]:
        """Return the names of all parameters: there is no pretrained encoder."""
        return {name for name, _ in self.named_parameters()}

    def contract(self) -> dict[str, Any]:
        return {
            "class": class_name(type(self)),
            "settings": self.settings,
            "columns": self.names,
            "normalise": [
                {"class": class_name(type(n)), "arguments": n.arguments(), "state": n.state()} for n in self.normalisers
            ],
        }

    def save(self, folder: str | Path) -> None:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_weights(folder, self.state_dict())
        write_contract(folder, {**self.contract(), **self.remembered})

    @classmethod
    def load(cls, folder: Path) -> Self:
        from safetensors.torch import load_file

        contract = read_contract(folder)
        normalisers = []
        for entry in contract["normalise"]:
            normaliser = find_normaliser(entry["class"])(**entry["arguments"])
            normaliser.load_state(entry["state"])
            normalisers.append(normaliser)
        model = cls(**contract["settings"] | {"normalise": normalisers or None, "columns": contract["columns"]})
        model.names = contract["columns"]
        model.build(len(model.names))
        model.load_state_dict(load_file(folder / "model.safetensors"))
        return model


_KINDS: tuple[type[nn.Module], ...] = (nn.ReLU, nn.CELU, nn.GELU, nn.Tanh, nn.Sigmoid)
ACTIVATIONS = {kind.__name__.lower(): kind for kind in _KINDS}
