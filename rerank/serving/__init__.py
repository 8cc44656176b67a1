"""Rankers behind HTTP: ``rerank serve``."""
