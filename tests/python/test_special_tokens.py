"""What the tokenizer puts around a text (BOS) is put around the prompts that are texts, once."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from facades import ALL_FACADES, OPENAI_FACADES
from fake_model import EOS, write_tokenizer
from tokenizers import Tokenizer as HFTokenizer
from tokenizers.processors import TemplateProcessing

from mlc_native import SyncMLCEngine
from mlc_native.errors import LoadError
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve.data import TextData, TokenData
from mlc_native.serve.request_processing import prompt_token_ids
from mlc_native.tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

DEMO = Path(__file__).resolve().parents[2] / "mlc_native" / "demo_model"
GREEDY = GenerationConfig(temperature=0, max_tokens=8)
PROMPT = "Once upon a time"


def with_post_processor(folder: Path, single: str, special: list[tuple[str, int]]) -> None:
    """Writes a post-processor into the tokenizer.json of a folder."""
    path = str(folder / "tokenizer.json")
    tokenizer = HFTokenizer.from_file(path)
    tokenizer.post_processor = TemplateProcessing(single=single, special_tokens=special)
    tokenizer.save(path)


def configure(folder: Path, **fields: Any) -> None:
    """Changes fields of tokenizer_config.json."""
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(config | fields))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer of one token per byte that puts <|end|> in front of a text."""
    write_tokenizer(tmp_path)
    with_post_processor(tmp_path, "<|end|> $A", [("<|end|>", EOS)])
    return tmp_path


# ------------------------------------------------------------------------------- which tokens


@pytest.mark.parametrize(
    ("config", "front"),
    [
        ({}, [EOS]),
        ({"bos_token": "<|end|>"}, [EOS]),
        ({"bos_token": "<|end|>", "add_bos_token": True}, [EOS]),
        ({"bos_token": "<|end|>", "add_bos_token": False}, []),
        ({"bos_token": {"content": "<|end|>"}, "add_bos_token": False}, []),
        ({"bos_token": "a", "add_bos_token": True}, [97, EOS]),
        ({"bos_token": "a", "add_bos_token": False}, [EOS]),
        ({"bos_token": "not in the vocabulary", "add_bos_token": True}, [EOS]),
        ({"bos_token": None, "add_bos_token": False}, [EOS]),
    ],
)
def test_add_bos_token_decides(folder: Path, config: dict[str, Any], front: list[int]) -> None:
    configure(folder, **config)
    assert prompt_token_ids("xy", Tokenizer(folder)) == [*front, 120, 121]


def test_a_tokenizer_without_post_processor(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    assert prompt_token_ids("xy", Tokenizer(tmp_path)) == [120, 121]
    configure(tmp_path, bos_token="<|end|>", add_bos_token=True)
    assert prompt_token_ids("xy", Tokenizer(tmp_path)) == [EOS, 120, 121]
    (tmp_path / "tokenizer_config.json").write_text("[")
    with pytest.raises(LoadError, match="tokenizer_config"):
        Tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("xy", [EOS, 120, 121]),
        ("", [EOS]),
        ("<|end|>xy", [EOS, 120, 121]),  # once
        ("<|end|><|end|>x", [EOS, EOS, 120]),
        (TextData("x"), [EOS, 120]),
        ([TextData("x"), TokenData([7])], [EOS, 120, 7]),
        (["x", [7], "y"], [EOS, 120, 7, 121]),
        ([120, 121], [120, 121]),  # token ids are what the caller wants
        ([TokenData([7]), "x"], [7, 120]),
        ([], []),
    ],
)
def test_kinds_of_prompts(folder: Path, prompt: Any, expected: list[int]) -> None:
    tokenizer = Tokenizer(folder)
    assert prompt_token_ids(prompt, tokenizer) == expected
    plain = prompt_token_ids(prompt, tokenizer, add_special_tokens=False)
    assert plain in (expected, expected[1:])
    assert tokenizer.encode("xy") == [120, 121]


def test_tokens_behind_a_text(folder: Path) -> None:
    special = [("<|end|>", EOS), ("a", 97)]
    with_post_processor(folder, "<|end|> $A a", special)
    tokenizer = Tokenizer(folder)
    assert prompt_token_ids("x", tokenizer) == [EOS, 120, 97]
    assert prompt_token_ids("xa", tokenizer) == [EOS, 120, 97]
    assert prompt_token_ids(["x", [7]], tokenizer) == [EOS, 120, 7]


# -------------------------------------------------------------------------- through the engines


@pytest.fixture(scope="module")
def bos_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama whose tokenizer puts <|bos|> in front of a text, as Llama's does."""
    pytest.importorskip("transformers")
    from make_random_checkpoint import BOS_ID, make_checkpoint

    path = make_checkpoint("tiny-llama", tmp_path_factory.mktemp("bos") / "m")
    with_post_processor(path, "<|bos|> $A", [("<|bos|>", BOS_ID)])
    return path


@pytest.fixture(scope="module")
def expected(bos_model: Path) -> dict[str, str]:
    """The answers to transformers' tokens of PROMPT, with and without special tokens."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(bos_model)
    prompts = [tokenizer(PROMPT, add_special_tokens=add)["input_ids"] for add in (True, False)]
    assert len(prompts[0]) == len(prompts[1]) + 1
    engine = SyncMLCEngine(str(bos_model), "cpu")
    answers, _ = engine.generate(prompts, GREEDY)
    assert answers[0] != answers[1]
    return {"with": answers[0][0], "without": answers[1][0]}


@pytest.fixture(params=ALL_FACADES)
def any_engine(request: pytest.FixtureRequest, bos_model: Path) -> Iterator[Any]:
    made: Any = ALL_FACADES[request.param](str(bos_model), device="cpu")
    yield made
    made.terminate()


@pytest.fixture(params=OPENAI_FACADES)
def openai_engine(request: pytest.FixtureRequest, bos_model: Path) -> Iterator[Any]:
    made: Any = OPENAI_FACADES[request.param](str(bos_model), device="cpu")
    yield made
    made.terminate()


def test_generate(any_engine: Any, expected: dict[str, str]) -> None:
    assert any_engine.generate(PROMPT, GREEDY).texts == [expected["with"]]
    assert any_engine.generate("<|bos|>" + PROMPT, GREEDY).texts == [expected["with"]]


def test_generate_of_the_sync_engine(bos_model: Path, expected: dict[str, str]) -> None:
    engine = SyncMLCEngine(str(bos_model), "cpu")
    assert engine.generate(PROMPT, GREEDY)[0] == [[expected["with"]]]
    assert engine.generate([PROMPT], GREEDY, add_special_tokens=False)[0] == [[expected["without"]]]


def test_completions(openai_engine: Any, expected: dict[str, str]) -> None:
    def complete(prompt: str, **fields: Any) -> Any:
        return openai_engine.complete(prompt=prompt, temperature=0, max_tokens=8, **fields)

    response = complete(PROMPT)
    assert response.choices[0].text == expected["with"]
    assert response.usage.prompt_tokens == len(PROMPT) + 1
    assert complete("<|bos|>" + PROMPT).usage.prompt_tokens == len(PROMPT) + 1
    assert complete(PROMPT, echo=True).choices[0].text == PROMPT + expected["with"]
    plain = complete(PROMPT, extra_body={"add_special_tokens": False})
    assert plain.choices[0].text == expected["without"]
    assert plain.usage.prompt_tokens == len(PROMPT)
    streamed = openai_engine.complete(prompt=PROMPT, temperature=0, max_tokens=8, stream=True)
    assert "".join(c.choices[0].text for c in streamed) == expected["with"]


def test_chats_have_what_their_template_writes(openai_engine: Any) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    template = openai_engine.engine.conv_template.render(messages)
    num_tokens = len(openai_engine.engine.tokenizer.encode(template))
    chat = openai_engine.chat(messages=messages, max_tokens=1)
    assert chat.usage.prompt_tokens == num_tokens
    extra = {"add_special_tokens": True}
    chat = openai_engine.chat(messages=messages, max_tokens=1, extra_body=extra)
    assert chat.usage.prompt_tokens == num_tokens + 1


@pytest.fixture
def pin(any_engine: Any) -> Callable[..., int]:
    """pin(prompt, ...) pins it and returns the number of its tokens."""
    engine = any_engine.engine

    def run(result: Any) -> Any:
        return any_engine.run(result) if asyncio.iscoroutine(result) else result

    def pin_it(prompt: str, **arguments: Any) -> int:
        pin_id = run(engine.pin_prefix(prompt, **arguments))
        pins = {pinned.id: pinned.num_tokens for pinned in run(engine.pinned_prefixes())}
        run(engine.unpin_prefix(pin_id))
        return int(pins[pin_id])

    return pin_it


def test_pins(pin: Callable[..., int]) -> None:
    assert pin(PROMPT) == len(PROMPT) + 1
    assert pin("<|bos|>" + PROMPT) == len(PROMPT) + 1
    assert pin(PROMPT, add_special_tokens=False) == len(PROMPT)


def test_the_demo_model_with_add_bos_token(tmp_path: Path) -> None:
    for path in DEMO.iterdir():
        if path.is_file() and path.name != "tokenizer_config.json":
            os.symlink(path, tmp_path / path.name)
    shutil.copy(DEMO / "tokenizer_config.json", tmp_path)
    configure(tmp_path, add_bos_token=True)
    engine, plain = SyncMLCEngine(str(tmp_path), "cpu"), SyncMLCEngine("demo", "cpu")
    prompt = "<|user|>What is 2 + 3?<|end|><|assistant|>"
    assert engine.generate(prompt, GREEDY) == plain.generate("<|bos|>" + prompt, GREEDY)
