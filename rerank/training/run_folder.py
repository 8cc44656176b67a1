"""The folder of a run: configuration, log, metrics, best model, measures."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from rerank.errors import UserError
from rerank.files import atomic_write
from rerank.models.card import write_card
from rerank.models.contract import add_to_contract, read_contract
from rerank.training.provenance import add_provenance

if TYPE_CHECKING:
    from rerank.lists.data import Splits
    from rerank.lists.view import Lists

log = logging.getLogger("rerank")


class RunFolder:
    """One run: configuration, provenance, log, metrics, measures, ``checkpoints/`` and ``best/``.

    Args:
        path: the folder.
        config: the resolved configuration as YAML.
    """

    def __init__(self, path: str | Path, config: str) -> None:
        self.path = Path(path)
        self.config = config

    def check(self) -> None:
        """Refuse a folder that holds something else, or a run with another configuration; writes nothing."""
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise UserError(f"output: {self.path} is a file; name a folder")
        path = self.path / "config.yaml"
        if not path.is_file():
            if any(file.name != "log.txt" and not file.name.startswith(".") for file in self.path.iterdir()):
                raise UserError(f"output: {self.path} exists and is not a run folder; name another one")
            return
        pairs = zip_longest(path.read_text().splitlines(), self.config.splitlines(), fillvalue="")
        for number, (old, new) in enumerate(pairs, start=1):
            if old != new and not new.startswith("output:"):
                raise UserError(
                    f"{path}:{number}: this run was started with '{old.strip()}', now it is '{new.strip()}'; "
                    "name another output, or remove the folder"
                )

    def finished(self) -> dict[str, Any] | None:
        """The measures of a run that is complete; None while it is not."""
        path = self.path / "measures.json"
        return json.loads(path.read_text()) if path.is_file() else None

    def open(self, splits: Splits) -> None:
        """Make the folder, note what the run is made of, tidy up what an interruption left half-done."""
        (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
        if not (self.path / "config.yaml").exists():
            with atomic_write(self.path / "config.yaml") as file:
                file.write(self.config)
        add_provenance(self.path, self.config, splits)
        old = self.path / ".best.old"
        if old.exists() and not self.best.exists():
            os.rename(old, self.best)
        for left in [*self.path.glob(".*.tmp"), *self.path.glob("checkpoints/.*.tmp"), *self.path.glob(".*.old")]:
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()

    @property
    def best(self) -> Path:
        """The best model by the monitor."""
        return self.path / "best"

    def keep_metrics(self, lines: int) -> None:
        """Forget what was logged after the checkpoint that the run goes on from."""
        path = self.path / "metrics.jsonl"
        kept = path.read_text().splitlines(keepends=True)[:lines] if path.is_file() else []
        if len(kept) < lines:
            raise UserError(f"{path}: has {len(kept)} lines, the checkpoint says {lines}; restore it or start anew")
        with atomic_write(path) as file:
            file.writelines(kept)

    def add_metrics(self, values: dict[str, Any]) -> None:
        """Append one line to ``metrics.jsonl``."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def add_to_contract(self, values: dict[str, Any]) -> None:
        """Add what was found out after the best model was saved to its input contract."""
        add_to_contract(self.best, values)

    def write_card(self, splits: Splits, measures: dict[str, Any]) -> None:
        """Write the best model's card."""
        named = {"train": splits.train, "validation": splits.validation, "test": splits.test}
        data = {name: _describe(lists) for name, lists in named.items() if lists is not None}
        write_card(self.best, read_contract(self.best), yaml.safe_load(self.config), measures, data)

    def write_measures(self, measures: dict[str, Any]) -> None:
        """Write ``measures.json``: the run is complete."""
        with atomic_write(self.path / "measures.json") as file:
            json.dump(measures, file, indent=2)
            file.write("\n")


def _describe(lists: Lists) -> str:
    """What some lists are, in a line; folders by the end of their path, since a card leaves the machine."""
    collection = re.sub(r"/\S*/(?=[^/]+/[^/]+$)", "", str(lists.store.manifest["collection"]["name"]))
    size = f"{len(lists)} queries, {lists.size} candidates"
    if lists.store.order is None:
        return f"{collection}: {size}"
    bm25 = lists.store.manifest["retriever"].get("bm25")
    source = f"BM25 (k1 {bm25['k1']:g}, b {bm25['b']:g})" if bm25 else "a given run"
    return f"{collection}: {size} from {source}"
