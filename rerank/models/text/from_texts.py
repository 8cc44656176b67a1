"""What people call: scores and rankings of texts."""

from __future__ import annotations

import reprlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from huggingface_hub import ModelCard, ModelHubMixin

from rerank.errors import UserError
from rerank.kernels.precision import Precision
from rerank.lists.view import Lists
from rerank.models.base import Inputs, RanksTexts
from rerank.models.card import make_card, with_mix
from rerank.models.contract import CARD, CONTRACT
from rerank.models.scorer import ALONE, Scorer, score_candidates
from rerank.models.text.start import Start
from rerank.settings.ranges import Count, check_value
from rerank.storage.arrow import Array


class TextScorer(RanksTexts, Scorer, ModelHubMixin):
    """A network that scores pairs of texts; ``start`` is the first stage's share of the scores.

    ``save_pretrained`` and ``push_to_hub`` are those of :class:`huggingface_hub.ModelHubMixin`.
    """

    name: str
    folder: Path
    start: Start

    @abstractmethod
    def pair_inputs(
        self, queries: Sequence[str], documents: Sequence[str], instructions: Sequence[str | None] = ()
    ) -> Inputs:
        """Prepare the inputs of pairs of texts, each with its instruction, if any."""

    def predict(  # type: ignore[override]  # what others call options is refused with a hint
        self,
        pairs: Iterable[tuple[str, str]] | Lists,
        budget: int | None = None,
        instruction: str | None = None,
        **others: Any,
    ) -> Array:
        """Raw scores of (query, document) text pairs, or of lists' candidates, whatever their order and batch mates.

        (On a GPU, and in bf16, to rounding: products of other sizes add up in another order.)

        Args:
            pairs: the texts, or lists; a document longer than ``document_length`` is cut, as in training.
            budget: padded tokens per forward pass; None for what suits the machine.
            instruction: what the model is told to look for, if its template has a place for it; None for its own. Lists
                have an instruction for each query.
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
            way = "; probabilities(…) gives them" if "prob" in name else way
            raise UserError(f"predict: there is no {name}{way}")
        if isinstance(pairs, Lists):
            if instruction:
                raise UserError("instruction: is for pairs; give lists a column instruction")
            return super().predict(pairs, budget)
        if self.start.columns:
            raise UserError(
                f"predict: the model starts from {', '.join(self.start.columns)}, which pairs do not have; give lists, "
                "or rank(query, documents, columns={…}); CrossEncoder(…, start=[]) is its text part alone"
            )
        return self.text_scores(pairs, budget, instructions=instruction)

    def text_scores(
        self,
        pairs: Iterable[tuple[str, str]],
        budget: int | None = None,
        precision: Precision = "auto",
        instructions: str | Sequence[str | None] | None = None,
    ) -> Array:
        """Raw scores of text pairs, ``[n]`` float32, by the text part alone; see :meth:`predict`.

        ``instructions`` are those of each pair, or one for all.
        """
        check_value("budget", budget, Count | None)
        queries, documents = _sides(pairs)
        self.warn_if_untrained()
        with ALONE:
            each = [instructions] * len(queries) if isinstance(instructions, str) else instructions or ()
            inputs, rows = self.pair_inputs(queries, documents, each), np.arange(len(queries))
            return score_candidates(self, inputs, rows, rows, budget=budget, precision=precision)

    @classmethod
    def from_pretrained(  # the mixin would take arguments of the class from config.json
        cls, pretrained_model_name_or_path: str | Path, **options: Any
    ) -> Self:
        """Load a model from a folder or the Hugging Face hub; options are those of the class."""
        return cls(str(pretrained_model_name_or_path), **options)

    def _save_pretrained(self, save_directory: Path) -> None:
        self.save(save_directory)
        self._hub_mixin_config = None  # an adapter has no config.json, and the mixin must not make one up

    def generate_model_card(self, *_: Any, **__: Any) -> ModelCard:
        """Return the card of the folder that the model was loaded from, or a new one without results."""
        if (self.folder / CONTRACT).is_file() and (self.folder / CARD).is_file():
            return ModelCard(with_mix((self.folder / CARD).read_text(encoding="utf-8"), None))
        return make_card(self.contract(), Path(self.name).name, base=self.folder)

    def scores_of(
        self,
        query: str,
        documents: Sequence[str],
        columns: Mapping[str, Sequence[float] | Array] | None = None,
        instruction: str | None = None,
    ) -> Array:
        """Scores of documents for a query, ``[n]`` float32; see :meth:`rank` and :meth:`text_scores`."""
        if columns and not self.start.columns:
            raise UserError(f"columns: {self.name} starts from none; leave them out")
        scores = self.text_scores([(query, document) for document in documents], instructions=instruction)
        return self.add_start(scores, columns or {}) if self.start.columns else scores

    def add_start(self, text: Array, columns: Mapping[str, Sequence[float] | Array]) -> Array:
        """Scores of one list's candidates, ``[n]``, from those of their texts and the columns, best candidate first."""
        with torch.inference_mode():
            z = self.start.of_values(columns, len(text)).to(self.start.weights.device)
            return self.joined(torch.from_numpy(text).to(z.device), z).cpu().numpy()


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
