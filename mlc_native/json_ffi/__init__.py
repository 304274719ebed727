"""MLC-LLM's engine for JSON: requests as JSON texts, answers as chunks."""

from mlc_native.json_ffi.engine import JSONFFIEngine

__all__ = ["JSONFFIEngine"]
