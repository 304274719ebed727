"""Damaged and hostile tokenizers in other forms than tokenizer.json.

Each is a LoadError that names the file and the field or the line.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizer_files import (
    BPE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    Piece,
    bpe_pieces,
    model_proto,
    proto,
    ranked_tokens,
    tekken_file,
    tiktoken_file,
    varint,
    word_lists,
    write_folder,
)
from tokenizer_kinds import TEKKEN, gpt_2

from mlc_native.errors import LoadError
from mlc_native.tokenizers import Tokenizer

PIECES: list[Piece] = [
    *[("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)],
    *[("a", -1.0, NORMAL), ("▁", -2.0, NORMAL)],
]


def piece(*fields: tuple[int, Any]) -> bytes:
    return proto([(1, proto(fields))])


def trainer(*fields: tuple[int, Any]) -> bytes:
    return model_proto(PIECES) + proto([(2, proto(fields))])


def normalizer(*fields: tuple[int, Any]) -> bytes:
    return model_proto(PIECES) + proto([(3, proto(fields))])


# What is wrong, the field, and what the message says.
MODELS: dict[str, tuple[bytes, str, str]] = {
    "empty": (b"", "pieces", "are missing"),
    "a text": (b"hello there", "tokenizer.model", "kind that does not exist|bytes, but only"),
    "cut in a piece": (model_proto(PIECES)[:20], "tokenizer.model", "bytes, but only"),
    "cut in a number": (b"\x0a\xff", "tokenizer.model", "ends within a number"),
    "a length of 2^63": (
        b"\x0a" + varint(1 << 63),
        "tokenizer.model",
        "of 9223372036854775808 bytes",
    ),
    "a negative length": (b"\x0a" + varint(-1), "tokenizer.model", "of 18446744073709551615 bytes"),
    "a number without end": (b"\x0a" + b"\xff" * 11, "tokenizer.model", "more than 10 bytes"),
    "no number of a field": (b"\x02\x00", "tokenizer.model", "field without a number"),
    "a group": (b"\x0b", "tokenizer.model", "kind that does not exist"),
    "pieces that are numbers": (proto([(1, 5)]), "pieces", "of another kind"),
    "a length within a piece": (
        proto([(1, b"\x0a\x7fab")]),
        r"pieces\[0\]",
        "of 127 bytes, but only 2",
    ),
    "no text": (piece((2, 1.0)), r"pieces\[0\]", 'has no "piece"'),
    "an empty text": (piece((1, "")), r"pieces\[0\]", 'has no "piece"'),
    "no UTF-8": (piece((1, b"\xff")), r"pieces\[0\]\.piece", "is not valid UTF-8"),
    "a score of no kind": (piece((1, "a"), (2, 3)), r"pieces\[0\]\.score", "of another kind"),
    "a score of NaN": (piece((1, "a"), (2, float("nan"))), r"pieces\[0\]\.score", "no finite"),
    "a type of 7": (piece((1, "a"), (3, 7)), r"pieces\[0\]\.type", r"= 7, must be in \[1, 6\]"),
    "two equal pieces": (piece((1, "a")) + piece((1, "a")), r"pieces\[1\]", "another piece"),
    "words": (trainer((3, 3)), r"trainer_spec\.model_type", "words or characters"),
    "a model of type 9": (trainer((3, 9)), r"trainer_spec\.model_type", r"= 9, must be in"),
    "suffixes": (trainer((24, 1)), r"trainer_spec\.treat_whitespace_as_suffix", "not supported"),
    "unk of -1": (trainer((40, -1)), r"trainer_spec\.unk_id", "= -1, must be in"),
    "unk of no piece": (trainer((40, 5)), "trainer_spec", '"unk_id" of 5'),
    "bos of 2^40": (trainer((41, 1 << 40)), r"trainer_spec\.bos_id", "= 1099511627776"),
    "a flag of 2": (trainer((35, 2)), r"trainer_spec\.byte_fallback", r"= 2, must be in \[0, 1\]"),
    "a text as a flag": (
        normalizer((3, "x")),
        r"normalizer_spec\.add_dummy_prefix",
        "another kind",
    ),
    "spaces as they are": (normalizer((5, 0)), r"normalizer_spec\.escape_whitespaces", "= false"),
}


@pytest.mark.parametrize("what", MODELS)
def test_models_of_sentencepiece(tmp_path: Path, what: str) -> None:
    content, field, message = MODELS[what]
    folder = write_folder(tmp_path, {"tokenizer.model": content})
    check_refused(folder, "tokenizer.model", field, message)


def test_pieces_of_too_many_merges(tmp_path: Path) -> None:
    """Each piece is all of the ones before it and a letter: files of a size that grows little."""
    runs = [
        letter * size for letter in map(chr, range(0x4E00, 0x4E00 + 300)) for size in range(1, 171)
    ]
    pieces: list[Piece] = [*PIECES[:3], *((run, -float(i), NORMAL) for i, run in enumerate(runs))]
    folder = write_folder(tmp_path, {"tokenizer.model": model_proto(pieces, model_type=BPE)})
    check_refused(folder, "tokenizer.model", "merges", "more than 4000000 merges|take too long")


def test_a_damaged_table_of_characters(tmp_path: Path) -> None:
    """Its form is that of the tokenizer.json, which is what refuses it."""
    content = normalizer((2, b"\x00\x01\x02\x03\x04"))
    folder = write_folder(tmp_path, {"tokenizer.model": content})
    with pytest.raises(LoadError, match="damaged"):
        Tokenizer(folder)


def check_refused(folder: Path, name: str, field: str, message: str) -> None:
    with pytest.raises(LoadError, match=message) as error:
        Tokenizer(folder)
    assert str(error.value).startswith(str(folder / name))
    assert error.value.field is not None
    assert re.fullmatch(field, error.value.field), error.value.field


TOKENS = ranked_tokens(gpt_2())
LINES = tiktoken_file(TOKENS)


def replaced(line: bytes, at: int = 300) -> bytes:
    lines = LINES.splitlines(keepends=True)
    lines[at] = line
    return b"".join(lines)


RANKS: dict[str, tuple[bytes, str, str]] = {
    "no base64": (replaced(b"a!b= 300\n"), "line 301", "no token in base64"),
    "an odd digit": (replaced(b"YWJjZ 300\n"), "line 301", "no token in base64"),
    "an empty token": (replaced(b" 300\n"), "line 301", "no token in base64"),
    "no rank": (replaced(b"YWJj\n"), "line 301", "a space and a rank"),
    "a rank that is a text": (replaced(b"YWJj x\n"), "line 301", "a space and a rank"),
    "a negative rank": (replaced(b"YWJj -1\n"), "line 301", "a space and a rank"),
    "a rank of 2^64": (replaced(b"YWJj 18446744073709551616\n"), "line 301", "space and a rank"),
    "a rank of 2^40": (replaced(b"YWJj 1099511627776\n"), "line 301", r"1099511627776, must be in"),
    "a rank that is there": (replaced(b"emFiYw== 5\n"), "line 301", "rank 5 of another token"),
    "a token that is there": (replaced(b"YQ== 300\n"), "line 301", "another rank, too"),
    "no token for a byte": (
        b"".join(LINES.splitlines(keepends=True)[1:]),
        "qwen.tiktoken",
        "no token for the byte",
    ),
    "empty": (b"", "qwen.tiktoken", "no token for the byte 0"),
}


@pytest.mark.parametrize("what", RANKS)
def test_ranks(tmp_path: Path, what: str) -> None:
    content, field, message = RANKS[what]
    files = {"qwen.tiktoken": content, "config.json": {"model_type": "qwen"}}
    check_refused(write_folder(tmp_path, files), "qwen.tiktoken", field, message)


@pytest.mark.parametrize("name", ["tiktoken.model", "tokenizer.model", "qwen.tiktoken"])
def test_ranks_of_a_family_that_is_not_known(tmp_path: Path, name: str) -> None:
    files = {name: LINES, "config.json": {"model_type": "other"}}
    folder = write_folder(tmp_path, files)
    check_refused(folder, name, name, '"other" cuts texts is not known')


def tekken(**changes: Any) -> dict[str, Any]:
    file = tekken_file(TOKENS, TEKKEN)
    for place, value in changes.items():
        part, _, name = place.partition("_of_")
        if name:
            file[name][int(part[1:]) if part.startswith("n") else part] = value
        else:
            file[place] = value
    return file


TEKKENS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no config": (tekken(config=None), "default_num_special_tokens", "got nothing"),
    "no pattern": (tekken(pattern_of_config=None), "pattern", "got nothing"),
    "a size of -1": (tekken(default_vocab_size_of_config=-1), "default_vocab_size", "got -1"),
    "a size of 2^40": (
        tekken(default_vocab_size_of_config=1 << 40),
        "default_vocab_size",
        "must be",
    ),
    "a size of more tokens": (tekken(default_vocab_size_of_config=9999), "vocab", "needs 9989"),
    "specials of 2^40": (
        tekken(default_num_special_tokens_of_config=1 << 40),
        "default_num_special_tokens",
        "must",
    ),
    "no vocabulary": (tekken(vocab=None), "vocab", "must be a list"),
    "a token of no kind": (tekken(n7_of_vocab=3), r"vocab\[7\]", "token_bytes"),
    "a token of no base64": (
        tekken(n7_of_vocab={"rank": 7, "token_bytes": "?"}),
        r"vocab\[7\]",
        "no token in base64",
    ),
    "a rank of another place": (
        tekken(n7_of_vocab={"rank": 8, "token_bytes": "YQ=="}),
        r"vocab\[7\]",
        '"rank" 7',
    ),
    "equal tokens": (
        tekken(n300_of_vocab={"rank": 300, "token_bytes": "YQ=="}),
        r"vocab\[300\]",
        "another rank",
    ),
    "a special rank of 10": (
        tekken(special_tokens=[{"rank": 10, "token_str": "x"}]),
        r"special_tokens\[0\]",
        r"\[0, 9\]",
    ),
    "special tokens without a text": (
        tekken(special_tokens=[{"rank": 1}]),
        r"special_tokens\[0\]",
        "token_str",
    ),
    "special tokens of equal ranks": (
        tekken(special_tokens=[{"rank": 1, "token_str": "x"}] * 2),
        r"special_tokens\[1\]",
        "another",
    ),
    "special tokens that are no list": (
        tekken(special_tokens=5),
        "special_tokens",
        "must be a list",
    ),
}


@pytest.mark.parametrize("what", TEKKENS)
def test_tekken(tmp_path: Path, what: str) -> None:
    content, field, message = TEKKENS[what]
    folder = write_folder(tmp_path, {"tekken.json": content})
    check_refused(folder, "tekken.json", field, message)


def lists(**changes: Any) -> dict[str, Any]:
    return {
        **word_lists(gpt_2(), ["<|endoftext|>"]),
        "config.json": {"model_type": "gpt2"},
        **{name.replace("_", "."): content for name, content in changes.items()},
    }


LISTS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "an id of -1": (lists(vocab_json={"a": -1}), "vocab.json", "a", "got -1"),
    "an id of 2^40": (lists(vocab_json={"a": 1 << 40}), "vocab.json", "a", "must be"),
    "an id that is a text": (lists(vocab_json={"a": "0"}), "vocab.json", "a", "must be"),
    "equal ids": (lists(vocab_json={"a": 0, "b": 0}), "vocab.json", "b", "id 0 of another token"),
    "no JSON": (lists(vocab_json="{"), "vocab.json", "vocab.json", "is not valid JSON"),
    "a merge of one": (lists(merges_txt="#version\na\n"), "merges.txt", "line 2", "not two tokens"),
    "a merge of three": (lists(merges_txt="a b c\n"), "merges.txt", "line 1", "not two tokens"),
    "an unknown merge": (
        lists(merges_txt="a z9z\n"),
        "merges.txt",
        "line 1",
        '"z9z", which is not',
    ),
    "no UTF-8": (lists(merges_txt=b"\xff a\n"), "merges.txt", "merges.txt", "not valid UTF-8"),
    "another family": (
        lists(config_json={"model_type": "clip"}),
        "vocab.json",
        "tokenizer_class",
        '"clip" reads',
    ),
    "another class": (
        lists(tokenizer_config_json={"tokenizer_class": "CLIPTokenizer"})
        | {"tokenizer_config.json": {"tokenizer_class": "CLIPTokenizer"}},
        "vocab.json",
        "tokenizer_class",
        "known: GPT2Tokenizer",
    ),
    "no [CLS]": (
        {
            "vocab.txt": "[PAD]\n[UNK]\na\n",
            "config.json": {"model_type": "bert"},
            "tokenizer_config.json": {"cls_token": None},
        },
        "vocab.txt",
        "cls_token",
        'no token for "cls_token"',
    ),
    "word pieces of another family": (
        {"vocab.txt": "a\n", "config.json": {"model_type": "esm"}},
        "vocab.txt",
        "tokenizer_class",
        "known: BertTokenizer",
    ),
}


@pytest.mark.parametrize("what", LISTS)
def test_lists(tmp_path: Path, what: str) -> None:
    files, name, field, message = LISTS[what]
    check_refused(write_folder(tmp_path, files), name, field, message)


SETTINGS: dict[str, tuple[dict[str, Any], str, str]] = {
    "an added id of 2^40": (
        {"added_tokens_decoder": {str(1 << 40): {"content": "x"}}},
        "added_tokens_decoder",
        "must be",
    ),
    "an added id of -1": (
        {"added_tokens_decoder": {"-1": {"content": "x"}}},
        "added_tokens_decoder",
        "id -1",
    ),
    "an added id that is a text": (
        {"added_tokens_decoder": {"7x": {"content": "x"}}},
        "added_tokens_decoder",
        "id -1",
    ),
    "an added token of no kind": (
        {"added_tokens_decoder": {"7": 3}},
        "7",
        'a token with "content"',
    ),
    "a flag that is a text": ({"add_bos_token": "yes"}, "add_bos_token", "must be"),
    "extra ids of 2^40": (
        {"tokenizer_class": "T5Tokenizer", "extra_ids": 1 << 40},
        "extra_ids",
        "must be",
    ),
}


@pytest.mark.parametrize("what", SETTINGS)
def test_settings(tmp_path: Path, what: str) -> None:
    settings, field, message = SETTINGS[what]
    files = {"tokenizer.model": model_proto(PIECES), "tokenizer_config.json": settings}
    check_refused(write_folder(tmp_path, files), "tokenizer_config.json", field, message)


def test_layouts_of_sentencepiece_that_are_refused(tmp_path: Path) -> None:
    files = {"tokenizer.model": model_proto(PIECES, model_type=BPE)}
    for settings, field, message in (
        ({"tokenizer_class": "AlbertTokenizer"}, "tokenizer_class", "AlbertTokenizer is not"),
        ({"tokenizer_class": "T5Tokenizer"}, r"trainer_spec\.model_type", "must be 1"),
        ({"do_lower_case": True}, "do_lower_case", "is not supported"),
    ):
        folder = write_folder(tmp_path, {**files, "tokenizer_config.json": settings})
        check_refused(folder, "tokenizer.model", field, message)


@pytest.mark.parametrize(
    "name", ["tokenizer.model", "spiece.model", "tiktoken.model", "tekken.json", "vocab.txt"]
)
def test_git_lfs_pointers_and_odd_files(tmp_path: Path, name: str) -> None:
    config = {"config.json": {"model_type": "bert"}}
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"
    folder = write_folder(tmp_path / "pointer", {name: pointer, **config})
    check_refused(folder, name, name, 'run "git lfs pull"')
    folder = write_folder(tmp_path / "fifo", config)
    os.mkfifo(folder / name)
    check_refused(folder, name, name, "FIFO")


# ------------------------------------------------------------------------- wrong anywhere


def damages(content: bytes, count: int) -> Iterator[bytes]:
    """Cut, changed and doubled at places by chance, which are the same each time."""
    rng = random.Random(9)
    for _ in range(count):
        data = bytearray(content)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data))
            what = rng.randrange(4)
            if what == 0:
                data[at] = rng.randrange(256)
            elif what == 1:
                data[at] ^= 1 << rng.randrange(8)
            elif what == 2:
                del data[at : at + rng.randrange(1, 30)]
            else:
                data[at:at] = data[at : at + rng.randrange(1, 30)]
            if not data:
                break
        yield bytes(data)


DAMAGED: dict[str, Callable[[], dict[str, Any]]] = {
    "tokenizer.model": lambda: {
        "tokenizer.model": model_proto(bpe_pieces(), model_type=BPE, byte_fallback=1)
    },
    "qwen.tiktoken": lambda: {"qwen.tiktoken": LINES, "config.json": {"model_type": "qwen"}},
    "tekken.json": lambda: {"tekken.json": json.dumps(tekken()).encode()},
    "merges.txt": lambda: {**lists(), "merges.txt": lists()["merges.txt"].encode()},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_files_that_are_wrong_anywhere(tmp_path: Path, name: str) -> None:
    """They load, or a LoadError names the file or the tokenizer.json that is made of it."""
    files = DAMAGED[name]()
    folder = write_folder(tmp_path, files)
    refused: list[str] = []
    for content in damages(files[name], 40):
        (folder / name).write_bytes(content)
        try:
            Tokenizer(folder, trust_regexes=True).encode("Hello wörld 12\n")
        except LoadError as error:
            refused.append(str(error))
    places = (str(folder / name), str(folder / "tokenizer.json"))
    assert refused
    assert [message for message in refused if not message.startswith(places)] == []
