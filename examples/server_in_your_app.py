"""An app of your own with OpenAI's interface below /llm, on an engine that the app uses itself.

python examples/server_in_your_app.py --port 8000
curl "http://127.0.0.1:8000/ask?question=What+is+2+%2B+2%3F"
curl http://127.0.0.1:8000/llm/v1/chat/completions -H "Content-Type: application/json" \
    -d '{"messages": [{"role": "user", "content": "Hi!"}]}'

It needs the extra "serve". With FastAPI instead of Starlette, app.mount is the same.
"""

from __future__ import annotations

import argparse

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from mlc_native import AsyncMLCEngine
from mlc_native.server import ServerConfig, create_app


def make_app(engine: AsyncMLCEngine) -> Starlette:
    """Two ways to the same engine: a page of this app, and everything that OpenAI's clients use."""

    async def ask(request: Request) -> PlainTextResponse:
        question = request.query_params.get("question", "Hi!")
        answer = await engine.chat.completions.create(
            messages=[{"role": "user", "content": question}], temperature=0
        )
        return PlainTextResponse(f"{answer.choices[0].message.content}\n")

    llm = create_app(engine, ServerConfig(max_concurrent_requests=64))
    return Starlette(routes=[Route("/ask", ask), Mount("/llm", llm)])


def main() -> None:
    parser = argparse.ArgumentParser(description="An app with a language model.")
    parser.add_argument("model", nargs="?", default="demo", help="model folder or hub id")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    with AsyncMLCEngine(arguments.model, mode="server") as engine:
        uvicorn.run(make_app(engine), port=arguments.port)


if __name__ == "__main__":
    main()
