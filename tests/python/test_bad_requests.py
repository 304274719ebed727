"""Requests that are wrong end in one clear error, and the engine goes on."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from facades import OPENAI_FACADES
from fake_model import EOS, VOCAB_SIZE

from mlc_native.errors import EngineTerminatedError, InvalidRequest
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve.data import ImageData

MakeModel = Callable[..., str]
pytestmark = pytest.mark.both_step_kinds
NAN, INF = float("nan"), float("inf")
LIMIT = 256  # tokens of a sequence


@pytest.fixture(scope="module", params=OPENAI_FACADES)
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, fake_lib: str
) -> Iterator[Any]:
    """One engine for all bad requests of this file: it must survive each of them."""
    from fake_model import write_model

    model = write_model(tmp_path_factory.mktemp("bad") / "model", context_window_size=LIMIT)
    made = OPENAI_FACADES[request.param](model, model_lib=fake_lib)
    yield made
    made.terminate()


def check_alive(engine: Any) -> None:
    """The engine answers, holds no page and knows no request."""
    response = engine.complete(prompt="abc", max_tokens=3)
    assert response.usage.completion_tokens == 3
    metrics = engine.metrics()
    assert metrics["num_running_requests"] == metrics["num_waiting_requests"] == 0
    assert metrics["kv_pages_used"] == 0
    assert len(engine.engine.state.bridge) == 0


def nested(depth: int) -> str:
    """A schema of arrays of arrays."""
    return '{"type": "array", "items": ' * depth + '{"type": "boolean"}' + "}" * depth


def json_schema(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


BAD_RESPONSE_FORMATS: list[Any] = [
    "json_object",
    {"type": "xml"},
    {"type": "json_object", "regex": "a"},
    {"type": "json_object", "schema": "{"},
    {"type": "json_schema"},
    {"type": "json_schema", "json_schema": {"name": "x"}},
    {"type": "json_schema", "json_schema": {"name": "x", "schema": {}, "strikt": True}},
    *(json_schema(schema) for schema in ("", "{", "[]", 5, {"type": 5}, {"type": "tuple"})),
    *(json_schema(schema) for schema in ({"$ref": "#/$defs/x"}, {"minimum": NAN}, {"x": {1}})),
    *(json_schema(nested(depth)) for depth in (500, 100_000)),
    *({"type": "regex", "regex": regex} for regex in (None, "", "(", "[", "\ud800")),
    {"type": "regex", "pattern": "a"},
    *({"type": "grammar", "grammar": text} for text in ("", "x", "root ::= y", 'root ::= "')),
    *({"type": "choice", "choice": choice} for choice in (None, [], [1], "yes", ["\ud800"])),
    {"type": "choice", "choice": ["x" * 100_000] * 20},
    {"type": "structural_tag"},
    {"type": "structural_tag", "format": {"type": "x"}},
    {"type": "structural_tag", "structures": [{"begin": "<"}], "triggers": ["<"]},
    {"type": "structural_tag", "structures": [], "triggers": []},
]

BAD_SAMPLING: list[tuple[str, Any]] = [
    *(("temperature", value) for value in (-0.1, NAN, INF, -INF)),
    *(("top_p", value) for value in (-0.1, 1.1, NAN)),
    *(("min_p", value) for value in (-0.1, 1.1, NAN)),
    *(("top_k", value) for value in (-2, 1 << 40)),
    *(("frequency_penalty", value) for value in (-2.1, 2.1, NAN)),
    *(("presence_penalty", value) for value in (-2.1, 2.1, NAN)),
    *(("repetition_penalty", value) for value in (0, -1, NAN)),
    *(("max_tokens", value) for value in (-2, -(1 << 40))),
    *(("n", value) for value in (0, -1, 1_000_000, 1 << 40)),
    *(("seed", value) for value in (1 << 70,)),
    *(("stop", value) for value in ("", ["a", ""], ["x"] * 10_000)),
    *(("stop_token_ids", value) for value in ([-1], [VOCAB_SIZE], [1 << 40])),
    *(("logit_bias", value) for value in ({VOCAB_SIZE: 1}, {-1: 1}, {1 << 40: 1}, {5: NAN})),
    ("logit_bias", dict.fromkeys(range(-1, VOCAB_SIZE), 1)),
    *(("response_format", value) for value in BAD_RESPONSE_FORMATS),
]
EXTRA = ("min_p", "top_k", "repetition_penalty", "stop_token_ids")


@pytest.mark.parametrize(("field", "value"), BAD_SAMPLING, ids=lambda v: str(v)[:30])
def test_bad_sampling_values(engine: Any, field: str, value: Any) -> None:
    arguments = {"extra_body": {field: value}} if field in EXTRA else {field: value}
    for create in (
        lambda: engine.complete(prompt="abc", **arguments),
        lambda: engine.chat(messages=[{"role": "user", "content": "x"}], **arguments),
    ):
        with pytest.raises(ValueError) as error:
            create()
        assert field.split("_token")[0] in str(error.value).lower(), str(error.value)
    check_alive(engine)


USER = {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    ("field", "arguments", "message"),
    [
        ("messages", {"messages": []}, "messages: The message list must not be empty"),
        ("messages", {"messages": [{"role": "judge"}]}, "messages[0].role: Input should be"),
        ("n", {"messages": [USER], "n": "many"}, "n: Input should be a valid integer"),
        ("n", {"messages": [USER], "n": "many"}, "got 'many'"),
        (
            "frequency_penalty",
            {"messages": [USER], "frequency_penalty": 3},
            "should be in range [-2, 2]",
        ),
        ("stop", {"messages": [USER], "stop": ""}, '"stop" must not hold an empty text'),
        ("top_logprobs", {"messages": [USER], "top_logprobs": 2}, '"logprobs" must be True'),
        ("n", {"messages": [USER], "n": [], "temperature": "hot"}, "; temperature: Input should"),
        (
            "tool_choice",
            {"messages": [USER], "tool_choice": "maybe"},
            "tool_choice: Input should be 'none', 'auto' or 'required' or a valid dictionary, got",
        ),
        ("stop", {"messages": [USER], "stop": [5]}, "stop[0]: Input should be a valid string, got"),
    ],
    ids=range(10),
)
def test_a_wrong_request_names_the_field(
    engine: Any, field: str, arguments: Any, message: str
) -> None:
    for stream in (False, True):
        with pytest.raises(InvalidRequest) as error:
            engine.chat(**arguments, stream=stream)
        assert error.value.field == field
        assert message in str(error.value)
    check_alive(engine)


def test_a_response_format_that_is_too_deep_for_python(engine: Any) -> None:
    schema: Any = {"type": "boolean"}
    for _ in range(100_000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(ValueError, match="response_format"):
        engine.complete(prompt="abc", response_format=json_schema(schema))
    check_alive(engine)
    while "items" in schema:  # level by level: freeing it at once would recurse
        schema = schema["items"]


HUGE = 1 << 70
OF_HUGE: dict[str, Any] = {
    name: HUGE
    for name, field in GenerationConfig.model_fields.items()
    if field.annotation in (int, int | None)
} | {
    "stop_token_ids": [HUGE],
    "allowed_token_ids": [HUGE],
    "bad_words": [[HUGE]],
    "logit_bias": {HUGE: 1},
}


@pytest.mark.parametrize("name", OF_HUGE)
def test_integers_that_cpp_has_not_name_range_and_value(engine: Any, name: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        engine.generate("abc", GenerationConfig(**{name: OF_HUGE[name]}), "r")
    assert error.value.field == name
    message = str(error.value)
    assert re.search(r"in (range )?\[-?\d.*, .*[\])]", message), message
    assert str(HUGE) in message


def test_a_number_that_no_integer_type_has_is_no_text(engine: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^seed: Input should be an integer .*1e\+300$"):
        engine.complete(prompt="x", seed=1e300)


def test_a_huge_number_of_alternatives_is_shown(engine: Any) -> None:
    with pytest.raises(InvalidRequest, match=rf"\[0, 20\], got {HUGE}$"):
        engine.chat(messages=[{"role": "user", "content": "x"}], logprobs=True, top_logprobs=HUGE)
    with pytest.raises(InvalidRequest, match=rf"\[0, 5\], got {HUGE}$"):
        engine.complete(prompt="x", logprobs=HUGE)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "prompt"),
        ([], "prompt"),
        ([VOCAB_SIZE], "prompt"),
        ([-1], "prompt"),
        ([1, 1 << 40], "prompt"),
        ([1, 1 << 70], f'"prompt" must be token ids in [0, 2^31), got {1 << 70}'),
        ([1] * (LIMIT + 1), f"has {LIMIT + 1} tokens in total, larger than the model input length"),
        ("x" * 100_000, "tokens in total, larger than the model input length limit 256"),
        ("\ud800", "not valid Unicode"),
    ],
    ids=str,
)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_prompts(engine: Any, prompt: Any, message: str, stream: bool) -> None:
    with pytest.raises(InvalidRequest) as error:
        engine.complete(prompt=prompt, stream=stream)
    assert message in str(error.value)
    check_alive(engine)


@pytest.mark.parametrize("prompt", [b"abc", 5, None, [b"abc"], [None], {"a": 1}], ids=repr)
def test_prompts_of_a_wrong_kind(engine: Any, prompt: Any) -> None:
    with pytest.raises(InvalidRequest, match="Invalid request prompt of type"):
        engine.generate(prompt, GenerationConfig(), "r")
    with pytest.raises(ValueError):
        engine.complete(prompt=prompt)
    check_alive(engine)


def test_a_prompt_that_fills_the_context_is_served(engine: Any) -> None:
    response = engine.complete(prompt=[1] * (LIMIT - 1))
    assert response.usage.completion_tokens == 1
    assert response.choices[0].finish_reason == "length"


def test_max_tokens_zero_is_valid(engine: Any) -> None:
    response = engine.complete(prompt="abc", max_tokens=0)
    assert (response.choices[0].text, response.choices[0].finish_reason) == ("", "length")
    assert response.usage.prompt_tokens == 3


def test_unsupported_and_unknown_arguments(engine: Any) -> None:
    with pytest.raises(InvalidRequest, match='Request fields "best_of" are not supported'):
        engine.complete(prompt="abc", best_of=2)
    with pytest.raises(TypeError, match="temprature"):
        engine.complete(prompt="abc", temprature=1)
    with pytest.raises(InvalidRequest, match="temprature"):
        engine.complete(prompt="abc", extra_body={"temprature": 1})
    parts = [{"type": "image_url", "image_url": {"url": "http://localhost/x.png"}}]
    with pytest.raises(InvalidRequest, match="image_url"):
        engine.chat(messages=[{"role": "user", "content": parts}])
    with pytest.raises(InvalidRequest, match="image input is not supported"):
        ImageData(None, 1)
    check_alive(engine)


# ------------------------------------------------------------------------------------- templates


@pytest.fixture
def no_collection() -> Iterator[None]:
    """No garbage is collected in a stack as deep as it may be: a finalizer of something else
    would fail there."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("facade", OPENAI_FACADES.values())
@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "was stopped"),
        ("{{ 'a' * 10 ** 10 }}", "was stopped"),
        (None, "no chat template"),
    ],
)
def test_templates_that_fail(
    facade: Any, template: str | None, message: str, make_model: MakeModel, fake_lib: str
) -> None:
    engine = facade(make_model(chat_template=template), model_lib=fake_lib)
    for stream in (False, True):
        with pytest.raises(InvalidRequest, match=message) as error:
            engine.chat(messages=[{"role": "user", "content": "x"}], stream=stream)
        assert error.value.field == "messages"
    check_alive(engine)
    engine.terminate()


# ----------------------------------------------------------------------------- after the end


@pytest.mark.parametrize("facade", OPENAI_FACADES.values())
def test_a_request_after_terminate(facade: Any, make_model: MakeModel, fake_lib: str) -> None:
    made = facade(make_model(), model_lib=fake_lib)
    made.engine.terminate()
    made.engine.terminate()
    calls = [
        lambda: made.complete(prompt="abc"),
        lambda: made.chat(messages=[{"role": "user", "content": "x"}], stream=True),
        made.metrics,
        made.engine.reset,
        made.audit,
    ]
    for call in calls:
        with pytest.raises(EngineTerminatedError, match="was terminated"):
            call()
    made.terminate()


def test_eos_is_no_prompt_problem(engine: Any) -> None:
    assert engine.complete(prompt=[EOS], max_tokens=1).usage.prompt_tokens == 1
