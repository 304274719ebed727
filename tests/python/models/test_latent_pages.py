"""Latent attention: pages have the latents, and what makes keys and values of them is a matrix of
each head (csrc/models/latent_heads.h). What families compute is in test_families.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_model import find_test_library
from paged_driver import (
    PagedModel,
    PagedSequence,
    random_tokens,
    relative_error,
    transformers_logits,
)
from quantized_checkpoints import FORMATS, quantize_checkpoint

from mlc_native import EngineConfig, GenerationConfig, MLCEngine, SyncMLCEngine, inspect_model

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint
from model_shapes import SHAPES

LATENT = ["tiny-deepseek_v2", "tiny-deepseek_v3", "tiny-glm4_moe_lite"]
PROMPT = random_tokens(130, 512, seed=4)
# Whole groups of 32 in all matrices, and no choice of experts, which rounding may change.
SIZES = {"first_k_dense_replace": 8, "qk_nope_head_dim": 32, "v_head_dim": 32}


def all_logits(path: Path, **options: Any) -> np.ndarray:
    return PagedModel(path, **options).forward([(PagedSequence(PROMPT), len(PROMPT))], "all")


@pytest.mark.parametrize("like", LATENT)
def test_pages_have_one_head_of_a_latent(like: str, tmp_path: Path) -> None:
    path = make_checkpoint(like, tmp_path / like)
    shape = SHAPES[like]
    latent = shape["qk_rope_head_dim"] + shape["kv_lora_rank"]
    padded = -(-latent // 16) * 16
    for kv_cache_dtype, of_head in {
        "float32": 4 * padded,
        "bfloat16": 2 * padded,
        "float16": 2 * padded,
        "int8": padded + 4,  # and a scale
    }.items():
        model = PagedModel(path, kv_cache_dtype=kv_cache_dtype)
        per_token = 2 * shape["num_hidden_layers"] * of_head  # keys and values
        assert model.model.metadata["kv_bytes_per_token"] == per_token
    assert inspect_model(path)["kv_bytes_per_token"] == 2 * shape["num_hidden_layers"] * 4 * padded


def test_memory_for_so_many_tokens_is_that_of_latents(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-deepseek_v3", tmp_path / "model")
    config = EngineConfig(max_total_sequence_length=4096, max_num_sequence=2)
    engine = SyncMLCEngine(str(path), device="cpu", engine_config=config)
    summary = json.loads(engine._core.debug_call("load_summary"))
    shape = SHAPES["tiny-deepseek_v3"]
    per_token = 2 * shape["num_hidden_layers"] * 4 * (40 + 16 + 8)
    assert summary["kv_bytes"] == summary["kv_tokens"] * per_token


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """Without a choice of experts, which rounding may change: a model, and its logits."""
    path = tmp_path_factory.mktemp("latent") / "dense"
    make_checkpoint("tiny-deepseek_v3", path, overrides={"first_k_dense_replace": 8})
    return path, transformers_logits(path, PROMPT)


@pytest.mark.parametrize("kv_cache_dtype", ["float32", "bfloat16", "float16", "int8"])
@pytest.mark.parametrize("quantization", ["off", "q8", "q6", "q4"])
def test_every_format_is_near_float32(
    dense: tuple[Path, np.ndarray], quantization: str, kv_cache_dtype: str
) -> None:
    """And a row's bits do not depend on chunks, company and threads."""
    path, wanted = dense
    options: dict[str, Any] = {"quantization": quantization, "kv_cache_dtype": kv_cache_dtype}
    found = all_logits(path, **options)
    most = {"off": 0.0, "q8": 0.09, "q6": 0.25, "q4": 0.3}[quantization]
    most += {"float32": 1e-4, "float16": 0.002, "bfloat16": 0.01, "int8": 0.03}[kv_cache_dtype]
    assert relative_error(found, wanted) < most
    model = PagedModel(path, num_threads=3, **options)
    one, other = PagedSequence(PROMPT), PagedSequence(PROMPT[50:])
    for count in (37, 1, 60, 1, 31):
        end = one.kv_len + count
        rows = model.forward([(other, min(7, len(other.tokens) - other.kv_len)), (one, count)])
        assert np.array_equal(rows[-1], found[end - 1])


@pytest.mark.parametrize("form", ["gptq-4-sym", "awq", "compressed-int8-channel", "fp8-block"])
def test_heads_of_quantized_checkpoints(tmp_path: Path, form: str) -> None:
    """The same values as floats give the same bits, in whatever form they were stored."""
    source = make_checkpoint("tiny-deepseek_v2", tmp_path / "source", overrides=SIZES)
    quantized, floats = tmp_path / "quantized", tmp_path / "floats"
    quantize_checkpoint(source, quantized, floats, FORMATS[form])
    wanted = all_logits(floats, quantization="off", dtype="float32")
    found = all_logits(quantized, quantization="off", dtype="float32")
    assert np.array_equal(found, wanted)
    assert relative_error(found, transformers_logits(floats, PROMPT)) < 1e-4
    assert relative_error(all_logits(quantized, dtype="float32"), wanted) < 0.1


# ---- On CUDA ----


def greedy_on_cuda(path: Path, **options: Any) -> tuple[list[int], list[float], dict[str, Any]]:
    """Tokens behind two prompts of which one begins with the other, their log probabilities, and
    the engine's memory, through the emulator."""
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    config = EngineConfig(max_num_sequence=2, max_total_sequence_length=512, **options)
    engine = SyncMLCEngine(str(path), "cuda:0", model_lib=library, engine_config=config)
    request = GenerationConfig(max_tokens=4, temperature=0, logprobs=True)
    tokens, logprobs = [], []
    for prompt in (PROMPT[:70], PROMPT[:90]):
        answers = engine.generate([prompt], request)[1]
        for answer in map(json.loads, answers[0][0]):
            tokens.append(answer["token"])
            logprobs.append(answer["logprob"])
    summary = json.loads(engine._core.debug_call("load_summary"))
    engine.unload()
    return tokens, logprobs, summary


@pytest.mark.parametrize("like", [*LATENT, "tiny-mistral4"])
def test_cuda_has_the_tokens_of_the_cpu(like: str, tmp_path: Path) -> None:
    """The queries of Mistral 4 are scaled by their positions."""
    path = make_checkpoint(like, tmp_path / like)
    tokens, logprobs, summary = greedy_on_cuda(path, dtype="float32")
    shape = SHAPES[like]
    latent = shape["qk_rope_head_dim"] + shape["kv_lora_rank"]
    assert summary["kv_bytes"] == summary["kv_tokens"] * shape["num_hidden_layers"] * 4 * latent
    engine = SyncMLCEngine(str(path), "cpu", engine_config=EngineConfig(dtype="float32"))
    request = GenerationConfig(max_tokens=4, temperature=0, logprobs=True)
    answers = [engine.generate([PROMPT[:n]], request)[1][0][0] for n in (70, 90)]
    wanted = [json.loads(answer) for answer in [*answers[0], *answers[1]]]
    assert tokens == [answer["token"] for answer in wanted]
    assert logprobs == pytest.approx([answer["logprob"] for answer in wanted], abs=1e-4)


@pytest.mark.parametrize(("options", "most"), [
    ({"dtype": "bfloat16"}, 0.03),
    ({"dtype": "float16"}, 0.005),
    ({"dtype": "bfloat16", "kv_cache_dtype": "float8"}, 0.1),
    ({"dtype": "float16", "quantization": "q8"}, 0.1),
])  # fmt: skip
def test_cuda_of_few_bits_is_near_float32(
    dense: tuple[Path, np.ndarray], options: dict[str, Any], most: float
) -> None:
    """Of the first token; those behind it may be others."""
    wanted = greedy_on_cuda(dense[0], dtype="float32")[1]
    found = greedy_on_cuda(dense[0], **options)[1]
    assert found[0] == pytest.approx(wanted[0], abs=most)


# ---- In engines ----

REQUESTS: dict[str, Any] = {"n": 2, "seed": 5, "max_tokens": 40, "logprobs": 2, "ignore_eos": True}
# Their first 100 tokens are the same, and YaRN begins at 128.
PROMPTS = [[*PROMPT[:100], *random_tokens(count, 300, seed=count)] for count in (1, 29, 60, 156)]


def answers_of(engine: MLCEngine, prompts: list[list[int]]) -> list[Any]:
    """All that is said of the answers, greedy and drawn, with the log probability of each token."""
    responses = [
        engine.completions.create(prompt=prompts, temperature=temperature, **REQUESTS)
        for temperature in (0, 0.9)
    ]
    n = REQUESTS["n"]
    return [
        [
            choice.model_dump(exclude={"index"})
            for response in responses
            for choice in response.choices[i * n : (i + 1) * n]
        ]
        for i in range(len(prompts))
    ]


@pytest.fixture(scope="module")
def v3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint("tiny-deepseek_v3", tmp_path_factory.mktemp("latent") / "v3")


@pytest.mark.parametrize("kv_cache_dtype", ["float32", "bfloat16", "float16", "int8"])
def test_answers_are_those_of_each_request_alone(v3: Path, kv_cache_dtype: str) -> None:
    """Under pressure, behind cached prefixes, with guesses, and both."""
    common: dict[str, Any] = {"kv_cache_dtype": kv_cache_dtype, "num_threads": 1}
    with MLCEngine(str(v3), "cpu", prefix_cache_mode="disable", **common) as engine:
        alone = [answer for prompt in PROMPTS for answer in answers_of(engine, [prompt])]
    assert len({str(answer) for answer in alone}) == len(PROMPTS)
    few = {"max_num_sequence": 8, "max_total_sequence_length": 400, "prefill_chunk_size": 16}
    draft = {
        "speculative_mode": "small_draft",
        "additional_models": [str(v3)],
        "spec_draft_length": 3,
    }
    for settings in (few, {**few, **draft}, {**few, "speculative_mode": "ngram"}):
        with MLCEngine(str(v3), "cpu", mode="server", **common, **settings) as engine:
            # Whether a request is preempted depends on when the others arrive.
            for attempt in range(10):
                assert answers_of(engine, PROMPTS) == alone
                metrics = engine.metrics()
                if attempt > 0 and metrics["num_preemptions"] > 0:
                    break
        assert metrics["num_preemptions"] > 0
        assert metrics["prefix_cache_hits"] > 0
        if "additional_models" in settings:
            assert metrics["spec_decode"]["num_accepted_tokens"] > 100
