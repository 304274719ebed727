"""Tests the choice of the device, with the driver of tests/cpp/fake_cuda instead of NVIDIA's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_model import find_test_library

from mlc_native import EngineConfig, SyncMLCEngine
from mlc_native.errors import InvalidConfig
from mlc_native.protocol.generation_config import GenerationConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from make_random_checkpoint import make_checkpoint

ROOT = Path(__file__).resolve().parents[2]
MakeModel = Callable[..., str]
RunScript = Callable[..., str]

ANSWER = """
import sys
from mlc_native import MLCEngine, _core
print(_core.available_devices())
with MLCEngine(sys.argv[1], *sys.argv[2:]) as engine:
    print(engine.device, engine.completions.create(prompt="x").choices[0].text)
"""


@pytest.fixture(scope="module")
def driver_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for LD_LIBRARY_PATH with a libcuda.so.1."""
    folder = tmp_path_factory.mktemp("driver")
    source = ROOT / "tests/cpp/fake_cuda/libcuda.cc"
    name = "libcuda.so.1"
    command = ["c++", "-std=c++20", "-shared", "-fPIC", f"-Wl,-soname,{name}", str(source)]
    subprocess.run([*command, "-o", str(folder / name)], check=True)
    return folder


@pytest.fixture
def on_gpus(driver_folder: Path) -> RunScript:
    """on_gpus("90,75", script, *arguments, VARIABLE=value): its output on such a machine."""

    def run(gpus: str, script: str, *arguments: str, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "LD_LIBRARY_PATH": str(driver_folder),
                "FAKE_CUDA_GPUS": gpus,
                "CUDACXX": "/no/nvcc",
                "PATH": "",  # without nvcc
                **environment,
            },
        )
        return done.stdout

    return run


def test_the_cuda_library_makes_the_model(
    on_gpus: RunScript, make_model: MakeModel, fake_lib: str
) -> None:
    model = make_model(answer="Hello!")
    for device, name in {"auto": "cuda:0", "cuda": "cuda:0", "cuda:1": "cuda:1"}.items():
        out = on_gpus("90,80", ANSWER, model, device, MLC_NATIVE_CUDA_LIB=fake_lib)
        assert out == f"['cpu', 'cuda:0', 'cuda:1']\n{name} Hello!\n"


def test_errors_of_the_constructor(
    on_gpus: RunScript, make_model: MakeModel, fake_lib: str
) -> None:
    model = make_model()
    out = on_gpus("90", ANSWER, model, "cuda:1", MLC_NATIVE_CUDA_LIB=fake_lib)
    assert 'InvalidConfig: "device" cuda:1 is not available: there is 1 GPU, cuda:0' in out
    out = on_gpus("", ANSWER, model, "cuda", MLC_NATIVE_CUDA_LIB=fake_lib)
    assert 'InvalidConfig: "device" cuda:0 is not available: the NVIDIA driver finds no GPU' in out
    out = on_gpus("90", ANSWER, model, "cuda", MLC_NATIVE_CUDA_LIB="/no/such/library.so")
    assert "LoadError" in out
    assert "/no/such/library.so" in out


def test_a_model_lib_knows_its_devices(make_model: MakeModel, fake_lib: str) -> None:
    model = make_model(answer="Hello!")
    for device, name in {
        "cuda": "cuda:0",
        "cuda:3": "cuda:3",
        "cpu": "cpu",
        "auto": "auto",
    }.items():
        engine = SyncMLCEngine(model, device, model_lib=fake_lib)
        assert engine.device == name
        assert engine.generate("x", GenerationConfig())[0] == [["Hello!"]]
    with pytest.raises(InvalidConfig, match='must be "auto", "cpu", "cuda" or "cuda:i", got "gpu"'):
        SyncMLCEngine(model, "gpu", model_lib=fake_lib)


def test_float8_is_for_gpus() -> None:
    config = EngineConfig(kv_cache_dtype="float8")
    with pytest.raises(InvalidConfig, match=r'kv_cache_dtype.* or "int8" on the CPU, got "float8"'):
        SyncMLCEngine("demo", "cpu", engine_config=config)


# What they share with those of every run is tested there, and what they have of their own in C++.
OTHER_FAMILIES = (
    *("tiny-qwen3_moe", "tiny-afmoe", "tiny-flint", "tiny-kolibri1", "tiny-laguna"),
    "tiny-cohere2_moe",
)
NIGHTLY = [pytest.mark.slow, pytest.mark.nightly]


def test_memory_is_that_of_the_device(make_model: MakeModel, fake_lib: str) -> None:
    model = make_model(free_memory_bytes=4 << 20, kv_bytes_per_token=1024)
    with pytest.raises(InvalidConfig, match=r"4\.0 MB free GPU memory"):
        SyncMLCEngine(
            model,
            "cuda",
            model_lib=fake_lib,
            engine_config=EngineConfig(max_total_sequence_length=1 << 20),
        )
    config = EngineConfig(gpu_memory_utilization=0.5)
    engine = SyncMLCEngine(model, "cuda", model_lib=fake_lib, mode="server", engine_config=config)
    assert engine.engine_config.max_total_sequence_length == 2048


@pytest.mark.parametrize(
    "like",
    [
        "tiny-gpt_oss",
        "tiny-apertus",
        "tiny-gemma3n_text",
        "tiny-llama4_text",
        "tiny-mimo_v2_flash",
        "tiny-bitnet",
        *(pytest.param(like, marks=NIGHTLY) for like in OTHER_FAMILIES),
    ],
)
def test_gpus_answer_like_the_cpu(tmp_path: Path, like: str) -> None:
    """Families with experts, attention sinks, xIELU, residual streams and chunks of the context, in
    float32: greedy answers of some prompts together, and one of them alone."""
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    path = str(make_checkpoint(like, tmp_path / like))
    config = GenerationConfig(max_tokens=5, temperature=0, debug_config={"ignore_eos": True})
    prompts = [[5, 9, 200, 31, 7], [11] * 19, [400, 3], list(range(60))]
    answers = []
    for device in ({"device": "cpu"}, {"device": "cuda:0", "model_lib": library}):
        engine = SyncMLCEngine(path, **device, engine_config=EngineConfig(dtype="float32"))
        texts = engine.generate(prompts, config)[0]
        assert engine.generate(prompts[:1], config)[0] == texts[:1]
        answers.append(texts)
        engine.unload()
    assert answers[0] == answers[1]


def test_engines_share_the_memory_of_a_gpu() -> None:
    """On the emulator's second device of 256 MiB; other tests may have engines on the first."""
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    # What each takes besides its share of the rest is little for few sequences.
    config = EngineConfig(gpu_memory_utilization=0.5, max_num_sequence=32)

    def start(device: str) -> SyncMLCEngine:
        return SyncMLCEngine(
            "demo-draft", device, model_lib=library, mode="server", engine_config=config
        )

    def capacity(engine: SyncMLCEngine) -> int:
        tokens = engine.engine_config.max_total_sequence_length
        assert tokens is not None
        return tokens

    engines = [start("cuda:1"), start("cuda:0"), start("cuda:1")]
    first, second = capacity(engines[0]), capacity(engines[2])
    assert 0.3 * first < second < 0.6 * first
    engines[2].unload()
    assert capacity(start("cuda:1")) == second
    engines[0].unload()
    assert capacity(start("cuda:1")) == first
