"""The notation of ir-measures: ``nDCG@10``, ``AP(rel=2)``."""

from __future__ import annotations

import ast
from typing import Any

from rerank.errors import UserError

LONGEST = 300
"""Most characters of a measure with its parameters; numbers of that length are still floats."""

ALIASES = {"map": "AP", "mrr": "RR", "ndcg": "nDCG", "nerr": "nERR", "precision": "P", "recall": "R", "ap": "AP"}
ALIASES |= {"rr": "RR", "p": "P", "r": "R", "success": "Success", "hit": "Success", "hits": "Success"}
ALIASES |= {"hit_rate": "Success", "hr": "Success"}
"""Other names of measures, in lower case."""


def read_name(text: str) -> tuple[str, dict[str, Any]]:
    """Split ``name(key=value, ...)@cutoff`` into name and parameters."""
    if len(text) > LONGEST:
        raise UserError(f"measure {text[:40]!r} ...: no measure has {len(text):,} characters")
    problem = UserError(f"measure {text!r} is not of the form nDCG@10 or AP(rel=2)@100")
    try:
        node = ast.parse(text, mode="eval").body
        settings: dict[str, Any] = {}
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            settings["cutoff"] = ast.literal_eval(node.right)
            node = node.left
        if isinstance(node, ast.Call):
            if node.args:
                raise problem
            settings = {str(word.arg): ast.literal_eval(word.value) for word in node.keywords} | settings
            node = node.func
    except (SyntaxError, ValueError, TypeError):  # TypeError: a list as a dictionary's key
        raise problem from None
    if isinstance(node, ast.Attribute):  # a user's measure: my_module.MyMeasure@10
        return ast.unparse(node), settings
    if not isinstance(node, ast.Name):
        raise problem
    return node.id, settings
