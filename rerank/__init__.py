"""Train BERT-style rerankers on whole ranked lists, with differentiable ranking metrics as losses."""

from __future__ import annotations

import ast
import linecache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rerank.lazy import lazy

if TYPE_CHECKING:
    from rerank import losses, measures, relaxations
    from rerank.collections.in_memory import Texts
    from rerank.errors import NotFoundError, UserError
    from rerank.evaluation.selection import Selection
    from rerank.evaluation.table import Table
    from rerank.experiments.config import ExperimentConfig
    from rerank.experiments.runner import experiment
    from rerank.features.letor import LetorData
    from rerank.features.normalise import QueryZScore, ShiftedLog, SignedLog1p, Standardise
    from rerank.lists.concat import concat
    from rerank.lists.data import ListsData
    from rerank.lists.folds import FoldsData
    from rerank.lists.sampling import Full, Pairs, PositivesNegatives, Random
    from rerank.lists.view import Lists
    from rerank.losses import (
        BCE,
        MSE,
        RMSE,
        ApproxAP,
        ApproxMRR,
        ApproxNDCG,
        ApproxP,
        DirectMetric,
        FastSoftSortNDCG,
        KLDivergence,
        LambdaLoss,
        ListAP,
        ListMLE,
        ListNet,
        MarginMSE,
        MinMax,
        NeuralNDCG,
        OptimalTransportNDCG,
        PairwiseHinge,
        PairwiseSoftmax,
        Ramp,
        RankNet,
        ReciprocalRank,
        SmoothIAP,
        SmoothINDCG,
        SmoothIP,
        SoftmaxCE,
        SoftSortNDCG,
        Term,
        Terms,
        TwinSigmoidAP,
        TwinSigmoidNDCG,
        TwinSigmoidNERR,
        TwinSigmoidP,
        WassRank,
    )
    from rerank.models.interpolated import Interpolated
    from rerank.models.load import load, load_model
    from rerank.models.text.adapter import LoRA
    from rerank.models.text.cross_encoder import CrossEncoder
    from rerank.models.text.decoder import Decoder
    from rerank.models.vectors.attention import SelfAttention
    from rerank.models.vectors.mlp import MLP, ListMLP
    from rerank.models.vectors.trees import LightGBM, XGBoost
    from rerank.relaxations import Approx, FastSoftSort, NeuralSort, OptimalTransport, SmoothI, SoftSort, TwinSigmoid
    from rerank.retrieval.runs import as_run, read_run, write_run
    from rerank.selection.auto import auto
    from rerank.tasks.calibrate import calibrate
    from rerank.tasks.evaluate import evaluate
    from rerank.tasks.rerank_lists import rerank_lists
    from rerank.tasks.retrieve import Search, retrieve
    from rerank.tasks.train import train
    from rerank.training.config import Optimization, TrainConfig
    from rerank.training.fit import Training, fit

__version__ = "0.2.0"


def _read_homes() -> dict[str, str]:
    """Map each name to its module, as the imports above say, which only type checkers and editors execute."""
    source = "".join(linecache.getlines(__file__, globals()))  # of a zipped package, too
    (unused,) = (node for node in ast.parse(source).body if isinstance(node, ast.If))
    imports = (node for node in unused.body if isinstance(node, ast.ImportFrom) and node.module not in (None, __name__))
    return {alias.name: str(node.module).removeprefix(f"{__name__}.") for node in imports for alias in node.names}


_HOMES = _read_homes()
_ROOMS = ("losses", "measures", "relaxations")

__all__ = [*_HOMES]
_get, _names = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    """Import a name at its first use, so that ``import rerank`` does not import torch."""
    return import_module(f"{__name__}.{name}") if name in _ROOMS else _get(name)


def __dir__() -> list[str]:
    return sorted({*_names(), *_ROOMS})
