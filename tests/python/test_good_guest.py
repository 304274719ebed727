"""The C library in hosts that are not like ours: loaded twice, on small stacks, without exceptions.

Each host is a program of its own, so that what goes wrong ends that program and not the test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from c_library import LIBRARY, compiled_host

import mlc_native

ROOT = Path(__file__).resolve().parents[2]
MODEL = Path(mlc_native.__file__).parent / "demo_model"


def run_host(program: str, folder: Path, *arguments: object) -> str:
    """Runs a program of Python that has ``c_library``; returns its output."""
    source = folder / "host.py"
    source.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", source, MODEL, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{Path(__file__).parent}:{ROOT}:{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


TWO_COPIES = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from c_library import CEngine

model, *copies = sys.argv[1:]
CHAT = {"messages": [{"role": "user", "content": "Who are you?"}], "seed": 5, "max_tokens": 20}
engines = [CEngine(model, library=Path(copy), num_threads=1, max_num_sequence=2) for copy in copies]
with open("/proc/self/maps") as maps:
    loaded = maps.read()
assert all(copy in loaded for copy in copies)
with ThreadPoolExecutor(2) as pool:
    answers = list(pool.map(lambda engine: engine.answers(CHAT)[0].tokens, engines))
assert answers[0] == answers[1] and len(answers[0]) > 5, answers
engines[0].close()
assert engines[1].answers(CHAT)[0].tokens == answers[0]
engines[1].close()
"""


def test_two_copies_of_the_library_serve_in_one_process(tmp_path: Path) -> None:
    copies = [shutil.copy(LIBRARY, tmp_path / f"{name}.so") for name in ("one", "two")]
    run_host(TWO_COPIES, tmp_path, *copies)


# What recurses over its input: JSON, templates, regular expressions, schemas, grammars.
SMALL_STACK = """
import json, sys, threading
from c_library import CEngine, CError
from hostile import templates

model, stack = sys.argv[1], int(sys.argv[2])
CHAT = [{"role": "user", "content": "Who are you?"}]


def nested(depth, inner="1", begin='{"a":', end="}"):
    return begin * depth + inner + end * depth


def attempt(call):
    try:
        call()
    except CError as error:
        return error.code
    return 0


def bodies():
    for depth in (60, 64, 128, 1000, 100_000):
        value = json.loads(nested(depth)) if depth <= 128 else {}
        tool = {"type": "function", "function": {"name": "f", "parameters": value}}
        yield {"messages": CHAT, "tools": [tool]}
        yield {"messages": CHAT, "chat_template_kwargs": {"x": value}}
        call = {"name": "f", "arguments": nested(depth)}
        calls = [{"id": "1", "type": "function", "function": call}]
        yield {"messages": [*CHAT, {"role": "assistant", "tool_calls": calls}, *CHAT]}
        schema = nested(min(depth, 128), '{"type": "integer"}', '{"type":"array","items":')
        yield {"messages": CHAT, "response_format": json.loads(
            '{"type": "json_schema", "json_schema": {"name": "n", "schema": ' + schema + "}}")}
        group = nested(depth, "a", "(b|", ")")
        yield {"messages": CHAT, "response_format": {"type": "regex", "regex": group}}
        yield {"messages": CHAT, "response_format": {"type": "grammar", "grammar": "root ::= " +
               nested(depth, '"a"', '("b" | ', ")")}}


def on_engine(engine):
    codes = []
    for body in bodies():
        codes.append(attempt(lambda: engine.answers({**body, "max_tokens": 2})))
        codes.append(attempt(lambda: engine.render_chat(body)))
    # The deepest JSON that Python does not write.
    for depth in (64, 128, 1000, 100_000):
        for inner in (nested(depth), nested(depth, "1", "[", "]"), "[" * depth):
            text = '{"messages": [{"role": "user", "content": "x"}], "tools": [' + inner + "]}"
            codes.append(attempt(lambda: engine.answers_of_text(text)))
    engine.detokenize(engine.tokenize("a" * 100_000 + " b" * 50_000))
    return codes


TEMPLATES = {
    "lists": "{{ " + "[" * 50 + "1" + "]" * 50 + " }}",
    "blocks": "{% if true %}" * 50 + "x" + "{% endif %}" * 50,
    "operators": "{{ " + "1 + (" * 50 + "1" + ")" * 50 + " }}",
    "filters": "{{ 'a'" + "|trim" * 200 + " }}",
    "macros": "{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(9999) }}",
    "loops": "{% for x in [[[[1]]]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}",
    "endless loop": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "too deep": "{{ " + "[" * 5000 + "1" + "]" * 5000 + " }}",
    **{name: templates._DEEP["list"] + walk.replace("y", "s.x")
       for name, walk in templates._WALKS.items()},
}
OPTIONS = {"num_threads": 1, "max_num_sequence": 2, "max_total_sequence_length": 2048}


def everything():
    with CEngine(model, max_json_depth=128, **OPTIONS) as engine:
        codes = on_engine(engine)
    assert 0 in codes and 2 in codes and 9 not in codes, codes
    for name, source in TEMPLATES.items():
        try:
            with CEngine(model, chat_template=source + "{# #}\\n", **OPTIONS) as engine:
                assert attempt(lambda: engine.render_chat({"messages": CHAT})) in (0, 2), name
        except CError as error:
            assert error.code == 5, (name, str(error))
    for settings in ('{"a":' * 100_000, nested(900), '{"model": ' + nested(900) + "}"):
        assert attempt(lambda: CEngine(model, config_text=settings)) == 4
    done.append(True)


done = []
threading.stack_size(stack)
thread = threading.Thread(target=everything)
thread.start()
thread.join()
assert done
"""


def test_a_host_with_a_stack_of_256_kib(tmp_path: Path) -> None:
    run_host(SMALL_STACK, tmp_path, 256 << 10)


# A call of a grammar cannot be stopped, so its thread may outlive the engine and, as far as the
# host is concerned, the library. Such threads have the lowest priority: on a core that something
# else uses, one advances by milliseconds in the time for which the engine waits for it.
UNLOADED_EARLY = """
import _ctypes, contextlib, ctypes, os, subprocess, sys, time
from pathlib import Path
from c_library import LIBRARY, CEngine

def grammar_threads():
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(") ")
            if name == "mlcn-grammar":
                found[int(task.name)] = fields.split()
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found

def is_loaded():
    # Not by /proc/self/maps: the grammar library keeps maps of files that it reads symbols from.
    try:
        found = ctypes.CDLL(str(LIBRARY), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return False
    _ctypes.dlclose(found._handle)
    return True

core = min(os.sched_getaffinity(0))
# Keeps the core once it has been told to.
busy = ("import os, sys; os.sched_setaffinity(0, {%d}); print(flush=True)\\n"
        "while sys.stdin.readline(): \\n  while True: pass") % core
other_program = subprocess.Popen([sys.executable, "-c", busy], text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
other_program.stdout.readline()
engine = CEngine(sys.argv[1], num_threads=1, max_num_sequence=2, grammar_time_limit_s=3600)
token = engine.tokenize("a")[0]
request = engine.submit({
    "prompt": "x", "max_tokens": 4000, "ignore_eos": True, "logit_bias": {str(token): 50},
    "response_format": {"type": "grammar", "grammar": 'root ::= root root | "a" | ""'},
})
try:
    ticks = os.sysconf("SC_CLK_TCK")
    ours, seconds = None, 0
    while seconds < 0.5:  # until a call takes long: they take longer with each token
        assert engine.is_running(request)
        time.sleep(0.005)
        for ours, fields in grammar_threads().items():
            seconds = (int(fields[11]) + int(fields[12])) / ticks
            if os.sched_getscheduler(ours) == os.SCHED_IDLE:  # a busy machine would not run it
                with contextlib.suppress(PermissionError):
                    os.sched_setscheduler(ours, os.SCHED_OTHER, os.sched_param(0))
    os.sched_setscheduler(ours, os.SCHED_IDLE, os.sched_param(0))
    os.sched_setaffinity(ours, {core})
    other_program.stdin.write("\\n")
    other_program.stdin.flush()
    while grammar_threads()[ours][0] != "R":
        time.sleep(0.001)
    engine.close()
    _ctypes.dlclose(engine.handle)
    if ours not in grammar_threads():
        sys.exit(print("the call has ended"))
    assert is_loaded()
finally:
    other_program.kill()
    other_program.communicate()
while grammar_threads():
    time.sleep(0.01)
other = CEngine(sys.argv[1], num_threads=1, max_num_sequence=2)
other.close()
_ctypes.dlclose(other.handle)
assert not is_loaded()
"""


@pytest.mark.slow
def test_a_thread_that_outlives_the_engine_keeps_the_library(tmp_path: Path) -> None:
    """A call that is about to end when the engine is closed tries nothing: another one has to."""
    pytest.importorskip("xgrammar")
    for _ in range(6):
        if "the call has ended" not in run_host(UNLOADED_EARLY, tmp_path):
            return
    pytest.fail("no call took long enough")


# A daemon goes to "/", and both paths begin in the folder that it was started in.
LEFT_FOLDER = """
import os, sys
from pathlib import Path
from c_library import LIBRARY, CEngine

os.chdir(LIBRARY.parents[1])
lines = []
with CEngine("demo_model", library=LIBRARY.relative_to(LIBRARY.parents[1]), num_threads=1,
             max_num_sequence=2, log=lambda level, text: lines.append(text)) as engine:
    os.chdir("/")
    form = {"type": "regex", "regex": "abc[a-z]+"}
    answers = engine.answers({"prompt": "x", "max_tokens": 4, "response_format": form})
    assert answers[0].text.startswith("abc")
assert not any("tokenizer.json" in line for line in lines), lines
"""


def test_a_host_that_leaves_its_folder(tmp_path: Path) -> None:
    pytest.importorskip("xgrammar")
    run_host(LEFT_FOLDER, tmp_path)


SIGNALS = """
import os, signal, sys
from c_library import CEngine

with CEngine(sys.argv[1], num_threads=3, max_num_sequence=2) as engine:
    engine.answers({"prompt": "x", "max_tokens": 4,
                    "response_format": {"type": "regex", "regex": "[a-z ]+"}})
    names = set()
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/status") as status:
            fields = dict(line.rstrip("\\n").split(":\\t", 1) for line in status if ":\\t" in line)
        if not fields["Name"].startswith("mlcn-"):
            continue
        names.add(fields["Name"])
        blocked = int(fields["SigBlk"], 16)
        for kind in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1):
            assert blocked >> (kind - 1) & 1, (fields["Name"], kind)
        for kind in (signal.SIGSEGV, signal.SIGBUS, signal.SIGPROF):
            assert not blocked >> (kind - 1) & 1, (fields["Name"], kind)
    assert {"mlcn-engine", "mlcn-outputs", "mlcn-compute"} <= names, names
assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
"""


def test_signals_of_the_host_stay_on_its_threads(tmp_path: Path) -> None:
    run_host(SIGNALS, tmp_path)


NO_EXCEPTIONS = r"""
#include <mlc_native/mlc_native.h>
#include <cstdio>
#include <cstring>
#include <string>

static std::string answer;

static void add(const mlcn_output* output) { answer.append(output->text, output->text_length); }

static int fails(mlcn_engine* engine, const char* body) {
  mlcn_request* request = nullptr;
  mlcn_error* error = nullptr;
  const int32_t code = mlcn_submit(engine, body, MLCN_NUL_TERMINATED, nullptr, &request, &error);
  std::printf("%d %s\n", static_cast<int>(code), mlcn_error_field(error));
  mlcn_error_release(error);
  return code != MLCN_OK && request == nullptr;
}

int main(int, char** argv) {
  mlcn_engine* engine = nullptr;
  mlcn_error* error = nullptr;
  int wrong = mlcn_engine_create("/nonexistent", nullptr, nullptr, &engine, &error) == MLCN_OK;
  mlcn_error_release(error);
  wrong += mlcn_engine_create(argv[1], "{", nullptr, &engine, nullptr) != MLCN_INVALID_CONFIG;
  wrong += mlcn_engine_create(argv[1], nullptr, nullptr, &engine, nullptr) != MLCN_OK;
  wrong += !fails(engine, "{") + !fails(engine, "{\"prompt\": [-1]}");
  wrong += !fails(engine, "{\"prompt\": \"x\", \"temperature\": -1}");
  mlcn_submit_options options = MLCN_SUBMIT_OPTIONS_INIT;
  options.on_output = add;
  mlcn_request* request = nullptr;
  wrong += mlcn_submit(engine, "{\"prompt\": \"The sun is\", \"max_tokens\": 8}",
                       MLCN_NUL_TERMINATED, &options, &request, nullptr) != MLCN_OK;
  wrong += mlcn_request_wait(request, MLCN_FOREVER, nullptr) != MLCN_OK;
  mlcn_request_release(request);
  wrong += mlcn_engine_destroy(engine, nullptr) != MLCN_OK;
  return wrong + answer.empty();
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_a_host_that_is_compiled_without_exceptions(tmp_path: Path) -> None:
    program = compiled_host(NO_EXCEPTIONS, tmp_path)
    done = subprocess.run([program, MODEL], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split("\n")[:3] == ["2 body", "2 prompt", "2 temperature"]
