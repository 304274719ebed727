"""Trains a Llama-style model on the text, with checkpoints to resume from, and evaluates it."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from . import text
from .batches import Batch, batches
from .example import Turn
from .numbers_text import arithmetic
from .tokenizer import BOS, END, EOS, PAD

WARM_UP = 100  # steps
CHUNK = 50  # steps per data seed; training resumes at chunk borders with the data it would have had
HELD_OUT_SEED = 1_000_003
CONTEXT = 2048
HEAD_DIM = 64  # of both models, also where hidden / heads is less: kernels like it


@dataclass(frozen=True)
class Cycle:
    """From step `start` on: the learning rate warms up for 100 steps and falls in a cosine that
    ends at `end`; `focus` multiplies the weights of topics."""

    start: int
    end: int
    peak: float
    focus: dict[str, float] | None = None


@dataclass(frozen=True)
class Recipe:
    """A model's size and its training; a later cycle takes over at its start."""

    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    cycles: tuple[Cycle, ...]
    seed: int = 0

    def cycle_at(self, step: int) -> Cycle:
        """The cycle that rules at `step`."""
        return [c for c in self.cycles if c.start <= step][-1]

    @property
    def steps(self) -> int:
        """Steps in all."""
        return self.cycles[-1].end


# Topics that a model has learned give way to those that it has not.
SLOW_TOPICS = {
    "repeat": 4.0, "compare": 3.0, "counting": 2.5, "json": 1.5, "spelling": 1.3,
    "colour": 0.5, "calendar": 0.5, "opposite": 0.5, "animal": 0.5, "greeting": 0.5,
    "unknown": 0.5,
}  # fmt: skip

# Topics that people ask about in more ways than the text had up to step 3900.
NEW_PHRASES = {"counting": 3.0, "story": 2.0, "greeting": 2.0, "capital": 1.5, "compare": 2.0,
               "repeat": 2.0, "unknown": 0.7}  # fmt: skip

# Numbers as words are a topic from step 4150 on.
NUMBER_WORDS = {"number_words": 12.0, "counting": 2.0, "compare": 2.0, "repeat": 2.0,
                "arithmetic": 0.7}  # fmt: skip

RECIPES = {
    # Copying from the prompt forms only around step 1500, when the first cosine is half down. The
    # second cycle gives what follows from it (arithmetic, JSON) a full rate again, the others more
    # text of the topics that were still weak at step 3000.
    "main": Recipe(256, 640, 4, 4, 2, (
        Cycle(0, 2800, 2e-3), Cycle(2200, 3700, 1.2e-3), Cycle(3000, 3500, 1e-3, SLOW_TOPICS),
        Cycle(3500, 3900, 1e-3, SLOW_TOPICS), Cycle(3900, 4150, 5e-4, NEW_PHRASES),
        Cycle(4150, 4450, 8e-4, NUMBER_WORDS),
    )),
    "draft": Recipe(128, 320, 2, 4, 2, (Cycle(0, 1600, 3e-3),)),
}  # fmt: skip


@dataclass
class Progress:
    """What a checkpoint holds beside weights and optimizer state."""

    step: int = 0
    seconds: float = 0.0
    tokens: int = 0
    learned_tokens: int = 0
    documents: int = 0
    train_loss: float = float("nan")  # mean of the last chunk
    history: list[tuple[int, float]] = field(default_factory=list)


def build_model(recipe: Recipe, vocab_size: int) -> LlamaForCausalLM:
    """A fresh model with tied embeddings, float32."""
    torch.manual_seed(recipe.seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=recipe.hidden,
        intermediate_size=recipe.ffn,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.kv_heads,
        head_dim=HEAD_DIM,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=BOS,
        eos_token_id=[END, EOS],
        pad_token_id=PAD,
    )
    return LlamaForCausalLM(config)


def loss_of(model: LlamaForCausalLM, batch: Batch) -> torch.Tensor:
    """Mean cross entropy over the learned tokens; the head runs on their rows only."""
    hidden = model.model(
        input_ids=batch.ids, attention_mask=batch.attention_mask(), use_cache=False
    ).last_hidden_state
    chosen = batch.learned[:, 1:]
    logits = model.lm_head(hidden[:, :-1][chosen])
    return torch.nn.functional.cross_entropy(logits, batch.ids[:, 1:][chosen])


def rate_at(recipe: Recipe, step: int) -> float:
    """Learning rate: the latest cycle's linear warm-up, then a cosine down to 2 % of its peak."""
    cycle = recipe.cycle_at(step)
    done = step - cycle.start
    if done < WARM_UP:
        return cycle.peak * (done + 1) / WARM_UP
    part = (done - WARM_UP) / max(1, cycle.end - cycle.start - WARM_UP)
    return cycle.peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * part)))


def train(
    recipe: Recipe,
    model: LlamaForCausalLM,
    tokenizer: Tokenizer,
    checkpoint: Path,
    log: Callable[[str], None] = print,
    begin: Progress | None = None,
) -> Progress:
    """Train in place from `begin` on; resumes from `checkpoint` if it exists, and writes it every 4
    chunks."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.cycles[0].peak, betas=(0.9, 0.98), weight_decay=0.01
    )
    progress = begin or Progress()
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        progress = Progress(**state["progress"])
        log(f"resumed at step {progress.step}")
    while progress.step < recipe.steps:
        _train_chunk(recipe, model, optimizer, tokenizer, progress)
        log(f"step {progress.step:5d}  loss {progress.train_loss:.4f}  {progress.seconds:.0f} s")
        if progress.step % (4 * CHUNK) == 0 or progress.step >= recipe.steps:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                     "progress": progress.__dict__}  # fmt: skip
            torch.save(state, checkpoint.with_suffix(".tmp"))
            checkpoint.with_suffix(".tmp").replace(checkpoint)
    return progress


def _train_chunk(
    recipe: Recipe,
    model: LlamaForCausalLM,
    optimizer: torch.optim.Optimizer,
    tokenizer: Tokenizer,
    progress: Progress,
) -> None:
    """CHUNK steps on data of a seed of their own."""
    start, total = time.monotonic(), 0.0
    seed = recipe.seed * 1_000_000 + 7 + progress.step // CHUNK
    stream = batches(tokenizer, seed, recipe.cycle_at(progress.step).focus)
    model.train()
    for _ in range(CHUNK):
        batch = next(stream)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(recipe, progress.step)
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        progress.step += 1
        progress.tokens += int((batch.document >= 0).sum())
        progress.learned_tokens += int(batch.learned.sum())
        progress.documents += int((batch.document.max(dim=1).values + 1).sum())
        total += loss.item()
    progress.train_loss = total / CHUNK
    progress.history.append((progress.step, round(progress.train_loss, 4)))
    progress.seconds += time.monotonic() - start


@torch.no_grad()
def held_out_loss(model: LlamaForCausalLM, tokenizer: Tokenizer, num_batches: int = 20) -> float:
    """Mean loss on text of a seed that training never draws (its facts are the same facts)."""
    model.eval()
    stream = batches(tokenizer, HELD_OUT_SEED)
    return sum(loss_of(model, next(stream)).item() for _ in range(num_batches)) / num_batches


@torch.no_grad()
def answer(model: LlamaForCausalLM, tokenizer: Tokenizer, questions: list[str]) -> list[str]:
    """Greedy answers, one batch with left padding."""
    prompts = [tokenizer.encode(f"<|bos|><|user|>{q}<|end|><|assistant|>").ids for q in questions]
    width = max(map(len, prompts))
    ids = torch.tensor([[PAD] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    anything: Any = model  # the annotation of generate() refuses its own class
    out = anything.generate(ids, attention_mask=mask, max_new_tokens=160, do_sample=False,
                            eos_token_id=[END, EOS], pad_token_id=PAD)  # fmt: skip
    return [tokenizer.decode(row.tolist()) for row in out[:, width:]]


def accuracy(
    model: LlamaForCausalLM, tokenizer: Tokenizer, per_topic: int = 100
) -> tuple[dict[str, float], list[tuple[str, str, str]]]:
    """Share of exact greedy answers per topic, and the (question, right, given) of the misses."""
    model.eval()
    makers: dict[str, Callable[[random.Random], Turn]] = {
        name: make for name, (_, make) in text.TOPICS.items() if name != "story"
    }
    makers["arithmetic_unseen_pairs"] = lambda rng: arithmetic(rng, held_out=True)
    shares, missed = {}, []
    for name, make in makers.items():
        rng = random.Random(HELD_OUT_SEED)
        turns = [make(rng) for _ in range(per_topic)]
        given = answer(model, tokenizer, [turn.question for turn in turns])
        wrong = [
            (t.question, t.answer, g) for t, g in zip(turns, given, strict=True) if t.answer != g
        ]
        shares[name] = round(1 - len(wrong) / per_topic, 3)
        missed += wrong
    return shares, missed
