"""What pydantic finds wrong, as an InvalidRequest of one line that names the field."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from mlc_native.errors import InvalidRequest, invalid_request, shown

ModelT = TypeVar("ModelT", bound=BaseModel)
MAX_PROBLEMS = 3  # in one message


class FieldError(ValueError):
    """What a check of several fields finds wrong: ``field`` is the one to change."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def validated(kind: type[ModelT], fields: dict[str, Any]) -> ModelT:
    """Returns ``kind(**fields)``. Raises InvalidRequest about the first field that is wrong."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise invalid_fields(error) from None
    except RecursionError:
        raise invalid_request("request", "a field of the request is nested too deeply") from None


def invalid_fields(error: ValidationError) -> InvalidRequest:
    """The InvalidRequest for a ValidationError: its field is the first wrong one."""
    found = error.errors(include_url=False)
    problems = [_problem(each) for each in found[:MAX_PROBLEMS]]
    if len(found) > MAX_PROBLEMS:
        problems.append(f"and {len(found) - MAX_PROBLEMS} more")
    return invalid_request(_field(found[0]), "; ".join(problems))


def _field(found: Any) -> str:
    if found["loc"]:
        return str(found["loc"][0])
    cause = found.get("ctx", {}).get("error")
    return cause.field if isinstance(cause, FieldError) else "request"


def _problem(found: Any) -> str:
    message = found["msg"].removeprefix("Value error, ")
    # A message of ours names the value where that helps.
    value = "" if found["type"] == "value_error" else f", got {shown(found['input'])}"
    return ": ".join([*_path(found["loc"]), message]) + value


def _path(location: tuple[int | str, ...]) -> list[str]:
    """``messages[0].role``, or nothing for an error that concerns several fields."""
    if not location:
        return []
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return ["".join(parts).removeprefix(".")]
