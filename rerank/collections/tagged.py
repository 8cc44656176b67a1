"""TREC's markup: the text of tagged documents, and files of topics (``<top>``)."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rerank.collections.base import checked_id
from rerank.errors import UserError
from rerank.storage.files import read_text

TAG = re.compile(r"<!--.*?-->|</?([a-zA-Z][^\s<>]*)[^<>]*>", re.DOTALL)
# Ids, the header lines that a web crawl put before the page, programs and styles are not text; CDATA is.
NOT_TEXT = re.compile(r"<(DOCNO|DOCID|DOCHDR)>.*?</\1>|<(script|style)\b[^<>]*>.*?</\2\s*>", re.DOTALL | re.IGNORECASE)
CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
TOPIC = re.compile(r"<top>(.*?)</top>", re.DOTALL | re.IGNORECASE)
NUMBER = re.compile(r"<num>\s*(?:Number:)?\s*([^\s<]+)", re.IGNORECASE)
LABEL = re.compile(r"\s*(?:(?:Topic|Description|Narrative):)?\s*", re.IGNORECASE)


def tagged_text(markup: str) -> str:
    """Return a document's text without tags and blank lines, entities resolved."""
    text = CDATA.sub(lambda found: html.escape(found[1]), NOT_TEXT.sub(" ", markup))
    return "\n".join(line for line in map(str.strip, html.unescape(TAG.sub(" ", text)).splitlines()) if line)


def topics(path: Path, fields: Sequence[str] | None = None) -> Iterator[tuple[str, str, str]]:
    """Yield place, number and text of each topic of a TREC file; the title makes the text unless fields are named."""
    text = read_text(path)
    ends = re.findall("</?top>", text.lower())
    if ends != ["<top>", "</top>"] * (len(ends) // 2):
        raise UserError(f"{path}: expected <top> and </top> in turns")
    for block in TOPIC.finditer(text):
        line, markup = text.count("\n", 0, block.start()) + 1, block[1]
        where = f"{path}:{line}"
        number = NUMBER.search(markup)
        if number is None:
            raise UserError(f"{where}: this topic has no number; expected <num>…")
        parts = []
        for field in fields or ("title",):
            name, flags = re.escape(field), re.DOTALL | re.IGNORECASE
            found = re.search(rf"<{name}>(.*?)</{name}>", markup, flags)  # with markup in it, if there is some
            found = found or re.search(rf"<{name}>((?:[^<]|<(?![a-z/!]))*)", markup, flags)
            if found is None:
                tags = {match[1].lower() for match in TAG.finditer(markup) if match[1]}
                there = ", ".join(sorted(tags - {"num"})) or "none"
                raise UserError(f"{where}: this topic has no {field}; expected <{field}>…; its tags: {there}")
            parts.append(TAG.sub(" ", LABEL.sub("", found[1], count=1)))
        yield where, checked_id(number[1], where), " ".join(html.unescape(" ".join(parts)).split())
