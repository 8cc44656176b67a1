"""The context-aware ranker: documents of a list attend to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from torch import Tensor, nn

from rerank.errors import UserError
from rerank.features.normalise import Normaliser
from rerank.models.vectors.network import ACTIVATIONS, FeatureInputs, FeatureNetwork, ListInputs
from rerank.settings.ranges import Count, Rate


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
