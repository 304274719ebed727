"""OpenAI's Python library against a live server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from live_server import USER, WAIT_S, LiveServer

from mlc_native.server import ServerConfig

openai = pytest.importorskip("openai")

FRANCE = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."


@pytest.fixture(scope="module")
def client(demo_server: LiveServer) -> Iterator[Any]:
    with openai.OpenAI(
        base_url=f"{demo_server.url}/v1", api_key="any", timeout=WAIT_S, max_retries=0
    ) as client:
        yield client


def test_chat(client: Any) -> None:
    answer = client.chat.completions.create(model="demo", messages=FRANCE, temperature=0, seed=-1)
    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.id.startswith("chatcmpl-")


def test_stream(client: Any) -> None:
    with client.chat.completions.create(
        model="demo",
        messages=FRANCE,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ) as chunks:
        *others, last = chunks
    assert others[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in others) == ANSWER
    assert others[-1].choices[0].finish_reason == "stop"
    assert last.usage.completion_tokens > 0


def test_stream_helper(client: Any) -> None:
    with client.chat.completions.stream(model="demo", messages=FRANCE, temperature=0) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == ANSWER
    assert final.choices[0].message.content == ANSWER


def test_logprobs(client: Any) -> None:
    answer = client.chat.completions.create(
        model="demo", messages=FRANCE, temperature=0, logprobs=True, top_logprobs=3
    )
    content = answer.choices[0].logprobs.content
    assert "".join(token.token for token in content).startswith(ANSWER)
    assert all(len(token.top_logprobs) == 3 for token in content)


def test_completions(client: Any) -> None:
    answer = client.completions.create(
        model="demo", prompt=["The capital of France", "2 + 2 ="], max_tokens=4, n=2, echo=True
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.choices[3].text.startswith("2 + 2 =")


def test_structured_parse(client: Any) -> None:
    pytest.importorskip("xgrammar")
    pydantic = pytest.importorskip("pydantic")

    class Person(pydantic.BaseModel):
        name: str
        age: int

    question = "Give me a JSON object with name and age for Anna, 31."
    parsed = client.chat.completions.parse(
        model="demo",
        messages=[{"role": "user", "content": question}],
        response_format=Person,
        temperature=0,
    )
    assert parsed.choices[0].message.parsed == Person(name="Anna", age=31)


def test_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").owned_by == "MLC-LLM"


def test_errors(client: Any) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(model="demo", messages=FRANCE, temperature=-1)
    assert raised.value.param == "temperature"
    assert raised.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError) as raised:
        client.chat.completions.create(model="other", messages=FRANCE)
    assert raised.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


async def test_async(demo_server: LiveServer) -> None:
    async with openai.AsyncOpenAI(
        base_url=demo_server.url, api_key="any", timeout=WAIT_S, max_retries=0
    ) as client:

        async def ask(stream: bool) -> str:
            answer = await client.chat.completions.create(
                model="demo", messages=FRANCE, temperature=0, stream=stream
            )
            if not stream:
                return str(answer.choices[0].message.content)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in answer])

        answers = await asyncio.gather(*(ask(i % 2 == 0) for i in range(10)))
    assert set(answers) == {ANSWER}


def test_an_error_in_a_stream(serve: Any) -> None:
    server = serve(answer="abcdef", fail_at_forward=[4])
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        stream = client.chat.completions.create(model="fake", messages=USER, stream=True)
        with pytest.raises(openai.APIError) as raised:
            list(stream)
        assert raised.value.code == "engine_error"


def test_a_timeout_of_the_client(serve: Any) -> None:
    server = serve(us_per_step=20_000, cost="sleep")
    client = openai.OpenAI(base_url=server.url, api_key="any", timeout=0.3, max_retries=0)
    with client, pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(model="fake", messages=USER, max_tokens=3000)
    server.wait_until_idle()
    assert server.metrics()["num_running_requests"] == 0


def test_retries_wait_for_a_place(serve: Any) -> None:
    server = serve(ServerConfig(max_concurrent_requests=1), answer="ok", us_per_step=20_000)
    client = openai.OpenAI(base_url=server.url, api_key="any", max_retries=20)
    with client, ThreadPoolExecutor(3) as threads:
        answers = threads.map(
            lambda _: client.chat.completions.create(model="fake", messages=USER), range(3)
        )
        assert [answer.choices[0].message.content for answer in answers] == ["ok"] * 3
