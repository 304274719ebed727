"""Images in chats, from the parts of a message to an answer: what is read, kept and refused."""

from __future__ import annotations

import base64
import io
import json
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "models"))
from image_folders import make_image_model, picture

from mlc_native import EngineConfig, InvalidRequest
from mlc_native.protocol.mlc_chat_config import MLCChatConfig
from mlc_native.protocol.openai_api_protocol import ChatCompletionRequest
from mlc_native.serve import EmbeddingData
from mlc_native.serve.chat_prompt import chat_prompt
from mlc_native.serve.data import TokenData
from mlc_native.serve.images import limits
from mlc_native.serve.images.chat import ChatImages
from mlc_native.serve.images.decoding import decoded_image
from mlc_native.serve.images.encoder import ImageEncoder
from mlc_native.serve.images.families import FAMILIES
from mlc_native.serve.images.parts import ImageSource, image_source
from mlc_native.serve.images.row_cache import EncodedImage, RowCache
from mlc_native.serve.model_setup import load_tokenizer

RED, NOISE = PIL.Image.new("RGB", (20, 30), "red"), picture(7, 24, 24)


def encoded(image: Any, form: str = "PNG") -> bytes:
    """An image file."""
    buffer = io.BytesIO()
    image.save(buffer, form)
    return buffer.getvalue()


def data_url(image: Any, form: str = "PNG") -> str:
    return f"data:image/{form.lower()};base64,{base64.b64encode(encoded(image, form)).decode()}"


def image_part(image: Any) -> dict[str, Any]:
    return {"type": "image", "image": image}


def url_part(url: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, "detail": "auto"}}


def user(*parts: dict[str, Any] | str) -> list[dict[str, Any]]:
    """A chat of one message."""
    content = [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]
    return [{"role": "user", "content": content}]


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_image_model("llava", tmp_path_factory.mktemp("llava"))


@pytest.fixture
def encoder(llava: Path) -> ImageEncoder:
    found = ImageEncoder.of_folder(llava)
    assert found is not None
    return found


Pieces = Callable[..., list[Any]]


@pytest.fixture
def pieces(llava: Path, encoder: ImageEncoder) -> Pieces:
    """pieces(messages, **fields): the pieces of the prompt of a chat."""

    def make(messages: list[dict[str, Any]], **fields: Any) -> list[Any]:
        tokenizer, template = load_tokenizer(llava, MLCChatConfig.from_folder(llava))
        assert tokenizer is not None
        images = ChatImages(encoder, 300)
        request = ChatCompletionRequest(messages=messages, **fields)
        text = chat_prompt(request, template, EngineConfig(), images)
        return images.pieces(text, tokenizer, add_special_tokens=False)

    return make


def rows_of(found: list[Any]) -> list[np.ndarray]:
    return [piece.rows for piece in found if isinstance(piece, EmbeddingData)]


# ---------------------------------------------------------------------------------- parts and URLs


@pytest.mark.parametrize("form", limits.FORMATS)
def test_formats(form: str) -> None:
    """Also as a URL alone, and with spaces in the base64 as some clients write it."""
    url = data_url(RED, form)
    for value in (url, {"url": url}, {"url": url[:60] + "\n" + url[60:]}):
        source = image_source({"type": "image_url", "image_url": value}, "here")
        image = decoded_image(source.source, "here")
        assert (image.mode, image.size) == ("RGB", (20, 30))
        assert np.abs(np.asarray(image).astype(int) - [255, 0, 0]).max() <= 4  # JPEG is not exact


@pytest.mark.parametrize("url", ["http://localhost/x.png", "https://a.b/x.png", "file:///etc/passwd",
                                 "ftp://a/x", "/etc/passwd", "", "x" * 100_000])  # fmt: skip
def test_nothing_is_fetched(pieces: Pieces, url: str) -> None:
    with pytest.raises(InvalidRequest, match="this engine fetches nothing") as caught:
        pieces(user("What?", url_part(url)))
    assert "messages[0].content[1].image_url" in str(caught.value)
    assert caught.value.field == "messages"
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("data:image/png,abc", "must be in base64"),
        ("data:image/png;base64,@@@@", "no valid base64"),
        ("data:image/png;base64,abc", "no valid base64"),
        ("data:image/png;base64", "no valid data URL"),
        ("data:image/png;base64,", "none of PNG"),
        ("data:image/svg+xml;base64," + base64.b64encode(b"<svg/>").decode(), "none of PNG"),
        ("data:image/png;base64," + base64.b64encode(encoded(NOISE, "TIFF")).decode(), "none of"),
        ("data:image/png;base64," + base64.b64encode(encoded(NOISE)[:-40]).decode(), "damaged"),
        (None, "must be"),
        (5, "must be"),
        (["x"], "must be"),
    ],
)
def test_wrong_urls(pieces: Pieces, url: Any, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as caught:
        pieces(user(url_part(url)))
    assert "messages[0].content[0].image_url" in str(caught.value)


@pytest.mark.parametrize(
    "image", ["x.png", "data:image/png;base64,AAAA", None, {"url": "x"}, 5, ["x"], np.zeros((4, 4)),
              np.zeros((4, 4, 4), np.uint8), np.zeros((0, 4, 3), np.uint8), b"", b"GIF89a",
              Path("missing.png")],
)  # fmt: skip
def test_wrong_images(pieces: Pieces, image: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        pieces(user(image_part(image)))
    assert "messages[0].content[0].image" in str(caught.value)


def test_images_in_process(pieces: Pieces, tmp_path: Path) -> None:
    """A PIL image, an array, bytes and a file are the same image."""
    path = tmp_path / "x.png"
    path.write_bytes(encoded(NOISE))
    same = [NOISE, np.asarray(NOISE), encoded(NOISE), path, NOISE.convert("RGBA")]
    found = [rows_of(pieces(user(image_part(image))))[0] for image in same]
    for rows in found[1:]:
        np.testing.assert_array_equal(rows, found[0])
    other = rows_of(pieces(user(image_part(RED))))[0]
    assert not np.allclose(other, found[0])


def test_an_image_is_turned_as_its_camera_says() -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # a quarter to the right
    buffer = io.BytesIO()
    RED.save(buffer, "JPEG", exif=exif)
    assert decoded_image(buffer.getvalue(), "here").size == (30, 20)


def test_of_a_moving_image_the_first_frame_counts() -> None:
    buffer = io.BytesIO()
    RED.save(buffer, "GIF", save_all=True, append_images=[PIL.Image.new("RGB", (20, 30), "blue")])
    assert decoded_image(buffer.getvalue(), "here").getpixel((3, 3)) == (255, 0, 0)


# ------------------------------------------------------------------------------------------ limits


def png_of_size(width: int, height: int) -> bytes:
    """A file whose header says what its data do not have."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 9))


@pytest.mark.parametrize("size", [(8000, 5001), (60_000, 60_000), (2**31 - 1, 2**31 - 1)])
def test_decompression_bombs(size: tuple[int, int]) -> None:
    with pytest.raises(InvalidRequest, match="may have 40000000 pixels"):
        decoded_image(png_of_size(*size), "here")


@pytest.mark.parametrize("size", [(1, 40_000_000), (40_000_000, 1), (10, 1001), (0, 5)])
def test_strips(size: tuple[int, int]) -> None:
    """A processor that makes the shorter edge 336 would make such an image huge."""
    with pytest.raises(InvalidRequest, match=r"100 times as long|damaged|none of"):
        decoded_image(png_of_size(*size), "here")
    assert decoded_image(PIL.Image.new("RGB", (10, 1000)), "here").size == (10, 1000)


def test_files_of_many_small_pieces() -> None:
    """Which a decoder would go through one at a time, for seconds."""
    image = encoded(NOISE, "JPEG")
    decoded_image(image[:2] + b"\xff\xfe\0\2" * 500 + image[2:], "here")
    with pytest.raises(InvalidRequest, match="too many small pieces"):
        decoded_image(image[:2] + b"\xff\xfe\0\2" * 9000 + image[2:], "here")
    large = picture(1, 1200, 900)
    for form in limits.FORMATS:
        assert decoded_image(encoded(large, form), "here").size == large.size


def test_many_scans() -> None:
    """Each of a few bytes, and through all pixels."""
    buffer = io.BytesIO()
    NOISE.save(buffer, "JPEG", progressive=True)
    image = buffer.getvalue()
    last, end = image.rfind(b"\xff\xda"), image.rfind(b"\xff\xd9")
    assert decoded_image(image, "here").size == NOISE.size
    with pytest.raises(InvalidRequest, match="may have 100 scans"):
        decoded_image(image[:end] + image[last:end] * 100 + image[end:], "here")
    with pytest.raises(InvalidRequest, match="too many small pieces"):
        decoded_image(image[:end] + b"\xff\xfe\0\2" * 5000 + image[end:], "here")
    # Those of a video behind the image, as phones write them, are no scans of it.
    assert decoded_image(image + b"\xff\xda" * 5000, "here").size == NOISE.size
    comment = b"\xff\xda" * 5000
    segment = b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment
    assert decoded_image(image[:2] + segment + image[2:], "here").size == NOISE.size


def test_images_that_are_too_long_together(
    pieces: Pieces, encoder: ImageEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is encoded behind the one that is too much."""
    rows = np.zeros((120, 64), np.float32)
    places: list[str] = []

    def encode(source: ImageSource, *, is_alone: bool) -> EncodedImage:
        places.append(source.place)
        return EncodedImage("<image>" * len(rows), rows)

    monkeypatch.setattr(encoder, "encode", encode)
    with pytest.raises(InvalidRequest, match="have 360 tokens, and a prompt may have 300") as error:
        pieces(user(*[image_part(RED)] * 5))
    assert error.value.code == "context_length_exceeded"
    assert len(places) == 3


def test_too_many_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Base64 is measured before it is decoded."""
    data = encoded(NOISE)
    for module in ("decoding", "parts"):
        monkeypatch.setattr(
            f"mlc_native.serve.images.{module}.MAX_IMAGE_BYTES", len(data) - 1, raising=True
        )
    path = tmp_path / "x.png"
    path.write_bytes(data)
    for source in (data, path):
        with pytest.raises(InvalidRequest, match=f"may have {len(data) - 1} bytes"):
            decoded_image(source, "here")
    with pytest.raises(InvalidRequest, match=f"may have {len(data) - 1} bytes"):
        image_source(url_part(data_url(NOISE)), "here")
    with pytest.raises(InvalidRequest, match="bytes"):
        image_source(url_part("data:image/png;base64," + "@" * 4 * len(data)), "here")


def test_too_many_images(pieces: Pieces) -> None:
    pieces(user(*[image_part(RED)] * limits.MAX_IMAGES))
    with pytest.raises(InvalidRequest, match="16 images, got 17"):
        pieces(user(*[image_part(RED)] * (limits.MAX_IMAGES + 1)))


# -------------------------------------------------------------------------------------- the prompt


def test_a_text_is_no_placeholder(pieces: Pieces) -> None:
    """Not even the same text as the placeholder: it stays a text."""
    found = pieces(user("<image>", image_part(RED), "<image><image>"))
    assert len(rows_of(found)) == 1
    before, _, after = found
    assert isinstance(before, TokenData)
    assert isinstance(after, TokenData)
    assert len(before.token_ids) == len("|user\n<image>")  # a token of each byte
    assert len(after.token_ids) > 2 * len("<image>")


def test_a_text_that_may_be_a_placeholder_is_refused(pieces: Pieces) -> None:
    allowed = {"allow_special_tokens_in_content": True}
    assert len(rows_of(pieces(user(image_part(RED), "x"), **allowed))) == 1
    with pytest.raises(InvalidRequest, match="shows 2 of the 1 images"):
        pieces(user(image_part(RED), "<image>"), **allowed)


def test_a_template_that_shows_no_images(pieces: Pieces) -> None:
    template = "{% for m in messages %}{{ m.content[0].text }}{% endfor %}"
    with pytest.raises(InvalidRequest, match="shows 0 of the 1 images"):
        pieces(user("x", image_part(RED)), chat_template=template)


def test_texts_of_a_template_of_parts(pieces: Pieces, llava: Path) -> None:
    """Texts beside a message with images, which such a template shows only as parts."""
    messages = [
        {"role": "system", "content": "Be brief."},
        *user("What?", image_part(RED)),
        {"role": "assistant", "content": "Red."},
        {"role": "user", "content": "Sure?"},
    ]
    found = pieces(messages)
    lengths = [len(piece) if isinstance(piece, EmbeddingData) else 0 for piece in found]
    assert sum(lengths) == 16
    token_ids = [i for piece in found if isinstance(piece, TokenData) for i in piece.token_ids]
    tokenizer, _ = load_tokenizer(llava, MLCChatConfig.from_folder(llava))
    assert tokenizer is not None
    assert tokenizer.decode(token_ids) == (
        "system\nBe brief.\nuser\nWhat?\nassistant\nRed.\nuser\nSure?\nassistant\n"
    )


def test_a_message_that_is_continued(pieces: Pieces) -> None:
    messages = [*user(image_part(RED), "What?"), {"role": "assistant", "content": "It is"}]
    fields = {"continue_final_message": True, "add_generation_prompt": False}
    whole, cut = pieces(messages[:1]), pieces(messages, **fields)
    assert len(cut[-1].token_ids) == len(whole[-1].token_ids) + len("It is")
    last_is_image = [*messages[:1], {"role": "assistant", "content": [image_part(RED)]}]
    with pytest.raises(InvalidRequest, match="must end with a text"):
        pieces(last_is_image, **fields)


# -------------------------------------------------------------------------------------- the encoder


def test_the_same_image_is_encoded_once(encoder: ImageEncoder) -> None:
    first = encoder.encode(ImageSource("a", encoded(NOISE)), is_alone=True)
    again = encoder.encode(ImageSource("b", encoded(NOISE)), is_alone=False)
    assert again is first
    other = encoder.encode(ImageSource("c", encoded(RED)), is_alone=True)
    assert other is not first
    assert len(encoder.cache) == 2
    assert not first.rows.flags.writeable


def test_an_image_is_the_same_beside_others(pieces: Pieces) -> None:
    alone = rows_of(pieces(user(image_part(NOISE))))[0]
    beside = rows_of(pieces(user(image_part(RED), image_part(NOISE))))
    np.testing.assert_array_equal(beside[1], alone)


def image_of(num_floats: int) -> EncodedImage:
    return EncodedImage("", np.zeros((1, num_floats), np.float32))


def test_the_cache_keeps_recent_images() -> None:
    cache = RowCache(max_bytes=1000)
    for name in (b"a", b"b"):
        cache.put(name, image_of(100))
    assert cache.get(b"a") is not None  # b is the oldest now
    cache.put(b"c", image_of(100))
    assert [cache.get(name) is not None for name in (b"a", b"b", b"c")] == [True, False, True]
    cache.put(b"a", image_of(50))
    assert (len(cache), cache.num_bytes) == (2, 600)
    cache.put(b"d", image_of(251))  # larger than all of it
    assert (len(cache), cache.num_bytes) == (2, 600)


def test_a_folder_without_weights_of_the_tower(llava: Path, tmp_path: Path) -> None:
    """It is found out once, and never filled with random numbers."""
    from safetensors.torch import load_file, save_file

    folder = make_image_model("llava", tmp_path / "m")
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: value for name, value in weights.items() if "projector.linear_1" not in name},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    encoder = ImageEncoder.of_folder(folder)
    assert encoder is not None
    for _ in range(2):
        with pytest.raises(InvalidRequest, match=r"do not fit: .*multi_modal_projector.linear_1"):
            encoder.encode(ImageSource("here", RED), is_alone=True)


def test_a_folder_without_a_processor(tmp_path: Path) -> None:
    """The error names the file, and not where the folder lies."""
    folder = make_image_model("llava", tmp_path / "m")
    (folder / "preprocessor_config.json").unlink()
    (folder / "processor_config.json").unlink()
    encoder = ImageEncoder.of_folder(folder)
    assert encoder is not None
    with pytest.raises(InvalidRequest, match=r"preprocessor_config\.json") as caught:
        encoder.encode(ImageSource("here", RED), is_alone=True)
    assert str(tmp_path) not in str(caught.value)


def test_pickles_are_not_read(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    folder = make_image_model("llava", tmp_path / "m")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    encoder = ImageEncoder.of_folder(folder)
    assert encoder is not None
    with pytest.raises(InvalidRequest, match=r"cannot be read: .*model\.safetensors"):
        encoder.encode(ImageSource("here", RED), is_alone=True)


def test_a_processor_that_does_not_fit(tmp_path: Path) -> None:
    folder = make_image_model("llava", tmp_path / "m")
    config = folder / "processor_config.json"
    config.write_text(config.read_text().replace('"patch_size": 4', '"patch_size": 8'))
    encoder = ImageEncoder.of_folder(folder)
    assert encoder is not None
    with pytest.raises(InvalidRequest, match=r"4 image tokens of an image, .* 16 rows"):
        encoder.encode(ImageSource("here", RED), is_alone=True)


def test_without_the_libraries(encoder: ImageEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)  # importing it is an error
    with pytest.raises(InvalidRequest, match=r"pip install \"mlc_native\[images\]\""):
        encoder.check_supported("messages[0].content[0]")


def test_code_of_a_folder_does_not_run(tmp_path: Path) -> None:
    """A folder that names classes of its own is read with those of transformers."""
    folder = make_image_model("llava", tmp_path / "m")
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    for name in ("config.json", "processor_config.json", "preprocessor_config.json"):
        fields = json.loads((folder / name).read_text())
        fields["auto_map"] = {
            "AutoConfig": "evil.Config", "AutoModel": "evil.Model",
            "AutoProcessor": "evil.Processor", "AutoImageProcessor": "evil.Images",
        }  # fmt: skip
        (folder / name).write_text(json.dumps(fields))
    encoder = ImageEncoder.of_folder(folder)
    assert encoder is not None
    assert len(encoder.encode(ImageSource("here", RED), is_alone=True).rows) == 16


def test_the_document_names_all_models() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "images.md").read_text()
    assert [name for name in FAMILIES if f"`{name}`" not in text] == []
