"""Replicas of a model on Ray Serve: ``serve run mlc_native.server.ray:build_app model=demo``.

Needs the extra ``ray``. ``app`` is the part that knows Ray; it is imported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlc_native.errors import invalid_config

if TYPE_CHECKING:
    from mlc_native.server.ray.app import Settings, build_app

__all__ = ["Settings", "build_app"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    try:
        from mlc_native.server.ray import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        message = 'replicas need further packages: pip install "mlc_native[ray]"'
        raise invalid_config("ray", message) from None
    return getattr(app, name)
