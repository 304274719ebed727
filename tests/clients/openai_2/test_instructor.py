"""Instructor, in the modes that a server of its own serves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import instructor
import openai
import pytest
from demo_chat import KEY, PERSON_QUESTION, WAIT_S
from pydantic import BaseModel

MODES = [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS_STRICT]
MESSAGES = [{"role": "user", "content": PERSON_QUESTION}]


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, timeout=WAIT_S) as client:
        yield client


@pytest.mark.parametrize("mode", MODES)
def test_create(client: openai.OpenAI, mode: Any) -> None:
    person = instructor.from_openai(client, mode=mode).chat.completions.create(
        model="demo", messages=MESSAGES, response_model=Person, temperature=0, max_retries=0
    )
    assert isinstance(person, Person)
    if mode == instructor.Mode.JSON_SCHEMA:
        assert person.model_dump() == {"name": "Ella", "age": 52}


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA])
def test_partial(client: openai.OpenAI, mode: Any) -> None:
    people = list(
        instructor.from_openai(client, mode=mode).chat.completions.create_partial(
            model="demo", messages=MESSAGES, response_model=Person, temperature=0
        )
    )
    assert people  # at least one, as steps may share a chunk
    assert people[-1].name
    assert isinstance(people[-1].age, int)
