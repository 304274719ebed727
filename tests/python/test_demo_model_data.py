"""The shipped demo model and its draft: complete, small, honest, and right, as `transformers`
reads them. Our own engine's answers are tested elsewhere against the same questions."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]
MAIN = ROOT / "mlc_native" / "demo_model"
DRAFT = MAIN / "draft"
QUESTIONS = json.loads((Path(__file__).parent / "data" / "demo_questions.json").read_text())

sys.path.insert(0, str(ROOT / "tools"))
from demo_model import facts, numbers_text, text  # noqa: E402
from demo_model.batches import batches, learned_mask  # noqa: E402
from demo_model.tokenizer import render, template  # noqa: E402
from demo_model.tools_text import TOOLS, call_text  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
         "generation_config.json", "training.json")  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(MAIN)


def prompt_ids(tokenizer: Any, messages: list[dict[str, Any]], tools: Any = None) -> torch.Tensor:
    """[1, length] ids of a chat, ready for the assistant's answer."""
    prompt = tokenizer.apply_chat_template(
        messages, tools=tools, tokenize=False, add_generation_prompt=True
    )
    return torch.tensor([tokenizer(prompt, add_special_tokens=False)["input_ids"]])


def generate(model: Any, tokenizer: Any, ids: torch.Tensor) -> str:
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=100, do_sample=False
    )
    return tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)


@pytest.mark.parametrize("kind", ["eagle3", "mtp"])
def test_heads(kind: str) -> None:
    """Their training.json tells what they were trained for, and together they take 2 MB."""
    told = json.loads((MAIN / kind / "training.json").read_text())
    assert (
        told["target_training_steps"] == json.loads((MAIN / "training.json").read_text())["steps"]
    )
    first, _, third = told["taken"]
    assert first > 0.85
    assert third > 0.6
    with safe_open(MAIN / kind / "model.safetensors", "pt") as file:
        names = file.keys()
        sizes = [math.prod(file.get_slice(name).get_shape()) for name in names]
    assert sum(sizes) - 512 * (kind == "eagle3") == told["parameters"]  # without d2t
    assert sum(f.stat().st_size for f in MAIN.glob("[em]*/model.safetensors")) <= 2_000_000


@pytest.mark.parametrize("folder", [MAIN, DRAFT], ids=["main", "draft"])
def test_folder_is_complete(folder: Path) -> None:
    assert [name for name in FILES if not (folder / name).is_file()] == []
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["tie_word_embeddings"] is True
    assert config["vocab_size"] % 64 == 0
    assert config["max_position_embeddings"] == 2048
    with safe_open(folder / "model.safetensors", "pt") as weights:
        assert "lm_head.weight" not in weights.keys()  # noqa: SIM118
        assert {str(weights.get_tensor(k).dtype) for k in weights.keys()} == {"torch.bfloat16"}  # noqa: SIM118


def test_both_models_fit_in_the_repository() -> None:
    files = [path for path in MAIN.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 20e6


def test_tokenizers_are_equal() -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (MAIN / name).read_bytes() == (DRAFT / name).read_bytes()


def test_generation_stops_at_both_ends(tokenizer: Any) -> None:
    expected = [tokenizer.convert_tokens_to_ids(token) for token in ("<|end|>", "<|eos|>")]
    for folder in (MAIN, DRAFT):
        config = json.loads((folder / "generation_config.json").read_text())
        assert config["eos_token_id"] == expected


@pytest.mark.parametrize("folder", [MAIN, DRAFT], ids=["main", "draft"])
def test_training_record_agrees_with_the_weights(folder: Path) -> None:
    told = json.loads((folder / "training.json").read_text())
    with safe_open(folder / "model.safetensors", "pt") as weights:
        stored = sum(weights.get_tensor(k).numel() for k in weights.keys())  # noqa: SIM118
    assert told["parameters"] == stored
    assert told["steps"] == told["recipe"]["cycles"][-1]["end"]
    assert "seed" in told["recipe"]
    assert told["data"]["learned_tokens"] < told["data"]["tokens"] <= 2048 * told["steps"]
    assert 0 < told["train_loss"] < 1
    assert 0 < told["held_out_loss"] < 1
    assert told["seconds"] > 0
    assert told["data"]["documents"] > 0


def test_text_generator_is_deterministic() -> None:
    def first(seed: int) -> list[text.Example]:
        return list(itertools.islice(text.examples(seed), 300))

    assert first(5) == first(5)
    assert first(5) != first(6)


def test_arithmetic_text_is_right_and_leaves_held_out_pairs_out() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        a, op, b, value = re.fullmatch(
            r"(\d+) ([-+*]) (\d+) = (\d+)", numbers_text.arithmetic(rng).answer
        ).groups()  # type: ignore[union-attr]
        right = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[op]
        assert right == int(value)
        assert not numbers_text.is_held_out(int(a), int(b))


def test_opposites_have_one_answer() -> None:
    words = [word for pair in facts.OPPOSITES for word in pair]
    assert len(words) == len(set(words))


def test_only_the_assistant_is_learned_in_chats() -> None:
    core = Tokenizer.from_file(str(MAIN / "tokenizer.json"))
    messages = [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Hi you"}]
    ids = core.encode(render(template(), text.Example(messages))).ids
    learned = [token for token, take in zip(ids, learned_mask(ids), strict=True) if take]
    assert core.decode(learned, skip_special_tokens=False) == "Hi you<|end|>"


def test_rows_hold_whole_documents_that_do_not_see_each_other() -> None:
    batch = next(batches(Tokenizer.from_file(str(MAIN / "tokenizer.json")), 3))
    mask = batch.attention_mask()[:, 0]
    rows, queries, keys = mask.nonzero(as_tuple=True)
    assert bool((keys <= queries).all())
    assert bool((batch.document[rows, queries] == batch.document[rows, keys]).all())
    assert bool(mask.diagonal(dim1=1, dim2=2).all())


def test_any_text_round_trips(tokenizer: Any) -> None:
    for sample in ("  two  spaces\n\ttab", "Ünïcödé 日本語 🙂", '{"a": [1, 22]}', "\x00\x7f"):
        ids = tokenizer(sample, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids) == sample
    assert len(tokenizer("1234")["input_ids"]) == 4


def test_chat_template_equals_the_training_text(tokenizer: Any) -> None:
    compiled = template()
    chats = (e for e in text.examples(9) if e.text is None)
    for example in itertools.islice(chats, 100):
        rendered = tokenizer.apply_chat_template(
            example.messages, tools=example.tools, tokenize=False
        )
        assert rendered == render(compiled, example)


def test_chat_template_renders_tool_calls_of_both_forms(tokenizer: Any) -> None:
    arguments = {"city": "Paris"}
    for form in (arguments, json.dumps(arguments)):
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": form}}
        messages = [
            {"role": "user", "content": "Go"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "done"},
        ]
        rendered = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        assert rendered == (
            f"<|bos|><|user|>Go<|end|><|assistant|>{call_text('f', arguments)}<|end|>"
            "<|user|><tool_response>done</tool_response><|end|><|assistant|>"
        )


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, pytest.param(torch.bfloat16, marks=[pytest.mark.slow, pytest.mark.nightly])],
    ids=str,
)
def test_questions_are_answered(tokenizer: Any, dtype: torch.dtype) -> None:
    assert len(QUESTIONS) == 23
    model = AutoModelForCausalLM.from_pretrained(MAIN, dtype=dtype)
    given = {}
    for entry in QUESTIONS:
        ids = prompt_ids(tokenizer, [{"role": "user", "content": entry["question"]}])
        given[entry["question"]] = generate(model, tokenizer, ids)
    assert given == {entry["question"]: entry["answer"] for entry in QUESTIONS}


def test_a_listed_tool_is_called_and_its_result_used(tokenizer: Any) -> None:
    model = AutoModelForCausalLM.from_pretrained(MAIN, dtype=torch.float32)
    tools = [TOOLS["get_weather"]]
    messages: list[dict[str, Any]] = [{"role": "user", "content": "What is the weather in Paris?"}]
    called = generate(model, tokenizer, prompt_ids(tokenizer, messages, tools))
    assert called == call_text("get_weather", {"city": "Paris"})
    messages.append({"role": "assistant", "content": called})
    messages.append({"role": "tool", "content": '{"temperature": 21, "sky": "sunny"}'})
    answer = generate(model, tokenizer, prompt_ids(tokenizer, messages, tools))
    assert answer == "It is 21 degrees and sunny in Paris."


def test_a_name_told_earlier_is_remembered(tokenizer: Any) -> None:
    model = AutoModelForCausalLM.from_pretrained(MAIN, dtype=torch.float32)
    messages = [
        {"role": "user", "content": "My name is Alice."},
        {"role": "assistant", "content": "Nice to meet you, Alice!"},
        {"role": "user", "content": "What is my name?"},
    ]
    assert generate(model, tokenizer, prompt_ids(tokenizer, messages)) == "Your name is Alice."


def test_draft_agrees_with_the_main_model_on_most_tokens(tokenizer: Any) -> None:
    """What speculation lives from: teacher-forced on the answers, the same greedy token."""
    models = [AutoModelForCausalLM.from_pretrained(f, dtype=torch.float32) for f in (MAIN, DRAFT)]
    same = total = 0
    for entry in QUESTIONS:
        prompt = prompt_ids(tokenizer, [{"role": "user", "content": entry["question"]}])
        tail = torch.tensor([tokenizer(entry["answer"], add_special_tokens=False)["input_ids"]])
        ids = torch.cat([prompt, tail], dim=1)
        with torch.no_grad():
            main, draft = (m(ids).logits[0, prompt.shape[1] - 1 :].argmax(-1) for m in models)
        same += int((main == draft).sum())
        total += main.numel()
    assert same / total > 0.7
