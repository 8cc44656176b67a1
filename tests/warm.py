"""Import the modules of training's first step, once, in the process that tests fork from."""

from __future__ import annotations

from importlib import import_module

for name in (
    *("accelerate", "pyarrow.dataset", "torch._dynamo", "torch.utils.tensorboard"),
    *("transformers.models.auto.tokenization_auto", "transformers.models.bert.modeling_bert"),
    *("rerank.commands.cli", "rerank.experiments.worker", "rerank.lists.build", "rerank.models.text.cross_encoder"),
    *("rerank.models.vectors.trees", "rerank.scoring.outputs", "rerank.training.trainer"),
):
    import_module(name)
configuration = import_module("rerank.training.configuration")
for key in configuration.CLASSES:
    configuration.classes_of(key)
