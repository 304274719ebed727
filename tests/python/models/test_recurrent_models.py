"""Engines with linear attention, short convolutions or Mamba: where prompts start, and that
nothing changes an answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from mlc_native import MLCEngine

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
from make_random_checkpoint import make_checkpoint

SIZES: dict[str, Any] = {
    "max_num_sequence": 3,
    "max_total_sequence_length": 2048,
    "max_single_sequence_length": 1024,
    "prefill_chunk_size": 32,
    "num_threads": 1,
}
SYSTEM = "You are a patient teacher who never gives up. "
pytestmark = pytest.mark.emulated(slow=True)


MODELS = [
    "tiny-qwen3_5_text", "tiny-lfm2", "tiny-lfm2_moe", "tiny-granitemoehybrid_mamba",
    "tiny-granitemoehybrid_moe", "tiny-bamba", "tiny-nemotron_h", "tiny-nemotron_h_moe",
    "tiny-falcon_h1", "tiny-lfm3", "tiny-mamba2",
    "tiny-kimi_linear", "tiny-olmo_hybrid", "tiny-mamba", "tiny-falcon_mamba", "tiny-jamba",
]  # fmt: skip

# Multiples of 4.
SIZES_ON_CUDA: dict[str, Any] = {
    "tiny-granitemoehybrid_moe": {"mamba_d_state": 36},
    "tiny-bamba": {"mamba_n_heads": 48, "mamba_d_head": 4, "mamba_d_state": 12},
    "tiny-mamba": {"state_size": 8, "time_step_rank": 8},
    "tiny-falcon_mamba": {"time_step_rank": 8},
    "tiny-jamba": {"mamba_dt_rank": 8},
}


@pytest.fixture(scope="module", params=MODELS)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, is_cpu: bool
) -> str:
    """A checkpoint whose answers do not repeat themselves at once."""
    path = tmp_path_factory.mktemp("model") / "model"
    overrides = {} if is_cpu else SIZES_ON_CUDA.get(request.param, {})
    return str(make_checkpoint(request.param, path, overrides=overrides))


@pytest.fixture
def settings(device: dict[str, Any]) -> dict[str, Any]:
    return {**SIZES, **device}


def answer(engine: MLCEngine, prompt: str, **options: Any) -> tuple[str, int]:
    """The text of 10 greedy tokens, and how many tokens of the prompt were cached."""
    options = {"max_tokens": 10, "temperature": 0, "ignore_eos": True, **options}
    completion = engine.completions.create(prompt=prompt, **options)
    assert completion.usage is not None
    assert completion.usage.prompt_tokens_details is not None
    return completion.choices[0].text, completion.usage.prompt_tokens_details.cached_tokens


def test_a_chat_starts_from_its_last_turn(model: str, settings: dict[str, Any]) -> None:
    """Of 6 turns, each computes no more than what is new in it."""
    turns = []
    for mode in ("disable", "radix"):
        text, texts, hits = SYSTEM, [], 0
        with MLCEngine(model, prefix_cache_mode=mode, **settings) as engine:
            for turn in range(6):
                text += f"Question {turn}? "
                said, cached = answer(engine, text)
                texts.append(said)
                new = len(f"Question {turn}? ")
                if turn > 0 and mode == "radix":
                    assert len(text) - cached <= new + 10
                hits += cached > 0
                text += f"Reply {turn}. "
            engine._debug_call_func_on_all_worker("audit_pages")
        turns.append(texts)
        assert hits == (5 if mode == "radix" else 0)
    assert turns[0] == turns[1]


@pytest.mark.parametrize("quantization", ["q8", "q4"])
def test_cached_states_of_quantized_models(
    model: str, settings: dict[str, Any], quantization: str, is_cpu: bool
) -> None:
    settings = settings if is_cpu else settings | {"dtype": "bfloat16"}
    texts = []
    for mode in ("disable", "radix"):
        options = {"prefix_cache_mode": mode, "quantization": quantization, **settings}
        with MLCEngine(model, **options) as engine:
            said = [answer(engine, SYSTEM + "?" * more) for more in (1, 2, 2, 30)]
        texts.append([text for text, _ in said])
        assert (said[-1][1] > 0) == (mode == "radix")
    assert texts[0] == texts[1]


def test_a_shared_beginning_is_found_from_the_third_time_on(
    model: str, settings: dict[str, Any]
) -> None:
    with MLCEngine(model, **settings) as engine:
        cached = [answer(engine, SYSTEM + f"{name} asks.")[1] for name in ("Ann", "Bob", "Cem")]
    assert cached == [0, 0, len(SYSTEM)]


def test_answers_to_one_prompt_share_its_state(model: str, settings: dict[str, Any]) -> None:
    with MLCEngine(model, **settings) as engine:
        alone = [answer(engine, SYSTEM, seed=i, temperature=0.8)[0] for i in (1, 2)]
        many = engine.completions.create(
            prompt=SYSTEM, n=3, max_tokens=10, temperature=0, ignore_eos=True
        )
        assert len({choice.text for choice in many.choices}) == 1
        assert [answer(engine, SYSTEM, seed=i, temperature=0.8)[0] for i in (1, 2)] == alone
        engine._debug_call_func_on_all_worker("audit_pages")


def test_guesses_change_no_answer(model: str, settings: dict[str, Any]) -> None:
    prompts = [SYSTEM, "abcabcabcabcabc", "x" * 40]
    with MLCEngine(model, **settings) as engine:
        plain = [answer(engine, prompt, max_tokens=30)[0] for prompt in prompts]
    drafting = {"speculative_mode": "suffix", "spec_draft_length": 4, **settings}
    with MLCEngine(model, **drafting) as engine:
        for _ in range(2):  # what was answered before is guessed
            assert [answer(engine, prompt, max_tokens=30)[0] for prompt in prompts] == plain
        spec = engine.metrics().metrics["spec_decode"]
        engine._debug_call_func_on_all_worker("audit_pages")
    assert spec["num_accepted_tokens"] > 30


def test_forced_text_changes_no_answer(model: str, settings: dict[str, Any]) -> None:
    schema = {
        "type": "object",
        "properties": {"country": {"enum": ["Norway", "Nepal"]}, "ok": {"type": "boolean"}},
        "required": ["country", "ok"],
        "additionalProperties": False,
    }
    answer_format = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
    texts = []
    for grammar_mode in ("constraint", "jump_forward"):
        with MLCEngine(model, **settings) as engine:
            completion = engine.chat.completions.create(
                messages=[{"role": "user", "content": "Where?"}],
                response_format=answer_format,
                max_tokens=80,
                temperature=0,
                debug_config={"grammar_execution_mode": grammar_mode},
            )
            texts.append(completion.choices[0].message.content)
            engine._debug_call_func_on_all_worker("audit_pages")
    assert texts[0] == texts[1]
