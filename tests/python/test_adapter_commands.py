"""Adapters on the command line: ``chat``, ``generate`` and the server of PopenServer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from adapter_folders import write_demo_adapters

from mlc_native import EngineConfig, MLCEngine
from mlc_native.cli.main import main
from mlc_native.cli.overrides import engine_config_from_overrides
from mlc_native.serve import PopenServer

QUESTION = "What is the capital of France?"
FLAGS = ("--device", "cpu", "--num-threads", "1", "--dtype", "float32")
GREEDY = ("--temperature", "0", "--max-tokens", "12")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_demo_adapters(tmp_path_factory.mktemp("adapters"))


@pytest.fixture(scope="module")
def expected(folders: dict[str, Path]) -> dict[str, str]:
    """What each adapter answers, by its name; "": the model."""
    settings: dict[str, Any] = {"dtype": "float32", "num_threads": 1, "adapters": folders}
    with MLCEngine("demo", "cpu", verbose=False, **settings) as engine:
        chats = [
            {"messages": [{"role": "user", "content": QUESTION}], "adapter": name}
            for name in ("", "a", "b")
        ]
        results = engine.generate(chats, temperature=0, max_tokens=12)
    texts = [result.text for result in results]
    assert len(set(texts)) == 3
    return dict(zip(("", "a", "b"), texts, strict=True))


def entries(folders: dict[str, Path]) -> list[str]:
    return [f"{name}={folder}" for name, folder in folders.items()]


def chat(*arguments: str) -> int:
    return main(["chat", "demo", "--no-history", *FLAGS, *GREEDY, *arguments])


def test_a_chat_with_an_adapter(
    folders: dict[str, Path], expected: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    adapters = ("--adapters", *entries(folders))
    for name, text in expected.items():
        chosen = ("--adapter", name) if name else ()
        assert chat(*adapters, *chosen, "--prompt", QUESTION) == 0
        assert capsys.readouterr().out.strip() == text.strip()
    turns = [
        QUESTION,
        "/reset",
        "/set adapter=b",
        QUESTION,
        "/reset",
        "/set adapter=default",
        QUESTION,
    ]
    assert chat(*adapters, *(word for turn in turns for word in ("--prompt", turn))) == 0
    out = capsys.readouterr().out
    assert out.count(expected[""].strip()) >= 2
    assert expected["b"].strip() in out


def test_an_adapter_that_is_not_there(
    folders: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat("--adapter", "a", "--prompt", QUESTION) == 2
    assert "adapter" in capsys.readouterr().err
    assert chat("--adapters", "a=/no/such/folder", "--prompt", QUESTION) == 1
    assert "/no/such/folder" in capsys.readouterr().err
    assert chat("--adapters", "a", "--prompt", QUESTION) == 2
    assert "adapters" in capsys.readouterr().err
    turns = ("--prompt", "/set adapter=c", "--prompt", QUESTION)
    assert chat("--adapters", *entries(folders), *turns) == 1
    assert '"a", "b"' in capsys.readouterr().err


def test_a_batch(folders: dict[str, Path], expected: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    chosen = [{}, {"adapter": "a"}, {"model": "b"}, {"model": "demo"}, {"adapter": "c"}]
    body = {
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": 12,
    }
    lines = [
        {"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions", "body": body | each}
        for i, each in enumerate(chosen)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["generate", str(file), "--model", "demo", *FLAGS]
    assert main([*command, "--adapters", *entries(folders)]) == 1  # one has failed
    found = {}
    for line in (tmp_path / "requests.out.jsonl").read_text().splitlines():
        answer = json.loads(line)
        found[answer["custom_id"]] = answer
    texts = [
        found[str(i)]["response"]["body"]["choices"][0]["message"]["content"] for i in range(4)
    ]
    assert texts == [expected[name] for name in ("", "a", "b", "")]
    assert "adapter" in json.dumps(found["4"])


def test_the_settings_of_a_server_process(folders: dict[str, Path]) -> None:
    for adapters in (folders, entries(folders)):
        config = EngineConfig(adapters=adapters, max_num_sequence=2)  # type: ignore[arg-type]
        overrides = PopenServer("demo", engine_config=config).command()[-1]
        parsed = engine_config_from_overrides(overrides)
        assert parsed == EngineConfig(adapters=entries(folders), max_num_sequence=2)
