"""Chats with images: what the engine reads and answers, against transformers."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from fake_model import find_test_library
from families import some_at_night
from image_folders import MODELS, make_image_model, picture

from mlc_native import EngineConfig, MLCEngine
from mlc_native.protocol.mlc_chat_config import MLCChatConfig
from mlc_native.protocol.openai_api_protocol import ChatCompletionRequest
from mlc_native.serve.chat_prompt import chat_prompt
from mlc_native.serve.data import EmbeddingData
from mlc_native.serve.images.chat import ChatImages
from mlc_native.serve.images.encoder import ImageEncoder
from mlc_native.serve.images.families import FAMILIES
from mlc_native.serve.images.tower import load_processor
from mlc_native.serve.model_setup import load_tokenizer

IN_EVERY_RUN = {
    "gemma3", "idefics3", "internvl", "lighton_ocr", "llava", "llava-pixtral", "llava_next",
    "llava_onevision", "mistral3", "qwen2_5_vl", "qwen3_vl", "video_llama_3",
}  # fmt: skip
SOME_AT_NIGHT = some_at_night(list(MODELS), IN_EVERY_RUN)

WIDE, TALL = picture(1, 40, 28), picture(2, 10, 33)
TEXT = {"type": "text", "text": "What is\nthis?"}
CHATS: dict[str, list[dict[str, Any]]] = {
    "one": [{"role": "user", "content": [{"type": "image", "image": WIDE}, TEXT]}],
    "adjacent": [
        {"role": "user", "content": [{"type": "image", "image": i} for i in (WIDE, TALL)] + [TEXT]}
    ],
    "turns": [
        {"role": "user", "content": [TEXT, {"type": "image", "image": TALL}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Nothing."}]},
        {
            "role": "user",
            "content": [{"type": "image", "image": WIDE}, {"type": "text", "text": "?"}],
        },
    ],
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("images")
    return cache(lambda name: make_image_model(name, root / name))


@cache
def whole_model(folder: Path) -> Any:
    """The model of transformers, with its language model."""
    return transformers.AutoModelForImageTextToText.from_pretrained(
        folder, dtype=torch.float32
    ).eval()


def their_inputs(folder: Path, name: str, messages: list[dict[str, Any]]) -> Any:
    """What transformers makes of a chat: all its images at once."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    images = [part["image"] for m in messages for part in m["content"] if part["type"] == "image"]
    if MODELS[name].processor["processor_class"] == "PixtralProcessor":
        return pixtral_inputs(folder, tokenizer, text, images)
    processor = load_processor(folder, name, 0)
    return processor(
        images=images if name == "got_ocr2" else [images],
        text=[text],
        add_special_tokens=False,
        return_tensors="pt",
    )


def pixtral_inputs(folder: Path, tokenizer: Any, text: str, images: list[Any]) -> Any:
    """What PixtralProcessor makes, which needs torchvision: each row of patches ends a line."""
    settings = json.loads((folder / "processor_config.json").read_text())
    size = settings["patch_size"] * settings.get("spatial_merge_size", 1)
    image_processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    inputs = image_processor(images, patch_size=size, return_tensors="pt")
    before, *others = text.split("[IMG]")
    for (height, width), after in zip(inputs["image_sizes"].tolist(), others, strict=True):
        lines = ["[IMG]" * (width // size) + "[IMG_BREAK]"] * (height // size)
        before += "".join(lines).removesuffix("[IMG_BREAK]") + "[IMG_END]" + after
    return {**inputs, **tokenizer([before], add_special_tokens=False, return_tensors="pt")}


def their_rows(model: Any, inputs: Any) -> np.ndarray:
    """The embeddings that the language model of transformers is given."""
    seen: list[torch.Tensor] = []

    def take(_module: Any, _args: Any, kwargs: Any) -> None:
        seen.append(kwargs["inputs_embeds"])

    language_model = model.get_decoder()
    with torch.inference_mode():
        hook = language_model.register_forward_pre_hook(take, with_kwargs=True)
        model(**inputs)
        hook.remove()
    return seen[0][0].numpy()


def our_pieces(folder: Path, messages: list[dict[str, Any]]) -> list[Any]:
    tokenizer, template = load_tokenizer(folder, MLCChatConfig.from_folder(folder))
    assert tokenizer is not None
    images = ChatImages(ImageEncoder.of_folder(folder), 4096)
    request = ChatCompletionRequest(messages=messages)
    text = chat_prompt(request, template, EngineConfig(), images)
    return images.pieces(text, tokenizer, add_special_tokens=False)


@pytest.mark.parametrize("name", SOME_AT_NIGHT)
@pytest.mark.parametrize("chat", CHATS)
def test_rows_are_those_of_transformers(folders: Any, name: str, chat: str) -> None:
    folder = folders(name)
    model = whole_model(folder)
    theirs = their_rows(model, their_inputs(folder, name, CHATS[chat]))
    table = model.get_input_embeddings()
    pieces = our_pieces(folder, CHATS[chat])
    ours = [
        each.rows[:, : theirs.shape[1]]  # without what the first layers add
        if isinstance(each, EmbeddingData)
        else table(torch.tensor(each.token_ids)).detach().numpy()
        for each in pieces
    ]
    assert any(isinstance(each, EmbeddingData) for each in pieces)
    np.testing.assert_allclose(np.concatenate(ours), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bos_in_template", [False, True])
def test_special_tokens_are_those_of_transformers(tmp_path: Path, bos_in_template: bool) -> None:
    """A tokenizer that begins texts with BOS; a processor also begins chats with it, once."""
    folder = make_image_model("llava", tmp_path / "m")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    bos = {"SpecialToken": {"id": "<|bos|>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "single": [bos, text], "pair": [bos, text],
        "special_tokens": {"<|bos|>": {"id": "<|bos|>", "ids": [256], "tokens": ["<|bos|>"]}},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    if bos_in_template:
        config = json.loads((folder / "tokenizer_config.json").read_text())
        config["chat_template"] = "{{ bos_token }}" + config["chat_template"]
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    processor = load_processor(folder, "llava", 0)
    processor.chat_template = processor.tokenizer.chat_template
    theirs = processor.apply_chat_template(
        CHATS["turns"], add_generation_prompt=True, tokenize=True, return_dict=True
    )["input_ids"][0]
    with MLCEngine(str(folder), "cpu", engine_config=EngineConfig(dtype="float32")) as engine:
        assert engine.render_chat(CHATS["turns"]).token_ids == list(theirs)
    assert theirs[0] == 256 != theirs[1]


@torch.inference_mode()
def greedy_after(model: Any, inputs: Any, answer: list[int]) -> list[int]:
    """The greedy token of transformers after a prompt and after each token of an answer."""
    ids = torch.cat([inputs["input_ids"], torch.tensor([answer[:-1]])], dim=1)
    given = {**inputs, "input_ids": ids, "attention_mask": torch.ones_like(ids)}
    for name in ("mm_token_type_ids", "token_type_ids"):
        if name in inputs:  # images have positions of their own, or see each other
            kinds = torch.zeros_like(ids)
            kinds[:, : inputs["input_ids"].shape[1]] = inputs[name]
            given[name] = kinds
    logits = model(**given).logits[0, -len(answer) :]
    return list(logits.argmax(-1).tolist())


@pytest.mark.parametrize("name", SOME_AT_NIGHT)
def test_answers_are_those_of_transformers(folders: Any, name: str) -> None:
    """Of all chats at once, with prompts in chunks that cut images."""
    folder = folders(name)
    settings = EngineConfig(dtype="float32", prefill_chunk_size=64, max_num_sequence=8)
    with MLCEngine(str(folder), "cpu", engine_config=settings) as engine:
        results = engine.generate(
            list(CHATS.values()), temperature=0, max_tokens=10, ignore_eos=True, progress=False
        )
    for result, chat in zip(results, CHATS.values(), strict=True):
        assert result.error is None
        inputs = their_inputs(folder, name, chat)
        assert result.prompt_token_ids == inputs["input_ids"][0].tolist()
        assert result.usage is not None
        assert result.usage.prompt_tokens == len(result.prompt_token_ids)
        assert result.token_ids == greedy_after(whole_model(folder), inputs, result.token_ids)


ON_GPUS = some_at_night(
    ["gemma3", "glm4v", "paddleocr_vl", "qwen2_5_vl", "qwen3_5", "qwen3_vl", "qwen3_vl_moe"],
    {"gemma3", "qwen3_vl"},
)


@pytest.mark.parametrize("name", ON_GPUS)
def test_answers_on_gpus_are_those_on_the_cpu(folders: Any, name: str) -> None:
    """On the emulator: images whose rows see each other, or have positions of three numbers."""
    library = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    settings = EngineConfig(dtype="float32", prefill_chunk_size=64, max_num_sequence=8)
    answers = []
    for device, model_lib in (("cpu", None), ("cuda:0", library)):
        with MLCEngine(
            str(folders(name)), device, model_lib=model_lib, engine_config=settings
        ) as engine:
            results = engine.generate(
                list(CHATS.values()), temperature=0, max_tokens=6, ignore_eos=True, progress=False
            )
        answers.append([(result.error, result.token_ids) for result in results])
    assert answers[0] == answers[1]
    assert all(error is None for error, _ in answers[0])


def test_all_families_are_compared() -> None:
    assert set(FAMILIES) == {name.partition("-")[0] for name in MODELS}
