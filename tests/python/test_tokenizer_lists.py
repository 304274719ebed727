"""Folders without tokenizer.json whose tokens are those of tiktoken, of tekken.json or of lists."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizer_files import (
    plain_texts,
    ranked_tokens,
    spell_by_rank,
    tekken_file,
    tiktoken_file,
    whole,
    word_lists,
    write_folder,
)
from tokenizer_kinds import (
    LLAMA_3,
    QWEN_2,
    TEKKEN,
    gpt_2,
    gpt_2_with_space,
    llama_3,
    qwen_2,
    some_texts,
    tekken,
)
from tokenizers import Regex
from tokenizers import pre_tokenizers as splits

from mlc_native.support.json_file import read_json_object
from mlc_native.tokenizers import Tokenizer

KIMI = (
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


# ----------------------------------------------------------------------------- ranks of tokens


def test_first_qwen(tmp_path: Path) -> None:
    tokens = ranked_tokens(qwen_2())
    folder = write_folder(tmp_path, {"qwen.tiktoken": tiktoken_file(tokens),
                                     "config.json": {"model_type": "qwen"}})  # fmt: skip
    tokenizer = Tokenizer(folder)
    words = splits.Split(Regex(QWEN_2), "isolated")
    for text in plain_texts(300):
        composed = unicodedata.normalize("NFC", text)
        assert tokenizer.encode(text) == spell_by_rank(composed, tokens, words), text
    ids = tokenizer.encode("<|endoftext|><|im_start|><|im_end|><|extra_0|><|extra_204|>")
    assert ids == [len(tokens) + i for i in (0, 1, 2, 3, 207)]


def test_kimi(tmp_path: Path) -> None:
    """256 reserved tokens behind the ranks, some with names."""
    tokens = ranked_tokens(gpt_2())
    first = len(tokens)
    named = {first: "[BOS]", first + 7: "<|im_end|>", first + 255: "[PAD]"}
    decoder = {str(i): {"content": text, "special": i != first + 7} for i, text in named.items()}
    files: dict[str, Any] = {
        "tiktoken.model": tiktoken_file(tokens),
        "config.json": {"model_type": "deepseek_v3"},
        "tokenizer_config.json": {
            "tokenizer_class": "TikTokenTokenizer",
            "added_tokens_decoder": decoder,
            "bos_token": "[BOS]",
        },
    }
    tokenizer = Tokenizer(write_folder(tmp_path, files))
    words = splits.Split(Regex(KIMI), "isolated")
    for text in [*plain_texts(300), "中文 text中文。12345's", "日本の桜ABC'll"]:
        assert tokenizer.encode(text) == spell_by_rank(text, tokens, words), text
    reserved = f"<|reserved_token_{first + 8}|>"
    assert tokenizer.encode(f"[BOS]<|im_end|>{reserved}[PAD]") == [
        first, first + 7, first + 8, first + 255]  # fmt: skip
    assert tokenizer.vocab_size == first + 256
    # A word keeps its id, and the token that asks for it comes behind the others.
    files["tokenizer_config.json"]["added_tokens_decoder"]["300"] = {"content": "<new>"}
    other = Tokenizer(write_folder(tmp_path, files))
    assert other.encode("[BOS]<new>[PAD]") == [first, first + 256, first + 255]
    assert other.encode("the name") == tokenizer.encode("the name")
    assert "<|im_end|>" not in tokenizer.special_texts
    assert tokenizer.special_tokens.front == ()


def test_llama_3(tmp_path: Path) -> None:
    """Its tokenizer.model is a file of tiktoken."""
    tokens = ranked_tokens(llama_3())
    decoder = {str(len(tokens) + i): {"content": text, "special": True}
               for i, text in enumerate(["<|begin_of_text|>", "<|end_of_text|>"])}  # fmt: skip
    files = {
        "tokenizer.model": tiktoken_file(tokens),
        "config.json": {"model_type": "llama"},
        "tokenizer_config.json": {
            "added_tokens_decoder": decoder,
            "bos_token": "<|begin_of_text|>",
        },
    }
    tokenizer = Tokenizer(write_folder(tmp_path, files))
    words = splits.Split(Regex(LLAMA_3), "isolated")
    for text in plain_texts(200):
        assert tokenizer.encode(text) == spell_by_rank(text, tokens, words), text
    assert tokenizer.special_tokens.front == (len(tokens),)
    assert tokenizer.encode("<|end_of_text|>") == [len(tokens) + 1]


def test_ranks_that_leave_some_out(tmp_path: Path) -> None:
    """An id without a token, and lines in any order."""
    tokens = ranked_tokens(qwen_2())
    lines = tiktoken_file(tokens).splitlines(keepends=True)
    del lines[300]
    random.Random(1).shuffle(lines)
    folder = write_folder(tmp_path, {"qwen.tiktoken": b"".join(lines),
                                     "config.json": {"model_type": "qwen"}})  # fmt: skip
    tokenizer = Tokenizer(folder)
    missing = [*tokens[:300], b"\xff" * 9, *tokens[301:]]
    words = splits.Split(Regex(QWEN_2), "isolated")
    for text in plain_texts(100):
        composed = unicodedata.normalize("NFC", text)
        assert tokenizer.encode(text) == spell_by_rank(composed, missing, words), text
    assert tokenizer.id_to_token(300) is None


@pytest.mark.parametrize("lists_special", [False, True])
def test_tekken(tmp_path: Path, lists_special: bool) -> None:
    tokens = ranked_tokens(tekken())
    special = [
        {"rank": i, "token_str": text} for i, text in enumerate(["<u>", "<s>", "</s>", "[X]"])
    ]
    changes = {"special_tokens": special} if lists_special else {}
    folder = write_folder(tmp_path, {"tekken.json": tekken_file(tokens, TEKKEN, **changes)})
    tokenizer = Tokenizer(folder)
    words = splits.Split(Regex(TEKKEN), "isolated")
    for text in plain_texts(300):
        assert tokenizer.encode(text) == spell_by_rank(text, tokens, words, first=10), text
    assert tokenizer.special_tokens.front == (1,)
    assert tokenizer.vocab_size == len(tokens) + 10
    third = "[X]" if lists_special else "[INST]"
    last = "<SPECIAL_9>" if lists_special else "[TOOL_CALLS]"
    assert tokenizer.encode(f"<s>{third}{last}") == [1, 3, 9]
    config = read_json_object(folder / "tokenizer_config.json")
    assert (config["bos_token"], config["eos_token"]) == ("<s>", "</s>")
    write_folder(folder, {"tokenizer_config.json": {"bos_token": "<s>", "add_bos_token": False}})
    assert Tokenizer(folder).special_tokens.front == ()


# -------------------------------------------------------------------------------- lists of words

LISTS: dict[str, tuple[Callable[[], Any], list[str], dict[str, Any], str]] = {
    "gpt2": (gpt_2, ["<|endoftext|>"], {}, "GPT2Tokenizer"),
    "opt": (
        gpt_2,
        ["<pad>", "</s>"],
        {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "bos_token": "</s>",
         "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"},
        "GPT2Tokenizer",
    ),
    "roberta": (gpt_2, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], {}, "RobertaTokenizer"),
    "bart": (
        gpt_2_with_space,
        ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        {"tokenizer_class": "RobertaTokenizerFast", "add_prefix_space": True},
        "RobertaTokenizer",
    ),
    "qwen2": (
        qwen_2,
        [],
        {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>",
         "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]},
        "Qwen2Tokenizer",
    ),
}  # fmt: skip


@pytest.mark.parametrize("family", LISTS)
def test_vocab_and_merges(tmp_path: Path, family: str) -> None:
    train, special, settings, other_class = LISTS[family]
    files = {**word_lists(train(), special), "config.json": {"model_type": family}}
    if settings:
        files["tokenizer_config.json"] = settings
    tokenizer = Tokenizer(write_folder(tmp_path, files))
    other = getattr(transformers, other_class).from_pretrained(tmp_path)
    for text in [*some_texts(3, 300), *(f"a{token} b" for token in special)]:
        assert whole(tokenizer, text) == other(text)["input_ids"], text


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "<pad>", "</s>", "<mask>"]


@pytest.mark.parametrize(
    ("settings", "other_class"),
    [
        ({}, "BertTokenizer"),
        ({"do_lower_case": False}, "BertTokenizer"),
        ({"strip_accents": False, "tokenize_chinese_chars": False}, "BertTokenizer"),
        ({"tokenizer_class": "DistilBertTokenizer", "do_lower_case": True}, "BertTokenizer"),
        ({"tokenizer_class": "MPNetTokenizer"}, "MPNetTokenizer"),
    ],
)
def test_word_pieces(tmp_path: Path, settings: dict[str, Any], other_class: str) -> None:
    letters = sorted({c for text in some_texts(1, 500) for c in text if not c.isspace()})
    words = ["the", "name", "and", "##me", "##e", "na", "Name", "don", "zażółć", "zazo", "##łc"]
    lines = [*WORDS, *words, *letters, *(f"##{letter}" for letter in letters)]
    lines = list(dict.fromkeys(lines))
    files = {"vocab.txt": "\n".join(lines) + "\n", "config.json": {"model_type": "bert"},
             "tokenizer_config.json": settings}  # fmt: skip
    tokenizer = Tokenizer(write_folder(tmp_path, files))
    other = getattr(transformers, other_class).from_pretrained(tmp_path)
    for text in [*some_texts(3, 200), "the[MASK]  name Zażółć 日本 [SEP]"]:
        assert whole(tokenizer, text) == other(text)["input_ids"], text
