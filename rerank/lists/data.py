"""Sources of training, validation and test lists."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rerank.errors import UserError
from rerank.lists.concat import concat
from rerank.lists.neighbours import Grouping, query_groups
from rerank.lists.view import Lists
from rerank.progress import log
from rerank.settings.arguments import Count, Described, Rate
from rerank.storage.files import say_once


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
            depth: candidates reranked per validation and test query, where something ordered them.
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
        where, ids = " or ".join(before), {id for one in before.values() for id in one.query_ids}
        if shared := [i for i, id in enumerate(lists.query_ids) if id in ids]:
            id = lists.query_ids[shared[0]]
            text = lists.query_texts[shared[0]] if lists.store.has_text else ""
            example = f"{text if len(text) <= 60 else text[:59] + '…'!r} (id {id})" if text else repr(id)
            raise UserError(
                f"{name}: {len(shared)} of {len(lists)} queries are in the {where} lists, too, such as {example}; "
                "leave them out of one, as measures on them would not mean anything"
            )
        keys = {key for one in before.values() for key in one.query_keys}
        if alike := [key for key in lists.query_keys if key in keys]:
            log.warning(
                "%d queries of the %s lists have the text of a %s query under another id, such as %r",
                *(len(alike), name, where, min(alike)),
            )
        before[name] = lists
