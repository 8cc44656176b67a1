"""Feature-based learning-to-rank data: MSLR-WEB, LETOR, Istella, Yahoo, and other svmlight files.

A line is ``LABEL qid:QUERY FEATURE:VALUE ... # docid = DOCUMENT``; the comment may be absent or say something else, and
features that are absent are 0. scikit-learn parses labels and features; queries, which need not be numbers, and
document ids, which it takes for comments, are read here.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from rerank.errors import NotFoundError, UserError, one_line
from rerank.lists.columns import Column
from rerank.lists.concat import concat
from rerank.lists.data import Data, Splits, check_disjoint, hold_out
from rerank.lists.store import VERSION, memory_store
from rerank.lists.view import Lists
from rerank.progress import log, tqdm
from rerank.settings.arguments import Count, Rate
from rerank.storage.arrow import FLOAT32, Array
from rerank.storage.files import COMPRESSED, cache_folder, digest, exclusive_lock, file_state, open_binary

FORMAT = "4"
"""Part of the key of every parsed file; change it to parse all files again."""

NAMES = {
    "train": ("train", "trainingset"),
    "validation": ("vali", "valid", "validation", "validationset"),
    "test": ("test", "testset"),
}

FEATURES = "features"
"""The column that a file's features become."""

MAX_LABEL = 30
"""The largest label that is read: gains are ``2^label - 1``."""

WIDTH = 10_001
"""Feature numbers are below this, as features are stored densely."""

EXAMPLE = "'2 qid:10 1:0.5 2:0 # docid = D1'"
LINE = re.compile(rb"^[^\S\n]*[^\s#]+[^\S\n]+qid:([^\s#:]+)(?![^\s#])[^#\n]*(?:#(?:.*?docid\s*=\s*(\S+))?.*)?$", re.M)

Block: TypeAlias = tuple[Array, list[tuple[str, str]], Any, int]
"""Consecutive rows of a file: labels, ``[n]`` int16; query and document of each, an empty document if the comment has
none; features, a sparse float32 matrix; number of values beyond float32 (Istella's 1.797e308), which count as 0."""


class LetorData(Data):
    r"""Feature files: a folder of folds, a folder with one split, or files by name.

    Files are parsed once, into lists folders under the cache (``$RERANK_HOME`` or ``~/.cache/rerank``), and again when
    their path, size or modification time changes. Missing features are 0, and so are values beyond float32 (Istella's
    1.797e308). All candidates of a query are in its list, in the order of the file; validation and test lists carry
    their labels as judgments.

    >>> from tempfile import mkdtemp
    >>> folder = Path(mkdtemp())
    >>> for name in ("train", "vali", "test"):
    ...     _ = (folder / f"{name}.txt").write_text(f"1 qid:{name} 1:0.5 2:0.1\n0 qid:{name} 1:0.2 2:0.3\n")
    >>> splits = LetorData(str(folder)).splits(seed=42)
    >>> len(splits.train), splits.train.matrix(["features"]).shape
    (1, (2, 2))
    """

    def __init__(
        self,
        path: str | None = None,
        fold: int | None = None,
        train: str | None = None,
        validation: str | None = None,
        test: str | None = None,
        validation_fraction: Rate = 0.25,
        join_validation: bool = False,
        min_documents: Count = 1,
    ) -> None:
        """Name a folder, or files; ``.gz``, ``.zst`` and ``.bz2`` are read, too.

        Args:
            path: folder that holds ``train.txt``, ``vali.txt`` and ``test.txt``, itself or in ``Fold1`` to ``Fold5``;
                or the beginning of their names, such as ``DIR/set1`` for Yahoo's ``set1.train.txt``.
            fold: number of the fold, if the folder has folds.
            train: training file, in place of ``path``.
            validation: validation file; without one, a share of the training queries is held out.
            test: file to measure the best model on, once, at the end.
            validation_fraction: share of the training queries to hold out if there is no validation file (a quarter of
                Istella's gives the 60/20/20 of the NeuralNDCG paper); 0 for no validation.
            join_validation: train on the validation lists as well, and validate on none: for the final training run,
                when everything is chosen.
            min_documents: leave out queries with fewer documents, for training, validation and test alike.
        """
        files = (train, validation, test)
        if (path is None) == (train is None) or any(path is not None and file is not None for file in files):
            raise UserError("data: name either a folder (path) or files (train, validation, test)")
        if path is None and fold is not None:
            raise UserError("data.fold: files have no folds; name their folder (data.path)")
        self.path, self.fold = path, fold
        self.train, self.validation, self.test = train, validation, test
        self.validation_fraction, self.join_validation = validation_fraction, join_validation
        self.min_documents = min_documents

    def splits(self, seed: int) -> Splits:
        files = self.files()
        train_file = files["train"]
        assert train_file is not None
        train = self._lists(train_file)
        others: dict[str, Lists | None] = {"validation": None, "test": None}
        for name in others:
            if (file := files[name]) is not None:
                others[name] = lists = self._lists(file, _numbers(train))
                if (found := _numbers(lists)) != (expected := _numbers(train)):
                    has, expects = ("features {} to {}".format(*numbers) for numbers in (found, expected))
                    raise UserError(f"{file}: has {has}, but {train_file} has {expects}")
        validation, test = others["validation"], others["test"]
        check_disjoint(train, others)
        if self.join_validation:
            return Splits(train if validation is None else concat([train, validation]), None, test)
        if validation is None and self.validation_fraction > 0:
            train, validation = hold_out(train, self.validation_fraction, seed)
        return Splits(train, validation, test)

    def _lists(self, file: Path, numbers: tuple[int, int] | None = None) -> Lists:
        lists = letor_lists(file, numbers)
        return lists.select(lists.lengths >= self.min_documents)

    def files(self) -> dict[str, Path | None]:
        if self.path is None:
            named = {"train": self.train, "validation": self.validation, "test": self.test}
            return {name: None if file is None else Path(file).expanduser() for name, file in named.items()}
        folder = Path(self.path).expanduser()
        folds = sorted(one.name for one in folder.glob("Fold*"))
        folder = folder / f"Fold{self.fold}" if self.fold is not None else folder
        beginning = f"{folder}/" if folder.is_dir() else f"{folder}."
        found = {name: _find(beginning, stems) for name, stems in NAMES.items()}
        if found["train"] is None:
            hint = f"; choose data.fold among {', '.join(folds)}" if folds else ""
            raise NotFoundError(f"data.path: no {beginning}train.txt (or {', '.join(COMPRESSED)}){hint}")
        return found


def _numbers(lists: Lists) -> tuple[int, int]:
    """Return the first and the last feature of a file's lists."""
    names = lists.store.entry(FEATURES).names
    return int(names[0]), int(names[-1])


def _find(beginning: str, stems: tuple[str, ...]) -> Path | None:
    paths = [Path(f"{beginning}{stem}.txt{ending}") for stem in stems for ending in ("", *COMPRESSED)]
    return next((path for path in paths if path.is_file()), None)


def open_lists(path: str | Path, columns: Sequence[str] = ()) -> Lists:
    """Open a lists folder, or a feature file, in which the features that a model reads (its columns) may be absent."""
    path = Path(path).expanduser()
    if not path.is_file():
        return Lists.open(path)
    named = [name.partition("/")[2] for name in columns if name.startswith(f"{FEATURES}/")]
    numbers = [int(number) for number in named if number.isdigit()]
    return letor_lists(path, (min(numbers), max(numbers)) if numbers else None)


def letor_lists(path: Path, numbers: tuple[int, int] | None = None) -> Lists:
    """Return the lists of a feature file, which is parsed into the cache once.

    ``numbers`` are the first and the last feature to store even if the file does not mention them.
    """
    if not path.is_file():
        raise NotFoundError(f"{path}: no such file")
    key = digest(FORMAT, str(VERSION), file_state(path), str(numbers))
    folder = cache_folder() / "letor" / key
    with exclusive_lock(folder, wait=True):  # experiments and processes that start together parse once
        return Lists.open(folder) if folder.is_dir() else read_features(path, numbers).save(folder)


def read_features(path: Path, numbers: tuple[int, int] | None = None) -> Lists:
    """Read a file as lists in memory with the column ``features``, whose numbers are named as in the file.

    Lists keep the order of the file. Queries that are in several places of the file are joined. Document ids are taken
    from the comments if every row has one; otherwise documents are named by their rows.

    Args:
        path: the file.
        numbers: first and last feature to keep even if the file does not mention them.

    Raises:
        UserError: a line that is not one of feature values, or a document that a query has twice.
    """
    import pandas as pd
    from scipy.sparse import vstack

    parsed = [block for block in _parse_file(path) if len(block[0])]
    if not parsed:
        raise UserError(f"{path}: no documents; expected lines like {EXAMPLE}")
    labels, names = np.concatenate([block[0] for block in parsed]), [name for block in parsed for name in block[1]]
    features, too_large = vstack([block[2] for block in parsed], format="csr"), sum(block[3] for block in parsed)
    first, last = numbers or (1, 0)
    first = 0 if (features.indices == 0).any() else first
    width = max(last + 1, int(features.indices.max(initial=-1)) + 1)
    if width <= first:
        raise UserError(f"{path}: no features; expected lines like {EXAMPLE}")
    ids = [document for _, document in names]
    if not all(ids):
        ids = [str(row) for row in range(1, len(ids) + 1)]
    rows = pd.DataFrame({"query_id": [query for query, _ in names], "doc_id": ids})
    if (again := rows.duplicated().to_numpy()).any():
        query, document = rows.iloc[int(again.argmax())]
        raise UserError(f"{path}: query {query!r} has document {document!r} twice; keep one row")
    codes, queries = rows["query_id"].factorize()
    documents, distinct = rows["doc_id"].factorize()
    places = np.bincount(codes[np.diff(codes, prepend=-1) != 0])
    if scattered := int((places > 1).sum()):
        log.warning("%s: %d queries are in several places of the file (joined)", path, scattered)
    if too_large:
        log.warning("%s: %d values are beyond float32 (taken for missing, so 0)", path, too_large)
    order = np.argsort(codes, kind="stable")
    values = features[order, first:width].toarray()
    column = Column(values, tuple(map(str, range(first, width))), {"file": path.name})
    tables = {"queries": pa.table({"query_id": queries}), "documents": pa.table({"doc_id": distinct})}
    lengths, documents = np.bincount(codes), documents[order]
    return Lists.of(
        memory_store(str(path), tables, lengths, documents, labels[order], {FEATURES: column}, by_grades=True)
    )


def _parse_file(path: Path) -> Iterator[Block]:
    """Parse a file block by block."""
    size = None if path.suffix in COMPRESSED else path.stat().st_size
    line = 1
    with tqdm(total=size, desc=f"reading {path.name}", unit="B", unit_scale=True, disable=None) as bar:
        for text in read_blocks(path):
            try:
                yield parse_block(text)
            except ValueError:
                for number, one in enumerate(text.split(b"\n"), line):  # find the line
                    try:
                        parse_block(one)
                    except ValueError as error:
                        raise UserError(f"{path}:{number}: {one_line(error)}") from error
                raise
            line += text.count(b"\n")
            bar.update(len(text))


def read_blocks(path: Path, size: int = 1 << 22) -> Iterator[bytes]:
    """Yield blocks of about this many bytes that end with lines."""
    with open_binary(path) as file:
        while block := file.read(size) + file.readline():
            yield block


def parse_block(text: bytes) -> Block:
    """Parse whole lines; a ValueError says what is wrong."""
    from sklearn.datasets import load_svmlight_file

    names = [(query.decode(errors="replace"), id.decode(errors="replace")) for query, id in LINE.findall(text)]
    try:
        features, labels = load_svmlight_file(io.BytesIO(text), n_features=WIDTH, dtype=np.float64, zero_based=True)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{one_line(error)}; expected features in ascending order, as in {EXAMPLE}") from error
    if len(names) != len(labels):
        raise ValueError(f"expected the query after the label, and spaces between, as in {EXAMPLE}")
    if len(wrong := labels[(labels < 0) | (labels > MAX_LABEL) | (labels != np.round(labels))]):
        raise ValueError(f"label {wrong[0]:g}; expected a whole number from 0 to {MAX_LABEL}")
    if np.isnan(features.data).any():
        raise ValueError("a feature is not a number; leave missing ones out")
    large = np.abs(features.data) > FLOAT32
    features.data = np.where(large, 0, features.data).astype(np.float32)
    return labels.astype(np.int16), names, features, int(large.sum())
