"""Files of towers that are damaged, lack something or are of another model."""

from __future__ import annotations

import math
import random
import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from image_folders import make_image_model, picture
from mmproj_files import write_mmproj, write_text_gguf
from test_gguf_images import CONFIGS, KEYS

from mlc_native import InvalidRequest, LoadError, MLCEngine
from mlc_native.protocol.mlc_chat_config import MLCChatConfig
from mlc_native.serve.images.mmproj.file import MmprojFile
from mlc_native.serve.images.mmproj.find import image_encoder

VISION = "clip.vision."
IMAGE = picture(1, 40, 28)
CHAT = [{"role": "user", "content": [{"type": "image", "image": IMAGE}]}]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """By its name: the folder of a model, its text model's file, and the config of that."""
    root = tmp_path_factory.mktemp("gguf_image_errors")

    def make(name: str) -> tuple[Path, Path, dict[str, Any]]:
        folder = make_image_model(name, root / name, **CONFIGS[name])
        model = write_text_gguf(folder, root / f"{name}.gguf")
        return folder, model, MLCChatConfig.from_folder(model).model_config_dict

    return cache(make)


def refused(models: Any, name: str, path: Path, field: str, match: str = ".") -> None:
    """A LoadError that names the file and the key or tensor."""
    _, model, config = models(name)
    with pytest.raises(LoadError, match=match) as caught:
        image_encoder(model, str(path), config)
    assert caught.value.field == field
    assert str(path) in str(caught.value)
    assert field in str(caught.value)


COMMON: list[tuple[str, Any]] = [
    ("general.architecture", "llama"),
    ("clip.projector_type", None),
    ("clip.projector_type", "resampler"),
    ("clip.projector_type", 3),
    ("clip.has_vision_encoder", False),
    ("clip.use_gelu", "yes"),
    ("clip.use_silu", True),
    (VISION + "embedding_length", None),
    (VISION + "embedding_length", 0),
    (VISION + "embedding_length", 1 << 31),
    (VISION + "embedding_length", -32),
    (VISION + "embedding_length", "32"),
    (VISION + "embedding_length", 32.0),
    (VISION + "embedding_length", True),
    (VISION + "attention.head_count", 3),
    (VISION + "attention.head_count", None),
    (VISION + "attention.layer_norm_epsilon", None),
    (VISION + "attention.layer_norm_epsilon", math.nan),
    (VISION + "attention.layer_norm_epsilon", 0.0),
    (VISION + "attention.layer_norm_epsilon", 1),
    (VISION + "block_count", 0),
    (VISION + "block_count", 1 << 20),
    (VISION + "patch_size", 0),
    (VISION + "patch_size", 1 << 20),
    (VISION + "image_size", 2),
    (VISION + "image_size", 1 << 30),
    (VISION + "image_mean", None),
    (VISION + "image_mean", [0.5, 0.5]),
    (VISION + "image_mean", [0.5, 0.5, math.inf]),
    (VISION + "image_mean", "grey"),
    (VISION + "image_std", [0.5, 0.0, 0.5]),
    (VISION + "image_std", [True, True, True]),
    (VISION + "projector.scale_factor", 3),
    (VISION + "projector.scale_factor", 1 << 16),
]
OF_FAMILIES: list[tuple[str, str, Any]] = [
    ("idefics3", "projector.scale_factor", None),
    ("idefics3", "preproc_image_size", 1),
    ("idefics3", "preproc_image_size", 1 << 14),
    ("internvl", "preproc_min_tiles", 0),
    ("internvl", "preproc_max_tiles", 1 << 20),
    ("llava", "feature_layer", [1, 2]),
    ("llava", "feature_layer", [9]),
    ("llava", "feature_layer", 2),
    ("llava", "image_grid_pinpoints", [336, 672]),
    ("mistral3", "spatial_merge_size", None),
    ("mistral3", "attention.head_count", 32),
    ("mistral3", "../rope.freq_base", 1.0),
    ("mistral3", "../rope.freq_base", [1e4]),
    ("qwen2_5_vl", "n_wa_pattern", None),
    ("qwen2_5_vl", "n_wa_pattern", 0),
    ("qwen2_5_vl", "window_size", 1),
    ("qwen2_5_vl", "wa_layer_indexes", [1]),
    ("qwen2_5_vl", "spatial_merge_size", 99),
    ("qwen2_5_vl", "image_max_pixels", 1),
    ("qwen2_5_vl", "image_max_pixels", 1 << 30),
    ("qwen2_5_vl", "image_min_pixels", 1 << 30),
    ("qwen2_5_vl", "attention.head_count", 16),
    ("qwen3_vl", "is_deepstack_layers", [True]),
    ("qwen3_vl", "is_deepstack_layers", [True, True, True]),
    ("qwen3_vl", "is_deepstack_layers", [1, 0, 1]),
    ("qwen3_vl", "is_deepstack_layers", None),
]


@pytest.mark.parametrize(("key", "value"), COMMON)
def test_a_key_that_is_wrong(models: Any, tmp_path: Path, key: str, value: Any) -> None:
    path = write_mmproj(models("gemma3")[0], "gemma3", tmp_path / "mmproj.gguf", keys={key: value})
    refused(models, "gemma3", path, key)


@pytest.mark.parametrize(("name", "key", "value"), OF_FAMILIES)
def test_a_key_of_a_family_that_is_wrong(
    models: Any, tmp_path: Path, name: str, key: str, value: Any
) -> None:
    full = (VISION + key).replace("vision.../", "")
    keys = {**KEYS.get(name, {}), full: value}
    path = write_mmproj(models(name)[0], name, tmp_path / "mmproj.gguf", keys=keys)
    refused(models, name, path, full)


@pytest.mark.parametrize("name", CONFIGS)
def test_tensors_that_are_missing_or_of_another_shape(
    models: Any, tmp_path: Path, name: str
) -> None:
    """Of each kind of tensor one, in the last layer."""
    folder = models(name)[0]
    whole = MmprojFile(write_mmproj(folder, name, tmp_path / "whole.gguf", keys=KEYS.get(name)))
    kinds = {tensor.translate(NO_DIGITS): tensor for tensor in whole.tensors}
    assert len(kinds) > 10
    for tensor in kinds.values():
        if "img_break" in tensor:
            continue
        changes: list[Any] = [None, np.zeros((3, 96, 5), np.float32)]
        for change in changes:
            path = write_mmproj(folder, name, tmp_path / "mmproj.gguf", keys=KEYS.get(name),
                                tensors={tensor: change})  # fmt: skip
            _, model, config = models(name)
            with pytest.raises(LoadError, match=r"tensor \"|is for another model|says that rows"
                               ) as caught:  # fmt: skip
                image_encoder(model, str(path), config)
            assert str(path) in str(caught.value)
            # A bias or a norm may be what tells one kind of tower from another.
            assert caught.value.field == tensor or name in ("internvl", "llava-pixtral", "mistral3")


NO_DIGITS = str.maketrans("", "", "0123456789")


def test_tensors_that_are_too_many_or_of_other_types(models: Any, tmp_path: Path) -> None:
    folder = models("llava")[0]
    path = tmp_path / "mmproj.gguf"
    write_mmproj(folder, "llava", path, tensors={"mm.3.weight": np.zeros((64, 64), np.float32)})
    refused(models, "llava", path, "mm.3.weight", "not known for this projector type")
    write_mmproj(folder, "llava", path, Type.Q4_0)
    refused(models, "llava", path, "v.blk.0.attn_q.weight", "type Q4_0.*F32, F16, Q8_0, BF16")


def test_a_tower_of_another_model(models: Any, tmp_path: Path) -> None:
    folder, model, config = models("llava")
    path = write_mmproj(folder, "llava", tmp_path / "mmproj.gguf")
    with pytest.raises(LoadError, match="rows have 64 numbers, and those of the model have 96"):
        image_encoder(model, str(path), {**config, "hidden_size": 96})
    gemma3 = write_mmproj(models("gemma3")[0], "gemma3", tmp_path / "gemma3.gguf")
    refused(models, "llava", gemma3, "clip.projector_type", "not for a model of the architecture")
    refused(models, "qwen2_5_vl", path, "clip.projector_type", "not for a model of")
    with pytest.raises(LoadError, match=r"gemma3\.gguf") as caught:
        MLCEngine(str(model), "cpu", mmproj=str(gemma3))
    assert caught.value.field == "clip.projector_type"


def test_a_wrong_file_beside_a_model_leaves_its_texts(models: Any, tmp_path: Path) -> None:
    folder, model, _ = models("llava")
    path = tmp_path / "x.gguf"
    path.write_bytes(model.read_bytes())
    write_mmproj(folder, "llava", tmp_path / "mmproj.gguf", tensors={"v.pre_ln.bias": None})
    with MLCEngine(str(path), "cpu", dtype="float32") as engine:
        with pytest.raises(
            InvalidRequest, match=r'mmproj\.gguf: tensor "v\.pre_ln\.bias"'
        ) as caught:
            engine.chat.completions.create(messages=CHAT)
        assert str(tmp_path) not in str(caught.value)
        texts = [{"role": "user", "content": "x"}]
        answer = engine.chat.completions.create(messages=texts, max_tokens=2)
        assert answer.usage.prompt_tokens > 1


def test_a_file_that_changes_before_the_first_image(models: Any, tmp_path: Path) -> None:
    folder, model, _ = models("llava")
    path = write_mmproj(folder, "llava", tmp_path / "mmproj.gguf")
    with MLCEngine(str(model), "cpu", mmproj=str(path), dtype="float32") as engine:
        path.write_bytes(path.read_bytes()[:-5000])
        with pytest.raises(InvalidRequest, match=r'mmproj\.gguf: tensor ".*end of the file'):
            engine.chat.completions.create(messages=CHAT)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_weights_that_are_no_numbers(models: Any, tmp_path: Path, number: float) -> None:
    folder, model, _ = models("llava")
    bias = np.full(64, number, np.float32)
    path = write_mmproj(folder, "llava", tmp_path / "x.gguf", tensors={"mm.2.bias": bias})
    with (
        MLCEngine(str(model), "cpu", mmproj=str(path), dtype="float32") as engine,
        pytest.raises(InvalidRequest, match="must be finite numbers"),
    ):
        engine.chat.completions.create(messages=CHAT)


def test_a_vocabulary_without_tokens_around_images(models: Any, tmp_path: Path) -> None:
    folder = models("gemma3")[0]
    names = {"<end_of_image>": "<end>"}
    path = write_text_gguf(folder, tmp_path / "x.gguf", renamed=names)
    mmproj = write_mmproj(folder, "gemma3", tmp_path / "mmproj.gguf")
    with (
        MLCEngine(str(path), "cpu", mmproj=str(mmproj), dtype="float32") as engine,
        pytest.raises(InvalidRequest, match="lacks the token <end_of_image>"),
    ):
        engine.chat.completions.create(messages=CHAT)


# ------------------------------------------------------------------------------------ damaged files


def test_a_file_that_is_cut(models: Any, tmp_path: Path) -> None:
    """Anywhere: it is named, and nothing else happens."""
    folder, model, config = models("llava")
    whole = write_mmproj(folder, "llava", tmp_path / "whole.gguf").read_bytes()
    path = tmp_path / "mmproj.gguf"
    ends = {0, 3, 4, 8, 16, 24, 25, len(whole) - 1}
    ends |= set(random.Random(1).sample(range(len(whole)), 60))
    ends |= set(range(24, 1500, 37))
    for end in sorted(ends):
        path.write_bytes(whole[:end])
        with pytest.raises(LoadError) as caught:
            image_encoder(model, str(path), config)
        assert str(path) in str(caught.value)


def test_a_file_with_other_bytes(models: Any, tmp_path: Path) -> None:
    """In keys and descriptions of tensors: it loads, or a LoadError names the file."""
    folder, model, config = models("llava")
    whole = write_mmproj(folder, "llava", tmp_path / "whole.gguf").read_bytes()
    path = tmp_path / "mmproj.gguf"
    rng = random.Random(2)
    num_refused = 0
    for _ in range(400):
        changed = bytearray(whole)
        for _ in range(rng.choice((1, 1, 4))):
            changed[rng.randrange(3500)] = rng.randrange(256)
        path.write_bytes(changed)
        error = None
        try:
            image_encoder(model, str(path), config)
        except LoadError as found:
            error = str(found)
        num_refused += error is not None
        assert error is None or str(path) in error
    assert num_refused > 100


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "end of the file"),
        (b"GGML" + bytes(20), "does not begin"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(20), "version 1"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(20), "version"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "keys"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 62), "end of the file"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2) + b"ab" + struct.pack("<I", 99), "type 99"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2) + b"ab" + struct.pack("<IIQ", 9, 4, 1 << 60),
         'list "ab"'),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2) + b"ab" + struct.pack("<IIQ", 9, 8, 1 << 60),
         'list "ab"'),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2) + b"ab" + struct.pack("<IIQ", 9, 9, 1),
         "type 9"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"t" + struct.pack("<IQIQ", 1, 0, 0, 0),
         "shape"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"t" + struct.pack("<IQIQ", 1, 1 << 62, 0, 0),
         "shape"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"t" + struct.pack("<IQIQ", 1, 33, 8, 0),
         "blocks of 32"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"t" + struct.pack("<IQIQ", 1, 9, 0, 1 << 63),
         "end of the file"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"t" + struct.pack("<I", 9) + bytes(99),
         "dimensions"),
    ],
)  # fmt: skip
def test_headers_that_say_too_much(tmp_path: Path, content: bytes, match: str) -> None:
    path = tmp_path / "mmproj.gguf"
    path.write_bytes(content)
    with pytest.raises(LoadError, match=match) as caught:
        MmprojFile(path)
    assert str(path) in str(caught.value)


# -------------------------------------------------------------------------- keys of the text model


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("qwen2_5_vl", "qwen2vl.rope.dimension_sections", [2, 6]),
        ("qwen2_5_vl", "qwen2vl.rope.dimension_sections", [2, -3, 3]),
        ("qwen3_vl", "qwen3vl.n_deepstack_layers", 1 << 30),
    ],
)
def test_keys_of_text_models(models: Any, tmp_path: Path, name: str, key: str, value: Any) -> None:
    path = write_text_gguf(models(name)[0], tmp_path / "x.gguf", metadata={key: value})
    with pytest.raises(LoadError) as caught:
        MLCEngine(str(path), "cpu")
    assert caught.value.field == key
    assert str(path) in str(caught.value)
