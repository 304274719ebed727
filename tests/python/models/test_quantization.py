"""Models quantized as they are loaded: how far they are from float32, and the same bits in every
batch.

Trained weights forgive what random ones do not: in a random checkpoint nothing is redundant, each
rounding of each matrix reaches the logits, and bfloat16 alone is off by more than 1 %. So there are
bounds for the demo model on its own text, and others for random checkpoints; a wrong scale or a
lost group breaks both. bench/results/quality.md has the figures.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
from common import DEMO, make_checkpoint  # noqa: E402
from fidelity import PRECISIONS as ALL_PRECISIONS  # noqa: E402
from fidelity import (  # noqa: E402
    Fidelity,
    Reference,
    Text,
    agree,
    compare,
    greedy_answers,
    held_out_texts,
    logits,
    question_prompts,
    question_texts,
    random_texts,
)
from paged_driver import PagedModel, PagedSequence, forward_in_chunks, random_tokens  # noqa: E402

THREADS = 2
PRECISIONS = {p.name: p for p in ALL_PRECISIONS if p.dtype == "bfloat16"}


def measure(path: Path, precision: str, texts: list[Text], expected: list[np.ndarray]) -> Fidelity:
    model = PRECISIONS[precision].model(path, THREADS)
    return compare((logits(model, text) for text in texts), expected, texts)


@functools.cache
def demo_reference() -> tuple[list[Text], list[np.ndarray], Fidelity]:
    """Held-out texts, the reference's logits and, for their perplexity, its own figures."""
    texts = held_out_texts(num_documents=24, num_long=1)
    reference = Reference(DEMO)
    expected = [reference.logits(text) for text in texts]
    return texts, expected, compare(expected, expected, texts)


@pytest.mark.usefixtures("best_isa")
@pytest.mark.parametrize(
    ("precision", "error", "perplexity"),
    [
        ("bfloat16", 0.005, 0.0005),
        ("bfloat16, KV int8", 0.01, 0.0005),
        ("q8", 0.018, 0.001),
        ("q4", 0.06, 0.005),
    ],
)
def test_demo_model(precision: str, error: float, perplexity: float) -> None:
    texts, expected, reference = demo_reference()
    figures = measure(DEMO, precision, texts, expected)
    assert figures.error < error
    assert figures.perplexity == pytest.approx(reference.perplexity, rel=perplexity)


@functools.cache
def demo_answers() -> list[list[int]]:
    reference = Reference(DEMO)
    return [reference.greedy(prompt) for prompt in question_prompts()]


@functools.cache
def questions_reference() -> tuple[list[Text], list[np.ndarray]]:
    """The questions of the tests with their answers, and the reference's logits."""
    texts, reference = question_texts(), Reference(DEMO)
    return texts, [reference.logits(text) for text in texts]


@pytest.mark.usefixtures("best_isa")
@pytest.mark.parametrize(("precision", "error"), [("q8", 0.01), ("q4", 0.06)])
def test_largest_error_on_the_demo_models_questions(precision: str, error: float) -> None:
    assert measure(DEMO, precision, *questions_reference()).max_error < error


@pytest.mark.usefixtures("best_isa")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_demo_models_answers_are_those_of_float32(precision: str) -> None:
    with_engine = PRECISIONS[precision].engine(DEMO, THREADS)
    agreement = agree(greedy_answers(with_engine, question_prompts()), demo_answers())
    assert agreement.answers == len(question_prompts())
    assert agreement.equal == agreement.answers
    assert agreement.tokens_before == agreement.tokens


# Which experts a row chooses may turn on what is rounded, and its logits are others then. Where all
# are chosen, the errors are those of the matrices, as in the other families.
ALL_CHOSEN = {
    "tiny-qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 4},
    "tiny-qwen2_moe": {"num_experts": 4, "num_experts_per_tok": 4},
    "tiny-gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 4},
    "tiny-gemma4_text-experts": {"num_experts": 4, "top_k_experts": 4},
}
RECURRENT = ["tiny-granitemoehybrid_mamba", "tiny-nemotron_h", "tiny-falcon_h1", "tiny-mamba"]


@functools.cache
def random_reference(family: str, folder: Path) -> tuple[Path, list[Text], list[np.ndarray]]:
    path = make_checkpoint(family, folder / family, overrides=ALL_CHOSEN.get(family))
    texts = random_texts(path, 100, seed=4)
    return path, texts, [Reference(path).logits(text) for text in texts]


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(("precision", "error"), [("bfloat16", 0.02), ("q8", 0.06), ("q4", 0.25)])
@pytest.mark.parametrize(
    "family",
    ["tiny-qwen3", "tiny-llama", "tiny-gemma2", "tiny-gemma4_text", *RECURRENT, *ALL_CHOSEN],
)
def test_random_checkpoints(
    family: str,
    precision: str,
    error: float,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path, texts, expected = random_reference(family, tmp_path_factory.getbasetemp())
    figures = measure(path, precision, texts, expected)
    assert figures.error < error


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("quantization", ["", "q8", "q4"])
def test_bitwise_alone_batched_chunked_threaded(quantization: str) -> None:
    alone = PagedModel(DEMO, num_threads=1, quantization=quantization)
    together = PagedModel(DEMO, num_threads=2, quantization=quantization)
    prompts = [random_tokens(n, alone.vocab_size, seed=n) for n in (33, 1, 16, 17)]
    expected = [alone.forward([(PagedSequence(p), len(p))], "all") for p in prompts]
    for i, rows in enumerate(forward_in_chunks(together, prompts)):
        assert np.array_equal(rows, expected[i]), f"sequence {i}"


def test_quantized_weights_are_smaller() -> None:
    sizes = [
        PagedModel(DEMO, quantization=q).model.metadata["weight_bytes"] for q in ("", "q8", "q4")
    ]
    assert sizes[0] > 1.8 * sizes[1]
    assert sizes[1] > 1.3 * sizes[2]
