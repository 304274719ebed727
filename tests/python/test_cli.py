"""The chat program as a user runs it: a process with pipes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from mlc_native.cli.chat import ChatSettings
from mlc_native.cli.overrides import engine_config_from_overrides
from mlc_native.errors import InvalidConfig

WAIT_S = 60


def command(model: str, fake_lib: str, *arguments: str) -> list[str]:
    program = [sys.executable, "-m", "mlc_native.cli.main", "chat", model]
    return [*program, "--device", "cpu", "--model-lib", fake_lib, *arguments]


def run_chat(model: str, fake_lib: str, lines: list[str]) -> str:
    """What the program prints for these lines of input; it must end by itself with status 0."""
    done = subprocess.run(
        command(model, fake_lib),
        input="".join(line + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_answers_each_line(make_model: Callable[..., str], fake_lib: str) -> None:
    printed = run_chat(make_model(answer="Hello there."), fake_lib, ["hi", "and again", "/exit"])
    assert printed.count("Hello there.") == 2


def test_end_of_input_ends_the_program(make_model: Callable[..., str], fake_lib: str) -> None:
    assert "Hello." in run_chat(make_model(answer="Hello."), fake_lib, ["hi"])


def test_commands(make_model: Callable[..., str], fake_lib: str) -> None:
    lines = ["/help", "/stats", "hi", "/stats", "/metrics", "/set temperature=0.5;max_tokens=2"]
    lines += ["hi", "/set nonsense=1", "/set temperature=-1", "hi", "/reset", "/unknown"]
    printed = run_chat(make_model(answer="Hello."), fake_lib, lines)
    assert "/metrics" in printed
    assert "no answer yet" in printed
    assert "answer 7 tokens" in printed  # 6 bytes and the end
    assert '"completion_tokens_sum": 7' in printed
    assert "temperature=0.5" in printed
    assert "\nHe\n" in printed  # max_tokens=2
    assert 'no setting "nonsense"' in printed
    assert '"temperature" should be non-negative' in printed
    assert "conversation forgotten" in printed
    assert "no command /unknown" in printed


def test_ctrl_c_aborts_the_answer_and_not_the_program(
    make_model: Callable[..., str], fake_lib: str
) -> None:
    model = make_model(script=[ord("x")], us_per_step=5000, cost="sleep")
    process = subprocess.Popen(
        command(model, fake_lib), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("hi\n")
    process.stdin.flush()
    while process.stdout.read(1) != "x":
        pass  # an endless answer has begun
    process.send_signal(signal.SIGINT)
    printed = ""
    while "[aborted]" not in printed:
        piece = process.stdout.read(1)
        assert piece, "the program ended"
        printed += piece
    rest, _ = process.communicate("/metrics\n/exit\n", timeout=WAIT_S)
    assert '"num_aborts": 1' in rest
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--overrides", "max_num_sequence=0"], "max_num_sequence"),
        (["--overrides", "nonsense=1"], "nonsense"),
        (["--overrides", "max_num_sequence"], "name=value"),
        (["--set", "nonsense=1"], "nonsense"),
    ],
)
def test_wrong_settings_are_named(
    make_model: Callable[..., str], fake_lib: str, arguments: list[str], message: str
) -> None:
    done = subprocess.run(
        command(make_model(), fake_lib, *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_is_no_model(tmp_path: object, fake_lib: str) -> None:
    done = subprocess.run(
        command(str(tmp_path), fake_lib),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 2
    assert "config.json" in done.stderr


def test_settings_become_arguments() -> None:
    settings = ChatSettings()
    settings.update("temperature=0;top_k=5")
    settings.update("stop=###")
    assert settings.arguments() == {
        "temperature": 0,
        "stop": "###",
        "extra_body": {"top_k": 5},
    }


def test_a_wrong_piece_changes_nothing() -> None:
    settings = ChatSettings()
    with pytest.raises(InvalidConfig):
        settings.update("temperature=1;nonsense=2")
    assert settings.arguments() == {}


def test_overrides() -> None:
    config = engine_config_from_overrides("max_num_sequence=3; dtype=bfloat16;verbose=false")
    assert config.max_num_sequence == 3
    assert config.dtype == "bfloat16"
    assert json.loads(config.asjson())["verbose"] is False
