"""Lucene's analysers of languages: how a text becomes terms."""

from __future__ import annotations

from typing import Any

from rerank.collections.jvm import java_class
from rerank.errors import UserError, nearest

ENGLISH = "DefaultEnglishAnalyzer(porter)"
"""Anserini's own, which all its published numbers have: Porter stemming, Lucene's stop words."""

_LUCENE = "org.apache.lucene.analysis."
ANALYZERS = {
    "en": ENGLISH,
    **{
        language: f"{_LUCENE}{language}.{name}Analyzer"
        for language, name in (
            *(("ar", "Arabic"), ("bg", "Bulgarian"), ("bn", "Bengali"), ("ca", "Catalan"), ("ckb", "Sorani")),
            *(("da", "Danish"), ("de", "German"), ("el", "Greek"), ("es", "Spanish"), ("et", "Estonian")),
            *(("eu", "Basque"), ("fa", "Persian"), ("fi", "Finnish"), ("fr", "French"), ("ga", "Irish")),
            *(("gl", "Galician"), ("hi", "Hindi"), ("hu", "Hungarian"), ("hy", "Armenian"), ("id", "Indonesian")),
            *(("it", "Italian"), ("ja", "Japanese"), ("lt", "Lithuanian"), ("lv", "Latvian"), ("ne", "Nepali")),
            *(("nl", "Dutch"), ("no", "Norwegian"), ("pt", "Portuguese"), ("ro", "Romanian"), ("ru", "Russian")),
            *(("sr", "Serbian"), ("sv", "Swedish"), ("ta", "Tamil"), ("te", "Telugu"), ("th", "Thai")),
            *(("tr", "Turkish"), ("uk", "UkrainianMorfologik")),
        )
    },
    "cs": f"{_LUCENE}cz.CzechAnalyzer",
    "pl": f"{_LUCENE}morfologik.MorfologikAnalyzer",
    "ko": f"{_LUCENE}cjk.CJKAnalyzer",
    "zh": f"{_LUCENE}cjk.CJKAnalyzer",
}
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
