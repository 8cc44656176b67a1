"""The ``rerank`` command."""
