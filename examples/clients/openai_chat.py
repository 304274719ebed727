"""A chat with OpenAI's library: a plain answer, a stream, and an answer of a type.

mlc-native serve demo
pip install openai
python examples/clients/openai_chat.py --url http://127.0.0.1:8000
"""

from __future__ import annotations

import argparse
import os

import openai
from pydantic import BaseModel


class Person(BaseModel):
    name: str
    age: int


def main() -> None:
    parser = argparse.ArgumentParser(description="A chat with OpenAI's library.")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    url = parser.parse_args().url
    client = openai.OpenAI(
        base_url=f"{url}/v1", api_key=os.environ.get("MLC_NATIVE_API_KEY", "none")
    )
    model = client.models.list().data[0].id
    question: openai.types.chat.ChatCompletionUserMessageParam = {
        "role": "user",
        "content": "What is the capital of France?",
    }

    plain = client.chat.completions.create(model=model, messages=[question], temperature=0)
    print(plain.choices[0].message.content)

    for chunk in client.chat.completions.create(
        model=model, messages=[question], temperature=0, stream=True
    ):
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()

    typed = client.chat.completions.parse(
        model=model,
        messages=[
            {"role": "user", "content": "Give me a JSON object with name and age for Anna, 31."}
        ],
        temperature=0,
        response_format=Person,
    )
    print(typed.choices[0].message.parsed)


if __name__ == "__main__":
    main()
