"""Cross-validation over the queries of one lists folder."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain, count, takewhile
from pathlib import Path

import numpy as np

from rerank.collections.irdatasets import IrDataset
from rerank.collections.names import read_queries
from rerank.errors import UserError
from rerank.lists.data import Data, Splits, check_disjoint, judged_lists
from rerank.lists.neighbours import Grouping, query_groups
from rerank.lists.sampling import seed_of
from rerank.lists.view import Lists
from rerank.settings.arguments import Count, Seed
from rerank.storage.arrow import Array


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


class FoldsData(Data):
    """One fold of a lists folder as test lists, the others to train on.

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2], "doc_id": [1, 2, 1, 2], "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> from tempfile import mkdtemp
    >>> folder = str(lists.save(mkdtemp() + "/lists").store.folder)
    >>> splits = FoldsData(folder, fold=1, folds=2, validation=False).splits(seed=1)
    >>> sorted([*splits.train.query_ids, *splits.test.query_ids])
    ['1', '2']
    """

    def __init__(
        self,
        lists: str,
        fold: int,
        folds: int = 5,
        seed: Seed = 0,
        validation: bool = True,
        depth: Count = 150,
        assignment: str | None = None,
        leakage_groups: Grouping = "auto",
    ) -> None:
        """Name the folder and the fold.

        Args:
            lists: lists folder.
            fold: the fold to test on, from 1.
            folds: number of folds.
            seed: decides which query is in which fold.
            validation: whether the fold before (cyclically) validates; otherwise it is trained on as well.
            depth: candidates reranked per validation and test query, where something ordered them.
            assignment: the fold of each query: a JSON list of lists of query ids, or an ir_datasets id with folds below
                it, such as ``disks45/nocr/trec-robust-2004``; None draws them with the seed.
            leakage_groups: ``auto`` draws queries with the same text or a shared relevant document into one fold (see
                :func:`rerank.lists.neighbours.query_groups`); ``none`` only those of one text.
        """
        if folds < 2 + validation or not 1 <= fold <= folds:
            raise UserError(f"data.fold: {fold} of {folds}: folds must be at least {2 + validation}, fold one of them")
        self.lists, self.fold, self.folds, self.seed = lists, fold, folds, seed
        self.validation, self.depth = validation, depth
        self.assignment, self.leakage_groups = assignment, leakage_groups

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
        test = folds == self.fold - 1
        validation = (folds == (self.fold - 2) % self.folds) & self.validation
        found = Splits(
            train=lists.select(~test & ~validation).with_added(),
            validation=lists.select(validation).to_rerank(self.depth) if self.validation else None,
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


def read_folds(source: str) -> list[set[str]]:
    """Read the query ids of each fold from an ``assignment`` of `FoldsData`."""
    path = Path(source).expanduser()
    if path.is_file():
        try:
            folds = [set(map(str, fold)) for fold in json.loads(path.read_bytes())]
        except (ValueError, RecursionError, TypeError) as error:
            raise UserError(f"{path}: not a JSON list of lists of query ids ({error})") from error
    else:
        known = set(IrDataset.known())
        names = takewhile(known.__contains__, (f"{source}/fold{i}" for i in count(1)))
        folds = [{query.id for query in read_queries(name)} for name in names]
    if not folds:
        raise UserError(f"data.assignment: {source} is neither a JSON file nor an ir_datasets id with folds")
    times = Counter(chain.from_iterable(folds))
    if twice := sorted(query for query, number in times.items() if number > 1):
        raise UserError(f"{source}: query {twice[0]!r} is in several folds; it can be in one only")
    return folds
