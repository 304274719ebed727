"""Newcomer tasks: the command line, the HTTP server, an application of one's own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import mlc_native
from mlc_native import AsyncMLCEngine

FRANCE: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]


def mlc_native_command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mlc_native", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def test_version() -> None:
    """`python -m mlc_native --version`."""
    assert mlc_native.__version__ in mlc_native_command("--version").stdout


def test_help() -> None:
    """The help names the commands."""
    text = mlc_native_command("--help").stdout
    assert "chat" in text
    assert "serve" in text
    assert "generate" in text


def test_ask_in_a_shell() -> None:
    """One answer on stdout, and nothing else, for a pipe."""
    ran = mlc_native_command(
        "chat", "demo", "--temperature", "0", "--prompt", "What is the capital of France?"
    )
    assert ran.returncode == 0
    assert ran.stdout.count("\n") == 1
    assert "Paris" in ran.stdout


def test_ask_through_a_pipe() -> None:
    """The question on stdin."""
    ran = mlc_native_command("chat", "demo", "--temperature", "0", input="What is 2 + 3?\n")
    assert ran.returncode == 0
    assert "5" in ran.stdout


def test_chat_with_no_model() -> None:
    """A model that is not there: one line on stderr and the status 1."""
    ran = mlc_native_command("chat", "/no/such/folder", "--prompt", "Hi")
    assert ran.returncode == 1
    assert "/no/such/folder" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_batch_file(tmp_path: Path) -> None:
    """A file in OpenAI's batch format."""
    tasks = [
        {"custom_id": f"q{i}", "method": "POST", "url": "/v1/chat/completions",
         "body": {"model": "demo", "temperature": 0,
                  "messages": [{"role": "user", "content": f"What is {i} + 2?"}]}}
        for i in range(3)
    ]  # fmt: skip
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    ran = mlc_native_command(
        "generate", str(tmp_path / "in.jsonl"), "--model", "demo", "-o", str(tmp_path / "out.jsonl")
    )
    assert ran.returncode == 0, ran.stderr
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {answer["custom_id"] for answer in answers} == {"q0", "q1", "q2"}
    first = next(answer for answer in answers if answer["custom_id"] == "q1")
    assert "3" in first["response"]["body"]["choices"][0]["message"]["content"]


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    """`mlc-native serve demo` on a free port."""
    command = [sys.executable, "-m", "mlc_native", "serve", "demo", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()  # empty if it has ended
        finally:
            server.terminate()


def test_openai_client(server_url: str) -> None:
    """The server and OpenAI's library."""
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{server_url}/v1", api_key="none")
    assert [model.id for model in client.models.list()] == ["demo"]
    answer = client.chat.completions.create(model="demo", messages=FRANCE, temperature=0)
    assert "Paris" in answer.choices[0].message.content
    stream = client.chat.completions.create(
        model="demo", messages=FRANCE, temperature=0, stream=True
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text == answer.choices[0].message.content


def test_errors_of_the_server(server_url: str) -> None:
    """A bad request is OpenAI's BadRequestError."""
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{server_url}/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="demo", messages=FRANCE, temperature=-1)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-4", messages=FRANCE)


def test_web_application() -> None:
    """An engine in an application of one's own, loaded in its lifespan."""
    pytest.importorskip("starlette")
    testclient = pytest.importorskip("starlette.testclient")
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Any]]:
        async with AsyncMLCEngine("demo") as engine:
            yield {"engine": engine}

    async def ask(request: Request) -> JSONResponse:
        question = {"role": "user", "content": (await request.json())["question"]}
        try:
            answer = await request.state.engine.chat.completions.create(
                messages=[question], temperature=0
            )
        except mlc_native.MLCNativeError as error:
            return JSONResponse(error.to_openai(), status_code=error.status)
        return JSONResponse({"answer": answer.choices[0].message.content})

    app = Starlette(routes=[Route("/ask", ask, methods=["POST"])], lifespan=lifespan)
    with testclient.TestClient(app) as client:
        good = client.post("/ask", json={"question": "What is 2 + 3?"})
        bad = client.post("/ask", json={"question": "word " * 50_000})
    assert "5" in good.json()["answer"]
    assert bad.status_code == 400
    assert bad.json()["error"]["message"]


def test_import_is_light() -> None:
    """Importing the package starts no thread and loads no torch."""
    program = (
        "import mlc_native, sys, threading; print(threading.active_count(), 'torch' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
    )
    assert ran.stdout.split() == ["1", "False"]
