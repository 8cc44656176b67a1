"""Losses are found by name: in Python, in configs, in the listing."""

from __future__ import annotations

import inspect
import subprocess
import sys

import jsonargparse
import pytest

import rerank.losses
from rerank.errors import UserError
from rerank.losses import DirectMetric, Loss, PairwiseHinge, load_all
from rerank.losses.listing import listing
from rerank.relaxations import SmoothI


def test_torch_is_not_imported_before_a_loss_is() -> None:
    code = (
        "import sys, rerank.losses, rerank.losses.listing; assert 'torch' not in sys.modules; "
        "rerank.losses.MSE; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_name_is_a_loss_that_constructs_without_arguments() -> None:
    for name, kind in load_all().items():
        assert name in dir(rerank.losses) and issubclass(kind, Loss) and kind.__name__ == name
        if kind is not DirectMetric:
            kind()
    with pytest.raises(AttributeError, match="NoSuchLoss"):
        rerank.losses.NoSuchLoss  # noqa: B018


def test_configs_use_short_names() -> None:
    load_all()
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--loss", type=Loss)
    hinge = parser.instantiate_classes(parser.parse_args(["--loss=PairwiseHinge", "--loss.margin=2.5"])).loss
    assert isinstance(hinge, PairwiseHinge) and hinge.margin == 2.5
    given = ["--loss=DirectMetric", "--loss.measure=nDCG@10", "--loss.relaxation=SmoothI", "--loss.relaxation.alpha=3"]
    direct = parser.instantiate_classes(parser.parse_args(given)).loss
    assert str(direct.measure) == "nDCG@10"
    assert isinstance(direct.relaxation, SmoothI) and direct.relaxation.alpha == 3


def test_the_listing_names_every_loss_with_parameters_and_paper() -> None:
    text = listing()
    entries = {entry.split("(")[0]: entry for entry in text.split("\n\n")}
    for name in load_all():
        assert name in entries
    assert "ListAP(bins=25, rel=1)" in entries["ListAP"] and "ICCV" in entries["ListAP"]
    assert "alpha=1, delta=0.1" in entries["SmoothINDCG"] and "Thonet" in entries["SmoothINDCG"]
    assert max(map(len, text.splitlines())) <= 110


def test_surrogates_say_what_they_are() -> None:
    for kind in load_all().values():
        if not issubclass(kind, DirectMetric):
            text = inspect.getdoc(kind) or ""
            assert ".. math::" in text and "Source: " in text and "[B, N]" in text and "without relevant" in text, kind
            for parameter in inspect.signature(kind).parameters:
                assert f"\n    {parameter}: " in text, (kind, parameter)


def test_one_loss_in_full() -> None:
    assert listing("WassRank").startswith("WassRank(gain_base=4, ")
    assert "Yu et al." in listing("WassRank")
    assert "alpha" in listing("SmoothI")
    with pytest.raises(UserError, match=r"no loss 'WasRank' \(did you mean 'WassRank'\?\)"):
        listing("WasRank")
