"""Any Hugging Face encoder as a cross-encoder: query and document read together, one score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from torch import Tensor

from rerank.errors import UserError
from rerank.kernels.flat import reads_flat
from rerank.kernels.memory import free_memory
from rerank.lists.scaled import scaled
from rerank.lists.tokens import Side, Tokens, encode, tokenise
from rerank.lists.view import Lists
from rerank.models.base import FRESH_SEED, Inputs
from rerank.models.contract import class_name, write_contract
from rerank.models.text.from_texts import TextScorer
from rerank.models.text.network import changes_itself, positions_of
from rerank.models.text.pairs import ChunkInputs, FlatInputs, Long, PairInputs, PairTemplate, score_rows
from rerank.models.text.part import Spec, TextPart, tokens_on_gpu
from rerank.models.text.start import Start, spread, start_at_zero
from rerank.progress import log
from rerank.settings.ranges import Count, Positive, Rate
from rerank.storage.arrow import Array
from rerank.storage.files import say_once


class CrossEncoder(TextScorer):
    """Scores a pair by the encoder's reading of ``[CLS] query [SEP] document [SEP]``.

    The pair is joined by the tokenizer's own template. The encoder runs in the precision of the surrounding
    autocast, the head always in float32, and scores are raw (no activation).

    With ``start`` it begins where the first stage is: the score is ``w · z + text``, with ``z`` of a column of the
    lists, such as BM25's scores, by mean and deviation of its best candidates (:func:`rerank.lists.scaled.z_scores`).
    The last layer of a fresh head is 0 then, so that the first step sees the first stage's ranking, to the last tie.
    ``text`` alone is what is saved and other libraries load; ``w``, trained with it, is in ``rerank.json``.

    >>> from rerank import CrossEncoder
    >>> CrossEncoder("sentence-transformers/all-MiniLM-L6-v2", document_length=64, start="bm25")
    CrossEncoder('sentence-transformers/all-MiniLM-L6-v2', document_length=64, start='bm25')
    """

    def __init__(
        self,
        name: str,
        head: Literal["hf", "cls"] | None = None,
        query_length: Count | None = None,
        document_length: Count | None = None,
        dropout: Rate | None = None,
        long: Long | None = None,
        start: list[str] | str | None = None,
        start_depth: Count | None = None,
        start_weight: Positive | None = None,
    ) -> None:
        """Load an encoder, or a cross-encoder that was trained before.

        Args:
            name: a model folder or a name on the Hugging Face hub.
            head: ``hf`` is the architecture's own classification head, which other libraries load too; ``cls`` is
                CEDR's linear layer on the raw CLS vector. None takes the saved model's own, else ``hf``.
            query_length: word pieces kept of a query; None takes the saved model's own, else 64.
            document_length: word pieces kept of a document; None takes the saved model's own. For a cross-encoder that
                another library trained this is as many as it has positions for beside the query; an encoder that has
                no head yet takes 256, and 800 where ``long`` is another than ``truncate``.
            dropout: every dropout rate of the model while it trains; None keeps the model's own. On a CPU rates are
                rounded to multiples of 1/256, where the bits are cheap.
            long: what becomes of documents beyond the model's positions. ``truncate`` cuts them; the others read equal
                chunks: ``cls_mean`` scores the mean of their CLS vectors (CEDR), ``max``, ``sum`` and ``first`` are the
                best chunk's score, the sum of all, the first one's. Chunks are those of the document alone.
                None takes the saved model's own, else ``truncate``.
            start: columns of the lists (``bm25``) whose z, times ``w``, is added to the score of the text. A fresh head
                starts at 0, a head that was trained is kept. None takes the saved model's own, [] the text part alone.
            start_depth: candidates of a stored list, from the top, whose mean and deviation make z; None takes the
                saved model's own, else 100.
            start_weight: ``w`` before the first step, of all columns together. None takes the saved model's own; with a
                head that was trained without these columns the spread of its scores within training lists; else 0.25.

        Raises:
            UserError: no such model, no safetensors weights, lengths beyond the model's positions, or a head that
                cannot do what ``long`` or ``start`` ask for.
        """
        super().__init__()
        spec = Spec(name, head, query_length, document_length, dropout, long)
        self._make(name, TextPart(spec), Start.of(start, start_depth, start_weight, spec.contract))

    def _make(self, name: str, part: TextPart, start: Start) -> None:
        spec = part.spec
        self.part, self.start = part, start
        self.columns = [scaled(name, start.depth) for name in start.columns]
        self.name, self.folder, self.long = spec.name, spec.folder, spec.long
        self.head, self.tokenizer = part.head, part.tokenizer
        self._started = False
        self._begin(FRESH_SEED)
        self.positions = spec.contract.get("positions") or positions_of(self.network.config, self.tokenizer)
        self.room = room = self.positions - self.template.special - self._loaded.tails
        self.query_length, self.document_length = part.lengths(room, bool(self.missing))
        needed = self.query_length + (self.document_length if self.long == "truncate" else 1)
        if min(self.query_length, self.document_length) < 1 or needed > room:
            raise UserError(
                f"model.query_length {self.query_length} and model.document_length {self.document_length} with "
                f"{self.template.special} special tokens do not fit {name}'s {room + self.template.special} positions"
                + ("; model.long cls_mean reads longer documents" if self.query_length < room else "")
            )
        self.alone = changes_itself(self.network.config)
        self._encoder_prefix = f"network.{self.network.base_model_prefix}."

    def _begin(self, seed: int) -> None:
        """Take the weights of the folder; those that it does not have are drawn."""
        self._loaded = self.part.load(seed)
        self.network, self.missing = self._loaded.network, self._loaded.missing
        self.template, self.around = self._loaded.template, self._loaded.around
        self._at_zero = bool(self.start.columns) and self.part.has_fresh_layer(self._loaded)
        if self._at_zero:
            start_at_zero(self.network)
        self.start.begin()

    @property
    def budget(self) -> int:
        """Tokens of a forward pass: enough for a GPU to be busy while the next one is launched, if its memory does."""
        device = next(self.parameters()).device
        return super().budget if device.type != "cuda" else tokens_on_gpu(free_memory(device), self.network.config)

    def untrained(self) -> str:
        """Weights that were drawn and never trained; none where they add 0 to what the columns of ``start`` say."""
        if not self.missing or self._started or self._at_zero:
            return ""
        return f"{self.name}: has no trained head ({', '.join(self.missing[:4])} are random), and so scores are, too"

    def prepare(self, train: Lists, seed: int) -> None:
        """Draw the head from the seed where the folder has none; a model that was trained starts anew.

        A head that was trained without the columns of ``start`` gets a first stage as loud as itself.
        """
        if self._started or (self._loaded.drawn and seed != FRESH_SEED):
            self._begin(seed)
        self._started = True
        if self.missing:
            more = f" and {len(self.missing) - 8} more" if len(self.missing) > 8 else ""
            log.info("%s: fresh weights, not in the folder: %s%s", self.name, ", ".join(self.missing[:8]), more)
        decided = self.start.saved is not None or self.start.weight is not None
        if self.start.columns and not (decided or self._at_zero):
            apart = spread(self, self.text_inputs, train, self.start.depth, seed)
            log.info("start: within lists the scores of %s have a spread of %.3g; w is as much", self.name, apart)
            self.start.share(apart)

    @classmethod
    def load(cls, folder: Path, **options: Any) -> Self:
        """Load a trained model, or any folder that has a head for one score; options are those of the class.

        Raises:
            UserError: it has no trained head.
        """
        model = cls(str(folder), **options)
        if model.missing:
            raise UserError(f"{folder}: has no trained head ({', '.join(model.missing[:4])} missing); train it first")
        return model

    def contract(self) -> dict[str, Any]:
        contract: dict[str, Any] = {"class": class_name(type(self)), "name": self.name, "head": self.head}
        contract |= {"query_length": self.query_length, "document_length": self.document_length, "long": self.long}
        says_less = self.part.elsewhere or "positions" in self.part.spec.contract  # its tokenizer, that is
        contract |= {"positions": self.positions} if says_less else {}
        return contract | self.start.contract() | self.part.contract()

    @property
    def total(self) -> int:
        """Tokens of the longest pair: where other libraries cut, which know no length of either side."""
        return self.query_length + self.document_length + self.template.special

    def logged(self) -> dict[str, Any]:
        return {"start": self.start.by_column()} if self.start.columns else {}

    def head_parameters(self) -> set[str]:
        return {name for name, _ in self.named_parameters() if not name.startswith(self._encoder_prefix)}

    def check(self, lists: Lists) -> None:
        self.start.check(lists)

    def inputs(self, lists: Lists) -> Inputs:
        """The lists' token ids, from the cache inside their folder, and z of the columns that it starts from."""
        self.check(lists)
        inputs = self.text_inputs(lists)
        if self.start.columns:
            inputs.beside = partial(self.start.of_lists, lists)
        return inputs

    def text_inputs(self, lists: Lists) -> Inputs:
        """What the text part reads alone."""
        tokens = tokenise(lists.store, self.tokenizer, self.query_length, self.document_length, self.around)
        if tokens.truncated:
            say_once(  # lists are scored in parts, and all parts have these documents
                f"{lists.store}: {tokens.truncated} of {len(tokens.documents)} documents are longer than "
                f"{self.document_length} word pieces and were cut"
            )
        asked = lists.store.queries
        instructions = asked.column("instruction").to_pylist() if "instruction" in asked.column_names else []
        return self.token_inputs(tokens, lists.store.query, lists.store.document, instructions)

    def pair_inputs(
        self, queries: Sequence[str], documents: Sequence[str], instructions: Sequence[str | None] = ()
    ) -> Inputs:
        sides = (self.query_length, self.around[0], queries), (self.document_length, self.around[1], documents)
        tokens = [encode(self.tokenizer, Side(length, *around), texts)[0] for length, around, texts in sides]
        rows = np.arange(len(queries))
        return self.token_inputs(Tokens.of(*tokens), rows, rows, instructions)

    def token_inputs(
        self, tokens: Tokens, query: Array, document: Array, instructions: Sequence[str | None] = ()
    ) -> Inputs:
        """Prepare the inputs of candidates, pairs of token ids; each query may have an instruction."""
        templates = {text: self._instructed(text) for text in dict.fromkeys(instructions) if text}
        each = [templates[text] if text else self.template for text in instructions] if templates else None
        pairs = tokens, query, document, self.template, each
        if self.long == "truncate":
            inputs = PairInputs(*pairs, one_length=self._loaded.one_length)
        else:
            inputs = ChunkInputs(*pairs, capacity=self.room - self.query_length, only_first=self.long == "first")
        return FlatInputs(inputs, self.network) if reads_flat(self.network) else inputs

    def _instructed(self, instruction: str) -> PairTemplate:
        template = self.part.instructed(instruction)
        document = self.document_length if self.long == "truncate" else 1
        if (more := template.special - self.template.special) > self.room - self.query_length - document:
            raise UserError(
                f"instruction: {instruction[:40]!r} takes {more} more tokens than the usual one, for which there is no "
                f"room; set a model.document_length below {self.document_length}"
            )
        return template

    def score(self, batch: Mapping[str, Tensor]) -> Tensor:
        return score_rows(self.network, batch, self.long)

    forward = score

    def joined(self, scores: Tensor, beside: Tensor) -> Tensor:
        """``w · z + text`` in float32: ``[n]`` scores of the text part, ``[n, C]`` z."""
        return scores.float() + self.start(beside)

    def save(self, folder: str | Path) -> None:
        """Write weights, configuration, tokenizer and contract; ``hf`` heads load in other libraries.

        For these the tokenizer is saved with :attr:`total` as its ``model_max_length``.
        """
        folder = Path(folder)
        self.part.save(self.network, folder)
        before = self.tokenizer.model_max_length
        if self.part.elsewhere:
            self.tokenizer.model_max_length = self.total
        self.tokenizer.save_pretrained(folder)
        self.tokenizer.model_max_length = before
        write_contract(folder, {**self.contract(), **self.remembered})
