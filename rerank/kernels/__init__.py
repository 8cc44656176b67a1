"""Faster replacements for operations of PyTorch and Transformers; a test compares each with the original.

Also precision, memory, and the cutting of pairs into chunks (``packing``).
"""
