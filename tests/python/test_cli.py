"""``mlc-native chat``: commands, piped input, one-off prompts, Ctrl-C, errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlc_native.cli.main import main
from mlc_native.cli.overrides import engine_config_from_overrides, parse_assignments
from mlc_native.errors import InvalidConfig

MakeModel = Callable[..., str]


@pytest.fixture
def chat(
    make_model: MakeModel,
    fake_lib: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., tuple[int, str, str]]:
    """chat(input, *arguments, **fake) -> (status, stdout, stderr)."""
    import io

    def run(text: str, *arguments: str, **fake: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        model = make_model(**{"answer": "Hello!", **fake})
        status = main(["chat", model, "--model-lib", fake_lib, *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_piped_input(chat: Callable[..., Any]) -> None:
    status, out, err = chat("hi\n\n/exit\nnever read\n")
    assert (status, err) == (0, "")
    assert out == "> hi\nHello!\n> \n> /exit\n"


def test_end_of_input_ends_the_program(chat: Callable[..., Any]) -> None:
    status, out, _ = chat("hi")
    assert (status, out) == (0, "> hi\nHello!\n")


def test_prompts_on_the_command_line(chat: Callable[..., Any]) -> None:
    status, out, _ = chat("", "--prompt", "a", "--prompt", "b")
    assert (status, out) == (0, "> a\nHello!\n> b\nHello!\n")


def test_commands(chat: Callable[..., Any]) -> None:
    _, out, _ = chat("/stats\nhi\n/stats\n/metrics\n/help\n/nonsense\n/reset\n/exit\n")
    assert "no answer yet" in out
    assert "answer 7 tokens" in out
    assert '"completion_tokens_sum": 7' in out
    assert "/set name=value" in out
    assert "no command /nonsense" in out
    assert "conversation forgotten" in out


def test_set(chat: Callable[..., Any]) -> None:
    _, out, _ = chat("/set max_tokens=2; temperature=0\nhi\n/set stop=l\nhi\n/exit\n")
    assert "max_tokens=2" in out
    assert "\nHe\n" in out


def test_mistakes_do_not_end_the_chat(chat: Callable[..., Any]) -> None:
    lines = ["/set nonsense=1", "/set max_tokens", "/set temperature=-1", "hi"]
    lines += ["/set temperature=0", "hi", "/exit"]
    status, out, _ = chat("\n".join(lines) + "\n")
    assert status == 0
    assert out.count("error:") == 3
    assert "Hello!" in out


def test_the_oldest_exchange_is_forgotten_when_the_context_is_full(
    chat: Callable[..., Any],
) -> None:
    _, out, _ = chat("first\nsecond\nthird\n/exit\n", context_window_size=64)
    assert out.count("Hello!") == 3
    assert "the oldest exchange was forgotten" in out


def test_overrides(chat: Callable[..., Any]) -> None:
    status, _, err = chat("", "--overrides", "max_num_sequence=0")
    assert status == 2
    assert "max_num_sequence" in err
    status, out, _ = chat("hi\n", "--overrides", "max_num_sequence=2;prefill_mode=chunked")
    assert (status, out) == (0, "> hi\nHello!\n")


def test_override_parsing() -> None:
    assert parse_assignments("a=1; b = x=y ;") == {"a": "1", "b": "x=y"}
    config = engine_config_from_overrides("max_num_sequence=3;dtype=float32")
    assert (config.max_num_sequence, config.dtype) == (3, "float32")
    for text in ("a", "=1", "no_such_field=1"):
        with pytest.raises(InvalidConfig):
            engine_config_from_overrides(text)


@pytest.mark.parametrize("model", ["/no/such/folder", "."])
def test_a_model_that_is_none(
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["chat", model]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err


def read_until(process: subprocess.Popen[bytes], text: bytes) -> bytes:
    """Output up to and with ``text``."""
    assert process.stdout is not None
    output = b""
    while text not in output:
        piece = os.read(process.stdout.fileno(), 4096)
        assert piece, f"the program ended after {output!r}"
        output += piece
    return output


def test_ctrl_c_aborts_the_answer_and_not_the_program(make_model: MakeModel, fake_lib: str) -> None:
    # An answer of 2000 steps of 5 ms, were it not aborted.
    model = make_model(script=[ord("x")] * 3, us_per_step=5000, cost="sleep")
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", "mlc_native.cli.main", "chat", model, "--model-lib", fake_lib],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdin is not None
    try:
        process.stdin.write(b"hi\n")
        process.stdin.flush()
        read_until(process, b"xxx")
        process.send_signal(signal.SIGINT)
        read_until(process, b"[aborted]")
        process.stdin.write(b"/set max_tokens=4\nagain\n/exit\n")
        process.stdin.flush()
        output = read_until(process, b"/exit")
        assert b"> again\nxxxx\n" in output
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
