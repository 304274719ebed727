"""Any value for any public argument: an answer, or an error of the family that is one line.

The arguments are those of the signatures, so a new one is tested without a change here. An engine
must survive all of them.
"""

from __future__ import annotations

import inspect
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import pytest
from facades import OPENAI_FACADES
from fake_model import write_model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlc_native import (
    AsyncMLCEngine,
    EngineConfig,
    GenerationConfig,
    InvalidConfig,
    InvalidRequest,
    LoadError,
    MLCEngine,
    MLCNativeError,
    SyncMLCEngine,
)
from mlc_native.serve.arguments import EngineSettings, GenerateArguments
from mlc_native.serve.openai_interface import ChatCompletions, Completions
from mlc_native.serve.rendered_chat import RenderArguments
from mlc_native.tokenizers import StopStrHandler, TextStreamer, Tokenizer

USER = {"role": "user", "content": "hi"}
PROFILE = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Unequal:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("cannot be compared")

    __hash__ = None  # type: ignore[assignment]


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def odd_values() -> list[Any]:
    """Values that have broken one program or another."""
    return [
        *(None, True, False, 0, -1, 1 << 31, 1 << 40, 1 << 63, -(1 << 63) - 1, 10**5000),
        *(0.5, -0.0, 1e308, float("nan"), float("inf"), 1j),
        *("", "x", "\0", "\ud800", "x" * 70_000, b"", b"x", bytearray(b"x")),
        *(
            [],
            [None],
            [-1],
            [1 << 70],
            [""],
            ["\ud800"],
            [[]],
            [[1 << 70]],
            ["x", 1],
            [float("nan")],
        ),
        *((), (1,), set(), {1}, range(3), iter([1]), {}, {"": None}, {1: 1}, {None: None}),
        *({"x": float("nan")}, {1 << 70: 1}, {5: "x"}, {"type": "x"}, {"\ud800": "\ud800"}),
        *(object(), Unprintable(), Unequal(), int, len, ..., NotImplemented, nested(2000)),
        *([USER], [{"role": "user"}], {"role": "user", "content": object()}, [{1: 2}]),
    ]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


def try_all(try_value: Callable[[Any], None], num_random: int = 30) -> None:
    """Calls with each odd value and with random ones. Hypothesis could not print the odd ones."""
    for value in odd_values():
        try_value(value)
    settings(PROFILE, max_examples=num_random)(given(VALUES)(try_value))()


def keywords(function: Callable[..., Any]) -> list[str]:
    """The keyword arguments of a function that its signature names."""
    return [name for name in inspect.signature(function).parameters if name != "self"]


def check(call: Callable[[], Any], kinds: Any = MLCNativeError) -> None:
    """Calls, and accepts a result or an error of the family: a field, one line, an OpenAI body."""
    found = None
    try:
        call()
    except MLCNativeError as error:
        found = error
    if found is not None:
        check_error(found, kinds)


def check_error(error: MLCNativeError, kinds: Any = MLCNativeError) -> None:
    text = str(error)
    assert isinstance(error, kinds), repr(error)
    assert error.field is not None
    assert 0 < len(text) < 5000
    for forbidden in ("\n", "validation error", "pydantic.dev", "incompatible function arguments"):
        assert forbidden not in text
    assert error.to_openai()["error"]["param"] == error.field


@pytest.fixture(scope="module", params=OPENAI_FACADES)
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, fake_lib: str
) -> Iterator[Any]:
    model = write_model(tmp_path_factory.mktemp("hostile") / "model", context_window_size=64)
    made = OPENAI_FACADES[request.param](model, model_lib=fake_lib, mode="server")
    yield made
    assert made.complete(prompt="abc", max_tokens=3).usage.completion_tokens == 3
    made.audit()
    assert len(made.engine.state.bridge) == 0
    made.terminate()


@pytest.mark.parametrize("name", keywords(ChatCompletions.create))
def test_arguments_of_a_chat(engine: Any, name: str) -> None:
    def try_value(value: Any) -> None:
        arguments = {"messages": [USER], "max_tokens": 1, "timeout_s": 5, name: value}
        check(lambda: engine.chat(**arguments), InvalidRequest)

    try_all(try_value)


@pytest.mark.parametrize("name", keywords(Completions.create))
def test_arguments_of_a_completion(engine: Any, name: str) -> None:
    def try_value(value: Any) -> None:
        arguments = {"prompt": "abc", "max_tokens": 1, "timeout_s": 5, name: value}
        check(lambda: engine.complete(**arguments), InvalidRequest)

    try_all(try_value)


@pytest.mark.parametrize("name", ["messages", "n", "logit_bias", "response_format", "tools"])
def test_fields_of_a_body(engine: Any, name: str) -> None:
    def try_value(value: Any) -> None:
        body = {"messages": [USER], "max_tokens": 1, "timeout_s": 5, name: value}

        def call() -> None:
            result = engine.engine.chat.completions.create_from(body)
            if inspect.iscoroutine(result):
                engine.run(result)

        check(call, InvalidRequest)

    try_all(try_value)


@pytest.mark.parametrize(
    "name", ["prompts", "generation_config", *sorted(GenerateArguments.__optional_keys__)]
)
def test_arguments_of_generate(engine: Any, name: str) -> None:
    def try_value(value: Any) -> None:
        arguments = {"prompts": ["abc"], "max_tokens": 1, "timeout_s": 5, name: value}

        def call() -> None:
            results = engine.engine.generate(**arguments)
            if inspect.iscoroutine(results):
                results = engine.run(results)
            for result in results:
                if result.error is not None:
                    check_error(result.error, InvalidRequest)

        check(call, InvalidRequest)

    try_all(try_value)


def test_arguments_of_methods(engine: Any) -> None:
    try_all(lambda value: try_methods(engine, value))


def try_methods(engine: Any, value: Any) -> None:
    def call(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        def run() -> Any:
            result = function(*arguments)
            return engine.run(result) if inspect.iscoroutine(result) else result

        return run

    made = engine.engine
    for function in (made.abort, made.unpin_prefix, made._debug_call_func_on_all_worker):
        check(call(function, value), InvalidRequest)
    check(call(made.unload_adapter, value), InvalidRequest)
    for arguments in ((value, "/no/such/folder"), ("x", value)):
        check(call(made.load_adapter, *arguments), (InvalidRequest, LoadError))
    for name in ("messages", *RenderArguments.__optional_keys__):
        chat = {"messages": [USER], name: value}
        check(call(partial(made.render_chat, **chat)), InvalidRequest)
    parse = made.chat.completions.parse
    check(call(partial(parse, messages=value, response_format=int, max_tokens=1)))
    check(call(partial(parse, messages=[USER], response_format=value, max_tokens=1)))
    if not isinstance(value, (list, str, range)):
        check(call(made.pin_prefix, value), InvalidRequest)


@pytest.mark.parametrize("name", GenerationConfig.model_fields)
def test_fields_of_a_generation_config(
    tmp_path_factory: pytest.TempPathFactory, fake_lib: str, name: str
) -> None:
    model = write_model(tmp_path_factory.mktemp("step") / "model")
    engine = SyncMLCEngine(model, model_lib=fake_lib)

    def try_value(value: Any) -> None:
        check(lambda: GenerationConfig(**{name: value}), InvalidRequest)
        check(lambda: engine.create_request("r", "abc", {name: value}), InvalidRequest)

    try_all(try_value)


def test_arguments_of_the_sync_engine(make_model: Callable[..., str], fake_lib: str) -> None:
    engine = SyncMLCEngine(make_model(context_window_size=64), model_lib=fake_lib)
    try_all(lambda value: try_sync_methods(engine, value))


def try_sync_methods(engine: SyncMLCEngine, value: Any) -> None:
    config = GenerationConfig(max_tokens=1)
    calls: list[Callable[[], Any]] = [
        lambda: engine.create_request(value, "abc", config),
        lambda: engine.create_request("r", value, config),
        lambda: engine.create_request("r", "abc", value),
        lambda: engine.generate(value, config),
        lambda: engine.generate("abc", value) if not isinstance(value, dict) else None,
        lambda: engine.add_request(value),
        lambda: engine.abort_request(value),
        lambda: engine.unpin_prefix(value),
        lambda: engine.unload_adapter(value),
        lambda: engine.set_request_stream_callback(value if value is not len else None),
    ]
    for call in calls:
        check(call, InvalidRequest)
    for arguments in ((value, "/no/such/folder"), ("x", value)):
        check(partial(engine.load_adapter, *arguments), (InvalidRequest, LoadError))
    engine.set_request_stream_callback(None)
    engine.reset()


# ------------------------------------------------------------------------------------- construction

ARGUMENTS = [
    "model",
    "device",
    "mode",
    "model_lib",
    "engine_config",
    *sorted(EngineSettings.__optional_keys__),
]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_of_the_constructors(
    tmp_path_factory: pytest.TempPathFactory, fake_lib: str, name: str
) -> None:
    """Wrong values are refused before a thread starts; right ones load the fake model."""
    model = write_model(tmp_path_factory.mktemp("construct") / "model")
    before = threading.active_count()

    def try_value(value: Any) -> None:
        arguments = {"model": model, "model_lib": fake_lib, name: value}
        for cls in (SyncMLCEngine, MLCEngine, AsyncMLCEngine):

            def construct(cls: Any = cls) -> None:
                made = cls(**arguments)
                if not isinstance(made, SyncMLCEngine):
                    made.terminate()

            check(construct)

    try_all(try_value)
    assert threading.active_count() == before


@pytest.mark.parametrize("name", [field.name for field in fields(EngineConfig)])
def test_fields_of_an_engine_config(name: str) -> None:
    def try_value(value: Any) -> None:
        check(lambda: EngineConfig(**{name: value}).engine_json(), InvalidConfig)
        check(lambda: EngineConfig.of({name: value}, {}, "f").engine_json(), InvalidConfig)
        check(lambda: EngineConfig.from_json(value), InvalidConfig)

    try_all(try_value)


# --------------------------------------------------------------------------------------- tokenizers


def test_arguments_of_tokenizers(make_model: Callable[..., str]) -> None:
    tokenizer = Tokenizer(make_model())
    try_all(lambda value: try_tokenizer(tokenizer, value))


def try_tokenizer(tokenizer: Tokenizer, value: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: tokenizer.encode(value),
        lambda: tokenizer.encode_batch(value),
        lambda: tokenizer.decode(value),
        lambda: tokenizer.token_to_id(value),
        lambda: TextStreamer(tokenizer).put(value),
        lambda: StopStrHandler(value, tokenizer),
        lambda: StopStrHandler(["x"], tokenizer).put(value),
    ]
    for call in calls:
        check(call, InvalidRequest)


# ----------------------------------------------------------------------- objects that raise or lie


class Oops(Exception):
    pass


def oops(*_arguments: Any) -> Any:
    raise Oops


class RaisingText(str):
    __slots__ = ()
    __eq__ = __hash__ = __len__ = __iter__ = encode = oops  # type: ignore[assignment]


class RaisingDict(dict[str, Any]):
    __iter__ = __len__ = __getitem__ = __contains__ = oops
    keys = values = items = get = oops  # type: ignore[assignment]


class RaisingList(list[Any]):
    __iter__ = __len__ = __getitem__ = oops  # type: ignore[assignment]


class RaisingArray:
    tolist = __len__ = __iter__ = oops


class EndlessSequence(Sequence[Any]):
    def __getitem__(self, index: Any) -> Any:
        return 1

    def __len__(self) -> int:
        return 1 << 40


class EndlessMapping(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return map(str, itertools.count())

    def __len__(self) -> int:
        return 1


def raising_iterator() -> Iterator[Any]:
    yield 1
    raise Oops


RAISING: list[Callable[[], Any]] = [
    *(lambda: RaisingText("x"), lambda: [RaisingText("x")], lambda: RaisingDict(type="text")),
    *(lambda: RaisingList([1]), lambda: [RaisingDict(role="user")], RaisingArray, raising_iterator),
]
ENDLESS: list[Callable[[], Any]] = [
    *(itertools.count, lambda: itertools.repeat("x"), lambda: itertools.repeat(USER)),
    *(lambda: range(10**12), EndlessSequence, EndlessMapping),
]


@pytest.mark.parametrize("make", [*RAISING, *ENDLESS])
def test_objects_that_raise_or_have_no_end(
    tmp_path_factory: pytest.TempPathFactory, fake_lib: str, make: Callable[[], Any]
) -> None:
    """What their methods raise is an error about the field, and they are read up to a limit."""
    model = write_model(tmp_path_factory.mktemp("objects") / "model", context_window_size=64)
    with MLCEngine(model, model_lib=fake_lib, verbose=False) as engine:
        common = {"max_tokens": 1, "timeout_s": 5}
        for name in keywords(ChatCompletions.create):
            arguments = {"messages": [USER], **common, name: make()}
            check(partial(engine.chat.completions.create, **arguments), InvalidRequest)
        for name in set(keywords(Completions.create)) - {"prompt"}:
            arguments = {"prompt": "abc", **common, name: make()}
            check(partial(engine.completions.create, **arguments), InvalidRequest)
        for name in GenerationConfig.model_fields:
            check(lambda name=name: GenerationConfig(**{name: make()}), InvalidRequest)
        if make in ENDLESS or make is RaisingArray:
            check(lambda: engine.completions.create(prompt=make(), max_tokens=1), InvalidRequest)
            (result,) = engine.generate([make()], max_tokens=1)
            assert result.error is not None
        if make is RaisingArray:
            check(lambda: engine.generate(make(), max_tokens=1), InvalidRequest)
            check(lambda: engine.pin_prefix(make()), InvalidRequest)


def test_numbers_of_numpy_in_an_engine_config() -> None:
    numpy = pytest.importorskip("numpy")
    config = EngineConfig(
        max_num_sequence=numpy.int64(4), gpu_memory_utilization=numpy.float32(0.5)
    )
    found = json.loads(config.engine_json())
    assert (found["max_num_sequence"], found["gpu_memory_utilization"]) == (4, 0.5)
