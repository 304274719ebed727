"""What the KV cache stores (`kv_cache_dtype`): answers, error of 8 bits, the same bits in every way
to compute them, and how many pages fit."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from mlc_native import EngineConfig, MLCEngine
from mlc_native.errors import InvalidConfig
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve.sync_engine import SyncMLCEngine

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
from common import DEMO  # noqa: E402
from fidelity import greedy_answers, question_prompts  # noqa: E402
from make_random_checkpoint import make_checkpoint  # noqa: E402
from paged_driver import PagedModel, PagedSequence, forward_in_chunks, random_tokens  # noqa: E402

KV_CACHE_DTYPES = ["float32", "float16", "bfloat16", "int8"]


def make_engine(kv_cache_dtype: str, **settings: object) -> SyncMLCEngine:
    config = EngineConfig(
        dtype="float32",
        kv_cache_dtype=kv_cache_dtype,  # type: ignore[arg-type]
        num_threads=2,
        verbose=False,
        **{"max_total_sequence_length": 4096, **settings},  # type: ignore[arg-type]
    )
    return SyncMLCEngine(str(DEMO), device="cpu", engine_config=config)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("kv_cache_dtype", KV_CACHE_DTYPES)
def test_demo_models_answers_are_those_of_auto(kv_cache_dtype: str) -> None:
    prompts = question_prompts()
    assert greedy_answers(make_engine(kv_cache_dtype), prompts) == greedy_answers(
        make_engine("auto"), prompts
    )


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(
    ("kv_cache_dtype", "error"),
    [("float32", 0.0), ("float16", 0.002), ("bfloat16", 0.01), ("int8", 0.02)],
)
def test_logits_are_those_of_auto(kv_cache_dtype: str, error: float) -> None:
    exact = PagedModel(DEMO, dtype="float32")
    stored = PagedModel(DEMO, dtype="float32", kv_cache_dtype=kv_cache_dtype)
    tokens = max(question_prompts(), key=len)
    expected = exact.forward([(PagedSequence(tokens), len(tokens))], "all")
    logits = stored.forward([(PagedSequence(tokens), len(tokens))], "all")
    difference = np.linalg.norm(logits - expected, axis=-1) / np.linalg.norm(expected, axis=-1)
    assert difference.mean() <= error
    assert error == 0 or difference.mean() > error / 100  # that type was used


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(
    ("shape", "bound"), [("tiny-qwen2", 0.03), ("tiny-qwen3", 0.035), ("tiny-gemma3_text", 0.06)]
)
def test_large_channels_of_keys_do_not_spoil_the_others(
    shape: str, bound: float, tmp_path: Path
) -> None:
    """As in published models, where biases or norms make some channels of keys far larger. Were the
    channels not evened out, the errors would be 0.049, 0.057 and 0.124."""
    path = make_checkpoint(shape, tmp_path / "model", seed=3)
    tensors = load_file(path / "model.safetensors")
    large = [name for name in tensors if name.endswith(("k_proj.bias", "k_norm.weight"))]
    for name in large:
        tensors[name].flatten()[5::16] = 16.0
    assert large
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    tokens = random_tokens(60, PagedModel(path).vocab_size, seed=4)
    expected, logits = (
        PagedModel(path, dtype="float32", kv_cache_dtype=stored).forward(
            [(PagedSequence(tokens), len(tokens))], "all"
        )
        for stored in ("float32", "int8")
    )
    difference = np.linalg.norm(logits - expected, axis=-1) / np.linalg.norm(expected, axis=-1)
    assert difference.mean() < bound


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("kv_cache_dtype", KV_CACHE_DTYPES)
def test_bitwise_alone_batched_chunked_threaded(kv_cache_dtype: str) -> None:
    alone = PagedModel(DEMO, num_threads=1, kv_cache_dtype=kv_cache_dtype)
    together = PagedModel(DEMO, num_threads=2, kv_cache_dtype=kv_cache_dtype)
    prompts = [random_tokens(n, alone.vocab_size, seed=n) for n in (150, 1, 16, 17)]
    expected = [alone.forward([(PagedSequence(p), len(p))], "all") for p in prompts]
    for i, logits in enumerate(forward_in_chunks(together, prompts)):
        assert np.array_equal(logits, expected[i]), f"sequence {i}"


@pytest.mark.parametrize("kv_cache_dtype", ["bfloat16", "int8"])
def test_preemption_and_prefix_hits_do_not_change_a_token(kv_cache_dtype: str) -> None:
    prompts = [random_tokens(n, 256, seed=n) for n in (100, 33, 64, 90)]
    config = GenerationConfig(
        temperature=0.0, max_tokens=60, debug_config=DebugConfig(ignore_eos=True)
    )
    answers: dict[str, list[int]] = {}

    def run(engine: SyncMLCEngine, named: dict[str, list[int]]) -> None:
        def collect(outputs: list) -> None:
            for output in outputs:
                request_id, deltas = output.unpack()
                for delta in deltas:
                    answers.setdefault(request_id, []).extend(delta.delta_token_ids)

        engine.set_request_stream_callback(collect)
        for name, prompt in named.items():
            engine.add_request(engine.create_request(name, list(prompt), config))
        while not engine.empty():
            engine.step()

    for i, prompt in enumerate(prompts):
        run(make_engine(kv_cache_dtype), {f"alone {i}": prompt})
    few_pages = make_engine(
        kv_cache_dtype, max_total_sequence_length=320, max_single_sequence_length=256
    )
    run(few_pages, {f"preempted {i}": prompt for i, prompt in enumerate(prompts)})
    assert few_pages.metrics()["num_preemptions"] > 0
    warm = make_engine(kv_cache_dtype)
    run(warm, {f"first {i}": prompt for i, prompt in enumerate(prompts)})
    run(warm, {f"hit {i}": prompt for i, prompt in enumerate(prompts)})
    assert warm.metrics()["prefix_cache_hits"] >= len(prompts)
    for i in range(len(prompts)):
        for way in ("preempted", "first", "hit"):
            assert answers[f"{way} {i}"] == answers[f"alone {i}"]


def test_memory_per_token_follows() -> None:
    def bytes_per_token(kv_cache_dtype: str) -> int:
        return int(
            PagedModel(DEMO, kv_cache_dtype=kv_cache_dtype).model.metadata["kv_bytes_per_token"]
        )

    assert bytes_per_token("float32") == 2 * bytes_per_token("bfloat16")
    assert bytes_per_token("float16") == bytes_per_token("bfloat16") == bytes_per_token("auto")
    assert bytes_per_token("bfloat16") > 1.5 * bytes_per_token("int8")


def test_a_wrong_type_is_refused_by_name_and_range() -> None:
    config = EngineConfig(kv_cache_dtype="int4")  # type: ignore[arg-type]
    with pytest.raises(InvalidConfig, match=r'kv_cache_dtype.*"float8", got "int4"'):
        MLCEngine("demo", engine_config=config)
