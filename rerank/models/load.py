"""Loading a trained model of any kind."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from rerank.errors import UserError
from rerank.models.base import Model
from rerank.models.contract import CONTRACT, read_contract


def load_model(folder: str | Path) -> Model:
    """Load a trained model of any kind; a folder without ``rerank.json`` or a hub name is a cross-encoder.

    Args:
        folder: what training left, such as ``runs/x/best``.

    Raises:
        UserError: no such model, one that is not whole, or one of an unknown class.
    """
    path = read_contract(Path(folder)).get("class", "rerank.models.text.cross_encoder.CrossEncoder")
    try:
        kind = find_class(path)
    except UserError as error:
        raise UserError(f"{folder}/{CONTRACT}: {error}") from error
    if not issubclass(kind, Model):
        raise UserError(f"{folder}/{CONTRACT}: class: {path} is not a model")
    return kind.load(Path(folder))


def find_class(path: str) -> type[Any]:
    """The class of an import path.

    Raises:
        UserError: there is none.
    """
    module, _, name = str(path).rpartition(".")
    try:
        kind = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"class: {path} cannot be imported ({error})") from error
    if not isinstance(kind, type):
        raise UserError(f"class: {path} is not a class")
    return kind
