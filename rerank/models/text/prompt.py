"""The text around a query and a document that a decoder reads, as the model's own chat template has it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from rerank.errors import UserError, one_line
from rerank.lists.tokens import Around
from rerank.models.text.pairs import PairTemplate

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

QUERY, DOCUMENT, INSTRUCTION = "{query}", "{document}", "{instruction}"
PLACES = re.compile(r"(\{query\}|\{document\})")

SAMPLE = {QUERY: "who flew first?", DOCUMENT: "The Wrights did, in 1903."}
"""A pair whose tokens tell whether a tokenizer joins the text around it with what it reads."""


@dataclass(frozen=True)
class Prompt:
    """The text that a decoder reads of a pair.

    Attributes:
        plain: the text without an instruction, with the places ``{query}`` and ``{document}`` in any order.
        instructed: the text with the place ``{instruction}``, too; None if the template has none.
        instruction: the instruction that is read if a query has none of its own.
    """

    plain: str
    instructed: str | None = None
    instruction: str | None = None

    def __post_init__(self) -> None:
        self.text()  # which refuses an instruction without a place

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, model_type: str, instruction: str | None = None) -> Self:
        """Read the tokenizer's chat template, as sentence-transformers renders it.

        Args:
            tokenizer: the tokenizer.
            model_type: the architecture.
            instruction: the default instruction.

        Raises:
            UserError: a template that does not read a query and a document.
        """
        from sentence_transformers.base.modality import InputFormatter

        formatter = InputFormatter(model_type, processor=tokenizer)
        if reason := formatter.pair_roles_failure():
            raise UserError(
                f"{tokenizer.name_or_path}: its chat template does not read a query and a document "
                f"({one_line(reason)[:200]}); save one with these roles in the model's folder"
            )
        pair = formatter.pair_to_messages((QUERY, DOCUMENT))
        plain = str(tokenizer.apply_chat_template(pair, tokenize=False))
        told = formatter.prepend_prompt_to_messages([pair], INSTRUCTION)[0]
        instructed = str(tokenizer.apply_chat_template(told, tokenize=False))
        for place in (QUERY, DOCUMENT):
            if (count := plain.count(place)) != 1:
                raise UserError(f"{tokenizer.name_or_path}: its chat template has the {place[1:-1]} {count} times")
        return cls(plain, instructed if INSTRUCTION in instructed else None, instruction or None)

    def text(self, instruction: str | None = None) -> str:
        """Return the text with an instruction, by default that of the prompt."""
        chosen = instruction or self.instruction
        if not chosen:
            return self.plain
        if PLACES.search(chosen):
            raise UserError(f"instruction: {chosen!r} has a place of the template, such as {{query}}")
        if self.instructed is None:
            raise UserError("instruction: the model's template has no place for one; leave it out")
        return self.instructed.replace(INSTRUCTION, chosen)

    def filled(self, query: str, document: str, instruction: str | None = None) -> str:
        """Return the text of a pair."""
        texts = {QUERY: query, DOCUMENT: document}
        return "".join(texts.get(word, word) for word in PLACES.split(self.text(instruction)))

    def joined_by(
        self, tokenizer: PreTrainedTokenizerBase, instruction: str | None = None
    ) -> tuple[PairTemplate, Around]:
        """Return the tokens around query and document, and the white space that joins their words.

        A word is one token with the space before it, a full stop one with the line's end behind it: such white space
        goes with the texts, so that the tokens are those of the whole text.
        """
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
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0
        prefix, middle, suffix = (np.array(ids, dtype=np.int64) for ids in pieces)
        template = PairTemplate(prefix, middle, suffix, types=None, pad=int(pad), document_first=first == DOCUMENT)
        return template, (around[QUERY], around[DOCUMENT])


def _split_off(text: str, pattern: str) -> tuple[str, str]:
    """Split off the part of the text that matches the pattern."""
    found = re.search(pattern, text)
    return (text, "") if found is None else (text[: found.start()] + text[found.end() :], found[0])


def _ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) if text else []
