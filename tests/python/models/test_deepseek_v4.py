"""DeepSeek V4: compressed attention (csrc/kernels/compression.h), hyper-connections, and experts of
tokens. That of all families is in test_families.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_model import find_test_library
from paged_driver import (
    PagedModel,
    PagedSequence,
    forward_in_chunks,
    random_tokens,
    reference_model,
    relative_error,
    transformers_logits,
)
from safetensors.torch import load_file, save_file

from mlc_native import EngineConfig, GenerationConfig, SyncMLCEngine, inspect_model
from mlc_native.errors import LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint
from model_shapes import SHAPES

LIKE = "tiny-deepseek_v4"
SHAPE = SHAPES[LIKE]
VOCAB = SHAPE["vocab_size"]
PROMPT = random_tokens(130, VOCAB, seed=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(LIKE, tmp_path_factory.mktemp("v4") / "m")


def all_logits(path: Path, **options: Any) -> np.ndarray:
    return PagedModel(path, **options).forward([(PagedSequence(PROMPT), len(PROMPT))], "all")


def edit_config(path: Path, **fields: Any) -> None:
    """Set fields of a config.json, or leave them out where they are None."""
    config = json.loads((path / "config.json").read_text()) | fields
    left = {name: value for name, value in config.items() if value is not None}
    (path / "config.json").write_text(json.dumps(left))


def rename(path: Path, *pairs: tuple[str, str]) -> None:
    """Give the tensors of a folder other names."""
    weights = load_file(path / "model.safetensors")
    for old, new in pairs:
        weights = {name.replace(old, new): tensor for name, tensor in weights.items()}
    save_file(weights, path / "model.safetensors")


def greedy(path: Path, prompts: list[list[int]], num_tokens: int, **options: Any) -> list[Any]:
    """Tokens and their log probabilities, of prompts that are computed at once."""
    fields: dict[str, Any] = {"max_num_sequence": 4, "max_total_sequence_length": 1024} | options
    engine = SyncMLCEngine(str(path), "cpu", engine_config=EngineConfig(**fields))
    try:
        request = GenerationConfig(max_tokens=num_tokens, temperature=0, logprobs=True)
        answers = engine.generate(prompts, request)[1]
    finally:
        engine.unload()
    return [
        [(entry["token"], entry["logprob"]) for entry in map(json.loads, answer[0])]
        for answer in answers
    ]


def test_a_folder_that_transformers_saved(folder: Path, tmp_path: Path) -> None:
    """Logits of all rows, and greedy tokens far behind windows and the first entries."""
    model = reference_model(folder, torch.float32)
    model.save_pretrained(tmp_path / "saved")
    wanted = transformers_logits(tmp_path / "saved", PROMPT)
    assert relative_error(all_logits(tmp_path / "saved"), wanted) < 1e-4
    prompt = PROMPT[70:120]
    tokens, rows = PagedModel(tmp_path / "saved").generate(prompt, 64, 60)
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        answer = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=60, do_sample=False,
            output_logits=True, return_dict_in_generate=True, eos_token_id=None,
        )  # fmt: skip
    assert tokens == answer.sequences[0, 50:].tolist()
    assert relative_error(rows, torch.cat(answer.logits).numpy()) < 1e-4


@pytest.mark.parametrize("scoring_func", ["sigmoid", "sqrtsoftplus"])
def test_parts_as_config_says(scoring_func: str, tmp_path: Path) -> None:
    overrides: dict[str, Any] = {"scoring_func": scoring_func, "hc_mult": 3, "o_groups": 2}
    overrides |= {"sliding_window": 3, "index_topk": 1, "partial_rotary_factor": 0.2}
    overrides |= {"rope_parameters": None, "rms_norm_eps": 1e-3, "hc_eps": 1e-2}
    path = make_checkpoint(LIKE, tmp_path / "m", overrides=overrides)
    assert relative_error(all_logits(path), transformers_logits(path, PROMPT)) < 1e-4


def test_fields_as_the_hub_has_them(tmp_path: Path) -> None:
    """Ratios of layers and of one more, which only drafts; a rope outside; numbers of layers."""
    overrides: dict[str, Any] = {
        "num_hidden_layers": 5, "sliding_window": 16, "index_topk": 4, "mlp_layer_types": None,
        "layer_types": None, "compress_ratios": [0, 0, 4, 128, 4, 0], "num_hash_layers": 2,
        "compress_rates": None, "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
                            "original_max_position_embeddings": 64},
    }  # fmt: skip
    path = make_checkpoint(LIKE, tmp_path / "m", overrides=overrides)
    prompt = random_tokens(280, VOCAB, seed=5)
    wanted = transformers_logits(path, prompt)
    rope = {"type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
            "original_max_position_embeddings": 64}  # fmt: skip
    absent = ["layer_types", "mlp_layer_types", "rope_parameters", "partial_rotary_factor",
              "compress_rates"]  # fmt: skip
    edit_config(
        path, **dict.fromkeys(absent), compress_ratios=[0, 0, 4, 128, 4, 0], num_hash_layers=2,
        rope_scaling=rope, qk_rope_head_dim=16,
    )  # fmt: skip
    rename(path, ("model.embed_tokens", "embed"), ("model.hc_head.hc_", "hc_head_"),
           ("model.", ""))  # fmt: skip
    weights = load_file(path / "model.safetensors")
    weights["mtp.0.e_proj.weight"] = torch.ones(2)
    save_file(weights, path / "model.safetensors")
    found = PagedModel(path).forward([(PagedSequence(prompt), len(prompt))], "all")
    assert relative_error(found, wanted) < 1e-4


@pytest.mark.parametrize("kv_cache_dtype", ["float32", "bfloat16", "float16", "int8"])
@pytest.mark.parametrize("quantization", ["off", "q8"])
def test_a_rows_bits_do_not_depend_on_others(
    quantization: str, kv_cache_dtype: str, folder: Path
) -> None:
    """Chunks, company and threads, in every format of pages."""
    options: dict[str, Any] = {"quantization": quantization, "kv_cache_dtype": kv_cache_dtype}
    found = all_logits(folder, **options)
    model = PagedModel(folder, num_threads=3, **options)
    one, other = PagedSequence(PROMPT), PagedSequence(PROMPT[50:])
    for count in (37, 1, 60, 1, 31):
        end = one.kv_len + count
        rows = model.forward([(other, min(17, len(other.tokens) - other.kv_len)), (one, count)])
        assert np.array_equal(rows[-1], found[end - 1])


def test_chunks_of_several_prompts(folder: Path) -> None:
    prompts = [PROMPT, PROMPT[30:99], PROMPT[100:]]
    for prompt, rows in zip(prompts, forward_in_chunks(PagedModel(folder), prompts), strict=True):
        assert relative_error(rows, transformers_logits(folder, prompt)) < 1e-4


def test_a_row_alone_after_another_makes_the_same(folder: Path) -> None:
    """Each token alone: entries come from what earlier steps have left."""
    model, sequence = PagedModel(folder), PagedSequence(PROMPT)
    rows = [model.forward([(sequence, 1)])[0] for _ in PROMPT]
    assert np.array_equal(np.stack(rows), all_logits(folder))


def test_pages_of_few_bits_give_nearly_the_same(folder: Path) -> None:
    wanted = transformers_logits(folder, PROMPT)
    for kv_cache_dtype in ("float16", "bfloat16", "int8"):
        found = all_logits(folder, kv_cache_dtype=kv_cache_dtype, quantization="off")
        errors = [relative_error(a, b) for a, b in zip(found, wanted, strict=True)]
        assert np.median(errors) < 0.05, kv_cache_dtype


def test_batches_prefixes_and_preemptions_keep_the_bits(folder: Path) -> None:
    """Through the engine: alone, with others, with a prefix from the cache, and in little room."""
    prompts = [PROMPT[:90], PROMPT[:101], PROMPT[20:57], PROMPT[:90] + PROMPT[100:120]]
    alone = [greedy(folder, [prompt], 30)[0] for prompt in prompts]
    assert greedy(folder, prompts, 30) == alone
    assert greedy(folder, prompts, 30, prefill_chunk_size=24) == alone
    little = {"max_total_sequence_length": 320, "prefix_cache_mode": "disable"}
    assert greedy(folder, prompts, 30, **little) == alone
    engine = SyncMLCEngine(str(folder), "cpu", engine_config=EngineConfig(
        max_num_sequence=4, max_total_sequence_length=1024))  # fmt: skip
    request = GenerationConfig(max_tokens=30, temperature=0, logprobs=True)
    for _ in range(2):  # the second time all are found in the cache
        for prompt, wanted in zip(prompts, alone, strict=True):
            answer = engine.generate([prompt], request)[1][0][0]
            found = [(entry["token"], entry["logprob"]) for entry in map(json.loads, answer)]
            assert found == wanted
    engine.unload()


def test_bytes_of_a_token(folder: Path) -> None:
    """Keys and values, which layers with entries have once; entries; those of the index; rows."""

    def padded(dim: int) -> int:
        return -(-dim // 16) * 16

    head, index = SHAPE["head_dim"], SHAPE["index_head_dim"]
    wanted = {
        "sliding_attention": 2 * padded(head),
        "heavily_compressed_attention": 2 * padded(head) + 2 * head,
        "compressed_sparse_attention": 2 * padded(head) + padded(index) + 4 * head + 4 * index,
    }
    model = PagedModel(folder, kv_cache_dtype="float32").model
    expected = 4 * sum(wanted[kind] for kind in SHAPE["layer_types"])
    assert model.metadata["kv_bytes_per_token"] == expected
    assert inspect_model(folder)["kv_bytes_per_token"] == expected


def test_the_choice_and_the_table_matter(folder: Path, tmp_path: Path) -> None:
    """Rows that have few entries see all; behind them, others are chosen."""
    few = all_logits(folder)
    path = make_checkpoint(LIKE, tmp_path / "m")
    edit_config(path, index_topk=1000)
    every = all_logits(path)
    rate = SHAPE["compress_rates"]["compressed_sparse_attention"]
    first = (SHAPE["index_topk"] + 1) * rate - 1
    assert np.array_equal(few[:first], every[:first])
    for row in range(first, len(PROMPT)):
        assert relative_error(few[row], every[row]) > 1e-4, row
    weights = load_file(path / "model.safetensors")
    weights["model.layers.0.ffn.gate.tid2eid"] = torch.zeros_like(
        weights["model.layers.0.ffn.gate.tid2eid"], dtype=torch.int32
    )  # one expert several times
    save_file(weights, path / "model.safetensors")
    assert relative_error(all_logits(path), transformers_logits(path, PROMPT)) < 1e-4
    weights["model.layers.0.ffn.gate.tid2eid"][3, 1] = SHAPE["n_routed_experts"]
    save_file(weights, path / "model.safetensors")
    with pytest.raises(LoadError, match=r"tid2eid.*has 8, must be in \[0, 7\]"):
        PagedModel(path)


def test_cuda_refuses_it_by_name(folder: Path) -> None:
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    with pytest.raises(LoadError, match="DeepseekV4ForCausalLM is not supported on CUDA"):
        SyncMLCEngine(str(folder), "cuda:0", model_lib=library)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"index_topk": 0}, '"index_topk" must be an integer in [1, '),
        ({"index_head_dim": 8}, '"index_head_dim" must be at least the 16 rotated elements'),
        ({"o_groups": 4}, '"o_groups" must be a divisor of "num_attention_heads" = 6'),
        ({"hc_mult": 1}, '"hc_mult" must be an integer in [2, 8]'),
        ({"hc_sinkhorn_iters": 0}, '"hc_sinkhorn_iters" must be an integer in [1, 1000]'),
        ({"num_key_value_heads": 2}, '"num_key_value_heads" must be 1, got 2'),
        ({"n_shared_experts": 2}, '"n_shared_experts" must be'),
        ({"scoring_func": "tanh"}, '"scoring_func" must be "sqrtsoftplus", "sigmoid" or'),
        ({"layer_types": ["sliding_attention"]}, '"layer_types" has 1 entries'),
        ({"layer_types": ["full_attention"] * 6}, '"layer_types" = "full_attention" is not'),
        ({"mlp_layer_types": ["dense"] * 6}, '"mlp_layer_types" = "dense" is not supported'),
        ({"layer_types": None, "compress_ratios": [0, 5, 4, 4, 4, 4]}, "a list of 0, 4 and 128"),
        ({"compress_rates": {"compressed_sparse_attention": 0}}, "must be an integer in [1, 1024]"),
    ],
)
def test_errors_name_the_field(
    fields: dict[str, Any], message: str, folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m"
    path.mkdir()
    (path / "config.json").write_text((folder / "config.json").read_text())
    (path / "model.safetensors").symlink_to(folder / "model.safetensors")
    edit_config(path, **fields)
    with pytest.raises(LoadError) as error:
        PagedModel(path)
    assert message in str(error.value)
