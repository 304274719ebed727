"""``mlc-native serve`` as a process: start, load, signals, drain."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import CHAT, USER, WAIT_S, events_of

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


class Process:
    """A running ``mlc-native serve``."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlc_native.cli.main", "serve", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**ENVIRONMENT, **environment},
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def wait_until_ready(self, client: httpx.Client | None = None) -> None:
        """Waits for the line that says so."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.rstrip().endswith("ready"):
                return
        pytest.fail("the server ended before it was ready")

    def end(self) -> str:
        """Waits for the end and returns what was logged."""
        _, errors = self.process.communicate(timeout=WAIT_S)
        return errors


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    processes: list[Process] = []

    def make(*arguments: str, **environment: str) -> Process:
        processes.append(Process(*arguments, **environment))
        return processes[-1]

    yield make
    for each in processes:
        each.process.kill()
        each.process.communicate()


@pytest.fixture
def start_fake(
    start: Callable[..., Process], make_model: Callable[..., str], fake_lib: str
) -> Callable[..., Process]:
    """start_fake(arguments, **fake): on the fake model, which is called "fake"."""

    def make(arguments: list[str], **fake: Any) -> Process:
        model = make_model(**fake)
        names = ["--served-model-name", "fake", "--model-lib", fake_lib, "--port", "0"]
        process = start(model, *names, *arguments)
        process.wait_until_ready()
        return process

    return make


def test_serve_demo(start: Callable[..., Process]) -> None:
    process = start("demo", "--port", "0", "--device", "cpu", MLC_NATIVE_API_KEY="k")
    assert process.url.startswith("http://127.0.0.1:")
    process.wait_until_ready()
    with httpx.Client(base_url=process.url, timeout=WAIT_S) as client:
        assert client.get("/ready").status_code == 200
        assert client.get("/v1/models").status_code == 401
        client.headers["authorization"] = "Bearer k"
        assert client.get("/v1/models").json()["data"][0]["id"] == "demo"
        question = [{"role": "user", "content": "What is the capital of France?"}]
        answer = client.post(CHAT, json={"messages": question, "temperature": 0}).json()
        assert "Paris" in answer["choices"][0]["message"]["content"]
    process.process.send_signal(signal.SIGTERM)
    errors = process.end()
    assert process.process.returncode == 0, errors
    assert "Traceback" not in errors


def test_a_signal_ends_a_load(
    start: Callable[..., Process], make_model: Callable[..., str], fake_lib: str
) -> None:
    model = make_model(load_parts=1_000_000, us_per_load_part=1000)  # 1,000 seconds
    process = start(model, "--model-lib", fake_lib, "--port", "0")
    with httpx.Client(base_url=process.url, timeout=WAIT_S) as client:
        assert client.get("/ready").status_code == 503
    process.process.send_signal(signal.SIGTERM)
    errors = process.end()
    assert process.process.returncode == 0, errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("num_streams", [0, 50])
def test_a_signal_lets_streams_end(start_fake: Callable[..., Process], num_streams: int) -> None:
    process = start_fake([], answer="a" * 200, us_per_step=3000, cost="sleep")
    body = {"messages": USER, "stream": True, "temperature": 0}
    with httpx.Client(base_url=process.url, timeout=WAIT_S) as client:
        streams = [client.stream("POST", CHAT, json=body) for _ in range(num_streams)]
        responses = [stream.__enter__() for stream in streams]  # headers: they are admitted
        process.process.send_signal(signal.SIGTERM)
        if num_streams:
            _wait_for_drain(client)
            refused = client.post(CHAT, json=body)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "shutting_down"
            assert client.get("/health").status_code == 200
        for response in responses:
            events = events_of(response.read().decode())
            text = "".join(e["choices"][0]["delta"].get("content", "") for e in events)
            assert text == "a" * 200
            assert events[-1]["choices"][0]["finish_reason"] == "stop"
        for stream in streams:
            stream.__exit__(None, None, None)
    errors = process.end()
    assert process.process.returncode == 0, errors
    assert "Traceback" not in errors


def _wait_for_drain(client: httpx.Client) -> None:
    while client.get("/ready").status_code != 503:
        pass


@pytest.mark.parametrize("how", ["second signal", "timeout"])
def test_the_end_of_requests_that_take_too_long(
    start_fake: Callable[..., Process], how: str
) -> None:
    timeout_s = 0.3 if how == "timeout" else 1000
    process = start_fake(["--shutdown-timeout", str(timeout_s)], us_per_step=100_000, cost="sleep")
    body = {"messages": USER, "max_tokens": 4000}
    with (
        httpx.Client(base_url=process.url, timeout=WAIT_S) as client,
        client.stream("POST", CHAT, json={**body, "stream": True}) as stream,
        ThreadPoolExecutor() as threads,
    ):
        plain = threads.submit(client.post, CHAT, json=body)
        while 'vllm:num_requests_running{engine="0",model_name="fake"} 2.0' not in (
            client.get("/metrics").text
        ):
            pass
        process.process.send_signal(signal.SIGINT)
        _wait_for_drain(client)
        if how == "second signal":
            process.process.send_signal(signal.SIGINT)
        events = events_of(stream.read().decode())
        assert events[-1]["error"]["code"] == "request_aborted"
        response = plain.result(WAIT_S)
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "request_aborted"
    errors = process.end()
    assert process.process.returncode == 0, errors
    assert "Traceback" not in errors


def test_several_models(
    start: Callable[..., Process], make_model: Callable[..., str], fake_lib: str
) -> None:
    one, two = make_model(answer="one"), make_model(answer="two")
    process = start(
        *(one, "--served-model-name", "first", "alias", "*", "--model-lib", fake_lib),
        *("--model", f"second={two};max_num_sequence=2", "--port", "0"),
    )
    process.wait_until_ready()
    with httpx.Client(base_url=process.url, timeout=WAIT_S) as client:
        names = [model["id"] for model in client.get("/v1/models").json()["data"]]
        assert names == ["first", "alias", "second"]
        for name, text in (("alias", "one"), ("second", "two"), ("claude-9", "one")):
            answer = client.post(CHAT, json={"messages": USER, "model": name}).json()
            assert answer["choices"][0]["message"]["content"] == text


def test_a_unix_socket(
    start: Callable[..., Process], start_fake: Callable[..., Process], tmp_path: Path
) -> None:
    path = str(tmp_path / "socket")
    process = start_fake(["--uds", path], answer="hello")
    assert process.url == f"unix:{path}"
    transport = httpx.HTTPTransport(uds=path)
    with httpx.Client(transport=transport, base_url="http://x", timeout=WAIT_S) as client:
        answer = client.post(CHAT, json={"messages": USER}).json()
        assert answer["choices"][0]["message"]["content"] == "hello"
        second = start("demo", "--uds", path)
        assert f"error: {path}: Address already in use" in second.end()
        assert second.process.returncode == 1
        assert client.get("/ready").status_code == 200
    process.process.kill()
    process.process.wait()
    start_fake(["--uds", path])  # in place of what the first one has left


def test_a_root_path_is_of_the_proxy(start_fake: Callable[..., Process]) -> None:
    process = start_fake(["--root-path", "/llm"])
    assert httpx.get(f"{process.url}/v1/models", timeout=WAIT_S).status_code == 200


def test_a_port_that_does_not_exist(start: Callable[..., Process]) -> None:
    process = start("demo", "--port", "70000")
    errors = process.end()
    assert process.process.returncode == 2
    assert '"port" must be in [0, 65535], got 70000' in errors


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes the certificate")
def test_tls(start_fake: Callable[..., Process], tmp_path: Path) -> None:
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-keyout", key, "-out", certificate, "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    process = start_fake(["--ssl-keyfile", key, "--ssl-certfile", certificate], answer="hello")
    assert process.url.startswith("https://127.0.0.1:")
    trusted = ssl.create_default_context(cafile=certificate)
    with httpx.Client(base_url=process.url, timeout=WAIT_S, verify=trusted) as client:
        response = client.post(CHAT, json={"messages": USER, "stream": True})
        events = events_of(response.text)
        assert "".join(e["choices"][0]["delta"].get("content", "") for e in events) == "hello"


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_the_extra(missing: str) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from mlc_native.cli.main import main\n"
        "sys.exit(main(['serve', 'demo', '--port', '0']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert done.returncode == 1, done.stderr
    assert 'pip install "mlc_native[serve]"' in done.stderr
    assert "Traceback" not in done.stderr


def test_the_access_log(start_fake: Callable[..., Process]) -> None:
    process = start_fake(["--access-log", "--api-key", "secret"], answer="hello")
    headers = {"x-api-key": "secret", "x-request-id": "r-1"}
    with httpx.Client(base_url=process.url, timeout=WAIT_S, headers=headers) as client:
        client.post(CHAT, json={"messages": [{"role": "user", "content": "private"}]})
    process.process.send_signal(signal.SIGTERM)
    errors = process.end()
    (line,) = [line for line in errors.splitlines() if "r-1" in line]
    entry = json.loads(line[line.index("{") :])
    assert entry["path"] == CHAT
    assert entry["status"] == 200
    assert "private" not in errors
    assert "secret" not in errors


@pytest.mark.parametrize(
    ("arguments", "message", "status"),
    [
        ([], "MODEL", 2),
        (["/nothing/here"], "/nothing/here", 1),
        (["demo", "--model", "nothing"], "NAME=MODEL", 2),
        (["demo", "--model", "demo=demo"], "demo", 2),
        (["demo", "--max-body-bytes", "0"], "max_body_bytes", 2),
        (["demo", "--host", "203.0.113.1", "--api-key", "k"], "error", 1),
        (["demo", "--api-key", ""], "--api-key must not be empty", 2),
        (["demo", "--max-num-sequence", "-3"], "max_num_sequence", 2),
        (["demo", "--header-timeout", "0"], "header_timeout_s", 2),
        (["demo", "--max-connections", "-1"], "max_connections", 2),
        (["demo", "--shutdown-timeout", "-1"], "shutdown_timeout", 2),
        (["demo", "--ssl-certfile", "/nothing.pem"], 'there is no file "/nothing.pem"', 2),
        (["demo", "--ssl-keyfile", "/nothing.pem"], '"ssl_keyfile" needs "ssl_certfile"', 2),
        (["demo", "--ssl-certfile", __file__], "the certificate and the key cannot be used", 2),
        (["demo", "--uds", "/nothing/here"], "error: /nothing/here: No such file", 1),
    ],
    ids=str,
)
def test_wrong_arguments(
    start: Callable[..., Process], arguments: list[str], message: str, status: int
) -> None:
    process = start(*arguments, "--port", "0")
    errors = process.end()
    assert process.process.returncode == status, errors
    assert message in errors
    assert "Traceback" not in errors
