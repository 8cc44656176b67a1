"""The text around a query and a document that a decoder reads, as the model's own chat template has it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
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

ROLES = {
    place: "{{ messages | selectattr('role', 'equalto', '" + role + "') | map(attribute='content') | first" + end
    for place, role, end in (
        (QUERY, "query", " }}"),
        (DOCUMENT, "document", " }}"),
        (INSTRUCTION, "system", " | default('') }}"),
    )
}
"""Places of a text in Jinja, as sentence-transformers fills them."""


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
                f"model.template: {tokenizer.name_or_path} does not say how it reads a pair "
                f"({one_line(reason)[:200]}); name a template, such as "
                "'query: {query} document: {document} relevant:'"
            )
        pair = formatter.pair_to_messages((QUERY, DOCUMENT))
        plain = str(tokenizer.apply_chat_template(pair, tokenize=False))
        told = formatter.prepend_prompt_to_messages([pair], INSTRUCTION)[0]
        instructed = str(tokenizer.apply_chat_template(told, tokenize=False))
        return cls(_checked(plain), instructed if INSTRUCTION in instructed else None, instruction or None)

    @classmethod
    def of_text(cls, text: str, instruction: str | None = None) -> Self:
        """Make a prompt of a text with the places ``{query}``, ``{document}`` and perhaps ``{instruction}``."""
        plain = _checked(text.replace(INSTRUCTION, ""))
        return cls(plain, text if INSTRUCTION in text else None, instruction or None)

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
                f"model.template: the tokenizer of {tokenizer.name_or_path} joins the template and the texts in it; "
                "put a line's end or a special token between them"
            )
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0
        prefix, middle, suffix = (np.array(ids, dtype=np.int64) for ids in pieces)
        template = PairTemplate(prefix, middle, suffix, types=None, pad=int(pad), document_first=first == DOCUMENT)
        return template, (around[QUERY], around[DOCUMENT])

    def chat_template(self) -> str:
        """Return the same for Jinja, of messages with the roles ``query``, ``document`` and ``system``."""
        words = re.split(r"(\{query\}|\{document\}|\{instruction\})", self.instructed or self.plain)
        return "".join(ROLES[word] if word in ROLES else _quoted(word) for word in words)


def read_template(template: str) -> str:
    """Return a template: a text with its places, or the content of a file."""
    if PLACES.search(template):
        return template
    if not Path(template).is_file():
        raise UserError(f"model.template: no file {template}; name one, or a text with {{query}} and {{document}}")
    return Path(template).read_text(encoding="utf-8")


def _checked(text: str) -> str:
    for place in (QUERY, DOCUMENT):
        if (count := text.count(place)) != 1:
            raise UserError(f"model.template: expected the place {place} once, found it {count or 'no'} times")
    return text


def _quoted(text: str) -> str:
    """Return a text as Jinja prints it, line ends and braces included."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return "{{ '" + escaped + "' }}" if text else ""


def _split_off(text: str, pattern: str) -> tuple[str, str]:
    """Split off the part of the text that matches the pattern."""
    found = re.search(pattern, text)
    return (text, "") if found is None else (text[: found.start()] + text[found.end() :], found[0])


def _ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) if text else []
