"""Choose among columns, their fusion and models on held-out queries: ``rerank auto``."""
