"""The app of docs/guide.md on FastAPI: one engine for the app and for OpenAI's clients."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from conftest import Server
from demo_chat import ANSWER, ASK, QUESTION, WAIT_S

pytest.importorskip("fastapi")
PROGRAM = str(Path(__file__).parent / "fastapi_app.py")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = Server(sysconfig.get_path("purelib"), program=(PROGRAM,), prefix="/llm")
    yield server.url
    server.stop()  # which ends the lifespan, and with it the engine


def test_a_page_of_the_app(url: str) -> None:
    answer = httpx.get(f"{url}/ask", params={"question": QUESTION}, timeout=WAIT_S)
    assert (answer.status_code, answer.json()) == (200, ANSWER)
    assert "/ask" in httpx.get(f"{url}/openapi.json", timeout=WAIT_S).json()["paths"]


def test_an_error_of_the_engine(url: str) -> None:
    answer = httpx.get(f"{url}/ask", params={"question": "x " * 20_000}, timeout=WAIT_S)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    missing = httpx.get(f"{url}/ask", timeout=WAIT_S)
    assert missing.status_code == 422  # FastAPI's own


def test_the_mounted_server(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/llm/v1", api_key="none", timeout=WAIT_S) as client:
        assert len(list(client.models.list())) == 1
        plain = client.chat.completions.create(model="demo", messages=ASK, temperature=0)
        assert plain.choices[0].message.content == ANSWER
        chunks = client.chat.completions.create(
            model="demo", messages=ASK, temperature=0, stream=True
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model="demo", messages=ASK, temperature=-1)
        assert refused.value.param == "temperature"
    paths = httpx.get(f"{url}/llm/openapi.json", timeout=WAIT_S).json()["paths"]
    assert "/v1/chat/completions" in paths
