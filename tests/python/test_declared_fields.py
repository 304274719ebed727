"""The fields of a config are declared once, in a public header: the rest derives from that."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from mlc_native import EngineConfig, _core
from mlc_native.cli.overrides import add_engine_flags, engine_config_from_flags
from mlc_native.cli.serve import add_arguments as add_serve_arguments
from mlc_native.errors import InvalidConfig
from mlc_native.protocol.declared_options import DeclaredOptions
from mlc_native.protocol.generation_config import GenerationConfig, SamplingOptions
from mlc_native.protocol.openai_api_protocol import (
    EXTRA_FIELDS,
    ChatCompletionRequest,
    CompletionRequest,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import declared_fields


def parse(*arguments: str) -> EngineConfig:
    parser = argparse.ArgumentParser()
    parser.add_argument("--overrides", default="")
    add_engine_flags(parser)
    return engine_config_from_flags(parser.parse_args(arguments))


def test_the_server_knows_names_of_vllm() -> None:
    parser = argparse.ArgumentParser()
    add_serve_arguments(parser)
    for arguments, expected in (([], "model"), (["--generation-config", "vllm"], "openai")):
        args = parser.parse_args(["demo", "--enable-request-id-headers", *arguments])
        assert engine_config_from_flags(args).sampling_defaults == expected
    with pytest.raises(SystemExit):
        parser.parse_args(["demo", "--generation-config", "a/folder"])


def test_the_tools_read_what_the_engine_declares() -> None:
    declared = {field.name: field for field in declared_fields.engine_fields()}
    described = {entry["name"]: entry for entry in _core.describe_engine_fields()}
    assert [*declared] == [*described]
    for name, entry in described.items():
        field = declared[name]
        assert (field.type, field.default, field.doc) == (
            entry["type"],
            entry["default"],
            entry["doc"],
        )
        if field.choices:
            assert field.choices == entry["choices"]
    docs = declared_fields.docs("generation_config.h")
    assert _core.generation_field_docs().items() <= docs.items()


def test_an_engine_config_has_the_declared_fields() -> None:
    names = {field.name for field in fields(EngineConfig)}
    assert names == {entry["name"] for entry in _core.describe_engine_fields()}
    # What Python fills in is what the engine would have taken.
    written = json.loads(_core.check_engine_config(EngineConfig().engine_json()))
    assert written == json.loads(_core.check_engine_config("{}"))
    assert EngineConfig.__doc__ is not None
    for name in names:
        assert f"{name}: " in EngineConfig.__doc__


def test_every_setting_has_a_flag() -> None:
    config = parse("--dtype", "float32", "--num-threads", "3", "--timeout-s", "1.5")
    assert (config.dtype, config.num_threads, config.timeout_s) == ("float32", 3, 1.5)
    assert config.verbose is True
    assert parse("--no-verbose").verbose is False
    assert parse("--additional-models", "a", "b").additional_models == ["a", "b"]
    assert parse().additional_models == EngineConfig().additional_models
    assert parse("--adapters", "a=b", "c=d").adapters == ["a=b", "c=d"]
    assert parse("--overrides", "adapters=a=b;num_threads=2").adapters == "a=b"
    config = parse("--overrides", "dtype=float32;spec_tree_width=2", "--dtype", "bfloat16")
    assert (config.dtype, config.spec_tree_width) == ("bfloat16", 2)
    with pytest.raises(SystemExit):
        parse("--prefill-mode", "fast")
    with pytest.raises(InvalidConfig, match="num_threads"):
        _core.check_engine_config(parse("--num-threads", "0").engine_json())


def test_a_generation_config_has_the_fields_of_the_engine() -> None:
    assert set(GenerationConfig.model_fields) == set(_core.generation_field_docs())
    config = _core.GenerationConfig()
    for name in set(GenerationConfig.model_fields) - {"debug_config"}:
        assert hasattr(config, name)
    # A default that Python names is the engine's.
    written = json.loads(GenerationConfig().apply_to(_core.GenerationConfig()).as_json())
    assert written == json.loads(_core.GenerationConfig().as_json())


def other_value(kind: Any, default: Any) -> Any:
    """A value of a type that is not the default."""
    kinds = [arg for arg in get_args(kind) if arg is not type(None)] or [kind]
    values = {bool: not default, int: 3, float: 0.25, str: "x", list[int]: [3, 4]}
    return values[kinds[0]] if kinds[0] in values else next(k for k in kinds if k != default)


def test_every_declared_option_reaches_the_engine() -> None:
    kinds = get_type_hints(DeclaredOptions)
    assert {"temperature", "min_tokens", "priority", "stop_token_ids"} < set(kinds)
    unset = json.loads(GenerationConfig().apply_to(_core.GenerationConfig()).as_json())
    for name, field in DeclaredOptions.model_fields.items():
        value = other_value(kinds[name], field.get_default())
        config = GenerationConfig(**{name: value}).apply_to(_core.GenerationConfig())
        assert json.loads(config.as_json()) == {**unset, name: value}
        assert getattr(config, name) == value


def test_requests_take_every_sampling_option() -> None:
    options = set(SamplingOptions.model_fields)
    for request in (ChatCompletionRequest, CompletionRequest):
        assert options < set(request.model_fields)
    assert options - set(EXTRA_FIELDS) == {
        *("n", "temperature", "top_p", "frequency_penalty", "presence_penalty"),
        *("logit_bias", "max_tokens", "seed", "response_format"),
    }
