"""Any Hugging Face encoder as a cross-encoder: query and document read together, one score."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from huggingface_hub import ModelCard, ModelHubMixin
from torch import Tensor

from rerank.errors import UserError
from rerank.kernels.dropout import use_cheap_dropout
from rerank.kernels.flat import reads_flat, use_flat_encoder
from rerank.kernels.precision import Precision, own_device
from rerank.lists.columns import scaled
from rerank.lists.tokens import NOTHING, Around, Side, Tokens, encode, tokenise
from rerank.lists.view import Lists
from rerank.models.base import FRESH_SEED, Inputs, drawn_from
from rerank.models.card import make_card
from rerank.models.folder import CARD, CONTRACT, align, find_model, read_contract, remembered
from rerank.models.scorer import SCORING_LOCK, Scorer, score_candidates
from rerank.models.text.modules import ModularNetwork, default_prompt, modules_of
from rerank.models.text.network import (
    knows_types,
    load_encoder,
    positions_of,
    read_tokenizer,
    reads_padding,
    zero_last_layer,
)
from rerank.models.text.pairs import (
    DEPTH,
    FIRST_STAGE,
    Long,
    PairInputs,
    PairTemplate,
    Residual,
    score_rows,
    with_instructions,
)
from rerank.progress import log
from rerank.settings.arguments import Count, Positive, Rate, check_value, class_name
from rerank.storage.arrow import Array
from rerank.storage.files import say_once, warn_once

LONG = 800
"""Default word pieces of a document that is read in chunks (CEDR's)."""


class CrossEncoder(Scorer, ModelHubMixin):
    """An encoder that reads ``[CLS] query [SEP] document [SEP]`` and scores the pair.

    The pair is joined by the tokenizer's own template. The encoder runs in the precision of the surrounding
    autocast, the head always in float32, and scores are raw (no activation).

    With ``residual_columns`` the text score corrects the first stage: the score is ``w · z + text``, with ``z`` of a
    column of the lists, such as BM25's scores, by mean and deviation of its best candidates
    (:func:`rerank.lists.columns.z_scores`). The last layer of a randomly initialised head is then 0, so the initial
    ranking equals the first stage's exactly.
    Only the text model is saved for other libraries; ``w``, trained with it, is in ``rerank.json``.

    ``save_pretrained`` and ``push_to_hub`` are those of :class:`huggingface_hub.ModelHubMixin`.

    >>> from rerank import CrossEncoder
    >>> CrossEncoder("sentence-transformers/all-MiniLM-L6-v2", document_length=64, residual_columns="bm25")
    CrossEncoder('sentence-transformers/all-MiniLM-L6-v2', document_length=64, residual_columns='bm25')
    """

    usual = 64, 256
    """Default word pieces of a query and of a document that is cut."""

    fills_positions = True
    """Take all positions by default if the head was trained elsewhere."""

    says_limit = True
    """Save the tokenizer with the longest pair as its limit, at which other libraries cut."""

    def __init__(
        self,
        name: str,
        head: Literal["hf", "cls"] | None = None,
        query_length: Count | None = None,
        document_length: Count | None = None,
        dropout: Rate | None = None,
        long: Long | None = None,
        residual_columns: list[str] | str | None = None,
        residual_weight: Positive | None = None,
    ) -> None:
        """Load an encoder, or a cross-encoder that was trained before.

        Args:
            name: a model folder or a name on the Hugging Face hub.
            head: ``hf`` is the architecture's own classification head, which other libraries load too; ``cls`` is
                CEDR's linear layer on the raw CLS vector. None takes the saved model's own, else ``hf``.
            query_length: word pieces kept of a query; None takes the saved model's own, else 64.
            document_length: word pieces kept of a document; None takes the saved model's own. For a cross-encoder that
                another library trained this is as many as it has positions for beside the query; an encoder that has
                no head yet takes 256, or 800 if ``long`` is not ``truncate``.
            dropout: every dropout rate of the model while it trains; None keeps the model's own. On a CPU rates are
                rounded to multiples of 1/256, as random bytes are cheap.
            long: reading of documents beyond the model's positions. ``truncate`` cuts them; the others read equal
                chunks of the document: ``max`` is the best chunk's score, ``cls_mean`` scores the mean of their CLS
                vectors (CEDR, with the head ``cls``). None takes the saved model's own, else ``truncate``.
            residual_columns: columns of the lists (``bm25``) whose z, times ``w``, is added to the score of the text. A
                randomly initialised head starts at 0, a trained head is kept. None takes the saved model's own, [] the
                text score alone.
            residual_weight: ``w`` before the first step, of all columns together; None takes the saved model's own for
                these columns, else 0.25.

        Raises:
            UserError: no such model, no safetensors weights, lengths beyond the model's positions, or a head that
                cannot do what ``long`` or ``residual_columns`` ask for.
        """
        super().__init__()
        self.folder = find_model(name)
        self._saved = saved = read_contract(self.folder)
        self.remembered = remembered(saved)
        self.name: str = saved.get("name", name)
        self.long: Long = long or saved.get("long", "truncate")
        self.residual = Residual.of(residual_columns, residual_weight, saved)
        self.columns = [scaled(column, DEPTH) for column in self.residual.columns]
        self.given = self.residual.columns
        self._dropout, self._started = dropout, False
        self._open(head or saved.get("head"))
        self._begin(FRESH_SEED)
        self.positions = saved.get("positions") or positions_of(self.network, self.tokenizer)
        self.room = room = self.positions - self.template.special - self.tails
        self.query_length: int = query_length or saved.get("query_length") or min(self.usual[0], max(1, room // 4))
        usual = LONG if self.long != "truncate" else room - self.query_length
        if self.long == "truncate" and (self.missing or not self.fills_positions):
            usual = min(self.usual[1], usual)
        self.document_length: int = document_length or saved.get("document_length") or usual
        needed = self.query_length + (self.document_length if self.long == "truncate" else 1)
        if min(self.query_length, self.document_length) < 1 or needed > room:
            raise UserError(
                f"model.query_length {self.query_length} and model.document_length {self.document_length} with "
                f"{self.template.special} special tokens do not fit {name}'s {room + self.template.special} positions"
                + ("; model.long max reads longer documents" if self.query_length < room else "")
            )

    def _open(self, head: str | None) -> None:
        """Read the tokenizer and the layout of the head."""
        self.tokenizer, self._layout = read_tokenizer(self.folder), modules_of(self.folder)
        own = self._saved.get("head", "modules" if self._layout else None)
        self.head = head or own or "hf"
        if self._layout and self.head != own:
            raise UserError(f"model.head: {self.folder} has a trained head of its own; leave model.head out")

    def _begin(self, seed: int) -> None:
        """Take the weights of the folder; those that it does not have are drawn from the seed."""
        with drawn_from(seed):
            self._load()
        if self.long == "cls_mean" and (not isinstance(self.network, ModularNetwork) or self.network.reads != "cls"):
            raise UserError("model.long cls_mean: needs an encoder's head that reads CLS alone; choose model.head cls")
        align(self.network)
        self._at_zero = bool(self.residual.columns) and zero_last_layer(self.network, self.missing)
        self.residual.weights.data = self.residual.initial.clone()

    def _load(self) -> None:
        """Load the network, which scores rows of tokens as ``.logits``, and the template that joins pairs."""
        self.network, self.missing = load_encoder(self.folder, self.head, self._layout, self._dropout)
        self.drawn = bool(self.missing)
        self.template = PairTemplate.of(self.tokenizer, with_types=knows_types(self.network))
        modular = isinstance(self.network, ModularNetwork)
        self.around: Around = (default_prompt(self.network.prompts if modular else {}), ""), NOTHING[1]
        self.tails = 0
        use_cheap_dropout(self.network)
        use_flat_encoder(self.network, self.network.reads if modular else "cls")
        if not reads_flat(self.network) and reads_padding(self.network, self.template, self.tokenizer):
            raise UserError(
                f"{self.name}: scores of {self.network.config.model_type} depend on padding, and so on its batch "
                "mates; name an encoder that masks padding, such as BERT, RoBERTa, ELECTRA, DeBERTa or ModernBERT"
            )

    def check_trained(self) -> None:
        """Warn of weights that were drawn and never trained, unless they add 0 to ``residual_columns``."""
        if self.missing and not (self._started or self._at_zero):
            drawn = f"{', '.join(self.missing[:4])} are random"
            warn_once(
                f"{self.name}: has no trained head ({drawn}), so its scores are random; train it, and "
                "use rerank.train(…).model"
            )

    def prepare(self, train: Lists, seed: int) -> None:
        """Draw the head from the seed if the folder has none; a model that was trained starts anew."""
        if self._started or (self.drawn and seed != FRESH_SEED):
            self._begin(seed)
        self._started = True
        if self.missing:
            more = f" and {len(self.missing) - 8} more" if len(self.missing) > 8 else ""
            log.info("%s: fresh weights, not in the folder: %s%s", self.name, ", ".join(self.missing[:8]), more)

    @classmethod
    def load(cls, folder: Path, **options: Any) -> Self:
        """Load a trained model, or any folder that has a head for one score, onto the GPU if there is one.

        Options are those of the class.

        Raises:
            UserError: it has no trained head.
        """
        model = cls(str(folder), **options)
        if model.missing:
            raise UserError(f"{folder}: has no trained head ({', '.join(model.missing[:4])} missing); train it first")
        return model.to(own_device())

    @classmethod
    def from_pretrained(  # the mixin would take arguments of the class from config.json
        cls, pretrained_model_name_or_path: str | Path, **options: Any
    ) -> Self:
        """Load a model from a folder or the Hugging Face hub; options are those of the class."""
        return cls(str(pretrained_model_name_or_path), **options).to(own_device())

    def _save_pretrained(self, save_directory: Path) -> None:
        self.save(save_directory)
        self._hub_mixin_config = None  # an adapter has no config.json, and the mixin must not make one up

    def generate_model_card(self, *_: Any, **__: Any) -> ModelCard:
        """Return the card of the folder that the model was loaded from, or a new one without results."""
        if (self.folder / CONTRACT).is_file() and (self.folder / CARD).is_file():
            return ModelCard.load(self.folder / CARD)
        return make_card(self.contract(), Path(self.name).name, base=self.folder)

    def contract(self) -> dict[str, Any]:
        contract: dict[str, Any] = {"class": class_name(type(self)), "name": self.name, "head": self.head}
        contract |= {"query_length": self.query_length, "document_length": self.document_length, "long": self.long}
        contract["positions"] = self.positions  # the tokenizer may be saved with another limit
        return contract | self.residual.contract()

    def head_parameters(self) -> set[str]:
        encoder = f"network.{self.network.base_model_prefix}."
        return {name for name, _ in self.named_parameters() if not name.startswith(encoder)}

    def check(self, lists: Lists) -> None:
        self.residual.check(lists)

    def inputs(self, lists: Lists) -> Inputs:
        """Return the lists' token ids, from the cache inside their folder, and z of ``residual_columns``."""
        self.check(lists)
        tokens = tokenise(lists.store, self.tokenizer, self.query_length, self.document_length, self.around)
        if tokens.truncated:
            say_once(  # lists are scored in parts, and all parts have these documents
                f"{lists.store}: {tokens.truncated} of {len(tokens.documents)} documents are longer than "
                f"{self.document_length} word pieces and were cut"
            )
        asked = lists.store.queries
        instructions = asked.column("instruction").to_pylist() if "instruction" in asked.column_names else []
        first_stage = self.residual.of_lists(lists)
        return self.token_inputs(tokens, lists.store.query, lists.store.document, instructions, first_stage)

    def pair_inputs(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        instruction: str | None = None,
        first_stage: Array | None = None,
    ) -> Inputs:
        """Prepare the inputs of pairs of texts, with an instruction and first-stage scores ``[n, C]``, if any."""
        sides = (self.query_length, self.around[0], queries), (self.document_length, self.around[1], documents)
        tokens = [encode(self.tokenizer, Side(length, *around), texts)[0] for length, around, texts in sides]
        rows = np.arange(len(queries))
        return self.token_inputs(Tokens.of(*tokens), rows, rows, [instruction] * len(queries), first_stage)

    def token_inputs(
        self,
        tokens: Tokens,
        query: Array,
        document: Array,
        instructions: Sequence[str | None] = (),
        first_stage: Array | None = None,
    ) -> Inputs:
        """Prepare the inputs of candidates, pairs of token ids; each query may have an instruction."""
        templates = {text: self._instructed(text) for text in dict.fromkeys(instructions) if text}
        template = self.template
        if templates:
            tokens, template = with_instructions(tokens, [templates.get(text or "", template) for text in instructions])
        return PairInputs(
            tokens,
            query,
            document,
            template,
            network=self.network if reads_flat(self.network) else None,
            capacity=None if self.long == "truncate" else self.room - self.query_length,
            first_stage=first_stage,
        )

    def _instructed(self, instruction: str) -> PairTemplate:
        """Return the template of a pair with an instruction."""
        template = self._template_with(instruction)
        document = self.document_length if self.long == "truncate" else 1
        if (more := template.special - self.template.special) > self.room - self.query_length - document:
            raise UserError(
                f"instruction: {instruction[:40]!r} takes {more} more tokens than the usual one, for which there is no "
                f"room; set a model.document_length below {self.document_length}"
            )
        return template

    def _template_with(self, instruction: str) -> PairTemplate:
        raise UserError(
            f"instruction: {self.name} has no place for one, since it reads no template; leave the instruction out"
        )

    def score(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Score a collated batch, ``w · z + text`` with z of the first stage: ``[n]`` float32."""
        text = score_rows(self.network, batch, self.long)
        return text + self.residual(batch[FIRST_STAGE]) if FIRST_STAGE in batch else text

    forward = score

    def predict(
        self,
        pairs: Iterable[tuple[str, str]] | Lists,
        budget: int | None = None,
        precision: Precision = "auto",
        instruction: str | None = None,
    ) -> Array:
        """Score (query, document) pairs of texts, or lists' candidates, whatever their order and batch mates.

        (On a GPU, and in bf16, to rounding: products of other sizes add up in another order.)

        Args:
            pairs: the texts, or lists; a document longer than ``document_length`` is cut, as in training.
            budget: padded tokens per forward pass; None for what suits the machine.
            precision: precision of the encoder.
            instruction: instruction for the model, if its template has a place for one; None takes its own. Lists
                have an instruction for each query.

        Returns:
            ``[n]`` float32.

        Raises:
            UserError: pairs for a model with ``residual_columns``: texts alone do not say what it reads.
        """
        if isinstance(pairs, Lists):
            if instruction:
                raise UserError("instruction: is for pairs; give lists a column instruction")
            return super().predict(pairs, budget, precision)
        if self.residual.columns:
            raise UserError(
                f"predict: the model reads {', '.join(self.residual.columns)}, which pairs do not have; give "
                "lists, or rank(query, documents, columns={…}); CrossEncoder(…, residual_columns=[]) reads texts alone"
            )
        return self._score_pairs(*_sides(pairs), instruction, budget=budget, precision=precision)

    def _score_pairs(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        instruction: str | None,
        first_stage: Array | None = None,
        **options: Any,
    ) -> Array:
        check_value("budget", options.get("budget"), Count | None)
        check_value("precision", options.get("precision", "auto"), Precision)
        self.check_trained()
        with SCORING_LOCK:
            inputs, rows = self.pair_inputs(queries, documents, instruction, first_stage), np.arange(len(queries))
            return score_candidates(self, inputs, rows, rows, **options)

    def scores_of(
        self,
        query: str,
        documents: Sequence[str],
        columns: Mapping[str, Sequence[float] | Array] | None = None,
        instruction: str | None = None,
        **options: Any,
    ) -> Array:
        if columns and not self.residual.columns:
            raise UserError(f"columns: {self.name} reads none; leave them out")
        z = self.residual.of_values(columns or {}, len(documents)) if self.residual.columns else None
        return self._score_pairs([query] * len(documents), documents, instruction, z, **options)

    def write(self, folder: Path) -> None:
        """Write weights, configuration and tokenizer; ``hf`` heads load in other libraries.

        For these the tokenizer is saved with the longest pair as its ``model_max_length``.
        """
        self.network.save_pretrained(folder, safe_serialization=True)
        before = self.tokenizer.model_max_length
        if self.says_limit and self.long == "truncate":
            self.tokenizer.model_max_length = self.query_length + self.document_length + self.template.special
        self.tokenizer.save_pretrained(folder)
        self.tokenizer.model_max_length = before


def _sides(pairs: Any) -> tuple[list[str], list[str]]:
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise UserError(f"predict: expected (query, document) pairs or lists, not {reprlib.repr(pairs)}")
    queries, documents = [], []
    for number, pair in enumerate(pairs):
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            raise UserError(f"predict: pair {number}: expected (query, document), two texts, not {reprlib.repr(pair)}")
        queries.append(pair[0])
        documents.append(pair[1])
    return queries, documents
