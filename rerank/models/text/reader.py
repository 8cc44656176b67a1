"""A trained BERT that only scores, without Transformers, whose import takes longer than most answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import gelu

from rerank.arrow import Array
from rerank.kernels.flat import SEQUENCES, cls_states
from rerank.kernels.measured import faster
from rerank.kernels.precision import Precision, type_of
from rerank.kernels.shapes import remember_code
from rerank.kernels.ways import use_ways
from rerank.lists.tokens import Tokens
from rerank.models.contract import checked_contract
from rerank.models.score import ALONE, ON_A_CPU, score_candidates
from rerank.models.text.head import keep_float32
from rerank.models.text.pairs import FlatInputs, PairInputs
from rerank.models.text.template import PairTemplate

CONTRACT = {"class": "CrossEncoder", "head": "hf", "long": "truncate", "start": None}
"""What the contract of a model says that can be read here."""

CONFIG = {"model_type": "bert", "hidden_act": "gelu", "is_decoder": False, "position_embedding_type": "absolute"}
"""What its configuration says, where it says anything."""


class Reader(nn.Module):
    """Scores pairs as :class:`~rerank.models.text.cross_encoder.CrossEncoder` does, to the last bit, on a CPU.

    Args:
        config: the architecture's, as ``config.json`` has it.
        contract: the model's.
        tokenizer: the model's.
    """

    bf16: ClassVar[bool] = True
    alone = False
    base_model_prefix = "bert"
    budget = ON_A_CPU

    def __init__(self, config: Mapping[str, Any], contract: Mapping[str, Any], tokenizer: Tokenizer) -> None:
        super().__init__()
        self.heads, self.width = config["num_attention_heads"], config["hidden_size"]
        self.lengths = contract["query_length"], contract["document_length"]
        self.tokenizer = tokenizer
        pair = tokenizer.encode("a", "b")
        self.template = PairTemplate.read(pair.ids, pair.sequence_ids, pair.type_ids, config["pad_token_id"])
        self.bert: Any = nn.Module()
        self.bert.embeddings = _Embeddings(config)
        self.bert.encoder = nn.Module()
        self.bert.encoder.layer = nn.ModuleList(_Layer(config) for _ in range(config["num_hidden_layers"]))
        self.bert.pooler = nn.Module()
        self.bert.pooler.dense = nn.Linear(self.width, self.width)
        self.classifier = nn.Linear(self.width, 1)
        for module in (self.bert.pooler.dense, self.classifier):
            keep_float32(module)
        self._settled = False

    @classmethod
    def open(cls, folder: str | Path) -> Self | None:
        """The model that training left in a folder; None where it takes a whole ``CrossEncoder`` to read it.

        Raises:
            UserError: a file is missing or damaged.
        """
        from safetensors.torch import load_file

        from rerank.models.weights import align

        contract, config = checked_contract(Path(folder)), json.loads((Path(folder) / "config.json").read_bytes())
        as_ours = all(contract.get(key) == value for key, value in CONTRACT.items())
        if not as_ours or any(config.get(key, value) != value for key, value in CONFIG.items()):
            return None
        tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        with torch.device("meta"):
            model = cls(config, contract, tokenizer)
        model.load_state_dict(load_file(str(Path(folder) / "model.safetensors")), assign=True)
        align(model)
        remember_code()
        return model.eval()

    def predict(self, pairs: Sequence[tuple[str, str]]) -> Array:
        """Raw scores of (query, document) text pairs, ``[n]`` float32."""
        with ALONE:
            sides = [self._encode(*side) for side in zip(zip(*pairs, strict=True), self.lengths, strict=True)]
            rows = np.arange(len(pairs))
            inputs = FlatInputs(PairInputs(Tokens.of(*sides), rows, rows, self.template), self)
            return score_candidates(self, inputs, rows, rows)

    def _encode(self, texts: Sequence[str], length: int) -> list[Array]:
        encoded = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [np.asarray(text.ids[:length], dtype=np.int32) for text in encoded]

    def settle(self, precision: Precision) -> None:
        """Choose between our attention and PyTorch's by a measurement on this processor."""
        if not self._settled:
            use_ways(self, faster(self.heads, self.width // self.heads, type_of(precision), torch.device("cpu")))
            self._settled = True

    def score(self, batch: Mapping[str, Any]) -> Tensor:
        """Raw scores ``[n]`` float32 of a flat batch."""
        hidden = self.bert.embeddings(batch["input_ids"], batch["token_type_ids"], batch["position_ids"])[0]
        pooled = self.bert.pooler.dense(cls_states(self.bert.encoder.layer, hidden, batch[SEQUENCES])).tanh()
        scores: Tensor = self.classifier(pooled)[:, 0]
        return scores.float()

    def joined(self, scores: Tensor, beside: Tensor) -> Tensor:
        """Nothing stands beside its texts."""
        raise NotImplementedError


class _Embeddings(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width = config["hidden_size"]

        def table(size: str) -> nn.Embedding:  # to draw its weights on no device would import PyTorch's compiler
            return nn.Embedding.from_pretrained(torch.empty(config[size], width))

        self.word_embeddings = table("vocab_size")
        self.token_type_embeddings = table("type_vocab_size")
        self.position_embeddings = table("max_position_embeddings")
        self.LayerNorm = nn.LayerNorm(width, config["layer_norm_eps"])

    def forward(self, ids: Tensor, types: Tensor, positions: Tensor) -> Tensor:
        states = self.word_embeddings(ids) + self.token_type_embeddings(types)
        normed: Tensor = self.LayerNorm(states + self.position_embeddings(positions))
        return normed


class _Added(nn.Module):
    """A product, added to what went around it."""

    def __init__(self, inner: int, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.dense = nn.Linear(inner, config["hidden_size"])
        self.LayerNorm = nn.LayerNorm(config["hidden_size"], config["layer_norm_eps"])

    def forward(self, states: Tensor, around: Tensor) -> Tensor:
        normed: Tensor = self.LayerNorm(self.dense(states) + around)
        return normed


class _Layer(nn.Module):
    """A layer of BERT's, its parts under the names that its weights have."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width, heads = config["hidden_size"], config["num_attention_heads"]
        own = nn.Module()
        own.query, own.key, own.value = (nn.Linear(width, width) for _ in range(3))
        own.num_attention_heads, own.attention_head_size = heads, width // heads
        own.scaling, own.dropout = (width // heads) ** -0.5, nn.Dropout(0.0)
        self.attention = nn.Module()
        self.attention.self, self.attention.output = own, _Added(width, config)
        self.intermediate: Any = nn.Module()
        self.intermediate.dense = nn.Linear(width, config["intermediate_size"])
        self.output = _Added(config["intermediate_size"], config)

    def feed_forward_chunk(self, states: Tensor) -> Tensor:
        normed: Tensor = self.output(gelu(self.intermediate.dense(states)), states)
        return normed
