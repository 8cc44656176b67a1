"""The model card: ``README.md`` beside a model's weights, with the metadata that Hugging Face's hub reads."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.html import in_markdown
from rerank.models.folder import CARD
from rerank.storage.files import atomic_write

if TYPE_CHECKING:
    from huggingface_hub import ModelCard

TEMPLATE = Path(__file__).with_name("card.jinja")

SETTINGS = ("model", "loss", "sampler", "optimization", "epochs", "batch_size", "seed")
"""Keys of the configuration that the card shows."""


def make_card(
    contract: Mapping[str, Any],
    name: str,
    base: Path | None = None,
    datasets: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
    results: Any = None,
    lists: Mapping[str, str] | None = None,
) -> ModelCard:
    """Make the card of a model; license and language are those of its base, if the base has a card.

    Args:
        contract: the content of ``rerank.json``.
        name: the model's name.
        base: the folder of the model that it was made from.
        datasets: names on the hub of the data sets that it was trained on.
        config: the configuration of the training run.
        results: measures of the run (:class:`rerank.training.results.Results`), next to the first stage.
        lists: a description of the run's lists by split.
    """
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    config, lists = config or {}, lists or {}
    text, original = "head" in contract, contract.get("name", "")
    plain = contract.get("long") == "truncate"  # a text model that sentence-transformers loads
    loss = config["loss"]["class_path"].rpartition(".")[2] if config.get("loss") else None
    split = "test" if results is not None and results.test else "validation"
    # sentence-transformers would load the text part alone
    measured = {} if results is None or "residual" in contract else getattr(results, split)
    evaluated = [
        EvalResult(
            task_type="text-ranking",
            dataset_type="ranked-lists",
            dataset_name=lists.get(split, split),
            dataset_split=split,
            metric_type=measure,
            metric_value=value,
        )
        for measure, value in (measured["model"].mean if measured else {}).items()
    ]
    metadata = ModelCardData(
        library_name="sentence-transformers" if plain else "rerank",
        pipeline_tag="text-ranking" if text else None,
        tags=["rerank", "reranker", "learning-to-rank", *["cross-encoder"] * text, *[f"loss:{loss}"] * bool(loss)],
        base_model=original if _on_hub(original) else None,
        datasets=list(datasets) or None,
        model_name=name if evaluated else None,
        eval_results=evaluated or None,
        **_inherited(base),
    )
    return ModelCard.from_template(
        metadata,
        template_path=str(TEMPLATE),
        title=in_markdown(name),
        contract=contract,
        base=original if _on_hub(original) else Path(original).name,
        plain=plain,
        model=config["model"]["class_path"].rpartition(".")[2] if config else None,
        lists={split: in_markdown(line) for split, line in lists.items()},
        settings=_settings(config, original, network="trees" not in contract),
        results=results,
        rows=[] if results is None else list(results.rankings()),
        columns=json.dumps({column: [12.5, 11.0] for column in contract.get("residual", {}).get("columns", [])}),
    )


def _inherited(base: Path | None) -> dict[str, Any]:
    """Return language and license of a base model, if it has a card that can be read."""
    import yaml
    from huggingface_hub import metadata_load

    keys = ("language", "license", "license_name", "license_link")
    try:
        known = metadata_load(base / CARD) or {} if base is not None and (base / CARD).is_file() else {}
    except (ValueError, yaml.YAMLError):  # a damaged card must not end a finished training run
        known = {}
    return {key: known[key] for key in keys if key in known}


def write_card(folder: Path, card: ModelCard) -> None:
    """Write a model's card."""
    with atomic_write(folder / CARD) as file:
        file.write(f"{str(card).rstrip()}\n")


def copy_card(source: Path, folder: Path) -> None:
    """Copy a model's card, if it has one."""
    if (source / CARD).is_file():
        shutil.copyfile(source / CARD, folder / CARD)


def dataset_of(collection: str) -> list[str]:
    """Return the name on the hub of a data set; collections of ir_datasets are there under ``irds``.

    >>> dataset_of("beir/scifact/train"), dataset_of("tomaarsen/gooaq-hard-negatives:train"), dataset_of("beir:scifact")
    (['irds/beir_scifact_train'], ['tomaarsen/gooaq-hard-negatives'], [])
    """
    name, split, _ = collection.partition(":")
    if split:
        return [name] if _on_hub(name) else []
    import ir_datasets

    return [f"irds/{collection.replace('/', '_')}"] if collection in ir_datasets.registry else []


def _settings(config: Mapping[str, Any], base: str, network: bool) -> str:
    """Format the settings of the run as YAML, without folders of this machine."""
    import yaml

    keys = SETTINGS if network else ("model", "loss", "seed")
    chosen = {key: config[key] for key in keys if config.get(key) is not None}
    text = yaml.safe_dump(chosen, sort_keys=False, allow_unicode=True)
    return text if not base or _on_hub(base) else text.replace(base, Path(base).name)


def _on_hub(name: str) -> bool:
    """Tell if a name is one on the hub, not a folder."""
    return bool(re.fullmatch(r"[\w-]+(\.[\w-]+)*/[\w.-]+", name)) and not Path(name).exists()
