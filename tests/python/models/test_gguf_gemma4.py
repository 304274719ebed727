"""GGUF files of Gemma 4: logits, tokens, the vocabulary, and what is refused.

The oracles are those of test_gguf.py. What the files hold was compared with what llama.cpp's own
converter writes of the same folders.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from gguf_files import Metadata, write_gguf
from gguf_gemma4 import add_gemma4_tokenizer, make_gemma4_tokenizer
from paged_driver import (
    PagedModel,
    PagedSequence,
    random_tokens,
    relative_error,
    transformers_logits,
)
from trained_pieces import spaced_pieces, strings
from transformers import AutoTokenizer

from mlc_native import MLCEngine, inspect_model
from mlc_native import tokenizers as ours
from mlc_native._core import LoadError
from mlc_native.serve.config import EngineConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint
from model_shapes import SHAPES

PROMPT = random_tokens(100, 512, seed=11)  # longer than every window
EXACT = [Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q5_0, Type.IQ4_NL, Type.Q4_1,
         Type.Q5_1, Type.MXFP4]  # fmt: skip
# Blocks have 32 columns.
INPUTS = SHAPES["tiny-gemma4"]["text_config"] | {"hidden_size_per_layer_input": 32}
EXPERTS = {"moe_intermediate_size": 64}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "dense": ("tiny-gemma4_text", {}),
    "layer-inputs": ("tiny-gemma4", {"text_config": INPUTS}),
    "unified": ("tiny-gemma4_unified", {}),
    "experts": ("tiny-gemma4_text-experts", EXPERTS),
    "separate-experts": ("tiny-gemma4_text-experts", EXPERTS | {"separate_experts": True}),
    "experts-and-layer-inputs": (
        "tiny-gemma4_text-experts",
        EXPERTS | {"hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": 512},
    ),
    "every-pair-is-rotated": (
        "tiny-gemma4_text",
        {
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 5e3},
                "full_attention": {
                    "rope_type": "proportional", "partial_rotary_factor": 1.0, "rope_theta": 1e6,
                },
            }
        },
    ),
    "fewer-heads-without-a-window": (
        "tiny-gemma4_text",
        {
            "attention_k_eq_v": False,
            "per_layer_config": {i: {"head_dim": 32, "num_key_value_heads": 1} for i in (2, 4)},
        },
    ),
    "as-many-heads-everywhere": (
        "tiny-gemma4_text",
        {"attention_k_eq_v": False, "num_kv_shared_layers": 2},
    ),
}  # fmt: skip


def source_of(family: str, folder: Path, std: float | None = None, **overrides: Any) -> Path:
    like, own = FAMILIES[family]
    return make_checkpoint(like, folder, std=std, overrides=own | overrides)


def logits(path: Path) -> np.ndarray:
    model = PagedModel(path, "float32", quantization="off")
    return model.forward([(PagedSequence(PROMPT), len(PROMPT))], "all")


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_the_folder_with_the_same_values(
    tmp_path: Path, family: str, fused: bool
) -> None:
    """``fused``: with q, k and v in one tensor, and gates and ups of all experts."""
    turn = itertools.cycle(EXACT)
    source = source_of(family, tmp_path / "source")
    file = write_gguf(source, tmp_path / "x.gguf", lambda _: next(turn), fused=fused,
                      floats=tmp_path / "floats")  # fmt: skip
    assert np.array_equal(logits(file), logits(tmp_path / "floats"))


@pytest.mark.parametrize("kind", [Type.F32, Type.Q8_0, Type.Q4_K], ids=lambda kind: kind.name)
@pytest.mark.parametrize("family", ["dense", "layer-inputs", "experts"])
def test_tokens_are_those_of_transformers(tmp_path: Path, family: str, kind: Type) -> None:
    sizes: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64,
                             "global_head_dim": 128, "tie_word_embeddings": False}  # fmt: skip
    if family == "experts":
        sizes["moe_intermediate_size"] = 256
    if family == "layer-inputs":
        text = INPUTS | sizes | {"hidden_size_per_layer_input": 256}
        sizes = {"text_config": text, "tie_word_embeddings": False}
    source = source_of(family, tmp_path / "source", std=0.04, **sizes)
    file = write_gguf(source, tmp_path / "x.gguf", lambda _: kind, floats=tmp_path / "floats",
                      centred=kind == Type.Q4_K)  # fmt: skip
    prompt = PROMPT[:70]
    tokens, found = PagedModel(file, "float32", quantization="off").generate(prompt, 32, 32)
    expected = transformers_logits(tmp_path / "floats", [*prompt, *tokens[:-1]])[len(prompt) - 1 :]
    assert relative_error(found, expected) < 1e-4
    assert tokens == expected.argmax(-1).tolist()
    assert len(set(tokens)) > 8


@pytest.mark.parametrize(("kind", "name"), [(Type.Q8_0, "q8"), (Type.Q4_K, "q4"),
                                            (Type.Q6_K, "q6")])  # fmt: skip
@pytest.mark.parametrize("family", ["layer-inputs", "experts"])
def test_codes_are_kept(tmp_path: Path, family: str, kind: Type, name: str) -> None:
    """A projection of layer inputs that is left in floats of 32 bits says nothing of others."""
    sizes: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 256, "head_dim": 64,
                             "global_head_dim": 128}  # fmt: skip
    if family == "experts":
        sizes["moe_intermediate_size"] = 256
    else:
        sizes = {"text_config": INPUTS | sizes | {"hidden_size_per_layer_input": 256}}
    source = source_of(family, tmp_path / "source", **sizes)
    file = write_gguf(source, tmp_path / "x.gguf",
                      lambda own: Type.F32 if "per_layer_model_proj" in own else kind)  # fmt: skip
    found = inspect_model(file)
    assert found["loads"]
    assert found["weight_format"] == f"{name} with float16"
    model = PagedModel(file)
    assert np.isfinite(model.forward([(PagedSequence(PROMPT), len(PROMPT))], "all")).all()


# ---- The vocabulary ----


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A folder with a tokenizer, and the number of its tokens."""
    folder = tmp_path_factory.mktemp("vocabulary")
    return folder, make_gemma4_tokenizer(folder, *spaced_pieces())


def vocabulary_file(folder: Path, path: Path, adds_bos: bool = True) -> Path:
    writer = gguf.GGUFWriter(path, "gemma4")
    add_gemma4_tokenizer(writer, folder, adds_bos)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_ids_are_those_of_transformers(tmp_path: Path, vocabulary: tuple[Path, int]) -> None:
    folder, _ = vocabulary
    theirs = AutoTokenizer.from_pretrained(folder)
    tokenizer = ours.Tokenizer(vocabulary_file(folder, tmp_path / "x.gguf"))
    odd = [
        "\n\n\n",
        " \n \n",
        "<|turn>user\nHi <turn|>\n",
        "<|tool_call>f{x:1}<tool_call|>",
        "\u2581",
    ]
    for text in [*strings(1000), *odd]:
        ids = theirs.encode(text, add_special_tokens=False)
        assert tokenizer.encode(text) == ids, text
        assert tokenizer.decode(ids, skip_special_tokens=False) == theirs.decode(ids), text


@pytest.mark.parametrize("adds_bos", [True, False])
def test_texts_begin_with_a_token_whatever_the_file_says(
    tmp_path: Path, vocabulary: tuple[Path, int], adds_bos: bool
) -> None:
    """As for llama.cpp: the first files say false."""
    folder, _ = vocabulary
    tokenizer = ours.Tokenizer(vocabulary_file(folder, tmp_path / "x.gguf", adds_bos))
    assert tokenizer.special_tokens.front == (2,)
    assert tokenizer.special_tokens.back == ()


def test_merges_that_are_missing_are_named(tmp_path: Path, vocabulary: tuple[Path, int]) -> None:
    path = vocabulary_file(vocabulary[0], tmp_path / "x.gguf")
    without(path, "tokenizer.ggml.merges")
    with pytest.raises(LoadError, match="is missing") as error:
        ours.Tokenizer(path)
    assert error.value.field == "tokenizer.ggml.merges"


def test_an_engine_answers_as_from_the_folder(tmp_path: Path, vocabulary: tuple[Path, int]) -> None:
    """With the chat template of the file, and the tokens that end an answer."""
    folder, size = vocabulary
    source = source_of("dense", tmp_path / "source", vocab_size=size)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / name, source)
    file = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32, pre="gemma4")
    answers = []
    for model in (source, file):
        with MLCEngine(str(model), "cpu", engine_config=EngineConfig(verbose=False)) as engine:
            chat = engine.chat.completions.create(
                messages=[{"role": "user", "content": "Tell me of 12 cats.\n\n"}], max_tokens=24,
                temperature=0, ignore_eos=True, logprobs=True)  # fmt: skip
            choice = chat.choices[0]
            answers.append((choice.message.content, chat.usage.prompt_tokens, choice.logprobs))
    assert answers[0] == answers[1]
    assert answers[0][1] > 10
    assert answers[0][0]


@pytest.mark.parametrize(
    ("token", "ends"),
    [("<eos>", True), ("<turn|>", True), ("<|tool_response>", True), ("<tool_call|>", False)],
)
def test_tokens_that_end_an_answer(
    tmp_path: Path, vocabulary: tuple[Path, int], token: str, ends: bool
) -> None:
    """Those that generation_config.json names in the released folders, which the file does not."""
    folder, size = vocabulary
    source = source_of("dense", tmp_path / "source", vocab_size=size)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / name, source)
    file = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32, pre="gemma4")
    ids = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    with MLCEngine(str(file), "cpu", engine_config=EngineConfig(verbose=False)) as engine:
        answer = engine.completions.create(prompt="abc", max_tokens=4, temperature=0,
                                           logit_bias={str(ids[token]): 100.0})  # fmt: skip
    assert answer.choices[0].finish_reason == ("stop" if ends else "length")


# ---- What is refused ----


def without(path: Path, *keys: str) -> None:
    """With other names for the keys."""
    content = path.read_bytes()
    for key in keys:
        name = len(key).to_bytes(8, "little") + key.encode()
        assert content.count(name) == 1, key
        content = content.replace(name, name[:-1] + b"_")
    path.write_bytes(content)


def damaged(path: Path, field: str, *parts: str) -> None:
    with pytest.raises(LoadError) as error:
        PagedModel(path)
    message = str(error.value)
    assert all(part in message for part in parts), message
    assert error.value.field == field


@pytest.mark.parametrize(
    "key",
    [
        "block_count",
        "feed_forward_length",
        "embedding_length_per_layer_input",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.key_length_swa",
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "attention.layer_norm_rms_epsilon",
        "expert_used_count",
    ],
)
def test_a_key_whose_value_nothing_else_says_is_named(tmp_path: Path, key: str) -> None:
    path = write_gguf(source_of("experts", tmp_path / "source"), tmp_path / "x.gguf",
                      lambda _: Type.F32)  # fmt: skip
    without(path, f"gemma4.{key}")
    damaged(path, f"gemma4.{key}", "is missing")


@pytest.mark.parametrize(
    ("key", "value", "parts"),
    [
        ("block_count", 0, ["= 0 must be in [1, 65536]"]),
        ("attention.sliding_window_pattern", [True, False], ["has 2 entries for 5 layers"]),
        ("attention.sliding_window_pattern", [True] * 5, ["gives the last layer a window"]),
        ("attention.sliding_window_pattern", 3, ["must be a list"]),
        ("attention.head_count_kv", [2, 2, 1, 1, 1], ["differs among layers with a window"]),
        ("attention.head_count_kv", [2, 2, 1, 2, 2], ["differs among layers without a window"]),
        ("attention.head_count_kv", [2, 2], ["has 2 entries for 5 layers"]),
        ("attention.value_length", 16, ["= 16 must be gemma4.attention.key_length = 32"]),
        ("attention.value_length_swa", 16, ["= 16 must be gemma4.attention.key_length_swa = 24"]),
        ("attention.shared_kv_layers", 5, ["= 5 must be in [0, 4]"]),
        ("feed_forward_length", [160, 160, 160, 160, 320], ["may differ only where it is twice"]),
        ("rope.dimension_count", 8, ["= 8 must be gemma4.attention.key_length = 32"]),
        ("rope.dimension_count_swa", 8, ["= 8 must be gemma4.attention.key_length_swa = 24"]),
        ("rope.scaling.type", "yarn", ['= "yarn" is not supported for this family']),
    ],
)
def test_sizes_that_do_not_fit_are_named(
    tmp_path: Path, key: str, value: Any, parts: list[str]
) -> None:
    metadata: Metadata = {f"gemma4.{key}": value}
    path = write_gguf(source_of("dense", tmp_path / "source"), tmp_path / "x.gguf",
                      lambda _: Type.F32, metadata=metadata)  # fmt: skip
    damaged(path, f"gemma4.{key}", *parts)


def replace_factors(path: Path, change: Callable[[np.ndarray], None]) -> None:
    content = bytearray(path.read_bytes())
    (tensor,) = [t for t in gguf.GGUFReader(path).tensors if t.name == "rope_freqs.weight"]
    factors = np.frombuffer(content, np.float32, tensor.n_elements, tensor.data_offset).copy()
    change(factors)
    content[tensor.data_offset : tensor.data_offset + tensor.n_bytes] = factors.tobytes()
    path.write_bytes(content)


@pytest.mark.parametrize(("place", "value"), [(2, 8.0), (0, 1e30), (15, 1.0), (15, np.nan)])
def test_wavelengths_that_no_folder_has_are_named(tmp_path: Path, place: int, value: float) -> None:
    path = write_gguf(source_of("dense", tmp_path / "source"), tmp_path / "x.gguf",
                      lambda _: Type.F32)  # fmt: skip

    def change(factors: np.ndarray) -> None:
        factors[place] = value

    replace_factors(path, change)
    damaged(path, "rope_freqs.weight", "must be 1 for the first pairs of a head")


def test_missing_tensors_are_named(tmp_path: Path) -> None:
    source = source_of("layer-inputs", tmp_path / "source")
    path = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32)
    content = path.read_bytes()

    def replace(old: bytes, new: bytes) -> None:
        assert content.count(old) == 1
        path.write_bytes(content.replace(old, new))

    replace(b"rope_freqs.weight", b"rope_freqs.weighx")
    damaged(path, "rope_freqs.weight", "is missing")
    replace(b"per_layer_token_embd.weight", b"per_layer_token_embx.weight")
    damaged(path, "model.embed_tokens_per_layer.weight", "lacks tensors of Gemma4ForCausalLM")
    replace(b"blk.3.layer_output_scale.weight", b"blk.3.layer_output_scalx.weight")
    damaged(path, "model.layers.3.layer_scalar", "lacks tensors of Gemma4ForCausalLM")
