"""Serving: the engines, their settings, and what goes in and out of them."""

from mlc_native._core import AdapterInfo, PagedRadixTree, PinnedPrefix
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.data import (
    Data,
    EmbeddingData,
    ImageData,
    RequestStreamOutput,
    TextData,
    TokenData,
)
from mlc_native.serve.embedding_engine import AsyncEmbeddingEngine
from mlc_native.serve.engine import AsyncMLCEngine, MLCEngine
from mlc_native.serve.popen_server import PopenServer
from mlc_native.serve.request import Request

__all__ = [
    "AdapterInfo",
    "AsyncEmbeddingEngine",
    "AsyncMLCEngine",
    "Data",
    "EmbeddingData",
    "EngineConfig",
    "ImageData",
    "MLCEngine",
    "PagedRadixTree",
    "PinnedPrefix",
    "PopenServer",
    "Request",
    "RequestStreamOutput",
    "TextData",
    "TokenData",
]
