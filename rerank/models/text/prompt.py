"""The text around a query and a document that a decoder reads, as the model's own chat template has it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

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
