"""Train BERT-style rerankers on whole ranked lists, with differentiable ranking metrics as losses.

Names are imported at their first use, so that ``import rerank`` does not import torch; ``__init__.pyi`` lists them.
"""

from __future__ import annotations

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
