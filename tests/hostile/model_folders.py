"""Hostile model folders: each file of a folder, damaged in every way that is worth a name.

A case is a file and a function that damages it in a copy of the demo draft model. The folder is
then loaded and asked for two tokens. It works, or a typed error names a file or a field.
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
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_JSON_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.json",
    "modules.json",
    "config_sentence_transformers.json",
    _INDEX,
)
_FILES = (*_JSON_FILES, "chat_template.jinja", _WEIGHTS, "mlc-chat-config.json")
_OTHER_TOKENIZERS = ("tokenizer.model", "tiktoken.model", "tekken.json", "vocab.txt")
# In this child, set by ``_prepared``.
_state: dict[str, Path] = {}


def _with_all(value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda fields: dict.fromkeys(fields, value)


_CONFIG_FIELDS = (
    *("architectures", "hidden_size", "intermediate_size", "num_hidden_layers", "head_dim"),
    *("num_attention_heads", "num_key_value_heads", "vocab_size", "max_position_embeddings"),
    *("rms_norm_eps", "rope_parameters", "tie_word_embeddings", "eos_token_id", "hidden_act"),
    *("quantization_config", "dtype", "id2label", "problem_type", "classifier_from_token"),
    *("sentence_transformers", "sbert_ce_default_activation_function"),
)


def _json_cases() -> Iterator[tuple[str, str, Damage]]:
    for name in _JSON_FILES:
        for what, text in json_texts().items():
            yield name, what, _writer(text)
        for what, value in JSON_VALUES.items():
            yield name, f"all fields are {what}", _editor(_with_all(value))
    for field in _CONFIG_FIELDS:
        for what, value in {**JSON_VALUES, "0": 0}.items():
            yield "config.json", f"{field} is {what}", _editor(_setter(field, value))


def _writer(text: bytes | str) -> Damage:
    return lambda path: write(path, text)


def _setter(field: str, value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda fields: {**fields, field: value}


def _editor(edit: Callable[[dict[str, Any]], dict[str, Any]]) -> Damage:
    """Writes the edited object of the source, or of an object of the usual fields."""

    def damage(path: Path) -> None:
        source = _SOURCE / path.name
        usual = {"chat_template": "{{ messages[0].content }}", "weight_map": {"a": _WEIGHTS}}
        fields = json.loads(source.read_text()) if source.exists() else usual
        write(path, json.dumps(edit(fields)))

    return damage


# ------------------------------------------------------------------------------- of tokenizers


def _tokenizer_cases() -> Iterator[tuple[str, str, Damage]]:
    def decoder(*steps: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
        return _setter("decoder", {"type": "Sequence", "decoders": list(steps)})

    def vocab(extra: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
        def edit(fields: dict[str, Any]) -> dict[str, Any]:
            model = fields["model"]
            return {**fields, "model": {**model, "vocab": {**model["vocab"], **extra}}}

        return edit

    def added(tokens: list[dict[str, Any]]) -> Callable[[dict[str, Any]], dict[str, Any]]:
        return lambda fields: {**fields, "added_tokens": fields["added_tokens"] + tokens}

    def replace(pattern: str, content: str) -> dict[str, Any]:
        return {"type": "Replace", "pattern": {"String": pattern}, "content": content}

    nested: dict[str, Any] = {"type": "ByteLevel"}
    for _ in range(40):
        nested = {"type": "Sequence", "decoders": [nested]}
    plain = {
        "special": False,
        "normalized": False,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
    }
    edits = {
        "a decoder that doubles 40 times": decoder(*[replace("a", "aa")] * 40),
        "a decoder that makes megabytes": decoder(replace("e", "e" * 10**6)),
        "a decoder of 1000 steps": decoder(*[replace("e", "f")] * 1000),
        "a decoder that strips much": decoder(
            {"type": "Strip", "content": "a", "start": 1 << 23, "stop": 1 << 23}
        ),
        "a decoder of sequences": _setter("decoder", nested),
        "a decoder of no type": _setter("decoder", {"type": "None"}),
        "a slow pattern": decoder(replace("a" * 5000 + "b", "c")),
        "a token of a megabyte": vocab({"a" * 10**6: 2000}),
        "a thousand tokens of 60 KB": vocab({"a" * 60_000 + str(i): 3000 + i for i in range(999)}),
        "an id of 2^24": vocab({"zz": 1 << 24}),
        "an id of 2^40": vocab({"zz": 1 << 40}),
        "an id of -1": vocab({"zz": -1}),
        "an id that is a text": vocab({"zz": "1"}),
        "100,000 added tokens": added(
            [{"id": 3000 + i, "content": f"x{i}", **plain} for i in range(10**5)]
        ),
        "an empty added token": added([{"id": 3000, "content": "", **plain}]),
        "no model": lambda fields: {k: v for k, v in fields.items() if k != "model"},
        "a model of no kind": _setter("model", {"type": "None", "vocab": {}}),
        "no vocabulary": _setter("model", {"type": "BPE", "vocab": {}, "merges": []}),
        "a vocabulary that is a list": _setter("model", {"type": "BPE", "vocab": [], "merges": []}),
    }
    for what, edit in edits.items():
        yield "tokenizer.json", what, _editor(edit)


def _other_tokenizer_cases() -> Iterator[tuple[str, str, Damage]]:
    """Files that stand for a tokenizer.json, which is not there."""

    def alone(damage: Damage) -> Damage:
        def on_file(path: Path) -> None:
            (path.parent / "tokenizer.json").unlink()
            damage(path)

        return on_file

    piece = b"\x0a\x03\x0a\x01a"
    texts: dict[str, bytes] = {
        "a piece": piece,
        "a million pieces": piece * 10**6,
        "a length of 2^64 - 1": b"\x0a" + b"\xff" * 9 + b"\x01",
        "a rank of 2^40": b"YQ== 1099511627776\n",
        "a million ranks": b"".join(b"YQ== %d\n" % rank for rank in range(10**6)),
        "a line of a megabyte": b"a" * 10**6,
    }
    for name in _OTHER_TOKENIZERS:
        for what, kind in file_kinds().items():
            yield name, what, alone(kind)
        for what, text in {**texts, **json_texts()}.items():
            yield name, what, alone(_writer(text))


# ----------------------------------------------------------------------------------- of weights


def _header(path: Path) -> tuple[dict[str, Any], bytes]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def _with_header(edit: Callable[[dict[str, Any]], Any]) -> Damage:
    def damage(path: Path) -> None:
        header, data = _header(_SOURCE / _WEIGHTS)
        edited = edit(header)
        text = (header if edited is None else edited) if not isinstance(edited, bytes) else edited
        encoded = text if isinstance(text, bytes) else json.dumps(text).encode()
        write(path, struct.pack("<Q", len(encoded)) + encoded + data)

    return damage


def _with_tensors(**changes: Any) -> Damage:
    """All tensors with these fields."""
    return _with_header(
        lambda header: {name: {**entry, **changes} for name, entry in header.items()}
    )


def _weights_cases() -> Iterator[tuple[str, str, Damage]]:
    def length(value: int) -> Damage:
        return lambda path: write(
            path, struct.pack("<Q", value) + (_SOURCE / _WEIGHTS).read_bytes()[8:]
        )

    def data(fill: bytes) -> Damage:
        def damage(path: Path) -> None:
            header, values = _header(_SOURCE / _WEIGHTS)
            text = json.dumps(header).encode()
            filled = fill * (len(values) // len(fill))
            write(path, struct.pack("<Q", len(text)) + text + filled)

        return damage

    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    damages = {
        **{f"a header of {n} bytes": length(n) for n in (0, 1, 10**8, 10**8 + 1, 1 << 62)},
        "a header of 2^64 - 1 bytes": length((1 << 64) - 1),
        "no tensors": _with_header(lambda header: {}),
        "200,001 tensors": _with_header(
            lambda header: header | {f"t{i}": empty for i in range(200_001)}
        ),
        "150,000 tensors more": _with_header(
            lambda header: header | {f"t{i}": empty for i in range(150_000)}
        ),
        "a name of a megabyte": _with_header(lambda header: header | {"n" * 10**6: empty}),
        "a million dimensions": _with_header(
            lambda header: header | {"t": {**empty, "shape": [0] * 10**6}}
        ),
        "a name twice": _with_header(lambda header: b'{"a":{},"a":{}}'),
        "lists in lists": _with_header(
            lambda header: b'{"a":' + b"[" * 10**6 + b"]" * 10**6 + b"}"
        ),
        "metadata of a megabyte": _with_header(
            lambda header: header | {"__metadata__": {"m": "x" * 10**6}}
        ),
        "shapes that overflow": _with_tensors(shape=[1 << 62, 1 << 62]),
        "negative shapes": _with_tensors(shape=[-1]),
        "no shapes": _with_tensors(shape=None),
        "other types": _with_tensors(dtype="I64"),
        "no types": _with_tensors(dtype=5),
        "the same data": _with_tensors(data_offsets=[0, 1024]),
        "offsets the wrong way": _with_tensors(data_offsets=[1024, 0]),
        "offsets beyond the end": _with_tensors(data_offsets=[1 << 40, 1 << 41]),
        "offsets of 2^64": _with_tensors(data_offsets=[0, 1 << 64]),
        "weights that are no numbers": data(b"\xc0\x7f"),
        "weights that are infinite": data(b"\x80\x7f"),
        "weights that are zero": data(b"\0\0"),
    }
    for what, damage in damages.items():
        yield _WEIGHTS, what, damage


def _index_cases() -> Iterator[tuple[str, str, Damage]]:
    def index(weight_map: Any, also: Damage = lambda path: None) -> Damage:
        def damage(path: Path) -> None:
            write(path, json.dumps({"weight_map": weight_map}))
            if _WEIGHTS not in weight_map.values():  # which would be read in place of the shards
                (path.parent / _WEIGHTS).unlink()
            also(path.parent / "shard")

        return damage

    damages = {
        "a shard outside": index({"a": "../../etc/passwd"}),
        "a shard of the system": index({"a": "/etc/passwd"}),
        "a shard that is the folder": index({"a": "."}),
        "a shard that is missing": index({"a": "shard"}),
        "a shard that is a FIFO": index({"a": "shard"}, file_kinds()["FIFO"]),
        "a shard that is a device": index(
            {"a": "shard"}, lambda path: path.symlink_to("/dev/zero")
        ),
        "a shard that is no text": index({"a": 5}),
        "a shard with a zero in its name": index({"a": "a\0b"}),
        "100,000 shards": index({f"t{i}": f"shard{i}" for i in range(100_000)}),
        "tensors that are not there": index({f"t{i}": _WEIGHTS for i in range(100_000)}),
    }
    for what, damage in damages.items():
        yield _INDEX, what, damage


# ---------------------------------------------------------------------------- the weight cache


def _cache_cases() -> Iterator[tuple[str, str, Damage]]:
    def file(damage: Damage) -> Damage:
        """Damages the file that a first start has written."""

        def on_cache(path: Path) -> None:
            shutil.copytree(_state["cache"], path)
            path.chmod(0o700)
            (only,) = path.iterdir()
            damage(only)

        return on_cache

    def replaced(kind: Damage) -> Damage:
        def damage(path: Path) -> None:
            path.unlink()
            kind(path)

        return file(damage)

    def edited(edit: Callable[[bytes], bytes]) -> Damage:
        return file(lambda path: write(path, edit(path.read_bytes())))

    for what, kind in file_kinds().items():
        yield "cache file", what, replaced(kind)
        yield "cache folder", what, kind
    for what, edit in edits().items():
        yield "cache file", what, edited(edit)
    yield "cache file", "for everyone", file(lambda path: path.chmod(0o666))
    yield "cache folder", "for everyone", lambda path: (path.mkdir(), path.chmod(0o777))[0]


# ------------------------------------------------------------------------------------ the class


def _damages() -> Iterator[tuple[str, str, Damage]]:
    for name in _FILES:
        for what, kind in file_kinds().items():
            yield name, what, kind
        for what, edit in edits().items():
            yield name, what, _edited(edit)
    yield from _json_cases()
    yield from _tokenizer_cases()
    yield from _other_tokenizer_cases()
    yield from _weights_cases()
    yield from _index_cases()
    yield from _cache_cases()


def _edited(edit: Callable[[bytes], bytes]) -> Damage:
    def damage(path: Path) -> None:
        source = _SOURCE / path.name
        content = source.read_bytes() if source.exists() else b'{"a": "' + b"x" * 100 + b'"}'
        write(path, edit(content))

    return damage


def hostile_class() -> HostileClass:
    """The class."""
    cases = [Case(f"{name}: {what}", (name, damage)) for name, what, damage in _damages()]
    return HostileClass(
        "model_folders", cases, _attempt, cpu_s=5, memory_mib=768, sample=60, prepared=_prepared
    )


@contextmanager
def _prepared() -> Iterator[None]:
    """A folder for the copies, and a weight cache that a first start has written."""
    with tempfile.TemporaryDirectory(prefix="mlc-native-hostile-") as folder:
        _state["work"] = Path(folder)
        _state["cache"] = Path(folder) / "cache"
        _start(_SOURCE, _state["cache"])
        yield


def _attempt(value: tuple[str, Damage]) -> str:
    from mlc_native.errors import MAX_MESSAGE, EngineRequestError, InvalidConfig, LoadError

    name, damage = value
    folder, cache = _state["work"] / "folder", _state["work"] / "used cache"
    for each in (folder, cache):
        _remove(each)
    shutil.copytree(_SOURCE, folder, copy_function=shutil.copyfile)
    path = cache if name.startswith("cache") else folder / name
    _remove(path)
    if name == "mlc-chat-config.json":  # which counts in a folder without config.json
        _remove(folder / "config.json")
    damage(path)
    try:
        _start(folder, cache if name.startswith("cache") else None)
    except (LoadError, InvalidConfig) as error:
        message = str(error)
        if len(message) > MAX_MESSAGE + 10:
            return f"an error of {len(message)} characters: {message[:100]}"
        named = any(name in message for name in (*_FILES, str(folder), "chat template", "tensor"))
        return "refused" if named else f"an error that names no file: {message}"
    except EngineRequestError as error:  # weights that are no numbers
        return "refused" if "NaN or +inf" in str(error) else f"an error of a step: {error}"
    return "served"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _start(folder: Path, cache: Path | None) -> None:
    """Loads a model and asks it for two tokens."""
    from mlc_native import MLCEngine
    from mlc_native.errors import InvalidRequest
    from mlc_native.serve.config import EngineConfig

    config = EngineConfig(
        verbose=False,
        max_num_sequence=1,
        max_total_sequence_length=512,
        num_threads=1,
        weight_cache_dir=None if cache is None else str(cache),
    )
    engine = MLCEngine(str(folder), device="cpu", engine_config=config)
    try:
        engine.completions.create(prompt=[1, 2, 3], max_tokens=2)
        message = {"role": "user", "content": "Hi"}
        engine.chat.completions.create(messages=[message], max_tokens=2)
    except InvalidRequest:
        pass  # a model without a template, or a template that refuses
    finally:
        engine.terminate()
