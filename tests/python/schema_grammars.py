"""What the grammar of a JSON schema accepts, compared with a validator, without a model."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("a", "b", "title", "ab")
SCALARS = (None, True, False, 0, 1, 2, -1, 0.5, 3.0, "", "a", "b", "ab", "title", "é")


@dataclass(frozen=True)
class Answer:
    """What mlc_native_schemas says."""

    refused: str = ""
    accepts: tuple[bool, ...] = ()
    samples: tuple[str, ...] = ()


class SchemaGrammars:
    """The program mlc_native_schemas (tests/cpp/schemas)."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [program()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(
        self, schema: Any, strict: bool, texts: list[str], samples: int = 0, seed: int = 0
    ) -> Answer:
        """Compile a schema, and try texts and samples."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = {
            "schema": json.dumps(schema),
            "strict": strict,
            "texts": texts,
            "samples": samples,
            "seed": seed,
        }
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"mlc_native_schemas ended with {schema}"
        answer = json.loads(line)
        return Answer(
            answer.get("refused", ""),
            tuple(answer.get("accepts", ())),
            tuple(answer.get("samples", ())),
        )

    def close(self) -> None:
        """End the program."""
        self._process.communicate()


def program() -> Path:
    """The program in the build folder; it need not be there."""
    folders = [os.environ["MLC_NATIVE_BUILD_DIR"]] if "MLC_NATIVE_BUILD_DIR" in os.environ else []
    found = [Path(folder) / "mlc_native_schemas" for folder in folders]
    found += sorted((ROOT / "build").glob("*/mlc_native_schemas"))
    return next((path for path in found if path.exists()), Path("mlc_native_schemas"))


def texts_of(value: Any) -> list[str]:
    """The texts that a grammar may write for a value: free ones, and those of "enum"."""
    spaced = json.dumps(value, ensure_ascii=False)
    return [spaced, json.dumps(value, ensure_ascii=False, separators=(",", ":"))]


def _ecma_pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    """ "pattern" with the character classes of ECMA-262."""
    del schema
    if validator.is_type(instance, "string") and not re.search(pattern, instance, re.ASCII):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


_Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator, {"pattern": _ecma_pattern}
)


def is_valid(schema: Any, value: Any) -> bool:
    """Whether the value satisfies the schema, as the package jsonschema says."""
    return bool(_Validator(schema).is_valid(value))


def read(text: str) -> Any:
    """The value of a JSON text. NaN and the like are no JSON."""

    def no_constant(name: str) -> Any:
        raise ValueError(name)

    return json.loads(text, parse_constant=no_constant)


class SchemaDraw:
    """Schemas of the kinds that are rewritten, drawn at random."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def schema(self, depth: int = 2) -> Any:
        """A schema of some keywords; those below have fewer."""
        draw = self._random
        if depth <= 0 or draw.random() < 0.1:
            return draw.choice([{}, True, {"type": self._type()}, self._listed(), self._scalar()])
        schema: dict[str, Any] = {}
        for _ in range(draw.randint(1, 3)):
            schema |= self._keyword(depth)
        if draw.random() < 0.4:
            schema["type"] = self._type()
        if draw.random() < 0.1:
            schema["$ref"] = "#/$defs/d"
        return schema

    def with_definition(self) -> dict[str, Any]:
        """A schema of several that "$ref" may name a part of."""
        schema = self.schema(3)
        schema = schema if isinstance(schema, dict) else {"allOf": [schema]}
        return {**schema, "$defs": {"d": self.schema(1) if "$ref" not in schema else {}}}

    def value(self, depth: int = 2) -> Any:
        """A value of the kind that the schemas are about."""
        draw = self._random
        if depth <= 0 or draw.random() < 0.4:
            return draw.choice(SCALARS)
        if draw.random() < 0.4:
            return [self.value(depth - 1) for _ in range(draw.randint(0, 3))]
        names = draw.sample(NAMES, draw.randint(0, 3))
        return {name: self.value(depth - 1) for name in names}

    def mutated(self, value: Any) -> Any:
        """The value with one part replaced, added or left out."""
        draw = self._random
        if isinstance(value, dict) and value and draw.random() < 0.8:
            name = draw.choice(list(value))
            if draw.random() < 0.3:
                return {other: value[other] for other in value if other != name}
            if draw.random() < 0.3:
                return {**value, draw.choice(NAMES): self.value(1)}
            return {**value, name: self.mutated(value[name])}
        if isinstance(value, list) and value and draw.random() < 0.8:
            index = draw.randrange(len(value))
            if draw.random() < 0.3:
                return value[:index] + value[index + 1 :]
            return [*value[:index], self.mutated(value[index]), *value[index + 1 :]]
        return self.value(1)

    def _type(self) -> Any:
        types = ["null", "boolean", "integer", "number", "string", "array", "object"]
        if self._random.random() < 0.7:
            return self._random.choice(types)
        return self._random.sample(types, 2)

    def _listed(self) -> dict[str, Any]:
        values = self._random.sample(SCALARS, self._random.randint(1, 4))
        return {"const": values[0]} if self._random.random() < 0.3 else {"enum": values}

    def _scalar(self) -> dict[str, Any]:
        draw = self._random
        pattern = draw.choice(["^a*$", "^[ab]{1,2}$", "^(a|b)c?$", "a", "^\\S$", "^.$"])
        return draw.choice(
            [
                {"type": "integer", "minimum": draw.randint(-2, 2)},
                {"type": "number", "exclusiveMaximum": draw.choice([0, 1.5, 2])},
                {"type": "string", "minLength": draw.randint(0, 2), "maxLength": 3},
                {"type": "string", "pattern": pattern},
                {"maxLength": 1},
                {"minimum": 1},
                {"type": "integer", "multipleOf": draw.randint(1, 3)},
            ]
        )

    def _properties(self, depth: int) -> dict[str, Any]:
        names = self._random.sample(NAMES, self._random.randint(1, 3))
        return {name: self.schema(depth - 1) for name in names}

    def _keyword(self, depth: int) -> dict[str, Any]:
        draw = self._random

        def below() -> Any:
            return self.schema(depth - 1)

        def several() -> list[Any]:
            return [below() for _ in range(draw.randint(1, 3))]

        def names() -> list[str]:
            return draw.sample(NAMES, draw.randint(1, 2))

        kinds: list[Any] = [
            lambda: {draw.choice(["allOf", "anyOf", "oneOf"]): several()},
            lambda: {"properties": self._properties(depth)},
            lambda: {"properties": self._properties(depth), "required": names()},
            lambda: {"required": names()},
            lambda: {"additionalProperties": draw.choice([False, True, below()])},
            lambda: {"not": draw.choice([self._listed(), {"type": self._type()}, below()])},
            lambda: {"if": below(), "then": below(), "else": below()},
            lambda: {
                "if": {"properties": {"a": self._listed()}, "required": ["a"]},
                "then": below(),
            },
            lambda: {"dependentRequired": {draw.choice(NAMES): names()}},
            lambda: {"dependentSchemas": {draw.choice(NAMES): below()}},
            lambda: {"patternProperties": {"^a": below()}},
            lambda: {"propertyNames": draw.choice([{"enum": names()}, {"maxLength": 2}])},
            lambda: {draw.choice(["minProperties", "maxProperties"]): draw.randint(0, 2)},
            lambda: {"items": below()},
            lambda: {"prefixItems": several(), "items": draw.choice([False, below()])},
            lambda: {draw.choice(["minItems", "maxItems"]): draw.randint(0, 2)},
            lambda: {"uniqueItems": True, "maxItems": draw.randint(1, 2)},
            lambda: {"contains": below()},
            lambda: {"unevaluatedProperties": draw.choice([False, below()])},
            lambda: {"unevaluatedItems": False},
            self._listed,
            self._scalar,
        ]
        keyword: dict[str, Any] = draw.choice(kinds)()
        return keyword
