"""A conversation with a model: its messages, its settings, and the engine that answers.

A model without a chat template continues the text of the conversation instead ("completion mode").
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from mlc_native.cli.settings import SETTINGS, Arguments, ChatSettings
from mlc_native.errors import InvalidRequest, invalid_config

COMPLETION_MAX_TOKENS = 256  # a model that continues a text seldom ends by itself
_TOO_LONG = "context_length_exceeded"  # the code of the error about a prompt that does not fit
_FORGOTTEN = ("notice", "the oldest exchange was forgotten: the conversation is too long")

Message = dict[str, str]


class ChatEngine(Protocol):
    """What a session needs: MLCEngine has it, and RemoteEngine."""

    @property
    def model_name(self) -> str:
        """The model."""

    @property
    def conv_template(self) -> Any:
        """None: the model continues texts only."""

    @property
    def chat(self) -> Any:
        """``chat.completions.create``."""

    @property
    def completions(self) -> Any:
        """``completions.create``."""

    def metrics(self) -> Any:
        """An object with ``metrics``."""


class ChatSession:
    """The state of a chat. Each method either succeeds or leaves the conversation as it was."""

    def __init__(self, engine: ChatEngine) -> None:
        self.engine = engine
        self.settings = ChatSettings(self._check)
        self.messages: list[Message] = []  # without the system prompt
        self.system: str | None = None
        self.last_usage: Any = None  # of the last answer; None if it was cut, or has none
        self.finish_reason: str | None = None  # of the last answer

    @property
    def completes(self) -> bool:
        """Whether this is completion mode."""
        return self.engine.conv_template is None

    # ---------------------------------------------------------------------------------- a turn

    def answer(self, text: str) -> Generator[tuple[str, str]]:
        """Yields the answer to a turn, piece by piece: ("content" or "reasoning", text).

        The turn and its answer become part of the conversation at the end, also if the generator is
        closed early, unless there was no answer. Yields ("notice", text) when the oldest exchange
        had to be forgotten.
        """
        self.messages.append({"role": "user", "content": text})
        pieces: list[str] = []
        try:
            for kind, piece in self._pieces():
                if kind == "content":
                    pieces.append(piece)
                yield kind, piece
        finally:
            if pieces:
                self.messages.append({"role": "assistant", "content": "".join(pieces)})
            else:
                self.messages.pop()

    def _pieces(self) -> Iterator[tuple[str, str]]:
        """Of a conversation that does not fit, the oldest exchanges are forgotten, unless the last
        turn does not even fit alone.
        """
        kept = list(self.messages)
        notices: list[tuple[str, str]] = []
        while True:
            try:
                for piece in self._stream():
                    yield from notices
                    notices.clear()
                    yield piece
                yield from notices
                return
            except InvalidRequest as error:
                starts = [i for i, m in enumerate(self.messages) if m["role"] == "user"]
                if error.code != _TOO_LONG or len(starts) < 2:
                    self.messages[:] = kept
                    raise
                del self.messages[starts[0] : starts[1]]
                notices.append(_FORGOTTEN)

    def _stream(self) -> Iterator[tuple[str, str]]:
        self.finish_reason = self.last_usage = None
        with self._open(self.messages, self.settings.arguments()) as stream:
            for chunk in stream:
                if chunk.usage is not None:
                    self.last_usage = chunk.usage
                for choice in chunk.choices:
                    self.finish_reason = choice.finish_reason or self.finish_reason
                    yield from _texts(choice)

    @contextmanager
    def _open(self, messages: list[Message], arguments: Arguments) -> Iterator[Any]:
        options: Arguments = {"stream": True, "stream_options": {"include_usage": True}}
        stream: Any
        if self.completes:
            limit = {"max_tokens": COMPLETION_MAX_TOKENS}
            stream = self.engine.completions.create(
                prompt=_text(messages), **options, **{**limit, **arguments}
            )
        else:
            system = [] if self.system is None else [{"role": "system", "content": self.system}]
            stream = self.engine.chat.completions.create(
                messages=[*system, *messages], **options, **arguments
            )
        try:
            yield stream
        finally:
            stream.close()  # aborts the request if it has not ended

    def _check(self, arguments: Arguments) -> None:
        """Raises the error of a request with these arguments and the system prompt."""
        with self._open([{"role": "user", "content": "?"}], arguments):
            pass

    # ---------------------------------------------------------------------- the conversation

    def set_system(self, text: str | None) -> None:
        """Sets the system prompt of the following turns; None removes it.

        Raises:
            InvalidConfig: the model has no chat template.
            InvalidRequest: its chat template takes no system prompt.
        """
        if self.completes:
            raise invalid_config("system", "a model without a chat template has no system prompt")
        before, self.system = self.system, text
        try:
            self._check(self.settings.arguments())
        except BaseException:
            self.system = before
            raise

    def reset(self) -> None:
        """Forgets the conversation. Settings and system prompt stay."""
        self.messages.clear()

    def undo(self) -> str | None:
        """Removes the last turn with its answer and returns the turn; None if there is none."""
        for index in range(len(self.messages) - 1, -1, -1):
            if self.messages[index]["role"] == "user":
                text = self.messages[index]["content"]
                del self.messages[index:]
                return text
        return None

    # -------------------------------------------------------------------------------- in a file

    def save(self, path: Path) -> None:
        """Writes the conversation as JSON. Replaces only a file that is such a conversation.

        Raises:
            InvalidConfig: the file is something else.
            OSError: it cannot be written.
        """
        if path.exists():
            _read(path)
        saved = {
            "model": self.engine.model_name,
            "system": self.system,
            "messages": self.messages,
            "settings": self.settings.values,
        }
        partial = path.with_name(path.name + ".partial")
        partial.write_text(json.dumps(saved, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(partial, path)

    def load(self, path: Path) -> None:
        """Goes on with a saved conversation: what ``save`` wrote, or a list of OpenAI's messages.

        Raises:
            InvalidConfig: the file is something else.
            InvalidRequest: the engine refuses its settings or messages.
            OSError: it cannot be read.
        """
        saved = _read(path)
        before = (self.system, self.messages, self.settings.values)
        self.system, self.messages = saved["system"], saved["messages"]
        if saved["settings"] is not None:
            self.settings.values = saved["settings"]
        try:
            with self._open(
                self.messages or [{"role": "user", "content": "?"}], self.settings.arguments()
            ):
                pass
        except BaseException as error:
            if isinstance(error, InvalidRequest) and error.code == _TOO_LONG:
                return  # a turn forgets the oldest exchanges
            self.system, self.messages, self.settings.values = before
            raise


def _text(messages: list[Message]) -> str:
    """A conversation as one text. Each turn begins a line."""
    text = ""
    for message in messages:
        text += "\n" if text and message["role"] == "user" else ""
        text += message["content"]
    return text


def _texts(choice: Any) -> Iterator[tuple[str, str]]:
    """The texts that a chunk adds to an answer, by kind."""
    delta = getattr(choice, "delta", None)
    if delta is None:
        texts = [("content", choice.text)]
    else:
        reasoning = getattr(delta, "reasoning_content", None)
        texts = [("reasoning", reasoning), ("content", delta.content)]
    for kind, text in texts:
        if isinstance(text, str) and text:
            yield kind, text


def _read(path: Path) -> dict[str, Any]:
    """The parts of a saved conversation: system, messages, settings (None: not in the file)."""
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        saved = None
    if isinstance(saved, list):
        saved = {"messages": saved}
    messages = saved.get("messages") if isinstance(saved, dict) else None
    if not isinstance(messages, list) or not all(_is_message(message) for message in messages):
        raise invalid_config(
            "file", f"{path} is not a conversation: JSON with a list of messages (role, content)"
        )
    system = saved.get("system")
    if messages and messages[0]["role"] in ("system", "developer"):
        system, messages = messages[0]["content"], messages[1:]
    plain = [{"role": m["role"], "content": m["content"]} for m in messages]
    settings = saved.get("settings")
    for name in settings if isinstance(settings, dict) else ():
        if name not in SETTINGS:
            raise invalid_config(name, f'{path}: there is no setting "{name}"')
    return {
        "system": system if isinstance(system, str) else None,
        "messages": plain,
        "settings": settings if isinstance(settings, dict) else None,
    }


def _is_message(message: object) -> bool:
    return (
        isinstance(message, dict)
        and isinstance(message.get("role"), str)
        and isinstance(message.get("content"), str)
    )
