"""Positions of images (M-RoPE): greedy tokens are those of transformers with the same inputs_embeds
and position_ids.

An image is a grid of rows: each has a time, a height and a width, and what follows goes on behind
the greatest of them. Rows of Qwen3-VL have more parts, which the first layers add (DeepStack).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from families import some_at_night
from paged_driver import reference_model
from test_engine_parity import NUM_NEW_TOKENS, Driver
from test_input_rows import answers

from mlc_native import _core
from mlc_native.errors import InvalidRequest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint
from model_shapes import SHAPES

EVERY_RUN = ("tiny-qwen2_5_vl", "tiny-qwen3_vl")  # sections, and in turns
OTHERS = ("tiny-glm46v", "tiny-glm4v", "tiny-paddleocr_vl", "tiny-qwen2_vl", "tiny-qwen3_5")
GRIDS = ((1, 4, 6), (2, 3, 5))  # time, height, width


@dataclass
class Prompt:
    """A prompt with images, for the engine and for transformers."""

    tokens: list[int]
    images: list[tuple[int, np.ndarray, np.ndarray, int]]
    places: torch.Tensor  # [3, tokens], of transformers


def grid_positions(grid: tuple[int, int, int]) -> np.ndarray:
    """[rows, 3]"""
    return np.stack(
        [axis.flatten() for axis in np.meshgrid(*map(np.arange, grid), indexing="ij")], axis=1
    ).astype(np.int32)


def make_prompt(model: torch.nn.Module, vocab: int, seed: int, num_parts: int = 1) -> Prompt:
    """Text, an image, text, an image, text."""
    generator = torch.Generator().manual_seed(seed)
    table = model.get_input_embeddings()(torch.arange(vocab)).detach()
    tokens: list[int] = []
    images = []
    places: list[np.ndarray] = []
    following = 0

    def add_text(length: int) -> None:
        nonlocal following
        tokens.extend(torch.randint(0, vocab, (length,), generator=generator).tolist())
        text = np.arange(following, following + length)
        places.append(np.stack([text, text, text], axis=1))
        following += length

    add_text(7 + seed)
    for grid in GRIDS:
        positions = grid_positions(grid)
        count = len(positions)
        width = num_parts * table.shape[1]
        rows = torch.randn((count, width), generator=generator) * table.std()
        images.append((len(tokens), rows.numpy(), positions, max(grid)))
        tokens.extend([0] * count)
        places.append(positions + following)
        following += max(grid)
        add_text(11)
    return Prompt(tokens, images, torch.from_numpy(np.concatenate(places).T.astype(np.int64)))


@torch.inference_mode()
def expected(model: torch.nn.Module, prompt: Prompt, answer: list[int]) -> list[int]:
    tokens = torch.tensor([[*prompt.tokens, *answer[:-1]]])
    inputs = model.get_input_embeddings()(tokens)
    size = inputs.shape[-1]
    is_image = torch.zeros(tokens.shape, dtype=torch.bool)
    for at, rows, _, _ in prompt.images:
        inputs[0, at : at + len(rows)] = torch.from_numpy(rows[:, :size])
        is_image[0, at : at + len(rows)] = True
    behind = prompt.places.max() + torch.arange(1, len(answer))
    places = torch.cat([prompt.places, behind.expand(3, -1)], dim=1)[:, None]
    of_images = np.concatenate([rows for _, rows, _, _ in prompt.images])
    deepstack = [
        torch.from_numpy(of_images[:, begin : begin + size])
        for begin in range(size, of_images.shape[1], size)
    ]
    more = {"visual_pos_masks": is_image, "deepstack_visual_embeds": deepstack}
    states = model.model.language_model(
        inputs_embeds=inputs, position_ids=places, use_cache=False, **(more if deepstack else {})
    ).last_hidden_state
    return model.lm_head(states)[0, len(prompt.tokens) - 1 :].argmax(-1).tolist()


@pytest.mark.parametrize("like", some_at_night((*EVERY_RUN, *OTHERS), every_push=EVERY_RUN))
def test_tokens_are_those_of_transformers(tmp_path: Path, like: str) -> None:
    path = make_checkpoint(like, tmp_path / like)
    model = reference_model(path, torch.float32)
    vocab = SHAPES[like].get("text_config", SHAPES[like])["vocab_size"]
    whole = Driver(path, max_total_sequence_length=2048, prefill_chunk_size=512)
    limits = whole.engine.request_limits()
    assert limits.row_positions
    num_parts = limits.input_size // model.get_input_embeddings().weight.shape[1]
    assert num_parts == (2 if like == "tiny-qwen3_vl" else 1)
    prompts = [make_prompt(model, vocab, seed, num_parts) for seed in range(3)]
    alone = [answers(whole, [prompt])[0] for prompt in prompts]
    for prompt, answer in zip(prompts, alone, strict=True):
        assert len(answer) == NUM_NEW_TOKENS
        assert expected(model, prompt, answer) == answer
    assert answers(whole, prompts[:1]) == alone[:1]  # most of it is cached
    chunks = Driver(path, max_total_sequence_length=2048, prefill_chunk_size=16)
    assert answers(chunks, prompts) == alone


def test_rows_at_other_positions_are_others(tmp_path: Path) -> None:
    """The prefix cache tells images of the same rows and other grids apart."""
    path = make_checkpoint("tiny-qwen2_5_vl", tmp_path / "model")
    model = reference_model(path, torch.float32)
    prompt = make_prompt(model, 100, 1)
    at, rows, positions, advance = prompt.images[0]
    wide = grid_positions((1, 6, 4))
    assert len(wide) == len(positions)
    other = Prompt(prompt.tokens, [(at, rows, wide, advance)], prompt.places)
    one = Prompt(prompt.tokens, prompt.images[:1], prompt.places)
    engine = Driver(path, max_total_sequence_length=2048, prefill_chunk_size=512)
    first = answers(engine, [one])
    alone = Driver(path, max_total_sequence_length=2048, prefill_chunk_size=512)
    second = answers(alone, [other])
    assert first != second
    assert answers(engine, [other]) == second


@pytest.mark.parametrize(
    ("positions", "advance", "message"),
    [
        ([[0, 0, 0]] * 2, 1, "a position for each of 3 rows, got 2"),
        ([[0, 0, 3]] * 3, 1, r"positions in \[0, 3\), got 3"),
        ([[0, -1, 0]] * 3, 1, r"positions in \[0, 3\), got -1"),
        ([[0, 0, 0]] * 3, 0, r"advance by a number in \[1, 3\], got 0"),
        ([[0, 0, 0]] * 3, 4, r"advance by a number in \[1, 3\], got 4"),
    ],
)
def test_refusals(tmp_path: Path, positions: list[list[int]], advance: int, message: str) -> None:
    path = make_checkpoint("tiny-qwen2_5_vl", tmp_path / "model")
    engine = Driver(path, max_total_sequence_length=512, prefill_chunk_size=64).engine
    rows = np.zeros((3, engine.request_limits().input_size), dtype=np.float32)
    images = [(1, rows, np.array(positions, dtype=np.int32), advance)]
    with pytest.raises(InvalidRequest, match=message):
        engine.create_request("a", [1] * 9, _core.GenerationConfig(), embeddings=images)


def test_models_without_them_refuse_positions(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-llama", tmp_path / "model")
    engine = Driver(path, max_total_sequence_length=512, prefill_chunk_size=64).engine
    rows = np.zeros((3, engine.request_limits().input_size), dtype=np.float32)
    images = [(1, rows, np.zeros((3, 3), dtype=np.int32), 1)]
    with pytest.raises(InvalidRequest, match="those of this model are one number"):
        engine.create_request("a", [1] * 9, _core.GenerationConfig(), embeddings=images)
