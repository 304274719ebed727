"""Several GPUs that compute one model give the tokens of one, for every kind of checkpoint: through
the emulator's devices and a fake NCCL."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_model import find_test_library
from families import some_at_night
from gguf import GGMLQuantizationType as Type
from gguf_files import write_gguf
from mlc_folders import make_mlc_folder
from paged_driver import random_tokens
from quantized_checkpoints import FORMATS, quantize_checkpoint

from mlc_native import EngineConfig, GenerationConfig, SyncMLCEngine
from mlc_native.errors import InvalidConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from dense_shapes import GEMMA4_INPUTS
from make_random_checkpoint import make_checkpoint

PROMPTS = [random_tokens(18, 512, seed=3), random_tokens(3, 512, seed=4)]
NUM_TOKENS = 3
# So that each GPU has whole groups of columns.
SIZES = {"num_hidden_layers": 2, "hidden_size": 128, "head_dim": 32, "intermediate_size": 256}
LATENT_SIZES = {
    "num_hidden_layers": 2,
    "first_k_dense_replace": 2,
    "intermediate_size": 256,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
}
KINDS = [
    "floats",
    "gptq-4-sym",
    "gptq-4-sym-act-order",
    "awq",
    "compressed-int8-channel",
    "compressed-float8-block",
    "mlc-q4f16_1",
    "gguf-Q4_0",
    "tiny-olmo2",  # floats; norms over all heads
    "tiny-bitnet",  # norms of what the last linears of blocks read
    "tiny-gemma4_text",  # layers with sizes of their own
    "tiny-deepseek_v2",  # latent attention, whose queries come from the hidden states
    "tiny-deepseek_v3",  # whose queries have latents
    "tiny-glm_moe_dsa",  # whose queries attend to chosen keys
    "latent-gptq-4-sym",
    "tiny-afmoe",  # gates of what attention gives
    "tiny-laguna",  # likewise of heads, of which layers have different numbers
    "tiny-cohere2_moe",  # experts in parallel blocks
    "tiny-opt",  # learned positions
    "tiny-gpt2",  # whose matrices are stored transposed
    "tiny-gpt_bigcode",  # with one KV head
    "tiny-falcon_new",  # parallel blocks with norms of their own, in groups of a KV head
    "tiny-codegen",  # in fourths of heads
    "tiny-llama4_text",  # experts whose inputs are scaled, dense layers among them, and chunks
]
OVERRIDES: dict[str, Any] = {
    # Rounding of float16 may change which of two keys with nearly equal scores is chosen.
    "tiny-glm_moe_dsa": {"index_topk": 7, "index_n_heads": 8, "moe_intermediate_size": 64},
    "tiny-lfm3": {"num_attention_heads": 16, "sliding_window": 12},
    "tiny-olmo2": SIZES,
    "tiny-afmoe": {"sliding_window": 12, "head_dim": 16},
    "tiny-cohere2_moe": {"sliding_window": 12, "intermediate_size": 64},
    "tiny-laguna": {
        "sliding_window": 12, "num_attention_heads_per_layer": [16, 32, 16, 48, 32],
        "moe_intermediate_size": 64, "shared_expert_intermediate_size": 96,
    },
    "tiny-llama4_text": {"attention_chunk_size": 12, "floor_scale": 5},
    "tiny-granitemoehybrid_mamba": {"shared_intermediate_size": 64},
    "tiny-granitemoehybrid_mamba-of-one-group": {
        "shared_intermediate_size": 64, "mamba_n_groups": 1,
    },
    "tiny-nemotron_h_moe": {
        "moe_intermediate_size": 64, "moe_shared_expert_intermediate_size": 96,
    },
    "tiny-nemotron_h_moe-of-latents": {
        "moe_intermediate_size": 64, "moe_shared_expert_intermediate_size": 96,
        "moe_latent_size": 72, "mlp_bias": True,
    },
    "tiny-falcon_h1-of-one-group": {"mamba_n_groups": 1},
    "tiny-kimi_linear": {"moe_intermediate_size": 64},
    "tiny-kimi_linear-of-query-latents": {"q_lora_rank": 24, "attention_bias": True},
}  # fmt: skip
STATES = [
    ("tiny-qwen3_5", 4),  # a value head for each key head, biases, and fewer KV heads than GPUs
    ("tiny-qwen3_5_moe_text", 2),
    ("tiny-qwen3_next", 2),  # whose tensors have groups of heads
    ("tiny-kimi_linear", 4),  # a head each, and experts
    ("tiny-kimi_linear-of-query-latents", 2),
    ("tiny-olmo_hybrid", 2),  # norms of whole queries and keys beside states
    ("tiny-lfm2", 4),
    ("tiny-lfm2_moe", 2),
    ("tiny-lfm3", 2),  # 16 heads with a gate each
    ("tiny-granitemoehybrid_mamba", 2),  # heads of a group each
    ("tiny-granitemoehybrid_mamba-of-one-group", 4),
    ("tiny-nemotron_h", 2),  # layers of one block, with heads of a group each
    ("tiny-nemotron_h_moe", 4),  # of one group
    ("tiny-nemotron_h_moe-of-latents", 4),  # which experts read, with biases
    ("tiny-falcon_h1", 2),  # attention beside states
    ("tiny-falcon_h1-of-one-group", 4),  # without a norm of the heads
    ("tiny-mamba2", 2),  # without keys and values
]
STATES_AT_EVERY_PUSH = [
    ("tiny-qwen3_5", 4),
    ("tiny-lfm2", 4),
    ("tiny-nemotron_h", 2),
    ("tiny-falcon_h1-of-one-group", 4),
    ("tiny-mamba2", 2),
]
# Windows end within a prompt, and the layers behind them have other heads.
NARROW = {"sliding_window": 12}
SHARING = {**GEMMA4_INPUTS, **NARROW, "hidden_size_per_layer_input": 24}
LAYERS_WITH_SIZES: dict[str, tuple[str, dict[str, Any], int]] = {
    # One KV head of layers without a window, which both GPUs have, gives keys and values.
    "heads": ("tiny-gemma4_text", NARROW, 2),
    "heads-of-four": ("tiny-gemma4_text", NARROW, 4),  # which have KV heads of windows in pairs
    "heads-alike": (
        "tiny-gemma4_text",
        NARROW | {"num_key_value_heads": 4, "num_global_key_value_heads": 2},
        2,
    ),
    "biases": ("tiny-gemma4_unified_text", NARROW, 2),
    # Inputs of layers, shared keys and values, and feed-forward blocks of two sizes.
    "inputs": ("tiny-gemma4", {"text_config": SHARING}, 2),
    "inputs-of-four": ("tiny-gemma4", {"text_config": SHARING}, 4),
    # Likewise, with residual streams and gates that are cut.
    "streams": ("tiny-gemma3n_text", {}, 2),
    # Sinks of windows, and values that are shorter than keys.
    "short-values": ("tiny-mimo_v2_flash", NARROW, 2),
    "short-values-of-four": ("tiny-mimo_v2_flash", NARROW | {"moe_intermediate_size": 64}, 4),
    # Numbers of query heads, with a gate of each element.
    "query-heads-of-four": (
        "tiny-laguna",
        NARROW | {
            "gating": "per-element", "num_attention_heads_per_layer": [4, 16, 8, 24, 16],
            "moe_intermediate_size": 64, "shared_expert_intermediate_size": 96,
        },
        4,
    ),
    "experts": ("tiny-gemma4_text-experts", NARROW, 2),
    "experts-of-four": ("tiny-gemma4_text-experts", NARROW | {"moe_intermediate_size": 64}, 4),
}
AT_EVERY_PUSH = {
    "heads-of-four", "inputs", "streams", "experts", "query-heads-of-four", "short-values-of-four",
}  # fmt: skip


@pytest.fixture(autouse=True)
def fake_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    library = find_test_library("libmlc_native_fake_nccl.so", "MLC_NATIVE_FAKE_NCCL_LIB")
    monkeypatch.setenv("MLC_NATIVE_NCCL_LIB", library)


def make_folder(kind: str, folder: Path) -> Path:
    """A checkpoint whose weights are stored in this way, or of this shape."""
    if kind.startswith("tiny-"):
        return make_checkpoint(
            kind.partition("-of-")[0], folder / "source", overrides=OVERRIDES.get(kind)
        )
    if kind.startswith("latent-"):
        source = make_checkpoint("tiny-deepseek_v2", folder / "source", overrides=LATENT_SIZES)
        form = FORMATS[kind.removeprefix("latent-")]
        quantize_checkpoint(source, folder / "stored", folder / "values", form)
        return folder / "stored"
    like = "tiny-llama" if kind.startswith(("mlc", "gguf")) else "tiny-qwen2"
    source = make_checkpoint(like, folder / "source", overrides=SIZES)
    family, _, form = kind.partition("-")
    if family == "mlc":
        make_mlc_folder(source, folder / "stored", folder / "values", form)
    elif family == "gguf":
        return write_gguf(source, folder / "x.gguf", lambda _: Type[form])
    elif kind == "floats":
        return source
    else:
        quantize_checkpoint(source, folder / "stored", folder / "values", FORMATS[kind])
    return folder / "stored"


def answers(
    path: Path, shards: int, num_tokens: int = NUM_TOKENS, **settings: Any
) -> tuple[list[Any], list[float]]:
    """The greedy tokens after the prompts and their log-probabilities."""
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    config = EngineConfig(
        tensor_parallel_shards=shards, max_num_sequence=2, prefill_chunk_size=16, **settings
    )
    engine = SyncMLCEngine(str(path), "cuda:0", model_lib=library, engine_config=config)
    request = GenerationConfig(max_tokens=num_tokens, temperature=0, logprobs=True)
    found = [json.loads(token) for answer in engine.generate(PROMPTS, request)[1]
             for token in answer[0]]  # fmt: skip
    if "speculative_mode" in settings:
        drafts = engine.metrics().metrics["spec_decode"]
        assert drafts["num_failures"] == 0
        assert drafts["num_accepted_tokens"] > 0
    engine.unload()
    assert len(found) == 2 * num_tokens
    return [token["token"] for token in found], [token["logprob"] for token in found]


@pytest.mark.parametrize("kind", KINDS)
def test_two_gpus_give_the_tokens_of_one(tmp_path: Path, kind: str) -> None:
    path = make_folder(kind, tmp_path)
    tokens, logprobs = answers(path, 1, dtype="float16")
    got, got_logprobs = answers(path, 2, dtype="float16")
    assert got == tokens
    assert got_logprobs == pytest.approx(logprobs, abs=0.01)


@pytest.mark.parametrize(("kind", "shards"), some_at_night(STATES, STATES_AT_EVERY_PUSH))
def test_states_are_divided_by_heads(tmp_path: Path, kind: str, shards: int) -> None:
    """One GPU has all states and several those of their heads or channels; prompts go on in
    chunks."""
    path = make_folder(kind, tmp_path)
    tokens, logprobs = answers(path, 1, 8, dtype="float32")
    got, got_logprobs = answers(path, shards, 8, dtype="float32")
    assert got == tokens
    assert got_logprobs == pytest.approx(logprobs, abs=1e-4)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind, marks=[] if kind in AT_EVERY_PUSH else [pytest.mark.slow, pytest.mark.nightly]
        )
        for kind in LAYERS_WITH_SIZES
    ],
)
def test_layers_with_sizes_of_their_own_are_divided(tmp_path: Path, kind: str) -> None:
    like, overrides, shards = LAYERS_WITH_SIZES[kind]
    path = make_checkpoint(like, tmp_path / "source", overrides=overrides)
    tokens, logprobs = answers(path, 1, 5, dtype="float32")
    got, got_logprobs = answers(path, shards, 5, dtype="float32")
    assert got == tokens
    assert got_logprobs == pytest.approx(logprobs, abs=1e-4)


def test_four_gpus_with_a_draft_model_give_the_tokens_of_one(tmp_path: Path) -> None:
    path = make_folder("floats", tmp_path)
    settings = {"num_tokens": 8, "dtype": "float32"}
    tokens, logprobs = answers(path, 1, **settings)
    draft = {"speculative_mode": "small_draft", "additional_models": [str(path)]}
    draft |= {"spec_draft_length": 2, "deterministic": True}
    got, got_logprobs = answers(path, 4, **settings, **draft)
    assert got == tokens
    assert got_logprobs == pytest.approx(logprobs, abs=1e-3)


@pytest.mark.slow
@pytest.mark.nightly
def test_the_first_gpu_has_all_states_of_the_draft_model(tmp_path: Path) -> None:
    path = make_folder("tiny-qwen3_5", tmp_path)
    tokens, logprobs = answers(path, 1, 8, dtype="float32")
    draft = {"speculative_mode": "small_draft", "additional_models": [str(path)]}
    got, got_logprobs = answers(path, 2, 8, dtype="float32", spec_draft_length=2, **draft)
    assert got == tokens
    assert got_logprobs == pytest.approx(logprobs, abs=1e-4)


def test_settings_are_refused_by_name(tmp_path: Path) -> None:
    path = make_folder("floats", tmp_path)
    with pytest.raises(InvalidConfig, match="number of GPUs") as error:
        answers(path, 5)
    assert error.value.field == "tensor_parallel_shards"
    with pytest.raises(InvalidConfig, match="query heads") as error:
        answers(path, 3)
    assert error.value.field == "tensor_parallel_shards"
    linear = make_folder("tiny-qwen3_5_moe_text", tmp_path / "linear")
    with pytest.raises(InvalidConfig, match="2 key heads of linear attention") as error:
        answers(linear, 4)
    assert error.value.field == "tensor_parallel_shards"
    sizes = make_checkpoint("tiny-gemma4", tmp_path / "sizes", overrides={"text_config": SHARING})
    message = "1, 2 or 4 for 4 query heads, 2 KV heads, a feed-forward size of 160 or 320"
    with pytest.raises(InvalidConfig, match=message) as error:
        answers(sizes, 3)
    assert error.value.field == "tensor_parallel_shards"
    with pytest.raises(InvalidConfig, match="1 on the CPU") as error:
        SyncMLCEngine(str(path), "cpu", engine_config=EngineConfig(tensor_parallel_shards=2))
    assert error.value.field == "tensor_parallel_shards"
