"""Mixtures of experts in quantized folders on CUDA, through the emulator."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from fake_model import find_test_library
from paged_driver import random_tokens
from quantized_checkpoints import FORMATS, WEIGHTS, load_file, quantize_checkpoint, write_folder

from mlc_native import EngineConfig, GenerationConfig, SyncMLCEngine
from mlc_native._core import LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

PROMPT = random_tokens(20, 512, seed=3)
EXPERT = "model.layers.2.mlp.experts.1."


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with 4 bits, and one whose layer 2 has an expert in floats."""
    folder = tmp_path_factory.mktemp("experts")
    source = make_checkpoint(
        "tiny-qwen3_moe", folder / "source", overrides={"moe_intermediate_size": 64}
    )
    quantized, floats, mixed = folder / "quantized", folder / "floats", folder / "mixed"
    quantize_checkpoint(source, quantized, floats, FORMATS["gptq-4-sym"])
    plain = {k: v for k, v in load_file(floats / WEIGHTS).items() if k.startswith(EXPERT)}
    rest = {k: v for k, v in load_file(quantized / WEIGHTS).items() if not k.startswith(EXPERT)}
    write_folder(mixed, json.loads((quantized / "config.json").read_text()), rest | plain)
    assert len(plain) == 3
    return quantized, mixed


def next_logprob(path: Path, quantization: str | None = None) -> tuple[float, str]:
    """Of the greedy token after the prompt; and what the engine says of itself."""
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    config = EngineConfig(dtype="float16", quantization=quantization, max_num_sequence=2)
    engine = SyncMLCEngine(str(path), "cuda:0", model_lib=library, engine_config=config)
    request = GenerationConfig(max_tokens=1, temperature=0, logprobs=True)
    answers = engine.generate([PROMPT], request)[1]
    about = repr(engine)
    engine.unload()
    return json.loads(answers[0][0][0])["logprob"], about


def test_experts_stay_in_4_bits(folders: tuple[Path, Path]) -> None:
    logprob, about = next_logprob(folders[0])
    widened, about_widened = next_logprob(folders[0], "off")
    assert "parameters in q4 with float16" in about
    assert "parameters in float16" in about_widened
    assert logprob == pytest.approx(widened, abs=0.02)


def test_experts_of_several_formats_are_refused(folders: tuple[Path, Path]) -> None:
    with pytest.raises(LoadError, match="the experts of a layer are stored in several formats"):
        next_logprob(folders[1])
    next_logprob(folders[1], "off")
