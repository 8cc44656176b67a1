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

TEMPLATE = Path(__file__).with_name("card.jinja")
"""The card of a model, for Jinja."""

MIXED = """## Mix

As a ranker (`rerank.load`, `rerank rerank`) it ranks by `{formula}`, with z = (x - mean) / standard deviation over \
all candidates of a query; one that a system did not return has the lowest z of the others. Ties keep the first \
stage's order. The weights are in `rerank.json`; `rerank.load(path, mix=False)`, `--no-mix` and other libraries give \
`score`, the model alone.
"""


def write_card(
    folder: Path,
    contract: Mapping[str, Any],
    config: Mapping[str, Any],
    measures: Mapping[str, Any],
    data: Mapping[str, str],
    name: str,
) -> None:
    """Write the card of a trained model. Its license is left to whoever publishes it."""
    from jinja2 import Environment

    long, base = contract.get("long", "truncate"), contract.get("name", "")
    plain = contract.get("head") == "hf" and long == "truncate" and "template" not in contract
    kinds = [("", measures), (", with the first stage", measures.get("with_first_stage", {}))]
    kinds.append((", text part alone", measures.get("text_alone", {})))
    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    card = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        metadata=_metadata(contract, measures, data, name, config.get("loss"), plain),
        name=in_markdown(name),
        contract=contract,
        base=_base(base),
        long=long,
        plain=plain,
        model=_short(config["model"]),
        training=_training(config, data, "trees" not in contract, base),
        rows=[(f"{at}{what}", of[at]) for what, of in kinds for at in ("validation", "test") if at in of],
        mixed=measures.get("with_first_stage"),
        columns=json.dumps({column: [12.5, 11.0] for column in contract.get("start", {}).get("columns", [])}),
    )
    with atomic_write(folder / CARD) as file:
        file.write(with_mix(card, contract.get("mix")))


def without_part(card: str, heading: str) -> str:
    """A card without what stands below a heading."""
    return re.sub(rf"\n## {heading}\n.*?(?=\n## |\Z)", "", card, flags=re.DOTALL)


def with_mix(card: str, mix: Mapping[str, Any] | None) -> str:
    """A card that says what is mixed in, in place of what it said of that before; None where nothing is."""
    alone = without_part(card, "Mix")
    if mix is None:
        return alone
    terms = [*mix["columns"].items(), ("score", mix["text"])]
    return f"{alone}\n" + MIXED.format(formula=" + ".join(f"{weight:.4g} z({name})" for name, weight in terms))


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


def _training(config: Mapping[str, Any], data: Mapping[str, str], network: bool, name: str) -> dict[str, str]:
    own = "RankNet" if "rank:pairwise" in str(config["model"]) else "LambdaMART"
    loss = f"`{describe(config['loss'])}`" if config.get("loss") else f"its library's own {own}"
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
    return {f"{split} lists": in_markdown(line) for split, line in data.items()} | rows


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
