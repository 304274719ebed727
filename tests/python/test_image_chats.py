"""Chats with images on every façade and on the server, and rows as a prompt of their own."""

from __future__ import annotations

import asyncio
import base64
import io
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from facades import AsyncFacade, SyncFacade

sys.path.insert(0, str(Path(__file__).resolve().parent / "models"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "server"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from image_folders import make_image_model, picture
from live_server import CHAT, LiveServer
from make_random_checkpoint import make_checkpoint

from mlc_native import AsyncMLCEngine, EngineConfig, InvalidRequest, MLCEngine, SyncMLCEngine
from mlc_native.serve import EmbeddingData, ImageData, TextData, TokenData
from mlc_native.serve.images.encoder import ImageEncoder
from mlc_native.serve.images.tower import Tower

A, B = picture(7, 24, 24), picture(8, 30, 20)
GREEDY = {"temperature": 0, "max_tokens": 8, "ignore_eos": True}
CONFIG = EngineConfig(dtype="float32", max_single_sequence_length=512)
ROWS_OF_AN_IMAGE = 16


def data_url(image: PIL.Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def chat(*parts: Any) -> list[dict[str, Any]]:
    """A chat of one message of texts, images and the URLs of images."""
    content: list[dict[str, Any]] = []
    for part in parts:
        if not isinstance(part, str):
            content.append({"type": "image", "image": part})
        elif part.startswith("data:"):
            content.append({"type": "image_url", "image_url": {"url": part}})
        else:
            content.append({"type": "text", "text": part})
    return [{"role": "user", "content": content}]


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_image_model("llava", tmp_path_factory.mktemp("llava"))


@pytest.fixture(scope="module")
def engine(llava: Path) -> Iterator[MLCEngine]:
    with MLCEngine(str(llava), "cpu", engine_config=CONFIG) as made:
        yield made


@pytest.fixture(scope="module", params=[SyncFacade, AsyncFacade])
def facade(request: pytest.FixtureRequest, llava: Path) -> Iterator[Any]:
    made = request.param(str(llava), device="cpu", engine_config=CONFIG)
    yield made
    made.terminate()


@pytest.fixture(scope="module")
def server(llava: Path) -> Iterator[LiveServer]:
    made = LiveServer({"m": AsyncMLCEngine(str(llava), "cpu", engine_config=CONFIG)})
    yield made
    made.stop()


def answer(engine: MLCEngine, messages: list[dict[str, Any]]) -> list[int]:
    (result,) = engine.generate([messages], progress=False, **GREEDY)
    assert result.error is None
    return result.token_ids


# ------------------------------------------------------------------------------------------ façades


def test_a_chat(facade: Any, engine: MLCEngine) -> None:
    """Whole and as a stream, from a PIL image and from a URL; rows count as tokens."""
    for image in (A, data_url(A)):
        messages = chat("What is", image, "?")
        expected = answer(engine, messages)
        response = facade.chat(messages=messages, return_token_ids=True, **GREEDY)
        choice = response.choices[0]
        assert choice.token_ids == expected
        assert response.usage.prompt_tokens == len(response.prompt_token_ids)
        row = max(response.prompt_token_ids, key=response.prompt_token_ids.count)
        assert response.prompt_token_ids.count(row) >= ROWS_OF_AN_IMAGE
        chunks = facade.chat(messages=messages, stream=True, return_token_ids=True, **GREEDY)
        assert [i for each in chunks for c in each.choices for i in c.token_ids or []] == expected
    facade.audit()


@pytest.mark.emulated
def test_devices(device: dict[str, Any], llava: Path, engine: MLCEngine) -> None:
    """A GPU's engine reads the same rows, which the CPU makes."""
    messages = chat("What?", A, "And?", B)
    with MLCEngine(str(llava), **device, engine_config=CONFIG) as made:
        assert answer(made, messages) == answer(engine, messages)


def test_the_image_matters(engine: MLCEngine) -> None:
    answers = {tuple(answer(engine, chat("What?", image))) for image in (A, B)}
    assert len(answers) == 2


def test_a_chat_of_several_turns(facade: Any, engine: MLCEngine) -> None:
    """The second turn finds the first one in the prefix cache, with its image."""
    first = chat(A, "What?")
    facade.chat(messages=first, **GREEDY)
    second = [*first, {"role": "assistant", "content": "It."}, *chat("And", B, "?")]
    response = facade.chat(messages=second, return_token_ids=True, **GREEDY)
    assert response.usage.prompt_tokens_details.cached_tokens >= ROWS_OF_AN_IMAGE
    other = [*chat(B, "What?"), *second[1:]]
    assert answer(engine, second) == response.choices[0].token_ids != answer(engine, other)


def test_errors_leave_the_engine_alone(facade: Any, engine: MLCEngine) -> None:
    expected = answer(engine, chat("What?", A))
    for part, reason in (
        ("data:image/png;base64,AAAA", "none of PNG"),
        (b"\x89PNG\r\n\x1a\n", "damaged|none of"),
        (5, "must be"),
    ):
        with pytest.raises(InvalidRequest, match=reason):
            facade.chat(messages=chat(part), **GREEDY)
    with pytest.raises(InvalidRequest, match="larger than the model input length limit"):
        facade.chat(messages=chat(*[A] * 16, "x" * 300), **GREEDY)
    with pytest.raises(InvalidRequest, match="this model reads texts and images"):
        facade.chat(messages=[{"role": "user", "content": [{"type": "input_audio"}]}])
    response = facade.chat(messages=chat("What?", A), return_token_ids=True, **GREEDY)
    assert response.choices[0].token_ids == expected
    facade.audit()


def test_render_chat(engine: MLCEngine, llava: Path) -> None:
    messages = chat("What is", A, "?")
    rendered = engine.render_chat(messages)
    assert rendered.text.count("<image>") == 1
    image_token_id = max(rendered.token_ids, key=rendered.token_ids.count)
    assert rendered.token_ids.count(image_token_id) == ROWS_OF_AN_IMAGE
    (result,) = engine.generate([messages], progress=False, max_tokens=1)
    assert result.prompt_token_ids == rendered.token_ids
    stepped = SyncMLCEngine(str(llava), "cpu", engine_config=CONFIG)
    assert stepped.render_chat(messages).token_ids == rendered.token_ids


def test_an_image_does_not_hold_up_texts(llava: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the tower is at work, for as long as it likes, texts are answered."""
    begun, finish = threading.Event(), threading.Event()
    encode = Tower.encode

    def slow(self: Tower, *arguments: Any) -> Any:
        begun.set()
        assert finish.wait(60)
        return encode(self, *arguments)

    monkeypatch.setattr(Tower, "encode", slow)

    async def run() -> None:
        async with AsyncMLCEngine(str(llava), "cpu", engine_config=CONFIG) as engine:
            create = engine.chat.completions.create
            images = [asyncio.create_task(create(messages=chat(i), **GREEDY)) for i in [A] * 20]
            await asyncio.to_thread(begun.wait, 60)
            texts = [create(messages=chat("What?"), **GREEDY) for _ in range(20)]
            answers = await asyncio.gather(*texts)
            assert all(each.choices[0].finish_reason == "length" for each in answers)
            assert not any(task.done() for task in images)
            finish.set()
            responses = await asyncio.gather(*images)
            assert len({each.choices[0].message.content for each in responses}) == 1

    asyncio.run(asyncio.wait_for(run(), 120))


def test_models_whose_images_are_not_read(tmp_path: Path) -> None:
    folder = make_checkpoint("tiny-gemma4", tmp_path / "m")
    with MLCEngine(str(folder), "cpu") as engine:
        with pytest.raises(InvalidRequest, match="model type gemma4 are not supported; texts"):
            engine.chat.completions.create(messages=chat(A))
        assert engine.chat.completions.create(messages=chat("x"), max_tokens=1).choices


@pytest.fixture(scope="module")
def gemma3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in which the 16 rows of an image see each other."""
    return make_image_model("gemma3", tmp_path_factory.mktemp("gemma3") / "m")


def test_an_image_that_no_step_holds(gemma3: Path) -> None:
    """Other sequences may take a row each of a step; texts are answered all the same."""
    for room, is_held in ((16, True), (15, False)):
        config = EngineConfig(dtype="float32", max_num_sequence=4, prefill_chunk_size=room + 4)
        with MLCEngine(str(gemma3), "cpu", engine_config=config) as engine:
            if is_held:
                assert len(answer(engine, chat("What?", A, B))) == 8
            else:
                reason = "must hold its 16 tokens and holds 15"
                with pytest.raises(InvalidRequest, match=reason) as caught:
                    engine.chat.completions.create(messages=chat("What?", A))
                assert caught.value.field == "messages"
            assert engine.chat.completions.create(messages=chat("x"), **GREEDY).choices


def test_turns_with_rows_that_see_each_other(gemma3: Path) -> None:
    """Behind a first turn, the cached one, and beside others: the answer of an engine alone."""
    first = chat("Look", A, "What?")
    second = [*first, {"role": "assistant", "content": "It."}, *chat("And", B, A, "?")]
    with MLCEngine(str(gemma3), "cpu", engine_config=CONFIG) as engine:
        expected = answer(engine, second)
    config = EngineConfig(dtype="float32", max_num_sequence=4, prefill_chunk_size=24)
    with MLCEngine(str(gemma3), "cpu", engine_config=config) as engine:
        answer(engine, first)
        (result,) = engine.generate([second], progress=False, **GREEDY)
        assert result.token_ids == expected
        assert result.usage is not None
        assert result.usage.prompt_tokens_details.cached_tokens > ROWS_OF_AN_IMAGE
        results = engine.generate([second, chat("x" * 50), second], progress=False, **GREEDY)
        assert [results[i].token_ids for i in (0, 2)] == [expected] * 2


@pytest.mark.emulated
def test_devices_answer_alike(device: dict[str, Any], gemma3: Path) -> None:
    answers = []
    for of_engine in (device, {"device": "cpu"}):
        with MLCEngine(str(gemma3), **of_engine, engine_config=CONFIG) as engine:
            answers.append(answer(engine, chat("What?", A)))
    assert answers[0] == answers[1]
    assert len(answers[0]) == 8


def test_plug_ins_that_take_no_rows(gemma3: Path) -> None:
    encoder = ImageEncoder.of_folder(gemma3)
    assert encoder is not None
    encoder.check_supported("message 0")
    encoder.takes_rows = False
    with pytest.raises(InvalidRequest, match="message 0: images are not read by this plug-in"):
        encoder.check_supported("message 0")


def test_models_that_see_nothing() -> None:
    with MLCEngine("demo", "cpu") as engine, pytest.raises(InvalidRequest, match="serves text"):
        engine.chat.completions.create(messages=chat(A))


# ------------------------------------------------------------------------------------------- server


def test_openai(server: LiveServer, engine: MLCEngine) -> None:
    messages = chat("What?", data_url(A))
    body = {"model": "m", "messages": messages, "return_token_ids": True, **GREEDY}
    response = server.client.post(CHAT, json=body).json()
    assert response["choices"][0]["token_ids"] == answer(engine, messages)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/x.png", "file:///etc/passwd", "data:image/png;base64,AAAA"]
)
def test_refused_by_the_server(server: LiveServer, url: str) -> None:
    content = [{"type": "image_url", "image_url": {"url": url}}]
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    response = server.client.post(CHAT, json=body)
    assert response.status_code == 400
    assert "messages[0].content[0].image_url" in response.json()["error"]["message"]


def test_a_path_in_json_is_not_read(server: LiveServer, tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    A.save(path)
    content = [{"type": "image", "image": str(path)}]
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    assert server.client.post(CHAT, json=body).status_code == 400


def test_responses(server: LiveServer, engine: MLCEngine) -> None:
    parts = [
        {"type": "input_text", "text": "What?"},
        {"type": "input_image", "image_url": data_url(A), "detail": "low"},
    ]
    body = {
        "model": "m", "input": [{"role": "user", "content": parts}], "temperature": 0,
        "max_output_tokens": 8, "ignore_eos": True,
    }  # fmt: skip
    response = server.client.post("/v1/responses", json=body).json()
    expected = engine.chat.completions.create(messages=chat("What?", data_url(A)), **GREEDY)
    assert response["output"][0]["content"][0]["text"] == expected.choices[0].message.content
    assert expected.usage is not None
    assert response["usage"]["input_tokens"] == expected.usage.prompt_tokens
    body["input"] = [{"role": "user", "content": [{"type": "input_image", "file_id": "x"}]}]
    assert server.client.post("/v1/responses", json=body).status_code == 400


def test_messages(server: LiveServer, engine: MLCEngine) -> None:
    kind, _, data = data_url(A).removeprefix("data:").partition(";base64,")
    source = {"type": "base64", "media_type": kind, "data": data}
    blocks = [
        {"type": "text", "text": "What"},
        {"type": "text", "text": "is this?"},
        {"type": "image", "source": source},
    ]
    body = {
        "model": "m", "messages": [{"role": "user", "content": blocks}], "temperature": 0,
        "max_tokens": 8, "ignore_eos": True,
    }  # fmt: skip
    response = server.client.post("/v1/messages", json=body).json()
    messages = chat("What\nis this?", data_url(A))
    expected = engine.chat.completions.create(messages=messages, **GREEDY)
    assert response["content"][0]["text"] == expected.choices[0].message.content
    count = server.client.post("/v1/messages/count_tokens", json=body).json()
    assert expected.usage is not None
    assert count["input_tokens"] == expected.usage.prompt_tokens
    blocks[2] = {"type": "image", "source": {"type": "url", "url": "http://localhost/x.png"}}
    refused = server.client.post("/v1/messages", json=body)
    assert refused.status_code == 400
    assert "fetches nothing" in refused.json()["error"]["message"]


# --------------------------------------------------------------------------------------------- rows


def table_of(folder: Path) -> np.ndarray:
    """The embeddings of a model's tokens."""
    from safetensors.numpy import load_file

    weights = load_file(folder / "model.safetensors")
    (table,) = (value for name, value in weights.items() if name.endswith("embed_tokens.weight"))
    return np.asarray(table)


def test_rows_of_tokens_are_the_tokens(llava: Path, engine: MLCEngine) -> None:
    """In all places of a prompt, on its own and between tokens and texts."""
    table = table_of(llava)
    token_ids = [5, 99, 7, 200, 41, 3]
    (expected,) = engine.generate([token_ids], progress=False, **GREEDY)
    for prompt in (
        EmbeddingData(table[token_ids]),
        [EmbeddingData(table[token_ids])],
        [token_ids[:2], EmbeddingData(table[token_ids[2:4]]), TokenData(token_ids[4:])],
        [EmbeddingData(table[[5]]), EmbeddingData(table[[99]]), *token_ids[2:]],
        [*token_ids[:4], EmbeddingData(table[token_ids[4:]].astype(np.float64))],
    ):
        (result,) = engine.generate([prompt], progress=False, **GREEDY)
        assert result.error is None
        assert result.token_ids == expected.token_ids
        assert result.usage is not None
        assert result.usage.prompt_tokens == len(token_ids)


def test_rows_on_the_engine_of_steps(llava: Path, engine: MLCEngine) -> None:
    table = table_of(llava)
    stepped = SyncMLCEngine(str(llava), "cpu", engine_config=CONFIG)
    inputs = [TextData("abc"), EmbeddingData(table[[7, 8]])]
    request = stepped.create_request("r", inputs)
    assert request.prompt_len == len("abc") + 2
    np.testing.assert_array_equal(request.inputs[1], table[[7, 8]])
    greedy = {"temperature": 0, "max_tokens": 8}
    texts, _ = stepped.generate([inputs], greedy)
    ids = [*stepped.tokenizer.encode("abc"), 7, 8]
    assert stepped.generate([ids], greedy)[0] == texts


@pytest.mark.parametrize(
    "rows",
    [np.zeros(4), np.zeros((0, 64)), np.zeros((2, 3, 4)), np.full((2, 64), np.nan), "x", None,
     [[1, 2], [3]], [["a"]]],
)  # fmt: skip
def test_wrong_rows(rows: Any) -> None:
    with pytest.raises(InvalidRequest, match="rows"):
        EmbeddingData(rows)


@pytest.mark.parametrize(
    ("positions", "advance"),
    [(None, 1), ([[0, 0, 0]] * 2, None), ([[0, 0, 0]], 1), ([[0, 0]] * 2, 1), ("x", 1),
     ([[0.5, 0, 0]] * 2, 1), ([[0, 0, 1 << 40]] * 2, 1), ([[0, 0, 0]] * 2, 0),
     ([[0, 0, 0]] * 2, True), ([[0, 0, 0]] * 2, 1.5)],
)  # fmt: skip
def test_wrong_positions(positions: Any, advance: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"positions|advance"):
        EmbeddingData(np.zeros((2, 64)), positions, advance)


def test_positions_of_a_model_without_them(engine: MLCEngine) -> None:
    rows = EmbeddingData(np.zeros((2, 64)), [[0, 0, 0], [0, 0, 1]], 2)
    (result,) = engine.generate([rows], progress=False, **GREEDY)
    assert isinstance(result.error, InvalidRequest)


def test_rows_of_another_size(engine: MLCEngine) -> None:
    (result,) = engine.generate([EmbeddingData(np.zeros((2, 63)))], progress=False, **GREEDY)
    assert isinstance(result.error, InvalidRequest)


def test_rows_cannot_be_pinned(llava: Path, engine: MLCEngine) -> None:
    with pytest.raises(InvalidRequest):
        engine.pin_prefix([EmbeddingData(table_of(llava)[[1]])])


def test_images_are_no_pieces_of_prompts() -> None:
    with pytest.raises(InvalidRequest, match="messages of a chat"):
        ImageData("x")
