"""The C library leaves alone what belongs to the whole process, as it is before and after, and does
not depend on it: on the locale, and on how the host's threads compute."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from c_library import compiled_host

import mlc_native

MODEL = Path(mlc_native.__file__).parent / "demo_model"

HOST = r"""
#include <mlc_native/mlc_native.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <cfenv>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <locale>
#include <map>
#include <new>
#include <string>

static void on_signal(int) {}
static void on_terminate() { std::abort(); }
static void on_new() { std::abort(); }

template <typename T>
static std::string bytes(const T& value) {
  std::string text(sizeof(value), '\0');
  std::memcpy(text.data(), &value, sizeof(value));
  return text;
}

static std::string environment() {
  std::string text;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    text += std::string(*variable) + '\n';
  }
  return text;
}

static std::string signals() {
  std::string text;
  for (int kind = 1; kind < SIGRTMAX; ++kind) {
    struct sigaction action = {};
    if (sigaction(kind, nullptr, &action) != 0) continue;
    const int restorer = 0x04000000;  // the C library's own mark of what was set once
    text += bytes(action.sa_handler) + bytes(action.sa_flags & ~restorer);
  }
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  for (int kind = 1; kind < SIGRTMAX; ++kind) text += sigismember(&blocked, kind) ? '1' : '0';
  return text;
}

static std::string limits() {
  std::string text;
  for (const auto kind : {RLIMIT_AS, RLIMIT_CORE, RLIMIT_NOFILE, RLIMIT_STACK, RLIMIT_MEMLOCK}) {
    rlimit value;
    getrlimit(kind, &value);
    text += bytes(value);
  }
  itimerval timer;
  getitimer(ITIMER_REAL, &timer);
  return text + bytes(timer) + bytes(getpriority(PRIO_PROCESS, 0));
}

static std::string files() {
  const mode_t mask = umask(022);
  umask(mask);
  char folder[4096] = "";
  const char* const found = getcwd(folder, sizeof(folder));
  return bytes(mask) + (found == nullptr ? "" : found);
}

static std::string numbers() {
  volatile float smallest = 1.5e-38f;
  smallest = smallest / 4;  // 0 if denormal numbers are flushed
  return bytes(std::fegetround()) + bytes(fegetexcept()) + (smallest == 0 ? '0' : '1');
}

static std::map<std::string, std::string> state() {
  return {{"locale", std::setlocale(LC_ALL, nullptr) + std::locale().name()},
          {"environment", environment()},
          {"signals", signals()},
          {"limits", limits()},
          {"files", files()},
          {"numbers", numbers()},
          {"rand", bytes(std::rand())},  // the same sequence again: see main
          {"handlers", bytes(std::get_terminate()) + bytes(std::get_new_handler())}};
}

static std::string answer;
static void add(const mlcn_output* output) { answer.append(output->text, output->text_length); }
static void log(void*, int32_t, const char*) {}

int main(int, char** argv) {
  std::setlocale(LC_NUMERIC, "C.UTF-8");
  std::signal(SIGUSR1, on_signal);
  std::signal(SIGPIPE, SIG_DFL);
  std::set_terminate(on_terminate);
  std::set_new_handler(on_new);
  std::fesetround(FE_UPWARD);
  std::srand(5);
  const std::map<std::string, std::string> before = state();
  std::srand(5);
  mlcn_engine_options options = MLCN_ENGINE_OPTIONS_INIT;
  options.on_log = log;
  mlcn_engine* engine = nullptr;
  const char* const config = "{\"num_threads\": 2, \"max_num_sequence\": 2}";
  if (mlcn_engine_create(argv[1], config, &options, &engine, nullptr) != MLCN_OK) return 3;
  mlcn_submit_options submit = MLCN_SUBMIT_OPTIONS_INIT;
  submit.on_output = add;
  mlcn_request* request = nullptr;
  if (mlcn_submit(engine, argv[2], MLCN_NUL_TERMINATED, &submit, &request, nullptr)) return 4;
  mlcn_request_wait(request, MLCN_FOREVER, nullptr);
  mlcn_request_release(request);
  mlcn_submit(engine, "{", MLCN_NUL_TERMINATED, &submit, &request, nullptr);  // an error
  if (mlcn_engine_destroy(engine, nullptr) != MLCN_OK || answer.empty()) return 5;
  int changed = 0;
  for (const auto& [name, value] : state()) {
    if (value == before.at(name)) continue;
    std::printf("%s\n", name.c_str());
    changed = 1;
  }
  return changed;
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("constrained", [False, True], ids=["free", "grammar"])
def test_nothing_of_the_process_changes(tmp_path: Path, constrained: bool) -> None:
    """Nor is anything written to stdout and stderr."""
    body = {"prompt": "The sun is", "max_tokens": 8, "seed": 1}
    if constrained:
        pytest.importorskip("xgrammar")
        body["response_format"] = {"type": "regex", "regex": "[a-z ]+"}
    program = compiled_host(HOST, tmp_path)
    command = [str(program), str(MODEL), json.dumps(body)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# Says what an engine answers, and how it writes numbers.
SETTINGS = r"""
#include <mlc_native/mlc_native.h>
#include <cfenv>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <locale>
#include <string>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

struct Grouped : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

static bool change(const std::string& setting) {
  if (setting == "upward") return std::fesetround(FE_UPWARD) == 0;
  if (setting == "traps") return feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW) != -1;
  if (setting == "locale") {
    std::locale::global(std::locale(std::locale(), new Grouped));  // of <iostream>
    if (std::setlocale(LC_NUMERIC, "comma") == nullptr) return false;
    char text[8];
    std::snprintf(text, sizeof(text), "%g", 0.5);
    return std::strcmp(text, "0,5") == 0;
  }
#ifdef __SSE__
  if (setting == "flush") _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
  return true;
}

static void show(const mlcn_output* output) {
  for (size_t i = 0; i < output->num_tokens; ++i) {
    uint32_t bits;
    std::memcpy(&bits, &output->logprobs->values[i], sizeof(bits));
    std::printf("%d %x ", static_cast<int>(output->tokens[i]), static_cast<unsigned>(bits));
  }
}

static void submit(mlcn_engine* engine, const char* body) {
  mlcn_submit_options options = MLCN_SUBMIT_OPTIONS_INIT;
  options.on_output = show;
  mlcn_request* request = nullptr;
  mlcn_error* error = nullptr;
  mlcn_submit(engine, body, MLCN_NUL_TERMINATED, &options, &request, &error);
  if (request != nullptr) mlcn_request_wait(request, MLCN_FOREVER, nullptr);
  std::printf("%s\n", mlcn_error_message(error));
  mlcn_error_release(error);
  mlcn_request_release(request);
}

int main(int, char** argv) {
  if (!change(argv[2])) return 2;
  const char* const config =
      "{\"num_threads\": 2, \"max_num_sequence\": 2, \"max_total_sequence_length\": 4096,"
      " \"quantization\": \"q4\"}";
  mlcn_engine* engine = nullptr;
  if (mlcn_engine_create(argv[1], config, nullptr, &engine, nullptr) != MLCN_OK) return 3;
  submit(engine, "{\"prompt\": \"The sun is\", \"max_tokens\": 40, \"seed\": 1, \"logprobs\": 1,"
                 " \"temperature\": 1.3, \"top_p\": 0.97, \"ignore_eos\": true}");
  submit(engine, "{\"prompt\": \"The sun is\", \"max_tokens\": 40, \"logprobs\": 1,"
                 " \"temperature\": 0, \"logit_bias\": {\"5\": -100}}");
  submit(engine, "{\"prompt\": \"x\", \"temperature\": -1.5}");
  submit(engine, "{\"prompt\": \"x\", \"temperature\": 1e400}");
  submit(engine, "{\"prompt\": \"x\", \"top_logprobs\": 4096}");
  char* text = nullptr;
  if (mlcn_engine_metrics_prometheus(engine, &text, nullptr, nullptr) != MLCN_OK) return 4;
  for (const char* line = text; line != nullptr && *line != '\0';) {
    const char* const end = std::strchr(line, '\n');
    const char* const label = std::strstr(line, "{le=");
    if (label != nullptr && label < end) {
      std::printf("%.*s\n", static_cast<int>(std::strchr(label, '}') - line), line);
    }
    line = end + 1;
  }
  mlcn_free(text);
  return mlcn_engine_destroy(engine, nullptr) == MLCN_OK ? 0 : 5;
}
"""


def make_comma_locale(folder: Path) -> None:
    """Writes a locale of glibc's with numbers such as 1.024,5; what is installed varies."""
    # The magic number of LC_NUMERIC, the number of values, their places, the values.
    texts = struct.pack("<2s2s2s2xI", b",", b".", b"\3\3", ord(",")) + struct.pack("<I", ord("."))
    places = (32, 34, 36, 40, 44, 48)
    (folder / "comma").mkdir(parents=True)
    (folder / "comma/LC_NUMERIC").write_bytes(
        struct.pack("<8I", 0x20031114, len(places), *places) + texts + b"UTF-8\0"
    )


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_answers_do_not_depend_on_the_process(tmp_path: Path) -> None:
    make_comma_locale(tmp_path / "locales")
    program = compiled_host(SETTINGS, tmp_path, "-frtti")  # of the facet
    environment = {**os.environ, "LOCPATH": str(tmp_path / "locales")}

    def said(setting: str) -> list[str]:
        command = [str(program), str(MODEL), setting]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment
        )
        assert (done.returncode, done.stderr) == (0, ""), setting
        return done.stdout.splitlines()

    expected = said("none")
    assert 'mlc_native_ttft_s_bucket{le="0.001"' in expected
    assert '"temperature" must be a number in [0, inf], got -1.5' in expected
    for setting in ("upward", "flush", "traps", "locale"):
        assert said(setting) == expected, setting
