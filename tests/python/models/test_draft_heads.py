"""Draft heads: the tokens that they propose against torch, and the folders that are refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from draft_checkpoints import (
    FFN,
    HEADS,
    HIDDEN,
    KV_HEADS,
    VOCAB,
    add_mtp,
    write_eagle1,
    write_eagle3,
    write_medusa,
)
from draft_driver import LENGTH, NUM_SEQUENCES, NUM_TOKENS, POSITIONS, PROMPT, propose_at_positions
from paged_driver import PagedModel, random_tokens
from safetensors.torch import load_file, save_file
from torch_drafts import TransformersMtp, TransformersQwenMtp, target_states, torch_head
from transformers.modeling_layers import MtpModel

from mlc_native import MLCEngine
from mlc_native._core import InvalidConfig, LoadError, testing

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fake_model import find_fake_model_lib, find_test_library, write_model
from make_random_checkpoint import make_checkpoint

WEIGHTS = "model.safetensors"
SIZES = {
    "hidden_size": HIDDEN,
    "intermediate_size": FFN,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCAB,
    "num_hidden_layers": 7,
}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("target") / "llama"
    return make_checkpoint("tiny-llama", path, overrides=SIZES)


@pytest.fixture(scope="module")
def mimo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("target") / "mimo"
    return add_mtp(make_checkpoint("tiny-qwen2", path, overrides=SIZES))


def check_drafts(
    folder: Path,
    target: Path,
    streams: list[int],
    device: dict[str, Any] | None = None,
    reference_of: Callable[[Path, Path], Any] = torch_head,
) -> None:
    """The drafts at each position of two sequences are torch's."""
    texts = [random_tokens(NUM_TOKENS, VOCAB, seed=seed) for seed in range(NUM_SEQUENCES)]
    model_lib = (device or {}).get("model_lib", "")
    of_head, drafts = propose_at_positions(folder, target, texts, model_lib)
    assert of_head == streams
    seen = set()
    for i, text in enumerate(texts):
        reference, states = reference_of(folder, target), target_states(target, text, streams)
        begin = 0
        for end, ours in enumerate(drafts, PROMPT + 1):
            tokens = text[begin + 1 : end + 1]
            assert ours[i] == reference.propose(tokens, states[begin:end], LENGTH), (end, i)
            begin = end
            seen.update(ours[i])
    assert len(seen) > POSITIONS  # the drafts differ from position to position


DEFAULT = [2, 3, 4]  # of 7 layers
EAGLE3: dict[str, tuple[dict[str, Any], list[int]]] = {
    "SafeAILab": ({"draft_vocab": 200}, DEFAULT),
    "speculators": ({"style": "speculators", "draft_vocab": 200}, DEFAULT),
    "AngelSlim": ({"style": "AngelSlim", "own_embeddings": True, "draft_vocab": 200}, DEFAULT),
    "whole-vocabulary": ({}, DEFAULT),
    "shared-lm-head": ({"own_head": False}, DEFAULT),
    "norm-before-residual": ({"fields": {"norm_before_residual": True}}, DEFAULT),
    "speculators-norm-after": (
        {"style": "speculators", "fields": {"norm_before_residual": False}},
        DEFAULT,
    ),
    "given-streams": ({"fields": {"eagle_aux_hidden_state_layer_ids": [1, 5, 7]}}, [1, 5, 7]),
    "given-in-eagle-config": (
        {"fields": {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [6, 0]}}, "num_states": 2},
        [6, 0],
    ),
    "norm-of-all-states": ({"fields": {"norm_before_fc": True, "norm_output": True}}, DEFAULT),
    "norms-of-states": ({"fields": {"fc_norm": True}}, DEFAULT),
    "qk-norm": ({"style": "speculators", "qk_norm": True}, DEFAULT),
}


@pytest.mark.emulated(slow=True)
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param("SafeAILab", marks=pytest.mark.emulated),
        *[v for v in EAGLE3 if v != "SafeAILab"],
    ],
)
def test_eagle3_drafts_are_those_of_torch(
    variant: str, llama: Path, tmp_path: Path, device: dict[str, Any]
) -> None:
    options, streams = EAGLE3[variant]
    check_drafts(write_eagle3(tmp_path / "head", **options), llama, streams, device)


@pytest.mark.parametrize("norm", ["norm_before_fc", "fc_norm"])
def test_a_target_of_another_width(norm: str, tmp_path: Path) -> None:
    target = make_checkpoint("tiny-qwen3", tmp_path / "wide", overrides={"hidden_size": 96})
    fields = {"target_hidden_size": 96, norm: True}
    head = write_eagle3(
        tmp_path / "head", own_embeddings=True, target_hidden=96, fields=fields, draft_vocab=200
    )
    check_drafts(head, target, [2, 1, 0])  # of 3 layers
    edit_tensors(head, lambda tensors: tensors.pop("embed_tokens.weight"))
    refused(head, target, "hidden_size", "64", "96")


@pytest.mark.emulated(slow=True)
@pytest.mark.parametrize("bias", [False, True])
def test_eagle1_drafts_are_those_of_torch(
    bias: bool, llama: Path, tmp_path: Path, device: dict[str, Any]
) -> None:
    streams = [SIZES["num_hidden_layers"] + 1]
    check_drafts(write_eagle1(tmp_path / "head", bias), llama, streams, device)


@pytest.mark.emulated
def test_mtp_drafts_are_those_of_torch(mimo: Path, device: dict[str, Any]) -> None:
    """The embeddings, which are tied to the head, are the target's."""
    check_drafts(mimo, mimo, [SIZES["num_hidden_layers"] + 1], device)


@pytest.mark.parametrize(
    ("style", "preset"),
    [("DeepSeek", "tiny-qwen2"), ("DeepSeek", "tiny-qwen3"), ("Qwen3-Next", "tiny-qwen3")],
)
def test_mtp_drafts_of_other_layouts(style: str, preset: str, tmp_path: Path) -> None:
    """Their layers are dense here; the model itself does not read the tensors of the head."""
    sizes = {**SIZES, "head_dim": HIDDEN // HEADS}
    target = add_mtp(make_checkpoint(preset, tmp_path / "target", overrides=sizes), style)
    check_drafts(target, target, [SIZES["num_hidden_layers"] + 1])


@pytest.mark.skipif(
    not hasattr(MtpModel, "forward_layer"), reason="this transformers has another MTP head"
)
@pytest.mark.emulated(slow=True)
@pytest.mark.parametrize("dense_layers", [0, 3])
@pytest.mark.parametrize("family", ["glm4_moe", "deepseek_v3", "glm4_moe_lite"])
def test_mtp_drafts_are_those_of_transformers(
    family: str, dense_layers: int, tmp_path: Path, device: dict[str, Any]
) -> None:
    """Their heads have experts, and those of DeepSeek V3 and GLM-4.7-Flash latent attention."""
    overrides = {"num_hidden_layers": 4, "first_k_dense_replace": dense_layers}
    target = make_checkpoint(f"tiny-{family}", tmp_path / "target", overrides=overrides)
    add_mtp(target, "DeepSeek")
    check_drafts(target, target, [5], device, lambda _, of: TransformersMtp(of))


HYBRID = {"qwen3_5_text": 4, "qwen3_5": 3, "qwen3_5_moe_text": 4, "qwen3_next": 4}  # layers


@pytest.mark.emulated(slow=True)
@pytest.mark.parametrize("family", HYBRID)
def test_mtp_drafts_of_models_with_linear_attention(
    family: str, tmp_path: Path, device: dict[str, Any]
) -> None:
    """Their heads have attention whose output is gated, and experts where the model has."""
    target = add_mtp(make_checkpoint(f"tiny-{family}", tmp_path / "target"), "Qwen3-Next")
    streams = [HYBRID[family] + 1]
    check_drafts(target, target, streams, device, lambda _, of: TransformersQwenMtp(of))


MEDUSA: dict[str, dict[str, Any]] = {
    "FasterDecoding": {},
    "with-module": {"style": "with-module"},
    "vLLM": {"style": "vLLM"},
    "blocks": {"num_blocks": 3},
    "shared-lm-head": {"own_heads": False},
    "vLLM-shared-lm-head": {"style": "vLLM", "own_heads": False, "num_blocks": 2},
}


@pytest.mark.parametrize("variant", MEDUSA)
def test_medusa_drafts_are_those_of_torch(variant: str, llama: Path, tmp_path: Path) -> None:
    head = write_medusa(tmp_path / "head", **MEDUSA[variant])
    check_drafts(head, llama, [SIZES["num_hidden_layers"] + 1])


# ---- In engines ----


def check_engine(target: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Random heads are nearly always wrong, which changes no answer. Returns what is counted."""
    asked: dict[str, Any] = {
        "prompt": ["The quick brown fox", "abc", "x" * 40],
        "n": 2,
        "seed": 5,
        "max_tokens": 30,
        "ignore_eos": True,
    }
    texts = []
    sizes = {"max_num_sequence": 6, "max_total_sequence_length": 1024, "num_threads": 1}
    for used in ({}, {"spec_draft_length": 4, **settings}):
        with MLCEngine(str(target), prefill_chunk_size=16, **sizes, **used) as engine:
            answers = [engine.completions.create(temperature=t, **asked) for t in (0, 0.9)]
            texts.append([choice.text for answer in answers for choice in answer.choices])
            spec = engine.metrics().metrics.get("spec_decode", {})
    assert texts[0] == texts[1]
    assert spec["num_draft_tokens"] > 100
    assert spec["num_failures"] == 0
    return dict(spec)


@pytest.mark.parametrize("mode", ["eagle3", "eagle", "medusa", "auto"])
def test_an_engine_with_a_random_head(mode: str, llama: Path, tmp_path: Path) -> None:
    folder = tmp_path / "head"
    if mode == "eagle":
        head = write_eagle1(folder, True)
    elif mode == "medusa":
        head = write_medusa(folder, num_heads=2)
    else:
        head = write_eagle3(folder)
    check_engine(llama, {"speculative_mode": mode, "additional_models": [str(head)]})


@pytest.mark.parametrize("mode", ["mtp", "auto"])
def test_an_engine_with_the_head_in_its_folder(mode: str, mimo: Path) -> None:
    check_engine(mimo, {"speculative_mode": mode})


@pytest.mark.parametrize("family", ["glm4_moe", "deepseek_v3"])
def test_an_engine_with_experts_in_its_head(family: str, tmp_path: Path) -> None:
    target = make_checkpoint(f"tiny-{family}", tmp_path / "target")
    check_engine(add_mtp(target, "DeepSeek"), {"speculative_mode": "auto"})


@pytest.mark.parametrize(
    ("family", "mode"),
    [("qwen3_5_text", "mtp"), ("qwen3_5", "auto"), ("qwen3_5_moe_text", "auto"),
     ("qwen3_next", "mtp")],
)  # fmt: skip
def test_an_engine_whose_model_has_linear_attention(family: str, mode: str, tmp_path: Path) -> None:
    target = add_mtp(make_checkpoint(f"tiny-{family}", tmp_path / "target"), "Qwen3-Next")
    check_engine(target, {"speculative_mode": mode})


def test_an_engine_whose_head_is_sometimes_right(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The head says again what its model has said, whose tensors are none that nothing uses."""
    target = add_mtp(make_checkpoint("tiny-qwen3_5", tmp_path / "target"), "Qwen3-Next")

    def repeat(tensors: dict[str, torch.Tensor]) -> None:
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            tensors[f"mtp.layers.0.{name}.weight"].zero_()
        for name in ("pre_fc_norm_hidden", "norm"):  # to which 1 is added
            tensors[f"mtp.{name}.weight"].zero_()
        fuse = tensors["mtp.fc.weight"]
        fuse.zero_()[:, HIDDEN:] = torch.eye(HIDDEN)

    edit_tensors(target, repeat)
    assert check_engine(target, {"speculative_mode": "auto"})["num_accepted_tokens"] > 3
    unused = sum("visual" in name for name in load_file(target / WEIGHTS))
    messages = [r.getMessage() for r in caplog.records if "does not use" in r.getMessage()]
    assert len(messages) == 2  # of the engine with a head and of the one without
    assert all(text.endswith(f"use: {unused} of parts that read no text") for text in messages)


def test_auto_looks_guesses_up_where_the_own_head_cannot_be_run(tmp_path: Path) -> None:
    target = add_mtp(make_checkpoint("tiny-qwen3", tmp_path / "target"), "DeepSeek")
    tensor = "model.layers.3.self_attn.kv_a_proj_with_mqa.weight"
    edit_tensors(target, lambda tensors: tensors.update({tensor: torch.zeros(2, 2)}))
    with pytest.raises(LoadError, match=r"kv_a_proj_with_mqa.*draft head is not supported"):
        MLCEngine(str(target), "cpu", speculative_mode="mtp")
    with MLCEngine(str(target), "cpu", speculative_mode="auto") as engine:
        assert engine.engine_config.speculative_mode == "ngram"


# ---- Refusals ----


def refused(folder: Path, target: Path, *parts: str) -> None:
    model = PagedModel(target).model
    with pytest.raises(LoadError) as error:
        testing.TestDraftHead(str(folder), model)
    for part in parts:
        assert part in str(error.value)


def edit_config(folder: Path, **fields: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return folder


def edit_tensors(folder: Path, edit: Callable[[dict[str, torch.Tensor]], Any]) -> Path:
    tensors = load_file(folder / WEIGHTS)
    edit(tensors)
    save_file(tensors, folder / WEIGHTS)
    return folder


def test_a_head_is_no_model_and_a_model_no_head(llama: Path, tmp_path: Path) -> None:
    for style in ("SafeAILab", "speculators", "AngelSlim"):
        head = write_eagle3(tmp_path / style, style=style)
        with pytest.raises(LoadError, match="is a draft head, which only guesses the tokens of an"):
            testing.TestModel(str(head))
    # What some trainers write.
    with pytest.raises(LoadError, match="draft head"):
        testing.TestModel(
            str(edit_config(tmp_path / "SafeAILab", architectures=["LlamaForCausalLM"]))
        )
    for style in ("FasterDecoding", "vLLM"):
        head = write_medusa(tmp_path / f"medusa-{style}", style=style)
        with pytest.raises(LoadError, match="is a draft head"):
            testing.TestModel(str(head))
    refused(llama, llama, "holds no draft head", "EAGLE-3 (midlayer)", "MTP of MiMo", "Medusa")


@pytest.mark.parametrize(
    ("write", "file", "pickle"),
    [
        (write_eagle3, WEIGHTS, "pytorch_model.bin"),
        (write_medusa, "medusa_lm_head.safetensors", "medusa_lm_head.pt"),
    ],
)
def test_pickles_are_refused_with_the_command_that_converts_them(
    write: Callable[[Path], Path], file: str, pickle: str, llama: Path, tmp_path: Path
) -> None:
    head = write(tmp_path / "head")
    expected = load_file(head / file)
    torch.save(expected, head / pickle)
    (head / file).unlink()
    with pytest.raises(LoadError, match=f"{pickle} is not read") as error:
        testing.TestDraftHead(str(head), PagedModel(llama).model)
    command = str(error.value).partition('python -c "')[2].rpartition('"')[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(head)
        exec(command, {})
    assert load_file(head / file).keys() == expected.keys()
    testing.TestDraftHead(str(head), PagedModel(llama).model)


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"vocab_size": 600}, ["vocab_size", "600", "512"]),
        ({"num_hidden_layers": 2}, ["num_hidden_layers", "1 for a draft head"]),
        ({"eagle_aux_hidden_state_layer_ids": [1, 8, 2]}, ["eagle_aux", "7"]),
        ({"eagle_aux_hidden_state_layer_ids": []}, ["eagle_aux"]),
        ({"speculators_model_type": "dflash"}, ["speculators_model_type", "eagle3"]),
        ({"eagle_config": {"use_aux_hidden_state": False}}, ["use_aux_hidden_state"]),
        ({"fc_norm": True, "norm_before_fc": True}, ["fc_norm", "norm_before_fc"]),
        ({"target_hidden_size": 32}, ["target_hidden_size", "32", "64"]),
        ({"draft_vocab_size": 513}, ["draft_vocab_size", "512"]),
        ({"draft_vocab_size": 100}, ["d2t", "100", "512"]),
    ],
)
def test_a_config_that_fits_no_target(
    llama: Path, tmp_path: Path, fields: dict[str, Any], parts: list[str]
) -> None:
    refused(edit_config(write_eagle3(tmp_path / "head"), **fields), llama, *parts)


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"medusa_num_heads": 5}, ["4.0.linear.weight", "Medusa"]),
        ({"medusa_num_layers": 2}, ["0.1.linear.weight"]),
        ({"medusa_num_heads": 0}, ["medusa_num_heads", "[1, 64]"]),
        ({"medusa_num_heads": None}, ["num_heads"]),
        ({"hidden_size": 32}, ["hidden_size", "32", "64"]),
        ({"vocab_size": 600}, ["vocab_size", "600", "512"]),
        ({"truncated_vocab_size": 100}, ["truncated_vocab_size", "100", "512"]),
    ],
)
def test_medusa_heads_that_fit_no_target(
    llama: Path, tmp_path: Path, fields: dict[str, Any], parts: list[str]
) -> None:
    refused(edit_config(write_medusa(tmp_path / "head"), **fields), llama, *parts)


@pytest.mark.parametrize(
    ("tensor", "what"),
    [
        ("mlp.experts.0.gate_proj.weight", "experts"),
        ("mlp.experts.gate_up_proj", "experts"),
        ("self_attn.kv_a_proj_with_mqa.weight", "latent attention"),
    ],
)
def test_parts_that_a_head_cannot_have(tensor: str, what: str, tmp_path: Path) -> None:
    target = make_checkpoint("tiny-llama", tmp_path / "target", overrides=SIZES)
    add_mtp(target, "DeepSeek")
    edit_tensors(target, lambda t: t.update({"model.layers.7." + tensor: torch.zeros(2, 2)}))
    refused(target, target, "model.layers.7." + tensor.removesuffix(".weight"), what)


def test_offsets_that_leave_the_vocabulary(llama: Path, tmp_path: Path) -> None:
    for i, (row, offset) in enumerate([(0, -1), (3, 509), (99, 2**62), (99, -(2**63))]):
        head = write_eagle3(tmp_path / f"head{i}", draft_vocab=100)
        edit_tensors(head, lambda t, row=row, offset=offset: t["d2t"].__setitem__(row, offset))
        refused(head, llama, "d2t", f"token {row}", "512")
    edit_tensors(head, lambda tensors: tensors.update(d2t=tensors["d2t"].int()))
    refused(head, llama, "d2t", "I64 [100]")


def test_a_smaller_vocabulary_needs_a_head_of_its_own(llama: Path, tmp_path: Path) -> None:
    head = write_eagle3(tmp_path / "head", draft_vocab=100, own_head=False)
    refused(head, llama, "draft_vocab_size", "100", "512")


def test_a_missing_tensor_is_named(llama: Path, tmp_path: Path) -> None:
    head = write_eagle3(tmp_path / "head")
    edit_tensors(head, lambda tensors: tensors.pop("midlayer.mlp.up_proj.weight"))
    refused(head, llama, "midlayer.mlp.up_proj.weight")


def test_medusa_runs_on_the_cpu_only(llama: Path, tmp_path: Path) -> None:
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    model = testing.TestModel(str(llama), "float32", model_lib=library)
    with pytest.raises(InvalidConfig, match="Medusa is not supported on CUDA"):
        testing.TestDraftHead(str(write_medusa(tmp_path / "head")), model)


def test_a_head_needs_a_model_that_gives_states(tmp_path: Path) -> None:
    fake = write_model(tmp_path / "fake")
    model = testing.TestModel(fake, model_lib=find_fake_model_lib())
    with pytest.raises(InvalidConfig, match="model that gives hidden states"):
        testing.TestDraftHead(str(write_eagle3(tmp_path / "head")), model)
