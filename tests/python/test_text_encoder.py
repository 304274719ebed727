"""The engine's encoder against the tokenizers package: equal tokens, and always the same text."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as HFTokenizer

import mlc_native
from mlc_native._core.testing import TextEncoder
from mlc_native.errors import LoadError

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_2 = LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}")

ALL_WORDS = (
    "name age email id value items the of and I'll don't we've SHE'LL it's properties type string "
    "true false null -1.5e10 2024-01-31 12345 user_name camelCase https://a.b/c?d=e don\u2019t "
    "naïve Zażółć 日本の桜 привет мир مرحبا ١٢٣ हिन्दी 🌸 👩‍👩‍👧 ½ x\u0301 \u00a0 ﬁ"
)
WORDS = ALL_WORDS.split(" ")
GLUE = [
    " ",
    "  ",
    "\n",
    "\r\n",
    "\n\n  ",
    "\t",
    '"',
    '": "',
    ", ",
    "{",
    "}",
    "[1, 2]",
    "",
    "\u2003",
]


def random_text(rng: random.Random) -> str:
    """A text of words and what stands between them, JSON now and then."""
    if rng.random() < 0.4:
        value = {rng.choice(WORDS): rng.choice(WORDS) for _ in range(rng.randrange(1, 5))}
        text = json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 2]))
        begin = rng.randrange(len(text))
        return text[begin : begin + rng.randrange(1, 60)]
    parts = [rng.choice(WORDS) + rng.choice(GLUE) for _ in range(rng.randrange(1, 8))]
    if rng.random() < 0.3:
        parts.append("".join(chr(rng.randrange(32, 127)) for _ in range(rng.randrange(1, 20))))
    rng.shuffle(parts)
    return "".join(parts)


def corpus(seed: int, size: int) -> Iterator[str]:
    """The same texts for the same seed."""
    rng = random.Random(seed)
    for _ in range(size):
        yield random_text(rng)


def byte_level(pre_tokenizer: pre_tokenizers.PreTokenizer, ignore_merges: bool) -> HFTokenizer:
    """A small byte-level BPE, trained behind a pre-tokenizer."""
    tokenizer = HFTokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(1, 3000), trainer)
    return tokenizer


def split_by(pattern: str) -> pre_tokenizers.PreTokenizer:
    """The way of Llama-3 and Qwen2: a pattern of one's own, then bytes."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def gpt_2() -> HFTokenizer:
    """The pattern that ByteLevel brings along."""
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), ignore_merges=False)


def llama_3() -> HFTokenizer:
    """Words that are tokens are taken whole."""
    return byte_level(split_by(LLAMA_3), ignore_merges=True)


def qwen_2() -> HFTokenizer:
    """With an added token that is not special, as <tool_call> is."""
    tokenizer = byte_level(split_by(QWEN_2), ignore_merges=False)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ("<tool>", "<tool>>")])
    return tokenizer


def digits_in_runs() -> HFTokenizer:
    """Digits together, apart from letters."""
    steps = [
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
    return byte_level(pre_tokenizers.Sequence(steps), ignore_merges=False)


def llama_2() -> HFTokenizer:
    """Characters, U+2581 for spaces, bytes for what is not in the vocabulary; no words."""
    tokenizer = HFTokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        limit_alphabet=120,
        special_tokens=["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))],
        show_progress=False,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"▁+[^▁]*"), behavior="isolated")
    tokenizer.train_from_iterator(corpus(1, 3000), trainer)
    tokenizer.pre_tokenizer = None
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    # The bytes are tokens of the model, as in Llama-2, not special ones.
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = [t for t in file["added_tokens"] if not t["content"].startswith("<0x")]
    return HFTokenizer.from_str(json.dumps(file))


def mistral() -> HFTokenizer:
    """Llama-2's as newer files write it."""
    tokenizer = llama_2()
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=True)
    return tokenizer


def demo_model() -> HFTokenizer:
    """What the package ships."""
    return HFTokenizer.from_file(
        str(Path(mlc_native.__file__).parent / "demo_model/tokenizer.json")
    )


KINDS: list[Callable[[], HFTokenizer]] = [
    demo_model,
    gpt_2,
    llama_3,
    qwen_2,
    digits_in_runs,
    llama_2,
    mistral,
]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def encoders(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[HFTokenizer, TextEncoder]:
    """The same tokenizer.json, read by the package and by the engine."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer = request.param()
    tokenizer.save(str(path))
    return tokenizer, TextEncoder(str(path))


def test_tokens_are_those_of_the_package(encoders: tuple[HFTokenizer, TextEncoder]) -> None:
    theirs, ours = encoders
    texts = [*corpus(2, 8000), "<tool>x<tool>> <tool", "'s 'S 'x", "a'", " ", "\n", "\r\n \n x"]
    for text, encoding in zip(
        texts, theirs.encode_batch(texts, add_special_tokens=False), strict=True
    ):
        assert ours.encode(text.encode()) == encoding.ids, repr(text)


def test_every_byte_string_comes_back(encoders: tuple[HFTokenizer, TextEncoder]) -> None:
    """Also when it is no UTF-8: a text may begin within a character."""
    theirs, ours = encoders
    rng = random.Random(3)
    for text in corpus(4, 1000):
        data = text.encode()
        data = data[rng.randrange(len(data)) :] if data else data
        ids = ours.encode(data)
        assert ids is not None
        decoded = theirs.decode(ids, skip_special_tokens=False)
        assert decoded == data.decode(errors="replace") or "\N{REPLACEMENT CHARACTER}" in decoded


def test_a_long_text_is_encoded_quickly(encoders: tuple[HFTokenizer, TextEncoder]) -> None:
    """64 KB of one word: a quadratic encoder would take minutes."""
    theirs, ours = encoders
    for text in ["ab" * 32768, " " * 65536, "1" * 65536, "{\n" * 32768]:
        assert ours.encode(text.encode()) == theirs.encode(text, add_special_tokens=False).ids


def test_other_kinds_are_named(tmp_path: Path) -> None:
    unigram = HFTokenizer(models.Unigram([("a", 0.0), ("b", -1.0)], unk_id=0))
    whitespace = HFTokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    whitespace.pre_tokenizer = pre_tokenizers.Whitespace()
    lower = HFTokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    lower.normalizer = normalizers.Lowercase()
    for tokenizer, kind in [(unigram, "Unigram"), (whitespace, "Whitespace"), (lower, "Lowercase")]:
        path = tmp_path / "tokenizer.json"
        tokenizer.save(str(path))
        with pytest.raises(LoadError, match=kind):
            TextEncoder(str(path))


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [7]}}')
    with pytest.raises(LoadError, match=r"tokenizer\.json"):
        TextEncoder(str(path))
