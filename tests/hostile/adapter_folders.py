"""Hostile adapters: each file of a folder, damaged in every way that is worth a name.

A case changes a file of a good adapter of the demo draft model. The folder is then loaded into an
engine that stays, and asked for two tokens. It works, or a typed error names a file. Afterwards the
model answers as before, and so does an adapter that was there before.
"""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hostile.file_damages import (
    JSON_VALUES,
    Damage,
    edits,
    file_kinds,
    json_texts,
    write,
)
from hostile.frame import Case, HostileClass

_SOURCE = Path(__file__).resolve().parents[2] / "mlc_native" / "demo_model" / "draft"
_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PROMPT = [1, 2, 3]
# In this child, set by ``_prepared``.
_state: dict[str, Any] = {}


# --------------------------------------------------------------------------------- of the settings

_FIELDS: dict[str, list[Any]] = {
    "peft_type": ["LOHA", "lora", "LORA\0", "x" * 10**6],
    "r": [0, 1, 7, 9, 8.0, 8.5, "8", 1 << 31, 1 << 32, 1 << 53, -(1 << 63), [8], 1e-300],
    "lora_alpha": [0, -1, 1e-320, 1e38, 1e39, 1e308, "16", [16], 1 << 62],
    "rank_pattern": [
        {"q_proj": 0}, {"q_proj": -1}, {"q_proj": "8"}, {"q_proj": 1 << 40}, {"q_proj": None},
        {"": 4}, {"(" * 10_000: 4}, {"(a+)+$": 4}, {".*" * 1000: 4}, {"[": 4},
        {f"m{i}": 4 for i in range(100_000)}, ["q_proj"], "q_proj",
    ],
    "alpha_pattern": [
        {"q_proj": 1e300}, {"q_proj": "8"}, {"q_proj": None}, {"(a+)+$": 4}, ["q_proj"],
        {f"m{i}": 4 for i in range(100_000)},
    ],
    "target_modules": [
        [], "q_proj", "(a+)+$", "(" * 10_000, [5], [""], ["x" * 10**6], ["q"] * 100_000, {"a": 1},
    ],
    "layers_to_transform": [-1, 0, 99, [99], [-1], ["0"], "0", [0] * 100_000, [1 << 62], {}],
    "layers_pattern": ["layers", ["layers"], 5, "(" * 1000],
    "bias": ["all", "lora_only", True, 5, []],
    "use_dora": [True, "true", 1],
    "use_rslora": ["true", 1, [], 0.5],
    "fan_in_fan_out": [True, "true"],
    "modules_to_save": [["lm_head"], "lm_head", [], [5], {}],
    "trainable_token_indices": [[1, 2], {"embed_tokens": [1]}],
    "exclude_modules": [["q_proj"], "q_proj"],
    "init_lora_weights": ["pissa", "eva", False],
}  # fmt: skip


def _config_cases() -> Iterator[tuple[str, str, Damage]]:
    for what, text in json_texts().items():
        yield _CONFIG, what, _writer(text)
    for what, value in JSON_VALUES.items():
        yield _CONFIG, f"all fields are {what}", _editor(lambda f, v=value: dict.fromkeys(f, v))
        for field in _FIELDS:
            yield _CONFIG, f"{field} is {what}", _setter(field, value)
    for field, values in _FIELDS.items():
        for i, value in enumerate(values):
            yield _CONFIG, f"{field} = {ascii(value)[:40]} ({i})", _setter(field, value)
        yield _CONFIG, f"no {field}", _editor(lambda f, n=field: {k: f[k] for k in f if k != n})
    for number in ("NaN", "Infinity", "-Infinity", "1e999", "0x8", "008", "9" * 10**6):
        for field, old in (("r", "8"), ("lora_alpha", "16")):
            replace = _replacer(f'"{field}": {old}', f'"{field}": {number}')
            yield _CONFIG, f"{field} is {number[:20]}", replace
    yield _CONFIG, "r twice", _replacer('"r": 8', '"r": 8, "r": 9')


def _writer(text: str) -> Damage:
    return lambda path: write(path, text)


def _editor(edit: Callable[[dict[str, Any]], dict[str, Any]]) -> Damage:
    return lambda path: write(path, json.dumps(edit(json.loads(path.read_text()))))


def _setter(field: str, value: Any) -> Damage:
    return _editor(lambda fields: {**fields, field: value})


def _replacer(old: str, new: str) -> Damage:
    def damage(path: Path) -> None:
        text = path.read_text()
        assert old in text
        write(path, text.replace(old, new))

    return damage


# ---------------------------------------------------------------------------------- of the weights


def _with_header(edit: Callable[[dict[str, Any]], Any], length: int | None = None) -> Damage:
    """Another header; ``length`` is what the file says of it."""

    def damage(path: Path) -> None:
        content = path.read_bytes()
        (old,) = struct.unpack("<Q", content[:8])
        edited = edit(json.loads(content[8 : 8 + old]))
        text = edited if isinstance(edited, bytes) else json.dumps(edited).encode()
        said = len(text) if length is None else length
        write(path, struct.pack("<Q", said) + text + content[8 + old :])

    return damage


def _with_tensors(**changes: Any) -> Damage:
    """All tensors with these fields."""
    return _with_header(
        lambda header: {
            name: {**entry, **changes} if name != "__metadata__" else entry
            for name, entry in header.items()
        }
    )


def _filled(fill: bytes) -> Damage:
    def damage(path: Path) -> None:
        content = path.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        values = content[8 + length :]
        write(path, content[: 8 + length] + fill * (len(values) // len(fill)))

    return damage


def _renamed(edit: Callable[[str], str]) -> Damage:
    return _with_header(
        lambda header: {
            edit(name) if name != "__metadata__" else name: entry for name, entry in header.items()
        }
    )


def _weights_cases() -> Iterator[tuple[str, str, Damage]]:
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}

    def same(header: dict[str, Any]) -> dict[str, Any]:
        return header

    damages = {
        **{
            f"a header of {n} bytes": _with_header(same, n)
            for n in (0, 1, 10**8, 10**8 + 1, 1 << 62, (1 << 64) - 1)
        },
        "no tensors": _with_header(lambda header: {}),
        "one tensor": _with_header(lambda header: dict(list(header.items())[-1:])),
        "100,000 tensors more": _with_header(
            lambda header: header | {f"t{i}": empty for i in range(100_000)}
        ),
        "100,000 modules more": _with_header(
            lambda header: (
                header
                | {
                    f"base_model.model.model.layers.{i}.self_attn.q_proj.lora_A.weight": empty
                    for i in range(100_000)
                }
            )
        ),
        "a name of a megabyte": _with_header(lambda header: header | {"n" * 10**6: empty}),
        "an empty name": _with_header(lambda header: header | {"": empty}),
        "a million dimensions": _with_header(
            lambda header: header | {"t": {**empty, "shape": [0] * 10**6}}
        ),
        "shapes that overflow": _with_tensors(shape=[1 << 62, 1 << 62]),
        "a rank of 2^40": _with_tensors(shape=[1 << 40, 0]),
        "negative shapes": _with_tensors(shape=[-1]),
        "no shapes": _with_tensors(shape=None),
        "integers": _with_tensors(dtype="I32"),
        "doubles": _with_tensors(dtype="F64"),
        "8 bits": _with_tensors(dtype="F8_E4M3"),
        "no types": _with_tensors(dtype=5),
        "the same data": _with_tensors(data_offsets=[0, 1024]),
        "offsets the wrong way": _with_tensors(data_offsets=[1024, 0]),
        "offsets beyond the end": _with_tensors(data_offsets=[1 << 40, 1 << 41]),
        "weights that are no numbers": _filled(b"\x00\x00\xc0\x7f"),
        "weights that are infinite": _filled(b"\x00\x00\x80\x7f"),
        "weights that are large": _filled(b"\x00\x00\x7f\x7f"),
        "weights that are zero": _filled(b"\0\0\0\0"),
        "A and B exchanged": _renamed(
            lambda name: name.translate(str.maketrans("AB", "BA")) if ".lora_" in name else name
        ),
        "names without a prefix": _renamed(lambda name: name.removeprefix("base_model.model.")),
        "names of a named adapter": _renamed(lambda name: name.replace(".weight", ".x.weight")),
        "names of layers behind the last": _renamed(
            lambda name: name.replace("layers.0.", "layers.99999999999999999999.")
        ),
        "names of layers before the first": _renamed(
            lambda name: name.replace("layers.0.", "layers.-1.")
        ),
        "names with zeros": _renamed(lambda name: name.replace("layers.0.", "layers.00.")),
        "names of embeddings": _renamed(
            lambda name: name.replace("lora_A.weight", "lora_embedding_A")
        ),
        "names with a zero byte": _renamed(lambda name: name + "\0"),
    }
    for what, damage in damages.items():
        yield _WEIGHTS, what, damage


# --------------------------------------------------------------------------------------- the class


def _damages() -> Iterator[tuple[str, str, Damage]]:
    yield "nothing", "", lambda path: None
    for name in (_CONFIG, _WEIGHTS):
        for what, kind in file_kinds().items():
            yield name, what, _replaced(kind)
        for what, edit in edits().items():
            yield name, what, _edited(edit)
    yield "adapter_model.bin", "instead of safetensors", _as_pickle
    yield from _config_cases()
    yield from _weights_cases()


def _replaced(kind: Damage) -> Damage:
    def damage(path: Path) -> None:
        path.unlink()
        kind(path)

    return damage


def _edited(edit: Callable[[bytes], bytes]) -> Damage:
    return lambda path: write(path, edit(path.read_bytes()))


def _as_pickle(path: Path) -> None:
    (path.parent / _WEIGHTS).unlink()
    write(path, b"\x80\x04cos\nsystem\n(S'exit 1'\ntR.")


def hostile_class() -> HostileClass:
    """The class."""
    cases = [Case(f"{name}: {what}", (name, damage)) for name, what, damage in _damages()]
    return HostileClass(
        "adapter_folders", cases, _attempt, cpu_s=5, memory_mib=256, sample=60, prepared=_prepared
    )


@contextmanager
def _prepared() -> Iterator[None]:
    """An engine with a good adapter, which all cases share, and the adapter that they damage."""
    from adapter_folders import write_adapter

    from mlc_native import SyncMLCEngine

    with tempfile.TemporaryDirectory(prefix="mlc-native-hostile-") as folder:
        root = Path(folder)
        _state["good"] = write_adapter(root / "good", _SOURCE, seed=1)
        _state["folder"] = root / "adapter"
        settings: dict[str, Any] = {"max_num_sequence": 1, "max_total_sequence_length": 512}
        settings |= {"num_threads": 1, "verbose": False, "dtype": "float32"}
        _state["engine"] = SyncMLCEngine(
            str(_SOURCE), "cpu", adapters={"good": _state["good"]}, **settings
        )
        _state["expected"] = _answers()
        yield


def _answers() -> list[Any]:
    """What the model and the good adapter answer."""
    return [_answer(adapter) for adapter in ("", "good")]


def _answer(adapter: str) -> Any:
    config = {"max_tokens": 2, "temperature": 0, "adapter": adapter}
    _state["engine"].reset()
    return _state["engine"].generate(_PROMPT, config)[0]


def _attempt(value: tuple[str, Damage]) -> str:
    name, damage = value
    folder = _state["folder"]
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(_state["good"], folder, copy_function=shutil.copyfile)
    damage(folder / name)
    outcome = _load(folder)
    if [each.name for each in _state["engine"].adapters()] != ["good"]:
        return "an adapter that was refused, or unloaded, is there"
    if _answers() != _state["expected"]:
        return "the model or another adapter answers otherwise than before"
    return outcome


def _load(folder: Path) -> str:
    from mlc_native.errors import MAX_MESSAGE, EngineRequestError, InvalidConfig, LoadError

    engine = _state["engine"]
    try:
        engine.load_adapter("bad", folder)
    except (LoadError, InvalidConfig) as error:
        if len(str(error)) > MAX_MESSAGE + 10:
            return f"an error of {len(str(error))} characters: {str(error)[:100]}"
        named = any(each in str(error) for each in (_CONFIG, _WEIGHTS, str(folder), "tensor"))
        return "refused" if named else f"an error that names no file: {error}"
    try:
        _answer("bad")
    except EngineRequestError as error:  # weights whose products are no numbers
        return "refused" if "NaN or +inf" in str(error) else f"an error of a step: {error}"
    finally:
        engine.unload_adapter("bad")
    return "served"
