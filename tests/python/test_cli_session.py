"""A session in a terminal that shows every feature of the command line, live and as recorded.

docs/chat_session.cast is the recording (asciicast v2: ``asciinema play`` shows it, and it can be
read as text). Record it anew with ``python tests/python/test_cli_session.py``.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyte
import pytest
from fake_model import find_fake_model_lib, write_model
from terminal import Screen, Terminal

pytest.importorskip("prompt_toolkit")

ROOT = Path(__file__).resolve().parents[2]
RECORDING = ROOT / "docs" / "chat_session.cast"
SHELL = "$ "
CHAT = "> "
LEFT, UP, CTRL_C, CTRL_D = "\x1b[D", "\x1b[A", "\x03", "\x04"
# Greedy, so that the answers are always the same.
GREEDY = "--temperature 0"


class Session:
    """A shell on a terminal, in which the steps below are typed."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal

    def ready(self, prompt: str) -> None:
        """Waits for an empty prompt in the last line."""
        self.terminal.wait_for(lambda text: text.split("\n")[-1].rstrip() == prompt.rstrip())

    def run(self, command: str, *expected: str, prompt: str = SHELL) -> str:
        """Types a command and waits for the prompt behind it; returns what is new."""
        before = len(self.terminal.text())
        self.terminal.type(command + "\r")
        for text in expected:
            self.wait_behind(before, text)
        self.ready(prompt)
        return self.terminal.text()[before:]

    def ask(self, turn: str, *expected: str) -> str:
        """The same in the chat."""
        return self.run(turn, *expected, prompt=CHAT)

    def wait_behind(self, position: int, text: str) -> None:
        """Waits for a text behind a position of the terminal's text."""
        self.terminal.wait_for(lambda all_text: text in all_text[position:])


def pipes(session: Session) -> None:
    """Answers only, statuses, errors."""
    session.run("mlc-native --version", "mlc-native ")
    session.run(f'echo "What is 2 + 2?" | mlc-native chat {GREEDY}', "2 + 2 = 4")
    session.run(f"mlc-native chat {GREEDY} --prompt 'Spell cat.' --stats", "tokens per second]")
    session.run("mlc-native chat ./nowhere --prompt hi; echo $?", "no model folder", "\n1")


def chatting(session: Session) -> None:
    """Editing, history, completion, several lines, and the commands."""
    session.run("mlc-native chat demo", "loaded in", "/help lists the commands", prompt=CHAT)
    session.ask("/help", "/regen")
    session.ask("/set temp\t0", "temperature=0")
    session.ask("/set top_p=2", 'error: "top_p" should be')
    session.ask("What is the capital of Frence?" + LEFT * 4 + "\x7fa", "Paris")
    session.ask(UP + LEFT + "\x7f" * 6 + "Japan", "Tokyo")
    session.ask("/undo", "forgotten: What is the capital of Japan?")
    session.ask("/regen", "Paris")
    session.ask("/system Answer briefly.", "system prompt: Answer briefly.")
    session.ask("What is the capital of Italy?", "Rome")
    session.ask("/save chat.json", "saved 4 messages")
    session.ask("/reset", "conversation forgotten")
    session.ask("/load chat.json", "loaded 4 messages")
    session.ask("/system default", "no system prompt")
    session.ask('"""\rSpell cat.\r"""', "c-a-t")
    session.terminal.paste("Repeat: hello\nworld")
    session.terminal.wait_for("\n. world")
    session.ask("")
    session.ask("/stats", "decode_tokens_per_s")
    session.terminal.type("not sent" + CTRL_C)
    session.terminal.wait_for("> not sent\n>")
    session.terminal.type(CTRL_D)
    session.ready(SHELL)


def interrupts(session: Session) -> None:
    """Ctrl-C in a load and in an answer, control characters, a model without a template."""
    session.terminal.type("mlc-native chat ./slow-to-load --model-lib $FAKE\r")
    session.terminal.wait_for("Loading slow-to-load")
    session.terminal.type(CTRL_C)
    session.terminal.wait_for("interrupted")
    session.ready(SHELL)
    session.run("echo $?", "130")
    session.run("mlc-native chat ./slow --model-lib $FAKE", "/help lists", prompt=CHAT)
    session.terminal.type("Go on.\r")
    session.terminal.wait_for("yyy")
    session.terminal.type(CTRL_C)
    session.terminal.wait_for("[stopped]")
    session.ready(CHAT)
    session.run("/exit")
    session.run("mlc-native chat ./hostile --model-lib $FAKE", "/help lists", prompt=CHAT)
    session.ask("Clear my screen.", "^[[2J")
    session.run("/exit")
    session.run("mlc-native chat ./base --model-lib $FAKE", "no chat template", prompt=CHAT)
    session.ask("Once upon", " a time.")
    session.run("/exit")


def batches(session: Session) -> None:
    """A batch with a bad line, and what a second run does."""
    session.run("cat batch.jsonl", '"custom_id": "b"')
    session.run("mlc-native generate batch.jsonl", "2 answered, 1 failed")
    session.run("mlc-native generate batch.jsonl", "3 before (1 of them failed)")


STEPS: tuple[Callable[[Session], None], ...] = (pipes, chatting, interrupts, batches)


def write_files(folder: Path) -> None:
    """What the session uses: a program, models, a batch."""
    program = folder / "bin" / "mlc-native"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mlc_native "$@"\n')
    program.chmod(0o755)
    write_model(folder / "slow-to-load", load_parts=100_000, us_per_load_part=1000)
    endless = {"script": [ord("y")] * 3, "us_per_step": 5000, "cost": "sleep"}
    write_model(folder / "slow", **endless)
    write_model(folder / "hostile", answer="\x1b[2J\x1b[31mred\x07")
    write_model(folder / "base", answer=" a time.", chat_template=None)
    lines: list[object] = ["not a request"]
    for custom_id, question in (("a", "What is 3 + 4?"), ("b", "Spell dog.")):
        messages = [{"role": "user", "content": question}]
        body = {"messages": messages, "temperature": 0}
        url = "/v1/chat/completions"
        lines.insert(0, {"custom_id": custom_id, "url": url, "body": body})
    (folder / "batch.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@contextmanager
def session_in(folder: Path) -> Iterator[Session]:
    write_files(folder)
    env = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PS1": SHELL,
        "FAKE": find_fake_model_lib(),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    with Terminal(["bash", "--norc", "--noprofile"], env, cwd=folder, rows=40) as terminal:
        session = Session(terminal)
        session.ready(SHELL)
        yield session


def play(folder: Path) -> Terminal:
    """Runs all steps."""
    with session_in(folder) as session:
        for step in STEPS:
            step(session)
        recorded = len(session.terminal.events)
        session.terminal.type("exit 0\r")
        assert session.terminal.wait() == 0
        del session.terminal.events[recorded:]
    return session.terminal


def shown(recording: str) -> list[str]:
    """The lines that a recording leaves on the screen, without figures that vary."""
    header, *events = (json.loads(line) for line in recording.splitlines())
    screen = Screen(header["width"], header["height"], lambda _: None)
    stream = pyte.Stream(screen)
    for _, kind, text in events:
        assert kind == "o"
        stream.feed(text)
    return [re.sub(r"\d[\d.,]*(\+\w+)?", "#", line) for line in screen.all_lines()]


@pytest.mark.slow
def test_the_session_runs_as_recorded(tmp_path: Path) -> None:
    terminal = play(tmp_path)
    live, recorded = terminal.recording("live"), RECORDING.read_text()

    def answers(recording: str) -> list[str]:
        # How far the load had come and how long the answer was is up to the moment of Ctrl-C, and
        # the threads, the instruction set and the size of the cache to the machine. The names of
        # the settings, at the end of the help, become more.
        varying = re.compile(
            r"Loading |^y+$|loaded in|^[a-z_]+: #|tokens per second|threads?,|^settings  | {22}"
        )
        return [line for line in shown(recording) if line and not varying.search(line)]

    assert answers(live) == answers(recorded)


def main() -> None:
    """Records the session."""
    with tempfile.TemporaryDirectory() as folder:
        terminal = play(Path(folder))
    RECORDING.write_text(terminal.recording("mlc-native in a terminal"))


if __name__ == "__main__":
    main()
