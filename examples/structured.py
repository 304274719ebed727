"""An answer that keeps to a JSON schema, as an object of your own.

python examples/structured.py --text "Give me a JSON object with name and age for Anna, 31."
"""

from __future__ import annotations

import argparse

from pydantic import BaseModel

from mlc_native import MLCEngine


class Person(BaseModel):
    """What is to be read from a text."""

    name: str
    age: int


def extract(engine: MLCEngine, text: str) -> Person:
    """The person that a text speaks of."""
    answer = engine.chat.completions.create(
        messages=[{"role": "user", "content": text}],
        temperature=0,
        # Tokens that would leave the schema have probability zero: the answer always parses.
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "person", "schema": Person.model_json_schema()},
        },
    )
    return Person.model_validate_json(str(answer.choices[0].message.content))


def main() -> None:
    parser = argparse.ArgumentParser(description="A person from a text.")
    parser.add_argument("model", nargs="?", default="demo", help="model folder or hub id")
    parser.add_argument("--text", default="Give me a JSON object with name and age for Anna, 31.")
    arguments = parser.parse_args()
    with MLCEngine(arguments.model) as engine:
        person = extract(engine, arguments.text)
    print(f"{person.name} is {person.age} years old.")


if __name__ == "__main__":
    main()
