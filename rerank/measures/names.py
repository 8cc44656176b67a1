"""Parse ir-measures names and objects into measures."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from rerank.errors import UserError, nearest
from rerank.measures.base import Measure
from rerank.measures.binary import AP, RR, P
from rerank.measures.graded import nDCG, nERR
from rerank.measures.notation import ALIASES, read_name
from rerank.settings.arguments import class_path, find_class

if TYPE_CHECKING:
    import ir_measures

MEASURES: dict[str, type[Measure]] = {kind.name: kind for kind in (P, AP, nDCG, nERR, RR)}


def parse(measure: str | Measure | ir_measures.Measure) -> Measure:
    """Parse an ir-measures name such as ``nDCG@10``, ``AP(rel=2)`` or ``nDCG(dcg='exp-log2')@10``.

    >>> parse("nDCG@10").cutoff
    10

    Args:
        measure: a name, an ir-measures object, or a measure, which is returned as it is.

    Raises:
        UserError: the measure cannot be trained on, or not with these parameters.
    """
    if isinstance(measure, Measure):
        return measure
    text = str(measure).strip()
    name, settings = read_name(text)
    name = ALIASES.get(name.lower(), name)
    if "." in name:  # a user's class
        own = find_class(name, Measure, f"measure {text!r}")
        try:
            return own(**settings)
        except TypeError as error:
            raise UserError(f"measure {text!r}: cannot be made ({error})") from error
    kind = MEASURES.get(name)
    if kind is None:
        known = nearest(name, MEASURES) or f"; known: {', '.join(MEASURES)}"
        raise UserError(f"measure {text!r}: cannot train on {name!r}{known}")
    allowed = [field.name for field in fields(kind)]
    for key, value in settings.items():
        if key not in allowed:
            known = nearest(key, allowed) or f"; {name} takes {', '.join(allowed)}"
            raise UserError(f"measure {text!r}: no parameter {key!r} in training{known}")
        right, wanted = type(value) is int and value > 0, "a whole number from 1"
        if key == "dcg":
            right, wanted = value in ("log2", "exp-log2"), "'log2' or 'exp-log2'"
        if not right:
            raise UserError(f"measure {text!r}: {key} must be {wanted}, not {value!r}")
    return kind(**settings)


def name_of(measure: Measure) -> str:
    """Return the name that :func:`parse` reads back; for a class of your own, its import path.

    >>> name_of(nDCG(cutoff=10))
    'nDCG@10'
    """
    kind = type(measure)
    return str(measure) if kind in MEASURES.values() else str(measure).replace(kind.name, class_path(kind), 1)
