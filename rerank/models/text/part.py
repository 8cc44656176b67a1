"""What a text model is made with, and the part of it that a decoder does otherwise than an encoder."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rerank.kernels.implementations import Implementations
from rerank.kernels.precision import Precision
from rerank.kernels.proof import use_kernels
from rerank.kernels.shapes import remember_code
from rerank.lists.tokens import NOTHING, Around
from rerank.models.base import drawn_from
from rerank.models.contract import checked_contract
from rerank.models.text.kernels import faster_implementations, probe
from rerank.models.text.long import Long, check_long, mean_of_cls, score_rows
from rerank.models.text.network import ClsHead, knows_types, load_encoder, read_tokenizer
from rerank.models.text.start import last_layer
from rerank.models.text.template import PairTemplate
from rerank.models.weights import align, find_model, initial_hashes

LONG = 800
"""Default word pieces of a document that is read in chunks (CEDR's)."""


class Spec:
    """What a text model is made with: what is given, else what its folder's contract says; None where neither does."""

    def __init__(
        self,
        name: str,
        head: str | None,
        query_length: int | None,
        document_length: int | None,
        dropout: float | None,
        long: Long | None,
    ) -> None:
        self.folder = find_model(name)
        self.contract = contract = checked_contract(self.folder)
        self.name: str = contract.get("name", name)
        self.head: str | None = head or contract.get("head")
        self.long: Long = long or contract.get("long", "truncate")
        self.query_length: int | None = query_length or contract.get("query_length")
        self.document_length: int | None = document_length or contract.get("document_length")
        self.dropout = dropout


class Loaded(NamedTuple):
    """What a part found in the folder.

    Attributes:
        network: scores rows of tokens as ``.logits``, ``[n, 1]``.
        around: what stands around queries and documents, and joins their words.
    """

    network: Any
    missing: list[str]
    drawn: bool
    template: PairTemplate
    around: Around = NOTHING
    tails: int = 0


class TextPart:
    """Reads the network of a folder, and writes it; of an encoder, which reads ``[CLS] query [SEP] document [SEP]``.

    Attributes:
        elsewhere: whether other libraries read what is saved, long documents too.
    """

    usual = 64, 256
    """Default word pieces of a query and of a document that is cut."""

    def __init__(self, spec: Spec) -> None:
        self.spec, self.head, self.tokenizer = spec, spec.head or "hf", read_tokenizer(spec.folder)
        self.elsewhere = self.head == "hf" and spec.long == "truncate"

    def load(self, seed: int) -> Loaded:
        """Take the weights of the folder; those that it does not have are drawn from the seed."""
        spec = self.spec
        with drawn_from(seed):
            network, missing = load_encoder(spec.folder, self.head, spec.contract.get("head") == "cls", spec.dropout)
        align(network)
        template = PairTemplate.of(self.tokenizer, with_types=knows_types(network))
        loaded = Loaded(network, missing, bool(missing), template)
        check_long(spec.long, network, self.head)
        remember_code()
        made_by_transformers = network.encoder if isinstance(network, ClsHead) else network
        use_kernels(network, made_by_transformers, partial(score_rows, network, long="truncate"), self.probe(loaded))
        if spec.long == "cls_mean":
            mean_of_cls(network)
        return loaded

    def probe(self, loaded: Loaded) -> dict[str, Tensor]:
        return probe(loaded.network.config, self.tokenizer, loaded.template)

    def lengths(self, room: int, fresh: bool) -> tuple[int, int]:
        """Word pieces of queries and of documents."""
        given = self.spec
        query = given.query_length or min(self.usual[0], max(1, room // 4))
        if given.document_length:
            return query, given.document_length
        if given.long != "truncate":
            return query, LONG
        return query, min(self.usual[1], room - query) if fresh else room - query

    def has_fresh_layer(self, loaded: Loaded) -> bool:
        """Whether the layer that makes the score is one that the folder does not have."""
        layer, network = last_layer(loaded.network), loaded.network
        return any(network.get_submodule(name.rpartition(".")[0]) is layer for name in loaded.missing)

    def implementations(self, loaded: Loaded, device: torch.device, precision: Precision) -> Implementations:
        return faster_implementations(loaded.network, self.probe(loaded), device, precision)

    def initial_hashes(self) -> dict[str, str]:
        return initial_hashes(self.spec.folder)

    def contract(self) -> dict[str, Any]:
        """What its contract says beside what all have."""
        return {}

    def save(self, network: Any, folder: Path) -> None:
        network.save_pretrained(folder, safe_serialization=True)
