"""Feature vectors: LETOR and svmlight files parsed into lists, normalisers."""

from __future__ import annotations
