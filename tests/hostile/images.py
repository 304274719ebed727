"""Hostile images in chats: damaged files, parts of other forms, URLs that must not be fetched.

The engine answers or refuses with an error that names the message. Texts are answered meanwhile.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostile.frame import Case, HostileClass
from hostile.image_files import FORMS, file_of, files

_MODELS = Path(__file__).resolve().parents[1] / "python" / "models"
_IMAGE_TOKEN = "<image>"
_DEEP = 3000
_engines: list[Any] = []  # in this child


@dataclass(frozen=True)
class _Chat:
    """What makes the content of a message, and the outcome if there is only one."""

    content: Callable[[], Any]
    wanted: str | None


def _url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _part(url: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def _good() -> dict[str, Any]:
    return _part(_url(file_of("PNG")))


def _cases() -> Iterator[tuple[str, _Chat]]:
    yield "an image", _Chat(lambda: [_good()], "served")
    for name, make, wanted in files():
        yield name, _Chat(lambda m=make: [{"type": "image", "image": m()}], wanted)
    for name, url, wanted in _urls():
        yield f"URL: {name}", _Chat(lambda u=url: [_part(u())], wanted)
    for name, content, wanted in _contents():
        yield f"content: {name}", _Chat(content, wanted)


def _urls() -> Iterator[tuple[str, Callable[[], Any], str | None]]:
    png = file_of("PNG")
    for url in (
        "http://127.0.0.1:1/x.png", "https://[::1]/x", "file:///etc/hostname", "ftp://a/x",
        "FILE:///dev/zero", "/dev/zero", "//a/b", "../x.png", "", "data:", "data:,", "data:;base64",
        "data:text/uri-list;base64,", "jar:file:///x!/y", "gopher://x", "\\\\host\\share",
        " data:image/png;base64,AAAA", "data:image/png;base64;http://x/,AAAA", "\0", "\ud800",
        "blob:x", "data:image/png;charset=x,AAAA", "data:image/svg+xml;base64,PHN2Zz4=",
        "data:image/png;base64,====", "data:image/png;base64,A",
        "data:image/png;base64,\u0660\u0661",
    ):  # fmt: skip
        yield repr(url), lambda u=url: u, "refused"
    yield "a redirect", lambda: _url(b"http://127.0.0.1:1/x.png", "text/plain"), "refused"
    kinds = ("", "text/html", "IMAGE/PNG", "image/\u202e", "x" * 5000, "application/x-python")
    for kind in kinds:
        yield f"of the media type {kind[:20]!r}", lambda k=kind: _url(png, k), "served"
    options = ";".join(["a=b"] * 50_000)
    yield "with many options", lambda: _url(png, f"image/png;{options}"), None
    yield "of semicolons", lambda: "data:" + ";" * 5_000_000, "refused"
    yield "of 64 MB", lambda: "x" * (64 << 20), "refused"
    yield "of 64 MB of base64", lambda: "data:image/png;base64," + "A" * (64 << 20), "refused"
    yield "of 64 MB of spaces", lambda: "data:image/png;base64," + " " * (64 << 20), "refused"
    for form in FORMS:
        yield f"a {form} as a PNG", lambda f=form: _url(file_of(f)), "served"
    for value in (None, 5, True, [], {}, ["x"], {"url": "x"}, b"\x89PNG", 1e999, 10**4000):
        yield f"the value {str(value)[:30]}", lambda v=value: v, "refused"


def _contents() -> Iterator[tuple[str, Callable[[], Any], str | None]]:
    text = {"type": "text", "text": "x"}
    for name, part in {
        "no URL": {"type": "image_url"},
        "null": {"type": "image_url", "image_url": None},
        "a list": {"type": "image_url", "image_url": [_part("x")]},
        "an object without a URL": {"type": "image_url", "image_url": {"uri": "x"}},
        "a path": {"type": "image", "image": "/etc/hostname"},
        "a path in an object": {"type": "image", "image": {"path": "/etc/hostname"}},
        "no image": {"type": "image"},
        "a missing file": {"type": "image", "image": Path("/missing/x.png")},
        "a folder": {"type": "image", "image": Path("/")},
        "an array of floats": {"type": "image", "image": [[0.5]]},
        "a number": {"type": "image", "image": 7},
        "an odd type": {"type": "image_uri", "image_uri": "x"},
        "a type that is a list": {"type": ["image_url"], "image_url": "x"},
        "a video": {"type": "video", "video": "x"},
        "a sound": {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        "no type": {"image_url": {"url": "x"}},
        "a part that is null": None,
        "a part that is a text": "x",
        "a part that is a list": [_good()],
    }.items():
        yield name, lambda p=part: [text, p], "refused"
    deep: Any = "x"
    for _ in range(_DEEP):
        deep = [deep]
    yield "deep lists", lambda: [_part(deep)], "refused"
    yield "deep lists of parts", lambda: deep, "refused"
    yield "odd details", lambda: [{**_good(), "detail": deep, "min_pixels": -1}], None
    yield "sixteen images", lambda: [_good()] * 16, "served"
    yield "seventeen images", lambda: [_good()] * 17, "refused"
    yield "5000 images", lambda: [_good()] * 5000, "refused"
    yield "5000 parts", lambda: [text] * 5000, None
    yield "a placeholder in a text", lambda: [_good(), {**text, "text": _IMAGE_TOKEN}], "served"
    many = {**text, "text": _IMAGE_TOKEN * 20}
    yield "placeholders in a text", lambda: [many, _good()], "served"
    yield (
        "a placeholder that is cut",
        lambda: [{**text, "text": "<ima"}, {**text, "text": "ge>"}],
        "served",
    )
    yield "a placeholder around an image", lambda: [
        {**text, "text": "<ima"}, _good(), {**text, "text": "ge>"}
    ], "served"  # fmt: skip
    yield "placeholders alone", lambda: [many], "served"
    yield "no parts", lambda: [], None


def hostile_class() -> HostileClass:
    """The class."""
    cases = [Case(name, chat) for name, chat in _cases()]
    return HostileClass(
        "images", cases, _attempt, cpu_s=6, memory_mib=640, sample=60, prepared=_prepared
    )


@contextmanager
def _prepared() -> Iterator[Callable[[], object]]:
    sys.path[:0] = [str(_MODELS)]
    from image_folders import make_image_model

    from mlc_native import EngineConfig, MLCEngine

    with tempfile.TemporaryDirectory(prefix="mlc-native-hostile-") as folder:
        model = make_image_model("llava", Path(folder) / "model")
        settings = EngineConfig(dtype="float32", max_single_sequence_length=512)
        with MLCEngine(str(model), "cpu", engine_config=settings) as engine:
            _engines[:] = [engine]
            assert _attempt(_Chat(lambda: [_good()], "served")) == "served"
            yield lambda: engine.completions.create(prompt="abc", max_tokens=1)


def _attempt(chat: _Chat) -> str:
    from mlc_native.errors import InvalidRequest

    messages = [{"role": "user", "content": chat.content()}]
    outcome = "served"
    try:
        _engines[0].chat.completions.create(messages=messages, max_tokens=1, timeout_s=30)
    except InvalidRequest as error:
        text = str(error)
        outcome = "refused"
        if error.field is None or "\n" in text or len(text) > 1000:
            return f"an error without a field, of several lines or long: {text[:300]}"
    return outcome if chat.wanted in (None, outcome) else f"it was {outcome}"
