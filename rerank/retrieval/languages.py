"""Lucene's analysers of languages: how a text becomes terms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rerank.collections.jvm import java_class
from rerank.errors import UserError, nearest

ENGLISH = "DefaultEnglishAnalyzer(porter)"
"""Anserini's own, which all its published numbers have: Porter stemming, Lucene's stop words."""

ANALYZERS = dict(line.split() for line in Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8").splitlines())
"""Analysers by the code of their language (ISO 639). Chinese and Korean are cut into pairs of characters."""


def analyzer_name(language: str) -> str:
    """The name of a language's analyser, by which an index says how its texts were analysed.

    >>> analyzer_name("de")
    'org.apache.lucene.analysis.de.GermanAnalyzer'
    """
    if language not in ANALYZERS:
        raise UserError(
            f"language: Lucene has no analyser for {language!r}{nearest(language, ANALYZERS)}; "
            f"there are {', '.join(sorted(ANALYZERS))}"
        )
    return ANALYZERS[language]


def analyzer(language: str) -> Any:
    """The analyser of a language other than English, known to Anserini's indexer by its code from now on."""
    known = java_class("io.anserini.analysis.AnalyzerMap")
    known.analyzerMap.put(language, analyzer_name(language))  # Anserini's own table lacks Greek, Romanian and others
    if language == "th" and not java_class("org.apache.lucene.analysis.th.ThaiTokenizer").DBBI_AVAILABLE:
        raise UserError(
            "language: this Java cannot tell Thai words apart, as it comes without other languages' data; "
            "set JAVA_HOME to a whole JDK, version 21 or later"
        )
    return known.getLanguageSpecificAnalyzer(language)
