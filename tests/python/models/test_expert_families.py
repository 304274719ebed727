"""Mixtures of experts whose folders on the hub differ from those that transformers writes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from paged_driver import PagedModel
from quantized_checkpoints import WEIGHTS, Tensors, load_file, save_file
from test_families import check

from mlc_native._core import LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

Config = dict[str, object]


def rewrite(
    path: Path, config: Callable[[Config], Config], tensors: Callable[[Tensors], Tensors]
) -> Path:
    """The folder with other fields and tensors."""
    file = path / "config.json"
    file.write_text(json.dumps(config(json.loads(file.read_text()))))
    save_file(tensors(load_file(path / WEIGHTS)), path / WEIGHTS)
    return path


def with_names(config: Config, names: dict[str, str]) -> Config:
    return {names.get(name, name): value for name, value in config.items()}


SARVAM_FIELDS = {"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts"}
SARVAM_TENSORS = {
    "model.embed_tokens.": "model.word_embeddings.",
    ".self_attn.o_proj.": ".attention.dense.",
    ".self_attn.q_norm.": ".attention.query_layernorm.",
    ".self_attn.k_norm.": ".attention.key_layernorm.",
    ".mlp.gate.e_score_correction_bias": ".mlp.gate.expert_bias",
}


def as_sarvam_writes_it(tensors: Tensors) -> Tensors:
    """Queries, keys and values in one tensor."""
    written: Tensors = {}
    for name, tensor in tensors.items():
        if match := re.fullmatch(r"(.*)\.self_attn\.([qkv])_proj\.(weight|bias)", name):
            layer, part, ending = match.groups()
            parts = [tensors[f"{layer}.self_attn.{one}_proj.{ending}"] for one in "qkv"]
            if part == "q":
                written[f"{layer}.attention.query_key_value.{ending}"] = np.concatenate(parts)
            continue
        for old, new in SARVAM_TENSORS.items():
            name = name.replace(old, new)
        written[name] = tensor
    return written


def test_sarvam_as_the_hub_has_it(tmp_path: Path) -> None:
    """transformers makes a GLM-4-MoE of it, with rope in whole heads."""
    rope = {"rope_type": "default", "rope_theta": 1e4}
    overrides = {"attention_bias": False, "rope_parameters": rope}
    path = make_checkpoint("tiny-glm4_moe", tmp_path / "m", overrides=overrides)

    def fields(config: Config) -> Config:
        del config["rope_parameters"]
        config = with_names(config, SARVAM_FIELDS)
        config |= {"model_type": "sarvam_moe", "architectures": ["SarvamMoEForCausalLM"]}
        return config | {"rope_theta": 1e4}

    check(rewrite(path, fields, as_sarvam_writes_it))


def test_sarvam_with_latent_attention(tmp_path: Path) -> None:
    """A DeepSeek V3 with fields and a name for yarn of its own."""
    overrides = {"q_lora_rank": None, "attention_bias": False}
    path = make_checkpoint("tiny-deepseek_v3", tmp_path / "m", overrides=overrides)

    def fields(config: Config) -> Config:
        rope = config.pop("rope_parameters")
        assert isinstance(rope, dict)
        rope["type"] = "deepseek_yarn"
        del rope["rope_type"], config["q_lora_rank"]
        config = with_names(config, SARVAM_FIELDS) | {"rope_theta": rope.pop("rope_theta")}
        config |= {"rope_scaling": rope, "head_dim": 56}
        return config | {"model_type": "sarvam_mla", "architectures": ["SarvamMLAForCausalLM"]}

    check(rewrite(path, fields, lambda tensors: tensors))


def test_biases_of_ernie(tmp_path: Path) -> None:
    """Its head has one, too."""
    check(make_checkpoint("tiny-ernie4_5_moe", tmp_path / "m", overrides={"use_bias": True}))


def test_released_axk1_has_no_corrections(tmp_path: Path) -> None:
    """Its dense layers have norms that nothing uses."""
    path = make_checkpoint("tiny-axk1", tmp_path / "m")
    config = json.loads((path / "config.json").read_text())
    del config["mlp_layer_types"]

    def released(tensors: Tensors) -> Tensors:
        kept = {n: t for n, t in tensors.items() if not n.endswith("correction_bias")}
        return kept | {"model.layers.0.post_mlp_layernorm.weight": np.ones(64, np.float32)}

    check(rewrite(path, lambda _: config | {"first_k_dense_replace": 1}, released))
    (path / "config.json").write_text(json.dumps(config | {"moe_layer_freq": 2}))
    with pytest.raises(LoadError, match="between those that have some"):
        PagedModel(path)


def test_a_correction_that_is_missing_is_an_error(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-dots1", tmp_path / "m")
    name = "model.layers.1.mlp.gate.e_score_correction_bias"
    rewrite(path, lambda c: c, lambda tensors: {n: t for n, t in tensors.items() if n != name})
    with pytest.raises(LoadError, match=name):
        PagedModel(path)


def test_exaone_as_the_hub_has_it(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-exaone_moe", tmp_path / "m")
    config = json.loads((path / "config.json").read_text())
    expected = PagedModel(path).generate([5, 6, 7], 512, 8)[1]
    del config["mlp_layer_types"]  # which the hub's file lacks
    config |= {"architectures": ["ExaoneMoEForCausalLM"], "sliding_window_pattern": "LLGL"}
    (path / "config.json").write_text(json.dumps(config))
    assert np.array_equal(PagedModel(path).generate([5, 6, 7], 512, 8)[1], expected)


def test_kimi_as_the_hub_has_it(tmp_path: Path) -> None:
    """The text model has another prefix and type."""
    path = make_checkpoint("tiny-kimi_k25", tmp_path / "m")

    def fields(config: Config) -> Config:
        text = config["text_config"]
        assert isinstance(text, dict)
        text |= {"model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"]}
        return config | {"architectures": ["KimiK25ForConditionalGeneration"]}

    def prefixed(tensors: Tensors) -> Tensors:
        texts = ("model.language_model.", "lm_head.")
        return {
            "language_model." + name.replace("model.language_model.", "model."): tensor
            for name, tensor in tensors.items()
            if name.startswith(texts)
        }

    expected = PagedModel(path).generate([5, 6, 7], 512, 8)[1]
    assert np.array_equal(
        PagedModel(rewrite(path, fields, prefixed)).generate([5, 6, 7], 512, 8)[1], expected
    )
