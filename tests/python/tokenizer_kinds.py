"""Small tokenizers of the kinds that models have, and texts to try them on."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from charsmaps import charsmap
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers import pre_tokenizers as splits

import mlc_native

_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LLAMA_3 = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
)
QWEN_2 = LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}")
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
)
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
)
DEEPSEEK = [
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES,
]

_ALL_WORDS = (
    "name age email the of and I'll don't we've SHE'LL it's type null -1.5e10 2024-01-31 12345 "
    "user_name camelCase https://a.b/c?d=e don\u2019t naïve Zażółć 日本の桜 привет мир مرحبا ١٢٣ "
    "हिन्दी 🌸 👩‍👩‍👧 ½ x\u0301 \u00a0 ﬁ ΑΣ İI ß ǅ \u1e9b\u0323 각 \u1100\u1161\u11a8 '\u017f ᾳ ①② "
    "\u0344 a\u0327\u0301 \u0b47\u0b3e ﷺ ▁ ▁▁a <0x41> <unk> <s> </s> <|im_start|> <tool> [X] word "
    "\u200d\u0915 \ufeff \u0600 \u2028 Ⅷ ⑧ ¼ ª $x+=1; {} // ... !!?"
)
_WORDS = _ALL_WORDS.split(" ")
_GLUE = [" ", "  ", "\n", "\r\n", "\n\n  ", "\t", '"', ", ", "", "", "\u2003", "\x00", "\x85"]


def a_text(rng: random.Random) -> str:
    """Words and what stands between them; sometimes any characters."""
    parts = [rng.choice(_WORDS) + rng.choice(_GLUE) for _ in range(rng.randrange(8))]
    if rng.random() < 0.3:
        parts += [chr(rng.randrange(32, 0x250)) for _ in range(rng.randrange(12))]
    if rng.random() < 0.2:
        parts += [_any_character(rng) for _ in range(rng.randrange(8))]
    if rng.random() < 0.1:
        parts += [rng.choice([" ", "\n", "a", "A1", "'s", "é", "\u0301"]) * rng.randrange(40)]
    rng.shuffle(parts)
    return "".join(parts)


def _any_character(rng: random.Random) -> str:
    code_point = rng.choice(
        [rng.randrange(0x3000), rng.randrange(0x20000), rng.randrange(0x110000)]
    )
    return chr(code_point) if not 0xD800 <= code_point < 0xE000 else "\ufffd"


def some_texts(seed: int, count: int) -> Iterator[str]:
    """The same texts for the same seed."""
    rng = random.Random(seed)
    for _ in range(count):
        yield a_text(rng)


def _trained(tokenizer: Tokenizer, **options: Any) -> Tokenizer:
    """A BPE trained on some texts."""
    trainer = trainers.BpeTrainer(vocab_size=900, show_progress=False, **options)
    tokenizer.train_from_iterator(some_texts(1, 1500), trainer)
    return tokenizer


def _byte_level(*steps: splits.PreTokenizer, normalizer: Any = None, **options: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = splits.Sequence(list(steps))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    return _trained(tokenizer, initial_alphabet=splits.ByteLevel.alphabet())


def _by(pattern: str, behavior: str = "isolated", *, invert: bool = False) -> splits.PreTokenizer:
    return splits.Split(Regex(pattern), behavior, invert=invert)


_BYTES = splits.ByteLevel(add_prefix_space=False, use_regex=False)


def gpt_2() -> Tokenizer:
    return _byte_level(splits.ByteLevel(add_prefix_space=False))


def gpt_2_with_space() -> Tokenizer:
    """As RoBERTa."""
    return _byte_level(splits.ByteLevel(add_prefix_space=True))


def llama_3() -> Tokenizer:
    return _byte_level(_by(LLAMA_3), _BYTES, ignore_merges=True)


def qwen_2() -> Tokenizer:
    tokenizer = _byte_level(_by(QWEN_2), _BYTES, normalizer=normalizers.NFC())
    names = ["<|im_start|>", "<|im_end|>"]
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in names])
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in ("<tool>", "<tool>>")])
    return tokenizer


def deepseek() -> Tokenizer:
    return _byte_level(*map(_by, DEEPSEEK), _BYTES)


def cl100k() -> Tokenizer:
    return _byte_level(_by(CL100K), _BYTES, normalizer=normalizers.NFKC())


def o200k() -> Tokenizer:
    return _byte_level(_by(O200K), _BYTES)


def tekken() -> Tokenizer:
    return _byte_level(_by(TEKKEN), _BYTES, ignore_merges=True)


def starcoder() -> Tokenizer:
    return _byte_level(
        splits.Digits(individual_digits=True), splits.ByteLevel(add_prefix_space=False)
    )


def bloom() -> Tokenizer:
    pattern = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
    return _byte_level(_by(pattern), _BYTES)


def falcon() -> Tokenizer:
    """Splits characters that stand for bytes, which the tokenizer in C++ refuses."""
    return _byte_level(
        splits.Punctuation("contiguous"),
        splits.ByteLevel(add_prefix_space=False),
        splits.Digits(individual_digits=False),
        _by("[0-9][0-9][0-9]"),
    )


def clip() -> Tokenizer:
    """The end of a word is part of its last token."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    pattern = r"<s>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    tokenizer.pre_tokenizer = _by(pattern, "removed", invert=True)
    return _trained(tokenizer, special_tokens=["<unk>"], end_of_word_suffix="</w>")


def word_pieces_as_bpe() -> Tokenizer:
    """Lower case without accents, "##" in front of what continues a word."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##"))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFD(),
            normalizers.Lowercase(),
            normalizers.StripAccents(),
            normalizers.Strip(left=True, right=True),
        ]
    )
    tokenizer.pre_tokenizer = splits.Sequence([splits.Whitespace(), splits.Punctuation()])
    options = {"special_tokens": ["[UNK]"], "continuing_subword_prefix": "##"}
    return _trained(tokenizer, limit_alphabet=60, **options)


def _sentencepiece(normalizer: Any, pre_tokenizer: Any, **options: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, **options))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = splits.Split(Regex(r"▁+[^▁]*"), behavior="isolated")
    texts = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    _trained(tokenizer, limit_alphabet=90, special_tokens=texts)
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = [t for t in file["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(file))
    if normalizer is None:
        tokenizer.normalizer = normalizers.Sequence([])
    else:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splits.Sequence([] if pre_tokenizer is None else [pre_tokenizer])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


def llama_2() -> Tokenizer:
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return _sentencepiece(normalizer, None, byte_fallback=True)


def gemma() -> Tokenizer:
    pre_tokenizer = _by(" ", "merged_with_previous")
    return _sentencepiece(normalizers.Replace(" ", "▁"), pre_tokenizer, byte_fallback=True)


def mistral_first() -> Tokenizer:
    pre_tokenizer = splits.Metaspace(prepend_scheme="first", split=False)
    return _sentencepiece(None, pre_tokenizer, byte_fallback=True)


def mistral_words() -> Tokenizer:
    return _sentencepiece(None, splits.Metaspace(prepend_scheme="always", split=True))


def unknown_characters() -> Tokenizer:
    """Without bytes, each unknown character for itself."""
    tokenizer = _sentencepiece(normalizers.NFKD(), splits.WhitespaceSplit())
    file = json.loads(tokenizer.to_str())
    file["model"]["fuse_unk"] = False
    return Tokenizer.from_str(json.dumps(file))


def _unigram(byte_fallback: bool) -> Tokenizer:
    """Scores and tokens by chance: many texts have several spellings."""
    rng = random.Random(4)
    texts = "".join(some_texts(5, 300)).replace(" ", "▁")
    tokens = {c for c in texts if rng.random() < 0.8}
    for _ in range(700):
        at = rng.randrange(len(texts) - 6)
        tokens.add(texts[at : at + rng.randrange(1, 6)])
    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    if byte_fallback:
        vocab += [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    vocab += [(token, -float(rng.randrange(1, 60)) / 4) for token in sorted(tokens)]
    tokenizer = Tokenizer(models.Unigram(vocab, 2, byte_fallback))
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    return tokenizer


def t5() -> Tokenizer:
    """With a table of replacements, as SentencePiece's "nmt_nfkc" is."""
    tokenizer = _unigram(byte_fallback=False)
    replacements = {"ﬁ": "fi", "\t": " ", "\n": " ", "\u00a0": " ", "½": "1/2", "e\u0301": "é"}
    replacements |= {
        "a\u0327": "A",
        "\u200b": "",
        "ß": "ss",
        "\r\n": "|",
        "①": "1",
        "x": "y",
        "Ⅷ": "",
    }
    file = json.loads(tokenizer.to_str())
    precompiled = {"type": "Precompiled", "precompiled_charsmap": charsmap(replacements)}
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    file["normalizer"] = {"type": "Sequence", "normalizers": [precompiled, strip, spaces]}
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.pre_tokenizer = splits.Sequence(
        [splits.WhitespaceSplit(), splits.Metaspace(prepend_scheme="always")]
    )
    return tokenizer


def unigram_with_bytes() -> Tokenizer:
    tokenizer = _unigram(byte_fallback=True)
    tokenizer.pre_tokenizer = splits.Metaspace(prepend_scheme="first", split=True)
    return tokenizer


def unigram_in_one() -> Tokenizer:
    tokenizer = _unigram(byte_fallback=False)
    tokenizer.normalizer = normalizers.NFKC()
    return tokenizer


def every_flag() -> Tokenizer:
    """Added tokens of every combination of flags."""
    tokenizer = _byte_level(
        splits.ByteLevel(add_prefix_space=True), normalizer=normalizers.Lowercase()
    )
    names = [
        "<S>",
        "[X]",
        "WORD",
        "word",
        "é",
        " ",
        "▁",
        "'s",
        "<|a|>",
        "<｜b｜>",
        "\n",
        "ab",
        "b c",
    ]
    names += ["<tool>", "<tool>>", "name", "the", "e", "1"]
    rng = random.Random(6)
    tokens = [
        AddedToken(
            name,
            **{f: rng.random() < 0.5 for f in ("lstrip", "rstrip", "single_word", "normalized")},
        )
        for name in names
    ]
    tokenizer.add_special_tokens(tokens[::3])
    tokenizer.add_tokens([token for i, token in enumerate(tokens) if i % 3])
    return tokenizer


def demo_model() -> Tokenizer:
    """What the package ships."""
    folder = Path(mlc_native.__file__).parent / "demo_model"
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


KINDS: list[Callable[[], Tokenizer]] = [
    demo_model,
    gpt_2,
    gpt_2_with_space,
    llama_3,
    qwen_2,
    deepseek,
    cl100k,
    o200k,
    tekken,
    starcoder,
    bloom,
    clip,
    word_pieces_as_bpe,
    llama_2,
    gemma,
    mistral_first,
    mistral_words,
    unknown_characters,
    t5,
    unigram_with_bytes,
    unigram_in_one,
    every_flag,
]
