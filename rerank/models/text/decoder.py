"""Decoders as rerankers: a prompt around the pair, a score from the last token, and low-rank adapters by peft."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from transformers.modeling_outputs import SequenceClassifierOutput

from rerank.errors import UserError, needed, one_line
from rerank.kernels.flat import use_flat_decoder
from rerank.lists.tokens import NOTHING, Around, Side, encode
from rerank.models.folder import find_model, hash_model
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.modules import (
    LAYOUT,
    LOGIT_SCORE,
    default_prompt,
    logit_tokens,
    modules_of,
    prompts_of,
    reads_chat,
    write_layout,
)
from rerank.models.text.network import (
    is_decoder,
    keep_float32,
    load_classifier,
    load_network,
    read_config,
    read_tokenizer,
)
from rerank.models.text.pairs import PairTemplate
from rerank.settings.arguments import Count, Positive, Rate, check_arguments
from rerank.storage.files import read_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

QUERY, DOCUMENT, INSTRUCTION = "{query}", "{document}", "{instruction}"
PLACES = re.compile(r"(\{query\}|\{document\})")

SAMPLE = {QUERY: "who flew first?", DOCUMENT: "The Wrights did, in 1903."}
"""A pair whose tokens tell whether a tokenizer joins the text around it with what it reads."""


class Prompt:
    """The text that a decoder reads of a pair: the tokenizer's chat template, as sentence-transformers renders it.

    Args:
        tokenizer: the tokenizer.
        model_type: the architecture.
        instruction: the instruction that is read if a query has none of its own.

    Raises:
        UserError: a template that does not read a query and a document, or an instruction without a place.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, model_type: str, instruction: str | None = None) -> None:
        from sentence_transformers.base.modality import InputFormatter

        self.tokenizer, self.instruction = tokenizer, instruction
        self.formatter = InputFormatter(model_type, processor=tokenizer)
        if reason := self.formatter.pair_roles_failure():
            raise UserError(
                f"{tokenizer.name_or_path}: its chat template does not read a query and a document "
                f"({one_line(reason)[:200]}); save one with these roles in the model's folder"
            )
        plain = self._rendered(None)
        for place in (QUERY, DOCUMENT):
            if (count := plain.count(place)) != 1:
                raise UserError(f"{tokenizer.name_or_path}: its chat template has the {place[1:-1]} {count} times")
        self.takes_instructions = INSTRUCTION in self._rendered(INSTRUCTION)
        self.text()  # which refuses an instruction without a place

    def _rendered(self, instruction: str | None) -> str:
        messages = self.formatter.pair_to_messages((QUERY, DOCUMENT))
        if instruction:
            messages = self.formatter.prepend_prompt_to_messages([messages], instruction)[0]
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False))

    def text(self, instruction: str | None = None) -> str:
        """Return the text with an instruction, by default that of the prompt, and the places of query and document."""
        chosen = instruction or self.instruction
        if chosen and PLACES.search(chosen):
            raise UserError(f"instruction: {chosen!r} has a place of the template, such as {{query}}")
        if chosen and not self.takes_instructions:
            raise UserError("instruction: the model's template has no place for one; leave it out")
        return self._rendered(chosen)

    def filled(self, query: str, document: str, instruction: str | None = None) -> str:
        """Return the text of a pair."""
        texts = {QUERY: query, DOCUMENT: document}
        return "".join(texts.get(word, word) for word in PLACES.split(self.text(instruction)))

    def template(self, instruction: str | None = None) -> tuple[PairTemplate, Around]:
        """Return the tokens around query and document, and the white space that joins their words.

        A word is one token with the space before it, a full stop one with the line's end behind it: such white space
        goes with the texts, so that the tokens are those of the whole text.
        """
        tokenizer = self.tokenizer
        start, first, between, second, end = PLACES.split(self.text(instruction))
        start, lead = _split_off(start, r" +$")
        between, tail = _split_off(between, r"^[\r\n]+")
        around = {first: (lead, tail)}
        between, lead = _split_off(between, r" +$")
        end, tail = _split_off(end, r"^[\r\n]+")
        around[second] = (lead, tail)
        pieces = [_ids(tokenizer, literal) for literal in (start, between, end)]
        sides = [_ids(tokenizer, f"{around[place][0]}{SAMPLE[place]}{around[place][1]}") for place in (first, second)]
        apart = [*pieces[0], *sides[0], *pieces[1], *sides[1], *pieces[2]]
        if apart != _ids(tokenizer, self.filled(SAMPLE[QUERY], SAMPLE[DOCUMENT], instruction)):
            raise UserError(
                f"{tokenizer.name_or_path}: its tokenizer joins the chat template and the texts in it; "
                "put a line's end or a special token between them"
            )
        prefix, middle, suffix = (np.array(ids, dtype=np.int64) for ids in pieces)
        pad = int(tokenizer.pad_token_id or 0)
        template = PairTemplate(prefix, middle, suffix, None, pad, document_first=first == DOCUMENT, pads_left=True)
        return template, (around[QUERY], around[DOCUMENT])


def _split_off(text: str, pattern: str) -> tuple[str, str]:
    """Split off the part of the text that matches the pattern."""
    found = re.search(pattern, text)
    return (text, "") if found is None else (text[: found.start()] + text[found.end() :], found[0])


def _ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) if text else []


FLAT = ("gemma", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3")
"""Architectures that are read without padding; tests compare them with Transformers' own passes."""

CONFIG, NAME = "adapter_config.json", "base_model_name_or_path"
"""In the folder of an adapter: peft's settings, and the key of its base."""

BASE = "base"
"""In the contract of an adapter: the hashes of the model that it belongs to."""


@dataclass(frozen=True)
class LoRA:
    """Train low-rank additions to the weights, not the weights themselves: ``W + alpha / rank · B A``.

    >>> LoRA(rank=8, targets=["q_proj", "v_proj"])
    LoRA(rank=8, alpha=32, dropout=0.0, targets=['q_proj', 'v_proj'])

    Attributes:
        rank: rows of ``A``, columns of ``B``.
        alpha: scale of the addition, see above.
        dropout: dropout rate on the input of the additions.
        targets: the layers, by the end of their names, such as q_proj; None takes all linear ones but the head.
    """

    rank: Count = 16
    alpha: Positive = 32
    dropout: Rate = 0.0
    targets: list[str] | None = None

    def __post_init__(self) -> None:
        check_arguments(LoRA, vars(self), "model.lora")

    def add_to(self, network: Any, base: str) -> None:
        """Add fresh adapters to a network, whose other weights, but a classifier's head, are frozen.

        Args:
            network: the network.
            base: its folder or its name on the hub, which the adapter's files name.
        """
        peft = needed("model.lora:", "peft", "lora")
        classifies = hasattr(network, "score")
        network.add_adapter(
            peft.LoraConfig(
                task_type="SEQ_CLS" if classifies else "CAUSAL_LM",
                r=self.rank,
                lora_alpha=self.alpha,
                lora_dropout=self.dropout,
                target_modules=self.targets or "all-linear",
                modules_to_save=["score"] if classifies else None,
            )
        )
        network.peft_config["default"].base_model_name_or_path = base


class Decoder(CrossEncoder):
    r"""A decoder that scores a pair by its output after a prompt with query and document.

    With the head ``yes_no`` the score is the difference of two logits, :math:`l_\text{yes} - l_\text{no}`, or one
    logit; with ``hf`` it is what the architecture's own classifier makes of the last token. The prompt and the tokens
    come from the model's files, as sentence-transformers writes them (chat template, ``LogitScore``). A document that
    is too long is cut; the prompt behind it never is. All else is as for a :class:`CrossEncoder`.
    """

    usual = 64, 512  # using all positions of a decoder would be too slow
    fills_positions = False
    says_limit = False  # others know one length for both sides

    def __init__(
        self,
        name: str,
        head: Literal["yes_no", "hf"] | None = None,
        instruction: str | None = None,
        lora: LoRA | None = None,
        query_length: Count | None = None,
        document_length: Count | None = None,
        dropout: Rate | None = None,
    ) -> None:
        """Load a decoder, a reranker that was made of one, or an adapter with its base.

        Args:
            name: a model folder or a name on the Hugging Face hub; of an adapter its own.
            head: ``yes_no`` compares the logits of two tokens, ``hf`` is the architecture's own classifier. None takes
                the saved model's own; else ``hf`` for a classifier, ``yes_no`` for a language model.
            instruction: instruction that the model reads; None takes the model's own.
            lora: train adapters of this kind in place of the weights; None trains the weights, or the adapter that the
                folder has.
            query_length: word pieces kept of a query; None takes the saved model's own, else 64.
            document_length: word pieces kept of a document; None takes the saved model's own, else 512.
            dropout: see :class:`CrossEncoder`.

        Raises:
            UserError: no such model, one that is not a decoder, files that do not say how it reads a pair, a prompt
                that does not fit its positions, an adapter without its base.
        """
        self.lora, self.prompt = lora, None
        self._source, self._instruction = name, instruction
        super().__init__(name, cast(Any, head), query_length, document_length, dropout, "truncate")
        if instruction and self.prompt is None:
            self._template_with(instruction)  # which says that there is no place for one

    prompt: Prompt | None

    def _open(self, head: str | None) -> None:
        self.has_adapter = (self.folder / CONFIG).is_file()
        self._base = _base_of(self.folder, self._saved.get(BASE)) if self.has_adapter else self.folder
        folder = self.folder if (self.folder / LAYOUT).is_file() else self._base
        self._layout, self.prompts = modules_of(folder), prompts_of(folder)
        self._instruction = self._instruction or default_prompt(self.prompts) or None
        architectures = read_config(self._base, None).architectures or [""]
        self.head = head or ("hf" if architectures[0].endswith("ForSequenceClassification") else "yes_no")
        own = any((self.folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json"))
        self.tokenizer = read_tokenizer(self.folder if own else self._base)
        self.tokenizer.padding_side = "left"  # every row ends with its last token
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        if not reads_chat(folder):
            self.tokenizer.chat_template = None

    def _load(self) -> None:
        from transformers import AutoModelForCausalLM

        folder, config = self._base, read_config(self._base, self._dropout)
        if not is_decoder(config):
            raise UserError(f"{folder}: {config.model_type} is not a decoder; load it as a CrossEncoder")
        self.answers = logit_tokens(self._layout)
        if not self.answers and (self._layout or self.head != "hf"):
            raise UserError(
                f"{folder}: its files do not say how it reads a pair and which tokens make its score ({LAYOUT} with "
                f"{LOGIT_SCORE}); save it with sentence-transformers' CrossEncoder, or choose model.head hf"
            )
        if self.lora is not None and self.has_adapter:
            raise UserError(f"model.lora: {self.folder} has an adapter; leave lora out to train that one further")
        if self.head != "hf" or self.tokenizer.chat_template is not None:
            self.prompt = Prompt(self.tokenizer, config.model_type, self._instruction)
        if self.head == "hf":
            network, self.missing = load_classifier(folder, config)
            network.config.pad_token_id = self.tokenizer.pad_token_id or 0
        else:
            network, self.missing = load_network(AutoModelForCausalLM, folder, config)
            if self.missing:
                raise UserError(f"{folder}: no language-model head ({self.missing[0]}); use a checkpoint with one")
            network.register_buffer("answers", torch.tensor(self.answers), persistent=False)  # moves with it
        network.forward = MethodType(_classify if self.head == "hf" else _compare, network)  # a deep copy has its own
        if config.model_type in FLAT:
            use_flat_decoder(network)
        if self.lora is not None:
            self.lora.add_to(network, str(folder.resolve()) if Path(self._source).is_dir() else self._source)
        elif self.has_adapter:
            needed(f"{self.folder}: an adapter", "peft", "lora")
            self.missing = sorted(network.load_adapter(str(self.folder), is_trainable=True).missing_keys)
        keep_float32(network.score if self.head == "hf" else network.get_output_embeddings())
        self.network, self.drawn = network, bool(self.missing) or self.lora is not None
        if self.prompt is None:  # a classifier without a chat template: its tokenizer's pairs
            self.template = PairTemplate.of(self.tokenizer, with_types=False, decoder=True)
            self.around = NOTHING
        else:
            self.template, self.around = self.prompt.template()
        self.tails = sum(len(encode(self.tokenizer, Side(1 << 30), [tail])[0][0]) for _, tail in self.around)

    def _template_with(self, instruction: str) -> PairTemplate:
        if self.prompt is None:
            return super()._template_with(instruction)
        template, around = self.prompt.template(instruction)
        if around != self.around:
            raise UserError(f"{self.name}: its chat template joins instruction and text; put a line's end between")
        return template

    @staticmethod
    def knows(name: str) -> bool:
        """Tell decoders, and their adapters, from encoders."""
        folder = find_model(name)
        return (folder / CONFIG).is_file() or is_decoder(read_config(folder, None))

    def contract(self) -> dict[str, Any]:
        adapts = self.lora is not None or self.has_adapter  # only adapters are trained and saved
        return super().contract() | ({BASE: hash_model(self._base)} if adapts else {})

    def head_parameters(self) -> set[str]:
        return {name for name, _ in self.named_parameters() if name.startswith("network.score.")}

    def write(self, folder: Path) -> None:
        from sentence_transformers.cross_encoder.modules import LogitScore

        with warnings.catch_warnings(action="ignore"):  # of a base that peft does not find on the hub
            super().write(folder)
        prompts = self.prompts
        if self.prompt is not None and self.prompt.instruction != (default_prompt(prompts) or None):
            prompts = {"prompts": {"instruction": self.prompt.instruction}, "default_prompt_name": "instruction"}
        chat = self.prompt is not None
        if self.head == "hf":
            write_layout(folder, "sequence-classification", [], prompts, chat)
        else:
            write_layout(folder, "text-generation", [cast(Any, LogitScore)(*self.answers)], prompts, chat)


def _classify(network: Any, **batch: Any) -> Any:
    """Compute scores as ``.logits``, ``[n, 1]``, with the classifier's layer on the state of each row's last token."""
    states = network.base_model(**batch, use_cache=False).last_hidden_state[:, -1]
    return SequenceClassifierOutput(logits=network.score(states))


def _compare(network: Any, **batch: Any) -> Any:
    """Compute scores as ``.logits``, ``[n, 1]``, from the logits of the answers behind each row's last token."""
    output = type(network).forward(network, **batch, logits_to_keep=1, use_cache=False)
    logits = output.logits[:, -1, network.answers]
    return SequenceClassifierOutput(logits=logits[:, :1] - logits[:, 1:] if len(network.answers) > 1 else logits)


def _base_of(folder: Path, expected: str | None) -> Path:
    """Find the folder of the model that an adapter was trained on, by its :func:`hash_model` if that is known."""
    name = read_json(folder / CONFIG)[NAME]
    if not name:
        raise UserError(f"{folder}: an adapter that does not name its base; write it as {NAME} into {CONFIG}")
    try:
        base = find_model(name)
    except UserError as error:
        raise UserError(f"{folder}: the base of this adapter is missing ({error}); copy or link it there") from error
    if expected not in (None, hash_model(base)):
        raise UserError(f"{folder}: an adapter of another base than {name}; copy the base that it was trained on there")
    return base
