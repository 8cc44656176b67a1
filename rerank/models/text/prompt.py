"""The text around a query and a document that a decoder reads: data, in a YAML or JSON file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from rerank.errors import UserError, nearest
from rerank.lists.tokens import Around
from rerank.models.text.pairs import PairTemplate

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SHIPPED = Path(__file__).parent / "templates"
"""Those of models that are known."""

YAML_1_1 = {True: "yes", False: "no"}
"""What its words are where nobody quotes them."""

PLACES = re.compile(r"(\{query\}|\{document\})")

SAMPLE = ("who flew first?", "The Wrights did, in 1903.")
"""A pair whose tokens tell whether a tokenizer reads the text around it as this file takes it apart."""


@dataclass(frozen=True)
class Prompt:
    r"""What a decoder reads of a pair.

    Attributes:
        parts: text with the places ``{query}`` and ``{document}``, in this order, and ``{instruction}`` and ``{bos}``
            where the model has them. The tokenizer sees each part by itself, as the makers of a model do.
        instructed: what stands in the place ``{instruction}`` where there is an instruction.
    """

    parts: tuple[str, ...]
    yes: str
    no: str | None = None
    instruction: str | None = None
    instructed: str = "{instruction}"

    @classmethod
    def of(cls, template: str | Mapping[str, Any], instruction: str | None = None) -> Prompt:
        """A template by its name, from a file, or from what a contract has of it."""
        where, values = ("model.template", dict(template)) if isinstance(template, Mapping) else _read(template)
        known = {field.name for field in fields(cls)}
        for key in values:
            if key not in known | {"models"}:
                raise UserError(f"{where}: {key}: there is no such key{nearest(key, known)}")
        parts = values.get("parts")
        if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
            raise UserError(f"{where}: parts: expected a list of texts")
        for place in ("{query}", "{document}"):
            if (count := sum(part.count(place) for part in parts)) != 1:
                raise UserError(f"{where}: parts: expected the place {place} once, found it {count or 'no'} times")
        if (text := "".join(parts)).index("{document}") < text.index("{query}"):
            raise UserError(f"{where}: parts: {{document}} comes before {{query}}; put the query first")
        others = {key: values.get(key) for key in ("yes", "no", "instruction")}
        if others["yes"] is None:
            raise UserError(f"{where}: yes: is missing; name the token whose logit is the score")
        for key, value in others.items():
            if not isinstance(value, str | None):
                raise UserError(f"{where}: {key}: expected a text, not {value!r} (quote it)")
        instructed = values.get("instructed", cls.instructed)
        if not isinstance(instructed, str) or "{instruction}" not in instructed:
            raise UserError(f"{where}: instructed: expected a text with the place {{instruction}}")
        if others["yes"] == others["no"]:
            raise UserError(f"{where}: yes and no are one token, so that all scores are 0; name two")
        prompt = cls(tuple(parts), **others, instructed=instructed)  # type: ignore[arg-type]
        if instruction is None:
            return prompt
        if PLACES.search(instruction):
            raise UserError(f"model.instruction: {instruction!r} has a place of the template, such as {{query}}")
        if "{instruction}" not in text:
            raise UserError(f"model.instruction: {where} has no place {{instruction}}")
        return replace(prompt, instruction=instruction)

    @classmethod
    def usual(cls, name: str) -> str | None:
        """The shipped template of a model on the hub; None where there is none."""
        stems = (path.stem for path in sorted(SHIPPED.glob("*.yaml")))
        return next((stem for stem in stems if name in _read(stem)[1]["models"]), None)

    def contract(self) -> dict[str, Any]:
        return asdict(self) | {"parts": list(self.parts)}

    def texts(self, bos: str) -> list[str]:
        """The parts with all but the places of query and document filled."""
        instruction = "" if self.instruction is None else self.instructed.replace("{instruction}", self.instruction)
        return [part.replace("{bos}", bos).replace("{instruction}", instruction) for part in self.parts]

    def joined_by(self, tokenizer: PreTrainedTokenizerBase) -> tuple[PairTemplate, Around]:
        """The tokens around query and document, and the white space that joins the words of these.

        A word is one token with the space before it, a full stop one with the line's end behind it: such white space
        goes with the texts, so that the tokens are those of a part as a whole.
        """
        pieces, around = [[]], []  # type: list[list[int]], list[tuple[str, str]]
        for part in self.texts(tokenizer.bos_token or ""):
            before, *split = PLACES.split(part)
            for after in split[1::2]:
                literal, lead = _cut(before, r" +$")
                after, tail = _cut(after, r"^[\r\n]+")
                pieces[-1] += _ids(tokenizer, literal)
                pieces.append([])
                around.append((lead, tail))
                before = after
            pieces[-1] += _ids(tokenizer, before)
        arrays = [np.array(ids, dtype=np.int64) for ids in pieces]
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0
        template = PairTemplate(arrays[0], arrays[1], arrays[2], types=None, pad=int(pad))
        texts = zip(SAMPLE, around, strict=True)
        query, document = (_ids(tokenizer, f"{lead}{text}{tail}") for text, (lead, tail) in texts)
        apart = [*pieces[0], *query, *pieces[1], *document, *pieces[2]]
        whole = [token for part in self.filled(*SAMPLE, tokenizer.bos_token or "") for token in _ids(tokenizer, part)]
        if apart != whole:
            why = "its tokenizer joins the template and the texts in it"
            advice = "put {query} and {document} into parts of their own"
            raise UserError(f"{tokenizer.name_or_path}: {why}; {advice}")
        return template, (around[0], around[1])

    def filled(self, query: str, document: str, bos: str = "") -> list[str]:
        texts = {"{query}": query, "{document}": document}
        return ["".join(texts.get(word, word) for word in PLACES.split(part)) for part in self.texts(bos)]

    def chat_template(self, bos: str) -> str:
        """The same for Jinja, of messages with the roles ``query`` and ``document``."""
        words = PLACES.split("".join(self.texts(bos)))
        return "".join(ROLES[word] if word in ROLES else _quoted(word) for word in words)


ROLES = {
    place: "{{ messages | selectattr('role', 'equalto', '" + role + "') | map(attribute='content') | first }}"
    for place, role in (("{query}", "query"), ("{document}", "document"))
}


def _quoted(text: str) -> str:
    """A text as Jinja prints it, line ends and braces included."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return "{{ '" + escaped + "' }}" if text else ""


def _cut(text: str, pattern: str) -> tuple[str, str]:
    """A text without what a pattern finds at its end or start, and that."""
    found = re.search(pattern, text)
    return (text, "") if found is None else (text[: found.start()] + text[found.end() :], found[0])


def _ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) if text else []


def _read(template: str) -> tuple[str, dict[str, Any]]:
    """What a file holds, and how to call it in messages."""
    path = SHIPPED / f"{template}.yaml"
    if not path.is_file():
        path = Path(template)
    if not path.is_file():
        names = sorted(file.stem for file in SHIPPED.glob("*.yaml"))
        raise UserError(f"model.template: no file {template}, and none of {', '.join(names)}{nearest(template, names)}")
    where = template if path.parent == SHIPPED else str(path)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{where}: neither YAML nor JSON ({str(error).splitlines()[0]})") from error
    if not isinstance(content, dict):
        raise UserError(f"{where}: expected keys such as parts and yes")
    return where, {str(YAML_1_1.get(key, key)): value for key, value in content.items()}
