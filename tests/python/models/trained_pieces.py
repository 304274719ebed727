"""Vocabularies that are trained on texts of this repository, and texts to try them on."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tokenizers import Tokenizer, models, trainers

ROOT = Path(__file__).resolve().parents[3]
CONTROL = ["<|begin|>", "<|end|>", "<|im_end|>"]
USER = ["<think>", "  "]


def corpus() -> list[str]:
    files = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "csrc" / "kv").glob("*.cc"))]
    lines = [line for file in files for line in file.read_text().splitlines(keepends=True)]
    marks = "q\u0301y\u0300z \u0915\u093f\u0932\u0940 x\u0308! "  # which do not compose
    return [*lines, *[marks] * 100]


def spaced_pieces() -> tuple[list[str], list[list[str]]]:
    """All bytes, pieces of texts whose spaces are "▁", and the merges that make them."""
    texts = [f"▁{word}" for line in corpus() for word in line.split()]
    texts += [word for line in corpus() for word in line.split()]
    trained = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=1200, show_progress=False)
    trained.train_from_iterator(texts, trainer)
    learned = json.loads(trained.to_str())["model"]
    letters = {text for text in learned["vocab"] if len(text) == 1}
    words = [text for text in learned["vocab"] if len(text) > 1]  # in the order of their merges
    pieces = [*words, *sorted(letters)]
    return [*(f"<0x{byte:02X}>" for byte in range(256)), *pieces], merges_of(words, set(pieces))


def merges_of(words: list[str], pieces: set[str]) -> list[list[str]]:
    """All ways to join two pieces, better scores first, as SentencePiece joins."""
    return [
        [word[:at], word[at:]]
        for word in words
        for at in sorted(range(1, len(word)), reverse=True)
        if word[:at] in pieces and word[at:] in pieces
    ]


def strings(count: int) -> list[str]:
    """Texts of words, spaces, digits, marks of many scripts, and tokens."""
    rng = random.Random(5)
    lines = corpus()
    words = [word for line in lines for word in line.split()] + lines[-1].split() * 500
    odd = [" ", "  ", "\n", "\r\n\n", "\t", "12345", "3.14", "don't", "WE'LL", "é", "e\u0301", "ﬁ"]
    odd += ["日本語", "ไทย", "🙂", "\u200b", "ǅ", "Ω", "½", "\x00", "<", "|>", *CONTROL, *USER]
    texts = []
    for _ in range(count):
        parts = [
            rng.choice(odd) if rng.random() < 0.4 else rng.choice(["", " "]) + rng.choice(words)
            for _ in range(rng.randint(0, 12))
        ]
        texts.append("".join(parts))
    return texts
