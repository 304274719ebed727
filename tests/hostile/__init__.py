"""Hostile inputs by class: each must be served or refused, within limits, and nothing else happens.

A class is a module with a table of cases and a function that tries one; it is named here, and
frame.py runs its cases in child processes. ``run.py`` is the command, and
tests/python/test_hostile_classes.py takes a sample that differs from commit to commit.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from hostile.frame import HostileClass

# The modules, each of which has a function ``hostile_class``.
CLASSES = (
    "templates",
    "native_templates",
    "model_folders",
    "expert_folders",
    "hybrid_folders",
    "kimi_folders",
    "head_folders",
    "single_block_folders",
    "scan_folders",
    "adapter_folders",
    "gguf_headers",
    "request_values",
    "images",
    "image_settings",
    "grammars",
    "lifecycle",
)


def hostile_class(name: str) -> HostileClass:
    """The class of this name."""
    make: Callable[[], HostileClass] = import_module(f"hostile.{name}").hostile_class
    return make()
