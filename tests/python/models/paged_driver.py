"""Drives `_core.testing.TestModel` the way the engine drives a model: pages, chunks, batches."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig

from mlc_native._core import testing

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import model_class

PAGE_SIZE = 16
NUM_PAGES = 512
MAX_ROWS = 512


@dataclass
class PagedSequence:
    """Tokens with the pages that hold the keys and values of the first `kv_len` of them."""

    tokens: list[int]
    kv_len: int = 0
    pages: list[int] = field(default_factory=list)


class PagedModel:
    """A model and a page allocator that scatters the pages of a sequence over the cache."""

    def __init__(
        self,
        path: Path,
        dtype: str = "auto",
        num_threads: int = 1,
        quantization: str = "",
        kv_cache_dtype: str = "auto",
        longest_sequence: int | None = None,
        weight_cache_dir: str = "",
        model_lib: str = "",
    ) -> None:
        self.model = testing.TestModel(
            str(path),
            dtype=dtype,
            num_threads=num_threads,
            quantization=quantization,
            kv_cache_dtype=kv_cache_dtype,
            longest_sequence=longest_sequence,
            weight_cache_dir=weight_cache_dir,
            model_lib=model_lib,
        )
        self.model.allocate(NUM_PAGES, MAX_ROWS, MAX_ROWS)
        self.vocab_size = self.model.metadata["vocab_size"]
        # A fixed permutation: neighbours in a sequence are far apart in memory.
        self.free = [(page * 167) % NUM_PAGES for page in range(NUM_PAGES)]

    def forward(
        self, work: Sequence[tuple[PagedSequence, int]], logits: str = "last"
    ) -> np.ndarray:
        """Feed the next `count` tokens of each sequence; logits float32 [rows, vocab_size]."""
        batch = []
        for sequence, count in work:
            end = sequence.kv_len + count
            assert end <= len(sequence.tokens)
            while len(sequence.pages) * PAGE_SIZE < end:
                sequence.pages.append(self.free.pop())
            batch.append((sequence.tokens[sequence.kv_len : end], sequence.kv_len, sequence.pages))
            sequence.kv_len = end
        return self.model.forward(batch, logits)

    def release(self, sequence: PagedSequence) -> None:
        """Take the pages of a sequence back; its next forward starts over."""
        self.free += sequence.pages
        sequence.pages, sequence.kv_len = [], 0

    def prefill(self, sequence: PagedSequence, chunk: int) -> np.ndarray:
        """Feed all unfed tokens in chunks; logits [vocab_size] of the last one."""
        while True:
            count = min(chunk, len(sequence.tokens) - sequence.kv_len)
            last = sequence.kv_len + count == len(sequence.tokens)
            logits = self.forward([(sequence, count)], "last" if last else "none")
            if last:
                return logits[0]

    def generate(
        self, prompt: Sequence[int], chunk: int, num_tokens: int
    ) -> tuple[list[int], np.ndarray]:
        """Greedy tokens and the logits [num_tokens, vocab_size] that chose them."""
        sequence = PagedSequence(list(prompt))
        rows = [self.prefill(sequence, chunk)]
        while True:
            sequence.tokens.append(int(rows[-1].argmax()))
            if len(rows) == num_tokens:
                return sequence.tokens[len(prompt) :], np.stack(rows)
            rows.append(self.forward([(sequence, 1)])[0])


def random_tokens(count: int, vocab_size: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocab_size, (count,), generator=generator).tolist()


def reference_model(path: Path, dtype: str | torch.dtype) -> Any:
    """The model of transformers in a folder."""
    config = AutoConfig.from_pretrained(path)
    if config.model_type == "youtu":  # transformers zeroes the row of its embeddings as it loads
        config.pad_token_id = None
    model = model_class(config).from_pretrained(path, config=config, dtype=dtype).eval()
    # Without images, the forward of transformers' Llama 4 fails behind that of its text.
    return model.language_model if config.model_type == "llama4" else model


def transformers_logits(path: Path, tokens: Sequence[int]) -> np.ndarray:
    """Float32 logits [len(tokens), vocab_size] of transformers; weights as stored, math in fp32."""
    model = reference_model(path, "auto").float()
    with torch.inference_mode():
        return model(torch.tensor([list(tokens)])).logits[0].numpy()


def relative_error(ours: np.ndarray, reference: np.ndarray) -> float:
    """Largest difference over the largest reference value."""
    return float(np.abs(ours - reference).max() / np.abs(reference).max())


def forward_in_chunks(model: PagedModel, prompts: Sequence[list[int]]) -> list[np.ndarray]:
    """Logits of all rows, the prompts side by side in chunks of other sizes."""
    sequences = [PagedSequence(list(p)) for p in prompts]
    rows: list[list[np.ndarray]] = [[] for _ in prompts]
    for chunk in (7, 3, 200):
        work = [(s, min(chunk, len(s.tokens) - s.kv_len)) for s in sequences]
        work = [(s, count) for s, count in work if count > 0]
        logits = model.forward(work, "all")
        at = 0
        for sequence, count in work:
            rows[sequences.index(sequence)].append(logits[at : at + count])
            at += count
    return [np.concatenate(parts) for parts in rows]
