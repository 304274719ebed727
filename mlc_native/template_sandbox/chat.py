"""The environment that Hugging Face chat templates are written for."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NoReturn

import jinja2

from mlc_native.template_sandbox.environment import BoundedEnvironment
from mlc_native.template_sandbox.limits import MAX_REASON


def _raise_exception(message: object) -> NoReturn:
    raise jinja2.exceptions.TemplateError(str(message)[:MAX_REASON])


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON, since jinja2's own filter escapes for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def chat_environment() -> BoundedEnvironment:
    """Makes the environment."""
    environment = BoundedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = environment.bounded("tojson", _to_json)
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment
