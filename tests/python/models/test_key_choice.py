"""A choice of keys: each query attends to the keys that an index scores best (DeepSeek's sparse
attention, csrc/kernels/key_choice.h). What families compute is in test_families.py."""

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

from mlc_native import EngineConfig, GenerationConfig, SyncMLCEngine, inspect_model
from mlc_native.errors import LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint
from model_shapes import SHAPES

FAMILIES = ["tiny-deepseek_v32", "tiny-glm_moe_dsa"]
PROMPT = random_tokens(130, 512, seed=4)
DENSE = {"first_k_dense_replace": 8, "mlp_layer_types": None}  # rounding may change experts


def all_logits(path: Path, **options: Any) -> np.ndarray:
    return PagedModel(path, **options).forward([(PagedSequence(PROMPT), len(PROMPT))], "all")


def num_indices(shape: dict[str, Any]) -> int:
    types = shape.get("indexer_types", ["full"] * shape["num_hidden_layers"])
    return types.count("full")


@pytest.mark.parametrize("like", FAMILIES)
def test_pages_have_keys_of_each_index(like: str, tmp_path: Path) -> None:
    path = make_checkpoint(like, tmp_path / like)
    shape = SHAPES[like]
    latent = -(-(shape["qk_rope_head_dim"] + shape["kv_lora_rank"]) // 16) * 16
    index = -(-shape["index_head_dim"] // 16) * 16
    wanted = 4 * (2 * shape["num_hidden_layers"] * latent + num_indices(shape) * index)
    assert PagedModel(path, kv_cache_dtype="float32").model.metadata["kv_bytes_per_token"] == wanted
    assert inspect_model(path)["kv_bytes_per_token"] == wanted


@pytest.mark.parametrize("like", FAMILIES)
def test_the_choice_matters(like: str, tmp_path: Path) -> None:
    """From the first row that has more keys than it attends to, and not before."""
    path = make_checkpoint(like, tmp_path / "few")
    few = all_logits(path)
    config = json.loads((path / "config.json").read_text())
    num_chosen = config["index_topk"]
    config["index_topk"] = 1000
    (path / "config.json").write_text(json.dumps(config))
    every = all_logits(path)
    assert np.array_equal(few[:num_chosen], every[:num_chosen])
    for row in range(num_chosen, len(PROMPT)):
        assert relative_error(few[row], every[row]) > 1e-3, row


@pytest.mark.parametrize("kv_cache_dtype", ["float32", "bfloat16", "float16", "int8"])
@pytest.mark.parametrize("quantization", ["off", "q8", "q4"])
def test_a_rows_bits_do_not_depend_on_others(
    quantization: str, kv_cache_dtype: str, tmp_path: Path
) -> None:
    """Chunks, company and threads, in every format of pages."""
    path = make_checkpoint("tiny-glm_moe_dsa", tmp_path / "m", overrides=DENSE)
    options: dict[str, Any] = {"quantization": quantization, "kv_cache_dtype": kv_cache_dtype}
    found = all_logits(path, **options)
    model = PagedModel(path, num_threads=3, **options)
    one, other = PagedSequence(PROMPT), PagedSequence(PROMPT[50:])
    for count in (37, 1, 60, 1, 31):
        end = one.kv_len + count
        rows = model.forward([(other, min(17, len(other.tokens) - other.kv_len)), (one, count)])
        assert np.array_equal(rows[-1], found[end - 1])


def test_pages_of_few_bits_choose_nearly_the_same(tmp_path: Path) -> None:
    """Which of two keys with nearly the same score is taken may change; most rows stay."""
    path = make_checkpoint("tiny-deepseek_v32", tmp_path / "m", overrides=DENSE)
    wanted = transformers_logits(path, PROMPT)
    for kv_cache_dtype in ("float16", "bfloat16", "int8"):
        found = all_logits(path, kv_cache_dtype=kv_cache_dtype, quantization="off")
        errors = [relative_error(a, b) for a, b in zip(found, wanted, strict=True)]
        assert np.median(errors) < 0.03, kv_cache_dtype


@pytest.mark.parametrize("form", ["fp8-block", "compressed-int8-channel"])
def test_quantized_checkpoints(tmp_path: Path, form: str) -> None:
    """The same values as floats give the same bits, in whatever form they were stored."""
    sizes = DENSE | {"qk_nope_head_dim": 32, "q_lora_rank": 32, "index_head_dim": 32}
    source = make_checkpoint("tiny-deepseek_v32", tmp_path / "source", overrides=sizes)
    quantized, floats = tmp_path / "quantized", tmp_path / "floats"
    quantize_checkpoint(source, quantized, floats, FORMATS[form])
    wanted = all_logits(floats, quantization="off", dtype="float32")
    assert np.array_equal(
        all_logits(quantized, quantization="off", dtype="float32"), wanted
    )
    assert relative_error(wanted, transformers_logits(floats, PROMPT)) < 1e-4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"index_topk": 0}, '"index_topk" must be an integer in [1, '),
        ({"index_n_heads": 0}, '"index_n_heads" must be an integer in [1, '),
        ({"index_head_dim": 4}, '"index_head_dim" must be at least "qk_rope_head_dim" = 8'),
        ({"q_lora_rank": None}, '"q_lora_rank" = null is not supported'),
        ({"indexer_types": ["full"]}, '"indexer_types" has 1 entries, "num_hidden_layers" is 4'),
        ({"indexer_types": ["shared"] + ["full"] * 3}, '"indexer_types" must begin with a layer'),
        ({"indexer_types": ["full"] * 3 + ["none"]}, '"indexer_types" = "none" is not supported'),
        ({"indexer_types": None, "index_topk_pattern": "FSX"}, "letters F and S"),
    ],
)
def test_errors_name_the_field(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = make_checkpoint("tiny-glm_moe_dsa", tmp_path / "m")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | fields))
    with pytest.raises(LoadError) as error:
        PagedModel(path)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"index_topk_pattern": "FSFS"},
        {"index_topk_freq": 2, "index_skip_topk_offset": 1},
    ],
)
def test_spellings_of_shared_choices(fields: dict[str, Any], tmp_path: Path) -> None:
    """What the hub's folders say in place of indexer_types."""
    path = make_checkpoint("tiny-glm_moe_dsa", tmp_path / "m")
    wanted = all_logits(path)
    config = json.loads((path / "config.json").read_text())
    del config["indexer_types"]
    (path / "config.json").write_text(json.dumps(config | fields))
    assert np.array_equal(all_logits(path), wanted)


# ---- On CUDA ----


def greedy(path: Path, device: str, prompts: list[list[int]], **options: Any) -> list[Any]:
    """Tokens and their log probabilities, of prompts that are computed at once."""
    library = None
    if device != "cpu":
        name = "libmlc_native_cuda_emulated.so"
        library = find_test_library(name, "MLC_NATIVE_CUDA_EMULATED_LIB")
    config = EngineConfig(max_num_sequence=4, max_total_sequence_length=1024, **options)
    engine = SyncMLCEngine(str(path), device, model_lib=library, engine_config=config)
    request = GenerationConfig(max_tokens=5, temperature=0, logprobs=True)
    answers = engine.generate(prompts, request)[1]
    found = [[json.loads(token) for token in answer[0]] for answer in answers]
    engine.unload()
    return [[(token["token"], token["logprob"]) for token in answer] for answer in found]


@pytest.mark.parametrize("like", some_at_night(FAMILIES, ["tiny-glm_moe_dsa"]))
def test_cuda_has_the_tokens_of_the_cpu(like: str, tmp_path: Path) -> None:
    """Before and behind the number of chosen keys, and with a prefix from the cache."""
    path = make_checkpoint(like, tmp_path / like)
    for prompts in ([PROMPT[:37]], [PROMPT[:90], PROMPT[:130], PROMPT[20:57]]):
        found = greedy(path, "cuda:0", prompts, dtype="float32")
        wanted = greedy(path, "cpu", prompts, dtype="float32")
        for a, b in zip(found, wanted, strict=True):
            assert [token for token, _ in a] == [token for token, _ in b]
            np.testing.assert_allclose([p for _, p in a], [p for _, p in b], atol=1e-4)


@pytest.mark.parametrize("kv_cache_dtype", ["auto", "float8"])
@pytest.mark.parametrize("like", some_at_night(FAMILIES, ["tiny-deepseek_v32"]))
def test_bits_on_cuda_do_not_depend_on_the_batch(
    like: str, kv_cache_dtype: str, tmp_path: Path
) -> None:
    path = make_checkpoint(like, tmp_path / like)
    options: dict[str, Any] = {"dtype": "bfloat16", "kv_cache_dtype": kv_cache_dtype}
    prompts = [PROMPT[:90], PROMPT[:130], PROMPT[20:57]]
    together = greedy(path, "cuda:0", prompts, **options)
    for prompt, answer in zip(prompts, together, strict=True):
        assert greedy(path, "cuda:0", [prompt], prefill_chunk_size=24, **options) == [answer]
