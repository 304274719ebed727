"""ChatState: a chat with anything that has ``chat.completions.create``, by MLC-LLM's name."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from mlc_native.cli.chat import ChatLoop, make_display
from mlc_native.cli.commands import run_command
from mlc_native.cli.prompt import PipeReader, Reader, is_terminal, make_reader
from mlc_native.cli.session import ChatSession, Message
from mlc_native.errors import invalid_request


class ChatState:
    """A conversation. One thread at a time.

    Args:
        engine: an MLCEngine, a JSONFFIEngine or a client of OpenAI's package.
        model: the name of the model in requests.
    """

    def __init__(self, engine: Any, model: str = "chat_model") -> None:
        self.engine = engine
        self.model = model
        self._session = ChatSession(_Chatting(engine, model))
        self._interactive = is_terminal()
        self._display = make_display(self._interactive)
        self._loop = ChatLoop(self._session, self._display, False, self._interactive)

    @property
    def history(self) -> list[Message]:
        """The messages so far, without what was forgotten."""
        return self._session.messages

    @property
    def overrides(self) -> dict[str, Any]:
        """The settings of the answers, as keyword arguments of ``create``."""
        return self._session.settings.values

    @property
    def last_finished_request_usage(self) -> Any:
        """The usage of the last answer, or None."""
        return self._session.last_usage

    def generate(self, prompt: str) -> None:
        """Prints the answer to a turn. Raises the errors of ``create``."""
        self._loop.turn(prompt)

    def stats(self) -> None:
        """Prints tokens and speed of the last answer."""
        self._run("/stats")

    def metrics(self) -> None:
        """Prints the engine's metrics. Raises InvalidRequest if it has none."""
        self._run("/metrics")

    def reset(self) -> None:
        """Forgets the conversation."""
        self._session.reset()

    def chat(self) -> None:
        """Reads turns and commands until the end of the input or /exit."""
        reader: Reader = PipeReader(sys.stdin)
        if self._interactive:
            reader = make_reader(self._display.notice, None)
        self._loop.run(reader)

    def _run(self, command: str) -> None:
        run_command(self._loop.chat, command)


class _Chatting:
    """An engine or a client as a session wants it."""

    conv_template = "of the engine"  # it renders the messages

    def __init__(self, engine: Any, model: str) -> None:
        self._engine = engine
        self.model_name = model
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._create))
        self.completions = SimpleNamespace()  # a chat needs none

    def metrics(self) -> Any:
        if not hasattr(self._engine, "metrics"):
            raise invalid_request("metrics", "this engine has no metrics")
        return self._engine.metrics()

    def _create(self, **arguments: Any) -> Any:
        return self._engine.chat.completions.create(model=self.model_name, **arguments)
