"""Sources of training, validation and test lists, and hashes of their content.

Lists come from folders, held-out shares, and folds of one folder. By the hashes, a run knows whether it was trained on
the same ones.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, takewhile
from pathlib import Path

import numpy as np

from rerank.collections.names import read_queries
from rerank.errors import UserError
from rerank.lists.columns import SCALED
from rerank.lists.concat import concat
from rerank.lists.neighbours import Grouping, query_groups
from rerank.lists.sampling import seed_of
from rerank.lists.view import Lists
from rerank.progress import log
from rerank.settings.arguments import Count, Described, Rate, Seed
from rerank.storage.arrow import Array, taken
from rerank.storage.files import digest, say_once

BLOCK = 65_536
"""Documents that are hashed at a time."""


@dataclass(frozen=True)
class Splits:
    """Training, validation and test lists; no query is in two of them."""

    train: Lists
    validation: Lists | None
    test: Lists | None


class Data(Described, ABC):
    """Source of an experiment's lists."""

    @abstractmethod
    def splits(self, seed: int) -> Splits:
        """Return the lists, checked."""


class ListsData(Data):
    """Lists folders made by ``rerank retrieve``.

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2], "doc_id": [1, 2, 1, 2], "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> from tempfile import mkdtemp
    >>> folder = str(lists.save(mkdtemp() + "/lists").store.folder)
    >>> splits = ListsData(folder, validation_fraction=0.5, leakage_groups="none").splits(seed=1)
    >>> len(splits.train), len(splits.validation), splits.test
    (1, 1, None)
    """

    def __init__(
        self,
        train: str | list[str],
        validation: str | None = None,
        test: str | None = None,
        validation_fraction: Rate = 0.1,
        depth: Count = 150,
        unjudged: bool = False,
        leakage_groups: Grouping = "auto",
    ) -> None:
        """Name the folders.

        Args:
            train: lists folder to train on, or several, which are concatenated.
            validation: lists folder to validate on; None holds out a share of the training queries.
            test: lists folder to measure the best model on, once, at the end.
            validation_fraction: share of the judged training queries to hold out if there is no validation folder.
            depth: candidates reranked per validation and test query, if the lists have an order.
            unjudged: train on queries without judgments, too, from the columns that the loss names as targets.
                Validation lists are held out from the judged queries; if there are none, nothing is validated, and
                the last epoch's model is kept.
            leakage_groups: ``auto`` keeps queries with the same text or a shared relevant document on one side when a
                share is held out (see :func:`rerank.lists.neighbours.query_groups`); ``none`` only those of one text.
        """
        self.train, self.validation, self.test = train, validation, test
        self.validation_fraction, self.leakage_groups = validation_fraction, leakage_groups
        self.depth, self.unjudged = depth, unjudged

    def splits(self, seed: int) -> Splits:
        """Open the folders; training lists see added relevant documents, the others never do."""
        folders = [self.train] if isinstance(self.train, str) else self.train
        way_out = ", or set data.unjudged to train on columns alone"
        found = [Lists.open(name) if self.unjudged else judged_lists(name, way_out) for name in folders]
        train = found[0] if len(found) == 1 else concat(found)
        validation, test = (None if name is None else judged_lists(name) for name in (self.validation, self.test))
        check_disjoint(train, {"validation": validation, "test": test})
        if validation is None and self.validation_fraction > 0:
            train, validation = hold_out(train, self.validation_fraction, seed, self.leakage_groups)
            if validation is None:
                log.warning("%s: no query has a judgment, so no epoch is chosen by validation", self.train)
        validation, test = (None if lists is None else lists.to_rerank(self.depth) for lists in (validation, test))
        return Splits(train.with_added(), validation, test)


class FoldsData(Data):
    """One fold of a lists folder as test lists, the others to train on.

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2, 3, 3], "doc_id": [1, 2, 1, 2, 1, 2], "grade": [1, 0, 0, 1, 1, 0]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> from tempfile import mkdtemp
    >>> folder = str(lists.save(mkdtemp() + "/lists").store.folder)
    >>> splits = FoldsData(folder, fold=1, folds=3, leakage_groups="none").splits(seed=1)
    >>> sorted([*splits.train.query_ids, *splits.validation.query_ids, *splits.test.query_ids])
    ['1', '2', '3']
    """

    def __init__(
        self,
        lists: str,
        fold: int,
        folds: int = 5,
        seed: Seed = 0,
        depth: Count = 150,
        assignment: str | None = None,
        leakage_groups: Grouping = "auto",
    ) -> None:
        """Name the folder and the fold.

        Args:
            lists: lists folder.
            fold: the fold to test on, from 1; the one before (cyclically) validates.
            folds: number of folds.
            seed: decides which query is in which fold.
            depth: candidates reranked per validation and test query, if the lists have an order.
            assignment: the fold of each query: a JSON list of lists of query ids, or an ir_datasets id with folds below
                it, such as ``disks45/nocr/trec-robust-2004``; None draws them with the seed.
            leakage_groups: ``auto`` draws queries with the same text or a shared relevant document into one fold (see
                :func:`rerank.lists.neighbours.query_groups`); ``none`` only those of one text.
        """
        if folds < 3 or not 1 <= fold <= folds:
            raise UserError(f"data.fold: {fold} of {folds}: folds must be at least 3, fold one of them")
        self.lists, self.fold, self.folds, self.seed = lists, fold, folds, seed
        self.depth, self.assignment, self.leakage_groups = depth, assignment, leakage_groups

    def splits(self, seed: int) -> Splits:
        lists = judged_lists(self.lists)
        if len(lists) < self.folds:
            raise UserError(f"data.folds: {self.lists} has {len(lists)} judged queries, too few for {self.folds} folds")
        if self.assignment is None:
            folds = drawn_folds(lists, self.folds, self.seed, self.leakage_groups)
            if len(np.unique(folds)) < self.folds:
                raise UserError(f"data.folds: {self.lists} has too few groups of queries for {self.folds} folds")
        else:
            folds = self._assigned(self.assignment, lists.query_ids)
        test, validation = folds == self.fold - 1, folds == (self.fold - 2) % self.folds
        found = Splits(
            train=lists.select(~test & ~validation).with_added(),
            validation=lists.select(validation).to_rerank(self.depth),
            test=lists.select(test).to_rerank(self.depth),
        )
        check_disjoint(found.train, {"validation": found.validation, "test": found.test})  # given folds may part a text
        return found

    def _assigned(self, source: str, query_ids: list[str]) -> Array:
        """Return the given fold of every query, ``[Q]``; further queries in it are ignored."""
        assigned = read_folds(source)
        if len(assigned) != self.folds:
            raise UserError(f"data.folds: is {self.folds}, but {source} has {len(assigned)} folds")
        numbers = {query: number for number, queries in enumerate(assigned) for query in queries}
        if missing := [query for query in query_ids if query not in numbers]:
            raise UserError(f"data.assignment: {source} has no query {missing[0]!r}, which {self.lists} has")
        folds = np.array([numbers[query] for query in query_ids])
        if empty := set(range(self.folds)) - set(folds.tolist()):
            raise UserError(f"data.assignment: {self.lists} has no judged query of fold {min(empty) + 1} of {source}")
        return folds


def judged_lists(folder: str, way_out: str = "") -> Lists:
    """Open the judged lists of a folder."""
    lists = Lists.open(folder)
    if lists.qrels is None or not lists.judged.any():
        raise UserError(f"{folder}: has no judgments; make it again with `rerank retrieve --qrels`{way_out}")
    if without := int((~lists.judged).sum()):  # an experiment opens a folder for every trial
        say_once(f"{folder}: {without} of {len(lists)} queries have no judgments and are left out")
    return lists.select(lists.judged)


def hold_out(train: Lists, share: float, seed: int, grouping: Grouping = "auto") -> tuple[Lists, Lists | None]:
    """Split off a share of the judged training queries for validation.

    Groups stay whole (see :func:`rerank.lists.neighbours.query_groups`), so the share may be larger by less than a
    group, and unjudged queries of its groups are left out of training.
    """
    judged = np.flatnonzero(train.judged)
    if not len(judged):
        return train, None
    wanted = max(1, round(len(judged) * share))
    groups = query_groups(train, grouping, wanted)
    drawn = groups[judged[np.random.default_rng(seed).permutation(len(judged))]]
    _, first, sizes = np.unique(drawn, return_index=True, return_counts=True)
    new = np.zeros(len(drawn), np.int64)
    new[first] = sizes  # a group counts where it is drawn first
    back = np.isin(groups, drawn[: np.searchsorted(np.cumsum(new), wanted) + 1])
    if back.all():
        raise UserError("data.validation_fraction: leaves no query to train on; name validation lists, or set 0")
    kept = train.select(back & train.judged)
    log.info("%d of the training queries held out for validation", len(kept))
    return train.select(~back), kept


def check_disjoint(train: Lists, others: Mapping[str, Lists | None]) -> None:
    """Refuse validation and test lists that share a query with the lists before them.

    The others come by name, validation before test, which is looked up among both; so a share of the training queries
    is held out after this.
    """
    before = {"training": train}
    for name, lists in others.items():
        if lists is None:
            continue
        where = " or ".join(before)
        known = {pair for one in before.values() for pair in zip(one.query_ids, one.query_keys, strict=True)}
        own = list(zip(lists.query_ids, lists.query_keys, strict=True))
        if shared := [i for i, pair in enumerate(own) if pair in known]:
            id = lists.query_ids[shared[0]]
            text = lists.query_texts[shared[0]] if lists.store.has_text else ""
            example = f"{text if len(text) <= 60 else text[:59] + '…'!r} (id {id})" if text else repr(id)
            raise UserError(
                f"{name}: {len(shared)} of {len(lists)} queries are in the {where} lists, too, such as {example}; "
                "leave them out of one, as measures on them would not mean anything"
            )
        ids, keys = {id for id, _ in known}, {key for _, key in known}
        if same := [id for id in lists.query_ids if id in ids]:
            log.warning(
                "%d queries of the %s lists have the id of a %s query, such as %s, but another text",
                *(len(same), name, where, same[0]),
            )
        if alike := [key for key in lists.query_keys if key in keys]:
            log.warning(
                "%d queries of the %s lists have the text of a %s query under another id, such as %r",
                *(len(alike), name, where, min(alike)),
            )
        before[name] = lists


def drawn_folds(lists: Lists, folds: int, seed: int, grouping: Grouping = "auto") -> Array:
    """Draw the fold of every query, ``[Q]``; groups stay whole, so sizes differ by at most the largest group."""
    ids = lists.query_ids
    groups = query_groups(lists, grouping, len(ids) // folds)
    sizes = np.bincount(groups)
    taken, fold = np.zeros(folds, np.int64), dict[int, int]()
    order = np.argsort([seed_of(seed, folds, query) for query in ids], kind="stable")  # whatever the order of the ids
    for group in groups[order].tolist():
        if group not in fold:
            fold[group] = int(taken.argmin())
            taken[fold[group]] += sizes[group]
    return np.array([fold[group] for group in groups.tolist()])


def read_folds(source: str) -> list[set[str]]:
    """Read the query ids of each fold from an ``assignment`` of `FoldsData`."""
    path = Path(source).expanduser()
    if path.is_file():
        try:
            folds = [set(map(str, fold)) for fold in json.loads(path.read_bytes())]
        except (ValueError, RecursionError, TypeError) as error:
            raise UserError(f"{path}: not a JSON list of lists of query ids ({error})") from error
    else:
        from rerank.collections.irdatasets import IrDataset

        known = set(IrDataset.known())
        names = takewhile(known.__contains__, (f"{source}/fold{i}" for i in count(1)))
        folds = [{query.id for query in read_queries(name)} for name in names]
    if not folds:
        raise UserError(f"data.assignment: {source} is neither a JSON file nor an ir_datasets id with folds")
    times = Counter(chain.from_iterable(folds))
    if twice := sorted(query for query, number in times.items() if number > 1):
        raise UserError(f"{source}: query {twice[0]!r} is in several folds; it can be in one only")
    return folds


def content_hashes(lists: Lists, columns: Sequence[str] = ()) -> dict[str, str]:
    """Hash the content of some lists, wherever they are stored.

    Documents are numbered by their first appearance, so that other lists of the same folder do not count.

    Returns:
        Hashes of ``texts`` (ids and texts of queries and documents), ``candidates`` (documents in their order),
        ``labels`` (all judgments) and of each column.
    """
    import pandas as pd

    numbers, rows = pd.factorize(lists.documents)
    texts = hashlib.sha256()
    for table, chosen in ((lists.store.queries, lists.queries), (lists.store.documents, rows)):
        for column in table.columns:
            for start in range(0, len(chosen), BLOCK):
                some = taken(column, chosen[start : start + BLOCK]).to_pylist()
                texts.update(digest(*(text or "" for text in some)).encode())
    # Judgments of documents that were not retrieved count in measures.
    qrels = {} if lists.judged_by_grades else lists.qrels or {}
    judged = [repr(sorted(qrels.get(query, {}).items())) for query in lists.query_ids]
    found = {
        "texts": texts.hexdigest(),
        "candidates": digest(lists.offsets.astype("<i8").tobytes(), numbers.tobytes()),
        "labels": digest(lists.grades.astype("<i8").tobytes(), *judged),
    }
    return found | {f"column {name}": digest(_column(lists, name).tobytes()) for name in dict.fromkeys(columns)}


def _column(lists: Lists, name: str) -> Array:
    column, is_scaled, depth = name.partition(SCALED)
    if is_scaled:
        return lists.store.scaled(column, int(depth), lists.row_numbers)
    return lists.matrix([name])
