"""Images with GGUF models: the tower of a mmproj file against that of the Hugging Face folder."""

from __future__ import annotations

import base64
import io
import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from dense_shapes import QWEN_VISION, VISION
from families import some_at_night
from gguf import GGMLQuantizationType as Type
from gguf_cases import HYBRID_MOE, QWEN3_5, QWEN3_VL_MOE
from gguf_files import write_gguf
from image_folders import make_image_model, picture
from image_shapes import CLIP, IMAGE_SHAPES, LLAMA, PIXTRAL
from make_random_checkpoint import make_checkpoint
from mmproj_files import write_mmproj, write_text_gguf
from model_shapes import SHAPES
from test_gguf_tokenizers import train_sentencepiece, write_tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))
from live_server import CHAT, LiveServer

from mlc_native import (
    AsyncMLCEngine,
    EngineConfig,
    InvalidConfig,
    InvalidRequest,
    MLCEngine,
)
from mlc_native.protocol.mlc_chat_config import MLCChatConfig
from mlc_native.serve.images.encoder import ImageEncoder
from mlc_native.serve.images.mmproj.find import image_encoder
from mlc_native.serve.images.mmproj.tower import MmprojTower
from mlc_native.serve.images.parts import ImageSource
from mlc_native.serve.images.tower import Tower
from mlc_native.support.regular_file import read_bytes
from mlc_native.tokenizers import Tokenizer

DEEP = {**VISION, "num_hidden_layers": 3}
GEMMA3 = IMAGE_SHAPES["image-gemma3"]
TEXT = {"type": "text", "text": "What is\nthis?"}
WIDE, TALL = picture(1, 40, 28), picture(2, 10, 33)
TEXTS_ALONE = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
ROWS_OF_LLAVA = 16
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
    "qwen3_vl_moe": {
        "vision_config": {**QWEN_VISION, "depth": 2, "deepstack_visual_indexes": [1],
                          "num_position_embeddings": 64},
        "text_config": QWEN3_VL_MOE,
    },
    "qwen3_5": {
        "vision_config": {**QWEN_VISION, "depth": 2, "num_position_embeddings": 64},
        "text_config": QWEN3_5,
    },
    "qwen3_5_moe": {
        "vision_config": {**QWEN_VISION, "depth": 2, "num_position_embeddings": 64},
        "text_config": {**SHAPES["tiny-qwen3_5_moe"]["text_config"], **HYBRID_MOE,
                        "num_hidden_layers": 4, "layer_types": None},
    },
    "smolvlm": {"vision_config": {**DEEP, "model_type": "smolvlm_vision"}},
}  # fmt: skip
IN_EVERY_RUN = {"gemma3", "llava", "mistral3", "qwen2_5_vl", "qwen3_vl", "smolvlm"}
SOME_AT_NIGHT = some_at_night(list(CONFIGS), IN_EVERY_RUN)
# Beyond what converters write of these models.
KEYS = {"qwen2_5_vl": {"clip.vision.window_size": 16}}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """By its name: the folder of a model, and its text model's file, beside that of the tower."""
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


def test_answers_over_http(models: Any) -> None:
    """In a folder that has the two files."""
    folder, model = models("qwen2_5_vl")
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": [image_part(WIDE), TEXT]}],
        **{"temperature": 0, "max_tokens": 8, "ignore_eos": True, "return_token_ids": True},
    }
    answers = []
    for path in (folder, model.parent):
        config = EngineConfig(dtype="float32")
        server = LiveServer({"m": AsyncMLCEngine(str(path), "cpu", engine_config=config)})
        try:
            response = server.client.post(CHAT, json=body).json()
            answers.append((response["prompt_token_ids"], response["choices"][0]["token_ids"]))
        finally:
            server.stop()
    assert answers[0] == answers[1]


def image_part(image: PIL.Image.Image) -> dict[str, Any]:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


@pytest.mark.parametrize("kind", [Type.F16, Type.BF16, Type.Q8_0], ids=lambda kind: kind.name)
def test_other_types_of_weights(models: Any, tmp_path: Path, kind: Type) -> None:
    """Their rows are close to those of floats of 32 bits, and no others."""
    folder, model = models("gemma3")
    path = write_mmproj(folder, "gemma3", tmp_path / "mmproj.gguf", kind)
    found = rows_of(encoder_of(model, str(path)), WIDE).rows
    expected = rows_of(encoder_of(model), WIDE).rows
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert 1e-7 < error < 0.05


@pytest.mark.parametrize("name", ["gemma3", "llava", "qwen2_vl"])
def test_matrices_that_old_converters_exchanged(models: Any, tmp_path: Path, name: str) -> None:
    folder, model = models(name)
    path = write_mmproj(folder, name, tmp_path / "mmproj.gguf", swapped=True)
    found = rows_of(encoder_of(model, str(path)), WIDE).rows
    np.testing.assert_array_equal(found, rows_of(encoder_of(model), WIDE).rows)


def test_a_norm_behind_the_layers_of_llava_changes_nothing(models: Any, tmp_path: Path) -> None:
    """As of files that have all layers, and say which one is read."""
    folder, model = models("llava")
    norm = np.full(32, 3, np.float32)
    path = write_mmproj(
        *(folder, "llava", tmp_path / "mmproj.gguf"),
        keys={"clip.vision.feature_layer": [2]},
        tensors={"v.post_ln.weight": norm, "v.post_ln.bias": norm},
    )
    found = rows_of(encoder_of(model, str(path)), WIDE).rows
    np.testing.assert_array_equal(found, rows_of(encoder_of(model), WIDE).rows)


@pytest.mark.parametrize(
    ("name", "keys", "tensors"),
    [
        ("llava", {"clip.projector_type": None, "clip.has_llava_projector": True}, {}),
        ("qwen2_vl", {"clip.vision.feed_forward_length": 0},
         {"v.position_embd.weight": np.zeros((10, 10))}),
        ("mistral3", {"clip.rope.freq_base": 1e4}, {}),
    ],
)  # fmt: skip
def test_what_other_converters_write(
    models: Any, tmp_path: Path, name: str, keys: dict[str, Any], tensors: dict[str, Any]
) -> None:
    """Old ones of LLaVA and Qwen2-VL, and that of Mistral's own files."""
    folder, model = models(name)
    path = write_mmproj(folder, name, tmp_path / "mmproj.gguf", keys=keys, tensors=tensors)
    found = rows_of(encoder_of(model, str(path)), WIDE).rows
    np.testing.assert_array_equal(found, rows_of(encoder_of(model), WIDE).rows)


@pytest.mark.parametrize(("layers", "sees_images"), [(6, True), (18, False), (26, False)])
def test_which_models_of_gemma_3_see_images(tmp_path: Path, layers: int, sees_images: bool) -> None:
    """Rows of a user's own see each other in these, as in their folders."""
    kinds = ["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(layers)]
    overrides = {"num_hidden_layers": layers, "layer_types": kinds, "query_pre_attn_scalar": 32}
    source = make_checkpoint("tiny-gemma3_text", tmp_path / "source", overrides=overrides)
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32)
    config = json.loads(read_bytes(path / "config.json", 1 << 20))
    assert config.get("rows_see_each_other", False) == sees_images


@pytest.mark.parametrize("name", ["gemma3", "internvl", "llava", "qwen3_vl"])
def test_a_template_that_shows_texts_alone(models: Any, tmp_path: Path, name: str) -> None:
    """As of many GGUF files: images stand where they are among the texts."""
    folder, model = models(name)
    path = write_text_gguf(folder, tmp_path / "x.gguf", template=TEXTS_ALONE)
    with MLCEngine(
        str(path), "cpu", mmproj=str(model.parent / "mmproj-model-f32.gguf"), dtype="float32"
    ) as engine:
        found = engine.render_chat(CHATS[2])
    inserted = encoder_of(model).source.inserted
    assert inserted is not None
    encoder = encoder_of(model)
    texts = [rows_of(encoder, image).text for image in (TALL, WIDE)]
    first, second = (inserted.replace(encoder.placeholder, text) for text in texts)
    question = TEXT["text"]
    assert found.text == (
        f"user: {question}{inserted}\nassistant: Nothing.\nuser: {inserted}{question}\nassistant:"
    )
    with MLCEngine(str(path), "cpu", mmproj="none", dtype="float32") as engine:
        expected = engine.render_chat([{"role": "user", "content": "x"}])
        assert expected.text == "user: x\nassistant:"
        assert engine.tokenizer is not None
        assert found.token_ids == engine.tokenizer.encode(
            f"user: {question}{first}\nassistant: Nothing.\nuser: {second}{question}\nassistant:"
        )


def test_a_placeholder_in_a_text_is_no_image(models: Any, tmp_path: Path) -> None:
    folder, model = models("llava")
    path = write_text_gguf(folder, tmp_path / "x.gguf", template=TEXTS_ALONE)
    image = {"type": "image", "image": TALL}
    text = {"type": "text", "text": "<image>"}
    mmproj = str(model.parent / "mmproj-model-f32.gguf")
    with MLCEngine(str(path), "cpu", mmproj=mmproj, dtype="float32") as engine:
        chat = [{"role": "user", "content": [text, image]}]
        token_ids = engine.render_chat(chat).token_ids
        assert token_ids.count(encoder_of(model).image_token_id) == ROWS_OF_LLAVA
        with pytest.raises(InvalidRequest, match="shows 2 of the 1 images"):
            engine.render_chat(chat, allow_special_tokens_in_content=True)


@pytest.mark.parametrize(
    ("name", "token", "stand_in"),
    [("gemma3", "<image_soft_token>", "<unused98>"), ("llava", "<image>", "<unk>")],
)
def test_a_vocabulary_without_the_image_token(
    models: Any, tmp_path: Path, name: str, token: str, stand_in: str
) -> None:
    """Files of Gemma 3 end in front of it, and those of LLaVA 1.5 have the one of Vicuna."""
    folder, model = models(name)
    path = write_text_gguf(folder, tmp_path / "x.gguf", renamed={token: stand_in})
    settings = EngineConfig(dtype="float32", mmproj=str(model.parent / "mmproj-model-f32.gguf"))
    results = []
    for each in (model, path):
        with MLCEngine(str(each), "cpu", engine_config=settings) as engine:
            results += engine.generate(CHATS[0], temperature=0, max_tokens=8, progress=False)
    assert [result.error for result in results] == [None, None]
    assert results[0].token_ids == results[1].token_ids
    assert results[0].prompt_token_ids == results[1].prompt_token_ids


@pytest.mark.parametrize("adds_space", [True, False])
def test_a_vocabulary_of_sentencepiece(models: Any, tmp_path: Path, adds_space: bool) -> None:
    """As those of Vicuna, which LLaVA 1.5 has, and of Gemma."""
    _, model = models("llava")
    core = train_sentencepiece(adds_space)
    path = write_tokenizer(core, tmp_path / "x.gguf", adds_space=adds_space)
    source = encoder_of(model).source
    assert isinstance(source, MmprojTower)
    tower = Tower(replace(source, model=path))
    found = tower.encode(WIDE)
    assert found.text == "<unk>" * ROWS_OF_LLAVA
    assert tower.image_token_id == 0
    assert tower.placeholder == "<image>"
    np.testing.assert_array_equal(found.rows, rows_of(encoder_of(model), WIDE).rows)
    tokenizer = Tokenizer(path)
    assert tokenizer.encode(f"ab{found.text}c").count(0) == ROWS_OF_LLAVA


# ------------------------------------------------------------------------------- which file it is


def test_which_file_is_taken(models: Any, tmp_path: Path, caplog: Any) -> None:
    folder, model = models("llava")
    alone = tmp_path / "x.gguf"
    alone.write_bytes(model.read_bytes())
    config = MLCChatConfig.from_folder(model).model_config_dict
    assert image_encoder(alone, None, config) is None
    assert image_encoder(model, "none", config) is None
    small = write_mmproj(folder, "llava", tmp_path / "llava-mmproj-f16.gguf", Type.F16)
    assert file_of(image_encoder(alone, None, config)) == small
    large = write_mmproj(folder, "llava", tmp_path / "mmproj-F32.gguf")
    assert file_of(image_encoder(alone, None, config)) == large  # the most precise one
    assert MLCChatConfig.from_folder(tmp_path).model_config_dict == config  # one model is there
    for ending in ("model", "folder"):  # those of other models do not count
        other = models("gemma3")[1].parent / "mmproj-model-f32.gguf"
        (tmp_path / f"mmproj-of-another-{ending}.gguf").write_bytes(other.read_bytes())
    assert file_of(image_encoder(alone, None, config)) == large
    keys = {"clip.vision.attention.layer_norm_epsilon": 1e-3}
    write_mmproj(folder, "llava", tmp_path / "mmproj-tuned.gguf", keys=keys)
    encoder = image_encoder(tmp_path, None, config)
    assert encoder is not None
    with pytest.raises(InvalidRequest, match=r'llava-mmproj.*mmproj-tuned.*set "mmproj"'):
        encoder.check_supported("messages[0]")
    assert "images are refused" in caplog.text


def file_of(encoder: ImageEncoder | None) -> Path:
    assert encoder is not None
    assert isinstance(encoder.source, MmprojTower)
    return encoder.source.file.path


def test_settings_that_are_wrong(models: Any, tmp_path: Path) -> None:
    folder, model = models("llava")
    for path, setting in ((model, "missing.gguf"), (model, str(tmp_path)), (model, "x\0"),
                          (folder, str(model))):  # fmt: skip
        with pytest.raises(InvalidConfig, match="mmproj") as caught:
            MLCEngine(str(path), "cpu", mmproj=setting)
        assert caught.value.field == "mmproj"
