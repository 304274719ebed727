"""``mlc-native chat`` on a terminal: editing, history, completion, Ctrl-C, control characters."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from terminal import Terminal

pytest.importorskip("prompt_toolkit")

MakeModel = Callable[..., str]
ROOT = Path(__file__).resolve().parents[2]
READY = "/help lists the commands"
PROMPT_LINE = "\n> "


@pytest.fixture
def start(make_model: MakeModel, fake_lib: str, tmp_path: Path) -> Callable[..., Terminal]:
    """start(*arguments, env={}, **fake) -> a terminal with a chat with the fake model."""

    def begin(*arguments: str, env: dict[str, str] | None = None, **fake: Any) -> Terminal:
        model = make_model(**{"answer": "Hello!", **fake})
        command = [sys.executable, "-m", "mlc_native", "chat", model, "--model-lib", fake_lib]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        state = {"XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONPATH": path}
        # Wide enough for a line with the path of the model.
        return Terminal([*command, *arguments], {**state, **(env or {})}, tmp_path, columns=250)

    return begin


def at_prompt(terminal: Terminal, count: int) -> str:
    """Waits for so many prompts, the last of which is empty."""
    terminal.wait_for(
        lambda text: (
            sum(line.startswith(">") for line in text.split("\n")) >= count
            and text.split("\n")[-1].rstrip() == ">"
        )
    )
    return terminal.text()


def stop_work(terminal: Terminal, line: str) -> None:
    """Stops what a line begins, which shows nothing, with Ctrl-C.

    Ctrl-C may come when the line is read but its work has not begun, which drops the line. So it
    comes a little later each time.
    """
    for attempt in range(1, 50):
        at_prompt(terminal, attempt)
        terminal.type(line + "\r")
        terminal.wait_until_cooked()
        time.sleep(0.01 * (attempt - 1))
        terminal.type("\x03")
        if "[stopped]" in at_prompt(terminal, attempt + 1):
            break
    assert "[stopped]" in terminal.text()
    assert "error:" not in terminal.text()


def test_editing_and_history(start: Callable[..., Terminal], tmp_path: Path) -> None:
    with start(chat_template="{{ messages[-1].content }}") as terminal:
        terminal.wait_for(READY)
        at_prompt(terminal, 1)
        terminal.type("hexlo\x1b[D\x1b[D\x7fl\r")  # left, left, backspace, l
        terminal.wait_for("Hello!")
        assert "> hello" in at_prompt(terminal, 2)
        terminal.type("\x1b[A")  # up
        terminal.wait_for(lambda text: text.count("> hello") == 2)
        terminal.type("\x15")  # clears the line
        terminal.type("\x04")
        assert terminal.wait() == 0
    history = tmp_path / "state" / "mlc_native" / "chat_history"
    assert "+hello\n" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0
    with start() as terminal:
        at_prompt(terminal, 1)
        terminal.type("\x1b[A")
        terminal.wait_for("> hello")
        terminal.type("\x15/exit\r")
        assert terminal.wait() == 0


def test_completion(start: Callable[..., Terminal]) -> None:
    with start() as terminal:
        at_prompt(terminal, 1)
        terminal.type("/se")
        terminal.wait_for("change settings")  # the explanation
        terminal.type("\t")
        terminal.wait_for("> /set")
        terminal.type(" max_t\t")
        terminal.wait_for("> /set max_tokens=")
        terminal.type("2\rhi\r")
        terminal.wait_for("greatest length")
        assert "\nHe\n" in terminal.text()


def test_a_paste_is_one_turn(start: Callable[..., Terminal]) -> None:
    with start(chat_template="{{ messages | length }}") as terminal:
        at_prompt(terminal, 1)
        terminal.paste("first line\nsecond line\n")
        terminal.wait_for("second line")
        assert "Hello!" not in terminal.text()
        terminal.type("\r")
        terminal.wait_for("Hello!")
        at_prompt(terminal, 2)
        terminal.type("/undo\r")
        terminal.wait_for("forgotten: first line\nsecond line")


def test_a_block_lasts_until_its_quotes(start: Callable[..., Terminal]) -> None:
    with start() as terminal:
        at_prompt(terminal, 1)
        terminal.type('"""one\r')
        terminal.wait_for("\n.")
        terminal.type('two"""\r')
        terminal.wait_for("Hello!")
        at_prompt(terminal, 2)
        terminal.type("/undo\r")
        terminal.wait_for("forgotten: one\ntwo")


def test_ctrl_c_clears_the_line(start: Callable[..., Terminal]) -> None:
    with start() as terminal:
        at_prompt(terminal, 1)
        terminal.type("not this\x03")
        at_prompt(terminal, 2)
        assert "Hello!" not in terminal.text()
        terminal.type("\x03")
        terminal.wait_for("Ctrl-D or /exit ends the chat")
        at_prompt(terminal, 3)  # before it, Ctrl-D would not be a key
        terminal.type("\x04")
        assert terminal.wait() == 0


def test_ctrl_c_stops_an_answer(start: Callable[..., Terminal]) -> None:
    # An answer of 2000 steps of 5 ms, were it not stopped.
    slow = {"answer": None, "script": [ord("x")] * 3, "us_per_step": 5000, "cost": "sleep"}
    with start(**slow) as terminal:
        at_prompt(terminal, 1)
        terminal.type("hi\r")
        terminal.wait_for("xxx")
        terminal.type("\x03")
        terminal.wait_for("[stopped]")
        at_prompt(terminal, 2)
        terminal.type("/set max_tokens=4\ragain\r")
        terminal.wait_for("greatest length")
        assert "\nxxxx\n" in terminal.text()
        terminal.type("/exit\r")
        assert terminal.wait() == 0


def test_ctrl_c_stops_a_template(start: Callable[..., Terminal]) -> None:
    # jinja2 renders what C++ does not know. Its sandbox would end it after five seconds, with an
    # error.
    loop = "{% for i in range(90000) %}"
    unknown = "{{ 'x' | center(3) }}"
    with start(chat_template=unknown + loop * 2 + "{% endfor %}" * 2) as terminal:
        stop_work(terminal, "hi")


@pytest.mark.slow
def test_ctrl_c_stops_a_compilation(start: Callable[..., Terminal], tmp_path: Path) -> None:
    pytest.importorskip("xgrammar")
    # It would be given up after 60 seconds, with an error; see isolation_test.cc.
    rules = ["root ::= r0"]
    for i in range(4000):
        rules.append(f'r{i} ::= [a-z]* r{(i * 7 + 1) % 4000} | [a-y]* r{(i * 5 + 3) % 4000} | ""')
    response_format = {"type": "grammar", "grammar": "\n".join(rules)}
    saved = {"messages": [], "settings": {"response_format": response_format}}
    (tmp_path / "slow.json").write_text(json.dumps(saved))
    with start("--grammar-compile-timeout-s", "60") as terminal:
        stop_work(terminal, "/load slow.json")
        terminal.type("hi\r")
        terminal.wait_for("Hello!")


def test_ctrl_c_stops_a_load(start: Callable[..., Terminal]) -> None:
    with start(load_parts=100_000, us_per_load_part=1000) as terminal:  # 100 seconds
        terminal.wait_for("Loading model")
        terminal.type("\x03")
        assert terminal.wait() == 130
        assert "interrupted" in terminal.text()
        assert "Traceback" not in terminal.text()


def test_control_characters_are_not_executed(start: Callable[..., Terminal]) -> None:
    with start(answer="\x1b[2J\x1b]0;title\x07\rgone") as terminal:
        at_prompt(terminal, 1)
        terminal.type("hi\r")
        terminal.wait_for("^[[2J^[]0;title^G^Mgone")
        assert READY in terminal.text()
        assert terminal.screen.title == ""


@pytest.mark.parametrize("flag", [[], ["--no-markdown"]], ids=["markdown", "plain"])
def test_markdown(start: Callable[..., Terminal], flag: list[str]) -> None:
    with start(*flag, answer="**bold** `code`") as terminal:
        at_prompt(terminal, 1)
        terminal.type("hi\r")
        terminal.wait_for("**bold** `code`" if flag else "bold code")


def test_without_prompt_toolkit_the_chat_says_once_what_to_install(
    start: Callable[..., Terminal], tmp_path: Path
) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "prompt_toolkit.py").write_text("raise ImportError")
    path = os.pathsep.join([str(tmp_path / "hidden"), str(ROOT)])
    with start(env={"PYTHONPATH": path}) as terminal:
        at_prompt(terminal, 1)
        terminal.type("hi\r")
        terminal.wait_for("Hello!")
        at_prompt(terminal, 2)
        terminal.type('"""a\r')
        terminal.wait_for("\n.")
        terminal.type('b"""\r')
        terminal.wait_for(lambda text: text.count("Hello!") == 2)
        at_prompt(terminal, 3)
        terminal.type("typed\x03")
        terminal.wait_for("Ctrl-D or /exit")
        assert terminal.text().count("pip install 'mlc_native[chat]'") == 1
        terminal.type("/exit\r")
        assert terminal.wait() == 0


def test_a_history_that_cannot_be_written(start: Callable[..., Terminal], tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with start() as terminal:
        terminal.wait_for("the history is not kept")
        terminal.type("hi\r")
        terminal.wait_for("Hello!")


def test_the_load_is_reported_in_one_line(start: Callable[..., Terminal]) -> None:
    with start() as terminal:
        terminal.wait_for("KV cache of ")
        assert "loaded in " in terminal.text()
    with start("--no-verbose") as terminal:
        terminal.wait_for(READY)
        assert "KV cache" not in terminal.text()
