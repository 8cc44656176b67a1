"""Any Hugging Face encoder as a cross-encoder: query and document read together, one score."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from rerank.errors import UserError
from rerank.kernels.flat import reads_flat
from rerank.kernels.memory import free_memory
from rerank.kernels.precision import Precision, type_of
from rerank.kernels.ways import Kernels, Ways, use_ways
from rerank.lists.tokens import NOTHING, Around, Side, Tokens, encode, tokenise
from rerank.lists.view import Lists
from rerank.models.base import FRESH_SEED, Inputs, drawn_from
from rerank.models.contract import checked_contract, class_name, write_contract
from rerank.models.score import ALONE, score_candidates
from rerank.models.scorer import Scorer
from rerank.models.text.architecture import changes_itself, knows_types, positions_of
from rerank.models.text.kernels import faster_ways, probe, prove_kernels, tokens_on_gpu
from rerank.models.text.lengths import resolve_lengths
from rerank.models.text.long import Long, check_long, make_inputs, mean_of_cls, score_rows
from rerank.models.text.network import load_encoder, read_tokenizer
from rerank.models.text.pairs import FlatInputs
from rerank.models.text.start import DEPTH, WEIGHT, Start, StartInputs, last_layer, spread, start_at_zero
from rerank.models.text.template import PairTemplate
from rerank.models.weights import align, find_model, initial_hashes
from rerank.settings.ranges import check_range
from rerank.storage.arrow import Array
from rerank.storage.files import say_once

log = logging.getLogger("rerank")


class CrossEncoder(Scorer):
    """Scores a pair by the encoder's reading of ``[CLS] query [SEP] document [SEP]``.

    The pair is joined by the tokenizer's own template. The encoder runs in the precision of the surrounding
    autocast, the head always in float32, and scores are raw (no activation).

    With ``start`` it begins where the first stage is: the score is ``w · z + text``, with ``z`` of a column of the
    lists, such as BM25's scores, by mean and deviation of its best candidates (:func:`rerank.lists.scaled.z_scores`).
    The last layer of a fresh head is 0 then, so that the first step sees the first stage's ranking, to the last tie.
    ``text`` alone is what is saved and other libraries load; ``w``, trained with it, is in ``rerank.json``.
    """

    def __init__(
        self,
        name: str,
        head: Literal["hf", "cls"] | None = None,
        query_length: int | None = None,
        document_length: int | None = None,
        dropout: float | None = None,
        long: Long | None = None,
        start: list[str] | str | None = None,
        start_depth: int | None = None,
        start_weight: float | None = None,
    ) -> None:
        """Load an encoder, or a cross-encoder that was trained before.

        Args:
            name: a model folder or a name on the Hugging Face hub.
            head: ``hf`` is the architecture's own classification head, which other libraries load too; ``cls`` is
                CEDR's linear layer on the raw CLS vector. Null takes the saved model's own, else ``hf``.
            query_length: word pieces kept of a query; null takes the saved model's own, else 64.
            document_length: word pieces kept of a document; null takes the saved model's own. For a cross-encoder that
                another library trained this is as many as it has positions for beside the query; an encoder that has
                no head yet takes 256, and 800 where ``long`` is another than ``truncate``.
            dropout: every dropout rate of the model while it trains; null keeps the model's own. On a CPU rates are
                rounded to multiples of 1/256, where the bits are cheap.
            long: what becomes of documents beyond the model's positions. ``truncate`` cuts them; the others read equal
                chunks: ``cls_mean`` scores the mean of their CLS vectors (CEDR), ``max``, ``sum`` and ``first`` are the
                best chunk's score, the sum of all, the first one's. Chunks are those of the document alone.
                Null takes the saved model's own, else ``truncate``.
            start: columns of the lists (``bm25``) whose z, times ``w``, is added to the score of the text. A fresh head
                starts at 0, a head that was trained is kept. Null takes the saved model's own, [] the text part alone.
            start_depth: candidates of a stored list, from the top, whose mean and deviation make z; null takes the
                saved model's own, else 100.
            start_weight: ``w`` before the first step, of all columns together. Null takes the saved model's own; with a
                head that was trained without these columns the spread of its scores within training lists; else 0.25.

        Raises:
            UserError: no such model, no safetensors weights, lengths beyond the model's positions, or a head that
                cannot do what ``long`` or ``start`` ask for.
        """
        super().__init__()
        settings = {"query_length": query_length, "document_length": document_length, "dropout": dropout}
        settings |= {"start_depth": start_depth, "start_weight": start_weight}
        for key, value in settings.items():
            check_range(f"model.{key}", value)
        folder = find_model(name)
        contract = checked_contract(folder)
        self.name = contract.get("name", name)
        self.folder, self._dropout, self._contract = folder, dropout, contract
        self.head = head or contract.get("head") or self._usual_head()
        self.tokenizer = self._read_tokenizer()
        self.long: Long = long or contract.get("long", "truncate")
        self._initial: dict[str, str] | None = None
        self.start: Start | None = None
        self._saved_start: dict[str, Any] = contract.get("start", {})
        columns = [start] if isinstance(start, str) else self._saved_start.get("columns") if start is None else start
        if columns:
            depth = start_depth if start_depth is not None else self._saved_start.get("depth", DEPTH)
            self.start = Start(columns, depth)
            self.columns = self.start.names()
        elif start_depth is not None or start_weight is not None:
            key = "start_weight" if start_depth is None else "start_depth"
            raise UserError(f"model.{key}: is for a model that starts from columns; name them as model.start")
        self._start_weight = start_weight
        self._begin(FRESH_SEED)
        self._started = False
        self.positions = contract.get("positions") or positions_of(self.network.config, self.tokenizer)
        self.room = room = self.positions - self.template.special - self._tails
        told = query_length or contract.get("query_length"), document_length or contract.get("document_length")
        self.query_length, self.document_length = self._lengths(*told)
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
        with drawn_from(seed):
            self.network, self.missing = self._load()
        align(self.network)
        self.template = self._template()
        self._ways: tuple[tuple[str, Precision] | None, Ways] | None = None
        check_long(self.long, self.network, self.head)
        self._use_kernels()
        if self.long == "cls_mean":
            mean_of_cls(self.network)
        if self.start is None:
            return
        self._at_zero = self._has_fresh_layer()
        if self._at_zero:
            start_at_zero(self.network)
        if self._starts_as_saved:
            self.start.set(self._saved_start["weights"])
        else:
            self.start.share(WEIGHT if self._start_weight is None else self._start_weight)

    def _read_tokenizer(self) -> Any:
        return read_tokenizer(self.folder)

    def _usual_head(self) -> str:
        """The head where neither the caller nor the contract names one."""
        return "hf"

    def _load(self) -> tuple[Any, list[str]]:
        """The network, and the names of the weights that the folder does not have."""
        return load_encoder(self.folder, self.head, self._contract.get("head") == "cls", self._dropout)

    def _template(self) -> PairTemplate:
        """How a pair is joined."""
        return PairTemplate.of(self.tokenizer, with_types=knows_types(self.network))

    def _lengths(self, query: int | None, document: int | None) -> tuple[int, int]:
        """Word pieces of queries and documents, from those that are given or saved."""
        return resolve_lengths(self.room, query, document, bool(self.missing), self.long)

    def _has_fresh_layer(self) -> bool:
        """Whether the layer that makes the score is one that the folder does not have."""
        layer = last_layer(self.network)
        return any(self.network.get_submodule(name.rpartition(".")[0]) is layer for name in self.missing)

    def _probe(self) -> dict[str, Tensor]:
        return probe(self.network.config, self.tokenizer, self.template)

    def _use_kernels(self) -> None:
        """Let the network compute our way, as far as that gives its own scores and gradients."""
        prove_kernels(self.network, self._probe())

    @property
    def budget(self) -> int:
        """Tokens of a forward pass: enough for a GPU to be busy while the next one is launched, if its memory does."""
        device = next(self.parameters()).device
        return super().budget if device.type != "cuda" else tokens_on_gpu(free_memory(device), self.network.config)

    def settle(self, precision: Precision, kernels: Kernels = "auto") -> Ways:
        """Choose between our attention and dropout and PyTorch's: as told, else what is faster on this processor."""
        device = next(self.network.parameters()).device
        of = device.type, precision
        if kernels == "auto" and self._ways and self._ways[0] in (None, of):
            return self._ways[1]
        if kernels != "auto":
            self._ways = None, Ways.all(kernels)
        else:
            self._ways = of, self._faster(device, type_of(precision))
        use_ways(self.network, self._ways[1])
        return self._ways[1]

    def _faster(self, device: torch.device, kind: torch.dtype) -> Ways:
        return faster_ways(self.network, self._probe(), device, kind)

    @property
    def _starts_as_saved(self) -> bool:
        """Whether ``w`` is what was trained together with the text part, for the same z."""
        if self.start is None or self._start_weight is not None:
            return False
        return (self._saved_start.get("columns"), self._saved_start.get("depth")) == (
            self.start.columns,
            self.start.depth,
        )

    @property
    def _drawn(self) -> bool:
        """Whether some of the weights are drawn, not read."""
        return bool(self.missing)

    def untrained(self) -> str:
        """Weights that were drawn and never trained; none where they add 0 to what the columns of ``start`` say."""
        if not self.missing or self._started or (self.start is not None and self._at_zero):
            return ""
        return f"{self.name}: has no trained head ({', '.join(self.missing[:4])} are random)"

    def prepare(self, train: Lists, seed: int) -> None:
        """Draw the head from the seed where the folder has none; a model that was trained starts anew.

        A head that was trained without the columns of ``start`` gets a first stage as loud as itself.
        """
        if self._started or (self._drawn and seed != FRESH_SEED):
            self._begin(seed)
        self._started = True
        if self.missing:
            more = f" and {len(self.missing) - 8} more" if len(self.missing) > 8 else ""
            log.info("%s: fresh weights, not in the folder: %s%s", self.name, ", ".join(self.missing[:8]), more)
        told = self._starts_as_saved or self._start_weight is not None
        if self.start is not None and not (told or self._at_zero):
            found = spread(self, self.text_inputs, train, self.start.depth, seed)
            log.info("start: within lists the scores of %s have a spread of %.3g; w is as much", self.name, found)
            self.start.share(found)

    def identity(self) -> dict[str, Any]:
        """The arguments, with what the folder's contract decides in their place and the folder's files for its name."""
        if self._initial is None:
            self._initial = self._initial_hashes()
        decided: dict[str, Any] = {"head": self.head, "long": self.long}
        decided |= {"query_length": self.query_length, "document_length": self.document_length}
        decided |= {"start": self.start and self.start.columns, "start_depth": self.start and self.start.depth}
        if self._starts_as_saved:
            decided["start_weight"] = self._saved_start["weights"]
        elif self.start and self._start_weight is None and self._at_zero:
            decided["start_weight"] = WEIGHT
        found = self.arguments() | decided | {"initial": self._initial}
        del found["name"]
        return found

    def _initial_hashes(self) -> dict[str, str]:
        """The hashes of the files that it starts from."""
        return initial_hashes(self.folder)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """A trained model of ours, or any folder that has a head for one score.

        Raises:
            UserError: it has no trained head.
        """
        model = cls(str(folder))
        if model.missing:
            raise UserError(f"{folder}: has no trained head ({', '.join(model.missing)} missing); train it first")
        return model

    def contract(self) -> dict[str, Any]:
        """What an input looks like; saved with the weights."""
        cut = {"positions": self.positions} if self.loads_elsewhere else {}
        return {
            "class": class_name(type(self)),
            "name": self.name,
            "head": self.head,
            "query_length": self.query_length,
            "document_length": self.document_length,
            "long": self.long,
        } | (cut | {"start": self.start.contract()} if self.start else cut)

    @property
    def loads_elsewhere(self) -> bool:
        """Whether other libraries read what is saved, long documents too."""
        return self.head == "hf" and self.long == "truncate"

    @property
    def total(self) -> int:
        """Tokens of the longest pair: where other libraries cut, which know no length of either side."""
        return self.query_length + self.document_length + self.template.special

    def largest_difference(self, pairs: Sequence[tuple[str, str]]) -> float:
        """How far the scores of pairs by transformers and what is built on it are from ours, in float32, at the most.

        Others cut the longer side until a pair fits :attr:`total`, so a short query leaves a document more room than
        here: of pairs whose sides fit their lengths the difference is that of rounding.
        """
        ours, training = self.text_scores(pairs, precision="fp32"), self.network.training
        device, theirs = next(self.parameters()).device, list[Tensor]()
        self.network.eval()
        with torch.inference_mode():
            for pair in pairs:
                batch = self.tokenizer(*pair, truncation=True, max_length=self.total, return_tensors="pt").to(device)
                theirs.append(self.network(**batch).logits.flatten().cpu())
        self.network.train(training)
        return float((torch.cat(theirs) - torch.from_numpy(ours)).abs().max())

    def logged(self) -> dict[str, Any]:
        """``start``: ``w`` of each column."""
        return {"start": self.start.by_column()} if self.start else {}

    def head_parameters(self) -> set[str]:
        """Names of the parameters outside the encoder."""
        return {name for name, _ in self.named_parameters() if not name.startswith(self._encoder_prefix)}

    def check(self, lists: Lists) -> None:
        """Refuse lists without a column that it starts from, or whose column would give added documents away."""
        if self.start is not None:
            self.start.check(lists)

    def inputs(self, lists: Lists) -> Inputs:
        """The lists' token ids, from the cache inside their folder, and z of the columns that it starts from.

        Raises:
            UserError: lists without such a column, or whose column would give added documents away.
        """
        self.check(lists)
        if self.start is None:
            return self.text_inputs(lists)
        return StartInputs(self.text_inputs(lists), self.start, lists)

    _around: Around = NOTHING
    """What stands around queries and documents, and joins their words."""

    _tails: int = 0
    """Tokens of what stands behind them."""

    def text_inputs(self, lists: Lists) -> Inputs:
        """What the text part reads alone."""
        tokens = tokenise(lists.store, self.tokenizer, self.query_length, self.document_length, self._around)
        if tokens.truncated:
            say_once(  # lists are scored in parts, and all parts have these documents
                f"{lists.store}: {tokens.truncated} of {len(tokens.documents)} documents are longer than "
                f"{self.document_length} word pieces and were cut"
            )
        return self._pairs(tokens, lists.store.query, lists.store.document)

    def _pairs(self, tokens: Tokens, query: Array, document: Array) -> Inputs:
        inputs = make_inputs(self.long, tokens, query, document, self.template, self.query_length, self.room)
        return FlatInputs(inputs, self.network) if reads_flat(self.network) else inputs

    def score(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Raw scores ``[n]`` float32 of a collated batch, one per pair."""
        return score_rows(self.network, batch, self.long)

    forward = score

    def joined(self, scores: Tensor, beside: Tensor) -> Tensor:
        """``w · z + text`` in float32: ``[n]`` scores of the text part, ``[n, C]`` z."""
        assert self.start is not None
        return scores.float() + self.start(beside)

    def save(self, folder: Path) -> None:
        """Write weights, configuration, tokenizer and contract; ``hf`` heads load in other libraries.

        For these the tokenizer is saved with :attr:`total` as its ``model_max_length``.
        """
        self.network.save_pretrained(folder, safe_serialization=True)
        before = self.tokenizer.model_max_length
        if self.loads_elsewhere:
            self.tokenizer.model_max_length = self.total
        self.tokenizer.save_pretrained(folder)
        self.tokenizer.model_max_length = before
        write_contract(folder, self.contract())

    def predict(  # type: ignore[override]  # what others call options is refused with a hint
        self, pairs: Iterable[tuple[str, str]] | Lists, budget: int | None = None, **others: Any
    ) -> Array:
        """Raw scores of (query, document) text pairs, or of lists' candidates, whatever their order and batch mates.

        (On a GPU, and in bf16, to rounding: products of other sizes add up in another order.)

        Args:
            pairs: the texts, or lists; a document longer than ``document_length`` is cut, as in training.
            budget: padded tokens per forward pass; None for what suits the machine.
            others: nothing; options of other libraries are refused by name.

        Returns:
            ``[n]`` float32.

        Raises:
            UserError: an option that there is not; pairs for a model that starts from columns: texts alone do not say
                what it reads.
        """
        if others:
            name = next(iter(others))
            way = "; budget=… says how many padded tokens go through at once" if "batch" in name else ""
            raise UserError(f"predict: there is no {name}{way}")
        if isinstance(pairs, Lists):
            return super().predict(pairs, budget)
        if self.start is not None:
            raise UserError(
                f"predict: the model starts from {', '.join(self.start.columns)}, which pairs do not have; give lists, "
                "or rank(query, documents, columns={…}); CrossEncoder(…, start=[]) is its text part alone"
            )
        return self.text_scores(pairs, budget)

    def text_scores(
        self, pairs: Iterable[tuple[str, str]], budget: int | None = None, precision: Precision = "auto"
    ) -> Array:
        """Raw scores of text pairs, ``[n]`` float32, by the text part alone where there is another.

        Args:
            pairs: the texts.
            budget: padded tokens per forward pass; None for what suits the machine.
            precision: arithmetic of the encoder.
        """
        check_range("budget", budget)
        queries, documents = _sides(pairs)
        self.warn_if_untrained()
        with ALONE:
            sides = [
                encode(self.tokenizer, Side(length, *around), texts)[0]
                for length, around, texts in (
                    (self.query_length, self._around[0], queries),
                    (self.document_length, self._around[1], documents),
                )
            ]
            rows = np.arange(len(queries))
            inputs = self._pairs(Tokens.of(*sides), rows, rows)
            return score_candidates(self, inputs, rows, rows, budget=budget, precision=precision)

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        columns: Mapping[str, Sequence[float] | Array] | None = None,
    ) -> list[dict[str, Any]]:
        """Rank documents for a query, best first: ``corpus_id``, ``score`` and, where asked for, ``text``.

        Args:
            query: the query.
            documents: the documents; with ``columns`` in the order of the first stage.
            top_k: how many to return; None for all.
            return_documents: whether their texts are returned, too.
            columns: for a model that starts from columns the first stage's scores of these documents, ``{"bm25":
                [12.1, …]}``; None or NaN where it has none.

        Raises:
            UserError: a column that the model starts from is missing, or has not a number for every document.
        """
        check_range("top_k", top_k)
        if not isinstance(documents, Sequence) or isinstance(documents, str):
            raise UserError(f"rank: expected documents, a list of texts, not {_short(documents)}")
        if columns and self.start is None:
            raise UserError(f"columns: {self.name} starts from none; leave them out")
        scores = self.text_scores([(query, document) for document in documents])
        if self.start is not None:
            scores = self.add_start(scores, columns or {})
        order = np.argsort(-scores, kind="stable")[:top_k]
        ranked: list[dict[str, Any]] = [{"corpus_id": int(i), "score": float(scores[i])} for i in order]
        return [r | {"text": documents[r["corpus_id"]]} for r in ranked] if return_documents else ranked

    def start_scores(self, lists: Lists) -> Array:
        """What ranks lists before the first step where the head is fresh: the columns' z alone, ``[T]`` float32."""
        assert self.start is not None
        equal = [1 / len(self.start.columns)] * len(self.start.columns)
        weights = torch.tensor(self._saved_start["weights"] if self._starts_as_saved else equal)
        return (self.start.of_lists(lists, lists.row_numbers) @ weights).numpy()

    def without_start(self, lists: Lists, scores: Array) -> Array:
        """The text part's share of the scores of lists, ``[T]`` float32, to rounding."""
        assert self.start is not None
        with torch.inference_mode():
            z = self.start.of_lists(lists, lists.row_numbers).to(self.start.weights.device)
            return scores - self.start(z).cpu().numpy()

    def add_start(self, text: Array, columns: Mapping[str, Sequence[float] | Array]) -> Array:
        """Scores of one list's candidates, ``[n]``, from those of their texts and the columns, best candidate first."""
        assert self.start is not None
        with torch.inference_mode():
            z = self.start.of_values(columns, len(text)).to(self.start.weights.device)
            return self.joined(torch.from_numpy(text).to(z.device), z).cpu().numpy()


def _sides(pairs: Any) -> tuple[list[str], list[str]]:
    """Queries and documents of pairs.

    Raises:
        UserError: what holds no pairs of texts.
    """
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise UserError(f"predict: expected (query, document) pairs or lists, not {_short(pairs)}")
    queries, documents = [], []
    for number, pair in enumerate(pairs):
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            raise UserError(f"predict: pair {number}: expected (query, document), two texts, not {_short(pair)}")
        queries.append(pair[0])
        documents.append(pair[1])
    return queries, documents


def _short(value: Any) -> str:
    return repr(value) if len(repr(value)) < 60 else f"{repr(value)[:60]}…"
