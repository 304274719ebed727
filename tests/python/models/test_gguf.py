"""GGUF files: the values of their tensors, logits, tokenizers, and what is refused.

The oracles are the package ``gguf`` (llama.cpp's own writer and dequantization), and the Hugging
Face folder that holds the same values.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draft_checkpoints import add_mtp
from draft_driver import NUM_SEQUENCES, NUM_TOKENS, propose_at_positions
from gguf import GGMLQuantizationType as Type
from gguf_cases import EXACT, FAMILIES, PROMPT, VARIANTS, damaged, in_turn, logits
from gguf_files import Metadata, write_gguf
from paged_driver import (
    PagedModel,
    random_tokens,
    relative_error,
    transformers_logits,
)

from mlc_native import MLCEngine
from mlc_native.serve.config import EngineConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

DEMO = Path(__file__).resolve().parents[3] / "mlc_native" / "demo_model"


@pytest.mark.parametrize("like", FAMILIES)
def test_logits_are_those_of_the_folder_with_the_same_values(tmp_path: Path, like: str) -> None:
    check_logits(tmp_path, like, FAMILIES[like])


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_of_families(tmp_path: Path, variant: str) -> None:
    check_logits(tmp_path, *VARIANTS[variant])


@pytest.mark.parametrize("like", ["tiny-qwen3_5_text", "tiny-qwen3_5_moe_text"])
def test_a_layer_that_guesses_is_a_draft_head(tmp_path: Path, like: str) -> None:
    """As llama.cpp's converter writes the MTP head of Qwen3.5."""
    size = json.loads((DEMO / "config.json").read_text())["vocab_size"]
    source = make_checkpoint(like, tmp_path / "source",
                             overrides=FAMILIES[like] | {"vocab_size": size})  # fmt: skip
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO / name, source)
    file = write_gguf(add_mtp(source, "Qwen3-Next"), tmp_path / "x.gguf", lambda _: Type.F32,
                      floats=tmp_path / "floats", pre="smollm")  # fmt: skip
    texts = [random_tokens(NUM_TOKENS, 512, seed=seed) for seed in range(NUM_SEQUENCES)]
    streams, drafts = propose_at_positions(file, file, texts)
    assert streams == [5]
    assert drafts == propose_at_positions(tmp_path / "floats", tmp_path / "floats", texts)[1]
    with MLCEngine(str(file), "cpu", speculative_mode="auto") as engine:
        assert engine.engine_config.speculative_mode == "mtp"
        assert engine.completions.create(prompt="abc", max_tokens=4).usage.completion_tokens == 4


@pytest.mark.parametrize("like", ["tiny-mistral", "tiny-qwen2", "tiny-qwen3_moe", "tiny-gpt_oss"])
def test_several_weights_in_one_tensor(tmp_path: Path, like: str) -> None:
    check_logits(tmp_path, like, FAMILIES[like], fused=True)


def test_gate_and_up_of_all_experts_in_one_tensor(tmp_path: Path) -> None:
    """As the converter of Mistral 4 leaves them."""
    check_logits(tmp_path, *VARIANTS["its-own-name"], fused=True)


def check_logits(tmp_path: Path, like: str, overrides: dict[str, Any], **options: Any) -> None:
    source = make_checkpoint(like, tmp_path / "source", overrides=overrides)
    file = write_gguf(source, tmp_path / "x.gguf", in_turn(EXACT), floats=tmp_path / "floats",
                      **options)  # fmt: skip
    ours, theirs = logits(file), logits(tmp_path / "floats")
    # Llama 3.1's wavelengths are numbers of the file, and products of its settings in a folder.
    # Norms that are stored with 1 added are rounded, as are HunYuan's wavelengths and DeepSeek's
    # mscale.
    exact = not any(name in like for name in ("llama", "apertus", "gemma", "nemotron", "hunyuan",
                                              "deepseek_v3", "mistral4", "qwen3_5",
                                              "qwen3_next"))  # fmt: skip
    assert np.array_equal(ours, theirs) if exact else relative_error(ours, theirs) < 1e-5


@pytest.mark.parametrize("key", ["rope.scale_linear", "rope.scaling.factor"])
def test_a_factor_of_rope_without_a_type_is_linear(tmp_path: Path, key: str) -> None:
    """As for llama.cpp. The first is the name in old files."""
    scaling = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}
    overrides = {"rope_scaling": None, "rope_parameters": scaling}
    source = make_checkpoint("tiny-qwen2", tmp_path / "source", overrides=overrides)
    metadata: Metadata = {f"qwen2.{key}": 4.0}
    file = write_gguf(source, tmp_path / "x.gguf", lambda _: Type.F32, metadata=metadata)
    assert np.array_equal(logits(file), logits(source))


def test_a_request_without_settings_is_sampled_as_the_file_says(tmp_path: Path) -> None:
    metadata: Metadata = {"general.sampling.temp": 0.0, "general.sampling.top_k": 5}
    file = write_gguf(DEMO, tmp_path / "demo.gguf", lambda _: Type.BF16, pre="smollm",
                      metadata=metadata)  # fmt: skip

    def answers(**settings: Any) -> set[str]:
        with MLCEngine(str(file), "cpu", **settings) as engine:
            texts = (
                engine.completions.create(prompt="The", max_tokens=12, seed=seed).choices[0].text
                for seed in range(5)
            )
            return set(texts)

    assert len(answers()) == 1  # greedy
    assert len(answers(sampling_defaults="openai")) > 1


@pytest.mark.parametrize("kind", [Type.F32, Type.Q8_0, Type.Q4_K], ids=lambda kind: kind.name)
@pytest.mark.parametrize("like", ["tiny-qwen3_5_text", "tiny-qwen3_5_moe_text", "tiny-qwen3_next"])
def test_tokens_of_hybrid_models_are_those_of_transformers(
    tmp_path: Path, like: str, kind: Type
) -> None:
    sizes = {"hidden_size": 256, "head_dim": 64, "linear_value_head_dim": 64, "mlp_only_layers": []}
    if like == "tiny-qwen3_5_text":
        sizes |= {"intermediate_size": 512}
    else:
        sizes |= {"moe_intermediate_size": 256, "shared_expert_intermediate_size": 256}
    source = make_checkpoint(like, tmp_path / "source", overrides=sizes)
    file = write_gguf(source, tmp_path / "x.gguf", lambda _: kind, floats=tmp_path / "floats",
                      centred=kind == Type.Q4_K)  # fmt: skip
    prompt = PROMPT[:70]
    model = PagedModel(file, "float32", quantization="off")
    tokens, ours = model.generate(prompt, 32, 32)
    expected = transformers_logits(tmp_path / "floats", [*prompt, *tokens[:-1]])[len(prompt) - 1 :]
    assert relative_error(ours, expected) < 1e-4
    assert tokens == expected.argmax(-1).tolist()
    assert len(set(tokens)) > 8


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model as a GGUF file."""
    folder = tmp_path_factory.mktemp("demo")
    return write_gguf(DEMO, folder / "demo.gguf", lambda _: Type.BF16, pre="smollm")


@pytest.fixture(scope="module")
def answers(demo: Path) -> dict[str, Any]:
    """What two engines say, one on the file and one on the folder."""
    results: dict[str, Any] = {}
    for name, model in {"file": demo, "folder": DEMO}.items():
        engine = MLCEngine(str(model), device="cpu", mode="local",
                           engine_config=EngineConfig(verbose=False))  # fmt: skip
        try:
            chat = engine.chat.completions.create(
                messages=[{"role": "user", "content": "Tell me a story about 12 cats."}],
                max_tokens=24, temperature=0)  # fmt: skip
            text = engine.completions.create(prompt="Once upon", max_tokens=24, temperature=0)
            results[name] = (
                chat.choices[0].message.content,
                chat.choices[0].finish_reason,
                chat.usage.prompt_tokens,
                text.choices[0].text,
            )
        finally:
            engine.terminate()
    return results


def test_an_engine_answers_as_from_the_folder(answers: dict[str, Any]) -> None:
    assert answers["file"] == answers["folder"]
    assert answers["file"][0]


def test_parts_are_one_model(tmp_path: Path) -> None:
    source = make_checkpoint("tiny-qwen2", tmp_path / "source")
    whole = write_gguf(source, tmp_path / "whole.gguf", in_turn(EXACT))
    parts = tmp_path / "parts"
    parts.mkdir()
    write_gguf(source, parts / "x.gguf", in_turn(EXACT), split_max_tensors=12)
    names = sorted(path.name for path in parts.iterdir())
    assert names == [f"x-0000{i}-of-00004.gguf" for i in range(1, 5)]
    assert np.array_equal(logits(parts), logits(whole))  # a folder with one model
    assert np.array_equal(logits(parts / names[0]), logits(whole))
    (parts / names[2]).rename(parts / "away")
    damaged(parts, str(parts / names[2]), "is missing, it is part 3 of 4")
    (parts / "away").rename(parts / names[2])
    (parts / names[2]).write_bytes((parts / names[1]).read_bytes())
    damaged(parts, "split.no", "are not those of part 3 of 4")


@pytest.mark.parametrize("small_first_shard", [False, True])
def test_what_a_later_part_has_counts(tmp_path: Path, small_first_shard: bool) -> None:
    """As the factors of wavelengths do, which are in the last one here."""
    source = make_checkpoint("tiny-llama", tmp_path / "source")
    whole = write_gguf(source, tmp_path / "whole.gguf", in_turn(EXACT))
    parts = tmp_path / "parts"
    parts.mkdir()
    write_gguf(source, parts / "x.gguf", in_turn(EXACT), split_max_tensors=12,
               small_first_shard=small_first_shard)  # fmt: skip
    assert np.array_equal(logits(parts), logits(whole))
