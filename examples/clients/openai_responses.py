"""OpenAI's responses with OpenAI's library: a plain answer, then a stream that continues it.

mlc-native serve demo
pip install openai
python examples/clients/openai_responses.py --url http://127.0.0.1:8000
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import openai


def main() -> None:
    parser = argparse.ArgumentParser(description="OpenAI's responses.")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    url = parser.parse_args().url
    client = openai.OpenAI(
        base_url=f"{url}/v1", api_key=os.environ.get("MLC_NATIVE_API_KEY", "none")
    )
    model = client.models.list().data[0].id

    # The server stores no responses, so the items of the conversation are sent each time.
    items: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
    first = client.responses.create(model=model, input=items, temperature=0, store=False)
    print(first.output_text)

    items += [item.model_dump(exclude_none=True) for item in first.output]
    items.append({"role": "user", "content": "What is the capital of Italy?"})
    with client.responses.stream(model=model, input=items, temperature=0) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                print(event.delta, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
