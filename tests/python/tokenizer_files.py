"""Small tokenizers in the forms that model folders have besides tokenizer.json.

The files are written here, byte by byte where no package does it, and the references of BPE are a
few lines that join the best two neighbours until none is left.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizer_kinds import some_texts
from tokenizers import Tokenizer
from tokenizers import pre_tokenizers as splits

from mlc_native import tokenizers as ours

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
Piece = tuple[str, float, int]
BYTE_TEXTS = [f"<0x{byte:02X}>" for byte in range(256)]


def write_folder(folder: Path, files: Mapping[str, Any]) -> Path:
    """A folder of these files: bytes, texts, or what is written as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / name).write_text(text, encoding="utf-8")
    return folder


SPECIAL = ("<unk>", "<s>", "</s>", "<pad>", "<mask>", "<|", "[", "<0x", "<sep>")


def plain_texts(count: int, seed: int = 3) -> list[str]:
    """Texts without special tokens."""
    texts = some_texts(seed, count)
    return [text for text in texts if not any(token in text for token in SPECIAL)]


def whole(tokenizer: ours.Tokenizer, text: str) -> list[int]:
    """With the special tokens around it, also where the text has them."""
    special = tokenizer.special_tokens
    return [*special.front, *tokenizer.encode(text), *special.back]


# ---- SentencePiece


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    groups = []
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def proto(fields: Iterable[tuple[int, Any]]) -> bytes:
    """A message in protobuf's wire format: integers, floats, and texts or bytes."""
    parts = []
    for number, value in fields:
        if isinstance(value, float):
            parts += [varint(number << 3 | 5), struct.pack("<f", value)]
        elif isinstance(value, int):
            parts += [varint(number << 3), varint(value)]
        else:
            data = value.encode() if isinstance(value, str) else value
            parts += [varint(number << 3 | 2), varint(len(data)), data]
    return b"".join(parts)


# The numbers of fields in sentencepiece_model.proto.
TRAINER = {"model_type": 3, "treat_whitespace_as_suffix": 24, "byte_fallback": 35, "unk_id": 40,
           "bos_id": 41, "eos_id": 42, "pad_id": 43}  # fmt: skip
NORMALIZER = {"precompiled_charsmap": 2, "add_dummy_prefix": 3, "remove_extra_whitespaces": 4,
              "escape_whitespaces": 5}  # fmt: skip
UNIGRAM, BPE = 1, 2


def model_proto(pieces: Sequence[Piece], **settings: Any) -> bytes:
    """A model file of SentencePiece. Fields that are not given are left out."""
    fields: list[tuple[int, Any]] = [
        (1, proto([(1, text), (2, float(score)), *([(3, kind)] if kind != NORMAL else [])]))
        for text, score, kind in pieces
    ]
    for number, names in ((2, TRAINER), (3, NORMALIZER)):
        given = [(names[name], value) for name, value in settings.items() if name in names]
        fields.append((number, proto(given)))
    return proto(fields)


def joined(parts: list[Any], score: Callable[[Any], float | None]) -> list[Any]:
    """Joins the two neighbours whose union has the best score, the first of equal ones."""
    parts = list(parts)
    while True:
        unions = [(score(parts[i] + parts[i + 1]), -i) for i in range(len(parts) - 1)]
        known = [(each, place) for each, place in unions if each is not None]
        if not known:
            return parts
        at = -max(known)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def bpe_pieces(byte_fallback: bool = True) -> list[Piece]:
    """As Llama's: three control tokens, bytes, and pieces of which longer ones are spelled."""
    texts = "".join(some_texts(8, 400)).replace(" ", "▁")
    counts: dict[str, int] = {}
    for size in range(2, 7):
        for at in range(len(texts) - size):
            part = texts[at : at + size]
            counts[part] = counts.get(part, 0) + 1
    for text in ("<unk>", "<s>", "</s>", *BYTE_TEXTS):
        counts.pop(text, None)
    words = sorted(counts, key=lambda text: (-counts[text] * len(text), text))[:700]
    letters = sorted({letter for word in words for letter in word})
    scores = {word: -float(i) for i, word in enumerate(words)}
    return [
        *[("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)],
        *[(text, 0.0, BYTE) for text in (BYTE_TEXTS if byte_fallback else [])],
        *[(word, scores[word], NORMAL) for word in words],
        *[(letter, -5000.0 - i, NORMAL) for i, letter in enumerate(letters)],
    ]


def spell_bpe(text: str, pieces: Sequence[Piece]) -> list[int]:
    """The ids of a text whose spaces are "▁"."""
    ids = {piece: i for i, (piece, _, _) in enumerate(pieces)}
    scores = {piece: score for piece, score, kind in pieces if kind == NORMAL}
    found: list[int] = []
    was_unknown = False
    for part in joined(list(text), scores.get):
        is_known = part in scores
        if is_known:
            found.append(ids[part])
        elif "<0x00>" in ids:
            found += [ids[f"<0x{byte:02X}>"] for byte in part.encode()]
        elif not was_unknown:
            found.append(ids["<unk>"])
        was_unknown = not is_known
    return found


# ---- tokens by their ranks


def byte_alphabet() -> dict[str, int]:
    """GPT-2's characters for bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {
        chr(256 + i): byte for i, byte in enumerate(others)
    }


def ranked_tokens(trained: Tokenizer) -> list[bytes]:
    """The tokens of byte-level BPE as bytes: all bytes, and others in the order of merges."""
    vocab = json.loads(trained.to_str())["model"]["vocab"]
    bytes_of = byte_alphabet()
    return [bytes(bytes_of[c] for c in token) for token in sorted(vocab, key=vocab.__getitem__)]


def tiktoken_file(tokens: Sequence[bytes]) -> bytes:
    lines = (base64.b64encode(token) + f" {rank}\n".encode() for rank, token in enumerate(tokens))
    return b"".join(lines)


def tekken_file(tokens: Sequence[bytes], pattern: str, **changes: Any) -> dict[str, Any]:
    """Ten special tokens, and two tokens more than the vocabulary takes."""
    vocab: list[dict[str, Any]] = [
        {"rank": i, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for i, token in enumerate([*tokens, b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\xff"])
    ]
    config = {
        "pattern": pattern,
        "num_vocab_tokens": len(vocab),
        "default_vocab_size": len(tokens) + 10,
        "default_num_special_tokens": 10,
        "version": "v3",
    }
    return {"config": config, "vocab": vocab, **changes}


def spell_by_rank(
    text: str, tokens: Sequence[bytes], words: splits.PreTokenizer, first: int = 0
) -> list[int]:
    """What tiktoken does: a word that is a token, or else its bytes, joined by the lowest rank."""
    ranks = {token: rank for rank, token in enumerate(tokens)}
    bytes_of = byte_alphabet()
    found: list[int] = []
    for word, _ in splits.Sequence(
        [words, splits.ByteLevel(False, use_regex=False)]
    ).pre_tokenize_str(text):
        data = bytes(bytes_of[c] for c in word)
        parts = [data[i : i + 1] for i in range(len(data))]
        if data in ranks:
            parts = [data]

        def score(union: bytes) -> float | None:
            return -float(ranks[union]) if union in ranks else None

        found += [first + ranks[part] for part in joined(parts, score)]
    return found


def word_lists(trained: Tokenizer, special: Sequence[str] = ()) -> dict[str, Any]:
    """vocab.json and merges.txt."""
    model = json.loads(trained.to_str())["model"]
    vocab = dict(model["vocab"])
    for token in special:
        vocab.setdefault(token, len(vocab))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    return {"vocab.json": vocab, "merges.txt": "\n".join(["#version: 0.2", *merges, ""])}
