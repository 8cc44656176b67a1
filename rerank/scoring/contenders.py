"""What reorders the top of lists, whatever it is: a trained or published ranker, a column, a server."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np

from rerank.errors import UserError, nearest, one_line
from rerank.kernels.memory import watched_peak
from rerank.lists.view import Lists
from rerank.models.base import Model
from rerank.models.contract import FILES, MIX, read_contract
from rerank.models.load import load_model
from rerank.models.mixed import Mixed, unmixed
from rerank.models.scorer import Scorer
from rerank.models.text.from_texts import TextScorer
from rerank.models.weights import find_model, initial_hashes
from rerank.progress import tqdm
from rerank.scoring.in_sample import shared_queries
from rerank.scoring.outputs import run_name
from rerank.scoring.shared import placed, score_shared
from rerank.storage.arrow import Array, taken

Answer = Callable[[], Any]
"""The work that one request is."""

PATIENCE = 600.0
"""Seconds that a server's answer may take."""


class Contender(ABC):
    """Something that reorders the top of lists.

    Attributes:
        parameters: of its networks; None where there are none, or nobody says.
        peak: gives the most memory in bytes that was needed since it was opened; None where nothing tells.
        trained_on: how many of the queries it was trained on; None where it does not say.
    """

    kind: str
    parameters: int | None = None
    size: int | None = None
    trained_on: int | None = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.peak: Callable[[], int | None] = lambda: None

    def open(self, lists: Lists) -> None:  # noqa: B027  # a column has nothing to open
        """Load what it needs, and refuse lists that lack what it reads."""

    def close(self) -> None:  # noqa: B027
        """Give its memory back."""

    def answer(self, one: Lists) -> Answer | None:
        """The work of answering a request for one query with its candidates; None where the answer is known before."""
        return None

    @abstractmethod
    def scores(self, lists: Lists, depths: Sequence[int]) -> Iterator[Array]:
        """Scores of the candidates of ``lists.top(depth)``, ``[T]`` float32, for each depth, ascending."""


class OfColumn(Contender):
    """A column of the lists; what its system did not return comes last."""

    kind = "column"

    def scores(self, lists: Lists, depths: Sequence[int]) -> Iterator[Array]:
        for depth in depths:
            yield np.nan_to_num(lists.top(depth).column(self.name), nan=-np.inf, posinf=np.inf)


class OfServer(Contender):
    """A server that answers as Cohere's and Jina's do, a query at a time; its deepest scores serve all depths."""

    kind = "server"

    def open(self, lists: Lists) -> None:
        self.asked(*_texts(lists.select([int(lists.lengths.argmax())]).top(1), self.name))

    def answer(self, one: Lists) -> Answer:
        return partial(self.asked, *_texts(one, self.name))

    def asked(self, query: str, documents: list[str]) -> Array:
        """Scores ``[n]`` float32 of documents for a query.

        It gets ``POST {"query", "documents", "top_n"}`` and answers ``{"results": [{"index", "relevance_score"}]}``.
        """
        url = self.name
        body = {"query": query, "documents": documents, "top_n": len(documents)}
        request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urlopen(request, timeout=PATIENCE) as answer:
                said = answer.read()
        except HTTPError as error:
            why = one_line(error.read(1000).decode(errors="replace"))[:200]
            status = f"{error.code} {error.reason} ({why})"
            raise UserError(f"{url}: answers {len(documents)} documents by {status}") from error
        except (OSError, ValueError) as error:
            raise UserError(f"{url}: cannot be reached ({one_line(error)}); is the server running?") from error
        try:
            content = json.loads(said)
            found = {int(entry["index"]): float(entry["relevance_score"]) for entry in content["results"]}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            right = '{"results": [{"index": 0, "relevance_score": 0.5}]}'
            raise UserError(f"{url}: expected {right}, not {said[:100]!r}") from error
        scores = np.array([found.get(i, np.nan) for i in range(len(documents))], dtype=np.float32)
        if lacking := int((~np.isfinite(scores)).sum()):
            raise UserError(f"{url}: has no number for {lacking} of {len(documents)} documents; give lower --depths")
        return scores

    def scores(self, lists: Lists, depths: Sequence[int]) -> Iterator[Array]:
        deepest = lists.top(depths[-1])
        parts = [np.zeros(0, dtype=np.float32)]
        for number in tqdm(range(len(deepest)), desc=self.name, unit=" queries", disable=None, leave=False):
            if deepest.lengths[number]:
                parts.append(self.asked(*_texts(deepest.select([number]), self.name)))
        found = np.concatenate(parts)
        yield from (found[_within(deepest, depth)] for depth in depths)


class OfModel(Contender):
    """A trained or published ranker, with its mix.

    A text model's scores of the deepest lists are cut for the others, a mix is made at each depth; what looks at whole
    lists scores each.
    """

    def __init__(self, name: str, model: str | Path | Model) -> None:
        super().__init__(name)
        self.model, self._loaded = model, model if isinstance(model, Model) else None

    def open(self, lists: Lists) -> None:
        self.peak = watched_peak()
        if not isinstance(self.model, Model):
            contract = read_contract(Path(self.model))
            mix = contract.get(MIX, {})
            if needed := [name for name in mix.get("columns", ()) if name not in mix.get("cosines", {})]:
                Mixed(None, dict.fromkeys(needed, 1.0)).check(lists)  # before the model is loaded, which takes seconds
            self._loaded = load_model(self.model)
            place = Path(self.model) if contract else find_model(str(self.model))
            names = [name for name in contract.get(FILES) or initial_hashes(place) if "/" not in name]  # no exports
            self.size = sum((place / name).stat().st_size for name in names)
            shared = shared_queries(lists, self.model)
            self.trained_on = None if shared is None else len(shared)
        assert self._loaded is not None
        self._loaded.check(self._loaded.completed(lists.select([0])))
        placed(self._loaded, "auto")
        inner = unmixed(self._loaded)
        self.kind = "fusion" if inner is None else type(inner).__name__
        self.kind += ", mixed" if isinstance(self._loaded, Mixed) and inner is not None else ""
        if isinstance(inner, Scorer):
            self.parameters = sum(parameter.numel() for parameter in inner.parameters())
        if isinstance(inner, TextScorer) and not lists.store.has_text:
            raise UserError(f"{self.name}: reads texts, which {lists.store} has not; name a model of its features")

    def close(self) -> None:
        if not isinstance(self.model, Model):
            self._loaded = None

    def answer(self, one: Lists) -> Answer:
        ranker: Any = self._loaded
        inner = unmixed(ranker)
        reads_texts = isinstance(inner, TextScorer) or (inner is None and ranker.cosines)
        if not reads_texts:
            return lambda: ranker.predict(one)
        query, documents = _texts(one, self.name)
        needed = ranker.needs() if isinstance(ranker, Mixed) else ranker.start.columns
        columns = {name: one.column(name) for name in needed}
        return lambda: ranker.rank(query, documents, columns=columns)

    def scores(self, lists: Lists, depths: Sequence[int]) -> Iterator[Array]:
        ranker = self._loaded
        assert ranker is not None
        lists, inner = ranker.completed(lists.top(depths[-1])), unmixed(ranker)
        if not isinstance(inner, TextScorer):
            for depth in depths:
                yield score_shared(ranker, lists.top(depth), precision="auto", budget=None, progress=self.name)
            return
        found = score_shared(inner, lists, precision="auto", budget=None, progress=self.name)
        for depth in depths:
            cut = found[_within(lists, depth)]
            yield ranker.mixed(lists.top(depth), cut) if isinstance(ranker, Mixed) else cut


def contenders(models: Sequence[str | Path | Model], lists: Lists) -> list[Contender]:
    """What words and models mean, without the column that orders the lists: it is what the others are compared with."""
    columns = [number for numbers in lists.store.numbers_by_column().values() for number in numbers]
    taken_names: set[str] = {str(lists.store.order)}
    found: list[Contender] = []
    for model in models:
        word = model if isinstance(model, Model) else str(model)
        if isinstance(word, str) and word.startswith(("http://", "https://")):
            one: Contender = OfServer(word)
        elif isinstance(word, str) and word in columns and not Path(word).is_dir():
            if word == lists.store.order:
                continue
            one = OfColumn(word)
        elif isinstance(word, str) and "/" not in word and not Path(word).is_dir():
            raise UserError(
                f"models: {word} is neither a folder nor a column{nearest(word, columns)}; "
                f"columns of the lists: {', '.join(columns)}"
            )
        else:
            name = type(word).__name__ if isinstance(word, Model) else run_name(word)
            one = OfModel(str(word) if name in taken_names or name in columns else name, word)
        if one.name in taken_names:
            raise UserError(f"models: {one.name} is named twice; name each once")
        taken_names.add(one.name)
        found.append(one)
    return found


def _within(lists: Lists, depth: int) -> Array:
    """Which candidates are in the top of their lists, ``[T]`` bool."""
    return np.arange(lists.size) - np.repeat(lists.offsets[:-1], lists.lengths) < depth


def _texts(one: Lists, name: str) -> tuple[str, list[str]]:
    if not one.store.has_text:
        raise UserError(f"{name}: reads texts, which {one.store} has not; name a model of its features")
    return one.query_texts[0], taken(one.store.documents.column("text"), one.documents).to_pylist()
