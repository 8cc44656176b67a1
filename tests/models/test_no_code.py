"""A model's folder is data: nothing in it is run."""

from __future__ import annotations

import json
from pathlib import Path

from rerank.models.text.cross_encoder import CrossEncoder
from tests.builders import make_model

CODE = """
from pathlib import Path

from transformers import BertConfig, BertModel

Path(r"PLACE").write_text("it was run")


class Config(BertConfig):
    pass


class Model(BertModel):
    pass
"""


def test_code_beside_the_weights_is_not_run(tmp_path: Path) -> None:
    folder, ran = make_model(tmp_path / "model"), tmp_path / "ran"
    (folder / "mine.py").write_text(CODE.replace("PLACE", str(ran)))
    for name, maps in (
        ("config.json", {"AutoConfig": "mine.Config", "AutoModel": "mine.Model"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["mine.Config", "mine.Config"]}),
    ):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(content | {"auto_map": maps}))
    CrossEncoder(str(folder), query_length=8, document_length=16)
    assert not ran.exists()
