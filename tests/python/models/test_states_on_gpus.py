"""Short convolutions, Mamba-1, Mamba-2 and Kimi Delta Attention on CUDA, through the emulator, also
beside attention and in layers of one block alone: logits and tokens of transformers, and what is
refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_model import find_test_library
from families import some_at_night
from paged_driver import (
    PagedModel,
    PagedSequence,
    random_tokens,
    relative_error,
    transformers_logits,
)
from quantized_checkpoints import FORMATS, quantize_checkpoint

from mlc_native import EngineConfig, GenerationConfig, MLCEngine, SyncMLCEngine
from mlc_native.errors import InvalidConfig, LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

PROMPT = list(range(3, 103))
# Sizes on devices are multiples of 4.
BAMBA = {"mamba_n_heads": 48, "mamba_d_head": 4, "mamba_d_state": 12}
GRANITE_MOE = {"mamba_d_state": 36}
# Attention behind experts, and a last block whose state no other one follows.
BLOCKS_WITH_EXPERTS_FIRST = {
    "layers_block_type": ["moe", "full_attention", "moe", "linear_attention"],
}
# Queries have latents, and the last layer attends.
KIMI_WITH_QUERY_LATENTS = {
    "num_hidden_layers": 3, "q_lora_rank": 24, "attention_bias": True, "linear_num_heads": 3,
    "linear_head_dim": 40, "linear_conv_kernel_dim": 7,
    "layer_types": ["full_attention", "linear_attention", "full_attention"],
    "mlp_layer_types": ["sparse", "dense", "dense"],
}  # fmt: skip
SCAN = {"state_size": 8, "time_step_rank": 8}
# Of few channels: the driver has many slots.
MOST_STATES = {
    "state_size": 64, "time_step_rank": 16, "conv_kernel": 8, "use_bias": False,
    "intermediate_size": 40, "num_hidden_layers": 2,
}  # fmt: skip
BLOCKS_WITHOUT_STATES = {"layers_block_type": ["mlp", "full_attention", "mlp"]}
FALCON_WITH_NORM = {
    "mamba_rms_norm": True, "mamba_norm_before_gate": False, "attention_bias": True,
    "mlp_bias": True, "mamba_conv_bias": False,
}  # fmt: skip


def library() -> str:
    return find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")


KINDS: list[tuple[str, dict[str, Any]]] = [
    ("tiny-kimi_linear", {}),
    ("tiny-kimi_linear", KIMI_WITH_QUERY_LATENTS),
    ("tiny-olmo_hybrid", {}),
    ("tiny-lfm2", {}),
    ("tiny-lfm2", {"conv_L_cache": 8, "layer_types": ["conv"] * 4 + ["full_attention"]}),
    ("tiny-lfm2_moe", {}),
    ("tiny-lfm3", {}),
    ("tiny-granitemoehybrid_mamba", {}),
    ("tiny-granitemoehybrid_moe", GRANITE_MOE),
    ("tiny-bamba", BAMBA),
    ("tiny-nemotron_h", {}),
    ("tiny-nemotron_h", BLOCKS_WITHOUT_STATES),
    ("tiny-nemotron_h_moe", {}),
    ("tiny-nemotron_h_moe", BLOCKS_WITH_EXPERTS_FIRST),
    ("tiny-nemotron_h_moe", {"moe_latent_size": 40}),
    ("tiny-nemotron_h_moe", {"moe_latent_size": 72, "mlp_bias": True}),
    ("tiny-falcon_h1", {}),
    ("tiny-falcon_h1", FALCON_WITH_NORM),
    ("tiny-mamba2", {}),
    ("tiny-mamba", SCAN),
    ("tiny-mamba", MOST_STATES),
    ("tiny-falcon_mamba", {"time_step_rank": 8}),
    ("tiny-jamba", {"mamba_dt_rank": 8}),
    ("tiny-jamba_dense", {"mamba_dt_rank": 24, "mamba_conv_bias": False}),
]
# The others repeat what tests of the library check, with other sizes.
AT_EVERY_PUSH = [
    ("tiny-olmo_hybrid", {}),
    ("tiny-lfm2", {}),
    ("tiny-granitemoehybrid_mamba", {}),
    ("tiny-nemotron_h_moe", {"moe_latent_size": 40}),
    ("tiny-mamba2", {}),
    ("tiny-mamba", SCAN),
    ("tiny-jamba", {"mamba_dt_rank": 8}),
]


@pytest.mark.parametrize(("like", "overrides"), some_at_night(KINDS, AT_EVERY_PUSH))
def test_cuda_has_the_logits_and_tokens_of_transformers(
    tmp_path: Path, like: str, overrides: dict[str, Any]
) -> None:
    path = make_checkpoint(like, tmp_path / "m", overrides=overrides)
    model = PagedModel(path, model_lib=library(), dtype="float32")
    tokens, ours = model.generate(PROMPT, 64, 8)
    every_row = transformers_logits(path, PROMPT + tokens[:-1])
    reference = every_row[len(PROMPT) - 1 :]
    assert relative_error(ours, reference) < 1e-4
    assert tokens == reference.argmax(-1).tolist()
    # In transformers, too, some rows have other experts in 16 bits.
    work = [(PagedSequence(list(PROMPT)), len(PROMPT))]
    ours = PagedModel(path, model_lib=library(), dtype="bfloat16").forward(work, "all")
    errors = [relative_error(row, wanted) for row, wanted in zip(ours, every_row, strict=False)]
    assert np.median(errors) < 0.05


# So that rows have whole groups of each format.
GROUPED = {"hidden_size": 128, "head_dim": 32, "intermediate_size": 256}
GROUPED_SIZES: dict[str, dict[str, Any]] = {
    "tiny-falcon_h1": {**GROUPED, "mamba_d_ssm": 128, "mamba_d_head": 16, "mamba_d_state": 24},
    "tiny-nemotron_h": {**GROUPED, "mamba_head_dim": 16, "ssm_state_size": 24},
    # All experts are chosen, so that none is chosen otherwise.
    "tiny-kimi_linear": {
        **GROUPED, "linear_num_heads": 8, "linear_head_dim": 32, "moe_intermediate_size": 64,
        "qk_nope_head_dim": 32, "qk_rope_head_dim": 32, "kv_lora_rank": 64,
        "num_experts_per_tok": 12, "n_group": 1, "topk_group": 1,
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("like", GROUPED_SIZES)
@pytest.mark.parametrize("form", ["gptq-4-sym", "awq", "compressed-int8-channel"])
def test_quantized_checkpoints_have_the_logits_of_their_values(
    tmp_path: Path, like: str, form: str
) -> None:
    source = make_checkpoint(like, tmp_path / "m", overrides=GROUPED_SIZES[like])
    quantize_checkpoint(source, tmp_path / "stored", tmp_path / "values", FORMATS[form])

    def logits(folder: str, **settings: Any) -> np.ndarray:
        work = [(PagedSequence(list(PROMPT)), len(PROMPT))]
        return PagedModel(tmp_path / folder, **settings).forward(work, "all")

    wanted = logits("values", dtype="float32")
    for dtype, most in (("float32", 1e-4), ("float16", 2e-2)):
        assert relative_error(logits("stored", model_lib=library(), dtype=dtype), wanted) < most


def answers(path: Path, prompts: list[list[int]], **settings: Any) -> tuple[list[Any], int]:
    """The greedy tokens after the prompts with their log-probabilities, and preempted sequences."""
    sizes = {"max_single_sequence_length": 96, "num_threads": 1, "dtype": "float32"}
    engine = SyncMLCEngine(
        str(path),
        settings.pop("device", "cuda:0"),
        model_lib=settings.pop("model_lib", None),
        engine_config=EngineConfig(**sizes, **settings),
    )
    request = GenerationConfig(max_tokens=40, temperature=0, logprobs=True, top_logprobs=2)
    found = [json.loads(token) for answer in engine.generate(prompts, request)[1]
             for token in answer[0]]  # fmt: skip
    preempted = engine.metrics().metrics["num_preemptions"]
    engine._engine().debug_call("audit_pages")
    engine.unload()
    return found, preempted


SIZES_OF_SCANS = {"tiny-jamba": {"mamba_dt_rank": 8}}


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize(
    "like",
    [
        "tiny-granitemoehybrid_mamba",
        "tiny-nemotron_h",
        "tiny-nemotron_h_moe",
        "tiny-falcon_h1",
        "tiny-kimi_linear",
        *SIZES_OF_SCANS,
    ],
)
def test_batches_chunks_and_preempted_sequences_have_the_answers_of_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, like: str, shards: int
) -> None:
    """Sequences of which few fit at a time, so they begin anew, and chunks that are shorter than
    their prompts."""
    if shards > 1 and like in SIZES_OF_SCANS:
        pytest.skip("several devices refuse Mamba-1")
    nccl = find_test_library("libmlc_native_fake_nccl.so", "MLC_NATIVE_FAKE_NCCL_LIB")
    monkeypatch.setenv("MLC_NATIVE_NCCL_LIB", nccl)
    if like == "tiny-granitemoehybrid_mamba":
        path = make_checkpoint(like, tmp_path / "m", overrides={"shared_intermediate_size": 64})
    else:
        path = make_checkpoint(like, tmp_path / "m", overrides=SIZES_OF_SCANS.get(like))
    prompts = [random_tokens(length, 512, seed=length) for length in (20, 3, 25, 18)]
    alone = [answers(path, [prompt], device="cpu", max_num_sequence=1)[0] for prompt in prompts]
    got, preempted = answers(
        path, prompts, model_lib=library(), tensor_parallel_shards=shards, max_num_sequence=4,
        prefill_chunk_size=16, max_total_sequence_length=112, prefix_cache_mode="disable",
    )  # fmt: skip
    want = [token for answer in alone for token in answer]
    assert preempted > 0
    assert [token["token"] for token in got] == [token["token"] for token in want]
    for ours, theirs in zip(got, want, strict=True):
        assert ours["logprob"] == pytest.approx(theirs["logprob"], abs=1e-4)
        assert [top["token"] for top in ours["top_logprobs"]] == [
            top["token"] for top in theirs["top_logprobs"]
        ]


@pytest.mark.parametrize(
    ("like", "overrides", "missing"),
    [
        ("tiny-kimi_linear", {"linear_head_dim": 20}, "linear_head_dim.*of 8, at most 256"),
        ("tiny-kimi_linear", {"linear_head_dim": 264}, "linear_head_dim.*at most 256"),
        ("tiny-bamba", {}, "mamba_d_state.*multiple of 4, at most 256"),
        ("tiny-lfm3", {"num_attention_heads": 4}, "num_attention_heads.*multiple of 8"),
        ("tiny-bamba", {"mamba_d_state": 264}, "mamba_d_state.*at most 256"),
        ("tiny-bamba", {"mamba_d_state": 8}, "mamba_d_head.*multiple of 4"),
        ("tiny-nemotron_h", {"ssm_state_size": 18}, "ssm_state_size.*multiple of 4, at most 256"),
        ("tiny-nemotron_h", {"mamba_head_dim": 18}, "mamba_head_dim.*multiple of 4"),
        ("tiny-falcon_h1", {"mamba_d_state": 18}, "mamba_d_state.*multiple of 4, at most 256"),
        ("tiny-mamba", {"time_step_rank": 8}, "state_size.*multiple of 4, at most 64"),
        ("tiny-mamba", {**SCAN, "state_size": 68}, "state_size.*at most 64"),
        ("tiny-mamba", {**SCAN, "time_step_rank": 12}, "time_step_rank.*multiple of 8"),
        ("tiny-mamba", {**SCAN, "intermediate_size": 196}, "intermediate_size.*multiple of 8"),
        ("tiny-jamba", {}, "mamba_dt_rank.*multiple of 8"),
    ],
)
def test_sizes_that_kernels_lack_are_refused_by_name(
    tmp_path: Path, like: str, overrides: dict[str, Any], missing: str
) -> None:
    path = make_checkpoint(like, tmp_path / "m", overrides=overrides)
    with pytest.raises(LoadError, match=missing):
        PagedModel(path, model_lib=library())


@pytest.mark.parametrize(
    "like", ["tiny-granitemoehybrid_mamba", "tiny-nemotron_h", "tiny-falcon_h1"]
)
def test_heads_that_gpus_cannot_divide_are_refused_by_name(tmp_path: Path, like: str) -> None:
    path = make_checkpoint(like, tmp_path / "m")
    config = EngineConfig(tensor_parallel_shards=4)  # of two groups
    with pytest.raises(InvalidConfig, match="in 2 groups of Mamba-2"):
        MLCEngine(str(path), "cuda:0", model_lib=library(), engine_config=config)


def test_several_gpus_refuse_mamba_1_by_name(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-mamba", tmp_path / "m", overrides=SCAN)
    config = EngineConfig(tensor_parallel_shards=2)
    with pytest.raises(InvalidConfig, match="must be 1 for Mamba-1"):
        MLCEngine(str(path), "cuda:0", model_lib=library(), engine_config=config)
