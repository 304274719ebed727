"""Folders without tokenizer.json that have a model file of SentencePiece."""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any

import pytest
import transformers
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
    plain_texts,
    spell_bpe,
    whole,
    write_folder,
)
from tokenizer_kinds import some_texts

from mlc_native.support.json_file import read_json_object
from mlc_native.tokenizers import Tokenizer


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
    """Flags, tokens in the places of others, and ids with a gap before them."""
    pieces = bpe_pieces()
    size = len(pieces)
    place = next(i for i, (text, _, _) in enumerate(pieces) if len(text) > 2 and i > 500)
    decoder = {
        "2": {"content": "<|end|>", "special": True},
        str(place): {"content": "<place>", "special": False},
        str(size + 3): {"content": "<call>", "special": False, "rstrip": True},
        str(size + 5): {"content": "<|user|>", "special": True},
    }
    model = model_proto(pieces, model_type=BPE, byte_fallback=1, remove_extra_whitespaces=0)
    settings = {"added_tokens_decoder": decoder, "eos_token": "<|end|>"}
    files = {"tokenizer.model": model, "tokenizer_config.json": settings}
    tokenizer = Tokenizer(write_folder(tmp_path, files))
    assert tokenizer.token_to_id("</s>") is None
    assert tokenizer.encode("<|end|><place><call>  <|user|>") == [2, place, size + 3, size + 5]
    assert place not in tokenizer.encode(pieces[place][0])
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
    # Also where its flag "normalized" would put a space in front of it.
    assert tokenizer.encode("name[PAD]")[-1] == size
    assert sorted(tokenizer.special_texts) == ["</s>", "<call>", "<s>", "<unk>", "[PAD]"]
    assert tokenizer.token_to_id("<think>") == size + 1
    # tokenizer_config.json changes nothing of it, unless it has what newer files have.
    for settings, expected in (({"pad_token": "<s>"}, [size, size + 2]), ({}, [size, size + 2])):
        write_folder(tmp_path, {"tokenizer_config.json": settings})
        assert Tokenizer(tmp_path).encode("[PAD]<call>") == expected
    write_folder(tmp_path, {"tokenizer_config.json": {"added_tokens_decoder": {}}})
    assert "[PAD]" not in Tokenizer(tmp_path).special_texts
