"""Compare methods over folds and seeds: ``rerank experiment``."""
