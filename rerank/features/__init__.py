"""Feature vectors: LETOR and svmlight files parsed into lists, normalisers."""
