"""The model card: ``README.md`` beside a model's weights, with the metadata that Hugging Face's hub reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.html import in_markdown
from rerank.models.contract import CARD
from rerank.storage.files import atomic_write

if TYPE_CHECKING:
    from rerank.training.results import Results

TEMPLATE = Path(__file__).with_name("card.jinja")

SETTINGS = ("model", "loss", "sampler", "optimization", "epochs", "batch_size", "seed")
"""Keys of the configuration that the card shows."""

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
    results: Results,
    data: Mapping[str, str],
    name: str,
) -> None:
    """Write the card of a trained model, without a license.

    Args:
        folder: the model's folder.
        contract: the content of ``rerank.json``.
        config: the configuration of the training run.
        results: measures of the run, next to the first stage.
        data: a description of the lists by split.
        name: the model's name.
    """
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    text, base = "head" in contract, contract.get("name", "")
    plain = contract.get("long") == "truncate"  # a text model that sentence-transformers loads
    loss = config["loss"]["class_path"].rpartition(".")[2] if config.get("loss") else None
    split = "validation" if results.test is None else "test"
    measured = None if "start" in contract else getattr(results, split)  # the hub's library would load the text part
    evaluated = [
        EvalResult(
            task_type="text-ranking",
            dataset_type="ranked-lists",
            dataset_name=data.get(split, split),
            dataset_split=split,
            metric_type=measure,
            metric_value=value,
        )
        for measure, value in ({} if measured is None else measured.model.mean).items()
    ]
    metadata = ModelCardData(
        library_name="sentence-transformers" if plain else "rerank",
        pipeline_tag="text-ranking" if text else None,
        tags=["rerank", "reranker", "learning-to-rank", *["cross-encoder"] * text, *[f"loss:{loss}"] * bool(loss)],
        base_model=base if _on_hub(base) else None,
        model_name=name if evaluated else None,
        eval_results=evaluated or None,
    )
    card = ModelCard.from_template(
        metadata,
        template_path=str(TEMPLATE),
        title=in_markdown(name),
        contract=contract,
        base=base if _on_hub(base) else Path(base).name,
        plain=plain,
        model=config["model"]["class_path"].rpartition(".")[2],
        lists={split: in_markdown(line) for split, line in data.items()},
        settings=_settings(config, base, network="trees" not in contract),
        results=results,
        rows=list(results.rankings()),
        columns=json.dumps({column: [12.5, 11.0] for column in contract.get("start", {}).get("columns", [])}),
    )
    with atomic_write(folder / CARD) as file:
        file.write(with_mix(f"{str(card).rstrip()}\n", contract.get("mix")))


def with_mix(card: str, mix: Mapping[str, Any] | None) -> str:
    """Describe the interpolation weights in a card, in place of earlier ones; None removes them."""
    alone = re.sub(r"\n## Mix\n.*?(?=\n## |\Z)", "", card, flags=re.DOTALL)
    if mix is None:
        return alone
    terms = [*mix["columns"].items(), ("score", mix["text"])]
    return f"{alone}\n" + MIXED.format(formula=" + ".join(f"{weight:.4g} z({name})" for name, weight in terms))


def _settings(config: Mapping[str, Any], base: str, network: bool) -> str:
    """Format the settings of the run as YAML, without folders of this machine."""
    import yaml

    keys = SETTINGS if network else ("model", "loss", "seed")
    chosen = {key: config[key] for key in keys if config.get(key) is not None}
    text = yaml.safe_dump(chosen, sort_keys=False, allow_unicode=True)
    return text if not base or _on_hub(base) else text.replace(base, Path(base).name)


def _on_hub(name: str) -> bool:
    """Tell names on the hub from folders."""
    return bool(re.fullmatch(r"[\w-]+(\.[\w-]+)*/[\w.-]+", name)) and not Path(name).exists()
