"""A program of a user, for mypy: what each call takes and gives. It is checked and never run.

A line with ``type: ignore[...]`` is one that a checker must refuse.
"""

from __future__ import annotations

from typing import assert_type

from mlc_native import (
    AsyncMLCEngine,
    EngineConfig,
    GenerationConfig,
    GenerationResult,
    InvalidRequest,
    MLCEngine,
    QueueFull,
    SyncMLCEngine,
)
from mlc_native._stream_bridge import CallbackStreamOutput
from mlc_native.protocol.openai_api_protocol import (
    ChatCompletionResponse,
    ChatCompletionStreamResponse,
    CompletionResponse,
)
from mlc_native.serve.streams import AsyncChunkStream, ChunkStream

messages = [{"role": "user", "content": "Hi"}]


def construct() -> None:
    config = EngineConfig(dtype="bf16", num_threads=2, prefill_mode="chunked")
    assert_type(config.num_threads, int | None)
    EngineConfig(num_thread=2)  # type: ignore[call-arg]
    EngineConfig(prefill_mode="fast")  # type: ignore[arg-type]
    MLCEngine("demo", mode="server", engine_config=config)
    MLCEngine("demo", dtype="bf16", max_num_sequence=4)
    MLCEngine("demo", engine_config={"dtype": "bf16"})
    MLCEngine("demo", max_num_sequences=4)  # type: ignore[call-arg]
    SyncMLCEngine("demo", num_threads="two")  # type: ignore[arg-type]
    GenerationConfig(temperature=0.5, stop_strs=["x"])
    GenerationConfig(temprature=0.5)  # type: ignore[call-arg]


def threads() -> None:
    with MLCEngine("demo") as engine:
        response = engine.chat.completions.create(messages=messages, top_k=5, timeout_s=3.5)
        assert_type(response, ChatCompletionResponse)
        assert response.usage is not None
        assert_type(response.usage.prompt_tokens, int)
        message = response.choices[0].message
        assert_type(message.content, str | None)
        for call in message.tool_calls or ():
            assert_type(call.id, str)
            assert_type(call.function.arguments, str)
        engine.chat.completions.create(messages=[messages[0], message])
        with engine.chat.completions.create(messages=messages, stream=True) as chunks:
            assert_type(chunks, ChunkStream[ChatCompletionStreamResponse])
            for chunk in chunks:
                assert_type(chunk, ChatCompletionStreamResponse)
        assert_type(engine.completions.create(prompt=["a", "b"]), CompletionResponse)
        assert_type(
            engine.completions.create(prompt=[1, 2], stream=True), ChunkStream[CompletionResponse]
        )
        engine.chat.completions.create(messages=messages, top_k="5")  # type: ignore[call-overload]
        engine.chat.completions.create(messages=messages, topk=5)  # type: ignore[call-overload]
        engine.generate([[1, 2], [3]])
        engine.generate([messages, messages], tools=[])
        results = engine.generate(["a", "b"], max_tokens=5, progress=False)
        assert_type(results, list[GenerationResult])
        assert_type(results[0].text, str)
        assert_type(results[0].token_ids, list[int])
        engine.generate(["a"], GenerationConfig(n=2))
        engine.generate(["a"], max_token=5)  # type: ignore[call-arg]


async def event_loop() -> None:
    async with AsyncMLCEngine("demo", num_threads=2) as engine:
        response = await engine.chat.completions.create(messages=messages, seed=5)
        assert_type(response, ChatCompletionResponse)
        async with await engine.completions.create(prompt="a", stream=True) as chunks:
            assert_type(chunks, AsyncChunkStream[CompletionResponse])
            async for chunk in chunks:
                assert_type(chunk, CompletionResponse)
        assert_type(await engine.generate(["a"]), list[GenerationResult])


def errors() -> None:
    try:
        construct()
    except QueueFull as error:
        assert_type(error.queue_length, int)
    except InvalidRequest as error:
        assert_type(error.field, str | None)
        assert_type(error.status, int)


def compiled(output: CallbackStreamOutput) -> None:
    assert_type(output.delta_text, str)
