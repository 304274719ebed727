"""Images with GGUF models: the tower of a mmproj file against that of the Hugging Face folder."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dense_shapes import QWEN_VISION, VISION
from families import some_at_night
from image_folders import make_image_model, picture
from image_shapes import CLIP, IMAGE_SHAPES, LLAMA, PIXTRAL
from mmproj_files import write_mmproj, write_text_gguf

from mlc_native import EngineConfig, MLCEngine
from mlc_native.protocol.mlc_chat_config import MLCChatConfig
from mlc_native.serve.images.encoder import ImageEncoder
from mlc_native.serve.images.mmproj.find import image_encoder
from mlc_native.serve.images.parts import ImageSource

DEEP = {**VISION, "num_hidden_layers": 3}
GEMMA3 = IMAGE_SHAPES["image-gemma3"]
TEXT = {"type": "text", "text": "What is\nthis?"}
WIDE, TALL = picture(1, 40, 28), picture(2, 10, 33)
CHATS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": [{"type": "image", "image": WIDE}, TEXT]}],
    [{"role": "user", "content": [{"type": "image", "image": i} for i in (WIDE, TALL)] + [TEXT]}],
    [
        {"role": "user", "content": [TEXT, {"type": "image", "image": TALL}]},
        {"role": "assistant", "content": "Nothing."},
        {"role": "user", "content": [{"type": "image", "image": WIDE}, TEXT]},
    ],
]
# What the config.json of the folders has, so that each part of a tower matters.
CONFIGS: dict[str, dict[str, Any]] = {
    "gemma3": {
        "vision_config": {**GEMMA3["vision_config"], "num_hidden_layers": 2},
        "text_config": {**GEMMA3["text_config"], "query_pre_attn_scalar": 32,
                        "num_hidden_layers": 6,
                        "layer_types": ["sliding_attention"] * 5 + ["full_attention"]},
    },
    "idefics3": {"vision_config": {**DEEP, "model_type": "idefics3_vision"}},
    "internvl": {"vision_config": DEEP},
    "llava": {"vision_config": {**CLIP, "num_hidden_layers": 3}, "text_config": LLAMA},
    "llava-pixtral": {
        "vision_config": {**PIXTRAL, "num_hidden_layers": 2, "image_size": 24},
        "text_config": LLAMA,
    },
    "mistral3": {"vision_config": {**PIXTRAL, "num_hidden_layers": 2, "image_size": 32}},
    "qwen2_vl": {
        "vision_config": {**QWEN_VISION, "depth": 2, "embed_dim": 32, "hidden_size": 64},
    },
    "qwen2_5_vl": {
        "vision_config": {**QWEN_VISION, "depth": 4, "fullatt_block_indexes": [1, 3],
                          "window_size": 16},
    },
    "qwen3_vl": {
        "vision_config": {**QWEN_VISION, "depth": 3, "deepstack_visual_indexes": [0, 2],
                          "num_position_embeddings": 64},
    },
    "smolvlm": {"vision_config": {**DEEP, "model_type": "smolvlm_vision"}},
}  # fmt: skip
IN_EVERY_RUN = {"gemma3", "llava", "mistral3", "qwen2_5_vl", "qwen3_vl", "smolvlm"}
SOME_AT_NIGHT = some_at_night(list(CONFIGS), IN_EVERY_RUN)
# Beyond what converters write of these models.
KEYS = {"qwen2_5_vl": {"clip.vision.window_size": 16}}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """By its name: the folder of a model, and the file of its text model beside that of the tower."""
    root = tmp_path_factory.mktemp("gguf_images")

    def make(name: str) -> tuple[Path, Path]:
        folder = make_image_model(name, root / name, **CONFIGS[name])
        beside = root / f"{name}-gguf"
        beside.mkdir()
        model = write_text_gguf(folder, beside / "model-f32.gguf")
        write_mmproj(folder, name, beside / "mmproj-model-f32.gguf", keys=KEYS.get(name))
        return folder, model

    return cache(make)


def encoder_of(model: Path, setting: str | None = None) -> ImageEncoder:
    config = MLCChatConfig.from_folder(model).model_config_dict
    encoder = image_encoder(model, setting, config)
    assert encoder is not None
    return encoder


def rows_of(encoder: ImageEncoder, image: Any) -> Any:
    return encoder.encode(ImageSource("messages[0]", image), is_alone=True)


@pytest.mark.parametrize("name", SOME_AT_NIGHT)
def test_rows_are_those_of_the_folder(models: Any, name: str) -> None:
    folder, model = models(name)
    theirs, ours = ImageEncoder.of_folder(folder), encoder_of(model)
    assert theirs is not None
    for image in (WIDE, TALL):
        expected, found = rows_of(theirs, image), rows_of(ours, image)
        assert found.text == expected.text
        assert found.grid == expected.grid
        np.testing.assert_allclose(found.rows, expected.rows, rtol=1e-5, atol=1e-6)
    assert ours.image_token_id == theirs.image_token_id


@pytest.mark.parametrize("name", SOME_AT_NIGHT)
def test_answers_are_those_of_the_folder(models: Any, name: str) -> None:
    settings = EngineConfig(dtype="float32", prefill_chunk_size=64, max_num_sequence=8)
    answers = []
    for model in models(name):
        with MLCEngine(str(model), "cpu", engine_config=settings) as engine:
            results = engine.generate(
                CHATS, temperature=0, max_tokens=10, ignore_eos=True, progress=False
            )
        assert [result.error for result in results] == [None] * len(CHATS)
        answers.append([(result.prompt_token_ids, result.token_ids) for result in results])
    assert answers[0] == answers[1]
    assert len({tuple(tokens) for _, tokens in answers[0]}) > 1
