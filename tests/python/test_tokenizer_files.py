"""Folders without tokenizer.json: the ids of the tokenizer that their other files say."""

from __future__ import annotations

import base64
import json
import random
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from c_library import CEngine
from charsmaps import charsmap
from tokenizer_files import (
    BPE,
    BYTE,
    BYTE_TEXTS,
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    UNUSED,
    USER,
    Piece,
    bpe_pieces,
    model_proto,
    ranked_tokens,
    spell_bpe,
    spell_by_rank,
    tekken_file,
    tiktoken_file,
    word_lists,
    write_folder,
)
from tokenizer_kinds import QWEN_2, TEKKEN, gpt_2, gpt_2_with_space, qwen_2, some_texts, tekken
from tokenizers import Regex
from tokenizers import pre_tokenizers as splits

import mlc_native
from mlc_native import MLCEngine, _core
from mlc_native.support.inspection import inspect_model
from mlc_native.support.json_file import read_json_object
from mlc_native.tokenizers import Tokenizer

DEMO = Path(mlc_native.__file__).parent / "demo_model"
KIMI = (
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ("<unk>", "<s>", "</s>", "<pad>", "<mask>", "<|", "[", "<0x", "<sep>")


def plain_texts(count: int, seed: int = 3) -> list[str]:
    """Texts without special tokens."""
    texts = some_texts(seed, count)
    return [text for text in texts if not any(token in text for token in SPECIAL)]


def whole(tokenizer: Tokenizer, text: str) -> list[int]:
    """With the special tokens around it, also where the text has them."""
    special = tokenizer.special_tokens
    return [*special.front, *tokenizer.encode(text), *special.back]


def made(folder: Path) -> dict[str, Any]:
    return read_json_object(folder / "tokenizer.json")


# ------------------------------------------------------------------------------- SentencePiece


@pytest.mark.parametrize("byte_fallback", [True, False])
@pytest.mark.parametrize("adds_space", [True, False])
def test_sentencepiece_bpe(tmp_path: Path, byte_fallback: bool, adds_space: bool) -> None:
    pieces = bpe_pieces(byte_fallback)
    model = model_proto(
        pieces,
        model_type=BPE,
        byte_fallback=int(byte_fallback),
        add_dummy_prefix=int(adds_space),
        remove_extra_whitespaces=0,
    )
    tokenizer = Tokenizer(write_folder(tmp_path, {"tokenizer.model": model}))
    texts = plain_texts(400)
    for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
        spaced = text.replace(" ", "▁")
        assert ids == spell_bpe("▁" * (adds_space and bool(text)) + spaced, pieces), text
    assert tokenizer.special_tokens.front == (1,)
    assert tokenizer.special_tokens.back == ()
    assert sorted(tokenizer.special_texts) == ["</s>", "<s>", "<unk>"]


def test_spaces_that_sentencepiece_removes(tmp_path: Path) -> None:
    """And characters that it replaces, before it joins spaces."""
    pieces = bpe_pieces()
    replaced = base64.b64decode(charsmap({"\t": " ", "½": "1/2", "x": " y"}))
    model = model_proto(pieces, model_type=BPE, byte_fallback=1, precompiled_charsmap=replaced)
    tokenizer = Tokenizer(write_folder(tmp_path, {"tokenizer.model": model}))
    for text in ["  a \t b½  c  ", "xx the  name", "a", "   ", "\t"]:
        clean = text.replace("\t", " ").replace("½", "1/2").replace("x", " y").split()
        expected = spell_bpe("".join(f"▁{word}" for word in clean), pieces)
        assert tokenizer.encode(text) == expected, text


@pytest.mark.parametrize(
    ("settings", "front", "back"),
    [
        ({}, (1,), ()),
        ({"add_bos_token": False}, (), ()),
        ({"add_bos_token": True, "add_eos_token": True}, (1,), (2,)),
        ({"bos_token": None}, (), ()),
        ({"bos_token": {"content": "</s>"}}, (2,), ()),
    ],
)
def test_tokens_around_a_text(
    tmp_path: Path, settings: dict[str, Any], front: tuple[int, ...], back: tuple[int, ...]
) -> None:
    files = {"tokenizer.model": model_proto(bpe_pieces(), model_type=BPE, byte_fallback=1)}
    folder = write_folder(tmp_path, {**files, "tokenizer_config.json": settings})
    special = Tokenizer(folder).special_tokens
    assert (special.front, special.back) == (front, back)


def test_legacy_decides_where_spaces_are_added(tmp_path: Path) -> None:
    """Where it is false, a text behind a special token gets none, as in transformers."""
    pieces = bpe_pieces()
    files = {"tokenizer.model": model_proto(pieces, model_type=BPE, byte_fallback=1,
                                            remove_extra_whitespaces=0)}  # fmt: skip
    for legacy, prefix in ((True, "▁"), (None, "▁"), (False, "")):
        settings = {} if legacy is None else {"legacy": legacy}
        folder = tmp_path / str(legacy)
        write_folder(folder, {**files, "tokenizer_config.json": settings})
        ids = Tokenizer(folder).encode("the</s>name")
        assert ids == [*spell_bpe("▁the", pieces), 2, *spell_bpe(f"{prefix}name", pieces)]


def unigram_pieces(special: list[Piece]) -> list[Piece]:
    """Scores and pieces by chance: many texts have several spellings."""
    rng = random.Random(4)
    texts = "".join(some_texts(5, 300)).replace(" ", "▁")
    found = {c for c in texts if rng.random() < 0.8}
    found |= {texts[at : at + rng.randrange(1, 6)] for at in rng.sample(range(len(texts) - 6), 700)}
    found -= {text for text, _, _ in special} | set(BYTE_TEXTS)
    scored = [(text, -float(rng.randrange(1, 60)) / 4, NORMAL) for text in sorted(found)]
    return [*special, *scored]


FAIRSEQ: list[Piece] = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
OF_T5: list[Piece] = [("<pad>", 0.0, CONTROL), ("</s>", 0.0, CONTROL), ("<unk>", 0.0, UNKNOWN)]


def scored(pieces: list[Piece]) -> list[tuple[str, float]]:
    return [(text, score) for text, score, _ in pieces]


@pytest.mark.parametrize(
    ("name", "config", "special"),
    [
        ("sentencepiece.bpe.model", {"model_type": "xlm-roberta"}, FAIRSEQ),
        ("sentencepiece.bpe.model", {"model_type": "camembert"}, FAIRSEQ),
        ("spiece.model", {"model_type": "t5"}, OF_T5),
    ],
)
def test_unigram_of_encoders(
    tmp_path: Path, name: str, config: dict[str, Any], special: list[Piece]
) -> None:
    """As transformers numbers the pieces: shifted, or with sentinels behind them."""
    pieces = unigram_pieces(special)
    table = base64.b64decode(charsmap({"ﬁ": "fi", "\u00a0": " ", "½": "1/2", "ß": "ss"}))
    unk_id = special.index(("<unk>", 0.0, UNKNOWN))
    model = model_proto(pieces, unk_id=unk_id, precompiled_charsmap=table)
    folder = write_folder(tmp_path, {name: model, "config.json": config})
    options = {"_spm_precompiled_charsmap": table}
    kind = config["model_type"]
    if kind == "xlm-roberta":
        front = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
        vocab = [*front, *scored(pieces[3:]), ("<mask>", 0.0)]
        other = transformers.XLMRobertaTokenizer(vocab=vocab, **options)
    elif kind == "camembert":
        front = [("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0)]
        vocab = [*front, ("<unk>NOTUSED", -100.0), *scored(pieces[1:]), ("<mask>", 0.0)]
        other = transformers.CamembertTokenizer(vocab=vocab, **options)
    else:
        sentinels = [(f"<extra_id_{i}>", 0.0) for i in range(99, -1, -1)]
        other = transformers.T5Tokenizer(vocab=[*scored(pieces), *sentinels], **options)
    tokenizer = Tokenizer(folder)
    texts = [*some_texts(3, 300), "a<mask>b </s> c<pad>", "x<extra_id_7> y"]
    for text in texts:
        assert whole(tokenizer, text) == other(text)["input_ids"], text
    pair = other("the", "name")["input_ids"]
    items = made(folder)["post_processor"]["pair"]
    special_ids = made(folder)["post_processor"]["special_tokens"]
    ids = []
    for item in items:
        if "Sequence" in item:
            ids += tokenizer.encode("the" if item["Sequence"]["id"] == "A" else "name")
        else:
            ids += special_ids[item["SpecialToken"]["id"]]["ids"]
    assert ids == pair


def test_unigram_with_bytes(tmp_path: Path) -> None:
    """As Llama's tokenizer with Unigram; a piece that is not used is never found."""
    bytes_of = [(text, -20.0, BYTE) for text in BYTE_TEXTS]
    pieces = unigram_pieces([*FAIRSEQ, *bytes_of, ("the", 5.0, UNUSED), ("<sep>", 0.0, USER)])
    model = model_proto(pieces, model_type=UNIGRAM, byte_fallback=1, remove_extra_whitespaces=0)
    tokenizer = Tokenizer(write_folder(tmp_path, {"tokenizer.model": model}))
    unused = len(FAIRSEQ) + 256
    ids = tokenizer.encode("the 漢<sep>")
    assert unused not in ids
    assert ids[-1] == unused + 1
    assert [BYTE_TEXTS.index(f"<0x{byte:02X}>") + 3 for byte in "漢".encode()] == ids[-4:-1]
    assert tokenizer.decode(ids) == "the 漢<sep>"


def test_deberta(tmp_path: Path) -> None:
    special: list[Piece] = [
        *[("[PAD]", 0.0, CONTROL), ("[CLS]", 0.0, CONTROL), ("[SEP]", 0.0, CONTROL)],
        ("[UNK]", 0.0, UNKNOWN),
    ]
    pieces = unigram_pieces(special)
    files = {
        "spm.model": model_proto(pieces, unk_id=3, bos_id=1, eos_id=2, pad_id=0),
        "added_tokens.json": {"[MASK]": len(pieces)},
        "special_tokens_map.json": {"mask_token": "[MASK]"},
    }
    tokenizer = Tokenizer(write_folder(tmp_path, files))
    assert tokenizer.special_tokens.front == (1,)
    assert tokenizer.special_tokens.back == (2,)
    assert tokenizer.token_to_id("[MASK]") == len(pieces)
    assert "[MASK]" in tokenizer.special_texts
    assert tokenizer.encode(" the   name ") == tokenizer.encode("the name")
    types = [
        next(iter(item.values()))["type_id"] for item in made(tmp_path)["post_processor"]["pair"]
    ]
    assert types == [0, 0, 0, 1, 1]


# ------------------------------------------------------------------------------- special tokens


def test_tokens_of_added_tokens_decoder(tmp_path: Path) -> None:
    """Flags, a token in the place of another one, and ids with a gap before them."""
    pieces = bpe_pieces()
    size = len(pieces)
    decoder = {
        "2": {"content": "<|end|>", "special": True},
        str(size + 3): {"content": "<call>", "special": False, "rstrip": True},
        str(size + 5): {"content": "<|user|>", "special": True},
    }
    model = model_proto(pieces, model_type=BPE, byte_fallback=1, remove_extra_whitespaces=0)
    settings = {"added_tokens_decoder": decoder, "eos_token": "<|end|>"}
    files = {"tokenizer.model": model, "tokenizer_config.json": settings}
    tokenizer = Tokenizer(write_folder(tmp_path, files))
    assert tokenizer.token_to_id("</s>") is None
    assert tokenizer.encode("<|end|><call>  <|user|>") == [2, size + 3, size + 5]
    assert sorted(tokenizer.special_texts) == ["<s>", "<unk>", "<|end|>", "<|user|>"]


def test_tokens_of_older_files(tmp_path: Path) -> None:
    """added_tokens.json has ids, special_tokens_map.json says what is special."""
    pieces = bpe_pieces()
    size = len(pieces)
    files = {
        "tokenizer.model": model_proto(pieces, model_type=BPE, byte_fallback=1),
        "added_tokens.json": {"[PAD]": size, "<think>": size + 1},
        "special_tokens_map.json": {
            "pad_token": {"content": "[PAD]", "lstrip": False, "normalized": True},
            "additional_special_tokens": ["<call>"],
        },
    }
    tokenizer = Tokenizer(write_folder(tmp_path, files))
    assert tokenizer.encode("[PAD]<call>") == [size, size + 2]
    assert sorted(tokenizer.special_texts) == ["</s>", "<call>", "<s>", "<unk>", "[PAD]"]
    assert tokenizer.token_to_id("<think>") == size + 1


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
    files = {
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
    assert "<|im_end|>" not in tokenizer.special_texts
    assert tokenizer.special_tokens.front == ()


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


# --------------------------------------------------------------------------------- whole models


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The draft of the demo model, whose tokenizer is in vocab.json and merges.txt."""
    folder = tmp_path / "model"
    shutil.copytree(DEMO / "draft", folder)
    trained = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    model = trained["model"]
    lines = ["#version: 0.2", *(" ".join(merge) for merge in model["merges"])]
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings["tokenizer_class"] = "GPT2Tokenizer"
    settings["added_tokens_decoder"] = {
        str(token.pop("id")): token for token in trained["added_tokens"]
    }
    files = {"vocab.json": model["vocab"], "merges.txt": "\n".join(lines) + "\n",
             "tokenizer_config.json": settings}  # fmt: skip
    write_folder(folder, files)
    (folder / "tokenizer.json").unlink()
    return folder


def test_engines_take_such_folders(folder: Path) -> None:
    """In Python and in C; texts, chats, and grammars of answers."""
    prompt, messages = "The capital of France", [{"role": "user", "content": "Hello there"}]
    limits = {"max_num_sequence": 2, "max_total_sequence_length": 1024}
    fields: dict[str, Any] = {"max_tokens": 12, "temperature": 0}
    answers = []
    for model in (folder, DEMO / "draft"):
        with MLCEngine(str(model), "cpu", verbose=False, **limits) as engine:
            completion = engine.completions.create(prompt=prompt, stop=["zzz"], **fields)
            chat = engine.chat.completions.create(messages=messages, **fields)
            choice = engine.completions.create(
                prompt=prompt, response_format={"type": "json_object"}, **fields
            )
            answers.append(
                [completion.choices[0].text, chat.choices[0].message.content,
                 choice.choices[0].text])  # fmt: skip
    assert answers[0] == answers[1]
    with CEngine(folder, **limits) as engine:
        (answer,) = engine.answers({"prompt": prompt, **fields})
    assert answer.text == answers[0][0]
    assert inspect_model(folder)["has_tokenizer"]


def test_a_tokenizer_json_comes_first(folder: Path) -> None:
    shutil.copy(DEMO / "draft" / "tokenizer.json", folder)
    (folder / "vocab.json").write_text("{", encoding="utf-8")
    text = "Hello 1234 there"
    assert Tokenizer(folder).encode(text) == Tokenizer(DEMO / "draft").encode(text)


def test_asking_for_a_tokenizer_reads_nothing(folder: Path) -> None:
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        (folder / name).write_text("{", encoding="utf-8")
    assert _core.has_model_file(str(folder / "tokenizer.json"))
    assert inspect_model(folder)["has_tokenizer"]
    (folder / "merges.txt").unlink()
    assert not _core.has_model_file(str(folder / "tokenizer.json"))
