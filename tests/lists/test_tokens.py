"""Tokens: those of the tokenizer, kept once; of long texts only the beginning is tokenised, which changes none."""

from __future__ import annotations

import json
import logging
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from rerank.lists import Lists, tokens
from rerank.lists.tokens import Side, encode, tokenise, words_are_apart
from rerank.models.weights import find_model
from tests.builders import QWEN, WORDS, make_lists
from tests.forked import fork

TOKENIZER = AutoTokenizer.from_pretrained(find_model("sentence-transformers/all-MiniLM-L6-v2"))


def test_tokens_are_those_of_the_tokenizer_cut_and_counted(tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    found = tokenise(lists.store, TOKENIZER, query_length=2, document_length=15)
    texts = lists.store.documents.column("text").to_pylist()
    full = [TOKENIZER(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert [found.documents[i].tolist() for i in range(len(texts))] == [ids[:15] for ids in full]
    assert found.document_lengths.tolist() == [min(15, len(ids)) for ids in full]
    assert found.truncated == sum(len(ids) > 15 for ids in full) > 0
    assert set(found.query_lengths.tolist()) == {2}


def test_the_cache_is_found_again_and_keyed_by_what_decides_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = make_lists(tmp_path)
    tokenise(lists.store, TOKENIZER, 8, 32)
    tokenise(lists.store, TOKENIZER, 8, 16)
    assert len(list((lists.store.folder / "tokens").iterdir())) == 2

    def fail(*_: object) -> None:
        raise AssertionError("tokenised again")

    monkeypatch.setattr("rerank.lists.tokens.encode", fail)
    lists = Lists.open(lists.store.folder)  # what the first store remembers is gone
    TOKENIZER(["called"], truncation=True, max_length=3, padding="max_length")  # leaves its settings behind
    tokenise(lists.store, TOKENIZER, 8, 32)
    with pytest.raises(AssertionError, match="again"):
        tokenise(lists.store, TOKENIZER, 8, 24)


def _tokenise(lists: str, mine: str, other: str) -> None:
    """Tokenise lists, no faster than another process comes for them; log it, and write down the tokens."""
    logging.basicConfig(filename=f"{mine}.log", level=logging.INFO, format="%(message)s", force=True)
    end = time.monotonic() + 60

    def slowly(*given: Any) -> Any:
        logging.info("tokenises")
        while "wait" not in (said := read(f"{other}.log")) and "tokenises" not in said and time.monotonic() < end:
            time.sleep(0.01)
        return encode(*given)

    tokens.encode = slowly
    found = tokenise(Lists.open(Path(lists)).store, TOKENIZER, 8, 32)
    sides = [[side[i].tolist() for i in range(len(side.lengths()))] for side in (found.queries, found.documents)]
    Path(f"{mine}.json").write_text(json.dumps(sides))


def read(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""


def test_of_two_processes_one_tokenises_and_the_other_waits(tmp_path: Path) -> None:
    lists, names = make_lists(tmp_path), [str(tmp_path / name) for name in ("one", "two")]
    processes = [fork(_tokenise, str(lists.store.folder), *order) for order in (names, names[::-1])]
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    first, second = sorted((read(f"{name}.log") for name in names), key=lambda said: "wait" in said)
    assert "tokenises" in first and "tokenises" not in second
    assert "waiting for another process" in second
    assert len({read(f"{name}.json") for name in names}) == 1
    assert [path.name[0] == "." for path in (lists.store.folder / "tokens").iterdir()] == [False], "no lock is left"


def bpe(pre: Any, normal: Any = None, **model: Any) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE(**model))
    backend.normalizer, backend.pre_tokenizer = normal, pre
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator([" ".join(WORDS), "aa aaa aaaa it's we're 12 345", "wing\n\n  flow"] * 5, trainer)
    backend.add_special_tokens([AddedToken("<mask>", lstrip=True), AddedToken("<|end|>")])
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def unigram(pre: Any, *normal: Any) -> PreTrainedTokenizerFast:
    pieces = [("▁" + word, -2.0) for word in WORDS] + [(c, -9.0) for c in "▁" + string.printable] + [("aa", -5.0)]
    backend = Tokenizer(models.Unigram([("<unk>", -99.0), *pieces], unk_id=0))
    backend.normalizer, backend.pre_tokenizer = normalizers.Sequence(list(normal)), pre
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def split(pattern: str) -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), BYTES])


META = pre_tokenizers.Metaspace()
CUT: dict[str, Callable[[], Any]] = {
    "BERT": lambda: TOKENIZER,
    "GPT-2, ModernBERT": lambda: bpe(pre_tokenizers.ByteLevel(add_prefix_space=True), normalizers.NFC()),
    "Qwen": lambda: bpe(split(QWEN), normalizers.NFC()),
    "Llama 3": lambda: bpe(split(QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|"))),
    "T5": lambda: unigram(META),
    "XLM-R": lambda: unigram(
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), META]),
        normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip(),
    ),
    "ALBERT": lambda: unigram(META, normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents()),
    "digits": lambda: bpe(pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()])),
}  # fmt: skip
WHOLE: dict[str, Callable[[], Any]] = {
    "Gemma: spaces become letters": lambda: bpe(
        pre_tokenizers.Split(" ", "merged_with_previous"), normalizers.Replace(" ", "▁")
    ),
    "nothing splits": lambda: bpe(None),
    "bytes alone": lambda: bpe(BYTES),
    "Metaspace without a split": lambda: unigram(pre_tokenizers.Metaspace(split=False)),
    "another pattern": lambda: bpe(split(r"\p{L}+ \p{L}+|.")),
    "another way of the same pattern": lambda: bpe(pre_tokenizers.Split(Regex(QWEN), "removed")),
    "a replacement by a pattern": lambda: unigram(META, normalizers.Replace(Regex("a b"), "c")),
    "dropout": lambda: bpe(pre_tokenizers.ByteLevel(), dropout=0.1),
}
PARTS = [*WORDS[:6], *("aaaa", "a", "B", "Σ", "7", "1234", " ", "  ", "\n", "\t", "\u00a0", "\u3000", ".", ",", "'s")]
PARTS += ["``", "''", "-", "é", "e\u0301", " \u0301", "ﬁ", "中", "の", "😀", "\u200d", "\u200b", "\x00", "\ufffd"]
PARTS += ["[SEP]", "<mask>", "<|end|>", "<|", "▁", "Ġ", "##s", "_"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=40).map("".join)
SIDES = st.builds(
    Side, st.integers(1, 6), lead=st.sampled_from(["", " ", "x"]), tail=st.sampled_from(["", "\n", "\n\n"])
)


@pytest.mark.parametrize("name", CUT)
def test_the_tokens_are_those_of_the_whole_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = CUT[name]()
    assert words_are_apart(tokenizer)
    shorter = 0

    @settings(max_examples=150)
    @given(st.lists(TEXTS, min_size=1, max_size=3), SIDES)
    @example(["wing flow wing flow wing flow" * 3], Side(2))
    @example(["a  b  c  d " * 9 + "e f g h" * 9], Side(1, " ", "\n"))
    def check(texts: list[str], side: Side) -> None:
        nonlocal shorter
        monkeypatch.setattr(tokens, "CHARACTERS", 10**9)
        expected = encode(tokenizer, side, texts)
        monkeypatch.setattr(tokens, "CHARACTERS", 1)
        found = encode(tokenizer, side, texts)
        assert found[1] == expected[1] and [a.tolist() for a in found[0]] == [a.tolist() for a in expected[0]]
        shorter += found[1]

    check()
    assert shorter


@pytest.mark.parametrize("name", WHOLE)
def test_of_other_tokenizers_the_whole_text_is_read(name: str) -> None:
    assert not words_are_apart(WHOLE[name]())


def test_an_added_token_with_a_space_is_not_cut() -> None:
    tokenizer = CUT["GPT-2, ModernBERT"]()
    tokenizer.add_tokens(["wing flow"])
    assert not words_are_apart(tokenizer)


def test_a_long_text_costs_what_is_kept_of_it() -> None:
    text = "pressure wave heat transfer " * 100_000
    started = time.process_time()
    encode(TOKENIZER, Side(64), [text])
    assert time.process_time() - started < 1
