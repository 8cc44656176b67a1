"""Any Hugging Face encoder as a cross-encoder: query and document read together, one score."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from rerank.arrow import Array
from rerank.errors import UserError
from rerank.files import say_once
from rerank.kernels.flat import flatten, reads_flat
from rerank.kernels.measured import faster
from rerank.kernels.memory import free_memory
from rerank.kernels.precision import Precision, type_of
from rerank.kernels.proof import use_kernels, works_here
from rerank.kernels.shapes import remember_code
from rerank.kernels.ways import Kernels, Ways, use_ways
from rerank.lists.tokens import NOTHING, Around, Side, Tokens, encode, tokenise
from rerank.lists.view import Lists
from rerank.models.base import FRESH_SEED, Inputs, drawn_from
from rerank.models.contract import checked_contract, class_name, write_contract
from rerank.models.score import ALONE, score_candidates
from rerank.models.scorer import Scorer
from rerank.models.text.long import Long, check_long, make_inputs, mean_of_cls, score_rows
from rerank.models.text.pairs import FlatInputs
from rerank.models.text.start import DEPTH, WEIGHT, Start, StartInputs, last_layer, spread, start_at_zero
from rerank.models.text.template import PairTemplate
from rerank.models.weights import check_safetensors, check_tokenizer, copied, find_model, initial_hashes
from rerank.ranges import check_range

log = logging.getLogger("rerank")

DEFAULT_LENGTHS = (64, 256)
"""Word pieces of a query and of a document that is cut."""

DEFAULT_LONG = 800
"""Word pieces of a document that is read in chunks (CEDR's)."""


FROM_PADDING = frozenset(
    [
        *("camembert", "data2vec-text", "esm", "ibert", "layoutlmv3", "longformer", "luke", "markuplm", "mpnet"),
        *("roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod"),
    ]
)
"""Architectures that count positions from behind the padding's, so that RoBERTa's 514 positions hold 512 tokens."""

LARGEST_BUDGET = 1 << 16
"""Tokens of a forward pass on a GPU at the most. With 8,192 MiniLM's kernels take less time than their launches."""

PROBE = 70
"""Tokens of the longer of two pairs on which kernels prove themselves: more than a window of local attention."""

FOUND = 0.9
"""Share of an encoder's parameters that a folder has to have the weights of."""


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
                best chunk's score, the sum of all, the first one's. Chunks are those of the document alone;
                ``literal_cedr``, for reproduction only, gives CEDR's, which depend on batch mates, and so do its
                scores. Null takes the saved model's own, else ``truncate``.
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
        self._folder, self._dropout, self._contract = folder, dropout, contract
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
        self.alone = _changes_itself(self.network.config)
        self._encoder_prefix = f"network.{self.network.base_model_prefix}."

    def _begin(self, seed: int) -> None:
        """Take the weights of the folder; those that it does not have are drawn."""
        with drawn_from(seed):
            self.network, self.missing = self._load()
        self.template = self._template()
        self._ways: tuple[tuple[str, Precision] | None, Ways] | None = None
        check_long(self.long, self.network, self.head)
        self._use_kernels()
        if self.long in ("cls_mean", "literal_cedr"):
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
        return read_tokenizer(self._folder)

    def _usual_head(self) -> str:
        """The head where neither the caller nor the contract names one."""
        return "hf"

    def _load(self) -> tuple[Any, list[str]]:
        """The network, and the names of the weights that the folder does not have."""
        return _load(self._folder, self.head, self._contract.get("head") == "cls", self._dropout)

    def _template(self) -> PairTemplate:
        """How a pair is joined."""
        return PairTemplate.of(self.tokenizer, with_types=_knows_types(self.network))

    def _lengths(self, query: int | None, document: int | None) -> tuple[int, int]:
        """Word pieces of queries and documents, from those that are given or saved."""
        return resolve_lengths(self.room, query, document, bool(self.missing), self.long)

    def _has_fresh_layer(self) -> bool:
        """Whether the layer that makes the score is one that the folder does not have."""
        layer = last_layer(self.network)
        return any(self.network.get_submodule(name.rpartition(".")[0]) is layer for name in self.missing)

    def _use_kernels(self) -> None:
        """Let the network compute our way, as far as that gives its own scores and gradients."""
        remember_code()
        use_kernels(self.network, _attending(self.network), partial(_plain_scores, self.network), self._probe())

    def _probe(self) -> dict[str, Tensor]:
        """A short and a longer pair of random words, padded."""
        special, config, rng = self.template.special, self.network.config, np.random.default_rng(0)
        words = np.setdiff1d(np.arange(min(config.vocab_size, len(self.tokenizer))), self.tokenizer.all_special_ids)
        longest = max(2, min(PROBE, positions_of(config, self.tokenizer)) - special)
        of_query = (longest - 1) // 4 + 1
        sides = [[rng.choice(words, n) for n in lengths] for lengths in ((1, of_query), (2, longest - of_query))]
        return {name: torch.from_numpy(array) for name, array in self.template.join(*sides).items()}

    @property
    def budget(self) -> int:
        """Tokens of a forward pass: enough for a GPU to be busy while the next one is launched, if its memory does."""
        device = next(self.parameters()).device
        return super().budget if device.type != "cuda" else tokens_on_gpu(free_memory(device), self.network.config)

    def settle(self, precision: Precision, kernels: Kernels = "auto", kept: Ways | None = None) -> Ways:
        """Choose between our attention and dropout and PyTorch's: as told, else by a measurement on this processor."""
        device = next(self.network.parameters()).device
        of = device.type, precision
        if kept is None and kernels == "auto" and self._ways and self._ways[0] in (None, of):
            return self._ways[1]
        if kept is not None or kernels != "auto":
            self._ways = None, kept or Ways.all("own" if kernels == "own" else "torch")
        else:
            self._ways = of, self._faster(device, type_of(precision))
        use_ways(self.network, self._ways[1])
        return self._ways[1]

    def _faster(self, device: torch.device, kind: torch.dtype) -> Ways:
        config = self.network.config
        if device.type == "cuda" and reads_flat(self.network):
            batch = {name: value.to(device) for name, value in flatten(self._probe(), self.network).items()}
            if why := works_here(self.network, partial(_plain_scores, self.network), batch, kind):
                log.warning("our attention does not work on this GPU (%s); PyTorch's is used", why)
                return Ways.all("torch")
        heads = config.num_attention_heads
        return faster(heads, config.hidden_size // heads, kind, device)

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
        return initial_hashes(self._folder)

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
                f"{lists}: {tokens.truncated} of {len(tokens.documents)} documents are longer than "
                f"{self.document_length} word pieces and were cut"
            )
        if self.long == "literal_cedr":
            log.warning("literal_cedr: scores depend on which documents are scored together, as in CEDR's code")
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

    def predict(self, pairs: Iterable[tuple[str, str]] | Lists, budget: int | None = None) -> Array:
        """Raw scores of (query, document) text pairs, or of lists' candidates, whatever their order and batch mates.

        Args:
            pairs: the texts, or lists; a document longer than ``document_length`` is cut, as in training.
            budget: padded tokens per forward pass; None for what suits the machine.

        Returns:
            ``[n]`` float32.

        Raises:
            UserError: pairs for a model that starts from columns: texts alone do not say what it reads.
        """
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
        queries, documents = _sides(pairs)
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
        if isinstance(documents, str):
            raise UserError("rank: expected documents, a list of texts, not one text")
        scores = self.text_scores([(query, document) for document in documents])
        if self.start is not None:
            scores = self.add_start(scores, columns or {})
        order = np.argsort(-scores, kind="stable")[:top_k]
        ranked: list[dict[str, Any]] = [{"corpus_id": int(i), "score": float(scores[i])} for i in order]
        return [r | {"text": documents[r["corpus_id"]]} for r in ranked] if return_documents else ranked

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


def tokens_on_gpu(free: int | None, config: Any) -> int:
    """Tokens that a forward pass without a graph has room for on a GPU: a power of two from 8,192 to 65,536.

    A token takes about 30 bytes for each number of its state while a layer with four times as wide a middle computes
    in half precision (the state twice, in float32 and cast, queries, keys, values, the middle before and after its
    activation); 64 leave room for what is kept beside.
    """
    each = 64 * config.hidden_size
    return int(min(LARGEST_BUDGET, max(8192, 2 ** int(np.log2(max(1.0, 0.5 * (free or 0) / each))))))


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


def resolve_lengths(
    room: int,
    query: int | None,
    document: int | None,
    fresh: bool,
    long: Long,
    usual: tuple[int, int] = DEFAULT_LENGTHS,
) -> tuple[int, int]:
    """Word pieces of queries and of documents.

    Args:
        room: tokens of a pair beside the special ones.
        query: those of a query, where they are given or saved.
        document: those of a document, where they are given or saved.
        fresh: whether the model has no trained head yet.
        long: what becomes of long documents.
        usual: those of a query and of a document of a fresh model that cuts.
    """
    query = query or min(usual[0], max(1, room // 4))
    if document:
        return query, document
    if long != "truncate":
        return query, DEFAULT_LONG
    return query, min(usual[1], room - query) if fresh else room - query


class ClsHead(nn.Module):
    """CEDR's scorer: a linear layer on dropout of the last layer's CLS vector."""

    def __init__(self, encoder: Any, dropout: float) -> None:
        super().__init__()
        self.base_model_prefix = "encoder"
        self.encoder = encoder
        self.config: Any = encoder.config
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(self.config.hidden_size, 1)

    def forward(self, **batch: Tensor) -> Any:
        """Scores as ``.logits`` ``[n, 1]``, like a Hugging Face classifier."""
        from transformers.modeling_outputs import SequenceClassifierOutput

        hidden = self.encoder(**batch).last_hidden_state[:, 0]
        return SequenceClassifierOutput(logits=self.classifier(self.dropout(hidden)))

    def save_pretrained(self, folder: Path, **_: Any) -> None:
        """Write the weights of encoder and head, and the encoder's configuration."""
        from safetensors.torch import save_file

        Path(folder).mkdir(parents=True, exist_ok=True)
        self.config.save_pretrained(folder)
        save_file(copied(self.state_dict()), str(Path(folder) / "model.safetensors"), metadata={"format": "pt"})


def _load(folder: Path, head: str, saved_cls: bool, dropout: float | None) -> tuple[Any, list[str]]:
    """The network and the names of the weights that the folder does not have (a fresh head)."""
    from transformers import AutoModel

    config = read_config(folder, dropout)
    if is_decoder(config):
        raise UserError(
            f"{folder}: {config.model_type} is a decoder, whose tokens see only what is before them; load it as a "
            "Decoder, which reads prompts, or name an encoder, such as BERT, RoBERTa, ELECTRA, DeBERTa or ModernBERT"
        )
    if head == "hf":
        if saved_cls:
            raise UserError(f"{folder}: has a cls head; load it with head cls")
        network, missing = load_classifier(folder, config)
    else:
        keys = loading(config)
        rate = float(getattr(config, "hidden_dropout_prob", 0.1))
        if saved_cls:
            from safetensors.torch import load_file

            network = ClsHead(AutoModel.from_config(config, **_no_pooler(config)), rate)
            check_safetensors(folder / "model.safetensors")
            network.load_state_dict(load_file(str(folder / "model.safetensors")))
            missing = []
        else:
            encoder, info = AutoModel.from_pretrained(folder, **keys, **_no_pooler(config))
            check_found(encoder, info["missing_keys"], folder)
            network = ClsHead(encoder, rate)
            nn.init.normal_(network.classifier.weight, std=getattr(config, "initializer_range", 0.02))
            nn.init.zeros_(network.classifier.bias)
            lacking = sorted(f"encoder.{name}" for name in info["missing_keys"])
            missing = [*lacking, "classifier.weight", "classifier.bias"]
    for name, module in network.named_children():
        if name != network.base_model_prefix:
            keep_float32(module)
        elif pooler := getattr(module, "pooler", None):
            keep_float32(pooler)
    return network, missing


def _attending(network: Any) -> Any:
    """What of a network Transformers made."""
    return network.encoder if isinstance(network, ClsHead) else network


def _plain_scores(network: Any, batch: Mapping[str, Any]) -> Tensor:
    return score_rows(network, batch, "truncate")


def read_tokenizer(folder: Path) -> Any:
    """A folder's tokenizer."""
    from transformers import AutoTokenizer

    check_tokenizer(folder)
    return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def read_config(folder: Path, dropout: float | None) -> Any:
    """A folder's configuration, with this rate in place of every dropout's."""
    from transformers import AutoConfig
    from transformers.utils import logging as hf_logging

    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: holds an adapter, no whole model; load it as a Decoder")
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if dropout is not None:
        for name, value in vars(config).items():
            if ("dropout" in name or name.endswith("pdrop")) and isinstance(value, int | float):
                setattr(config, name, dropout)
    return config


def loading(config: Any) -> dict[str, Any]:
    """How weights are read: float32 safetensors from a folder, never code."""
    keys: dict[str, Any] = {"config": config, "dtype": torch.float32, "use_safetensors": True}
    return keys | {"local_files_only": True, "trust_remote_code": False, "output_loading_info": True}


IDENTITY = {"activation_fn": "torch.nn.modules.linear.Identity"}
"""For sentence-transformers: scores are raw."""


def load_classifier(folder: Path, config: Any) -> tuple[Any, list[str]]:
    """The architecture's own classifier of one label, and the names of the weights that the folder does not have."""
    from transformers import AutoModelForSequenceClassification

    config.num_labels = 1
    config.sentence_transformers = IDENTITY
    try:
        network, info = AutoModelForSequenceClassification.from_pretrained(folder, **loading(config))
    except ValueError as error:
        raise UserError(f"{folder}: {str(error).splitlines()[0]}") from error
    except RuntimeError as error:
        raise UserError(f"{folder}: is a classifier of several labels, not a scorer of one") from error
    missing = sorted(info["missing_keys"])
    check_found(network, missing, folder)
    return network, missing


def is_decoder(config: Any) -> bool:
    """Whether it reads from left to right: its first token has seen nothing, and its last one may be padding."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as MASKED

    causal = config.model_type in CAUSAL and config.model_type not in MASKED
    return (getattr(config, "is_decoder", False) or causal) and not getattr(config, "is_encoder_decoder", False)


def check_found(network: Any, missing: Iterable[str], folder: Path) -> None:
    """Refuse an encoder most of whose weights have other names in the folder: it would start from random ones."""
    prefix = f"{network.base_model_prefix}."
    inner = getattr(network, network.base_model_prefix, network)
    start = prefix if inner is not network else ""
    sizes = {start + name: parameter.numel() for name, parameter in inner.named_parameters()}
    lacking = sum(sizes.get(name, 0) for name in missing)
    if lacking > (1 - FOUND) * sum(sizes.values()):
        example = next(name for name in missing if name in sizes)
        raise UserError(
            f"{folder}: lacks {lacking / sum(sizes.values()):.0%} of the encoder's weights, such as {example}; are "
            "they of another architecture, or called otherwise?"
        )


def _no_pooler(config: Any) -> dict[str, Any]:
    """BERT and its kin have a pooler that the raw CLS vector does not use."""
    from transformers import MODEL_MAPPING

    architecture: Any = MODEL_MAPPING[type(config)]
    takes = inspect.signature(architecture).parameters
    return {"add_pooling_layer": False} if "add_pooling_layer" in takes else {}


def _changes_itself(config: Any) -> bool:
    """Whether a forward pass rewrites buffers or settings of the network, as in a few architectures."""
    rope = str(getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None))
    return config.model_type in ("big_bird", "funnel") or "dynamic" in rope or "longrope" in rope


def keep_float32(module: nn.Module) -> None:
    """Let a module compute in float32 under any autocast: scores in bf16 would tie."""
    module.forward = MethodType(_in_float32, module)  # bound, so that a deep copy has its own


def _in_float32(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    with torch.autocast(next(iter(args)).device.type if args else "cpu", enabled=False):
        floats = (a.float() if torch.is_tensor(a) and a.is_floating_point() else a for a in args)
        return type(module).forward(module, *floats, **kwargs)


def _knows_types(network: Any) -> bool:
    """Whether a model tells the two sides apart by token types (BERT does, DistilBERT and RoBERTa do not)."""
    encoder = getattr(network, network.base_model_prefix)
    return (
        getattr(encoder.config, "type_vocab_size", 0) > 1
        and "token_type_ids" in inspect.signature(encoder.forward).parameters
    )


def positions_of(config: Any, tokenizer: Any) -> int:
    """Tokens that fit a sequence: the model's positions, or what its tokenizer allows."""
    positions = getattr(config, "max_position_embeddings", None) or 10**9
    if config.model_type in FROM_PADDING:
        positions -= (config.pad_token_id or 0) + 1
    return min(positions, tokenizer.model_max_length)
