"""Newcomer tasks: settings of an engine, memory, types of weights."""

from __future__ import annotations

from pathlib import Path

import pytest

import mlc_native
from mlc_native import EngineConfig, MLCEngine


def test_dict_config() -> None:
    """The configuration may be a dict, an object or keywords."""
    with MLCEngine("demo", engine_config={"max_num_sequence": 3}) as engine:
        assert engine.engine_config.max_num_sequence == 3
    with MLCEngine("demo", engine_config=EngineConfig(max_num_sequence=3)) as engine:
        assert engine.engine_config.max_num_sequence == 3
    with MLCEngine("demo", max_num_sequence=3) as engine:
        assert engine.engine_config.max_num_sequence == 3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "fp32", "bf16", "auto"])
def test_dtype(dtype: str) -> None:
    """torch's and vLLM's names of types, and the short ones."""
    with MLCEngine("demo", dtype=dtype) as engine:
        assert engine.generate(["a"], max_tokens=1)[0].error is None


def test_torch_dtype() -> None:
    """transformers takes torch's own objects."""
    torch = pytest.importorskip("torch")
    with MLCEngine("demo", dtype=torch.float32) as engine:
        assert engine.generate(["a"], max_tokens=1)[0].error is None


def test_quantize_on_load() -> None:
    """Fewer bits for the weights."""
    with MLCEngine("demo", quantization="q8") as engine:
        answer = engine.chat.completions.create(
            messages=[{"role": "user", "content": "What is 2 + 3?"}], temperature=0
        )
        assert "5" in answer.choices[0].message.content


def test_wrong_quantization() -> None:
    """Methods of vLLM that are found in a checkpoint are no settings; the error has the values."""
    with pytest.raises(mlc_native.InvalidConfig, match="q8"):
        MLCEngine("demo", quantization="bitsandbytes")


def test_context_length() -> None:
    """A shorter context, which holds afterwards."""
    with MLCEngine("demo", max_single_sequence_length=64) as engine:
        assert engine.engine_config.max_single_sequence_length == 64
        with pytest.raises(mlc_native.InvalidRequest, match="64"):
            engine.completions.create(prompt="word " * 200)


def test_memory_settings() -> None:
    """The number of tokens in the KV cache is the size of its memory."""
    with MLCEngine("demo", max_total_sequence_length=2048, max_num_sequence=4) as engine:
        assert engine.engine_config.max_total_sequence_length == 2048
    with MLCEngine("demo", gpu_memory_utilization=0.5) as engine:
        assert engine.engine_config.max_total_sequence_length > 0


def test_threads() -> None:
    """The number of threads changes no answer."""
    texts = set()
    for threads in (1, 2):
        with MLCEngine("demo", num_threads=threads) as engine:
            texts.add(engine.generate(["Paris is"], max_tokens=8, temperature=0)[0].text)
    assert len(texts) == 1


def test_path_object(checkpoint: Path) -> None:
    """A folder as a Path."""
    with MLCEngine(checkpoint) as engine:
        assert engine.generate(["a"], max_tokens=2, ignore_eos=True)[0].usage.completion_tokens == 2


def test_two_engines() -> None:
    """Engines do not know of each other."""
    with MLCEngine("demo") as one, MLCEngine("demo", quantization="q8") as two:
        assert one.generate(["a"], max_tokens=1)[0].error is None
        assert two.generate(["a"], max_tokens=1)[0].error is None


def test_one_draft_model() -> None:
    """A single name where a list of them is expected."""
    with MLCEngine(
        "demo", speculative_mode="small_draft", additional_models="demo-draft"
    ) as engine:
        assert [Path(model).name for model in engine.engine_config.additional_models] == ["draft"]


def test_what_is_configured(engine: MLCEngine) -> None:
    """`repr` names the model, and the configuration has no placeholder left."""
    assert "demo" in repr(engine)
    config = engine.engine_config
    assert config.max_num_sequence > 0
    assert config.max_total_sequence_length > 0
    assert isinstance(mlc_native.__version__, str)
