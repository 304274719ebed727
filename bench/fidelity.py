"""Compares a model in some precision with the same checkpoint in float32 under `transformers`.

Logits come from the model's forward, with chunks and pages as in the engine
(`paged_driver.PagedModel`); greedy answers come from the engine. bench/quality.py prints tables of
the figures, and tests/python/models/test_quantization.py bounds them. Random choices are seeded.
"""

from __future__ import annotations

import functools
import itertools
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from common import DEMO, random_prompts
from demo_model.batches import learned_mask
from demo_model.text import examples, long_chats
from demo_model.tokenizer import render, template
from demo_model.training import HELD_OUT_SEED
from machine import ROOT
from transformers import AutoModelForCausalLM, AutoTokenizer

from mlc_native import EngineConfig, SyncMLCEngine, _core
from mlc_native.protocol.generation_config import GenerationConfig

sys.path.insert(0, str(ROOT / "tests" / "python" / "models"))
from paged_driver import MAX_ROWS, PagedModel, PagedSequence

QUESTIONS = json.loads((ROOT / "tests/python/data/demo_questions.json").read_text())
MAX_ANSWER = 100  # tokens
CALIBRATION_SEED = 2_000_003
CALIBRATION_TOKENS = 8192


@dataclass(frozen=True)
class Precision:
    """A precision. With `quantization`, `dtype` is the type of embeddings and KV cache.

    With `calibrated`, weights are rounded for `calibration_tokens`.
    """

    name: str
    dtype: str = "bfloat16"
    quantization: str = ""
    kv_cache_dtype: str = "auto"
    calibrated: bool = False

    def model(self, path: Path, threads: int) -> PagedModel:
        """A checkpoint loaded this way."""
        with self._packed(path, threads) as packed:
            return PagedModel(
                *(path, self.dtype, threads, self.quantization, self.kv_cache_dtype),
                weight_cache_dir=packed,
            )

    def engine(self, path: Path, threads: int) -> SyncMLCEngine:
        """An engine on a checkpoint loaded this way."""
        with self._packed(path, threads) as packed:
            return self._engine(path, threads, packed)

    @contextmanager
    def _packed(self, path: Path, threads: int) -> Iterator[str]:
        """A folder of packed weights, which stay mapped when it is deleted; "" without any."""
        if not self.calibrated:
            yield ""
            return
        with tempfile.TemporaryDirectory() as folder:
            config = EngineConfig(
                model=str(path),
                weight_cache_dir=folder,
                quantization=self.quantization,
                dtype=self.dtype,
                num_threads=threads,
            )
            _core.pack_model(config.engine_json(), None, None, calibration_tokens(path))
            yield folder

    def _engine(self, path: Path, threads: int, packed: str) -> SyncMLCEngine:
        config = EngineConfig(
            weight_cache_dir=packed or None,
            dtype=self.dtype,
            quantization=self.quantization or None,
            kv_cache_dtype=self.kv_cache_dtype,
            num_threads=threads,
            max_total_sequence_length=4096,
            verbose=False,
        )
        return SyncMLCEngine(str(path), device="cpu", engine_config=config)


PRECISIONS = (
    Precision("float32", "float32"),
    Precision("bfloat16"),
    Precision("q8", quantization="q8"),
    Precision("q6", quantization="q6"),
    Precision("q4", quantization="q4"),
    Precision("q8, calibrated", quantization="q8", calibrated=True),
    Precision("q4, calibrated", quantization="q4", calibrated=True),
    Precision("bfloat16, KV int8", kv_cache_dtype="int8"),
    Precision("q8, KV int8", quantization="q8", kv_cache_dtype="int8"),
    Precision("q4, KV int8", quantization="q4", kv_cache_dtype="int8"),
)


# ------------------------------------------------------------------------------------------ texts


@dataclass(frozen=True)
class Text:
    """Token ids, and flags of those that count in the perplexity. The first one never does."""

    tokens: list[int]
    scored: np.ndarray  # bool [len(tokens)]; scored[0] is False


def held_out_texts(num_documents: int = 200, num_long: int = 8) -> list[Text]:
    """Text of the demo model's generator with a seed that training never draws.

    The scored tokens are those the model learned: answers in chats, and documents except for their
    first token.
    """
    tokenizer, compiled = AutoTokenizer.from_pretrained(DEMO), template()
    drawn = itertools.chain(
        itertools.islice(examples(HELD_OUT_SEED), num_documents),
        itertools.islice(long_chats(HELD_OUT_SEED), num_long),
    )
    texts = []
    for example in drawn:
        tokens = tokenizer(render(compiled, example), add_special_tokens=False)["input_ids"]
        texts.append(Text(tokens, np.array(learned_mask(tokens))))
    return texts


@functools.cache
def calibration_tokens(path: Path) -> list[int]:
    """What weights are calibrated on: about 8,000 tokens that no measurement has.

    The demo model's come from its generator, with a seed that neither training nor `held_out_texts`
    draws; those of random checkpoints are random.
    """
    if path != DEMO:
        (text,) = random_texts(path, CALIBRATION_TOKENS, CALIBRATION_SEED)
        return text.tokens
    tokenizer, compiled = AutoTokenizer.from_pretrained(DEMO), template()
    tokens: list[int] = []
    for example in examples(CALIBRATION_SEED):
        tokens += tokenizer(render(compiled, example), add_special_tokens=False)["input_ids"]
        if len(tokens) >= CALIBRATION_TOKENS:
            return tokens[:CALIBRATION_TOKENS]
    raise AssertionError  # the examples do not end


def question_texts() -> list[Text]:
    """The demo model's questions, each with its answer; the answers are scored."""
    prompts = question_prompts()
    tokenizer = AutoTokenizer.from_pretrained(DEMO)
    texts = []
    for item, prompt in zip(QUESTIONS, prompts, strict=True):
        answer = tokenizer(item["answer"] + "<|end|>", add_special_tokens=False)["input_ids"]
        texts.append(Text(prompt + answer, np.arange(len(prompt) + len(answer)) >= len(prompt)))
    return texts


def question_prompts() -> list[list[int]]:
    """The questions as prompts, ready for the answer."""
    tokenizer = AutoTokenizer.from_pretrained(DEMO)
    return [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": item["question"]}],
            add_generation_prompt=True,
            return_dict=True,
        )["input_ids"]
        for item in QUESTIONS
    ]


def random_texts(path: Path, length: int, seed: int) -> list[Text]:
    """One text of random tokens, without a perplexity."""
    vocab_size = json.loads((path / "config.json").read_text())["vocab_size"]
    (tokens,) = random_prompts(1, length, vocab_size, seed)
    return [Text(tokens, np.zeros(length, dtype=bool))]


# ----------------------------------------------------------------------------------------- logits


class Reference:
    """The checkpoint in `transformers`, computed in float32."""

    def __init__(self, path: Path) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(path, dtype="auto").float().eval()

    @torch.inference_mode()
    def logits(self, text: Text) -> np.ndarray:
        """float32 [len(text.tokens), vocab_size]."""
        return self._model(torch.tensor([text.tokens])).logits[0].numpy()

    @torch.inference_mode()
    def greedy(self, prompt: Sequence[int]) -> list[int]:
        """The answer's tokens without the one that ends it."""
        ids = torch.tensor([list(prompt)])
        out = self._model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=MAX_ANSWER, do_sample=False
        )
        answer = out[0, len(prompt) :].tolist()
        ends = self._model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        return answer[:-1] if answer[-1] in ends else answer


def logits(model: PagedModel, text: Text) -> np.ndarray:
    """float32 [len(text.tokens), vocab_size] of mlc_native's forward, in as few chunks as fit."""
    sequence = PagedSequence(list(text.tokens))
    rows = []
    while sequence.kv_len < len(text.tokens):
        count = min(MAX_ROWS, len(text.tokens) - sequence.kv_len)
        rows.append(model.forward([(sequence, count)], "all"))
    model.release(sequence)
    return np.concatenate(rows)


# ---------------------------------------------------------------------------------------- figures


@dataclass(frozen=True)
class Fidelity:
    """Means over all positions; the reference is float32 under `transformers`.

    Attributes:
        error: 2-norm of the difference of the logits over that of the reference's.
        max_error: largest difference over the reference's largest magnitude.
        top1: share of positions whose likeliest token is the reference's.
        divergence: Kullback-Leibler, from the reference's distribution to ours, in nats.
        perplexity: over the scored tokens; None where no text has any.
    """

    error: float
    max_error: float
    top1: float
    divergence: float
    perplexity: float | None


def compare(
    ours: Iterable[np.ndarray], references: Sequence[np.ndarray], texts: Sequence[Text]
) -> Fidelity:
    """Figures of one model over texts, from the logits [tokens, vocab_size] of each text."""
    positions, losses = [], []
    for a, b, text in zip(ours, references, texts, strict=True):
        log_p, log_q = _log_softmax(b), _log_softmax(a)
        positions.append(
            np.stack(
                [
                    np.linalg.norm(a - b, axis=-1) / np.linalg.norm(b, axis=-1),
                    np.abs(a - b).max(-1) / np.abs(b).max(-1),
                    a.argmax(-1) == b.argmax(-1),
                    (np.exp(log_p) * (log_p - log_q)).sum(-1),
                ]
            )
        )
        scored = np.flatnonzero(text.scored)
        losses.append(-log_q[scored - 1, np.array(text.tokens)[scored]])
    loss = np.concatenate(losses)
    perplexity = float(np.exp(loss.mean())) if loss.size else None
    return Fidelity(*np.concatenate(positions, axis=1).mean(axis=1).tolist(), perplexity)


def _log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x.astype(np.float64) - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


# ---------------------------------------------------------------------------------- greedy answers


@dataclass(frozen=True)
class Agreement:
    """Greedy answers compared with the reference: equal ones, tokens before a difference."""

    equal: int
    answers: int
    tokens_before: int
    tokens: int


def greedy_answers(engine: SyncMLCEngine, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """The tokens of each answer, from the engine, all prompts in one batch."""
    answers: dict[str, list[int]] = {str(i): [] for i in range(len(prompts))}

    def collect(outputs: list) -> None:
        for output in outputs:
            request_id, deltas = output.unpack()
            for delta in deltas:
                answers[request_id] += delta.delta_token_ids

    engine.set_request_stream_callback(collect)
    config = GenerationConfig(temperature=0.0, max_tokens=MAX_ANSWER)
    for i, prompt in enumerate(prompts):
        engine.add_request(engine.create_request(str(i), list(prompt), config))
    while not engine.empty():
        engine.step()
    return list(answers.values())


def agree(ours: Sequence[list[int]], references: Sequence[list[int]]) -> Agreement:
    """How many tokens the answers have in common."""
    same = [
        next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        for a, b in zip(ours, references, strict=True)
    ]
    return Agreement(
        equal=sum(a == b for a, b in zip(ours, references, strict=True)),
        answers=len(references),
        tokens_before=sum(same),
        tokens=sum(map(len, references)),
    )
