"""Tokenizers of GGUF files: the ids are those of the tokenizer.json that the file was made from.

No real tokenizer is at hand, so some are trained, with the splitting of well-known models as their
tokenizer.json has it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers import pre_tokenizers as splits
from trained_pieces import CONTROL, USER, corpus, spaced_pieces, strings

from mlc_native import tokenizers as ours
from mlc_native._core import LoadError

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = QWEN2.replace(r"\p{L}+|", r"[\p{L}\p{M}]+|").replace(r"[^\s\p{L}", r"[^\s\p{L}\p{M}")
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SEED = QWEN2.replace(r"\p{N}|", r"\p{N}{1}|").replace(r"\p{N}]+[\r\n]*", r"\p{N}\r\n]+")
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
KIMI_UPPER, KIMI_LOWER = (
    rf"[\p{{{case}}}\p{{Lm}}\p{{Lo}}\p{{M}}&&[^\p{{Han}}]]" for case in (r"Lu}\p{Lt", "Ll")
)
KIMI_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI = (
    rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{KIMI_UPPER}*{KIMI_LOWER}+{KIMI_SHORT}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{KIMI_UPPER}+{KIMI_LOWER}*{KIMI_SHORT}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK_LLM = (
    r"[\r\n]",
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",  # noqa: RUF001
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",  # noqa: RUF001
    r"\s+$",
    r"[一-龥ࠀ-一가-퟿]+",
    r"\p{N}+",
)
DEEPSEEK_CODER = (*(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"),)
UNNAMED = (  # as llama.cpp has it
    r"[\p{P}$+<=>^~|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
)
DEEPSEEK = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u30ff]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    + r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)


def byte_level(use_regex: bool) -> splits.PreTokenizer:
    return splits.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def by_regex(*patterns: str) -> splits.PreTokenizer:
    cuts = [splits.Split(Regex(pattern), "isolated") for pattern in patterns]
    return splits.Sequence([*cuts, byte_level(False)])


# tokenizer.ggml.pre -> the splitting, NFC, ignore_merges.
SPLITS: dict[str, tuple[Callable[[], splits.PreTokenizer], bool, bool]] = {
    "gpt-2": (lambda: byte_level(True), False, False),
    "smollm": (
        lambda: splits.Sequence([splits.Digits(individual_digits=True), byte_level(True)]),
        False,
        False,
    ),
    "command-r": (
        lambda: splits.Sequence([splits.Digits(individual_digits=True), byte_level(True)]),
        True,
        False,
    ),
    "falcon": (
        lambda: splits.Sequence(
            [
                splits.Punctuation("contiguous"),
                byte_level(True),
                splits.Digits(individual_digits=False),
                splits.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
            ]
        ),
        False,
        False,
    ),
    "olmo": (lambda: byte_level(True), True, False),
    "llama-bpe": (lambda: by_regex(LLAMA3), False, True),
    "qwen2": (lambda: by_regex(QWEN2), True, False),
    "qwen35": (lambda: by_regex(QWEN35), True, False),
    "tekken": (lambda: by_regex(TEKKEN), False, True),
    "gpt-4o": (lambda: by_regex(GPT4O), False, False),
    "kimi-k2": (lambda: by_regex(KIMI), False, False),
    "seed-coder": (lambda: by_regex(SEED), False, False),
    "deepseek-llm": (lambda: by_regex(*DEEPSEEK_LLM), False, False),
    "deepseek-coder": (lambda: by_regex(*DEEPSEEK_CODER), False, False),
    "default": (lambda: by_regex(*UNNAMED), False, False),
    "deepseek-v3": (lambda: by_regex(*DEEPSEEK), False, False),
}


def added(rstrip: bool = False) -> list[AddedToken]:
    options = {"normalized": False, "rstrip": rstrip}
    return [
        *(AddedToken(text, special=True, **options) for text in CONTROL),
        *(AddedToken(text, special=False, **options) for text in USER),
    ]


def train_byte_level(pre: str) -> Tokenizer:
    make, composes, ignore_merges = SPLITS[pre]
    core = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    core.pre_tokenizer = make()
    core.decoder = decoders.ByteLevel()
    if composes:
        core.normalizer = normalizers.NFC()
    alphabet = splits.ByteLevel.alphabet()
    core.train_from_iterator(
        corpus(),
        trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet, show_progress=False),
    )
    core.add_tokens(added())
    return core


def train_sentencepiece(adds_space: bool, rstrip: bool = False) -> Tokenizer:
    """As the tokenizer.json of Llama 2 (with a space in front of a text) and of Gemma.

    ``rstrip``: as that of Phi-3, most of whose added tokens take the spaces behind them.
    """
    spaces = [normalizers.Prepend("▁")] if adds_space else []
    core = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    core.normalizer = normalizers.Sequence([*spaces, normalizers.Replace(" ", "▁")])
    pieces, merges = spaced_pieces()
    pieces = ["<unk>", "<s>", "</s>", *pieces]
    file = json.loads(core.to_str())
    file["model"]["vocab"] = {piece: i for i, piece in enumerate(pieces)}
    file["model"]["merges"] = merges
    core = Tokenizer.from_str(json.dumps(file))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    core.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if adds_space else [])])
    core.add_tokens([AddedToken(t, special=True, normalized=False) for t in pieces[:2]])
    core.add_tokens([AddedToken(pieces[2], special=True, normalized=False, rstrip=rstrip)])
    core.add_tokens(added(rstrip))
    return core


def write_tokenizer(core: Tokenizer, path: Path, **options: Any) -> Path:
    """The metadata that llama.cpp's converter makes of a tokenizer."""
    file = json.loads(core.to_str())
    vocab = {**file["model"]["vocab"], **{t["content"]: t["id"] for t in file["added_tokens"]}}
    special = {t["content"]: t["special"] for t in file["added_tokens"]}
    is_bytes = file["model"]["byte_fallback"]
    texts = sorted(vocab, key=lambda text: vocab[text])
    kinds = []
    for text in texts:
        kind = gguf.TokenType.NORMAL
        if text == "<unk>":
            kind = gguf.TokenType.UNKNOWN
        elif text in special:
            kind = gguf.TokenType.CONTROL if special[text] else gguf.TokenType.USER_DEFINED
        elif is_bytes and text.startswith("<0x"):
            kind = gguf.TokenType.BYTE
        kinds.append(kind)
    writer = gguf.GGUFWriter(path, options.get("family", "llama"))
    writer.add_tokenizer_model("llama" if is_bytes else "gpt2")
    writer.add_token_list(texts)
    writer.add_token_types(kinds)
    if is_bytes:
        writer.add_token_scores([-float(i) for i in range(len(texts))])
    else:
        writer.add_tokenizer_pre(options["pre"])
        if options.get("merges", True):
            writer.add_token_merges([" ".join(merge) for merge in file["model"]["merges"]])
    writer.add_bos_token_id(vocab["<s>" if is_bytes else CONTROL[0]])
    writer.add_eos_token_id(vocab["</s>" if is_bytes else CONTROL[1]])
    if "adds_space" in options:
        writer.add_add_space_prefix(options["adds_space"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


COUNTS = [300, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.nightly])]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("pre", SPLITS)
def test_byte_level_ids(tmp_path: Path, pre: str, count: int) -> None:
    core = train_byte_level(pre)
    path = write_tokenizer(core, tmp_path / "x.gguf", pre=pre)
    check_ids(core, ours.Tokenizer(path, trust_regexes=True), count)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("adds_space", [True, False])
def test_sentencepiece_ids(tmp_path: Path, adds_space: bool, count: int) -> None:
    core = train_sentencepiece(adds_space)
    path = write_tokenizer(core, tmp_path / "x.gguf", adds_space=adds_space)
    check_ids(core, ours.Tokenizer(path), count)


@pytest.mark.parametrize("family", ["phi3", "phimoe"])
def test_added_tokens_of_phi3_take_the_spaces_behind_them(tmp_path: Path, family: str) -> None:
    """The file does not say so."""
    core = train_sentencepiece(True, rstrip=True)
    path = write_tokenizer(core, tmp_path / "x.gguf", adds_space=True, family=family)
    texts = [f"{token}{space}x" for token in ["<unk>", "<s>", "</s>", *CONTROL, *USER]
             for space in ("", "\n", " \n ")]  # fmt: skip
    tokenizer = ours.Tokenizer(path)
    for text in texts:
        assert tokenizer.encode(text) == core.encode(text, add_special_tokens=False).ids, text
    check_ids(core, tokenizer, 300)


def test_merges_that_are_missing_are_named(tmp_path: Path) -> None:
    """Without them, every byte would be a token."""
    core = train_byte_level("gpt-2")
    path = write_tokenizer(core, tmp_path / "x.gguf", pre="gpt-2", merges=False)
    with pytest.raises(LoadError, match="is missing") as error:
        ours.Tokenizer(path)
    assert error.value.field == "tokenizer.ggml.merges"


def check_ids(core: Tokenizer, tokenizer: ours.Tokenizer, count: int) -> None:
    texts = strings(count)
    expected = [encoding.ids for encoding in core.encode_batch(texts, add_special_tokens=False)]
    assert tokenizer.encode_batch(texts) == expected
    for ids in expected[:300]:
        plain = core.decode(ids, skip_special_tokens=False)
        assert tokenizer.decode(ids, skip_special_tokens=False) == plain


def test_bos_and_special_tokens(tmp_path: Path) -> None:
    core = train_byte_level("llama-bpe")
    path = write_tokenizer(core, tmp_path / "x.gguf", pre="llama-bpe")
    tokenizer = ours.Tokenizer(path)
    assert tokenizer.special_tokens.front == (core.token_to_id(CONTROL[0]),)
    assert tokenizer.special_tokens.back == ()
    assert sorted(tokenizer.special_texts) == sorted(CONTROL)


def test_unknown_splitting_is_named(tmp_path: Path) -> None:
    path = write_tokenizer(train_byte_level("gpt-2"), tmp_path / "x.gguf", pre="other")
    with pytest.raises(LoadError, match='"other" is not supported; supported: gpt-2') as error:
        ours.Tokenizer(path)
    assert error.value.field == "tokenizer.ggml.pre"
