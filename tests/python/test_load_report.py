"""What a load says: progress, the summary, warnings, and errors that tell what to do."""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mlc_native
from mlc_native import EngineConfig, MLCEngine, SyncMLCEngine
from mlc_native.errors import LoadError
from mlc_native.serve.load_report import LoadReport, LoadSummary
from mlc_native.support.engine_log import write_log
from mlc_native.support.interrupt import call_interruptibly
from mlc_native.support.model_source import resolve_model
from mlc_native.support.quantity import quantity

MakeModel = Callable[..., str]
ROOT = Path(__file__).resolve().parents[2]
DEMO = Path(mlc_native.__file__).parent / "demo_model"
LFS_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the draft of the demo model."""
    shutil.copytree(DEMO / "draft", tmp_path / "model")
    return tmp_path / "model"


# ------------------------------------------------------------------------------ the engine's log


@pytest.mark.parametrize("kind", [MLCEngine, SyncMLCEngine])
def test_what_the_engine_reports_is_logged(
    folder: Path,
    tmp_path: Path,
    kind: type[MLCEngine] | type[SyncMLCEngine],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    config = EngineConfig(weight_cache_dir=str(tmp_path / "file/cache"), verbose=False)
    engine = kind(str(folder), device="cpu", engine_config=config)
    engine.terminate() if isinstance(engine, MLCEngine) else engine.unload()
    records = [r for r in caplog.records if r.name == "mlc_native.engine"]
    assert {record.levelno for record in records} == {logging.WARNING}
    assert all(record.getMessage().startswith("weight_cache_dir: ") for record in records)
    assert capfd.readouterr() == ("", "")


# ------------------------------------------------------------------------------------ the summary


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1 kB"),
        (3_279_104, "3.28 MB"),
        (123_456_789, "123 MB"),
        (7e9, "7 GB"),
        (5e15, "5000 TB"),
    ],
)
def test_quantities(number: float, shown: str) -> None:
    assert quantity(number, "B") == shown


def test_words_as_units() -> None:
    assert quantity(12, "parameters") == "12 parameters"
    assert quantity(3_279_104, "parameters") == "3.28 M parameters"


@pytest.mark.parametrize("kind", [MLCEngine, SyncMLCEngine])
def test_the_summary_is_logged_and_in_the_repr(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mlc_native")
    config = EngineConfig(num_threads=2, kv_cache_dtype="int8", max_total_sequence_length=1024)
    engine = kind("demo", "cpu", engine_config=config)
    (line,) = [r.getMessage() for r in caplog.records if "loaded in" in r.getMessage()]
    told = json.loads((DEMO / "training.json").read_text())["parameters"]
    assert line.startswith(f"demo on cpu: {quantity(told, 'parameters')} in bfloat16, ")
    # 4 layers, 2 heads of K and of V, 64 codes, and a scale of 4 bytes.
    assert f"KV cache of 1,024 tokens in int8, {quantity(1024 * 4 * 2 * 2 * 68, 'B')}; " in line
    assert "; 2 threads, " in line
    described = repr(engine)
    assert described.startswith(f'<{kind.__name__} "demo" on cpu: ')
    assert "mode auto, " in described
    assert " sequences of up to 1,0" in described
    engine.unload()
    assert "no model" in repr(engine)


def test_quantized_formats_are_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mlc_native")
    with MLCEngine("demo", "cpu", engine_config=EngineConfig(quantization="q4")) as engine:
        assert "q4 and q8 with bfloat16" in repr(engine)
        # 4 bits and a scale of 16 bits for 32 weights, 8 bits of the embeddings
        assert engine._model.current.summary.weight_bytes < 3.3e6
    assert "terminated" in repr(engine)


def test_a_plugin_that_tells_nothing(make_model: MakeModel, fake_lib: str) -> None:
    with MLCEngine(make_model(), model_lib=fake_lib) as engine:
        assert "parameters" not in repr(engine)
        assert "KV cache of " in repr(engine)


def test_not_verbose_is_silent(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    with MLCEngine("demo", "cpu", engine_config=EngineConfig(verbose=False)):
        pass
    assert [r for r in caplog.records if r.name.startswith("mlc_native")] == []
    assert capfd.readouterr() == ("", "")


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


SUMMARY = LoadSummary(1000, "bfloat16", 2000, 64, 4096, "bfloat16", "1 thread, avx2", (), 0.5)


def summary_json(**changes: Any) -> str:
    fields = {**vars(SUMMARY), **changes}
    del fields["seconds"]
    return json.dumps(fields)


@pytest.mark.parametrize("verbose", [True, False])
def test_a_bar_and_a_line_on_a_terminal(
    verbose: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "mlc_native")
    monkeypatch.setattr("mlc_native.serve.load_report.PROGRESS_BAR_AFTER_S", 0)
    screen = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", screen)
    report = LoadReport("/folder/model", verbose)
    report(10, 100)
    report(100, 100)
    report.finish(summary_json(), "cpu")
    if verbose:
        assert "Loading model" in screen.getvalue()
        last = screen.getvalue().split("\r")[-1].strip()
        assert last.startswith("/folder/model on cpu: 1 k parameters in bfloat16, 2 kB; KV cache")
    else:
        assert screen.getvalue() == ""


def test_a_log_tells_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At most once per second, and only with `verbose`."""
    caplog.set_level(logging.INFO, "mlc_native")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    now = 100.0
    monkeypatch.setattr("mlc_native.serve.load_report.time.monotonic", lambda: now)
    for verbose in (False, True):
        now = 100.0
        report = LoadReport("model", verbose)
        for percent in range(101):
            now = 100.0 + percent / 25  # four seconds in all
            report(percent * 10_000_000, 1_000_000_000)
    assert [record.getMessage() for record in caplog.records] == [
        "loading model: 250 MB of 1 GB, about 3 s left",
        "loading model: 500 MB of 1 GB, about 2 s left",
        "loading model: 750 MB of 1 GB, about 1 s left",
    ]


def test_nothing_is_said_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that logs to the terminal at level INFO sees the line once."""
    screen = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", screen)
    logger = logging.getLogger("mlc_native")
    handler = logging.StreamHandler(screen)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        LoadReport("model", True).finish(summary_json(), "cpu")
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert screen.getvalue().count("KV cache") == 1


# -------------------------------------------------------------------------------- what is unused


@pytest.fixture
def folder_with_more(folder: Path) -> Path:
    import torch
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    more = {f"extra.{i}": torch.zeros(2) for i in range(10)}
    save_file({**load_file(path), **more}, path)
    return folder


def test_unused_tensors_are_a_warning(
    folder_with_more: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = EngineConfig(verbose=False)
    with MLCEngine(str(folder_with_more), "cpu", engine_config=config) as engine:
        engine.completions.create(prompt="x", max_tokens=1)
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "does not use: extra.0, extra.1, " in record.getMessage()
    assert record.getMessage().endswith("and 2 more")


def test_a_log_has_one_line_per_message(caplog: pytest.LogCaptureFixture) -> None:
    names = ["a\nERROR mlc_native: nothing is lost", "\x1b[31mred"]
    LoadReport("model", False).finish(summary_json(unused_tensors=names), "cpu")
    write_log(2, "the file a\r\nb")
    assert [record.getMessage() for record in caplog.records] == [
        "the checkpoint of model has tensors that the model does not use: "
        "a ERROR mlc_native: nothing is lost, ^[[31mred",
        "the file a b",
    ]


def test_unused_tensors_are_an_error_if_asked_for(folder_with_more: Path) -> None:
    config = EngineConfig(strict_weights=True)
    with pytest.raises(LoadError, match=r'does not use: extra\.0, .* "strict_weights"') as error:
        MLCEngine(str(folder_with_more), "cpu", engine_config=config)
    assert error.value.field == "extra.0"


# --------------------------------------------------------------------------- files of other kinds


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_git_lfs_pointers(folder: Path, name: str) -> None:
    (folder / name).write_text(LFS_POINTER)
    with pytest.raises(LoadError, match=r'is a git-lfs pointer .* run "git lfs pull"') as error:
        MLCEngine(str(folder), "cpu")
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_a_damaged_tokenizer_in_another_form(folder: Path) -> None:
    """A vocabulary without merges is of no known kind."""
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text('{"a": 0}')
    MLCEngine(str(folder), "cpu").terminate()
    (folder / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(LoadError, match=r'vocab\.json: .* "llama" .* a tokenizer\.json is needed'):
        MLCEngine(str(folder), "cpu")
    (folder / "tokenizer.model").write_bytes(b"\x0a\x0e")
    with pytest.raises(LoadError, match=r"tokenizer\.model: .* of 14 bytes, but only 0 are left"):
        MLCEngine(str(folder), "cpu")
    (folder / "tokenizer.model").write_text(LFS_POINTER)
    with pytest.raises(LoadError, match=r"tokenizer\.model.* git-lfs"):
        MLCEngine(str(folder), "cpu")


@pytest.mark.parametrize(("architectures", "kept"), [(None, False), ([], True)])
def test_missing_architectures(folder: Path, architectures: Any, kept: bool) -> None:
    config = json.loads((folder / "config.json").read_text())
    del config["architectures"]
    if kept:
        config["architectures"] = architectures
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "qwen3"}))
    with pytest.raises(LoadError, match=r'"architectures" .* add .* \["Qwen3ForCausalLM"\]'):
        MLCEngine(str(folder), "cpu")


# ---------------------------------------------------------------------------------------- the hub


@pytest.fixture
def silent_server() -> Iterator[int]:
    """The port of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_without_a_network_the_error_comes_soon(
    silent_server: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from huggingface_hub import constants, snapshot_download, utils

    assert snapshot_download is not utils.get_session  # both are imported: that is no network

    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent_server}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    begin = time.monotonic()
    with pytest.raises(LoadError, match=r"the Hugging Face hub did not answer within 2 s"):
        resolve_model("org/name")
    assert time.monotonic() - begin < 3 * int(os.environ.get("MLC_NATIVE_PATIENCE", "1"))


# -------------------------------------------------------------------------------------- no stderr


@pytest.mark.parametrize("kind", ["none", "closed", "replaced"])
def test_a_program_without_stderr(
    kind: str, make_model: MakeModel, fake_lib: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sys.stderr is None if it was closed before Python began, as in some daemons."""
    stderr: Any = {"none": None, "closed": io.StringIO(), "replaced": object()}[kind]
    if kind == "closed":
        stderr.close()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        with MLCEngine(make_model(answer="Hi"), model_lib=fake_lib) as engine:
            (result,) = engine.generate("x")
    assert result.text == "Hi"


# ----------------------------------------------------------------------------------------- Ctrl-C


def test_interrupted_calls_stop() -> None:
    started, stopped = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        assert stopped.wait(60)

    def interrupt() -> None:
        started.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        call_interruptibly(stopped.set, work)
    assert stopped.is_set()


def test_ctrl_c_at_any_moment_is_a_keyboard_interrupt() -> None:
    """Python's own waits and starts of threads raise other errors, or never return, in some."""
    script = """
    import os, signal, subprocess, sys
    from mlc_native.support.interrupt import call_interruptibly

    def interrupt(number, frame):
        while frame is not None:
            if frame.f_code is call_interruptibly.__code__:
                raise KeyboardInterrupt
            frame = frame.f_back

    press = (
        "import os, random, signal, time\\n"
        "while os.getppid() == {0}:\\n"
        "    os.kill({0}, signal.SIGINT)\\n"
        "    time.sleep(random.random() * 2e-4)\\n"
    )
    signal.signal(signal.SIGINT, interrupt)
    presses = subprocess.Popen([sys.executable, "-c", press.format(os.getpid())])
    outcomes = set()
    for _ in range(3000):
        try:
            outcomes.add(call_interruptibly(None, divmod, 7, 2))
        except BaseException as error:
            outcomes.add(repr(error))
    presses.kill()
    presses.wait()
    print(outcomes == {(3, 1), "KeyboardInterrupt()"} or outcomes)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        timeout=60 * int(os.environ.get("MLC_NATIVE_PATIENCE", "1")),
        check=False,
    )
    assert (ended.stdout, ended.returncode) == ("True\n", 0)


def test_results_and_errors_pass_through() -> None:
    assert call_interruptibly(None, divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        call_interruptibly(None, divmod, 7, 0)


def test_ctrl_c_ends_a_load(make_model: MakeModel, fake_lib: str) -> None:
    script = """
    import sys, threading, os, signal
    from mlc_native import MLCEngine
    from mlc_native.serve import load_report
    call = load_report.LoadReport.__call__
    def interrupt(self, done, total):
        if done == 3:
            os.kill(os.getpid(), signal.SIGINT)
        call(self, done, total)
    load_report.LoadReport.__call__ = interrupt
    try:
        MLCEngine(sys.argv[1], model_lib=sys.argv[2])
    except KeyboardInterrupt:
        print([t.name for t in threading.enumerate()])
    """
    model = make_model(load_parts=100_000, us_per_load_part=1000)
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), model, fake_lib],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert (ended.stdout, ended.stderr) == ("['MainThread']\n", "")
