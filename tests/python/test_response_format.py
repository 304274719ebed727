"""Answers of the demo model keep to their ``response_format``, through every engine."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from facades import ALL_FACADES, OPENAI_FACADES

from mlc_native import AsyncMLCEngine, EngineConfig, MLCEngine, SyncMLCEngine
from mlc_native.errors import InvalidRequest
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.protocol.response_format import RequestResponseFormat

PROMPT = "<|bos|><|user|>Answer in JSON: who are you?<|end|><|assistant|>"
ASK = [{"role": "user", "content": "Answer in JSON: what is 2 + 3?"}]
MAX_TOKENS = 220

WORD = {"type": "string", "maxLength": 12}
SCHEMAS: dict[str, dict[str, Any]] = {
    "object": {
        "type": "object",
        "properties": {"name": WORD, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
        "required": ["name", "age"],
    },
    "optional": {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}, "c": WORD},
        "required": ["b"],
    },
    "array": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 5},
    "tuple": {
        "type": "array",
        "prefixItems": [{"type": "boolean"}, {"const": "x"}],
        "items": False,
        "minItems": 2,
    },
    "enum": {"enum": ["red", "green", 3, True, None, ["a"], {"b": 1}]},
    "const": {"const": {"kind": "fixed", "value": [1, 2.5, "z"]}},
    "integers": {
        "type": "array",
        "items": {"type": "integer", "minimum": -17, "maximum": 42},
        "minItems": 3,
        "maxItems": 6,
    },
    "exclusive": {"type": "integer", "exclusiveMinimum": 99, "exclusiveMaximum": 1001},
    "pattern": {
        "type": "object",
        "properties": {
            "code": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2}$"},
            "day": {"type": "string", "format": "date"},
        },
        "required": ["code", "day"],
    },
    "any_of": {"anyOf": [{"type": "boolean"}, {"type": "string", "enum": ["yes", "no"]}]},
    "refs": {
        "$defs": {
            "point": {
                "type": "object",
                "properties": {"x": {"$ref": "#/$defs/coordinate"}, "y": {"type": "boolean"}},
                "required": ["x", "y"],
            },
            "coordinate": {"type": "integer", "minimum": 0, "maximum": 9},
        },
        "type": "object",
        "properties": {
            "from": {"$ref": "#/$defs/point"},
            "to": {"type": "array", "items": {"$ref": "#/$defs/point"}, "maxItems": 2},
        },
        "required": ["from", "to"],
    },
    "tree": {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "leaf": {"type": "boolean"},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["leaf", "next"],
            }
        },
        "$ref": "#/$defs/node",
    },
    "unicode": {
        "type": "object",
        "properties": {"größe": {"enum": ["klein", "groß"]}, "市": {"enum": ["東京", "🙂"]}},
        "required": ["größe", "市"],
    },
    "lengths": {"type": "string", "minLength": 3, "maxLength": 8},
    "additional": {
        "type": "object",
        "properties": {"id": {"type": "boolean"}},
        "required": ["id"],
        "additionalProperties": False,
    },
}
# These may go on for as long as the model likes.
ENDLESS = {"tree"}


def json_schema(schema: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **fields}}


def config(response_format: dict[str, Any], **fields: Any) -> GenerationConfig:
    fields = {"temperature": 0, "max_tokens": MAX_TOKENS, **fields}
    return GenerationConfig(
        response_format=RequestResponseFormat.model_validate(response_format), **fields
    )


class Recorder:
    """Answers of a SyncMLCEngine with their finish reasons."""

    def __init__(self, model: str, **device: Any) -> None:
        config = EngineConfig(max_num_sequence=8)
        self.engine = SyncMLCEngine(model, engine_config=config, **device)

    def run(self, configs: list[GenerationConfig]) -> list[list[tuple[str, str]]]:
        """All at once; (text, finish reason) of each sequence."""
        answers = {f"r{i}": [("", "") for _ in range(each.n)] for i, each in enumerate(configs)}

        def collect(outputs: list[Any]) -> None:
            for output in outputs:
                request_id, group = output.unpack()
                if output.is_final:
                    continue
                for i, delta in enumerate(group):
                    text, reason = answers[request_id][i]
                    text += delta.extra_prefix_string + delta.delta_text
                    answers[request_id][i] = (text, delta.finish_reason or reason)

        self.engine.set_request_stream_callback(collect)
        for i, each in enumerate(configs):
            self.engine.add_request(self.engine.create_request(f"r{i}", PROMPT, each))
        while not self.engine.empty():
            self.engine.step()
        return list(answers.values())


@pytest.fixture(scope="module")
def recorder(device: dict[str, Any], demo: str) -> Iterator[Recorder]:
    made = Recorder(demo, **device)
    yield made
    made.engine.unload()


@pytest.fixture(scope="module", params=ALL_FACADES)
def facade(request: pytest.FixtureRequest, device: dict[str, Any], demo: str) -> Iterator[Any]:
    made = ALL_FACADES[request.param](demo, **device)
    yield made
    made.terminate()


@pytest.fixture(scope="module", params=OPENAI_FACADES)
def openai(request: pytest.FixtureRequest, device: dict[str, Any], demo: str) -> Iterator[Any]:
    made = OPENAI_FACADES[request.param](demo, **device)
    yield made
    made.terminate()


# ------------------------------------------------------------------------------------ JSON schemas


@pytest.mark.parametrize("name", SCHEMAS)
def test_json_schema(recorder: Recorder, name: str) -> None:
    response_format = json_schema(SCHEMAS[name])
    configs = [config(response_format)]
    configs += [config(response_format, temperature=1.5, seed=seed, n=2) for seed in range(4)]
    num_stopped = 0
    for sequences in recorder.run(configs):
        for text, reason in sequences:
            if name not in ENDLESS:
                assert reason == "stop", text
            if reason == "stop":
                num_stopped += 1
                jsonschema.Draft202012Validator(SCHEMAS[name]).validate(json.loads(text))
    assert num_stopped > 0


def test_members_that_are_not_listed_need_strict_to_be_off(recorder: Recorder) -> None:
    schema = {"type": "object", "properties": {}, "maxProperties": 2}
    open_, closed = (
        config(json_schema(schema, strict=strict), temperature=1.5, seed=3, n=4)
        for strict in (False, None)
    )
    (open_answers, closed_answers) = recorder.run([open_, closed])
    assert {text for text, _ in closed_answers} == {"{}"}
    assert any(text != "{}" for text, _ in open_answers)


@pytest.mark.parametrize(
    "response_format",
    [
        json_schema(SCHEMAS["object"], description="a person", strict=True),
        json_schema(json.dumps(SCHEMAS["object"])),
        {"type": "json_object", "schema": SCHEMAS["object"]},
        {"type": "json_object", "schema": json.dumps(SCHEMAS["object"])},
    ],
    ids=["object", "text", "json_object", "mlc_llm"],
)
def test_spellings_of_a_schema(openai: Any, response_format: dict[str, Any]) -> None:
    response = openai.chat(
        messages=ASK, response_format=response_format, temperature=0, max_tokens=MAX_TOKENS
    )
    assert response.choices[0].finish_reason == "stop"
    value = json.loads(response.choices[0].message.content)
    jsonschema.validate(value, SCHEMAS["object"])


# -------------------------------------------------------------------------------------- other kinds


def test_json_object(recorder: Recorder) -> None:
    configs = [config({"type": "json_object"}, temperature=0.8, seed=seed) for seed in range(8)]
    stopped = [text for [(text, reason)] in recorder.run(configs) if reason == "stop"]
    assert stopped
    for text in stopped:
        assert isinstance(json.loads(text), dict)


@pytest.mark.parametrize(
    "regex",
    [
        pytest.param(r"\d{3}-\d{4}", marks=pytest.mark.emulated),
        r"(yes|no|maybe)!?",
        r"[A-Za-zäöü]{2,6} 東京",
        r"#[0-9a-fA-F]{6}",
        r"a\.b\\c",
    ],
)
def test_regex(recorder: Recorder, regex: str) -> None:
    response_format = {"type": "regex", "regex": regex}
    configs = [config(response_format, temperature=t, seed=7, n=2) for t in (0, 1, 2)]
    for sequences in recorder.run(configs):
        for text, reason in sequences:
            assert reason == "stop"
            assert re.fullmatch(regex, text)


CHOICES = [
    ["yes", "no", "don't know"],
    ['"quoted"', "back\\slash", "new\nline", "tab\t", "\\n", "a|b", "[x]", "\x01"],
    ["größe", "東京", "🙂", "e\u0301"],
    ["a", "ab", "abc"],
    ["", "x"],
    ["only"],
]


@pytest.mark.parametrize(
    "choices", [pytest.param(CHOICES[0], marks=pytest.mark.emulated), *CHOICES[1:]], ids=str
)
def test_choice(recorder: Recorder, choices: list[str]) -> None:
    response_format = {"type": "choice", "choice": choices}
    configs = [config(response_format, temperature=t, seed=5, n=4) for t in (0, 1, 3)]
    answers = {answer for sequences in recorder.run(configs) for answer in sequences}
    assert {reason for _, reason in answers} == {"stop"}
    assert {text for text, _ in answers} <= set(choices)


def test_every_choice_can_be_reached(recorder: Recorder) -> None:
    """Each of them alone: the escapes are read back as they were meant."""
    choices = [choice for group in CHOICES for choice in group]
    configs = [config({"type": "choice", "choice": [choice]}) for choice in choices]
    assert recorder.run(configs) == [[(choice, "stop")] for choice in choices]


@pytest.mark.parametrize("kind", ["grammar", "ebnf"])
def test_grammar(recorder: Recorder, kind: str) -> None:
    grammar = 'root ::= term (" + " term)? \nterm ::= [0-9] | "(" root ")"'
    configs = [config({"type": kind, kind: grammar}, temperature=1, seed=seed) for seed in range(6)]
    for [(text, reason)] in recorder.run(configs):
        assert set(text) <= set("0123456789+() ")
        if reason == "stop":
            assert text.count("(") == text.count(")")
            eval(text, {"__builtins__": {}})


TAG = {"begin": "<call>", "schema": {"type": "object", "properties": {}}, "end": "</call>"}
TAG_FORMAT = {
    "type": "tag",
    "begin": "<call>",
    "content": {"type": "json_schema", "json_schema": {"enum": [1, 2]}},
    "end": "</call>",
}


def test_structural_tag(recorder: Recorder) -> None:
    response_format = {"type": "structural_tag", "format": TAG_FORMAT}
    [[(text, reason)]] = recorder.run([config(response_format)])
    assert reason == "stop"
    assert re.fullmatch("<call>[12]</call>", text)


def test_the_older_structural_tag(recorder: Recorder) -> None:
    response_format = {"type": "structural_tag", "structures": [TAG], "triggers": ["<call>"]}
    [[(text, reason)]] = recorder.run([config(response_format, max_tokens=60)])
    assert reason in ("stop", "length")
    for call in re.findall("<call>(.*?)</call>", text):
        assert json.loads(call) == {}


def test_text_is_no_constraint(recorder: Recorder) -> None:
    constrained, free = recorder.run(
        [config({"type": "text"}), GenerationConfig(temperature=0, max_tokens=MAX_TOKENS)]
    )
    assert constrained == free


# ------------------------------------------------------------------------ settings with a grammar


@pytest.mark.emulated(slow=True)
def test_every_facade_gives_the_same_answer(facade: Any, device: dict[str, Any]) -> None:
    schema = json_schema(SCHEMAS["object"])
    for fields in ({}, {"temperature": 1, "seed": 11, "n": 3}):
        answer = facade.generate(PROMPT, config(schema, **fields), f"r{len(fields)}")
        assert set(answer.finish_reasons) == {"stop"}
        for text in answer.texts:
            jsonschema.validate(json.loads(text), SCHEMAS["object"])
        expected = EXPECTED.setdefault((device["device"], len(fields)), answer.texts)
        assert answer.texts == expected


EXPECTED: dict[tuple[str, int], list[str]] = {}  # of the first façade


def test_an_answer_does_not_depend_on_its_batch(recorder: Recorder) -> None:
    configs = [
        config(json_schema(schema), temperature=1, seed=seed)
        for seed, schema in enumerate(SCHEMAS.values())
    ]
    together = recorder.run(configs)
    assert together == [recorder.run([each])[0] for each in configs]


def test_logprobs_are_the_models(recorder: Recorder) -> None:
    response_format = {"type": "choice", "choice": ["zebra", "quartz"]}
    asked = config(response_format, logprobs=True, top_logprobs=3)
    texts, logprobs = recorder.engine.generate(PROMPT, asked)
    assert logprobs[0] is not None
    entries = [json.loads(entry) for entry in logprobs[0][0]]
    assert "".join(entry["token"] for entry in entries) == texts[0][0]
    # What the model would have liked to say is still among the alternatives.
    first = entries[0]
    assert len(first["top_logprobs"]) == 3
    assert first["top_logprobs"][0]["logprob"] > first["logprob"]


def test_max_tokens_cuts_an_answer(openai: Any) -> None:
    response = openai.chat(
        messages=ASK, response_format=json_schema(SCHEMAS["object"]), temperature=0, max_tokens=4
    )
    assert response.choices[0].finish_reason == "length"
    assert response.usage.completion_tokens == 4
    with pytest.raises(ValueError):
        json.loads(response.choices[0].message.content)


def test_ignore_eos_ends_with_the_grammar(recorder: Recorder) -> None:
    debug_config = {"ignore_eos": True}
    whole, endless = recorder.run(
        [
            config({"type": "regex", "regex": "[a-z]{5}"}, debug_config=debug_config),
            config({"type": "regex", "regex": "[a-z]+"}, debug_config=debug_config, max_tokens=30),
        ]
    )
    assert whole[0][1] == "stop"
    assert endless[0][1] == "length"


def test_streaming(openai: Any) -> None:
    chunks = openai.chat(
        messages=ASK,
        response_format=json_schema(SCHEMAS["refs"]),
        temperature=0,
        max_tokens=MAX_TOKENS,
        stream=True,
    )
    text = "".join(str(chunk.choices[0].delta.content or "") for chunk in chunks)
    jsonschema.validate(json.loads(text), SCHEMAS["refs"])


def test_metrics(openai: Any) -> None:
    before = openai.metrics()["num_constrained_requests"]
    response_format = {"type": "regex", "regex": "[0-9]{17}"}
    for _ in range(2):
        openai.complete(prompt="1", response_format=response_format, max_tokens=30)
    metrics = openai.metrics()
    assert metrics["num_constrained_requests"] == before + 2
    assert metrics["grammars_cached"] > 0
    assert metrics["grammar_cache_bytes"] > 0
    assert metrics["grammar_mask_time_sum"] > 0
    text = metrics.prometheus_text()
    assert "mlc_native_num_constrained_requests_total" in text
    assert "# TYPE mlc_native_grammar_cache_bytes gauge" in text


# -------------------------------------------------------------------------------------- compilation


def test_compiling_holds_up_neither_the_event_loop_nor_others() -> None:
    async def main() -> None:
        async with AsyncMLCEngine("demo") as engine:
            create_request = engine._create_request
            entered, go_on = threading.Event(), threading.Event()

            def slowly(prompt: Any, config: GenerationConfig, *arguments: Any, **named: Any) -> Any:
                if config.is_constrained:
                    entered.set()
                    assert go_on.wait(60)
                return create_request(prompt, config, *arguments, **named)

            engine._create_request = slowly  # type: ignore[method-assign]
            constrained = asyncio.create_task(
                engine.chat.completions.create(
                    messages=ASK, response_format={"type": "choice", "choice": ["yes"]}
                )
            )
            assert await asyncio.to_thread(entered.wait, 60)
            free = await engine.chat.completions.create(messages=ASK, max_tokens=5)
            assert free.choices[0].finish_reason is not None
            assert not constrained.done()
            go_on.set()
            answer = await constrained
            assert answer.choices[0].message.content == "yes"

    asyncio.run(main())


def test_the_cache_can_be_turned_off() -> None:
    with MLCEngine("demo", engine_config=EngineConfig(grammar_cache_bytes=0)) as engine:
        response = engine.completions.create(
            prompt="x", response_format={"type": "choice", "choice": ["yes"]}
        )
        assert response.choices[0].text == "yes"
        assert engine.metrics()["grammar_cache_bytes"] == 0


def test_a_model_without_a_tokenizer_refuses(make_model: Any, fake_lib: str) -> None:
    model = make_model()
    (Path(model) / "tokenizer.json").unlink()
    engine = SyncMLCEngine(model, model_lib=fake_lib)
    with pytest.raises(InvalidRequest, match=r"tokenizer\.json") as error:
        engine.create_request("r", [1], config({"type": "json_object"}))
    assert error.value.field == "response_format"  # type: ignore[attr-defined]
