"""Adapters in the whole engine: the greedy tokens of transformers with the update merged into its
weights, and for each request of a mixed batch what it gets alone, bit by bit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from adapter_driver import (
    AdapterAnswer,
    AdapterDriver,
    AdapterWork,
    check_greedy,
    merged_reference,
    prompts_of,
)
from adapter_folders import (
    ATTENTION,
    MLP,
    edit_config,
    linear_modules,
    read_tensors,
    write_adapter,
    write_tensors,
)
from families import vocab_size
from gguf import GGMLQuantizationType as Type
from gguf_files import write_gguf
from quantized_checkpoints import FORMATS, quantize_checkpoint

from mlc_native import MLCEngine
from mlc_native.errors import InvalidConfig, LoadError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

LENGTHS = (150, 17, 33)
LINEAR_ATTENTION = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")
# name -> shape, target modules, settings of the adapter.
CASES: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "llama": ("tiny-llama", (*ATTENTION, *MLP), {}),
    "llama-rslora": ("tiny-llama", ("q_proj", "v_proj"), {"use_rslora": True, "r": 16}),
    "llama-rank-1": ("tiny-llama", ("k_proj", "down_proj"), {"r": 1, "lora_alpha": 0.5}),
    "llama-rank-64": ("tiny-llama", ("o_proj", "up_proj"), {"r": 64, "lora_alpha": 16}),
    "llama-patterns": (
        "tiny-llama",
        (*ATTENTION, *MLP),
        {
            "rank_pattern": {"down_proj": 3, "layers.1.self_attn.q_proj": 12},
            "alpha_pattern": {"v_proj": 40, "layers.0.mlp.gate_proj": 5},
        },
    ),
    "llama-one-layer": ("tiny-llama", (*ATTENTION, *MLP), {"layers_to_transform": [1]}),
    "mistral": ("tiny-mistral", (*ATTENTION, *MLP), {}),
    "qwen2": ("tiny-qwen2", (*ATTENTION, *MLP), {}),
    "qwen3": ("tiny-qwen3", (*ATTENTION, *MLP), {}),
    "gemma3": ("tiny-gemma3_text", (*ATTENTION, *MLP), {}),
    "granite": ("tiny-granite", (*ATTENTION, *MLP), {}),
    "phi3": ("tiny-phi3", ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"), {}),
    "qwen3_5": ("tiny-qwen3_5_text", (*LINEAR_ATTENTION, *ATTENTION, *MLP), {}),
    "qwen3_moe": ("tiny-qwen3_moe", ATTENTION, {}),
}


@pytest.fixture(autouse=True)
def single_threaded_reference() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("case", CASES)
def test_tokens_of_transformers(case: str, tmp_path: Path) -> None:
    like, targets, settings = CASES[case]
    path = make_checkpoint(like, tmp_path / "model")
    folder = write_adapter(tmp_path / "adapter", path, targets=targets, **settings)
    prompts = prompts_of(LENGTHS, vocab_size(like))
    driver = AdapterDriver(path, {"a": folder}, prefill_chunk_size=64)
    plain = driver.run([AdapterWork(prompt) for prompt in prompts])
    changed = driver.run([AdapterWork(prompt, "a") for prompt in prompts])
    assert all(a.tokens != b.tokens for a, b in zip(plain, changed, strict=True))
    for adapter, answers in ((None, plain), (folder, changed)):
        model = merged_reference(path, adapter)
        for prompt, answer in zip(prompts, answers, strict=True):
            check_greedy(model, prompt, answer, 2e-3)


@pytest.mark.parametrize("case", ["llama", "phi3", "qwen3_5"])
def test_a_gguf_file_of_the_model_takes_the_adapter(case: str, tmp_path: Path) -> None:
    """Its rows are in another order, as heads of llama.cpp's rope and of linear attention are."""
    like, targets, settings = CASES[case]
    path = make_checkpoint(like, tmp_path / "model")
    folder = write_adapter(tmp_path / "adapter", path, targets=targets, **settings)
    file = write_gguf(path, tmp_path / "model.gguf", lambda _: Type.F32)
    works = [AdapterWork(prompt, "a") for prompt in prompts_of((50, 17), vocab_size(like))]
    expected = AdapterDriver(path, {"a": folder}).tokens(works)
    assert AdapterDriver(file, {"a": folder}).tokens(works) == expected


@pytest.mark.parametrize("form", ["gptq-4", "awq", "fp8-block"])
def test_a_quantized_folder_of_the_model_takes_the_adapter(form: str, tmp_path: Path) -> None:
    source = make_checkpoint("tiny-llama", tmp_path / "source")
    quantized, floats = tmp_path / "quantized", tmp_path / "floats"
    quantize_checkpoint(source, quantized, floats, FORMATS[form])
    folder = write_adapter(tmp_path / "adapter", source)
    works = [AdapterWork(prompt, "a") for prompt in prompts_of((50, 17), vocab_size("tiny-llama"))]
    expected = AdapterDriver(floats, {"a": folder}).tokens(works)
    assert AdapterDriver(quantized, {"a": folder}, quantization="off").tokens(works) == expected


def test_the_reference_merges_what_was_written(tmp_path: Path) -> None:
    """The update is added to the weights that the adapter names, and to no others."""
    path = make_checkpoint("tiny-llama", tmp_path / "model")
    folder = write_adapter(tmp_path / "adapter", path, targets=("q_proj",))
    plain, merged = merged_reference(path, None), merged_reference(path, folder)
    changed = {
        name.removesuffix(".weight")
        for (name, before), after in zip(plain.named_parameters(), merged.parameters(), strict=True)
        if not torch.equal(before, after)
    }
    assert changed == set(linear_modules(path, ("q_proj",)))


def test_log_probabilities_of_a_prompt(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-llama", tmp_path / "model")
    folder = write_adapter(tmp_path / "adapter", path)
    [prompt] = prompts_of((90,), vocab_size("tiny-llama"))
    settings: dict[str, Any] = {"dtype": "float32", "prefill_chunk_size": 32, "verbose": False}
    with MLCEngine(str(path), "cpu", adapters={"a": folder}, **settings) as engine:
        [result] = engine.generate([prompt], adapter="a", max_tokens=1, prompt_logprobs=0)
    assert result.prompt_logprobs is not None
    with torch.inference_mode():
        logits = merged_reference(path, folder)(torch.tensor([prompt])).logits[0]
    expected = torch.log_softmax(logits.double(), -1)
    for i, scored in enumerate(result.prompt_logprobs[1:]):
        assert scored is not None
        found = scored[prompt[i + 1]].logprob
        assert found == pytest.approx(expected[i, prompt[i + 1]].item(), abs=2e-3)


# --------------------------------------------------------------------------------- several at once


class Mix:
    """A model, two adapters of different ranks and targets, and what each request gets alone."""

    def __init__(self, like: str, folder: Path, **settings: Any) -> None:
        self.path = make_checkpoint(like, folder / "model")
        self.adapters = {
            "a": write_adapter(folder / "a", self.path, seed=1),
            "b": write_adapter(
                folder / "b", self.path, seed=2, targets=ATTENTION, r=24, use_rslora=True
            ),
        }
        self.settings = settings
        prompts = prompts_of((100, 17, 64, 1, 33, 130), vocab_size(like))
        chosen = ("a", "b", "", "b", "a", "")
        self.works = [AdapterWork(p, name) for p, name in zip(prompts, chosen, strict=True)]
        driver = self.driver()
        self.alone = [driver.run([work])[0] for work in self.works]

    def driver(self, **settings: Any) -> AdapterDriver:
        return AdapterDriver(self.path, self.adapters, **{**self.settings, **settings})


@pytest.fixture(scope="module")
def mix(tmp_path_factory: pytest.TempPathFactory) -> Mix:
    return Mix("tiny-llama", tmp_path_factory.mktemp("mix"))


WAYS: dict[str, dict[str, Any]] = {
    "1 thread": {"num_threads": 1},
    "3 threads": {"num_threads": 3},
    "chunks of 16": {"prefill_chunk_size": 16},
    "chunks of 512": {"prefill_chunk_size": 512},
    "chunked prefill": {"prefill_chunk_size": 64, "prefill_mode": "chunked"},
    "3 sequences at a time": {"max_num_sequence": 3},
    "few pages": {"max_total_sequence_length": 288, "max_single_sequence_length": 160},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_mixed_batch_gives_each_request_what_it_gets_alone(mix: Mix, way: str) -> None:
    driver = mix.driver(**WAYS[way])
    assert driver.run(mix.works) == mix.alone
    assert (driver.metric("num_preemptions") > 0) == (way == "few pages")


def test_adapters_change_what_they_should(mix: Mix) -> None:
    prompt = mix.works[0].prompt
    a, b, plain = mix.driver().tokens([AdapterWork(prompt, name) for name in ("a", "b", "")])
    assert a != b
    assert plain not in (a, b)
    assert plain == AdapterDriver(mix.path, {}).tokens([AdapterWork(prompt)])[0]


def test_linear_attention_in_a_mixed_batch(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-qwen3_5_text", tmp_path / "model")
    targets = (*LINEAR_ATTENTION, *ATTENTION, *MLP)
    folder = write_adapter(tmp_path / "a", path, targets=targets)
    prompts = prompts_of((100, 17, 64, 33), vocab_size("tiny-qwen3_5_text"))
    works = [AdapterWork(p, "a" if i % 2 else "") for i, p in enumerate(prompts)]
    driver = AdapterDriver(path, {"a": folder})
    alone = [driver.run([work])[0] for work in works]
    for threads in (1, 3):
        mixed = AdapterDriver(path, {"a": folder}, num_threads=threads, prefill_chunk_size=32)
        assert mixed.run(works) == alone


@pytest.mark.parametrize("n", [3])
def test_several_answers(mix: Mix, n: int) -> None:
    answers = mix.driver().answers(mix.works, n)
    assert [[each.tokens for each in group] for group in answers] == [
        [answer.tokens] * n for answer in mix.alone
    ]


@pytest.mark.parametrize("mode", ["ngram", "suffix"])
def test_guesses_do_not_change_the_tokens(mix: Mix, mode: str) -> None:
    driver = mix.driver(speculative_mode=mode)
    works = [AdapterWork(work.prompt * 2, work.adapter) for work in mix.works]
    assert driver.tokens(works) == mix.driver().tokens(works)


@pytest.mark.parametrize("mode", ["small_draft"])
def test_a_draft_model_does_not_change_the_tokens(mix: Mix, mode: str) -> None:
    """The draft is the model itself without an adapter: its guesses are right for the base only."""
    draft = {"speculative_mode": mode, "additional_models": [str(mix.path)]}
    driver = mix.driver(**draft, spec_draft_length=3)
    assert driver.tokens(mix.works) == [answer.tokens for answer in mix.alone]
    spec = json.loads(driver.engine.json_metrics())["spec_decode"]
    assert 0 < spec["num_accepted_tokens"] < spec["num_draft_tokens"]


@pytest.mark.parametrize("quantization", ["q8", "q6", "q4"])
def test_a_quantized_base(tmp_path: Path, quantization: str) -> None:
    quantized = Mix("tiny-llama", tmp_path, quantization=quantization)
    assert quantized.driver(num_threads=1).run(quantized.works) == quantized.alone
    prompt = quantized.works[0].prompt
    a, plain = quantized.driver().tokens([AdapterWork(prompt, name) for name in ("a", "")])
    assert a != plain


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_base_of_half_precision(tmp_path: Path, dtype: str) -> None:
    half = Mix("tiny-llama", tmp_path, dtype=dtype)
    assert half.driver(num_threads=3, prefill_chunk_size=32).run(half.works) == half.alone


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_tensors_of_half_precision(tmp_path: Path, dtype: torch.dtype) -> None:
    """The same values in two types give the same bits."""
    from safetensors.torch import save_file

    path = make_checkpoint("tiny-llama", tmp_path / "model")
    folder = write_adapter(tmp_path / "a", path)
    halves = {name: torch.from_numpy(a).to(dtype) for name, a in read_tensors(folder).items()}
    write_tensors(folder, {name: half.float().numpy() for name, half in halves.items()})
    other = write_adapter(tmp_path / "b", path)
    save_file(halves, other / "adapter_model.safetensors")
    work = prompts_of((40,), vocab_size("tiny-llama"))[0]
    driver = AdapterDriver(path, {"a": folder, "b": other})
    first, second = driver.run([AdapterWork(work, "a"), AdapterWork(work, "b")])
    assert first == second


def test_an_adapter_before_its_training_changes_nothing(tmp_path: Path) -> None:
    """PEFT begins with B of zeros."""
    path = make_checkpoint("tiny-llama", tmp_path / "model")
    folder = write_adapter(tmp_path / "a", path)
    tensors = read_tensors(folder)
    write_tensors(folder, {n: np.zeros_like(t) if "lora_B" in n else t for n, t in tensors.items()})
    prompt = prompts_of((40,), vocab_size("tiny-llama"))[0]
    driver = AdapterDriver(path, {"a": folder})
    plain, changed = driver.run([AdapterWork(prompt), AdapterWork(prompt, "a")])
    assert plain == changed


def test_a_negative_alpha_subtracts(tmp_path: Path) -> None:
    path = make_checkpoint("tiny-llama", tmp_path / "model")
    folder = write_adapter(tmp_path / "a", path, lora_alpha=-16)
    prompt = prompts_of((40,), vocab_size("tiny-llama"))[0]
    answer = AdapterDriver(path, {"a": folder}).run([AdapterWork(prompt, "a")])[0]
    check_greedy(merged_reference(path, folder), prompt, answer, 2e-3)
    edit_config(folder, lora_alpha=16)
    assert AdapterDriver(path, {"a": folder}).tokens([AdapterWork(prompt, "a")]) != [answer.tokens]


# --------------------------------------------------------------- what is supported, or else refused


LATENT = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")


@pytest.mark.parametrize(
    ("like", "target"),
    [
        *(("tiny-deepseek_v3", target) for target in LATENT),
        *(("tiny-qwen3_moe", target) for target in MLP),
        ("tiny-llama", "lm_head"),
        ("tiny-llama", "embed_tokens"),
    ],
)
def test_every_module_is_supported_or_refused_by_name(
    like: str, target: str, tmp_path: Path
) -> None:
    path = make_checkpoint(like, tmp_path / "model")
    folder = write_adapter(tmp_path / "adapter", path, targets=(target,))
    driver = AdapterDriver(path, {})
    prompt = prompts_of((60,), vocab_size(like))[0]
    refusal = None
    try:
        driver.engine.load_adapter("a", str(folder))
    except (LoadError, InvalidConfig) as error:
        refusal = str(error)
    if refusal is not None:
        assert target in refusal
        assert driver.engine.adapters() == []
        return
    answer: AdapterAnswer = driver.run([AdapterWork(prompt, "a")])[0]
    check_greedy(merged_reference(path, folder), prompt, answer, 2e-3)
