"""Feature-based learning-to-rank data: MSLR-WEB, LETOR, Istella, Yahoo, and other svmlight files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rerank.errors import NotFoundError, UserError
from rerank.features.parse import store_features
from rerank.features.svmlight import Layout
from rerank.lists.build import warn
from rerank.lists.data import Data, Splits, check_disjoint, keep_back
from rerank.lists.layout import VERSION
from rerank.lists.view import Lists, concat
from rerank.settings.ranges import Count, Rate
from rerank.storage.files import COMPRESSED, cache_folder, digest, file_state
from rerank.storage.locks import exclusive_lock

FORMAT = "2"
"""Goes into the key of every parsed file; another number parses all files again."""

NAMES = {
    "train": ("train", "trainingset"),
    "validation": ("vali", "valid", "validation", "validationset"),
    "test": ("test", "testset"),
}


class LetorData(Data):
    r"""Feature files: a folder of folds, a folder with one split, or files by name.

    Files are parsed once, into lists folders under the cache (``$RERANK_HOME`` or ``~/.cache/rerank``), and found again
    by the hash of their content. Missing features are 0, and so are values beyond float32 (Istella's 1.797e308). All
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
        validation_share: Rate = 0.25,
        join_validation: bool = False,
        min_documents: Count = 1,
    ) -> None:
        """Name a folder, or files; ``.gz`` and ``.xz`` are read as well.

        Args:
            path: folder that holds ``train.txt``, ``vali.txt``, ``test.txt``, itself or in ``Fold1`` to ``Fold5``; or
                the beginning of their names, such as ``DIR/set1`` for Yahoo's ``set1.train.txt``.
            fold: the fold, where the folder has folds.
            train: training file, in the place of ``path``.
            validation: validation file; None keeps a share of the training queries back.
            test: file to measure the best model on, once, at the end.
            validation_share: share of the training queries kept back where there is no validation file (a quarter of
                Istella's gives the 60/20/20 of the NeuralNDCG paper); 0 for no validation.
            join_validation: train on the validation lists as well, and validate on none: for the last training, when
                everything is chosen (an experiment's ``refit``).
            min_documents: leave out queries with fewer documents, for training, validation and test alike.
        """
        if (path is None) == (train is None):
            raise UserError("name either a folder (path) or a training file (train)")
        if path is None and fold is not None:
            raise UserError("fold: files by name have no folds; expected path")
        if path is not None and (validation is not None or test is not None):
            raise UserError("validation and test: the folder (path) has its own; expected them with train")
        self.path, self.fold = path, fold
        self.train, self.validation, self.test = train, validation, test
        self.validation_share, self.join_validation = validation_share, join_validation
        self.min_documents = min_documents

    def splits(self, seed: int) -> Splits:
        files = self.files()
        train_file = files["train"]
        assert train_file is not None
        train = self._lists(train_file)
        layout = Layout(**train.store.manifest["features"], source=str(train_file))
        others = files["validation"], files["test"]
        validation, test = (None if file is None else self._lists(file, layout) for file in others)
        check_disjoint(train, {"validation": validation, "test": test})
        if self.join_validation:
            return Splits(train if validation is None else concat([train, validation]), None, test)
        if validation is None and self.validation_share > 0:
            train, validation = keep_back(train, self.validation_share, seed)
        return Splits(train, validation, test)

    def _lists(self, file: Path, layout: Layout | None = None) -> Lists:
        lists = letor_lists(file, layout)
        return lists.select(lists.lengths >= self.min_documents)

    def files(self) -> dict[str, Path | None]:
        if self.path is None:
            named = {"train": self.train, "validation": self.validation, "test": self.test}
            return {name: None if file is None else Path(file).expanduser() for name, file in named.items()}
        folder = Path(self.path).expanduser()
        if self.fold is not None and not folder.is_dir():
            raise NotFoundError(f"data.path: no such folder {folder}")
        folds = sorted(found.name for found in folder.glob("Fold*") if found.is_dir())
        if self.fold is not None:
            folder = folder / f"Fold{self.fold}"
            if not folder.is_dir():
                raise UserError(f"data.fold: no folder {folder}; {_there_are(folds)}")
        elif folds:
            raise UserError(f"data.fold: {folder} has folds; {_there_are(folds)}")
        beginning = f"{folder}/" if folder.is_dir() else f"{folder}."
        found = {name: _find(beginning, stems) for name, stems in NAMES.items()}
        if found["train"] is None:
            where = "" if folder.is_dir() else f"no folder {folder}, and "
            raise UserError(f"data.path: {where}no {beginning}train.txt (or {', '.join(COMPRESSED)})")
        return found


def _there_are(folds: list[str]) -> str:
    numbers = [fold.removeprefix("Fold") for fold in folds]
    return f"expected one of {', '.join(numbers)}" if numbers else "there are no folds, leave data.fold out"


def _find(beginning: str, stems: tuple[str, ...]) -> Path | None:
    paths = [Path(f"{beginning}{stem}.txt{ending}") for stem in stems for ending in ("", *COMPRESSED)]
    return next((path for path in paths if path.is_file()), None)


def open_lists(
    path: str | Path, layout: Mapping[str, int] | None = None, source: str = "the model's training file"
) -> Lists:
    """Open a lists folder, or a feature file, which has to agree with the ``first`` and ``width`` of a layout."""
    path = Path(path).expanduser()
    if path.is_file():
        return letor_lists(path, Layout(**layout, source=source) if layout else None)
    return Lists.open(path)


def letor_lists(path: Path, layout: Layout | None = None) -> Lists:
    """Return the lists of a feature file, which is parsed into the cache once."""
    if not path.is_file():
        raise NotFoundError(f"{path}: no such file")
    key = digest(FORMAT, str(VERSION), file_state([path]), f"{layout.first} {layout.width}" if layout else "")
    folder = cache_folder() / "letor" / key
    with exclusive_lock(folder, wait=True):  # experiments and processes that start together parse once
        lists = Lists.open(folder) if folder.is_dir() else store_features(path, folder, key, layout)
    warn(str(path), lists.store.manifest["counts"])
    return lists
