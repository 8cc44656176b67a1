"""Whole experiments: the demo, and methods compared over folds and seeds (``rerank experiment``)."""
