"""Jump-forward decoding on the demo model with the real grammar library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from facades import ALL_FACADES

from mlc_native import EngineConfig, SyncMLCEngine
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.protocol.response_format import RequestResponseFormat

PROMPT = "<|bos|><|user|>Answer in JSON: who are you?<|end|><|assistant|>"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "first_name": {"type": "string", "maxLength": 10},
        "is_a_member": {"type": "boolean"},
        "favourite_colour": {"enum": ["red", "reddish", "größer als grün", "blue"]},
        "nested": {
            "type": "object",
            "properties": {"number_of_items": {"type": "integer", "minimum": 0, "maximum": 99}},
            "required": ["number_of_items"],
        },
    },
    "required": ["first_name", "is_a_member", "favourite_colour", "nested"],
}


def config(mode: str = "jump_forward", schema: Any = SCHEMA, **fields: Any) -> GenerationConfig:
    """A constrained request, greedy unless told otherwise."""
    schema_format = {"name": "answer", "schema": schema}
    return GenerationConfig(
        **{"temperature": 0, "max_tokens": 200, **fields},
        response_format=RequestResponseFormat.model_validate(
            {"type": "json_schema", "json_schema": schema_format}
        ),
        debug_config=DebugConfig(grammar_execution_mode=mode),
    )


class Run:
    """What came of one request of a SyncMLCEngine."""

    def __init__(self, n: int) -> None:
        self.texts = [""] * n
        self.token_ids: list[list[int]] = [[] for _ in range(n)]
        self.num_logprobs = [0] * n
        self.reasons = [""] * n
        self.num_prefixes = 0
        self.usage: dict[str, Any] = {}


@pytest.fixture(scope="module")
def engine(device: dict[str, Any], demo: str) -> Iterator[SyncMLCEngine]:
    # A GPU computes prompts of few and of many rows in other ways unless it is asked not to.
    config = EngineConfig(max_num_sequence=8, deterministic=True, verbose=False)
    made = SyncMLCEngine(demo, engine_config=config, **device)
    yield made
    made.unload()


def run(engine: SyncMLCEngine, configs: list[GenerationConfig]) -> list[Run]:
    """All at once."""
    runs = {f"r{i}": Run(each.n) for i, each in enumerate(configs)}

    def collect(outputs: list[Any]) -> None:
        for output in outputs:
            request_id, group = output.unpack()
            if output.is_final:
                usage = group[0].request_final_usage_json_str
                runs[request_id].usage = json.loads(usage)
                continue
            for i, delta in enumerate(group):
                answer = runs[request_id]
                answer.texts[i] += delta.extra_prefix_string + delta.delta_text
                answer.token_ids[i] += delta.delta_token_ids
                answer.num_logprobs[i] += len(delta.delta_logprob_json_strs or [])
                answer.reasons[i] = delta.finish_reason or answer.reasons[i]
                answer.num_prefixes += bool(delta.extra_prefix_string)

    engine.set_request_stream_callback(collect)
    for i, each in enumerate(configs):
        engine.add_request(engine.create_request(f"r{i}", PROMPT, each))
    while not engine.empty():
        engine.step()
    return list(runs.values())


def validate(text: str) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(text))


@pytest.mark.emulated(slow=True)
def test_answers_parse_and_take_fewer_forwards(engine: SyncMLCEngine) -> None:
    num_steps = {}
    for mode in ("constraint", "jump_forward"):
        before = engine.metrics()["num_steps"]
        (answer,) = run(engine, [config(mode)])
        num_steps[mode] = engine.metrics()["num_steps"] - before
        validate(answer.texts[0])
        assert answer.reasons == ["stop"]
        jumped = answer.usage["extra"]["jump_forward_tokens"]
        assert (jumped > 20) == (mode == "jump_forward")
    assert num_steps["jump_forward"] * 2 < num_steps["constraint"]


def test_sampled_answers_parse_and_replace_tokens(engine: SyncMLCEngine) -> None:
    configs = [config(temperature=1.5, seed=seed, n=1 + seed % 2) for seed in range(30)]
    answers = run(engine, configs)
    for answer in answers:
        for text, reason in zip(answer.texts, answer.reasons, strict=True):
            assert reason == "stop"
            validate(text)
    assert sum(answer.num_prefixes for answer in answers) > 0, "no token was replaced"


def test_answers_do_not_depend_on_the_batch(engine: SyncMLCEngine) -> None:
    configs = [config(temperature=1.2, seed=seed) for seed in range(8)]
    together = run(engine, configs)
    for each, answer in zip(configs, together, strict=True):
        (alone,) = run(engine, [each])
        assert alone.texts == answer.texts
        assert alone.token_ids == answer.token_ids


def test_answers_do_not_depend_on_the_prefix_cache(engine: SyncMLCEngine) -> None:
    configs = [config(temperature=1.2, seed=seed, n=1 + seed % 2) for seed in range(6)]
    engine.reset()
    cold = run(engine, configs)
    warm = run(engine, configs)
    assert all(answer.usage["extra"]["cached_tokens"] > 0 for answer in warm)
    for before, after in zip(cold, warm, strict=True):
        assert before.texts == after.texts
        assert before.token_ids == after.token_ids


def test_logprobs_are_one_per_token(engine: SyncMLCEngine) -> None:
    configs = [
        config(temperature=1.2, seed=seed, n=2, logprobs=True, top_logprobs=2) for seed in range(5)
    ]
    for answer in run(engine, configs):
        assert answer.num_logprobs == [len(ids) for ids in answer.token_ids]
        assert answer.num_prefixes == 0
        tokens = [engine.tokenizer.decode(ids) for ids in answer.token_ids]
        assert tokens == answer.texts
        # The end of sequence, where the model has sampled one, is counted and not delivered.
        num_tokens = answer.usage["completion_tokens"]
        assert 0 <= num_tokens - sum(answer.num_logprobs) <= 2
        assert answer.usage["extra"]["jump_forward_tokens"] > 0


def test_max_tokens_is_exact(engine: SyncMLCEngine) -> None:
    (whole,) = run(engine, [config()])
    for max_tokens in range(1, 60):
        (answer,) = run(engine, [config(max_tokens=max_tokens)])
        num_tokens = answer.usage["completion_tokens"]
        if answer.reasons == ["length"]:
            assert num_tokens == max_tokens
        else:
            assert answer.texts == whole.texts
            assert num_tokens <= max_tokens


def test_stop_strings_end_forced_text(engine: SyncMLCEngine) -> None:
    (whole,) = run(engine, [config()])
    text = whole.texts[0]
    for stop in ("_a_mem", '": ', "favourite_colour", "items"):
        (answer,) = run(engine, [config(stop_strs=[stop])])
        assert answer.texts == [text[: text.index(stop)]]
        assert answer.reasons == ["stop"]


@pytest.fixture(params=ALL_FACADES)
def facade(request: pytest.FixtureRequest, device: dict[str, Any], demo: str) -> Iterator[Any]:
    made = ALL_FACADES[request.param](demo, **device)
    yield made
    made.terminate()


@pytest.mark.emulated(slow=True)
def test_streams_are_exact_through_every_engine(facade: Any, engine: SyncMLCEngine) -> None:
    each = config(temperature=1.5, seed=4, n=3)
    (expected,) = run(engine, [each])
    answer = facade.generate(PROMPT, each)
    assert answer.texts == expected.texts
    assert answer.finish_reasons == ["stop"] * 3
    facade.audit()
