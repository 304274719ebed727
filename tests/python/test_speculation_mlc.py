"""What MLC-LLM's tests of speculation do (test_serve_engine_spec.py), and answers are compared."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from mlc_native import EngineConfig, GenerationConfig, SyncMLCEngine
from mlc_native.serve import RequestStreamOutput, TokenData
from mlc_native.support.model_source import demo_model_folder

NUM_REQUESTS = 10
MAX_TOKENS = 12


def engine_of(**settings: Any) -> SyncMLCEngine:
    config = EngineConfig(max_total_sequence_length=4096, num_threads=1, **settings)
    return SyncMLCEngine("demo", mode="server", engine_config=config)


@pytest.fixture(scope="module")
def off() -> Iterator[SyncMLCEngine]:
    engine = engine_of()
    yield engine
    engine.unload()


DRAFT_MODEL: dict[str, Any] = {
    "speculative_mode": "small_draft",
    "additional_models": ["demo-draft"],
}
EAGLE3: dict[str, Any] = {"speculative_mode": "eagle3", "additional_models": ["demo-eagle3"]}
EAGLE1: dict[str, Any] = {"speculative_mode": "eagle"}  # with the head of the fixture eagle1


@pytest.fixture(scope="module")
def eagle1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random EAGLE-1 head of the demo model, whose guesses are wrong."""
    config = json.loads((demo_model_folder() / "config.json").read_text())
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    shapes = {
        "fc": (hidden, 2 * hidden),
        "embed_tokens": (config["vocab_size"], hidden),
        "layers.0.self_attn.q_proj": (queries, hidden),
        "layers.0.self_attn.k_proj": (keys, hidden),
        "layers.0.self_attn.v_proj": (keys, hidden),
        "layers.0.self_attn.o_proj": (hidden, queries),
        "layers.0.mlp.gate_proj": (ffn, hidden),
        "layers.0.mlp.up_proj": (ffn, hidden),
        "layers.0.mlp.down_proj": (hidden, ffn),
    }
    rng = np.random.default_rng(7)
    tensors = {
        f"{name}.weight": rng.standard_normal(shape, np.float32) / np.sqrt(np.float32(shape[1]))
        for name, shape in shapes.items()
    }
    tensors["layers.0.post_attention_layernorm.weight"] = np.ones(hidden, np.float32)
    folder = tmp_path_factory.mktemp("eagle1")
    own = {"architectures": ["EagleLlamaForCausalLM"], "num_hidden_layers": 1}
    (folder / "config.json").write_text(json.dumps({**config, **own}))
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture(
    scope="module",
    params=[
        {**DRAFT_MODEL, "spec_draft_length": 0},
        {**DRAFT_MODEL, "spec_draft_length": 6},
        {"speculative_mode": "ngram", "spec_draft_length": 6},
        {"speculative_mode": "suffix", "spec_draft_length": 0},
        {**EAGLE3, "spec_draft_length": 0},
        {**EAGLE3, "spec_draft_length": 6},
        {**EAGLE1, "spec_draft_length": 0},
        {**EAGLE1, "spec_draft_length": 2},
        {"speculative_mode": "mtp", "additional_models": ["demo-mtp"], "spec_draft_length": 6},
    ],
    ids=[
        *("draft model-0", "draft model-6", "lookup-6", "suffix-0"),
        *("eagle3-0", "eagle3-6", "eagle-0", "eagle-2", "mtp-6"),
    ],
)
def on(request: pytest.FixtureRequest, eagle1: Path) -> Iterator[SyncMLCEngine]:
    settings = dict(request.param)
    if settings["speculative_mode"] == "eagle":
        settings["additional_models"] = [str(eagle1)]
    engine = engine_of(**settings)
    yield engine
    engine.unload()


def prompts_of(seed: int) -> list[list[int]]:
    """Prompts that begin with different tokens, so that none is in the prefix cache."""
    rng = random.Random(seed)
    pattern = [rng.randrange(100, 300) for _ in range(6)]
    return [[300 + 10 * seed + i, *pattern, *pattern[: 2 + i % 4]] for i in range(NUM_REQUESTS)]


def serve(
    engine: SyncMLCEngine, prompts: list[list[int]], generations: list[GenerationConfig]
) -> tuple[dict[str, list[list[int]]], dict[str, int]]:
    """The tokens of each request, and the step in which it ended; all are added at once."""
    answers: dict[str, list[list[int]]] = {}
    ended: dict[str, int] = {}
    step = 0

    def collect(outputs: list[RequestStreamOutput]) -> None:
        for output in outputs:
            request_id, deltas = output.unpack()
            sequences = answers.setdefault(request_id, [[] for _ in deltas])
            for sequence, delta in zip(sequences, deltas, strict=False):
                sequence.extend(delta.delta_token_ids)
            ended[request_id] = step

    engine.set_request_stream_callback(collect)
    for index, (prompt, generation) in enumerate(zip(prompts, generations, strict=True)):
        engine.add_request(engine.create_request(str(index), TokenData(prompt), generation))
    while not engine.empty():
        engine.step()
        step += 1
    return answers, ended


def config_of(max_tokens: int, **fields: Any) -> GenerationConfig:
    return GenerationConfig(max_tokens=max_tokens, **{"temperature": 0, "seed": 3, **fields})


def test_engine_basic(off: SyncMLCEngine, on: SyncMLCEngine) -> None:
    prompts = prompts_of(1)
    generations = [config_of(MAX_TOKENS)] * NUM_REQUESTS
    answers, ended = serve(on, prompts, generations)
    expected, ended_off = serve(off, prompts, generations)
    assert answers == expected
    assert all(ended[i] <= ended_off[i] for i in ended)
    assert max(ended.values()) <= NUM_REQUESTS + MAX_TOKENS - 1


def test_engine_continuous_batching_1(off: SyncMLCEngine, on: SyncMLCEngine) -> None:
    rng = random.Random(2)
    prompts = prompts_of(2)
    generations = [
        config_of(rng.randrange(1, 24), debug_config={"ignore_eos": True}) for _ in prompts
    ]
    answers, ended = serve(on, prompts, generations)
    assert answers == serve(off, prompts, generations)[0]
    for index, generation in enumerate(generations):
        assert generation.max_tokens is not None
        assert len(answers[str(index)][0]) == generation.max_tokens
        assert ended[str(index)] <= generation.max_tokens - 1


@pytest.mark.parametrize("fields", [{}, {"n": 3, "temperature": 0.9, "top_p": 0.9}])
def test_engine_generate(off: SyncMLCEngine, on: SyncMLCEngine, fields: dict[str, Any]) -> None:
    prompts = prompts_of(3)
    generations = [config_of(20, **fields)] * NUM_REQUESTS
    answers = serve(on, prompts, generations)[0]
    assert answers == serve(off, prompts, generations)[0]
    assert {len(sequences) for sequences in answers.values()} == {fields.get("n", 1)}


def test_engine_multi_round(off: SyncMLCEngine, on: SyncMLCEngine) -> None:
    prompts = prompts_of(4)
    generations = [config_of(MAX_TOKENS, debug_config={"ignore_eos": True})] * NUM_REQUESTS
    before = on.metrics()["prefill_tokens_sum"]
    answers = serve(on, prompts, generations)[0]
    first = on.metrics()["prefill_tokens_sum"]
    assert first - before == sum(map(len, prompts))
    second = [[*prompt, *answers[str(i)][0], 19] for i, prompt in enumerate(prompts)]
    assert serve(on, second, generations)[0] == serve(off, second, generations)[0]
    # The last token of an answer was never computed, and the token behind it is new.
    assert on.metrics()["prefill_tokens_sum"] - first == 2 * NUM_REQUESTS


def test_metrics(on: SyncMLCEngine) -> None:
    serve(on, prompts_of(5), [config_of(30, debug_config={"ignore_eos": True})] * NUM_REQUESTS)
    spec = on.metrics().metrics.get("spec_decode", {"draft_count": [], "accept_count": []})
    drafted, accepted = spec["draft_count"], spec["accept_count"]
    if on.engine_config.spec_draft_length > 0:  # otherwise it depends on times
        assert len(drafted) >= 2
        assert drafted[0] > 0
        assert accepted[1] > 0 or on.engine_config.speculative_mode == "eagle"
    assert len(drafted) == len(accepted)
    assert drafted == sorted(drafted, reverse=True)
    assert accepted == sorted(accepted, reverse=True)
    assert accepted[:1] == drafted[:1]
    assert all(b <= a for a, b in zip(drafted, accepted, strict=True))
