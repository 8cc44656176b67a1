"""Decoders as rerankers: a prompt around the pair, and what the model says behind its last token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import MethodType
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput

from rerank.errors import UserError
from rerank.kernels.flat import use_flat_decoder
from rerank.kernels.interface import use_attention
from rerank.kernels.precision import Precision, hold_frozen
from rerank.lists.tokens import NOTHING, Around, Side, encode
from rerank.models.base import drawn_from
from rerank.models.contract import hash_model
from rerank.models.text.adapter import BASE as NAME
from rerank.models.text.adapter import CONFIG, LoRA, adapted, base_of, save_adapter, with_adapter
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.modules import (
    LAYOUT,
    LOGIT_SCORE,
    default_prompt,
    logit_score,
    logit_tokens,
    modules_of,
    prompts_of,
    reads_chat,
    write_layout,
)
from rerank.models.text.network import (
    RAW,
    check_found,
    is_decoder,
    keep_float32,
    load_classifier,
    loading,
    positions_of,
    read_config,
    read_tokenizer,
    reading,
)
from rerank.models.text.pairs import SHARED, Long, PairTemplate
from rerank.models.text.part import Loaded, Spec, TextPart
from rerank.models.text.prompt import PLACES, Prompt, read_template
from rerank.models.text.start import Start
from rerank.models.weights import align, find_model
from rerank.settings.ranges import Count, Positive, Rate

T5 = "t5"
"""An encoder whose decoder answers: monoT5's score is of the first word that it says."""

INSTRUCTION = 64
"""Tokens that queries' instructions may take by default, above those of the usual one."""

FLAT = ("gemma", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3")
"""Architectures that are read without padding; tests compare them with Transformers' own passes."""

BASE = "base"
"""In the contract of an adapter: the hashes of the model that it belongs to."""


class DecoderPart(TextPart):
    """A decoder, or an adapter with its base, that reads a prompt."""

    usual = 64, 512  # decoders have more positions than anyone pays for

    def __init__(
        self,
        spec: Spec,
        template: str | None,
        answers: Sequence[str] | None,
        instruction: str | None,
        lora: LoRA | None,
    ) -> None:
        self.spec, self.lora, self.adapter = spec, lora, None
        self.prompt: Prompt | None = None
        self.elsewhere = False  # others know one length for both sides
        self.has_adapter = (spec.folder / CONFIG).is_file()
        folder = spec.folder if (spec.folder / LAYOUT).is_file() or not self.has_adapter else self._base()
        self.modules, self._answers_given, self.prompts = modules_of(folder), answers, prompts_of(folder)
        self._instruction = instruction or default_prompt(self.prompts) or None
        self.head = spec.head or self._usual_head()
        own = any((spec.folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json"))
        self.tokenizer = read_tokenizer(spec.folder if own or not self.has_adapter else self._base())
        self.tokenizer.padding_side = "left"  # for whoever reads the last token of a padded batch
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        self._text: str | None = None
        self._given_template = template is not None
        if template is not None and PLACES.search(text := read_template(template)):
            self._text = text
        elif template is not None:
            self.tokenizer.chat_template = text
        elif not reads_chat(folder):
            self.tokenizer.chat_template = None

    def _base(self) -> Path:
        """Return the folder of the whole weights: this one, or for an adapter that of its base."""
        folder = self.spec.folder
        return base_of(folder, self.spec.contract.get(BASE)) if self.has_adapter else folder

    def _usual_head(self) -> str:
        architectures = read_config(self._base(), None).architectures or [""]
        return "hf" if architectures[0].endswith("ForSequenceClassification") else "yes_no"

    def load(self, seed: int) -> Loaded:
        folder, long = self._base(), self.spec.long
        config = read_config(folder, self.spec.dropout)
        if not (is_decoder(config) or config.model_type == T5):
            raise UserError(f"{folder}: {config.model_type} is not a decoder; load it as a CrossEncoder")
        if config.model_type == T5 and self.head == "hf":
            raise UserError(f"model.head hf: T5 answers in a word; choose yes_no, or load {folder} as a CrossEncoder")
        if self.modules and not logit_tokens(self.modules):
            raise UserError(f"{folder}: a decoder with {LAYOUT} and without {LOGIT_SCORE} is not read")
        if long not in ("truncate", "first", "max", "sum"):
            raise UserError(f"model.long {long}: a decoder has no CLS vector; choose truncate, first, max or sum")
        if self.lora is not None and self.has_adapter:
            raise UserError(f"model.lora: {self.spec.folder} has an adapter; leave lora out to train that one further")
        if self._text is not None:
            self.prompt = Prompt.of_text(self._text, self._instruction)
            self.tokenizer.chat_template = self.prompt.chat_template()
        elif self.head != "hf" and not (self.modules or self._answers_given or self._given_template):
            raise UserError(
                f"model.template: the files of {self.spec.name} do not say how it reads a pair and which tokens make "
                f"its score ({LAYOUT} with {LOGIT_SCORE}); name a template, and model.answers if they are not yes, no"
            )
        elif self.head != "hf" or self.tokenizer.chat_template is not None:
            self.prompt = Prompt.of(self.tokenizer, config.model_type, self._instruction)
        with drawn_from(seed):
            network, missing = self._network(folder, config)
        align(network)
        return Loaded(network, missing, bool(missing) or self.lora is not None, *self._joined(network))

    def _network(self, folder: Path, config: Any) -> tuple[Any, list[str]]:
        if self.head == "hf":
            network, missing = load_classifier(folder, config)
            if not isinstance(getattr(network, "score", None), nn.Linear):
                raise UserError(f"{folder}: {type(network).__name__} has no layer `score` for its last token")
            network.config.pad_token_id = self.tokenizer.pad_token_id or 0
        else:
            network, missing = _load_language_model(folder, config), []
            self.answers = self._answers()
            network.register_buffer("answers", torch.tensor(self.answers), persistent=False)  # moves with it
            _check_answers(network, folder)
        network.forward = MethodType(_classify if self.head == "hf" else _compare, network)  # a deep copy has its own
        if config.model_type in FLAT and use_attention(network):
            use_flat_decoder(network)
        if self.lora is not None:
            kind = "SEQ_2_SEQ_LM" if config.model_type == T5 else "SEQ_CLS" if self.head == "hf" else "CAUSAL_LM"
            self.adapter = adapted(network, self.lora, kind)
        elif self.has_adapter:
            self.adapter, missing = with_adapter(network, self.spec.folder), []
        if self.head == "hf":
            keep_float32(network.score)
        return network, missing

    def _joined(self, network: Any) -> tuple[PairTemplate, Around, int]:
        """Return how a pair is joined, the text around its sides, and the number of tokens of the tails."""
        if self.prompt is None:  # a classifier without a chat template: its tokenizer's pairs
            return PairTemplate.of(self.tokenizer, with_types=False, apart=False), NOTHING, 0
        template, around = self.prompt.joined_by(self.tokenizer)
        tails = [len(encode(self.tokenizer, Side(1 << 30), [tail])[0][0]) for _, tail in around]
        if tails[1] and self.spec.long != "truncate":
            raise UserError(f"model.long {self.spec.long}: needs a template that ends a part with {{document}}")
        positions = positions_of(network.config, self.tokenizer)
        if (taken := template.special + sum(tails)) + 2 > positions:
            raise UserError(
                f"model.template: the prompt has {taken} tokens without query and document, {self.spec.name} has "
                f"{positions} positions"
            )
        return template, around, sum(tails)

    def instructed(self, instruction: str) -> PairTemplate:
        if self.prompt is None:
            return super().instructed(instruction)
        template, around = self.prompt.joined_by(self.tokenizer, instruction)
        if around != self.prompt.joined_by(self.tokenizer)[1]:
            raise UserError("model.template: joins the instruction and a text; put a line's end between them")
        return template

    def _answers(self) -> list[int]:
        if self._answers_given is None and (ids := logit_tokens(self.modules)):
            return ids
        words = self._answers_given or ("yes", "no")
        if len(words) not in (1, 2) or len(set(words)) < len(words):
            raise UserError(f"model.answers: expected one word, or two that differ, not {', '.join(words)}")
        answers: list[int] = []
        for word in words:
            ids = self.tokenizer(word, add_special_tokens=False)["input_ids"]
            if len(ids) != 1 or ids[0] == self.tokenizer.unk_token_id:
                raise UserError(
                    f"model.answers: the tokenizer of {self.spec.name} has no token {word!r}; name one it has"
                )
            answers += ids
        return answers

    def lengths(self, room: int, fresh: bool) -> tuple[int, int]:
        told = self.prompt is not None and self.prompt.instructed is not None
        return super().lengths(room - min(INSTRUCTION, room // 4) * told, True)

    def has_fresh_layer(self, loaded: Loaded) -> bool:
        return bool(loaded.missing)

    def contract(self) -> dict[str, Any]:
        return {} if self.adapter is None else {BASE: hash_model(self._base())}

    def merged(self) -> Any:
        if self.adapter is None:
            raise UserError(f"{self.spec.name}: has no adapter to merge")
        hold_frozen(self.adapter, "fp32")
        network, self.adapter = self.adapter.merge_and_unload(), None
        network.requires_grad_(True)
        if self.head == "hf":
            keep_float32(network.score)
        return network

    def save(self, network: Any, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if self.adapter is None:
            super().save(network, folder)
        else:
            base = self.spec.given  # what was trained, whatever it was once made of
            if self.has_adapter:
                base = json.loads((self.spec.folder / CONFIG).read_text(encoding="utf-8"))[NAME]
            save_adapter(self.adapter, folder, str(Path(base).resolve()) if Path(base).is_dir() else base)
        prompts = self.prompts
        if self.prompt is not None and self.prompt.instruction != (default_prompt(prompts) or None):
            prompts = {"prompts": {"instruction": self.prompt.instruction}, "default_prompt_name": "instruction"}
        chat = self.prompt is not None
        if self.head == "hf":
            write_layout(folder, "sequence-classification", [], prompts, chat)
        else:
            write_layout(folder, "text-generation", [logit_score(self.answers)], prompts, chat)


class Decoder(CrossEncoder):
    r"""Scores a pair by a decoder's output after a prompt that contains query and document.

    With the head ``yes_no`` the score is the difference of two logits, :math:`l_\text{yes} - l_\text{no}`, or one
    logit; with ``hf`` it is what the architecture's own classifier makes of the last token. The prompt and the tokens
    come from the model's files, as sentence-transformers writes them (chat template, ``LogitScore``). A document that
    is too long is cut; the prompt behind it never is. All else is as for a :class:`CrossEncoder`.
    """

    def __init__(
        self,
        name: str,
        head: Literal["yes_no", "hf"] | None = None,
        template: str | None = None,
        answers: list[str] | None = None,
        instruction: str | None = None,
        lora: LoRA | None = None,
        query_length: Count | None = None,
        document_length: Count | None = None,
        dropout: Rate | None = None,
        long: Long | None = None,
        start: list[str] | str | None = None,
        start_depth: Count | None = None,
        start_weight: Positive | None = None,
    ) -> None:
        """Load a decoder, a reranker that was made of one, or an adapter with its base.

        Args:
            name: a model folder or a name on the Hugging Face hub; of an adapter its own.
            head: ``yes_no`` compares the logits of two tokens, ``hf`` is the architecture's own classifier. None takes
                the saved model's own; else ``hf`` for a classifier, ``yes_no`` for a language model.
            template: the prompt: a text with the places {query}, {document} and perhaps {instruction}, a file with such
                a text, or a chat template (Jinja) for messages of the roles query, document and system. None takes the
                model's own chat template; a classifier without one reads the pair as its tokenizer joins it.
            answers: the words, of one token each, whose logits' difference is the score, or the one whose logit is.
                None takes the tokens that the model's files name, else yes and no.
            instruction: what the model is told to look for; None takes the model's own.
            lora: train adapters of this kind in place of the weights; None trains the weights, or the adapter that the
                folder has.
            query_length: word pieces kept of a query; None takes the saved model's own, else 64.
            document_length: word pieces kept of a document; None takes the saved model's own, else 512.
            dropout: see :class:`CrossEncoder`, as for all that follow.
            long: ``truncate``, ``first``, ``max`` or ``sum``.
            start: columns that the scores start from.
            start_depth: candidates whose mean and deviation make z.
            start_weight: the columns' weight before the first step.

        Raises:
            UserError: no such model, one that is no decoder, a prompt that does not fit its positions, a tokenizer
                without the tokens of the answer, an adapter without its base.
        """
        nn.Module.__init__(self)
        spec = Spec(name, head, query_length, document_length, dropout, long)
        part = DecoderPart(spec, template, answers, instruction, lora)
        self._make(name, part, Start.of(start, start_depth, start_weight, spec.contract))

    part: DecoderPart

    def settle(self, precision: Precision) -> None:
        if self.part.adapter is not None:
            hold_frozen(self.network, precision)

    @staticmethod
    def knows(name: str) -> bool:
        """Tell decoders, and their adapters, from encoders."""
        folder = find_model(name)
        return (folder / CONFIG).is_file() or is_decoder(read_config(folder, None))

    @property
    def prompt(self) -> Prompt | None:
        return self.part.prompt

    def head_parameters(self) -> set[str]:
        return {name for name, _ in self.named_parameters() if name.startswith(("network.score.", "start."))}

    def merge(self) -> None:
        """Add the adapter to the weights; from then on it is a model of its own, which any library loads."""
        self.network = self.part.merged()
        self._loaded = self._loaded._replace(network=self.network)


def _load_language_model(folder: Path, config: Any) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    kind = cast(Any, AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM)
    config.sentence_transformers = RAW
    with reading(folder):
        network, info = kind.from_pretrained(folder, **loading(config))
    check_found(network, info, folder)
    if info["missing_keys"]:
        raise UserError(f"{folder}: no language-model head ({min(info['missing_keys'])}); use a checkpoint with one")
    return network


def _opening(network: Any, ids: Tensor, mask: Tensor) -> Tensor:
    """The state of which T5 makes the first word of each row's answer, ``[n, H]``."""
    read = network.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
    start = ids.new_full((len(ids), 1), network.config.decoder_start_token_id)
    said = network.decoder(
        input_ids=start, encoder_hidden_states=read, encoder_attention_mask=mask, use_cache=False
    ).last_hidden_state[:, 0]
    return said * network.model_dim**-0.5 if network.config.scale_decoder_outputs else said


def _last(network: Any, ids: Tensor, mask: Tensor | None, places: Tensor | None) -> Tensor:
    """The state of each row's last token, ``[n, H]``.

    Without a mask the rows are flat. Else they are padded at their ends, where no token of theirs sees it: positions
    are right, and Transformers needs no mask. What all rows begin with is computed once where no gradient is wanted.
    """
    base, past = network.base_model, None
    if mask is None:
        return base(input_ids=ids, position_ids=places).last_hidden_state[:, 0]
    if shared := _shared(ids, mask) if torch.is_inference_mode_enabled() and not base.training else 0:
        past = getattr(base(input_ids=ids[:1, :shared], use_cache=True), "past_key_values", None)
        if past is None or not all(hasattr(layer, "batch_repeat_interleave") for layer in past.layers):
            past, shared = None, 0  # the state of a recurrent layer is not repeated
        else:
            past.batch_repeat_interleave(len(ids))
    cached = {} if past is None else {"past_key_values": past}
    states = base(input_ids=ids[:, shared:], use_cache=past is not None, **cached).last_hidden_state
    return states[torch.arange(len(ids), device=ids.device), mask.sum(1) - shared - 1]


def _shared(ids: Tensor, mask: Tensor) -> int:
    """With how many tokens all rows begin, where that pays; each row keeps a token that is its own."""
    same = torch.minimum((ids == ids[0]).all(0).cumprod(0).sum(), mask.sum(1).min() - 1)
    return found if (found := int(same)) * (len(ids) - 1) >= SHARED * ids.numel() else 0


def _classify(
    network: Any, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
) -> Any:
    """Scores as ``.logits``, ``[n, 1]``, by the classifier's layer."""
    return SequenceClassifierOutput(logits=network.score(_last(network, input_ids, attention_mask, position_ids)))


def _compare(
    network: Any, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
) -> Any:
    """Scores as ``.logits``, ``[n, 1]``: of the vocabulary's logits only those that count are computed, in float32."""
    if network.config.model_type == T5:
        assert attention_mask is not None
        state = _opening(network, input_ids, attention_mask)
    else:
        state = _last(network, input_ids, attention_mask, position_ids)
    layer = network.get_output_embeddings()
    with torch.autocast(state.device.type, enabled=False):
        bias = None if layer.bias is None else layer.bias[network.answers].float()
        logits = F.linear(state.float(), layer.weight[network.answers].float(), bias)
        if cap := getattr(network.config, "final_logit_softcapping", None):
            logits = cap * torch.tanh(logits / cap)
        score = logits[:, :1] - logits[:, 1:] if len(network.answers) > 1 else logits
    return SequenceClassifierOutput(logits=score)


def _check_answers(network: Any, folder: Path) -> None:
    ids = torch.tensor([[5, 3, 1, 4]]) % network.config.get_text_config().vocab_size
    said = {}
    if network.config.model_type == T5:
        said["decoder_input_ids"] = torch.full((1, 1), network.config.decoder_start_token_id)
    with torch.no_grad():
        theirs = network(input_ids=ids, use_cache=False, **said).logits[0, -1, network.answers].float()
        expected = theirs[0] - theirs[1] if len(theirs) > 1 else theirs[0]
        ours = _compare(network, ids, torch.ones_like(ids)).logits[0, 0]
    if not torch.allclose(ours, expected, rtol=1e-4, atol=1e-4 * (1 + float(theirs.abs().max()))):
        raise UserError(f"{folder}: {type(network).__name__} makes its logits in a way that is not known; use head hf")
