"""Files of trees, checked before their libraries read them: those end the process on what is no tree."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rerank.errors import UserError, one_line
from rerank.storage.arrow import Array

HEAD = {"version", "num_class", "num_tree_per_iteration", "label_index", "max_feature_idx", "objective"} | {
    *("feature_names", "feature_infos", "tree_sizes")
}
SPLITS = (
    *("split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child"),
    *("internal_value", "internal_weight", "internal_count"),
)
LEAVES = ("leaf_value", "leaf_weight", "leaf_count")
ROOT = 2**31 - 1
"""The parent of the root, for XGBoost."""


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise UserError(f"{path}: damaged ({one_line(error)}); copy the model again, or train again") from error


def _require(holds: object, what: str) -> None:
    if not holds:
        raise ValueError(what)


def check_lightgbm(path: Path, features: int) -> str:
    """What LightGBM reads of its text, refused unless it is of trees with numerical splits of so many features.

    What stands behind the trees, the parameters of the training, is left out: no score depends on it.
    """
    with _whole(path):
        text = path.read_bytes().decode("ascii")
        head, _, trees = text.partition("\n\n")
        name, *lines = head.split("\n")
        end = len(head) + 2
        settings = _settings(lines)
        _require(name == "tree" and not settings.keys() - HEAD, "another head")
        for key, value in (("version", "v4"), ("num_class", "1"), ("num_tree_per_iteration", "1")):
            _require(settings[key] == value, f"{key} {settings[key]}")
        _require(settings.get("objective", "lambdarank") == "lambdarank", "an objective of another kind")
        _require(int(settings["max_feature_idx"]) + 1 == features, "another number of features")
        for key in ("feature_names", "feature_infos"):
            _require(len(settings[key].split(" ")) == features, key)
        for number, size in enumerate(map(int, settings["tree_sizes"].split())):
            _require(0 < size <= len(trees), "tree_sizes")
            _check_text(f"Tree={number}", trees[:size], features)
            trees, end = trees[size:], end + size
        _require(trees.startswith("end of trees\n"), "no end of trees")
    return f"{text[:end]}end of trees\n"


def _settings(lines: Sequence[str]) -> dict[str, str]:
    _require(all("=" in line for line in lines), "lines of another form")
    values = dict(line.split("=", 1) for line in lines)
    _require(len(values) == len(lines), "a key twice")
    return values


def _check_text(name: str, text: str, features: int) -> None:
    first, *lines = text.rstrip("\n").split("\n")
    _require(first == name and text.endswith("\n"), f"{name} expected")
    values = _settings(lines)
    leaves = int(values["num_leaves"])
    _require(leaves > 0 and int(values["num_cat"]) == 0 and int(values["is_linear"]) == 0, f"{name}: its kind")
    _require(np.isfinite(float(values["shrinkage"])), f"{name}: shrinkage")
    arrays = {key: np.array(values[key].split(), dtype=np.float64) for key in (*SPLITS, *LEAVES)}
    for key, array in arrays.items():
        length = leaves if key in LEAVES else leaves - 1
        _require(len(array) == length and np.isfinite(array).all(), f"{name}: {key}")
    _require((arrays["decision_type"] % 2 == 0).all(), f"{name}: decision_type")  # odd ones are of categories
    children = np.concatenate([_whole_numbers(arrays[key]) for key in ("left_child", "right_child")])
    _require(_each_once(children[children >= 0], 1, leaves - 1), f"{name}: children")
    _require(_each_once(~children[children < 0], 0, leaves), f"{name}: leaves")
    _require(_within(_whole_numbers(arrays["split_feature"]), 0, features), f"{name}: split_feature")


def check_xgboost(path: Path, features: int) -> None:
    """Refuse what is no JSON of XGBoost's trees, with numerical splits of so many features."""
    with _whole(path):
        learner = json.loads(path.read_bytes())["learner"]
        about, booster = learner["learner_model_param"], learner["gradient_booster"]
        _require(booster["name"] == "gbtree", "no gbtree")
        _require(int(about["num_feature"]) == features, "another number of features")
        _require(int(about["num_class"]) == 0 and int(about["num_target"]) == 1, "more than one score")
        model = booster["model"]
        trees = model["trees"]
        _require(model["tree_info"] == [0] * len(trees), "tree_info")
        _require(int(model["gbtree_model_param"]["num_trees"]) == len(trees), "num_trees")
        _require(int(model["gbtree_model_param"]["num_parallel_tree"]) == 1, "num_parallel_tree")
        _require(model["iteration_indptr"] == list(range(len(trees) + 1)), "iteration_indptr")
        for number, tree in enumerate(trees):
            _check_nodes(f"tree {number}", tree, features)


def _check_nodes(name: str, tree: dict[str, Any], features: int) -> None:
    nodes = int(tree["tree_param"]["num_nodes"])
    _require(nodes > 0 and int(tree["tree_param"]["size_leaf_vector"]) <= 1, f"{name}: tree_param")
    _require(int(tree["tree_param"]["num_feature"]) == features, f"{name}: num_feature")
    _require(not any(tree[key] for key in ("categories", "categories_nodes")), f"{name}: categories")
    for key in ("base_weights", "loss_changes", "sum_hessian", "default_left", "split_type"):
        _require(np.array(tree[key], dtype=np.float64).shape == (nodes,), f"{name}: {key}")
    _require(not any(tree["split_type"]), f"{name}: split_type")
    left, right, split = (_whole_numbers(tree[key]) for key in ("left_children", "right_children", "split_indices"))
    parents = _whole_numbers(tree["parents"])
    _require(left.shape == right.shape == split.shape == parents.shape == (nodes,), f"{name}: as many nodes everywhere")
    inner = np.flatnonzero(left != -1)
    _require((inner == np.flatnonzero(right != -1)).all(), f"{name}: leaves")
    children = np.concatenate([left[inner], right[inner]])
    _require(_each_once(children, 1, nodes) and len(children) == nodes - 1, f"{name}: children")
    _require(parents[0] in (-1, ROOT) and (parents[children] == np.tile(inner, 2)).all(), f"{name}: parents")
    _require(_within(split, 0, features), f"{name}: split_indices")
    conditions = np.array(tree["split_conditions"], dtype=np.float64)
    _require(conditions.shape == (nodes,) and np.isfinite(conditions).all(), f"{name}: split_conditions")


def _whole_numbers(values: Sequence[float] | Array) -> Array:
    array = np.asarray(values, dtype=np.float64)
    _require((np.abs(array) < 2**31).all(), "whole numbers expected")
    found: Array = array.astype(np.int64)
    _require((found == array).all(), "whole numbers expected")
    return found


def _within(values: Array, low: int, high: int) -> bool:
    return bool(((values >= low) & (values < high)).all())


def _each_once(children: Array, low: int, high: int) -> bool:
    """No node is the child of two, nor the root of any: every way from the root ends."""
    return _within(children, low, high) and len(np.unique(children)) == len(children)
