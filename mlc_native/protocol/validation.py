"""What pydantic finds wrong, as an InvalidRequest of one line that names the field."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from mlc_native.errors import InvalidRequest, invalid_request, shown
from mlc_native.support.keywords import name_hint

ModelT = TypeVar("ModelT", bound=BaseModel)
MAX_PROBLEMS = 3  # in one message
_MAX_NAME = 64  # characters of a name within a value
_KIND = re.compile(r"\w+\[.+\]|str|int|float|bool")  # as pydantic names them


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
        raise invalid_fields(error, kind.model_fields) from None
    except RecursionError:
        raise invalid_request("request", "a field of the request is nested too deeply") from None
    except Exception as error:  # what a method of a caller's object raises
        raise unreadable(field_that_raises(kind, fields), error) from error


def unreadable(field: str, error: Exception) -> InvalidRequest:
    """The InvalidRequest for a field whose value raises an error of its own when it is read."""
    return invalid_request(field, f'"{field}" cannot be read: {type(error).__name__}: {error}')


def field_that_raises(kind: type[BaseModel], fields: Mapping[str, Any]) -> str:
    """The field whose value raises an error of its own when ``kind`` reads it."""
    for name, value in fields.items():
        try:
            kind.model_validate({name: value})
        except ValidationError:
            pass  # of the others, which are missing
        except Exception:
            return name
    return "request"


def read_lazy(
    fields: dict[str, Any], lists: Mapping[str, int], objects: Mapping[str, int]
) -> dict[str, Any]:
    """The fields, with a list or dict for each value that is read member by member.

    It may have no end, or far more members than it takes memory: an iterator, a range.

    Args:
        lists, objects: names of fields, and how many members such a value may have there.

    Raises:
        FieldError: a value has more.
    """
    read = dict(fields)
    for name in lists.keys() & fields:
        if isinstance(fields[name], Iterable) and not isinstance(fields[name], _IN_MEMORY):
            read[name] = _read_list(name, fields[name], lists[name])
    for name in objects.keys() & fields:
        if type(fields[name]) is not dict and isinstance(fields[name], Mapping):
            read[name] = dict(_read(name, fields[name].items(), objects[name]))
    return read


_IN_MEMORY = (str, bytes, bytearray, list, tuple, set, frozenset, Mapping)


def _read_list(name: str, value: Iterable[Any], limit: int) -> object:
    try:
        iter(value)
    except TypeError:  # an array of no dimension, which is a number
        return value
    return _read(name, value, limit)


def _read(name: str, value: Iterable[Any], limit: int) -> list[Any]:
    members = list(itertools.islice(value, limit + 1))
    if len(members) > limit:
        raise FieldError(name, f'"{name}" may have {limit} members, got more')
    return members


def invalid_fields(error: ValidationError, known: Collection[str]) -> InvalidRequest:
    """The InvalidRequest for a ValidationError of a class with the ``known`` fields: its field is
    the first wrong one."""
    found = error.errors(include_url=False)
    places: dict[tuple[int | str, ...], list[Any]] = {}
    for each in found:
        places.setdefault(_place(each["loc"]), []).append(each)
    problems = [_problem(place, group, known) for place, group in places.items()]
    if len(problems) > MAX_PROBLEMS:
        problems[MAX_PROBLEMS:] = [f"and {len(problems) - MAX_PROBLEMS} more"]
    return invalid_request(_field(found[0]), "; ".join(problems))


def _is_kind(part: int | str) -> bool:
    """Whether a part of a location is one of the kinds that a field may have, not a name."""
    return isinstance(part, str) and _KIND.fullmatch(part) is not None


def _place(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The field of an error, which has one for each kind that the field may have."""
    return tuple(itertools.takewhile(lambda part: not _is_kind(part), location))


def _field(found: Any) -> str:
    if found["loc"]:
        return str(found["loc"][0])
    cause = found.get("ctx", {}).get("error")
    return cause.field if isinstance(cause, FieldError) else "request"


def _problem(place: tuple[int | str, ...], group: list[Any], known: Collection[str]) -> str:
    if group[0]["type"] == "extra_forbidden":
        hint = name_hint(place[0], known) if len(place) == 1 else ""
        return ": ".join([*_path(place), f"there is no such field{hint}"])
    inner = max(group, key=lambda each: len(each["loc"]))
    inner_place = tuple(part for part in inner["loc"] if not _is_kind(part))
    if len(inner_place) > len(place):  # of the right kind, with something wrong within it
        place, group = inner_place, [inner]
    first, *others = map(_message, group)
    message = " or ".join([first, *(text.removeprefix("Input should be ") for text in others)])
    # A message of ours names the value where that helps.
    found = group[0]
    value = "" if found["type"] == "value_error" else f", got {shown(found['input'])}"
    return ": ".join([*_path(place), message]) + value


def _message(error: Any) -> str:
    if error["type"] == "int_parsing_size":  # the message calls a number a text
        return "Input should be an integer of fewer digits"
    message: str = error["msg"]
    return message.removeprefix("Value error, ")


def _path(location: tuple[int | str, ...]) -> list[str]:
    """``messages[0].role``, or nothing for an error that concerns several fields."""
    if not location:
        return []
    parts = [f"[{part}]" if isinstance(part, int) else f".{part[:_MAX_NAME]}" for part in location]
    return ["".join(parts).removeprefix(".")]
