"""The C++ engine and the Python object whose method is its callback are collected together."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable

from mlc_native import _core


class Owner:
    """Owns an engine that calls one of its methods: a reference cycle through C++."""

    def __init__(self, model: str, fake_lib: str) -> None:
        config = {"model": model, "model_lib": fake_lib, "verbose": False}
        self.engine = _core.Engine.create(json.dumps(config), "cpu", self.receive)

    def receive(self, outputs: list[_core.RequestStreamOutput]) -> None:
        del outputs


def test_a_cycle_through_the_callback_is_collected(
    make_model: Callable[..., str], fake_lib: str
) -> None:
    owner = Owner(make_model(), fake_lib)
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None
