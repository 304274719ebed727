"""Replicas on a local Ray: equal answers, prompts that meet their cache, one that dies, one more
under load.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_model import find_fake_model_lib, write_model

pytest.importorskip("ray")
pytest.importorskip("starlette")

import ray
from ray import serve

from mlc_native import MLCEngine
from mlc_native.server.ray import Settings, build_app

pytestmark = [pytest.mark.nightly, pytest.mark.hangs_after(900)]
WAIT_S = 240
NAMESPACE = "serve"
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a local Ray Serve without applications."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    paths = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100 << 20,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    ray.shutdown()


def serve_replicas(model: str, at_least: int, at_most: int, **settings: Any) -> None:
    fields = {"model": model, "device": "cpu", "num_cpus": 0.1, **settings}
    serve.run(build_app(Settings(**fields, min_replicas=at_least, max_replicas=at_most)))


def replica_names() -> set[str]:
    actors = ray.util.list_named_actors(all_namespaces=True)
    return {each["name"] for each in actors if "#Replica#" in each["name"]}


def test_answers_are_those_of_one_engine_and_prompts_meet_their_cache(url: str) -> None:
    serve_replicas("demo", 2, 2, engine_config={"max_total_sequence_length": 8192})
    fields = {"max_tokens": 8, "temperature": 0}
    prompts = [f"{name} likes to play with a ball. " * 60 for name in ("Tom", "Ann", "Sue")]
    with MLCEngine("demo", "cpu") as engine:
        expected = [
            engine.completions.create(prompt=prompt, **fields).choices[0].text  # type: ignore[arg-type]
            for prompt in prompts
        ]
    with httpx.Client(base_url=url, timeout=WAIT_S) as client:
        for turn in range(3):
            for prompt, text in zip(prompts, expected, strict=True):
                answer = client.post("/v1/completions", json={"prompt": prompt, **fields}).json()
                assert answer["choices"][0]["text"] == text
                cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                assert (cached > answer["usage"]["prompt_tokens"] * 0.8) == (turn > 0)
        body = {"prompt": prompts[0], **fields, "stream": True}
        streamed = client.post("/v1/completions", json=body).text
        assert streamed.endswith("data: [DONE]\n\n")
        assert client.post("/v1/completions", content=b"{").status_code == 400
        assert client.get("/health").status_code == 200


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


class Stream:
    """A streamed answer, read by a thread of its own."""

    def __init__(self, client: httpx.Client, prompt: str, max_tokens: int) -> None:
        self.begun = threading.Event()
        self.text = ""
        body = {"prompt": prompt, "max_tokens": max_tokens, "stream": True, "ignore_eos": True}
        self._thread = threading.Thread(target=self._read, args=(client, body))
        self._thread.start()

    def _read(self, client: httpx.Client, body: dict[str, Any]) -> None:
        with client.stream("POST", "/v1/completions", json=body) as response:
            for text in response.iter_text():
                self.text += text
                self.begun.set()

    @property
    def failed(self) -> bool:
        last = [line for line in self.text.split("\n") if line.startswith("data: {")][-1]
        return "error" in json.loads(last.removeprefix("data: "))

    def wait(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


def test_a_replica_that_dies_takes_its_own_streams_only(url: str, tmp_path: Path) -> None:
    # 300 steps of at least 20 ms each, so that the streams are alive when the replica is killed.
    model = write_model(tmp_path / "slow", cost="sleep", us_per_step=20_000)
    serve_replicas(model, 2, 2, model_lib=find_fake_model_lib())
    before = replica_names()
    assert len(before) == 2
    with httpx.Client(base_url=url, timeout=WAIT_S) as client:
        streams = []
        for letter in "ab":  # the second one goes to the replica that has nothing to do
            streams.append(Stream(client, letter * 300, 300))
            assert streams[-1].begun.wait(WAIT_S)
        ray.kill(ray.get_actor(min(before), namespace=NAMESPACE))
        for stream in streams:
            stream.wait()
        assert [stream.failed for stream in streams].count(True) == 1
        assert all("[DONE]" in stream.text for stream in streams if not stream.failed)
        await_that(lambda: len(replica_names() - {min(before)}) >= 2)
        answer = client.post("/v1/completions", json={"prompt": "x", "max_tokens": 2})
        assert answer.status_code == 200


def test_requests_that_last_start_another_replica(url: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "slow", cost="sleep", us_per_step=20_000)
    others = replica_names()
    serve_replicas(model, 1, 2, model_lib=find_fake_model_lib(), target_ongoing_requests=1)
    await_that(lambda: len(replica_names() - others) == 1)
    is_enough = threading.Event()
    statuses: list[int] = []

    def ask(letter: str) -> None:
        while not is_enough.is_set():
            body = {"prompt": letter * 300, "max_tokens": 50, "ignore_eos": True}
            statuses.append(client.post("/v1/completions", json=body).status_code)

    with httpx.Client(base_url=url, timeout=WAIT_S) as client:
        askers = [threading.Thread(target=ask, args=(letter,)) for letter in "abcd"]
        for asker in askers:
            asker.start()
        try:
            await_that(lambda: len(replica_names() - others) == 2)
        finally:
            is_enough.set()
            for asker in askers:
                asker.join()
    assert set(statuses) == {200}
