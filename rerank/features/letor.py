"""Feature-based learning-to-rank data: MSLR-WEB, LETOR, Istella, Yahoo, and other svmlight files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rerank.errors import NotFoundError, UserError
from rerank.features.svmlight import FEATURES, read_features
from rerank.lists.concat import concat
from rerank.lists.data import Data, Splits, check_disjoint, hold_out
from rerank.lists.store import VERSION
from rerank.lists.view import Lists
from rerank.settings.ranges import Count, Rate
from rerank.storage.files import COMPRESSED, cache_folder, digest, exclusive_lock, file_state

FORMAT = "4"
"""Part of the key of every parsed file; change it to parse all files again."""

NAMES = {
    "train": ("train", "trainingset"),
    "validation": ("vali", "valid", "validation", "validationset"),
    "test": ("test", "testset"),
}


class LetorData(Data):
    r"""Feature files: a folder of folds, a folder with one split, or files by name.

    Files are parsed once, into lists folders under the cache (``$RERANK_HOME`` or ``~/.cache/rerank``), with the hash
    of their content as the key. Missing features are 0, and so are values beyond float32 (Istella's 1.797e308). All
    candidates of a query are in its list, in the order of the file; validation and test lists carry their labels as
    judgments.

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
