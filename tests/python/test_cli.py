"""``mlc-native chat``: commands, piped input, one-off prompts, Ctrl-C, errors."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyte
import pytest
from rich.console import Console

import mlc_native
from mlc_native import MLCEngine
from mlc_native.cli.commands import completions
from mlc_native.cli.display import showing
from mlc_native.cli.main import main, make_parser
from mlc_native.cli.overrides import engine_config_from_overrides, parse_assignments
from mlc_native.cli.session import ChatSession
from mlc_native.cli.terminal_display import TerminalDisplay
from mlc_native.errors import InvalidConfig, InvalidRequest, show_controls
from mlc_native.serve import EngineConfig, PopenServer

MakeModel = Callable[..., str]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def chat(
    make_model: MakeModel,
    fake_lib: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., tuple[int, str, str]]:
    """chat(input, *arguments, **fake) -> (status, stdout, stderr)."""

    def run(text: str, *arguments: str, **fake: Any) -> tuple[int, str, str]:
        data = io.BytesIO(text.encode("utf-8", "surrogateescape"))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data, "utf-8"))
        model = make_model(**{"answer": "Hello!", **fake})
        status = main(["chat", model, "--model-lib", fake_lib, *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_the_model_of_a_chat_may_have_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--model", "demo", "--prompt", "What is 2 + 2?"]) == 0
    assert "4" in capsys.readouterr().out


def test_options_are_not_guessed_from_their_beginning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["chat", "--model-l", "x.so"])
    assert ended.value.code == 2
    assert "unrecognized arguments: --model-l" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["serve", "demo", "--max-model-len", "100"], "--max-single-sequence-length"),
        (["serve", "demo", "--max-num-seqs=4"], "--max-num-sequence"),
        (["chat", "demo", "--max_tokens", "4"], "--max-tokens"),
        (["bench", "demo", "--ctx-size", "512"], "--max-single-sequence-length"),
    ],
)
def test_flags_of_other_programs(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is that of the subcommand and names the flag that is meant."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.endswith(f"; did you mean {meant}?\n")
    assert f"mlc-native {arguments[0]}: error: unrecognized arguments: " in error


def test_a_pipe_gets_answers_only(chat: Callable[..., Any]) -> None:
    assert chat("hi\n\n/exit\nnever read\n") == (0, "Hello!\n", "")


def test_end_of_input_ends_the_program(chat: Callable[..., Any]) -> None:
    assert chat("hi") == (0, "Hello!\n", "")


def test_prompts_on_the_command_line(chat: Callable[..., Any]) -> None:
    assert chat("", "--prompt", "a", "--prompt", "b") == (0, "Hello!\nHello!\n", "")
    assert chat("", "--prompt", "a", "--echo") == (0, "> a\nHello!\n", "")


def test_control_characters_reach_a_pipe_as_they_are(chat: Callable[..., Any]) -> None:
    assert chat("", "--prompt", "a", answer="\x1b[31mred")[1] == "\x1b[31mred\n"


def test_commands(chat: Callable[..., Any]) -> None:
    status, out, err = chat("/stats\nhi\n/stats\n/metrics\n/help\n/reset\n/undo\n/exit\n")
    assert (status, out) == (0, "Hello!\n")
    assert "no answer yet" in err
    assert "answer 7 tokens" in err
    assert '"completion_tokens_sum": 7' in err
    assert "/set NAME=VALUE" in err
    assert "conversation forgotten\nnothing to undo" in err


def test_set(chat: Callable[..., Any]) -> None:
    lines = ["/set max_tokens=2; temperature=0", "hi", "/set stop=o,l", "/set max_tokens 4", "hi"]
    _, out, err = chat("\n".join([*lines, "/set max_tokens=default;stop=null", "hi"]) + "\n")
    assert out == "He\nHe\nHello!\n"
    assert "max_tokens=2; temperature=0\n" in err
    assert "[the answer reached its greatest length]" in err
    assert err.endswith("temperature=0\n")
    assert "have the model's defaults" in chat("/set seed=1\n/set default\n")[2]


def test_flags_of_settings(chat: Callable[..., Any]) -> None:
    flags = ["--max-tokens", "2", "--temperature", "0.5", "--seed", "7", "--set", "top_p=0.9"]
    _, out, err = chat("hi\n/set\n", *flags)
    assert out == "He\n"
    assert err.endswith("top_p=0.9; temperature=0.5; max_tokens=2; seed=7\n")


def test_variables_of_the_template(chat: Callable[..., Any]) -> None:
    template = "{{ x }}{{ messages[-1].content }}"
    _, _, err = chat("hi\n/stats\n", "--template-args", '{"x": "abc"}', chat_template=template)
    assert "prompt 5 tokens" in err
    assert chat("hi\n", "--template-args", "[1]")[0] == 2


def test_a_setting_is_checked_when_it_is_set(chat: Callable[..., Any]) -> None:
    lines = ["/set nonsense=1", "/set max_tokens", "/set temperature=-1", "/set seed=x", "/set"]
    status, out, err = chat(
        "\n".join([*lines, "/nonsense", "/load", "/load /no/file", "hi"]) + "\n"
    )
    assert (status, out) == (1, "Hello!\n")
    assert err.count("error: ") == 7
    assert "error: /no/file: No such file or directory\n" in err
    assert '"temperature" should be non-negative and finite, got -1' in err
    assert "have the model's defaults" in err
    status, out, err = chat("hi\n", "--temperature", "-1")
    assert (status, out) == (2, "")
    assert '"temperature" should be' in err


def test_stats(chat: Callable[..., Any]) -> None:
    _, out, err = chat("hi\n", "--stats")
    assert out == "Hello!\n"
    assert " + 7 tokens; first token after " in err


def test_stats_of_guesses(chat: Callable[..., Any]) -> None:
    lines = ["hi", "/stats", "hi"]
    flags = ["--speculative-mode", "suffix", "--spec-draft-length", "2"]
    status, out, err = chat("\n".join(lines) + "\n", *flags, answer="abcabcabcabc")
    assert (status, out) == (0, "abcabcabcabc\n" * 2)
    assert re.search(r"^acceptance_histogram: \[[0-9, ]+\]$", err, re.MULTILINE)
    assert "\ncompletion_tokens: 13\n" in err


def test_a_block_is_one_turn(chat: Callable[..., Any]) -> None:
    template = "{{ messages[-1].content }}"
    status, out, err = chat('"""\n/help\nme"""\n', "--echo", chat_template=template)
    assert (status, out, err) == (0, '> """\n/help\nme"""\nHello!\n', "")
    assert chat('"""one\ntwo', chat_template=template)[1] == "Hello!\n"


def test_the_oldest_exchange_is_forgotten_when_the_context_is_full(
    chat: Callable[..., Any],
) -> None:
    _, out, err = chat("first\nsecond\nthird\n/exit\n", context_window_size=64)
    assert out.count("Hello!") == 3
    assert "the oldest exchange was forgotten" in err


@pytest.mark.parametrize("wrong", ["a\udcff", "x" * 100], ids=["no text", "too long"])
def test_a_turn_that_is_refused_by_itself_forgets_nothing(
    chat: Callable[..., Any], tmp_path: Path, wrong: str
) -> None:
    saved = tmp_path / "saved.json"
    status, out, err = chat(f"first\n{wrong}\nagain\n/save {saved}\n", context_window_size=90)
    assert (status, out) == (1, "Hello!\n" * 2)
    assert err.startswith("error: ")
    assert "was forgotten" not in err
    messages = json.loads(saved.read_text())["messages"]
    assert [m["content"] for m in messages] == ["first", "Hello!", "again", "Hello!"]


def test_without_a_chat_template_the_text_is_continued(chat: Callable[..., Any]) -> None:
    status, out, err = chat("Say \nagain\n/system x\n", chat_template=None)
    assert (status, out) == (1, "Hello!\nHello!\n")
    assert "no chat template: it continues your text" in err
    assert "has no system prompt" in err
    # Each turn is a line behind the text so far: "Say" + "Hello!" + "\n" + "again".
    prompts = chat("Say\n/stats\nagain\n/stats\n", chat_template=None)[2]
    assert "prompt 3 tokens" in prompts
    assert "prompt 15 tokens" in prompts


def test_overrides(chat: Callable[..., Any]) -> None:
    status, _, err = chat("", "--overrides", "max_num_sequence=0")
    assert status == 2
    assert "max_num_sequence" in err
    status, out, _ = chat("hi\n", "--overrides", "max_num_sequence=2;prefill_mode=chunked")
    assert (status, out) == (0, "Hello!\n")


def test_override_parsing() -> None:
    assert parse_assignments("a=1; b = x=y ;") == {"a": "1", "b": "x=y"}
    config = engine_config_from_overrides("max_num_sequence=3;dtype=float32")
    assert (config.max_num_sequence, config.dtype) == (3, "float32")
    for text in ("a", "=1", "no_such_field=1"):
        with pytest.raises(InvalidConfig):
            engine_config_from_overrides(text)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_an_output_that_lacks_characters(tmp_path: Path, encoding: str) -> None:
    text = "\u65e5 \xe9"
    folder = tmp_path / text
    folder.symlink_to(Path(mlc_native.__file__).parent / "demo_model")
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    prompts = ["--prompt", text, "--prompt", "Spell cat."]
    for arguments in (["chat", "demo", "--echo", *prompts], ["inspect", str(folder)]):
        command = [sys.executable, "-m", "mlc_native", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        assert text.encode(encoding, "backslashreplace") in done.stdout
        assert done.stderr == b""
    assert done.stdout.count(b"\n") > 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a = ["x;y"] ;b=1', {"a": '["x;y"]', "b": "1"}),
        ('a={"c": "d;e=f"};b="\\";"', {"a": '{"c": "d;e=f"}', "b": '"\\";"'}),
        ('a="g;b=[;c={"h"i', {"a": '"g', "b": "[", "c": '{"h"i'}),  # no JSON
        ('a={"b": 1}c;d=', {"a": '{"b": 1}c', "d": ""}),
        (" ; ", {}),
    ],
)
def test_a_semicolon_within_json(text: str, expected: dict[str, str]) -> None:
    assert parse_assignments(text) == expected


def test_overrides_of_a_server_process() -> None:
    config = EngineConfig(chat_template='{% set a = "b;c=d" %}', max_num_sequence=2)
    overrides = PopenServer("demo", engine_config=config).command()[-1]
    assert engine_config_from_overrides(overrides) == config


@pytest.mark.parametrize("model", ["/no/such/folder", "."])
def test_a_model_that_is_none(
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["chat", model]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ([], 2),
        (["no-such-command"], 2),
        (["chat", "demo", "--no-such-flag"], 2),
        (["chat", "demo", "--prompt", "x", "--temperature", "hot"], 2),
        (["chat", "demo", "--prompt", "x", "--set", "no_such_setting=1"], 2),
        (["chat", "demo", "--max-num-sequence", "-3"], 2),
        (["chat", "/nothing"], 1),
        (["chat", "--url", "http://127.0.0.1:1", "--prompt", "x"], 1),
        (["generate", __file__, "--max-num-sequence", "-3", "-o", "{tmp}/out"], 2),
        (["generate", "/nothing"], 1),
        (["bench", "demo", "--max-num-sequence", "-3"], 2),
        (["bench", "demo", "--concurrency", "0"], 2),
        (["bench", "/nothing"], 1),
        (["inspect", "demo", "--quantization", "q99"], 2),
        (["inspect", "/nothing"], 1),
        (["inspect", "demo"], 0),
        (["pack", "demo", "/proc/nothing", "--quantization", "q99"], 2),
        (["pack", "demo", "/proc/nothing"], 1),
        (["pack", "/nothing", "/proc/nothing"], 1),
        (["serve", "demo", "--max-num-sequence", "-3", "--port", "0"], 2),
        (["serve", "/nothing", "--port", "0"], 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_exit_statuses(arguments: list[str], status: int, tmp_path: Path) -> None:
    """2: the command line is wrong, in form or in the value of a setting. 1: something failed."""
    try:
        found = main([argument.format(tmp=tmp_path) for argument in arguments])
    except SystemExit as ended:  # of the parser
        found = ended.code  # type: ignore[assignment]
    assert found == status


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"mlc-native {mlc_native.__version__}\n"


def run_module(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """``python -m mlc_native`` as a program of its own."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "mlc_native", *arguments],
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=120,
        check=False,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )


@pytest.mark.parametrize("command", ["bench", "chat", "generate", "inspect", "pack", "serve"])
def test_help_says_what_each_flag_means(command: str) -> None:
    for action in make_parser(command)._actions:
        if isinstance(action, argparse._SubParsersAction):
            parser = action.choices[command]
    assert "`" not in (parser.description or "")  # plain sentences
    assert [flag.option_strings for flag in parser._actions if not flag.help] == []


def test_the_package_is_a_program() -> None:
    assert run_module("--version").stdout.startswith("mlc-native ")
    assert run_module().returncode == 2
    assert run_module("--help").stdout.count("\n    chat ") == 1


@pytest.mark.parametrize("arguments", [["--version"], ["inspect", "demo"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written(
    arguments: list[str], unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with Path("/dev/full").open("w") as full:
        ended = run_module(*arguments, stdout=full)
    assert (ended.returncode, ended.stderr) == (1, "error: No space left on device\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_streams_that_are_closed(
    closed: str, make_model: MakeModel, fake_lib: str
) -> None:
    model = make_model(answer="Hello!")
    command = f'"$0" -m mlc_native chat "$1" --model-lib "$2" --prompt hi {closed}'
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        ["bash", "-c", command, sys.executable, model, fake_lib],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=120,
        check=False,
    )
    answer = "" if ">&-" in closed.replace("2>&-", "") else "Hello!\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, answer, "")


def test_a_reader_that_goes_away(make_model: MakeModel, fake_lib: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m mlc_native chat {make_model(answer='x' * 100)} "
    command += (
        f"--model-lib {fake_lib} --prompt a --prompt b --prompt c | true; echo ${{PIPESTATUS}}"
    )
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=120,
        check=False,
    )
    assert (ended.stdout, ended.stderr) == ("1\n", "")


def test_ctrl_c_ends_a_program_in_a_pipe(make_model: MakeModel, fake_lib: str) -> None:
    # An answer of 2000 steps of 5 ms, were it not stopped.
    model = make_model(script=[ord("x")] * 3, us_per_step=5000, cost="sleep")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "mlc_native",
            "chat",
            model,
            "--model-lib",
            fake_lib,
            "--prompt",
            "a",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stdout is not None
    try:
        assert os.read(process.stdout.fileno(), 1) == b"x"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (130, b"interrupted\n")
    finally:
        process.kill()
        process.wait()


# ------------------------------------------------------------------------------------ the session


@pytest.fixture
def session(make_model: MakeModel, fake_lib: str) -> Iterator[ChatSession]:
    with MLCEngine(make_model(answer="Hello!"), model_lib=fake_lib) as engine:
        yield ChatSession(engine)


def say(session: ChatSession, text: str) -> str:
    return "".join(piece for kind, piece in session.answer(text) if kind == "content")


def test_undo_and_messages(session: ChatSession) -> None:
    assert session.undo() is None
    assert say(session, "one") == "Hello!"
    say(session, "two")
    assert session.undo() == "two"
    assert session.messages == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "Hello!"},
    ]


def test_an_answer_that_is_left_early_stays_as_far_as_it_was_shown(session: ChatSession) -> None:
    pieces = session.answer("one")
    first = next(pieces)
    pieces.close()
    assert session.messages[-1] == {"role": "assistant", "content": first[1]}


def test_a_turn_that_fails_leaves_no_trace(session: ChatSession) -> None:
    session.set_system("be brief")
    with pytest.raises(InvalidRequest):
        say(session, "x" * 10_000)
    assert session.messages == []
    assert session.system == "be brief"


def test_a_system_prompt_that_the_template_refuses(make_model: MakeModel, fake_lib: str) -> None:
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}x"
    with MLCEngine(make_model(chat_template=template), model_lib=fake_lib) as engine:
        session = ChatSession(engine)
        with pytest.raises(InvalidRequest, match="no"):
            session.set_system("be brief")
        assert session.system is None


def test_save_and_load(session: ChatSession, tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    session.set_system("be brief")
    session.settings.update("max_tokens=3; stop=x")
    say(session, "one")
    session.save(path)
    session.save(path)  # a conversation may be replaced
    messages = list(session.messages)
    session.reset()
    session.set_system(None)
    session.settings.update("default")
    session.load(path)
    assert (session.system, session.messages) == ("be brief", messages)
    assert session.settings.values == {"max_tokens": 3, "stop": ["x"]}
    assert os.listdir(tmp_path / "..") != []
    assert [p.name for p in tmp_path.iterdir() if "partial" in p.name] == []


def test_load_takes_openais_messages(session: ChatSession, tmp_path: Path) -> None:
    path = tmp_path / "messages.json"
    path.write_text(
        json.dumps([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])
    )
    session.settings.update("seed=1")
    session.load(path)
    assert (session.system, session.messages) == ("s", [{"role": "user", "content": "u"}])
    assert session.settings.values == {"seed": 1}


@pytest.mark.parametrize(
    "content",
    [
        "text",
        "{}",
        '{"messages": 3}',
        '[{"role": "user"}]',
        '{"messages": [], "settings": {"x": 1}}',
        '{"messages": [], "settings": {"temperature": -1}}',
        '[{"role": "nobody", "content": ""}]',
    ],
)
def test_files_that_are_no_conversation(session: ChatSession, tmp_path: Path, content: str) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    say(session, "one")
    before = list(session.messages)
    with pytest.raises((InvalidConfig, InvalidRequest)):
        session.load(path)
    assert session.messages == before
    assert session.settings.values == {}
    if "messages" not in content and "role" not in content:
        with pytest.raises(InvalidConfig, match="not a conversation"):
            session.save(path)  # it would be lost
        assert path.read_text() == content


# ------------------------------------------------------------------------------------- completion


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("/re", ["/reset", "/regen"]),
        ("/set temp", ["temperature="]),
        ("/set temperature=0; prior", ["priority="]),
        ("/set priority=", ["high", "normal", "low", "default"]),
        ("/set skip_special_tokens=t", ["true"]),
        ("/set temperature=", ["default"]),
        ("/set nonsense=", []),
        ("hello /re", []),
        ("/help ", []),
    ],
)
def test_completions(typed: str, expected: list[str]) -> None:
    found = completions(typed)
    assert [text for text, _, _ in found] == expected
    for text, replaced, _ in found:
        assert text.startswith(typed[len(typed) - replaced :])


# ---------------------------------------------------------------------------------------- display


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2Jb", "a^[[2Jb"),
        ("a\rb\tc\nd", "a^Mb\tc\nd"),
        ("\x07\x00\x7f", "^G^@^?"),
        ("\x9b31m\u202eabc", "<9B>31m<202E>abc"),
        ("Füße 日本 🙂", "Füße 日本 🙂"),
    ],
)
def test_control_characters_are_shown(text: str, shown: str) -> None:
    assert show_controls(text) == shown


def render(text: str, pieces: int, rows: int = 24) -> str:
    """What a terminal has received of an answer that came in pieces, without colours."""
    out = io.StringIO()
    console = Console(file=out, width=40, height=rows, force_terminal=True, color_system=None)
    with showing(TerminalDisplay(console).answer()) as answer:
        for i in range(0, len(text), max(1, len(text) // pieces)):
            answer.add(text[i : i + max(1, len(text) // pieces)])
    return out.getvalue()


MARKDOWN = """# Title

One *two*
three <b>four</b>

```python
def f():
    return 1
```

1. first
2. second

|a|b|
|-|-|
|1|2|
"""


def test_markdown_is_rendered_the_same_however_it_arrives() -> None:
    from terminal import Screen

    def shown(pieces: int) -> list[str]:
        screen = Screen(40, 24, lambda _: None)
        pyte.Stream(screen).feed(render(MARKDOWN, pieces).replace("\n", "\r\n"))
        return [line for line in screen.all_lines() if line]

    whole = shown(1)
    assert "One two" in whole
    assert "three <b>four</b>" in whole  # line breaks are kept, and HTML is text
    assert any("def f():" in line for line in whole)
    assert not any("```" in line for line in whole)
    assert shown(len(MARKDOWN)) == whole


def test_an_answer_longer_than_the_screen_is_complete() -> None:
    from terminal import Screen

    code = "\n".join(f"line {i}" for i in range(60))
    screen = Screen(40, 10, lambda _: None)
    text = render(f"```\n{code}\n```\n", 300, rows=10)
    pyte.Stream(screen).feed(text.replace("\n", "\r\n"))
    lines = [line.strip() for line in screen.all_lines() if line.strip()]
    assert lines == code.split("\n")
