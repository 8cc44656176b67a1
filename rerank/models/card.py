"""The model card: ``README.md`` beside a model's weights, with the metadata that Hugging Face's hub reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rerank.html import in_markdown
from rerank.models.contract import CARD
from rerank.storage.files import atomic_write

SPLITS = ("validation", "test")

PAIRS = """path = "."  # this folder, or where it was put
pairs = [("what is a wing", "a wing gives lift"), ("what is a wing", "a jet engine")]
"""

RANK = """ranked = {kind}(path).rank(  # with the first stage's scores of the documents
    "what is a wing", ["a wing gives lift", "a jet engine"], columns={columns}
)
"""

OTHERS = (
    """from sentence_transformers import CrossEncoder

scores = CrossEncoder(path).predict(pairs)
""",
    """import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

model = AutoModelForSequenceClassification.from_pretrained(path).eval()
tokenizer = AutoTokenizer.from_pretrained(path)
inputs = tokenizer(pairs, padding=True, truncation=True, return_tensors="pt")
with torch.no_grad():
    scores = model(**inputs).logits[:, 0]
""",
)

SAME = (
    "The scores are the same in all three while query and document fit their lengths. Beyond them the other two cut "
    "the longer side until a pair fits `model_max_length`, so that a short query leaves a document more room"
)

ADAPTER = "These are adapters: the base has to be there, too (`adapter_config.json` names it), and "

PROMPT = (
    "the prompt is in `rerank.json`, and in the tokenizer as its chat template, by which "
    "`sentence_transformers.CrossEncoder` reads a whole model that answers yes or no. It cuts a long document's prompt "
    "behind it as well; scores differ then."
)

MIXED = """## Mix

As a ranker (`rerank.load`, `rerank rerank`) it ranks by `{formula}`, with {what} over all candidates of a query; one \
that a system did not return has {lacking}. Ties keep the first stage's order. The weights are in `rerank.json`; \
`rerank.load(path, mix=False)`, `--no-mix` and other libraries give `score`, the model alone.
"""

USE_FEATURES = """```sh
rerank rerank --model . --lists FILE --output run.trec
```

`FILE` holds feature vectors in the layout of the training file (LETOR, svmlight); normalisers are saved \
with the model."""


def write_card(
    folder: Path,
    contract: Mapping[str, Any],
    config: Mapping[str, Any],
    measures: Mapping[str, Any],
    data: Mapping[str, str],
    name: str,
) -> None:
    """Write the card of a trained model. Its license is left to whoever publishes it."""
    whole = contract.get("head") == "hf" and contract.get("long", "truncate") == "truncate"
    plain = whole and "template" not in contract
    parts = [
        f"---\n{_metadata(contract, measures, data, name, config.get('loss'), plain)}\n---\n",
        f"# {in_markdown(name)}\n",
        f"{_summary(contract) if 'head' in contract else _summary_of_features(contract, config)}\n",
        f"## Training\n\n{_training(config, data, 'trees' not in contract, contract.get('name', ''))}\n",
        f"## Measures\n\n{_table(measures)}\n",
        f"## Use\n\n{_use(contract, plain) if 'head' in contract else USE_FEATURES}\n",
    ]
    with atomic_write(folder / CARD) as file:
        file.write(with_mix("\n".join(parts), contract.get("mix")))


def without_part(card: str, heading: str) -> str:
    """A card without what stands below a heading."""
    return re.sub(rf"\n## {heading}\n.*?(?=\n## |\Z)", "", card, flags=re.DOTALL)


def with_mix(card: str, mix: Mapping[str, Any] | None) -> str:
    """A card that says what is mixed in, in place of what it said of that before; None where nothing is."""
    alone = without_part(card, "Mix")
    if mix is None:
        return alone
    z, text = mix["by"] == "z", mix["text"]
    name = "z" if z else "rr"
    terms = [(weight, column) for column, weight in mix["columns"].items()]
    return f"{alone}\n" + MIXED.format(
        formula=" + ".join(f"{weight:.4g} {name}({of})" for weight, of in [*terms, (text, "score")]),
        what="z = (x - mean) / standard deviation" if z else "rr = 1 / (60 + rank)",
        lacking="the lowest z of the others" if z else "rr = 0",
    )


def _metadata(
    contract: Mapping[str, Any], measures: Mapping[str, Any], data: Mapping[str, str], name: str, loss: Any, plain: bool
) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    text = "head" in contract
    measures = measures.get("text_alone", measures)  # of a model that starts from columns: what the hub's library loads
    split = "test" if "test" in measures else "validation"
    results = [
        EvalResult(
            task_type="text-ranking",
            dataset_type="ranked-lists",
            dataset_name=data.get(split, split),
            dataset_split=split,
            metric_type=measure,
            metric_value=value,
        )
        for measure, value in measures.get(split, {}).items()
    ]
    tags = ["rerank", "reranker", "learning-to-rank", *(["cross-encoder"] if text else [])]
    tags += [f"loss:{_short(loss)}"] if loss else []
    return ModelCardData(
        library_name="sentence-transformers" if plain else "rerank",
        pipeline_tag="text-ranking" if text else None,
        tags=tags,
        base_model=_hub_name(contract.get("name")),
        model_name=name if results else None,
        eval_results=results or None,
    ).to_yaml()


def _summary_of_features(contract: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    features = contract.get("features")
    of = f" of {features} features" if isinstance(features, int) else ""
    return (
        f"`{_short(config['model'])}` over feature vectors{of}, trained with `rerank`. A higher score means a more "
        "relevant document."
    )


def _summary(contract: Mapping[str, Any]) -> str:
    starts = ""
    if start := contract.get("start"):
        weights = zip(start["weights"], start["columns"], strict=True)
        starts = (
            " It starts from the first stage: what `rerank` ranks by is "
            f"{' + '.join(f'{weight:.4g} z({name})' for weight, name in weights)} + this score, with z by mean and "
            f"deviation of the first {start['depth']} candidates of a query. The weights here are the text part alone."
        )
    long = contract.get("long", "truncate")
    beyond = "longer ones are cut" if long == "truncate" else f"longer ones are read in chunks (`{long}`)"
    return (
        f"A cross-encoder made from `{_base(contract['name'])}` with `rerank`: reads a query and a document together "
        f"and gives one raw score; higher is more relevant. Queries have up to {contract['query_length']} word "
        f"pieces, documents {contract['document_length']}; {beyond}.{starts}"
    )


def _training(config: Mapping[str, Any], data: Mapping[str, str], network: bool, name: str) -> str:
    loss = f"`{describe(config['loss'])}`" if config.get("loss") else "its library's own LambdaMART"
    rows = {"loss": loss, "model": f"`{describe(config['model'], name)}`"}
    if network:
        rates = config["optimization"]
        rows["sampler"] = f"`{describe(config['sampler'])}`"
        rows["epochs, lists per step"] = f"{config['epochs']}, {config['batch_size']}"
        rows["learning rates"] = f"encoder {rates['encoder_lr']}, head {rates['head_lr']}"
    rows["seed"] = str(config["seed"])
    if "validation" in data:
        by = {"loss": "the loss", "last": "nothing: the last epoch; measured by " + config["monitor"]}
        rows["chosen by"] = f"{by.get(str(config.get('epoch_by')), config['monitor'])} on the validation lists"
    rows = {key: value.replace("|", "\\|").replace("\n", " ") for key, value in rows.items()}
    rows = {f"{split} lists": in_markdown(line) for split, line in data.items()} | rows
    return "| | |\n|---|---|\n" + "\n".join(f"| {key} | {value} |" for key, value in rows.items())


def _table(measures: Mapping[str, Any]) -> str:
    mixed = measures.get("with_first_stage", {})
    rows = [(split, measures[split]) for split in SPLITS if split in measures]
    rows += [(f"{split}, with the first stage", mixed[split]) for split in SPLITS if split in mixed]
    alone = measures.get("text_alone", {})
    rows += [(f"{split}, text part alone", alone[split]) for split in SPLITS if split in alone]
    if not rows:
        return "None: there were no validation or test lists."
    names = list(rows[0][1])
    lines = [f"| lists | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    lines += [f"| {split} | {' | '.join(f'{values[name]:.4f}' for name in names)} |" for split, values in rows]
    caption = (
        "Names are those of ir-measures: `nDCG@k` has linear gain; a query without relevant documents counts as 0. "
        "The validation lists chose the epoch"
    )
    if mixed:
        caption += f" and the first stage's share of the mixed score, {mixed['first_stage_weight']:g} (z-normalised)"
        caption += ", so that their own mixed row flatters"
    return "\n".join(lines) + f"\n\n{caption}."


def _use(contract: Mapping[str, Any], plain: bool) -> str:
    start = contract.get("start")
    kind = "Decoder" if "template" in contract else "CrossEncoder"
    ours = f"from rerank import {kind}\n\nscores = {kind}(path{', start=[]' if start else ''}).predict(pairs)\n"
    if start:
        columns = {name: [12.5, 11.0] for name in start["columns"]}  # the first stage's scores, best first
        ours += RANK.format(kind=kind, columns=json.dumps(columns))
    blocks = "\n".join(f"```python\n{block}```\n" for block in [PAIRS, ours, *(OTHERS if plain else [])])
    if kind == "Decoder":
        prompt = PROMPT if "base" in contract else PROMPT[0].upper() + PROMPT[1:]
        return f"{blocks}\n{ADAPTER if 'base' in contract else ''}{prompt}"
    if not plain:
        return f"{blocks}\nNo other library has this head or reads long documents like this: load it with `rerank`."
    off = contract.get("elsewhere")
    shown = (
        ""
        if off is None
        else f": of the 16 training pairs with the longest documents no score differs by more than {off:.1e}"
    )
    return f"{blocks}\n{SAME}{shown}.{' They are those of the text part.' if start else ''}"


def describe(value: Any, base: str = "") -> str:
    """A configuration value as it would be called: ``DirectMetric(measure='nDCG', relaxation=SmoothI(alpha=1.0))``."""
    if isinstance(value, Mapping) and "class_path" in value:
        given = {key: inner for key, inner in (value.get("init_args") or {}).items() if inner is not None}
        return f"{_short(value)}({', '.join(f'{key}={describe(inner, base)}' for key, inner in given.items())})"
    if isinstance(value, list):
        return f"[{', '.join(describe(inner, base) for inner in value)}]"
    return repr(_base(value) if base and value == base else value)


def _short(value: Mapping[str, Any]) -> str:
    return str(value["class_path"]).rpartition(".")[2]


def _hub_name(name: str | None) -> str | None:
    """A name as the hub has them; None for a folder."""
    if name is None or not re.fullmatch(r"[\w-]+(\.[\w-]+)*/[\w.-]+", name) or Path(name).exists():
        return None
    return name


def _base(name: str) -> str:
    """A base model as others know it: its name on the hub, or that of its folder."""
    return name if _hub_name(name) else Path(name).name
