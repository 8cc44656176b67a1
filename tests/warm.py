"""Import the modules of training's first step, once, in the process that tests fork from."""

from __future__ import annotations

import accelerate  # noqa: F401
import pyarrow.dataset  # noqa: F401
import torch._dynamo
import torch.utils.tensorboard  # noqa: F401
import transformers.models.auto.tokenization_auto
import transformers.models.bert.modeling_bert  # noqa: F401

import rerank.commands.cli
import rerank.experiments.worker
import rerank.lists.build
import rerank.models.text.cross_encoder
import rerank.models.vectors.trees
import rerank.scoring.outputs
import rerank.training.configuration
import rerank.training.trainer

rerank.training.configuration.import_classes()
