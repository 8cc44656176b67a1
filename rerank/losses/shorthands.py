"""Points of the grid under the names that people search for: one table, no code of their own.

A shorthand computes by default what its paper has, and its docstring says which paper; what is ours has an argument:
``alpha="spread"`` (``tau``, ``strength``) takes the steepness from the spread of a list's scores.

It is called like a loss and gives ``DirectMetric(measure, Relaxation(**settings))``, with the measure that its
paper trains on: NDCG has gain 2^y - 1 there, so write ``SmoothINDCG("nDCG@10")`` for the linear gain of trec_eval.

>>> from rerank.losses import SmoothINDCG
>>> loss = SmoothINDCG("nDCG@10", alpha=3)
>>> loss, loss.relaxation
(SmoothINDCG('nDCG@10', alpha=3), SmoothI(alpha=3))
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from rerank.losses.base import Reduction
from rerank.losses.direct import DirectMetric
from rerank.relaxations.base import Relaxation
from rerank.relaxations.fastsoftsort import FastSoftSort
from rerank.relaxations.neuralsort import NeuralSort
from rerank.relaxations.sigmoids import Approx, TwinSigmoid
from rerank.relaxations.smoothi import SmoothI
from rerank.relaxations.softsort import SoftSort
from rerank.relaxations.transport import OptimalTransport
from rerank.settings.ranges import NotNegative

_NDCG = "nDCG(dcg='exp-log2')"

TABLE: dict[str, tuple[type[Relaxation], str, str]] = {
    "SmoothIP": (SmoothI, "P@10", "P@k by {} (Thonet et al. 2021, Eq 10)."),
    "SmoothIAP": (SmoothI, "AP", "AP by {} (Thonet et al. 2021, Eq 11)."),
    "SmoothINDCG": (SmoothI, _NDCG, "NDCG by {} (Thonet et al. 2021, Eq 12)."),
    "NeuralNDCG": (
        NeuralSort,
        _NDCG,
        "NDCG by balanced {} (Pobrotyn and Białobrzęski 2021, Eq 5; ``transposed=True``: Eq 6).",
    ),
    "SoftSortNDCG": (SoftSort, _NDCG, "NDCG by {}, as SmoothI's authors compare it; ours: tau='spread'."),
    "FastSoftSortNDCG": (FastSoftSort, _NDCG, "NDCG by {}, as SmoothI's authors compare it; ours: strength='spread'."),
    "OptimalTransportNDCG": (OptimalTransport, _NDCG, "NDCG by {}, as SmoothI's authors compare it."),
    "ApproxP": (Approx, "P@10", "P@k by {} (Qin, Liu and Li 2010; ours: alpha='spread', half_rank)."),
    "ApproxAP": (Approx, "AP", "AP by {} (Qin, Liu and Li 2010; ours: alpha='spread', half_rank)."),
    "ApproxMRR": (Approx, "RR", "Reciprocal rank by {}: no paper's, from Qin's AP."),
    "ApproxNDCG": (Approx, _NDCG, "NDCG by {} (Qin et al. 2010; Bruch et al. 2019; ours: alpha='spread', half_rank)."),
    "TwinSigmoidP": (TwinSigmoid, "P@10", "P@k by {} (Yu 2020, Eq 13; ours: alpha='spread')."),
    "TwinSigmoidAP": (TwinSigmoid, "AP", "AP by {} (Yu 2020, Eq 14; ours: alpha='spread')."),
    "TwinSigmoidNDCG": (TwinSigmoid, _NDCG, "NDCG by {} (Yu 2020, Eq 15; ours: alpha='spread')."),
    "TwinSigmoidNERR": (TwinSigmoid, "nERR@10", "nERR@k by {} (Yu 2020, Eq 16; ours: alpha='spread')."),
}
"""The relaxation, the measure by default, and what `rerank losses` says, of every shorthand."""


def _shorthand(name: str, relaxation: type[Relaxation], default: str, about: str) -> type[DirectMetric]:
    """A class, for configurations to find by its name, that makes a plain :class:`DirectMetric`."""

    def make(
        cls: type,
        measure: str = default,
        reduction: Reduction = "mean",
        balance: NotNegative | None = None,
        **settings: Any,
    ) -> DirectMetric:
        made = DirectMetric(measure, relaxation(**settings), None, reduction, balance)
        words = [] if measure == default else [repr(measure)]
        given = {"reduction": reduction, "balance": balance}
        given = {key: value for key, value in given.items() if value != shown.parameters[key].default} | settings
        made.shorthand = f"{name}({', '.join([*words, *(f'{key}={value!r}' for key, value in given.items())])})"
        return made

    own = list(inspect.signature(make, eval_str=True).parameters.values())[:-1]
    settings = list(inspect.signature(relaxation, eval_str=True).parameters.values())
    shown = inspect.Signature([*own, *(setting.replace(kind=setting.KEYWORD_ONLY) for setting in settings)])
    make.__signature__ = shown  # type: ignore[attr-defined] # what parsers and help read
    said = _arguments(DirectMetric) | _arguments(relaxation)
    lines = [f"    {key}: {said[key]}" for key in shown.parameters if key in said]
    example = [f">>> {name}()  # DirectMetric({default!r}, {relaxation.__name__}())", f"{name}()"]
    make.__doc__ = "\n".join([about.format(f":class:`{relaxation.__name__}`"), "", *example, "", "Args:", *lines])
    return type(name, (DirectMetric,), {"__new__": make, "__doc__": make.__doc__, "__module__": __name__})


def _arguments(kind: type) -> dict[str, str]:
    section = (inspect.getdoc(kind) or "").partition("Args:\n")[2]
    return dict(re.findall(r"^    (\w+): (.+(?:\n     .+)*)", section, re.MULTILINE))


globals().update({name: _shorthand(name, *row) for name, row in TABLE.items()})
