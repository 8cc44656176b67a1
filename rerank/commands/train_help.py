"""``rerank train --help``: one screen, from the configuration's own fields; ``--help all`` is the long one."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from itertools import zip_longest
from typing import Any

from rerank.commands.catalogue import losses
from rerank.errors import UserError, nearest
from rerank.models.load import MODELS, NORMALISERS
from rerank.settings.named import find_class
from rerank.settings.parser import make_parser
from rerank.training.classes import DATA, SAMPLERS, first_lines
from rerank.training.config import Optimization, TrainConfig
from rerank.training.configuration import train_parser

WIDTH = 80
GROUPS = {
    "how long": ("epochs", "steps_per_epoch", "patience", "seed"),
    "a step": ("batch_size", "sampler"),
    "rates": tuple(f"optimization.{field.name}" for field in fields(Optimization)),
    "memory, speed": ("gradient", "precision", "micro_batch_size", "token_budget", "kernels", "deterministic"),
    "measures": ("monitor", "epoch_by", "measures", "test"),
    "what is kept": ("checkpoint_every", "fidelity", "tracker"),
}
"""All other options, in the order in which people look for them."""

KINDS = {"data": DATA, "model": MODELS, "sampler": SAMPLERS, "normalise": NORMALISERS}
"""Keys that take a class, except for the loss, which has a command of its own."""

EXAMPLES = (
    "rerank train --data ListsData --data.train lists/x --model CrossEncoder \\",
    "    --model.name sentence-transformers/all-MiniLM-L6-v2 --loss LambdaLoss \\",
    "    --output runs/x",
    "rerank train --config configs/scifact/smoothi.yaml --epochs 3",
    "rerank train --config runs/x/config.yaml --output runs/y  # the same again",
)


def help_for(argv: Sequence[str]) -> str | None:
    """What ``--help``, ``--help all`` and ``--model.help`` print, without importing torch; None where none is asked."""
    for word, after in zip_longest(argv, argv[1:]):
        key, dot, last = word.removeprefix("--").rpartition(".")
        if word in ("-h", "--help"):
            return train_parser().format_help() if after == "all" else page()
        if dot and last.partition("=")[0] == "help" and key in (*KINDS, "loss"):
            name = last.partition("=")[2] or (after if after and not after.startswith("-") else "")
            return keys_of(key, name) if name else kinds_of(key)
    return None


def page() -> str:
    """What is needed, examples, then all other options with their defaults."""
    needed = {
        "data": f"where lists come from: {', '.join(DATA)}",
        "model": f"what scores them: {', '.join(MODELS)}",
        "loss": "what is minimised: TwinSigmoidNDCG, LambdaLoss, … (rerank losses); trees have one of their own",
        "output": "run folder to make; given again, an interrupted training resumes there",
    }
    lines = [
        "usage: rerank train --data CLASS --model CLASS --loss CLASS --output FOLDER",
        "                    [--KEY VALUE ...]",
        "       rerank train --config FILE.yaml [--KEY VALUE ...]",
        "",
        "Train a reranker on ranked lists, or resume where a run stopped.",
        "",
        "needed, here or in a file",
        *(
            line
            for key, text in needed.items()
            for line in textwrap.wrap(text, WIDTH, initial_indent=f"  --{key:<8} ", subsequent_indent=" " * 13)
        ),
        "",
        "examples",
        *(f"  {line}" for line in EXAMPLES),
        "",
        "options, with their defaults",
    ]
    for name, keys in GROUPS.items():
        text = "  ".join(f"--{key}\0{_default(key)}" for key in keys)
        head = f"  {name:<15}"
        wrapped = textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
        lines += [line.replace("\0", " ") for line in wrapped]
    return "\n".join(
        [
            *lines,
            "",
            "rerank train --help all explains each; --model.help lists models, and",
            "--model.help MLP the keys of one (--model.preset 1024); --data.help,",
            "--sampler.help and --loss.help do the same. --print_config shows what files and",
            "options come to, and trains nothing.",
        ]
    )


def kinds_of(key: str) -> str:
    """The classes that a key takes, a line each."""
    if key == "loss":
        return losses()
    lines = [f"  {name:<20} {text.replace('``', '')}" for name, text in first_lines(KINDS[key]).items()]
    return "\n".join([*lines, "", f"rerank train --{key}.help NAME lists the keys of one of them."])


def keys_of(key: str, name: str) -> str:
    """The keys of one class, with their defaults; of a loss its definition."""
    if key == "loss":
        from rerank.commands.catalogue import losses

        return losses(name)
    if "." not in name and name not in KINDS[key]:
        raise UserError(f"--{key}: there is no {name}{nearest(name, KINDS[key])}; --{key}.help lists them")
    kind = find_class(name if "." in name else f"{KINDS[key][name]}.{name}", object, key)
    parser = make_parser(f"train --{key} {name}", kind)
    parser.add_class_arguments(kind, key, as_group=False)
    return str(parser.format_help())


def _default(key: str) -> str:
    kind: Any = Optimization if "." in key else TrainConfig
    (field,) = (field for field in fields(kind) if field.name == key.rpartition(".")[2])
    value = _value(field)
    if isinstance(value, str):
        return f'"{value}"' if " " in value else value
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, int | float) else type(value).__name__


def _value(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
