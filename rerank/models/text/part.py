"""What a text model is made with, what a decoder does otherwise than an encoder, and our kernels in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from rerank.errors import UserError
from rerank.kernels.dropout import use_cheap_dropout
from rerank.kernels.flat import reads_flat, use_flat_encoder
from rerank.kernels.interface import use_attention
from rerank.lists.tokens import NOTHING, Around
from rerank.models.base import drawn_from
from rerank.models.contract import read_contract
from rerank.models.text.modules import ModularNetwork, default_prompt, modules_of
from rerank.models.text.network import knows_types, load_encoder, positions_of, read_tokenizer, reads_padding
from rerank.models.text.pairs import Long, PairTemplate, check_long, mean_of_cls
from rerank.models.text.start import last_layer
from rerank.models.weights import align, find_model
from rerank.storage.files import say_once

LARGEST_BUDGET = 1 << 16
"""Tokens of a forward pass on a GPU at the most. With 8,192 MiniLM's kernels take less time than their launches."""

PROBE = 70
"""Tokens of the longer of two pairs that tell whether padding is read: more than a window of local attention."""

LONG = 800
"""Default word pieces of a document that is read in chunks (CEDR's)."""


def tokens_on_gpu(free: int | None, config: Any) -> int:
    """Tokens that a forward pass without a graph has room for on a GPU: a power of two from 8,192 to 65,536.

    A token takes about 30 bytes for each number of its state while a layer with four times as wide a middle computes
    in half precision (the state twice, in float32 and cast, queries, keys, values, the middle before and after its
    activation); 64 leave room for what is kept beside.
    """
    each = 64 * config.hidden_size
    return int(min(LARGEST_BUDGET, max(8192, 2 ** int(np.log2(max(1.0, 0.5 * (free or 0) / each))))))


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
        self.given, self.folder = name, find_model(name)
        self.contract = contract = read_contract(self.folder)
        self.name: str = contract.get("name", name)
        self.head: str | None = head or contract.get("head")
        self.long: Long = long or contract.get("long", "truncate")
        self.query_length: int | None = query_length or contract.get("query_length")
        self.document_length: int | None = document_length or contract.get("document_length")
        self.dropout = dropout


class Loaded(NamedTuple):
    """A model as read from its folder; ``network`` scores rows of tokens as ``.logits``, ``[n, 1]``.

    With ``one_length`` only rows of equal length may be scored together.
    """

    network: Any
    missing: list[str]
    drawn: bool
    template: PairTemplate
    around: Around = NOTHING
    tails: int = 0
    one_length: bool = False


class TextPart:
    """Reads the network of a folder, and writes it; of an encoder, which reads ``[CLS] query [SEP] document [SEP]``.

    Attributes:
        elsewhere: whether other libraries read what is saved, long documents too.
    """

    usual = 64, 256
    """Default word pieces of a query and of a document that is cut."""

    def __init__(self, spec: Spec) -> None:
        self.spec, self.tokenizer, self.modules = spec, read_tokenizer(spec.folder), modules_of(spec.folder)
        own = spec.contract.get("head", "modules" if self.modules else None)
        self.head = spec.head or own or "hf"
        if self.modules and self.head != own:
            raise UserError(f"model.head: {spec.folder} has a trained head of its own; leave model.head out")
        self.elsewhere = spec.long == "truncate"

    def load(self, seed: int) -> Loaded:
        """Take the weights of the folder; those that it does not have are drawn from the seed."""
        spec = self.spec
        with drawn_from(seed):
            network, missing = load_encoder(spec.folder, self.head, self.modules, spec.dropout)
        align(network)
        template = PairTemplate.of(self.tokenizer, with_types=knows_types(network))
        prompt = default_prompt(getattr(network, "prompts", {}))
        loaded = Loaded(network, missing, bool(missing), template, around=((prompt, ""), ("", "")))
        check_long(spec.long, network, self.head)
        use_cheap_dropout(network)
        use_attention(network.encoder if isinstance(network, ModularNetwork) else network)
        use_flat_encoder(network)
        if not reads_flat(network) and reads_padding(network, self.probe(loaded)):
            if spec.long != "truncate":
                raise UserError(
                    f"model.long {spec.long}: {spec.name} reads padding, so chunks cannot be read together; "
                    "choose truncate"
                )
            say_once(f"{spec.name}: its scores depend on padding, so only pairs of one length are read together")
            loaded = loaded._replace(one_length=True)
        if spec.long == "cls_mean":
            mean_of_cls(network)
        return loaded

    def probe(self, loaded: Loaded) -> dict[str, Tensor]:
        """A short and a longer pair of random words, padded."""
        config, template, rng = loaded.network.config, loaded.template, np.random.default_rng(0)
        words = np.setdiff1d(np.arange(min(config.vocab_size, len(self.tokenizer))), self.tokenizer.all_special_ids)
        longest = max(2, min(PROBE, positions_of(config, self.tokenizer)) - template.special)
        of_query = (longest - 1) // 4 + 1
        lengths = (1, of_query), (2, longest - of_query)
        queries, documents = ([rng.choice(words, n) for n in side] for side in lengths)
        return template.join(queries, documents)

    def instructed(self, instruction: str) -> PairTemplate:
        """Return how a pair with an instruction is joined."""
        raise UserError(
            f"instruction: {self.spec.name} has no place for one, since it reads no template; leave the instruction out"
        )

    def lengths(self, room: int, fresh: bool) -> tuple[int, int]:
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

    def contract(self) -> dict[str, Any]:
        """What its contract says beside what all have."""
        return {}

    def save(self, network: Any, folder: Path) -> None:
        network.save_pretrained(folder, safe_serialization=True)
