"""What is computed faster than its library does it, each held to the plain way by a test.

Beside them what they and their callers share: the arithmetic (``precision``), memory, and the cutting of chunks
(``packing``).
"""
