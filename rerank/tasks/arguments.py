"""Types of arguments that may be objects in Python, and are text on the command line.

The command line reads its options from signatures. At run time, these names therefore mean text or lists of text; type
checkers and readers see the objects, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeAlias

    from rerank.collections.base import Collection
    from rerank.lists.view import Lists
    from rerank.models.base import Model
    from rerank.storage.arrow import Array

    Source: TypeAlias = str | Collection
    Records: TypeAlias = str | Path | Any
    Columns: TypeAlias = Sequence[str] | Mapping[str, str]
    Queries: TypeAlias = str | Path | Mapping[str, str]
    Judgments: TypeAlias = str | Path | Mapping[str, Mapping[str, int]] | Lists | Any
    Ranking: TypeAlias = str | Path | Array | Mapping[str, Any] | Any
    Runs: TypeAlias = Mapping[str, Ranking] | Sequence[str | Path]
    Trained: TypeAlias = Judgments | Sequence[Judgments] | None
    ListsLike: TypeAlias = str | Path | Lists
    ModelLike: TypeAlias = str | Path | Model
    Names: TypeAlias = str | Sequence[str]
    Folder: TypeAlias = str | Path
else:
    Source = Records = Queries = Judgments = ListsLike = ModelLike = Folder = str
    Runs = Names = Columns = list[str]
    Trained = list[str] | None
