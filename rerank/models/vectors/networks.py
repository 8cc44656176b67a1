"""Networks over feature vectors: feed-forward, with the papers' sizes by name, and attention within each list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from rerank.errors import UserError, nearest
from rerank.features.normalise import Normaliser
from rerank.kernels.dropout import Dropout
from rerank.models.vectors.base import ACTIVATIONS, FeatureInputs, FeatureNetwork, ListInputs
from rerank.settings.arguments import Count, Portion, Rate

PLAIN: dict[str, Any] = dict(hidden=[1024], activation="relu", batch_norm="none", input_norm=False, output="none")

PRESETS: dict[str, dict[str, Any]] = {
    "linear": {"hidden": []},
    "1024": {"hidden": [1024], "batch_norm": "after", "input_norm": True},
    "R5": {"hidden": [100] * 4, "batch_norm": "before", "output": "relu"},
    "CE5": {"hidden": [100] * 4, "batch_norm": "before", "activation": "celu", "output": "celu"},
    "R4.L": {"hidden": [100] * 4, "batch_norm": "before"},
    "CE4.L": {"hidden": [100] * 4, "batch_norm": "before", "activation": "celu"},
}
for _top in range(6, 12):
    PRESETS[f"B{2**_top}"] = {"hidden": [2**i for i in range(_top, 3, -1)], "batch_norm": "before", "input_norm": True}
"""The papers' networks: ``1024`` of Thonet et al. 2021, ``R5`` to ``CE4.L`` of Yu 2020 (five layers, the last of them
with an activation or linear), ``B64`` to ``B2048`` of Bruch et al. 2019 (halving down to 16)."""


class MLP(FeatureNetwork):
    """A feed-forward network that scores each document by its own features.

    Batch norm sees the documents of one forward pass, never padding. Their number follows from ``batch_size`` (or
    ``micro_batch_size``) and ``token_budget``, so only with batch norm do these change the result. The number of
    processes does not, as one of them takes the whole batch.

    >>> MLP(hidden=[16, 8], columns=["bm25", "splade"])
    MLP(hidden=[16, 8], columns=['bm25', 'splade'])
    """

    def __init__(
        self,
        preset: str | None = None,
        hidden: list[Count] | None = None,
        activation: Literal["relu", "celu", "gelu", "tanh", "sigmoid"] | None = None,
        batch_norm: Literal["before", "after", "none"] | None = None,
        input_norm: bool | None = None,
        output: Literal["relu", "celu", "tanh", "sigmoid", "none"] | None = None,
        momentum: Portion = 0.1,
        dropout: Rate = 0.0,
        normalise: list[Normaliser] | None = None,
        columns: list[str] | None = None,
    ) -> None:
        """Describe the network.

        Args:
            preset: a network of a paper: 1024 (SmoothI), R5, CE5, R4.L, CE4.L (Yu), B64 to B2048 (Bruch) or linear;
                the other arguments override it.
            hidden: width of every hidden layer; defaults to [1024].
            activation: activation of the hidden layers; defaults to relu.
            batch_norm: place relative to the activation of every hidden layer; defaults to none.
            input_norm: batch norm over the input; defaults to no.
            output: activation of the score; defaults to none.
            momentum: weight of a batch in batch norm's running statistics (one minus TensorFlow's momentum).
            dropout: dropout rate after every hidden layer.
            normalise: normalisers of the features, in this order.
            columns: names of the columns to read, or of single numbers of theirs (``features/3``); defaults to
                ``features``, the column of feature files.
        """
        if preset is not None and preset not in PRESETS:
            raise UserError(f"model.preset: there is no {preset!r}{nearest(preset, PRESETS)}")
        super().__init__()
        given = {name: value for name, value in self.settings.items() if value is not None and name != "preset"}
        self.settings = PLAIN | (PRESETS[preset] if preset else {}) | given

    @property
    def budget(self) -> int:
        """Default number of documents: hidden vectors fit a CPU's cache, but batch norm sees a whole batch."""
        on_cpu = next(self.parameters()).device.type == "cpu"
        return 1024 if on_cpu and not self.uses_batch_norm else super().budget

    def build(self, features: int) -> None:
        settings = self.settings
        layers: list[nn.Module] = [self.norm(features)] if settings["input_norm"] else []
        size = features
        for wider in settings["hidden"]:
            layers.append(nn.Linear(size, wider))
            layers += [self.norm(wider)] if settings["batch_norm"] == "before" else []
            layers.append(ACTIVATIONS[settings["activation"]]())
            layers += [self.norm(wider)] if settings["batch_norm"] == "after" else []
            layers += [Dropout(settings["dropout"])] if settings["dropout"] else []
            size = wider
        layers.append(nn.Linear(size, 1))
        layers += [ACTIVATIONS[settings["output"]]()] if settings["output"] != "none" else []
        self.layers = nn.Sequential(*layers)

    def norm(self, size: int) -> nn.Module:
        return nn.BatchNorm1d(size, momentum=self.settings["momentum"])

    def score(self, batch: Mapping[str, Tensor]) -> Tensor:
        if self.training and len(batch["features"]) == 1 and self.uses_batch_norm:
            raise UserError("batch norm: one document has no spread; use larger batches, or model.batch_norm: none")
        return self.layers(batch["features"]).squeeze(1).float()


class ListMLP(MLP):
    """An MLP that normalises within each list, in scoring too, so that no document sees those of other lists.

    There are no running statistics, so ``momentum`` is ignored. With ``batch_norm: before``, the score is normalised
    as well, before its activation. Weights are drawn as Glorot and Bengio (2010) do. The arguments are those of
    :class:`MLP`.

    >>> ListMLP(hidden=[16], columns=["bm25"])
    ListMLP(hidden=[16], columns=['bm25'])
    """

    reads: ClassVar[type[FeatureInputs]] = ListInputs

    def build(self, features: int) -> None:
        super().build(features)
        if self.settings["batch_norm"] == "before":
            last = max(i for i, layer in enumerate(self.layers) if isinstance(layer, nn.Linear))
            self.layers.insert(last + 1, self.norm(1))
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight)

    def norm(self, size: int) -> nn.Module:
        return ListNorm(size)

    def score(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Score the real documents of ``features`` ``[B, N, F]``, list after list: ``[n]`` float32."""
        count, longest = batch["mask"].shape
        lists = batch["cells"] // longest
        values = batch["features"].flatten(0, 1).index_select(0, batch["cells"])
        for layer in self.layers:
            values = layer(values, lists, count) if isinstance(layer, ListNorm) else layer(values)
        return values.squeeze(1).float()


class ListNorm(nn.Module):
    """``weight (x - mean) / sd + bias``, mean and standard deviation over the documents of a list.

    >>> norm = ListNorm(1)
    >>> norm(torch.tensor([[1.0], [3.0], [7.0]]), torch.tensor([0, 0, 1]), 2).round().tolist()
    [[-1.0], [1.0], [0.0]]
    """

    EPSILON = 1e-5

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, values: Tensor, lists: Tensor, count: int) -> Tensor:
        def total(of: Tensor) -> Tensor:
            return of.new_zeros(count, of.shape[1]).index_add(0, lists, of)

        values = values.float()  # a GPU's bf16 cannot count beyond 256
        lengths = total(torch.ones_like(values[:, :1])).clamp(min=1)  # no bincount, for which a GPU's host would wait

        def mean(of: Tensor) -> Tensor:
            return total(of) / lengths

        centred = values - mean(values)[lists]
        scale = (mean(centred.square()) + self.EPSILON).rsqrt()
        return centred * scale[lists] * self.weight + self.bias


class SelfAttention(FeatureNetwork):
    """A Transformer encoder over the documents of a list (Pobrotyn et al. 2020), without positions.

    A linear layer, ``blocks`` encoder blocks (layer norm first), layer norm, a linear score. The order of the documents
    does not matter; lists see neither each other nor padding. Matrices are initialised separately, as in the authors'
    code (Xavier, uniform). The defaults are those of NeuralNDCG's paper for WEB30K (2 blocks, 1 head, hidden 384, first
    layer 96; 128 for Istella), which puts Tanh on the output for its own loss.

    >>> SelfAttention(columns=["bm25"], hidden=16)
    SelfAttention(hidden=16, columns=['bm25'])
    """

    reads: ClassVar[type[FeatureInputs]] = ListInputs

    def __init__(
        self,
        width: Count = 96,
        hidden: Count = 384,
        blocks: Count = 2,
        heads: Count = 1,
        dropout: Rate = 0.1,
        output: Literal["none", "tanh", "sigmoid"] = "none",
        normalise: list[Normaliser] | None = None,
        columns: list[str] | None = None,
    ) -> None:
        """Describe the network.

        Args:
            width: width of the first layer and between the blocks.
            hidden: width of each block's feed-forward layer.
            blocks: number of encoder blocks.
            heads: number of attention heads per block.
            dropout: dropout rate in the blocks.
            output: activation of the score.
            normalise: normalisers of the features, in this order.
            columns: names of the columns to read, or of single numbers of theirs (``features/3``); defaults to
                ``features``, the column of feature files.
        """
        if width % heads:
            raise UserError(f"model.width {width} must be a multiple of model.heads {heads}")
        super().__init__()

    @property
    def budget(self) -> int:
        return 16_384

    def build(self, features: int) -> None:
        s, width = self.settings, self.settings["width"]
        self.first = nn.Linear(features, width)
        block = nn.TransformerEncoderLayer(
            width, s["heads"], s["hidden"], s["dropout"], batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(block, s["blocks"], nn.LayerNorm(width), enable_nested_tensor=False)
        output = [] if s["output"] == "none" else [ACTIVATIONS[s["output"]]()]
        self.last = nn.Sequential(nn.Linear(width, 1), *output)
        for name, parameter in self.named_parameters():  # blocks are copies of one another before
            if parameter.dim() > 1:
                # queries, keys and values have a matrix each in the authors' code
                for matrix in parameter.data.chunk(3 if name.endswith("in_proj_weight") else 1):
                    nn.init.xavier_uniform_(matrix)

    def score(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Score the real documents of ``features`` ``[B, N, F]``, list after list: ``[n]`` float32."""
        hidden = self.encoder(self.first(batch["features"]), src_key_padding_mask=~batch["mask"])
        return self.last(hidden).flatten().index_select(0, batch["cells"]).float()
