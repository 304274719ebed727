"""Every program in examples/, as a user starts it, on the demo model."""

from __future__ import annotations

import http.client
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from mlc_native import AsyncMLCEngine

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
WAIT_S = 120
QUESTIONS = {
    "What is the capital of France?": "The capital of France is Paris.",
    "What is the capital of Italy?": "The capital of Italy is Rome.",
}


def run(name: str, *arguments: str, typed: str = "") -> str:
    """The output of an example that must succeed."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        input=typed,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    return done.stdout


def test_every_example_is_tested() -> None:
    tested = {"async_server_of_your_own.py", "batch.py", "chat.py", "structured.py", "search.py"}
    tested |= {"server_in_your_app.py"}
    tested |= {"langchain_model.py"}  # test_langchain.py
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested


def test_chat_with_prompts() -> None:
    prompts = [argument for question in QUESTIONS for argument in ("--prompt", question)]
    assert run("chat.py", *prompts).splitlines() == list(QUESTIONS.values())


def test_chat_at_the_terminal() -> None:
    question, answer = next(iter(QUESTIONS.items()))
    assert run("chat.py", typed=question + "\n\nnot read\n") == f"> {answer}\n> "


def test_batch_keeps_the_order() -> None:
    questions = list(QUESTIONS) * 3
    lines = run("batch.py", "--max-tokens", "20", typed="\n".join(questions)).splitlines()
    expected = [{"question": question, "answer": QUESTIONS[question]} for question in questions]
    assert [json.loads(line) for line in lines] == expected


def test_search_finds_the_line_itself() -> None:
    lines = [*QUESTIONS, *QUESTIONS.values()]
    for line in lines:
        found = run("search.py", line, "--top", "2", typed="\n".join(lines)).splitlines()
        assert len(found) == 2
        assert found[0] == f"1.000 {line}"


def test_structured() -> None:
    assert run("structured.py") == "Anna is 31 years old.\n"
    text = "Give me a JSON object with name and age for Ella, 52."
    assert run("structured.py", "--text", text) == "Ella is 52 years old.\n"


def test_server_in_your_app() -> None:
    testclient = pytest.importorskip("starlette.testclient")
    pytest.importorskip("uvicorn")
    make_app = runpy.run_path(str(EXAMPLES / "server_in_your_app.py"))["make_app"]
    question, answer = next(iter(QUESTIONS.items()))
    messages = [{"role": "user", "content": question}]
    with AsyncMLCEngine("demo", "cpu", mode="server") as engine:
        client = testclient.TestClient(make_app(engine))
        assert client.get("/ask", params={"question": question}).text == f"{answer}\n"
        body = {"messages": messages, "temperature": 0}
        completion = client.post("/llm/v1/chat/completions", json=body).json()
        assert completion["choices"][0]["message"]["content"] == answer


# ----------------------------------------------------------------------------------- the server


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The server's address; it must end by itself when it is interrupted."""
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "async_server_of_your_own.py"), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, errors[-8000:]
        assert "Traceback" not in errors, errors[-8000:]
    finally:
        process.kill()


def connect(server: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(server).netloc, timeout=WAIT_S)


def post(server: str, body: str, path: str | None = None) -> tuple[int, str]:
    connection = connect(server)
    connection.request("POST", path or urlsplit(server).path, body)
    response = connection.getresponse()
    answer = response.read().decode()
    connection.close()
    return response.status, answer


def ask(**arguments: Any) -> str:
    question = next(iter(QUESTIONS))
    return json.dumps({"messages": [{"role": "user", "content": question}], **arguments})


def test_server_answers(server: str) -> None:
    status, answer = post(server, ask(temperature=0))
    assert status == 200
    assert json.loads(answer)["choices"][0]["message"]["content"] == next(iter(QUESTIONS.values()))


def test_server_streams(server: str) -> None:
    status, answer = post(server, ask(temperature=0, stream=True))
    assert status == 200
    *events, done = [line.removeprefix("data: ") for line in answer.split("\n\n") if line]
    assert done == "[DONE]"
    chunks = [json.loads(event) for event in events]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    assert text == next(iter(QUESTIONS.values()))


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, "{", "Expecting property name"),
        (400, "[]", "object"),
        (400, ask(temperature=-1), "temperature"),
        (400, ask(temprature=1), "temprature"),
        (400, ask(n="many"), "n: Input should be a valid integer"),
    ],
)
def test_server_refuses(server: str, status: int, body: str, message: str) -> None:
    answered, answer = post(server, body)
    assert answered == status
    assert message in json.loads(answer)["error"]["message"]


def test_server_survives_headers_that_are_too_long(server: str) -> None:
    """It closes the connection, without a traceback: the fixture looks for one."""
    connection = connect(server)
    with suppress(http.client.HTTPException, ConnectionError):
        connection.request("POST", urlsplit(server).path, "{}", {"x": "a" * 70000})
        connection.getresponse()
    connection.close()
    test_server_answers(server)


def test_server_has_one_path(server: str) -> None:
    status, answer = post(server, "", "/v1/models")
    assert status == 404
    assert "only POST" in json.loads(answer)["error"]["message"]


def test_server_survives_a_client_that_goes_away(server: str) -> None:
    body = ask(stream=True, max_tokens=1500, extra_body={"ignore_eos": True})
    connection = connect(server)
    connection.request("POST", urlsplit(server).path, body)
    response = connection.getresponse()
    assert response.readline().startswith(b"data: ")
    connection.close()
    response.close()
    test_server_answers(server)
