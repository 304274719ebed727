"""Models with images whose text model is one of another family, against transformers."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import numpy as np
import pytest
from paged_driver import PagedModel, random_tokens, relative_error, transformers_logits
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING

from mlc_native import EngineConfig, MLCEngine, inspect_model

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from image_shapes import IMAGE_SHAPES
from make_random_checkpoint import make_checkpoint

PROMPT_LEN = 120
NUM_NEW_TOKENS = 12
STD = 0.15  # of the tiny shapes

# What inspect_model calls the sizes that text_config may lack, and transformers.
SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "ffn_size": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "max_positions": "max_position_embeddings",
}
# Families that are a text model under a name of the model with images.
RENAMED = {"exaone4_5_text": "exaone4", "kimi_k2": "deepseek_v3"}


def check(path: Path) -> None:
    model = PagedModel(path)
    prompt = random_tokens(PROMPT_LEN, model.vocab_size, seed=1)
    tokens, logits = model.generate(prompt, 64, NUM_NEW_TOKENS)
    reference = transformers_logits(path, prompt + tokens[:-1])[PROMPT_LEN - 1 :]
    assert relative_error(logits, reference) < 1e-4
    assert tokens == reference.argmax(-1).tolist()


def text_families(folder: Path) -> list[str]:
    """The names that the refusal of an unknown one lists."""
    config = {
        "architectures": ["LlavaForConditionalGeneration"],
        "text_config": {"model_type": "unknown"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    problem = inspect_model(folder)["problems"][0]
    assert "the text model of LlavaForConditionalGeneration" in problem
    return str(problem).split("supported: ")[1].split(", ")


@pytest.mark.parametrize("like", IMAGE_SHAPES)
def test_is_transformers(like: str, tmp_path: Path) -> None:
    path = make_checkpoint(like, tmp_path / "m", std=STD)
    check(path)
    engine = MLCEngine(str(path), "cpu", engine_config=EngineConfig(strict_weights=True))
    engine.terminate()


def test_names_of_the_first_releases(tmp_path: Path) -> None:
    """The text model was a model of its own then, with its head."""
    path = make_checkpoint("image-llava-mistral", tmp_path / "m", std=STD)
    expected = PagedModel(path).generate([5, 6, 7], 512, 8)[1]
    weights = load_file(path / "model.safetensors")
    renamed = {
        name.replace("model.language_model.", "language_model.model.")
        .replace("lm_head.", "language_model.lm_head.")
        .replace("model.vision_tower.", "vision_tower.")
        .replace("model.multi_modal_projector.", "multi_modal_projector."): tensor
        for name, tensor in weights.items()
    }
    assert not renamed.keys() & weights.keys()
    save_file(renamed, path / "model.safetensors")
    assert np.array_equal(PagedModel(path).generate([5, 6, 7], 512, 8)[1], expected)
    MLCEngine(str(path), "cpu", engine_config=EngineConfig(strict_weights=True)).terminate()


def test_layer_types_of_a_mistral_within_do_not_count(tmp_path: Path) -> None:
    """transformers takes only a model of its own with them for a Ministral."""
    path = make_checkpoint("image-llava-mistral", tmp_path / "m", std=STD)
    config = json.loads((path / "config.json").read_text())
    config["text_config"]["layer_types"] = ["full_attention"] * 3
    (path / "config.json").write_text(json.dumps(config))
    check(path)


@pytest.mark.parametrize(("outside", "inside"), [(None, None), (None, True), (False, True)])
def test_a_head_that_is_not_stored_is_tied(
    tmp_path: Path, outside: bool | None, inside: bool | None
) -> None:
    path = make_checkpoint("image-llava_onevision", tmp_path / "m", std=STD)
    expected = PagedModel(path).generate([5, 6, 7], 512, 8)[1]
    config = json.loads((path / "config.json").read_text())
    for place, value in ((config, outside), (config["text_config"], inside)):
        place.pop("tie_word_embeddings", None)
        if value is not None:
            place["tie_word_embeddings"] = value
    (path / "config.json").write_text(json.dumps(config))
    assert np.array_equal(PagedModel(path).generate([5, 6, 7], 512, 8)[1], expected)


def test_sizes_that_a_text_config_lacks_are_those_of_transformers(tmp_path: Path) -> None:
    for family in text_families(tmp_path):
        defaults = CONFIG_MAPPING[RENAMED.get(family, family)]()
        config = {
            "architectures": ["LlavaForConditionalGeneration"],
            "text_config": {"model_type": family, "num_experts_per_tok": 2},
        }
        (tmp_path / "config.json").write_text(json.dumps(config))
        found = inspect_model(tmp_path)["decoder"]
        expected = {name: getattr(defaults, field) for name, field in SIZES.items()}
        if getattr(defaults, "block_auto_adjust_ff_dim", False):  # two thirds, as LFM2's MLP has
            expected["ffn_size"] = expected["ffn_size"] * 2 // 3
        if "kv_lora_rank" in defaults:  # pages have one head
            expected["num_kv_heads"] = 1
        assert {name: found[name] for name in SIZES} == expected, family


def test_no_text_config_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"architectures": ["LlavaForConditionalGeneration"]})
    )
    assert '"text_config" must be a JSON object' in inspect_model(tmp_path)["problems"][0]


def test_tensors_for_images_are_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = make_checkpoint("image-idefics3", tmp_path / "m", std=STD)
    count = sum("text_model" not in n and "lm_head" not in n
                for n in load_file(path / "model.safetensors"))  # fmt: skip
    with caplog.at_level(logging.WARNING):
        MLCEngine(str(path), "cpu").terminate()
    (record,) = [r for r in caplog.records if r.levelname == "WARNING"]
    assert record.getMessage().endswith(f"does not use: {count} of parts that read no text")
