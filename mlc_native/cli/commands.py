"""The commands of a chat: ``/help`` and the others, as a table with their completions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mlc_native.cli.display import Display
from mlc_native.cli.session import ChatSession
from mlc_native.cli.settings import SETTINGS, choices
from mlc_native.errors import invalid_config

QUOTES = '"""'
NO_USAGE = "[no token counts of the last answer]"


class Leave(Exception):
    """The chat is over."""


@dataclass
class Chat:
    """A session and where it is shown. ``turn`` answers a text."""

    session: ChatSession
    display: Display
    turn: Callable[[str], None]


@dataclass(frozen=True)
class Command:
    """A command: what it takes, what it does in a line, and the function that does it."""

    takes: str
    text: str
    run: Callable[[Chat, str], None]


def _help(chat: Chat, _: str) -> None:
    rows = [
        (f"{name} {command.takes}".rstrip(), command.text) for name, command in COMMANDS.items()
    ]
    rows += [
        (f"{QUOTES} ... {QUOTES}", "a turn of several lines; pasted text is one turn, too"),
        ("Ctrl-C", "stop the answer, or clear the line"),
        ("settings", ", ".join(SETTINGS)),
    ]
    chat.display.notice("\n".join(_row(left, right) for left, right in rows))


def _row(left: str, right: str, indent: int = 22, width: int = 98) -> str:
    lines = [""]
    for word in right.split():
        if lines[-1] and len(lines[-1]) + len(word) + 1 > width - indent:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return f"{left:<{indent - 1}} " + f"\n{'':<{indent}}".join(lines)


def _exit(_chat: Chat, _: str) -> None:
    raise Leave


def _stats(chat: Chat, _: str) -> None:
    usage = chat.session.last_usage
    if usage is None:
        chat.display.notice(NO_USAGE if chat.session.messages else "no answer yet")
        return
    lines = [f"prompt {usage.prompt_tokens} tokens, answer {usage.completion_tokens} tokens"]
    lines += [f"{name}: {_figure(value)}" for name, value in (usage.extra or {}).items()]
    chat.display.notice("\n".join(lines))


def _figure(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _metrics(chat: Chat, _: str) -> None:
    chat.display.notice(json.dumps(chat.session.engine.metrics().metrics, indent=2))


def _reset(chat: Chat, _: str) -> None:
    chat.session.reset()
    chat.display.notice("conversation forgotten")


def _set(chat: Chat, argument: str) -> None:
    if argument:
        chat.session.settings.update(argument)
    chat.display.notice(str(chat.session.settings))


def _system(chat: Chat, argument: str) -> None:
    if argument:
        chat.session.set_system(None if argument == "default" else argument)
    system = chat.session.system
    chat.display.notice("no system prompt" if system is None else f"system prompt: {system}")


def _undo(chat: Chat, _: str) -> None:
    turn = chat.session.undo()
    chat.display.notice("nothing to undo" if turn is None else f"forgotten: {turn}")


def _regen(chat: Chat, _: str) -> None:
    session = chat.session
    before = list(session.messages)
    turn = session.undo()
    if turn is None:
        chat.display.notice("nothing to answer again")
        return
    without = list(session.messages)
    try:
        chat.turn(turn)
    finally:
        if session.messages == without:  # there is no new answer: the old one stays
            session.messages = before


def _save(chat: Chat, argument: str) -> None:
    path = _path(argument)
    chat.session.save(path)
    chat.display.notice(f"saved {len(chat.session.messages)} messages in {path}")


def _load(chat: Chat, argument: str) -> None:
    path = _path(argument)
    chat.session.load(path)
    chat.display.notice(f"loaded {len(chat.session.messages)} messages from {path}")


def _path(argument: str) -> Path:
    if not argument:
        raise invalid_config("file", "give the name of a file")
    return Path(argument).expanduser()


COMMANDS = {
    "/help": Command("", "this text", _help),
    "/exit": Command("", "end (also Ctrl-D)", _exit),
    "/stats": Command("", "tokens and speed of the last answer", _stats),
    "/metrics": Command("", "the engine's metrics", _metrics),
    "/reset": Command("", "forget the conversation", _reset),
    "/undo": Command("", "forget the last turn and its answer", _undo),
    "/regen": Command("", "answer the last turn again", _regen),
    "/system": Command("TEXT", 'the system prompt from now on; "default" removes it', _system),
    "/set": Command(
        "NAME=VALUE;...",
        'change settings; "default" is the model\'s. stop is texts with commas between them, or a '
        "JSON list; lists and objects (as response_format) are JSON. Without arguments: show them",
        _set,
    ),
    "/save": Command("FILE", "write the conversation, as JSON", _save),
    "/load": Command("FILE", "go on with a saved conversation, or a list of messages", _load),
}
FILE_COMMANDS = ("/save", "/load")


def run_command(chat: Chat, line: str) -> None:
    """Runs a line that begins with a slash. Raises Leave, and the errors of the command."""
    name, _, argument = line.partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        raise invalid_config("command", f"no command {name}; /help lists them")
    command.run(chat, argument.strip())


def completions(text: str) -> list[tuple[str, int, str]]:
    """What may stand at the end of a line: (text, length of what it replaces, explanation)."""
    name, space, argument = text.partition(" ")
    if not name.startswith("/") or "\n" in text:
        return []
    if not space:
        return [
            (known, len(name), command.text.partition(";")[0])
            for known, command in COMMANDS.items()
            if known.startswith(name)
        ]
    if name != "/set":
        return []
    piece = argument.rpartition(";")[2].lstrip()
    setting, equals, value = piece.partition("=")
    if not equals:
        return [(f"{known}=", len(piece), "") for known in SETTINGS if known.startswith(piece)]
    return [(known, len(value), "") for known in choices(setting) if known.startswith(value)]
