"""Images of Gemma 3: their rows see each other, also behind their own position, in layers with
windows and without; greedy tokens are those of transformers with the same inputs_embeds."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from test_engine_parity import NUM_NEW_TOKENS, Driver
from test_input_rows import Mixed, answers
from test_loader import rename_tensors

from mlc_native import _core
from mlc_native.errors import InvalidRequest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

NUM_ROWS = 14


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The text of a Gemma 3 that also sees images."""
    path = make_checkpoint("tiny-gemma3_text", tmp_path_factory.mktemp("gemma3") / "model")
    rename_tensors(path, lambda name: "model.language_model." + name.removeprefix("model."))
    config = json.loads((path / "config.json").read_text())
    outer = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": config}
    (path / "config.json").write_text(json.dumps(outer))
    return path


@pytest.fixture(scope="module")
def model(folder: Path) -> torch.nn.Module:
    """transformers' text model, whose mask of images the tests make themselves."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config = json.loads((folder / "config.json").read_text())["text_config"]
    text = Gemma3ForCausalLM(Gemma3TextConfig(**config)).eval()
    from safetensors.torch import load_file

    tensors = load_file(folder / "model.safetensors")
    text.load_state_dict(
        {
            "model." + name.removeprefix("model.language_model."): tensor.float()
            for name, tensor in tensors.items()
        },
        strict=False,
    )
    return text


def mask(
    prompt: Mixed, length: int, window: int | None, *, both_ways: bool = True
) -> torch.Tensor:
    """[1, 1, length, length]: what each row does not see is -inf."""
    row = torch.arange(length)[:, None]
    key = torch.arange(length)[None]
    sees = key <= row
    if window is not None:
        sees &= key > row - window
    end = prompt.at + len(prompt.rows)
    of_image = (row >= prompt.at) & (row < end)
    if both_ways:
        sees |= of_image & (key >= prompt.at) & (key < end)
    return torch.where(sees, 0.0, -torch.inf)[None, None]


@torch.inference_mode()
def expected(
    model: torch.nn.Module, prompt: Mixed, answer: list[int], *, both_ways: bool = True
) -> list[int]:
    tokens = torch.tensor([[*prompt.tokens, *answer[:-1]]])
    inputs = model.get_input_embeddings()(tokens)
    inputs[0, prompt.at : prompt.at + len(prompt.rows)] = torch.from_numpy(prompt.rows)
    length = tokens.shape[1]
    masks = {
        "full_attention": mask(prompt, length, None, both_ways=both_ways),
        "sliding_attention": mask(
            prompt, length, model.config.sliding_window, both_ways=both_ways
        ),
    }
    logits = model(inputs_embeds=inputs, attention_mask=masks, use_cache=False).logits
    return logits[0, len(prompt.tokens) - 1 :].argmax(-1).tolist()


def make_prompts(model: torch.nn.Module) -> list[Mixed]:
    generator = torch.Generator().manual_seed(3)
    table = model.get_input_embeddings().weight
    scale = float(model.get_input_embeddings()(torch.arange(100)).detach().std())
    prompts = []
    for at, length in ((5, 40), (0, 30), (30, 90), (20, 20 + NUM_ROWS)):
        tokens = torch.randint(0, len(table), (length,), generator=generator).tolist()
        rows = torch.randn((NUM_ROWS, table.shape[1]), generator=generator) * scale
        prompts.append(Mixed(tokens, at, rows.numpy()))
    return prompts


def test_tokens_are_those_of_transformers(folder: Path, model: torch.nn.Module) -> None:
    prompts = make_prompts(model)
    whole = Driver(folder, max_total_sequence_length=2048, prefill_chunk_size=512)
    assert whole.engine.request_limits().max_whole_rows == model.config.sliding_window
    alone = [prompt.answer(whole) for prompt in prompts]
    for prompt, answer in zip(prompts, alone, strict=True):
        assert len(answer) == NUM_NEW_TOKENS
        assert expected(model, prompt, answer) == answer
    one_way = [
        expected(model, *pair, both_ways=False) for pair in zip(prompts, alone, strict=True)
    ]
    assert one_way != alone  # otherwise this test shows nothing
    assert prompts[2].answer(whole) == alone[2]  # most of it is cached
    # Behind a prefix that ends within the image.
    cut = Mixed(prompts[2].tokens[:45], 30, prompts[2].rows)
    cut.answer(whole)
    assert prompts[2].answer(whole) == alone[2]
    # In chunks that have no room for an image behind other rows.
    chunks = Driver(folder, max_total_sequence_length=2048, prefill_chunk_size=24)
    assert answers(chunks, prompts) == alone


def test_an_image_that_no_step_holds_is_refused(folder: Path) -> None:
    engine = Driver(folder, max_total_sequence_length=512, prefill_chunk_size=20).engine
    limits = engine.request_limits()
    assert limits.max_whole_rows == 12  # other sequences may take 8 rows
    rows = np.zeros((13, limits.input_size), dtype=np.float32)
    with pytest.raises(InvalidRequest, match="in one step: of this model at most 12, got 13"):
        engine.create_request("a", [1] * 20, _core.GenerationConfig(), embeddings=[(1, rows)])
