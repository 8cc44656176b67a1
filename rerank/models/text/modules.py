"""Rerankers in sentence-transformers' modular layout: a Transformer, and modules that make its states a score."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rerank.errors import UserError
from rerank.storage.files import read_json, write_json

LAYOUT, SETTINGS, TRANSFORMER = "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"
IDENTITY = "torch.nn.modules.linear.Identity"
SCORES = "scores"
"""Output of the last module."""

LOGIT_SCORE = "LogitScore"
"""Module of a decoder: the difference of two tokens' logits."""

TASKS = {
    "feature-extraction": ("last_hidden_state", "token_embeddings"),
    "sequence-classification": ("logits", SCORES),
    "text-generation": ("logits", "causal_logits"),
}
"""A Transformer's task, the output of its network that is read, and the name under which modules find it."""


def modules_of(folder: Path) -> list[dict[str, Any]]:
    """Return the modules that make a reranker's score, as ``modules.json`` lists them; empty without any.

    Raises:
        UserError: a reranker that needs code of its own.
    """
    if not (folder / LAYOUT).is_file():
        return []
    listed = json.loads((folder / LAYOUT).read_bytes())
    for entry in listed:
        entry["config"] = read_json(folder / entry["path"] / "config.json", optional=True)
    (transformer, *behind), settings = listed, read_json(folder / SETTINGS, optional=True)
    known = settings.get("model_type") == "CrossEncoder" or bool(behind and logit_tokens(behind))
    if not behind or not (known or behind[-1]["config"].get("module_output_name") == SCORES):
        return []  # one label of the architecture's own, or an embedding model
    for entry in (transformer, *behind):
        activation = entry["config"].get("activation_function", IDENTITY)
        if not (entry["type"].startswith("sentence_transformers.") and activation.startswith("torch.")):
            raise UserError(f"{folder}: {LAYOUT}: {entry['type']}, {activation}: needs remote code, which is never run")
    if transformer["path"]:
        raise UserError(f"{folder}: {LAYOUT}: expected the Transformer in the folder itself, not {transformer['path']}")
    return behind


def embeds(folder: Path) -> bool:
    """Tell sentence-transformers' embedding models, which pool, from rerankers."""
    listed = json.loads((folder / LAYOUT).read_bytes()) if (folder / LAYOUT).is_file() else []
    return any(entry["type"].endswith("Pooling") for entry in listed) and not modules_of(folder)


def load_modules(folder: Path, entries: Sequence[dict[str, Any]], dropout: float | None) -> list[nn.Module]:
    """Load the modules behind the Transformer; ``dropout`` replaces their rates."""
    from sentence_transformers.sentence_transformer.modules import Dropout
    from sentence_transformers.util import import_from_string

    modules: list[Any] = []
    for entry in entries:
        kind: Any = import_from_string(entry["type"])
        modules.append(kind.load(str(folder), subfolder=entry["path"], local_files_only=True))
        if dropout is not None and isinstance(modules[-1], Dropout):
            modules[-1].dropout = modules[-1].dropout_layer.p = dropout
    if getattr(modules[-1], "module_output_name", None) != SCORES:
        raise UserError(f"{folder}: {LAYOUT}: the last module does not make {SCORES}")
    to_one_label(modules[-1].linear, folder)
    modules[-1].out_features = 1
    return modules


def cls_modules(width: int, dropout: float, std: float) -> list[nn.Module]:
    """Draw CEDR's head: a linear layer on dropout of the CLS vector."""
    from sentence_transformers.base.modules import Dense
    from sentence_transformers.sentence_transformer.modules import Dropout, Pooling

    dense = Dense(width, 1, activation_function=nn.Identity(), module_output_name=SCORES)
    nn.init.normal_(dense.linear.weight, std=std)
    nn.init.zeros_(dense.linear.bias)
    return [Pooling(width, "cls"), Dropout(dropout), dense]


def to_one_label(layer: nn.Linear, folder: Path) -> None:
    """Let a layer of two labels give their difference, the log-odds of the second one.

    Raises:
        UserError: more labels, of which none is known to be relevance.
    """
    if layer.out_features > 2:
        raise UserError(
            f"{folder}: a classifier of {layer.out_features} labels, none of which is known to be relevance; "
            "name a reranker with one or two"
        )
    if layer.out_features == 2:
        with torch.no_grad():
            layer.weight = nn.Parameter(layer.weight[1:] - layer.weight[:1])
            layer.bias = None if layer.bias is None else nn.Parameter(layer.bias[1:] - layer.bias[:1])
        layer.out_features = 1


class ModularNetwork(nn.Module):
    """An encoder, and the modules that make its states a score, in float32."""

    base_model_prefix = "encoder"

    def __init__(self, encoder: Any, modules: Sequence[nn.Module], prompts: dict[str, Any]) -> None:
        super().__init__()
        self.encoder, self.config, self.prompts = encoder, encoder.config, prompts
        self.scorer = nn.Sequential(*modules)

    @property
    def reads(self) -> str | None:
        """The pooling of the first module: ``cls``, ``mean``, or None for any other."""
        mode = getattr(self.scorer[0], "pooling_mode", None)
        return mode if mode in ("cls", "mean") else None

    def forward(self, chunks: Tensor | None = None, **batch: Tensor) -> Any:
        """Compute scores as ``.logits`` ``[n, 1]``, like a Hugging Face classifier.

        With the number of ``chunks`` of each pair, ``[n]``, the score is of the mean of their CLS vectors.
        """
        from transformers.modeling_outputs import SequenceClassifierOutput

        states = self.encoder(**batch).last_hidden_state
        with torch.autocast(states.device.type, enabled=False):
            if chunks is not None:
                cls = states[:, 0].float()
                states = torch.segment_reduce(cls, "mean", lengths=chunks, axis=0, unsafe=True)[:, None]
            features = {"token_embeddings": states.to(next(self.scorer.parameters()).dtype)}
            if "attention_mask" in batch and chunks is None:
                features["attention_mask"] = batch["attention_mask"]
            return SequenceClassifierOutput(logits=self.scorer(features)[SCORES])

    def save_pretrained(self, folder: Path, **_: Any) -> None:
        self.encoder.save_pretrained(folder)
        write_layout(folder, "feature-extraction", list(self.scorer), self.prompts)


def write_layout(folder: Path, task: str, modules: Sequence[Any], prompts: dict[str, Any], chat: bool = False) -> None:
    """Write the modules behind a Transformer, and sentence-transformers' settings.

    Args:
        folder: the folder that holds the Transformer.
        task: the Transformer's task.
        modules: the modules.
        prompts: ``prompts`` and ``default_prompt_name``.
        chat: whether pairs are read through the tokenizer's chat template.
    """
    output, name = TASKS[task]
    entries = [("", "sentence_transformers.base.modules.transformer.Transformer")]
    for number, module in enumerate(modules, start=1):
        kind = type(module)
        entries.append((f"{number}_{kind.__name__}", f"{kind.__module__}.{kind.__qualname__}"))
        (folder / entries[-1][0]).mkdir(parents=True, exist_ok=True)
        module.save(str(folder / entries[-1][0]))
    named = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(entries)]
    (folder / LAYOUT).write_text(json.dumps(named, indent=2), encoding="utf-8")
    modalities = {"text": {"method": "forward", "method_output_name": output}}
    if chat:
        modalities["message"] = modalities["text"]
    transformer = {"transformer_task": task, "modality_config": modalities, "module_output_name": name}
    write_json(folder / TRANSFORMER, transformer)
    settings: dict[str, Any] = {
        "model_type": "CrossEncoder",
        "activation_fn": IDENTITY,
        "prompts": {},
        "default_prompt_name": None,
    }
    write_json(folder / SETTINGS, settings | prompts)


def logit_tokens(entries: Sequence[dict[str, Any]]) -> list[int]:
    """Return the tokens whose logits a decoder's score is made of; empty if its modules name none."""
    last: dict[str, Any] = entries[-1] if entries else {"type": ""}
    if last["type"].rpartition(".")[2] != LOGIT_SCORE:
        return []
    tokens = [last["config"].get(f"{name}_token_id") for name in ("true", "false")]
    if not isinstance(tokens[0], int) or not isinstance(tokens[1], int | None) or tokens[0] == tokens[1]:
        raise UserError(f"{last['path']}/config.json: expected token ids, which differ, not {tokens}")
    return [token for token in tokens if token is not None]


def reads_chat(folder: Path) -> bool:
    """Tell if sentence-transformers reads pairs through the tokenizer's chat template, if there is one."""
    modalities = read_json(folder / TRANSFORMER, optional=True).get("modality_config")
    return modalities is None or "message" in modalities


def prompts_of(folder: Path) -> dict[str, Any]:
    """Return a folder's ``prompts`` by their names, and its ``default_prompt_name``."""
    settings = read_json(folder / SETTINGS, optional=True)
    return {key: settings[key] for key in ("prompts", "default_prompt_name") if key in settings}


def default_prompt(prompts: dict[str, Any]) -> str:
    """Return the prompt that is read if nothing else is given, ``""`` for none."""
    name = prompts.get("default_prompt_name")
    return str(prompts.get("prompts", {}).get(name, "")) if name else ""
