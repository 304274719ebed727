"""``mlc-native generate``: OpenAI's batch format in and out, bad lines, resuming after a kill."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlc_native import MLCEngine
from mlc_native.cli.batch_file import AnswerFile, DoneLines
from mlc_native.cli.main import main
from mlc_native.errors import InvalidConfig, invalid_config
from mlc_native.serve.openai_engine import OpenAIEngine

MakeModel = Callable[..., str]
ROOT = Path(__file__).resolve().parents[2]


def request(custom_id: str, **body: Any) -> dict[str, Any]:
    """A line of a batch."""
    url = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
    if "prompt" not in body:
        body = {"messages": [{"role": "user", "content": "hi"}], **body}
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def write(path: Path, lines: list[Any]) -> None:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(text + "\n" for text in texts))


def answers(path: Path) -> dict[int, dict[str, Any]]:
    """The answers by the number of the line."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {int(line["id"].removeprefix("batch_req_")): line for line in lines}
    assert len(found) == len(lines)
    return found


@pytest.fixture
def command(make_model: MakeModel, fake_lib: str) -> Callable[..., list[str]]:
    """command(file, *arguments, **fake): the arguments of ``mlc-native``."""

    def make(file: Path, *arguments: str, **fake: Any) -> list[str]:
        model = make_model(**{"answer": "Hello!", **fake})
        return ["generate", str(file), "--model", model, "--model-lib", fake_lib, *arguments]

    return make


def test_both_kinds_of_requests(
    command: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "batch.jsonl"
    limited = request("c", max_completion_tokens=2, top_k=3, model="gpt-x")
    write(file, [request("a"), "", request("b", prompt="x", n=2), limited])
    assert main(command(file)) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "3 answered, 0 failed; " in captured.err
    found = answers(tmp_path / "batch.out.jsonl")
    assert sorted(found) == [1, 3, 4]
    chat, completion, short = (found[line]["response"] for line in (1, 3, 4))
    assert [found[line]["custom_id"] for line in (1, 3, 4)] == ["a", "b", "c"]
    assert {answer["status_code"] for answer in (chat, completion, short)} == {200}
    assert chat["body"]["object"] == "chat.completion"
    assert chat["body"]["id"] == chat["request_id"]
    assert chat["body"]["choices"][0]["message"]["content"] == "Hello!"
    assert [choice["text"] for choice in completion["body"]["choices"]] == ["Hello!"] * 2
    assert short["body"]["choices"][0]["finish_reason"] == "length"
    assert all(line["error"] is None for line in found.values())


def test_embeddings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "batch.jsonl"
    line = {"custom_id": "a", "method": "POST", "url": "/v1/embeddings"}
    good = {"input": ["a house", "x"], "encoding_format": "base64"}
    write(file, [{**line, "body": good}, {**line, "custom_id": "b", "body": {"input": 3}}])
    assert main(["generate", str(file), "--overrides", "num_threads=1;dtype=float32"]) == 1
    assert "1 answered, 1 failed; " in capsys.readouterr().err
    found = answers(tmp_path / "batch.out.jsonl")
    body = found[1]["response"]["body"]
    assert found[1]["response"]["status_code"] == 200
    assert [each["index"] for each in body["data"]] == [0, 1]
    with MLCEngine("demo", num_threads=1, dtype="float32", verbose=False) as engine:
        expected = engine.embeddings.create(**good)  # type: ignore[arg-type]
    assert [each["embedding"] for each in body["data"]] == [e.embedding for e in expected.data]
    assert found[2]["response"]["body"]["error"]["param"] == "input"


def test_a_bad_line_is_an_error_and_no_stop(
    command: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "batch.jsonl"
    lines: list[Any] = [
        "no json",
        "[1]",
        {"url": "/v1/completions"},
        {**request("d"), "method": "GET"},
        {**request("e"), "url": "/v1/responses"},
        {**request("f"), "body": None},
        request("g", stream=True),
        request("h", temperature=-1),
        request("i", temperature="hot"),
        request("j", messages=[]),
        request("k", nonsense=1),
        request("l", prompt="x" * 100_000),
        '{"custom_id": "m", "url": "/v1/completions", "body": {"prompt": "\\ud800"}}',
        request("n"),
    ]
    write(file, lines)
    assert main(command(file)) == 1
    err = capsys.readouterr().err
    assert "2 answered, 12 failed" in err
    warning = 'warning: the field "nonsense" of a request is not known and was ignored\n'
    assert err.startswith(warning)
    found = answers(tmp_path / "batch.out.jsonl")
    codes = [found[line]["error"]["code"] for line in range(1, 8)]
    assert codes[:3] == ["invalid_json_line", "invalid_json_line", "missing_required_parameter"]
    assert codes[3:] == ["invalid_method", "invalid_url", "invalid_request", "invalid_request"]
    assert [found[line]["error"]["line"] for line in range(1, 8)] == list(range(1, 8))
    for line in (8, 9, 10, 12, 13):
        response = found[line]["response"]
        assert response["status_code"] == 400
        assert response["body"]["error"]["type"] == "invalid_request_error"
    assert found[8]["response"]["body"]["error"]["param"] == "temperature"
    assert found[11]["response"]["status_code"] == 200  # unknown fields are ignored
    assert found[14]["response"]["status_code"] == 200
    assert main(command(file)) == 1  # what has failed is not tried again, and has still failed
    assert "0 answered, 0 failed, 14 before (12 of them failed); " in capsys.readouterr().err


def test_a_line_that_needs_what_is_not_installed_fails_alone(
    command: Callable[..., list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request_of = OpenAIEngine._request_of

    def without_grammars(self: OpenAIEngine, call: Any, cancellation: Any) -> Any:
        if call.config.is_constrained:
            raise invalid_config("grammar", "the grammar library is not installed")
        return request_of(self, call, cancellation)

    monkeypatch.setattr(OpenAIEngine, "_request_of", without_grammars)
    file = tmp_path / "batch.jsonl"
    write(file, [request("a"), request("b", response_format={"type": "json_object"}), request("c")])
    assert main(command(file)) == 1
    assert "2 answered, 1 failed" in capsys.readouterr().err
    error = answers(tmp_path / "batch.out.jsonl")[2]["response"]["body"]["error"]
    assert error["param"] == "grammar"


def test_a_second_run_answers_what_is_left(
    command: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, output = tmp_path / "batch.jsonl", tmp_path / "answers"
    write(file, [request(str(i)) for i in range(10)])
    run = command(file, "-o", str(output))
    assert main(run) == 0
    # As a kill in the middle of a line leaves it, with the lines in any order.
    lines = output.read_bytes().splitlines(keepends=True)
    kept = [*lines[7:], *lines[:4]]
    output.write_bytes(b"".join(kept) + lines[5][:20])
    assert main(run) == 0
    assert "3 answered, 0 failed, 7 before; " in capsys.readouterr().err
    assert output.read_bytes().startswith(b"".join(kept))
    assert sorted(answers(output)) == list(range(1, 11))
    assert main(run) == 0
    assert "0 answered, 0 failed, 10 before; " in capsys.readouterr().err
    whole = output.read_bytes()
    assert main([*run, "--overwrite", "--model", str(tmp_path / "missing")]) == 1
    assert output.read_bytes() == whole
    output.write_bytes(b"a diary")
    assert main([*run, "--overwrite"]) == 0
    assert "10 answered, 0 failed; " in capsys.readouterr().err
    assert sorted(answers(output)) == list(range(1, 11))


def test_a_killed_run_goes_on(command: Callable[..., list[str]], tmp_path: Path) -> None:
    file, output = tmp_path / "batch.jsonl", tmp_path / "batch.out.jsonl"
    write(file, [request(str(i)) for i in range(60)])
    run = command(file, "--max-num-sequence", "2", us_per_step=2000, cost="sleep")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", "mlc_native", *run],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
    )
    try:
        while not (output.exists() and output.read_bytes().count(b"\n") >= 5):
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
    finally:
        process.kill()
        process.communicate()
    before = output.read_bytes()
    complete = before[: before.rfind(b"\n") + 1]
    assert 5 <= complete.count(b"\n") < 60
    assert main(run) == 0
    assert output.read_bytes().startswith(complete)
    assert sorted(answers(output)) == list(range(1, 61))


def test_ctrl_c_keeps_what_is_answered(command: Callable[..., list[str]], tmp_path: Path) -> None:
    file, output = tmp_path / "batch.jsonl", tmp_path / "batch.out.jsonl"
    write(file, [request(str(i)) for i in range(1000)])
    run = command(file, "--max-num-sequence", "2", us_per_step=2000, cost="sleep")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", "mlc_native", *run],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
    )
    try:
        while not (output.exists() and output.read_bytes().count(b"\n") >= 5):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (130, b"interrupted\n")
    finally:
        process.kill()
        process.wait()
    assert output.read_bytes().endswith(b"\n")
    assert 5 <= len(answers(output)) < 1000


@pytest.mark.parametrize("end", ["", "\n"])
def test_lines_of_a_pipe_are_answered_as_they_come(
    command: Callable[..., list[str]], tmp_path: Path, end: str
) -> None:
    """Each line is sent when the one before has its answer."""
    output = tmp_path / "answers"
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", "mlc_native", *command(Path("/dev/stdin"), "-o", str(output))],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        text=True,
        bufsize=0,
    )
    try:
        assert process.stdin is not None
        for count in range(1, 4):
            if count > 1:
                process.stdin.write("\n \n")  # blank lines count
            text = json.dumps(request(str(count), prompt="x" * 100))
            for piece in (text[:5], text[5:], "\n"):
                process.stdin.write(piece)
            while not (output.exists() and output.read_bytes().count(b"\n") >= count):
                assert process.poll() is None
        process.stdin.write(json.dumps(request("last", prompt="x" * 100_000)) + end)
        process.stdin.close()
        assert process.wait(60) == 1
    finally:
        process.kill()
        process.wait()
    found = answers(output)
    assert [found[line]["custom_id"] for line in sorted(found)] == ["1", "2", "3", "last"]
    assert sorted(found) == [1, 4, 7, 8]


def test_outputs_that_are_refused(
    command: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, output = tmp_path / "batch.jsonl", tmp_path / "batch.out.jsonl"
    write(file, [request("a"), request("b")])
    run = command(file)

    def refused(named: str, *arguments: str, status: int = 2) -> None:
        assert main([*run, *arguments]) == status
        assert named in capsys.readouterr().err

    output.write_text("a diary\n")
    refused("is not a file of answers")
    assert output.read_text() == "a diary\n"
    for text in ("a diary", '{"id": "x"}', '{"id": "batch_request'):  # without the end of a line
        output.write_text(text)
        refused("is not a file of answers")
        assert output.read_text() == text
    refused("is the file of requests", "-o", str(file))
    refused("no such folder", "-o", str(tmp_path / "no such folder" / "x"), status=1)
    output.unlink()
    assert main(run) == 0
    write(file, [request("b"), request("a")])
    capsys.readouterr()
    refused("another custom_id")
    with output.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        refused("another process writes")
    assert main(["generate", str(tmp_path / "missing")]) == 1
    assert "missing" in capsys.readouterr().err
    assert main(["generate", "."]) == 1
    assert capsys.readouterr().err == "error: .: Is a directory\n"


@pytest.mark.parametrize("kept", [0, 1, 9, 18, 19, 40])
def test_what_a_kill_leaves_of_a_line_is_cut_off(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "out"
    file = AnswerFile(path)
    file.write({"id": "batch_req_1", "custom_id": "a", "response": None, "error": None})
    whole = path.read_bytes()
    file.close()
    path.write_bytes(whole + whole[:kept])
    file = AnswerFile(path)
    assert file.done.count == 1
    file.close()
    assert path.read_bytes() == whole


def test_a_full_disk_ends_the_run_and_loses_nothing(
    command: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, output = tmp_path / "batch.jsonl", tmp_path / "batch.out.jsonl"
    write(file, [request(str(i)) for i in range(40)])
    run = command(file)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1]))
    try:
        assert main(run) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert capsys.readouterr().err == f"error: {output}: File too large\n"
    content = output.read_bytes()
    assert len(content) == 4000
    complete = content[: content.rfind(b"\n") + 1]
    assert main(run) == 0
    assert output.read_bytes().startswith(complete)
    assert sorted(answers(output)) == list(range(1, 41))


def test_a_full_queue_fails_no_line(
    command: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only a list of more prompts than the queue ever holds fails, whatever else is in flight."""
    file, output = tmp_path / "batch.jsonl", tmp_path / "batch.out.jsonl"
    lists = [["x"] * (300 if i == 13 else 1 + i % 4) for i in range(40)]
    write(file, [request(str(i), prompt=prompts) for i, prompts in enumerate(lists)])
    flags = ("--max-num-sequence", "4", "--max-queue-length", "4")
    assert main(command(file, *flags, us_per_step=300, cost="sleep")) == 1
    assert "39 answered, 1 failed" in capsys.readouterr().err
    found = answers(output)
    assert found[14]["response"]["body"]["error"]["code"] == "queue_full"
    for line, prompts in enumerate(lists, 1):
        if line != 14:
            choices = found[line]["response"]["body"]["choices"]
            assert [choice["text"] for choice in choices] == ["Hello!"] * len(prompts)


def test_a_full_queue_of_grammars_fails_no_line(
    command: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "batch.jsonl"
    schemas = [{"type": "object", "properties": {f"p{i}": {"const": i}}} for i in range(40)]
    formats = [{"type": "json_schema", "json_schema": {"name": "x", "schema": s}} for s in schemas]
    write(file, [request(str(i), response_format=f) for i, f in enumerate(formats)])
    flags = ("--max-num-sequence", "40", "--max-grammar-queue-length", "1")
    assert main(command(file, *flags, answer="{}")) == 0, capsys.readouterr().err


def test_many_lines_take_little_memory() -> None:
    done = DoneLines()
    for line in reversed(range(1, 100_001, 2)):
        done.add(line, str(line))
    assert done.count == 50_000
    assert 99_999 in done
    assert 100_000 not in done
    assert 10**9 not in done
    assert done.agrees(3, "3")
    assert not done.agrees(3, "4")
    assert sys.getsizeof(done._checksums) < 2_000_000


def test_an_answer_is_in_the_file_when_write_returns(tmp_path: Path) -> None:
    file = AnswerFile(tmp_path / "out")
    file.write({"id": "batch_req_1", "custom_id": "ü\ud800"})
    assert json.loads((tmp_path / "out").read_bytes())["id"] == "batch_req_1"
    with pytest.raises(InvalidConfig, match="another process"):
        AnswerFile(tmp_path / "out")
    file.close()
    done = AnswerFile(tmp_path / "out").done
    assert done.count == 1
    assert done.agrees(1, "ü\ud800")
