"""Models quantized as they are loaded: how far their logits are from float32, and the same bits in
every batch.

The random checkpoints amplify errors: attention over random keys is close to a lottery. So each
format is held against the error that the demo model has on its own text, and on random checkpoints
against a bound that a wrong scale or a lost group would break.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from paged_driver import PagedModel, PagedSequence, random_tokens, transformers_logits
from transformers import AutoTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / "mlc_native" / "demo_model"
QUESTIONS = json.loads((ROOT / "tests/python/data/demo_questions.json").read_text())


def mean_error(ours: np.ndarray, reference: np.ndarray) -> float:
    """Largest difference over the largest reference value, per position, then the mean."""
    worst = np.abs(ours - reference).max(-1) / np.abs(reference).max(-1)
    return float(worst.mean())


def demo_prompts(count: int) -> list[list[int]]:
    """Token ids of questions with their answers, in the model's own form."""
    tokenizer = AutoTokenizer.from_pretrained(DEMO)
    return [
        tokenizer.apply_chat_template(
            [
                {"role": "user", "content": item["question"]},
                {"role": "assistant", "content": item["answer"]},
            ],
            return_dict=True,
        )["input_ids"]
        for item in QUESTIONS[:count]
    ]


@pytest.mark.parametrize(("quantization", "bound"), [("q8", 0.01), ("q4", 0.06)])
def test_demo_model(quantization: str, bound: float) -> None:
    model = PagedModel(DEMO, quantization=quantization)
    errors = []
    for tokens in demo_prompts(20):
        logits = model.forward([(PagedSequence(tokens), len(tokens))], "all")
        errors.append(mean_error(logits, transformers_logits(DEMO, tokens)))
    assert np.mean(errors) < bound


@pytest.mark.parametrize(("quantization", "bound"), [("q8", 0.12), ("q4", 0.8)])
@pytest.mark.parametrize("family", ["tiny-qwen3", "tiny-llama", "tiny-gemma2"])
def test_random_checkpoints(tmp_path: Path, family: str, quantization: str, bound: float) -> None:
    path = make_checkpoint(family, tmp_path / family)
    model = PagedModel(path, quantization=quantization)
    tokens = random_tokens(100, model.vocab_size, seed=4)
    logits = model.forward([(PagedSequence(tokens), 100)], "all")
    assert mean_error(logits, transformers_logits(path, tokens)) < bound


@pytest.mark.parametrize("isa", ["", "avx512", "avx2", "portable"])
@pytest.mark.parametrize("quantization", ["", "q8", "q4"])
def test_bitwise_alone_batched_chunked_threaded(
    monkeypatch: pytest.MonkeyPatch, quantization: str, isa: str
) -> None:
    monkeypatch.setenv("MLC_NATIVE_ISA", isa)
    try:
        alone = PagedModel(DEMO, num_threads=1, quantization=quantization)
    except ValueError:
        pytest.skip(f"this machine lacks {isa}")
    together = PagedModel(DEMO, num_threads=2, quantization=quantization)
    prompts = [random_tokens(n, alone.vocab_size, seed=n) for n in (33, 1, 16, 17)]
    expected = [alone.forward([(PagedSequence(p), len(p))], "all") for p in prompts]
    sequences = [PagedSequence(list(p)) for p in prompts]
    rows: list[list[np.ndarray]] = [[] for _ in prompts]
    for chunk in (7, 3, 30):
        work = [(s, min(chunk, len(s.tokens) - s.kv_len)) for s in sequences]
        work = [(s, count) for s, count in work if count > 0]
        logits = together.forward(work, "all")
        at = 0
        for sequence, count in work:
            rows[sequences.index(sequence)].append(logits[at : at + count])
            at += count
    for i, logits in enumerate(expected):
        assert np.array_equal(np.concatenate(rows[i]), logits), f"sequence {i}"


def test_quantized_weights_are_smaller() -> None:
    sizes = [
        PagedModel(DEMO, quantization=q).model.metadata["weight_bytes"] for q in ("", "q8", "q4")
    ]
    assert sizes[0] > 1.8 * sizes[1]
    assert sizes[1] > 1.4 * sizes[2]
