"""A serving engine for large language models that lives inside your process.

from mlc_native import MLCEngine

with MLCEngine("demo") as engine:
    messages = [{"role": "user", "content": "What is 2 + 2?"}]
    for chunk in engine.chat.completions.create(messages=messages, stream=True):
        print(chunk.choices[0].delta.content, end="")
"""

from __future__ import annotations

import importlib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str

    from mlc_native.errors import (
        AnswerParseError,
        EngineRequestError,
        EngineTerminatedError,
        InternalError,
        InvalidConfig,
        InvalidRequest,
        LengthFinishReasonError,
        LoadError,
        MLCNativeError,
        ModelNotLoaded,
        QueueFull,
    )
    from mlc_native.protocol.generation_config import GenerationConfig
    from mlc_native.serve.batch import GenerationResult
    from mlc_native.serve.config import EngineConfig
    from mlc_native.serve.engine import AsyncMLCEngine, MLCEngine
    from mlc_native.serve.sync_engine import SyncMLCEngine
    from mlc_native.support.inspection import inspect_model

# Imported on first use: the engines bring pydantic, jinja2 and tokenizers with them.
_PUBLIC = {
    "AnswerParseError": "mlc_native.errors",
    "AsyncMLCEngine": "mlc_native.serve.engine",
    "EngineConfig": "mlc_native.serve.config",
    "EngineRequestError": "mlc_native.errors",
    "EngineTerminatedError": "mlc_native.errors",
    "GenerationConfig": "mlc_native.protocol.generation_config",
    "GenerationResult": "mlc_native.serve.batch",
    "InternalError": "mlc_native.errors",
    "InvalidConfig": "mlc_native.errors",
    "InvalidRequest": "mlc_native.errors",
    "LengthFinishReasonError": "mlc_native.errors",
    "LoadError": "mlc_native.errors",
    "MLCEngine": "mlc_native.serve.engine",
    "MLCNativeError": "mlc_native.errors",
    "ModelNotLoaded": "mlc_native.errors",
    "QueueFull": "mlc_native.errors",
    "SyncMLCEngine": "mlc_native.serve.sync_engine",
    "inspect_model": "mlc_native.support.inspection",
}

__all__ = [
    "AnswerParseError",
    "AsyncMLCEngine",
    "EngineConfig",
    "EngineRequestError",
    "EngineTerminatedError",
    "GenerationConfig",
    "GenerationResult",
    "InternalError",
    "InvalidConfig",
    "InvalidRequest",
    "LengthFinishReasonError",
    "LoadError",
    "MLCEngine",
    "MLCNativeError",
    "ModelNotLoaded",
    "QueueFull",
    "SyncMLCEngine",
    "__version__",
    "cmake_dir",
    "inspect_model",
    "lib_dir",
]

_FOLDER = Path(__file__).parent
# In a checkout, Python finds the sources before the package that pip has installed.
if not any((_FOLDER / f"_core{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
    raise ImportError(
        f"the mlc_native in {_FOLDER.parent} is not built for this Python; if pip has installed "
        "mlc_native, start Python in another folder or with -P; "
        f"else build the sources: pip install -e {_FOLDER.parent}"
    )


def lib_dir() -> str:
    """The folder of libmlc_native_c.so, which hosts in C and other languages link or load."""
    return str(_FOLDER / "lib")


def cmake_dir() -> str:
    """The folder for ``-Dmlc_native_DIR=...``, with which a C++ host finds the library."""
    return str(_FOLDER / "lib" / "cmake" / "mlc_native")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("mlc_native")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+unknown"


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
